/** Who had a handoff when: its log entries as stretches of waiting, working and being asked. */
import type { Entry } from "../api/client.ts";
import { FINAL, LOST, verb } from "./rows.ts";

export type Kind = "waiting" | "working" | "asking" | "outcome";

export interface Segment {
  handoff: string;
  holder: string;
  kind: Kind;
  attempt: number;
  from: number;
  to: number | null;
}

export interface Ending {
  handoff: string;
  holder: string;
  at: number;
  state: string;
  lost: boolean;
}

export interface Course {
  segments: Segment[];
  endings: Ending[];
  deadline: number | null;
}

// biome-ignore lint: entry data is whatever the log holds
type Data = Record<string, any>;

interface Current {
  recipient: string;
  origin: string;
  attempt: number;
  open: Segment | null;
}

/** Follow the entries of one handoff or of a whole chain, in the order of the log. */
export function course(entries: readonly Entry[]): Course {
  const found: Course = { segments: [], endings: [], deadline: null };
  const all = new Map<string, Current>();
  for (const entry of entries) {
    const id = entry.handoff_id;
    const what = verb(entry);
    if (id === null || what === null) continue;
    const data = entry.data as Data;
    const at = Date.parse(entry.at);
    if (what === "offered") {
      all.set(id, { recipient: data.recipient, origin: data.origin, attempt: 0, open: null });
      found.deadline = Math.max(found.deadline ?? 0, data.terms?.deadline_at ?? 0) || null;
    }
    const here = all.get(id);
    if (here === undefined) continue;
    const move = (kind: Kind, holder: string) => {
      if (here.open !== null && here.open.kind === kind && here.open.holder === holder) {
        here.open.attempt = here.attempt;
        return;
      }
      close(here, at);
      here.open = { handoff: id, holder, kind, attempt: here.attempt, from: at, to: null };
      found.segments.push(here.open);
    };
    switch (what) {
      case "offered":
      case "returned":
        move("waiting", here.recipient);
        break;
      case "reassigned":
        here.recipient = data.recipient;
        move("waiting", here.recipient);
        break;
      case "delivered":
      case "reclaimed":
        here.attempt = data.attempt ?? here.attempt;
        move("waiting", here.recipient);
        break;
      case "accepted":
      case "revived":
      case "resumed":
        here.attempt = data.attempt ?? here.attempt;
        move("working", here.recipient);
        break;
      case "blocked":
        move("asking", data.asked);
        break;
      case "settled":
        close(here, at);
        here.open = null;
        break;
      default:
        if (!FINAL.has(what)) break;
        close(here, at);
        here.open = null;
        found.endings.push({ handoff: id, holder: here.recipient, at, state: what, lost: LOST.has(what) });
    }
  }
  return found;
}

function close(here: Current, at: number): void {
  if (here.open !== null) here.open.to = at;
}

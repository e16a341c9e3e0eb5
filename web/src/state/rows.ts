/** One open handoff as a line of a list: made from a view of the relay, or folded from log entries. */
import type { Entry, Handoff } from "../api/client.ts";

export interface Row {
  id: string;
  ref: string;
  title: string | null;
  from: string;
  to: string;
  origin: string;
  capability: string | null;
  priority: string;
  state: string;
  holder: string | null;
  correlation: string;
  leg: number;
  legs: number;
  version: number;
  attempt: number;
  tries: number;
  /** Times in milliseconds. */
  stored: number;
  since: number;
  /** By when the holder owes its next move; reminders and heartbeats do not move it. */
  due: number | null;
  deadline: number;
  promise: number | null;
  acceptWithin: number;
  answerWithin: number | null;
  question: { kind: string; text: string | null; asked: string; at: number } | null;
  status: string | null;
  /** Acknowledged as queued: the place in the recipient's queue, and how long that is where the relay counted it. */
  queued: { position: number | null; of: number | null } | null;
  code: string | null;
  settled: boolean;
  /** Ended without success, and nobody has decided. */
  dead: boolean;
}

export const FINAL: ReadonlySet<string> = new Set(["completed", "failed", "rejected", "expired", "cancelled"]);
export const LOST: ReadonlySet<string> = new Set(["failed", "rejected", "expired"]);

const UNIT_MS: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

export function parseDuration(text: string): number {
  let total = 0;
  for (const [, count, unit] of text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)) total += Number(count) * UNIT_MS[unit ?? "s"]!;
  return total;
}

const at = (time: string | null | undefined): number | null => (time ? Date.parse(time) : null);

export function fromView(h: Handoff, dead = false): Row {
  const last = h.receipts.at(-1);
  return {
    id: h.id,
    ref: h.ref,
    title: h.title,
    from: h.from,
    to: h.to,
    origin: h.chain.origin,
    capability: h.capability,
    priority: h.priority,
    state: h.state,
    holder: h.holder,
    correlation: h.correlation_id,
    leg: h.chain.here + 1,
    legs: h.chain.here + 1 + h.chain.next.length,
    version: h.version,
    attempt: h.attempt,
    tries: h.tries,
    stored: Date.parse(h.stored_at),
    since: at(h.question?.asked_at) ?? at(h.outcome?.at) ?? at(last?.at) ?? Date.parse(h.stored_at),
    due: at(h.owed_at) ?? at(h.due_at),
    deadline: Date.parse(h.deadline),
    promise: at(h.ack?.next_update),
    acceptWithin: parseDuration(h.accept_within),
    answerWithin: null,
    question: h.question
      ? { kind: h.question.kind, text: h.question.question ?? h.question.reason ?? null, asked: h.question.asked, at: Date.parse(h.question.asked_at) }
      : null,
    status: h.ack?.status ?? null,
    queued: h.ack?.queued ? { position: h.ack.position, of: h.ack.of ?? null } : null,
    code: h.outcome?.code ?? null,
    settled: h.settled_at !== null,
    dead: dead && LOST.has(h.state) && h.decision === null,
  };
}

// biome-ignore lint: entry data is whatever the log holds
type Data = Record<string, any>;

const MOVES: Record<string, string> = {
  delivered: "delivered",
  reclaimed: "delivered",
  accepted: "accepted",
  revived: "accepted",
  resumed: "accepted",
  blocked: "blocked",
  returned: "offered",
  reassigned: "offered",
  completed: "completed",
  failed: "failed",
  rejected: "rejected",
  expired: "expired",
  cancelled: "cancelled",
};

/** "handoff.offered.v1" is `offered`; entries about other things are null. */
export function verb(entry: Entry): string | null {
  return entry.type.startsWith("handoff.") ? (entry.type.split(".")[1] ?? null) : null;
}

function offered(entry: Entry): Row {
  const data = entry.data as Data;
  const body = (entry.body ?? {}) as Data;
  const when = Date.parse(entry.at);
  const done = (data.legs_done ?? []).length;
  return {
    id: entry.handoff_id!,
    ref: data.key ? `${data.sender}/${data.key}` : entry.handoff_id!,
    title: typeof body.title === "string" ? body.title : null,
    from: data.sender,
    to: data.recipient,
    origin: data.origin,
    capability: data.capability ?? null,
    priority: data.terms.priority,
    state: "offered",
    holder: data.recipient,
    correlation: data.correlation_id,
    leg: done + 1,
    legs: done + 1 + (data.legs ?? []).length,
    version: entry.version ?? 1,
    attempt: 0,
    tries: 0,
    stored: when,
    since: when,
    due: Math.min(when + data.terms.accept_within_ms, data.terms.deadline_at),
    deadline: data.terms.deadline_at,
    promise: null,
    acceptWithin: data.terms.accept_within_ms,
    answerWithin: data.terms.answer_within_ms ?? null,
    question: null,
    status: null,
    queued: null,
    code: null,
    settled: false,
    dead: false,
  };
}

/** Fold one entry into its row. An entry that the row already holds changes nothing. */
export function fold(row: Row | undefined, entry: Entry): Row | undefined {
  const what = verb(entry);
  if (what === null || entry.handoff_id === null || entry.version === null) return row;
  if (row === undefined) return what === "offered" ? offered(entry) : undefined;
  if (entry.version <= row.version) return row;
  const data = entry.data as Data;
  const body = (entry.body ?? {}) as Data;
  const when = Date.parse(entry.at);
  const next: Row = { ...row, version: entry.version };
  const state = MOVES[what];
  if (state !== undefined && state !== row.state) {
    next.state = state;
    next.since = when;
    next.queued = null;
  }
  if (typeof data.attempt === "number") next.attempt = Math.max(row.attempt, data.attempt);
  switch (what) {
    case "queued":
      next.queued = { position: data.position ?? null, of: null };
      next.promise = data.next_update_at ?? null;
      next.due = Math.min(next.promise ?? next.deadline, next.deadline);
      if (typeof body.status === "string") next.status = body.status;
      break;
    case "queue_lapsed":
      next.queued = null;
      next.promise = null;
      next.due = Math.min(when + row.acceptWithin, next.deadline);
      break;
    case "accepted":
    case "updated":
      next.promise = data.next_update_at ?? null;
      next.due = Math.min(next.promise ?? next.deadline, next.deadline);
      next.holder = row.question && what === "updated" ? row.holder : row.to;
      if (typeof body.status === "string") next.status = body.status;
      break;
    case "blocked":
      next.question = { kind: data.kind, text: body.question ?? body.reason ?? null, asked: data.asked, at: when };
      next.holder = data.asked;
      next.since = when;
      next.due = Math.min(when + (row.answerWithin ?? Number.POSITIVE_INFINITY), next.deadline);
      break;
    case "resumed":
    case "revived":
      next.question = null;
      next.holder = row.to;
      next.due = Math.min(row.promise ?? next.deadline, next.deadline);
      break;
    case "delivered":
      next.holder = row.to;
      next.capability = data.capability ?? row.capability;
      break;
    case "reassigned":
      next.to = data.recipient;
      next.queued = null;
      next.capability = data.capability ?? row.capability;
      next.tries = 0;
      next.question = null;
      next.holder = next.to;
      next.promise = null;
      next.due = Math.min(when + row.acceptWithin, next.deadline);
      break;
    case "returned":
      next.question = null;
      next.holder = row.to;
      next.promise = null;
      next.tries = row.tries + (data.tried ? 1 : 0);
      next.due = Math.min((data.not_before ?? when) + row.acceptWithin, next.deadline);
      break;
    case "escalated":
      if (data.priority) next.priority = data.priority;
      break;
    case "agreed":
      if (data.terms?.deadline_at) next.deadline = data.terms.deadline_at;
      break;
    case "settled":
      next.settled = true;
      next.holder = null;
      next.due = null;
      break;
    case "redriven":
    case "accepted_late":
    case "discarded":
    case "joined":
      next.dead = false;
      break;
  }
  if (FINAL.has(next.state) && !FINAL.has(row.state)) {
    next.question = null;
    next.holder = row.origin;
    next.due = when + 86_400_000;
    next.code = data.code ?? (what === "expired" ? "deadline" : null);
    next.dead = LOST.has(next.state);
    if (next.code === "attempts_exhausted") next.tries = row.tries + 1;
  }
  return next;
}

export interface Lateness {
  since: number;
  what: string;
}

/** Which clock has run out on a row, if one has: whoever holds it owes something since then. */
export function lateness(row: Row, at: number): Lateness | null {
  if (row.settled || row.holder === null) return null;
  if (row.due !== null && row.due <= at) return { since: row.due, what: row.due === row.deadline ? "owes the result" : owed(row) };
  return null;
}

/** What the holder owes next, as what follows its name. */
export function owed(row: Pick<Row, "state" | "question" | "queued">): string {
  switch (row.state) {
    case "offered":
      return row.queued ? `has it queued${place(row.queued)}` : "owes acceptance";
    case "delivered":
      return "owes an acknowledgement";
    case "accepted":
      return "owes an update";
    case "blocked":
      return row.question?.kind === "terms" ? "owes a yes or no to new terms" : "owes an answer";
    default:
      return "has an outcome to collect";
  }
}

/** " 2 of 5", or as much of it as is known. */
function place({ position, of }: NonNullable<Row["queued"]>): string {
  if (position === null) return "";
  return of === null ? ` ${position}` : ` ${position} of ${of}`;
}

const WORDS: Record<string, string> = {
  accepted: "working",
  blocked: "waiting for an answer",
};

/** The word for people of a state. */
export function word(state: string): string {
  return WORDS[state] ?? state;
}

/** The log: follow, filter, search, annotate; and how far its chain of hashes was checked here. */
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { commandId, type Entry, type Problem } from "../api/client.ts";
import { sh } from "../state/actions.ts";
import { head, history, onEntries } from "../state/board.ts";
import { filter, go, withFilters } from "../state/route.ts";
import { acts, api, session } from "../state/session.ts";
import { type Checked, checkEntries } from "../state/verify.ts";
import { asProblem, Command, Dialog, Empty, Refusal, say } from "../ui/bits.tsx";
import { EntryLine } from "./handoff.tsx";

const SHOWN_MAX = 1_000;
const PAGE = 200;
/** How far back a filtered look goes at first; "Older" goes on. */
const LOOK_BACK = 5_000;

export function fits(entry: Entry, type: string, actor: string, words: string): boolean {
  if (type && !entry.type.includes(type)) return false;
  if (actor && entry.actor !== actor) return false;
  return !words || JSON.stringify([entry.type, entry.actor, entry.data, entry.body]).toLowerCase().includes(words.toLowerCase());
}

export function LogView(): JSX.Element {
  const type = filter("type");
  const actor = filter("actor");
  const words = filter("q");
  const [entries, setEntries] = useState<Entry[]>([]);
  const [from, setFrom] = useState(0);
  const [follow, setFollow] = useState(true);
  const [waiting, setWaiting] = useState(0);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [checked, setChecked] = useState<Checked | null>(null);
  const [noting, setNoting] = useState(false);
  const following = useRef(follow);
  following.current = follow;
  const held = useRef<Entry[]>([]);

  const filtered = Boolean(type || actor || words);
  const read = async (after: number, until: number) => {
    const found: Entry[] = [];
    for (let at = after; at < until && found.length < SHOWN_MAX; ) {
      const page = await api.value.get("/log", { query: { after: at, limit: 500, ...(actor ? { actor } : {}), ...(words ? { text: words } : {}) } });
      found.push(...(page.entries as Entry[]).filter((entry) => entry.seq <= until && fits(entry, type, actor, "")));
      if (page.entries.length === 0 || page.after <= at) break;
      at = page.after;
    }
    return found;
  };

  useEffect(() => {
    let current = true;
    held.current = [];
    setWaiting(0);
    setEntries([]);
    const load = async () => {
      const { size } = await api.value.get("/checkpoints");
      const start = Math.max(0, size - (filtered ? LOOK_BACK : PAGE));
      const found = await read(start, size);
      if (!current) return;
      setEntries(found.slice(-SHOWN_MAX));
      setFrom(start);
      setProblem(null);
    };
    load().catch((error: unknown) => current && setProblem(asProblem(error)));
    const stop = onEntries((fresh) => {
      const mine = fresh.filter((entry) => fits(entry, type, actor, words));
      if (mine.length === 0) return;
      if (following.current) setEntries((known) => [...known, ...mine.filter((entry) => entry.seq > (known.at(-1)?.seq ?? 0))].slice(-SHOWN_MAX));
      else {
        held.current = [...held.current, ...mine].slice(-SHOWN_MAX);
        setWaiting((n) => n + mine.length);
      }
    });
    return () => {
      current = false;
      stop();
    };
  }, [type, actor, words, history.value]);

  const older = async () => {
    const start = Math.max(0, from - (filtered ? LOOK_BACK : PAGE));
    const found = await read(start, from);
    setEntries((known) => [...found, ...known].slice(0, SHOWN_MAX));
    setFrom(start);
  };
  const resume = () => {
    setEntries((known) => [...known, ...held.current.filter((entry) => entry.seq > (known.at(-1)?.seq ?? 0))].slice(-SHOWN_MAX));
    held.current = [];
    setWaiting(0);
    setFollow(true);
  };
  const verify = async () => {
    try {
      setChecked(await checkEntries(await read(Math.max(0, head.value - SHOWN_MAX), head.value), session.value?.team ?? ""));
    } catch (error) {
      setProblem(asProblem(error));
    }
  };

  return (
    <section class="view log" aria-labelledby="log">
      <h1 id="log">Log</h1>
      <div class="chips">
        <input type="search" id="search" placeholder="Search (/)" aria-label="Search the log" value={words} onChange={(event) => go(withFilters({ q: event.currentTarget.value || null }), { replace: true })} />
        <input type="search" placeholder="Type, such as blocked" aria-label="Type of entry" value={type} onChange={(event) => go(withFilters({ type: event.currentTarget.value || null }), { replace: true })} />
        <input type="search" placeholder="Actor" aria-label="Actor" value={actor} onChange={(event) => go(withFilters({ actor: event.currentTarget.value || null }), { replace: true })} />
        <button type="button" aria-pressed={follow} onClick={() => (follow ? setFollow(false) : resume())}>
          {follow ? "Following" : waiting > 0 ? `${waiting} new` : "Follow"}
        </button>
        <button type="button" onClick={() => void verify()}>
          Check
        </button>
        {acts.value && (
          <button type="button" onClick={() => setNoting(true)}>
            Note
          </button>
        )}
      </div>
      <p class="quiet" role="status">
        Up to entry {head.value}.{" "}
        {checked === null ? "" : checked.broken === null ? `${checked.how} from ${checked.from} to ${checked.to}: every entry follows from the one before.` : `Entry ${checked.broken} does not follow from the one before it.`}
      </p>
      <Refusal problem={problem} />
      {from > 0 && entries.length < SHOWN_MAX && (
        <button type="button" onClick={() => void older().catch((error) => say(asProblem(error).message))}>
          Older
        </button>
      )}
      {entries.length === 0 && <Empty>Nothing matches so far.</Empty>}
      <ol class="raw newest-last">
        {[...entries].reverse().map((entry) => (
          <EntryLine key={entry.seq} entry={entry} link />
        ))}
      </ol>
      {noting && <NoteDialog onClose={() => setNoting(false)} />}
    </section>
  );
}

function NoteDialog({ onClose }: { onClose: () => void }): JSX.Element {
  const [text, setText] = useState("");
  const [problem, setProblem] = useState<Problem | null>(null);
  const [key] = useState(commandId);
  const send = async () => {
    try {
      await api.value.post("/notes", { text }, { key });
      say("Noted.");
      onClose();
    } catch (error) {
      setProblem(asProblem(error));
    }
  };
  return (
    <Dialog title="Note in the team's log" onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (text.trim()) void send();
        }}
      >
        <label class="field">
          <span>Note</span>
          <textarea rows={3} autofocus value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
        <Command text={`nodrop note ${sh(text || "…")}`} />
        <Refusal problem={problem} />
        <div class="buttons">
          <button type="button" onClick={onClose}>
            Back
          </button>
          <button type="submit" class="primary" disabled={!text.trim()}>
            Note
          </button>
        </div>
      </form>
    </Dialog>
  );
}

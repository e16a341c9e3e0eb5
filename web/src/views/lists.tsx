/** Three lists: all handoffs, my inbox, dead letters with actions on many. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { commandId, type Handoff, type Item, type Problem } from "../api/client.ts";
import { type Action, DISCARD, REDRIVE } from "../state/actions.ts";
import { readAgents } from "../state/agents.ts";
import { changes, onEntries } from "../state/board.ts";
import { filter, go, open, withFilters } from "../state/route.ts";
import { FINAL, fromView, word } from "../state/rows.ts";
import { acts, api } from "../state/session.ts";
import { ActionDialog } from "../ui/action.tsx";
import { asProblem, Command, Empty, Refusal, say, State, Time, useLoad } from "../ui/bits.tsx";
import { Line, plural } from "../ui/text.tsx";
import { RowLine } from "./now.tsx";

const STATES = ["offered", "delivered", "accepted", "blocked", "completed", "failed", "rejected", "expired", "cancelled"];
const PAGE = 100;
const LETTERS_MAX = 5_000;
const NAMED_MAX = 3;

function Filters({ names }: { names: readonly [string, string][] }): JSX.Element {
  return (
    <>
      {names.map(([name, label], i) => (
        <input key={name} type="search" id={i === 0 ? "search" : undefined} placeholder={label} aria-label={label} value={filter(name)} onChange={(event) => go(withFilters({ [name]: event.currentTarget.value || null }), { replace: true })} />
      ))}
    </>
  );
}

export function HandoffsView(): JSX.Element {
  const key = ["state", "from", "to"].map(filter).join("\n");
  const query = () => Object.fromEntries(["state", "from", "to"].filter((name) => filter(name)).map((name) => [name, filter(name)]));
  const { value, problem } = useLoad(key, (signal) => api.value.get("/handoffs", { query: { ...query(), limit: PAGE }, signal }));
  const [older, setOlder] = useState<{ key: string; handoffs: Handoff[]; before: string | null }>({ key: "", handoffs: [], before: null });
  const more = older.key === key ? older : { key, handoffs: [], before: value?.before ?? null };
  const listed = [...((value?.handoffs ?? []) as Handoff[]), ...more.handoffs];
  const load = async () => {
    const page = await api.value.get("/handoffs", { query: { ...query(), limit: PAGE, before: more.before ?? undefined } });
    setOlder({ key, handoffs: [...more.handoffs, ...(page.handoffs as Handoff[])], before: page.before ?? null });
  };
  return (
    <section class="view" aria-labelledby="handoffs">
      <h1 id="handoffs">Handoffs</h1>
      <div class="chips">
        <Filters
          names={[
            ["to", "To"],
            ["from", "From"],
          ]}
        />
        <label class="chip">
          <span class="aside">State</span>
          <select value={filter("state")} onChange={(event) => go(withFilters({ state: event.currentTarget.value || null }), { replace: true })}>
            <option value="">State: all</option>
            {STATES.map((state) => (
              <option key={state} value={state} selected={state === filter("state")}>
                {word(state)}
              </option>
            ))}
          </select>
        </label>
      </div>
      <Refusal problem={problem} />
      {value !== null && listed.length === 0 && <Empty>No handoff matches.</Empty>}
      <ol class="plain">
        {listed.map((h) => {
          const row = fromView(h, FINAL.has(h.state));
          return (
            <li key={h.id}>
              <RowLine row={row} gone={row.settled && !row.dead} />
            </li>
          );
        })}
      </ol>
      {more.before && (
        <button type="button" onClick={() => void load().catch((error) => say(asProblem(error).message))}>
          Older
        </button>
      )}
    </section>
  );
}

// --- inbox ----------------------------------------------------------------------------------------------

export function InboxView(): JSX.Element {
  const all = filter("all") === "1";
  const { value, problem, again } = useLoad(`inbox ${all}`, async (signal) => {
    const items: Item[] = [];
    let after = 0;
    for (let pages = 0; pages < 10; pages++) {
      const page = await api.value.get("/inbox", { query: { after, limit: 200, all }, signal });
      items.push(...(page.items as Item[]));
      if (page.after <= after) break;
      after = page.after;
    }
    return items.reverse();
  });
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = onEntries(() => {
      timer ??= setTimeout(() => ((timer = undefined), again()), 500);
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, []);
  if (!acts.value)
    return (
      <section class="view">
        <h1>Inbox</h1>
        <Empty>An observer has no inbox.</Empty>
      </section>
    );
  return (
    <section class="view" aria-labelledby="inbox">
      <h1 id="inbox">My inbox</h1>
      <div class="chips">
        <label class="check">
          <input type="checkbox" checked={all} onChange={(event) => go(withFilters({ all: event.currentTarget.checked ? "1" : null }), { replace: true })} /> also what no longer waits
        </label>
      </div>
      <Refusal problem={problem} />
      {value?.length === 0 && <Empty>Nothing waits for you.</Empty>}
      <ol class="plain items">
        {value?.map((item) => (
          <li key={`${item.seq}`}>{item.notice ? <Notice item={item} notice={item.notice} onDismissed={again} /> : <ItemButton item={item} />}</li>
        ))}
      </ol>
    </section>
  );
}

function ItemButton({ item }: { item: Item }): JSX.Element {
  return (
    <button type="button" class={`item ${item.open ? "" : "gone"}`} disabled={item.handoff_id === null} onClick={() => item.handoff_id && open(item.handoff_id)}>
      <span class={`kind ${item.kind}`}>{item.kind}</span>
      <span class="title">
        <Line text={item.summary} most={300} />
      </span>
      <span class="sub">
        from <Line text={item.from} most={60} /> · <Time at={item.at} /> {item.state && <State state={item.state} />}
        <span class="ref">
          <Line text={item.ref ?? ""} most={60} />
        </span>
      </span>
    </button>
  );
}

/** What happened, why and since when, to which handoffs; the commands that answer it, and a way to dismiss it. */
export function Notice({ item, notice, onDismissed }: { item: Item; notice: NonNullable<Item["notice"]>; onDismissed: () => void }): JSX.Element {
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const dismiss = async () => {
    setBusy(true);
    try {
      for (const { id } of notice.handoffs) await api.value.post("/handoffs/{id}/dismiss", {}, { id, key: commandId() });
      say(`Dismissed ${plural(notice.count, "notice")}. The log keeps what happened.`);
    } catch (error) {
      setProblem(asProblem(error));
    }
    setBusy(false);
    onDismissed();
  };
  const more = notice.count - Math.min(notice.handoffs.length, NAMED_MAX);
  return (
    <div class={`item notice ${item.open ? "" : "gone"}`}>
      <span class={`kind ${item.kind}`}>{item.kind}</span>
      <span class="title">
        <Line text={notice.reason ? `${notice.what}: “${notice.reason}”` : notice.what} most={300} />
      </span>
      <span class="sub">
        since <Time at={notice.since} /> {notice.why && <Line text={`· ${notice.why}`} most={200} />}
      </span>
      <span class="noticed">
        {notice.handoffs.slice(0, NAMED_MAX).map((handoff) => (
          <button key={handoff.id} type="button" class="link" onClick={() => open(handoff.id)}>
            <Line text={handoff.title} most={80} />
          </button>
        ))}
        {more > 0 && ` and ${more} more`}
      </span>
      {item.open && notice.commands[0] && <Command text={notice.commands[0]} />}
      {item.open && (
        <button type="button" class="small" disabled={busy} aria-label={`Dismiss: ${notice.what}`} onClick={() => void dismiss()}>
          Dismiss
        </button>
      )}
      <Refusal problem={problem} />
    </div>
  );
}

// --- dead letters ------------------------------------------------------------------------------------------

export function matching(letters: readonly Handoff[], words: string, agent: string, state: string): Handoff[] {
  const wanted = words.toLowerCase();
  return letters.filter(
    (h) =>
      (!agent || h.to === agent || h.from === agent) &&
      (!state || h.state === state) &&
      (!wanted || `${h.title ?? ""} ${h.ref} ${h.to} ${h.outcome?.code ?? ""} ${h.outcome?.reason ?? ""}`.toLowerCase().includes(wanted)),
  );
}

export function DeadView(): JSX.Element {
  const [letters, setLetters] = useState<Handoff[] | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set());
  const [action, setAction] = useState<{ action: Action; handoffs: Handoff[]; what: string } | null>(null);
  const turn = changes.value;
  const [stale, setStale] = useState(0);
  useEffect(() => {
    let current = true;
    const load = async () => {
      const found: Handoff[] = [];
      let before: string | undefined;
      do {
        const page = await api.value.get("/dead-letters", { query: { limit: 500, ...(before ? { before } : {}) } });
        found.push(...(page.handoffs as Handoff[]));
        before = page.before ?? undefined;
      } while (before && found.length < LETTERS_MAX);
      if (current) setLetters(found);
    };
    load().catch((error: unknown) => current && setProblem(asProblem(error)));
    return () => {
      current = false;
    };
  }, [stale]);
  useEffect(
    () =>
      onEntries((entries) => {
        if (entries.some((entry) => /\.(failed|rejected|expired|redriven|discarded|accepted_late|joined)\./.test(entry.type))) setStale((n) => n + 1);
      }),
    [],
  );
  void turn;
  const shown = matching(letters ?? [], filter("q"), filter("agent"), filter("state"));
  const chosen = shown.filter((h) => picked.has(h.id));
  const begin = (which: Action, handoffs: Handoff[], what: string) => {
    void readAgents().catch(() => {});
    setAction({ action: which, handoffs, what });
  };
  const agents = [...new Set((letters ?? []).map((h) => h.to))].sort();
  const filtered = Boolean(filter("q") || filter("agent") || filter("state"));
  return (
    <section class="view dead" aria-labelledby="dead">
      <h1 id="dead">
        Dead letters <span class="quiet">{letters?.length ?? ""}</span>
      </h1>
      <div class="chips">
        <input type="search" id="search" placeholder="Filter (/)" aria-label="Filter dead letters" value={filter("q")} onInput={(event) => go(withFilters({ q: event.currentTarget.value || null }), { replace: true })} />
        <label class="chip">
          <span class="aside">Agent</span>
          <select value={filter("agent")} onChange={(event) => go(withFilters({ agent: event.currentTarget.value || null }), { replace: true })}>
            <option value="">Agent: all</option>
            {agents.map((agent) => (
              <option key={agent} value={agent}>
                {agent}
              </option>
            ))}
          </select>
        </label>
        <label class="chip">
          <span class="aside">How it ended</span>
          <select value={filter("state")} onChange={(event) => go(withFilters({ state: event.currentTarget.value || null }), { replace: true })}>
            <option value="">Ended: all</option>
            {["failed", "rejected", "expired"].map((state) => (
              <option key={state} value={state}>
                {state}
              </option>
            ))}
          </select>
        </label>
      </div>
      {acts.value && shown.length > 0 && (
        <div class="actions" role="group" aria-label="Actions on dead letters">
          <label class="check">
            <input type="checkbox" checked={chosen.length > 0 && chosen.length === shown.length} onChange={(event) => setPicked(event.currentTarget.checked ? new Set(shown.map((h) => h.id)) : new Set())} /> all {shown.length} {filtered ? "that match" : ""}
          </label>
          <button type="button" class="primary" disabled={chosen.length === 0} onClick={() => begin(REDRIVE, chosen, describe(chosen.length, shown.length, filtered))}>
            Redrive {chosen.length || ""}
          </button>
          <button type="button" class="danger quiet" disabled={chosen.length === 0} onClick={() => begin(DISCARD, chosen, describe(chosen.length, shown.length, filtered))}>
            Discard {chosen.length || ""}
          </button>
        </div>
      )}
      <Refusal problem={problem} />
      {letters?.length === 0 && <Empty>No dead letters. What fails for good, is rejected or expires waits here for a decision.</Empty>}
      {letters !== null && letters.length > 0 && shown.length === 0 && <Empty>Nothing matches.</Empty>}
      <ol class="plain">
        {shown.slice(0, 500).map((h) => (
          <li key={h.id} class="letter">
            {acts.value && (
              <input
                type="checkbox"
                aria-label={`Select ${h.title ?? h.ref}`}
                checked={picked.has(h.id)}
                onChange={(event) => {
                  const next = new Set(picked);
                  if (event.currentTarget.checked) next.add(h.id);
                  else next.delete(h.id);
                  setPicked(next);
                }}
              />
            )}
            <div>
              <RowLine row={fromView(h, true)} gone={false} />
              {h.outcome?.reason && (
                <p class="why">
                  <Line text={h.outcome.reason} most={300} />
                </p>
              )}
            </div>
          </li>
        ))}
      </ol>
      {shown.length > 500 && <p class="quiet">The first 500 of {shown.length} are shown; actions are for all that are selected.</p>}
      {action && (
        <ActionDialog
          action={action.action}
          handoffs={action.handoffs}
          what={action.what}
          onClose={() => setAction(null)}
          onDone={() => {
            setPicked(new Set());
            setStale((n) => n + 1);
          }}
        />
      )}
    </section>
  );
}

function describe(count: number, shown: number, filtered: boolean): string {
  return count === shown ? `${filtered ? "Everything that matches" : "Every dead letter"}: ${plural(count, "handoff")}` : plural(count, "selected handoff");
}

/** One handoff: ladder of receipts, timeline or log; its data, its words, and what may be done. */
import { useSignalEffect } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Api, Entry, Handoff } from "../api/client.ts";
import { type Action, actionsFor, ref } from "../state/actions.ts";
import { changes, onEntries, refresh, row } from "../state/board.ts";
import { duration, now, took, written } from "../state/clock.ts";
import { address, filter, go, open, withFilters } from "../state/route.ts";
import { FINAL, fromView, lateness, owed, verb, word } from "../state/rows.ts";
import { api, session } from "../state/session.ts";
import { readAgents } from "../state/agents.ts";
import { ActionDialog } from "../ui/action.tsx";
import { Command, Due, Refusal, State, Tabs, Time, useLoad } from "../ui/bits.tsx";
import { Json } from "../ui/json.tsx";
import { Block, Line, oneLine } from "../ui/text.tsx";
import { course } from "../state/segments.ts";
import { Lanes } from "./lanes.tsx";

const ENTRIES_MAX = 3_000;
const PRIMARY = new Set(["answer", "agree", "accept", "redrive", "settle"]);
const SEARCH_BYTES = 200_000;

export async function readLog(from: Api, query: { handoff_id?: string; correlation_id?: string }, signal?: AbortSignal): Promise<Entry[]> {
  const found: Entry[] = [];
  let after = 0;
  while (found.length < ENTRIES_MAX) {
    const page = await from.get("/log", { query: { ...query, after, limit: 500 }, signal });
    found.push(...page.entries);
    if (page.entries.length < 500) break;
    after = page.after;
  }
  return found;
}

interface Loaded {
  handoff: Handoff;
  entries: Entry[];
}

export function HandoffPanel({ id, beside }: { id: string; beside: boolean }): JSX.Element {
  const { value, problem, again } = useLoad<Loaded>(id, async (signal) => {
    const [{ handoff }, entries] = await Promise.all([api.value.get("/handoffs/{id}", { id, signal }), readLog(api.value, { handoff_id: id }, signal)]);
    return { handoff, entries };
  });
  const [action, setAction] = useState<Action | null>(null);
  const heading = useRef<HTMLHeadingElement>(null);

  // What the log says about it is shown within a moment, gathered.
  const known = value?.handoff.id ?? null;
  useEffect(() => {
    if (known === null) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = onEntries((entries) => {
      if (entries.some((entry) => entry.handoff_id === known)) timer ??= setTimeout(() => ((timer = undefined), again()), 150);
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [known]);
  useEffect(() => {
    if (beside) heading.current?.focus({ preventScroll: true });
  }, [known]);

  if (value === null)
    return (
      <article class="handoff" aria-label="Handoff">
        <Refusal problem={problem} />
        {beside && <CloseButton />}
      </article>
    );
  const { handoff: h, entries } = value;
  const who = session.value!;
  const allowed = actionsFor(h, who);
  const zoom = filter("zoom") || "ladder";
  const begin = (chosen: Action) => {
    if (chosen.fields.some((field) => field.kind === "agent")) void readAgents().catch(() => {});
    setAction(chosen);
  };
  return (
    <article class="handoff" aria-label="Handoff">
      <header>
        <div class="over">
          <span class="ref">
            <Line text={h.ref} most={80} />
          </span>
          <span class="spring" />
          {beside && (
            <>
              <a class="small" href={address("handoffs", h.id)} title="Only this handoff">
                Full page
              </a>
              <CloseButton />
            </>
          )}
        </div>
        <h2 tabIndex={-1} ref={heading}>
          <Line text={h.title ?? h.capability ?? "Untitled handoff"} most={500} />
        </h2>
        <Standing h={h} />
      </header>
      {allowed.length > 0 && (
        <div class="actions" role="group" aria-label="Actions">
          {allowed.map((each, i) => (
            <button type="button" key={each.name} class={i === 0 && PRIMARY.has(each.name) ? "primary" : each.danger ? "danger quiet" : ""} onClick={() => begin(each)}>
              {each.label}
            </button>
          ))}
        </div>
      )}
      {who.role === "observer" && <p class="readonly">You look on: this sign-in is read-only.</p>}
      <Words h={h} entries={entries} />
      <Tabs
        label="Zoom"
        tabs={[
          ["ladder", "Ladder"],
          ["timeline", "Timeline"],
          ["log", `Log ${entries.length}`],
        ]}
        current={zoom}
        onPick={(key) => go(withFilters({ zoom: key === "ladder" ? null : key }), { replace: true })}
      />
      {zoom === "timeline" ? <Timeline h={h} entries={entries} /> : zoom === "log" ? <Raw entries={entries} /> : <Ladder h={h} />}
      <Attempts h={h} entries={entries} />
      <Data h={h} entries={entries} />
      <Terms h={h} />
      {action && (
        <ActionDialog
          action={action}
          handoffs={[h]}
          onClose={() => setAction(null)}
          onDone={() => {
            again();
            void refresh(h.id);
          }}
        />
      )}
    </article>
  );
}

function CloseButton(): JSX.Element {
  return (
    <button type="button" class="small" onClick={() => open(null)} aria-label="Close the handoff" title="Close (Esc)">
      ✕
    </button>
  );
}

/** Who owes the next move, and by when: the one sentence that matters. */
function Standing({ h }: { h: Handoff }): JSX.Element {
  const [, redraw] = useState(0);
  useSignalEffect(() => redraw(changes.value));
  const live = row(h.id);
  const here = live && live.version >= h.version ? live : fromView(h);
  const late = lateness(here, now.value);
  return (
    <p class="standing">
      <State state={h.state} tone={late ? "bad" : undefined} />
      {h.holder !== null ? (
        <span>
          <a class="agent" href={address("agents", h.holder)}>
            <Line text={h.holder} />
          </a>{" "}
          {here.dead ? "owes a decision" : (late?.what ?? owed(here))}
        </span>
      ) : (
        <span>settled, nothing is owed</span>
      )}
      {h.holder !== null && <Due at={here.due} late={late} />}
      {h.priority !== "medium" && <span class={`priority ${h.priority}`}>{h.priority}</span>}
      {h.attempt > 1 && <span class="quiet">attempt {h.attempt}</span>}
      {h.chain.here + h.chain.next.length > 0 && (
        <a class="quiet" href={address("chains", h.correlation_id)}>
          leg {h.chain.here + 1} of {h.chain.here + 1 + h.chain.next.length}
        </a>
      )}
    </p>
  );
}

// --- words ----------------------------------------------------------------------------------------

type Data = Record<string, unknown>;

/** The question that waits, the outcome, what was said and noted: what people look for first. */
function Words({ h, entries }: { h: Handoff; entries: readonly Entry[] }): JSX.Element | null {
  const notes = entries.filter((entry) => verb(entry) === "noted");
  const asked = entries.filter((entry) => verb(entry) === "blocked");
  const answers = new Map(entries.filter((entry) => verb(entry) === "answered").map((entry) => [(entry.data as Data).question as number, entry]));
  const outcome = h.outcome;
  return (
    <>
      {h.question && (
        <section class="callout ask" aria-label="Open question">
          <h3>
            {h.question.kind === "terms" ? "New terms are asked for" : "Question"} for <Line text={h.question.asked} /> · <Time at={h.question.asked_at} />
          </h3>
          <Block text={h.question.question ?? h.question.reason ?? (h.withheld ? "(not shown to this sign-in)" : JSON.stringify(h.question.terms ?? {}))} />
        </section>
      )}
      {outcome && outcome.state !== "completed" && (
        <section class="callout bad" aria-label="How it ended">
          <h3>
            {word(outcome.state)} {outcome.code && <code>{outcome.code}</code>} by <Line text={outcome.by} /> · <Time at={outcome.at} />
          </h3>
          {outcome.reason && <Block text={outcome.reason} />}
          {h.late_result && <p>A result came after the end and waits for a decision.</p>}
        </section>
      )}
      {h.decision !== null && (
        <p class="quiet">
          Decided: {h.decision}
          {h.successor && (
            <>
              {" "}
              · <a href={withFilters({ open: h.successor })}>the successor</a>
            </>
          )}
        </p>
      )}
      {h.redrive_of && (
        <p class="quiet">
          A redrive of <a href={withFilters({ open: h.redrive_of })}>an earlier handoff</a>
        </p>
      )}
      {asked.length > (h.question ? 1 : 0) && (
        <Fold title="Questions and answers" count={asked.length}>
          <ol class="talk">
            {asked.map((entry) => {
              const body = (entry.body ?? {}) as Data;
              const answer = answers.get(entry.version!);
              return (
                <li key={entry.seq}>
                  <p>
                    <b>
                      <Line text={entry.actor} />
                    </b>{" "}
                    <Line text={String(body.question ?? body.reason ?? "(not shown)")} most={1000} />
                  </p>
                  {answer && (
                    <p class="reply">
                      <b>
                        <Line text={answer.actor} />
                      </b>{" "}
                      <Line text={text((answer.body as Data | null)?.answer)} most={1000} />
                    </p>
                  )}
                </li>
              );
            })}
          </ol>
        </Fold>
      )}
      {notes.length > 0 && (
        <Fold title="Notes" count={notes.length} open>
          <ul class="talk">
            {notes.map((entry) => (
              <li key={entry.seq}>
                <p>
                  <b>
                    <Line text={entry.actor} />
                  </b>{" "}
                  <span class="quiet">
                    <Time at={entry.at} />
                  </span>
                </p>
                <Block text={String((entry.body as Data | null)?.text ?? "(not shown)")} />
              </li>
            ))}
          </ul>
        </Fold>
      )}
    </>
  );
}

function text(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "(not shown)");
}

export function Fold({ title, count, open: initially = false, children }: { title: string; count?: number; open?: boolean; children: ComponentChildren }): JSX.Element {
  const [shown, setShown] = useState(initially);
  return (
    <section class="folding">
      <h3>
        <button type="button" class="fold" aria-expanded={shown} onClick={() => setShown(!shown)}>
          <span aria-hidden="true">{shown ? "▾" : "▸"}</span> {title}
          {count !== undefined && <span class="quiet"> {count}</span>}
        </button>
      </h3>
      {shown && children}
    </section>
  );
}

// --- three zooms ------------------------------------------------------------------------------------

const RUNGS = ["stored", "delivered", "acknowledged", "updated", "finished", "outcome_delivered", "settled"] as const;
const RUNG_WORDS: Record<string, string> = { outcome_delivered: "outcome delivered" };

function Ladder({ h }: { h: Handoff }): JSX.Element {
  const last = new Map(h.receipts.map((receipt) => [receipt.rung, receipt]));
  const reached = RUNGS.findLastIndex((rung) => last.has(rung));
  const owedAt = h.owed_at ?? h.due_at;
  const due = owedAt === null ? null : Date.parse(owedAt);
  return (
    <ol class="ladder" aria-label="Receipts">
      {RUNGS.map((rung, i) => {
        const receipt = last.get(rung);
        const count = h.receipts.filter((each) => each.rung === rung).length;
        const ahead = i === reached + 1 && h.holder !== null;
        return (
          <li key={rung} class={receipt ? (rung === "finished" && h.state !== "completed" ? "done bad" : "done") : ahead ? "ahead" : "open"}>
            <span class="rung">
              {ahead && h.question ? "answer" : rung === "finished" && h.outcome ? word(h.state) : (RUNG_WORDS[rung] ?? rung)}
              {count > 1 && <span class="quiet"> ×{count}</span>}
            </span>
            {receipt ? (
              <span class="fact">
                <Time at={receipt.at} /> <span class="quiet">by</span> <Line text={receipt.by} />
                {receipt.attempt ? <span class="quiet"> · attempt {receipt.attempt}</span> : null}
                {rung === "acknowledged" && h.ack && (
                  <span class="said-so">
                    {h.ack.status && <Line text={h.ack.status} />}
                    {h.ack.position !== null && ` · ${h.ack.queued ? "queued" : "position"} ${h.ack.position}${h.ack.of ? ` of ${h.ack.of}` : ""}`}
                    {h.ack.eta && (
                      <>
                        {" "}
                        · ETA <Time at={h.ack.eta} />
                      </>
                    )}
                  </span>
                )}
              </span>
            ) : ahead ? (
              <span class="fact">
                <Line text={h.holder ?? ""} /> · {due !== null && <Due at={due} />}
              </span>
            ) : (
              <span class="fact quiet">–</span>
            )}
          </li>
        );
      })}
      <Clocks h={h} />
    </ol>
  );
}

/** The clocks that run, counting down. */
function Clocks({ h }: { h: Handoff }): JSX.Element | null {
  if (h.settled_at !== null) return null;
  const clocks: [string, number][] = [];
  if (!FINAL.has(h.state)) {
    clocks.push(["deadline", Date.parse(h.deadline)]);
    if (h.ack?.next_update && (h.state === "accepted" || h.ack.queued)) clocks.push(["promised update", Date.parse(h.ack.next_update)]);
  }
  if (h.due_at !== null) clocks.push(["relay acts", Date.parse(h.due_at)]);
  clocks.sort((a, b) => a[1] - b[1]);
  return (
    <li class="clocks">
      {clocks.map(([name, at]) => (
        <span key={name}>
          <span class="quiet">{name}</span> <Due at={at} />
        </span>
      ))}
    </li>
  );
}

function Timeline({ h, entries }: { h: Handoff; entries: readonly Entry[] }): JSX.Element {
  const found = useMemo(() => course(entries), [entries]);
  return <Lanes course={found} titles={new Map([[h.id, h.title ?? h.ref]])} settled={h.settled_at !== null || FINAL.has(h.state)} />;
}

export function Raw({ entries }: { entries: readonly Entry[] }): JSX.Element {
  return (
    <ol class="raw">
      {entries.map((entry) => (
        <EntryLine key={entry.seq} entry={entry} />
      ))}
    </ol>
  );
}

export function EntryLine({ entry, link }: { entry: Entry; link?: boolean }): JSX.Element {
  const [open, setOpen] = useState(false);
  return (
    <li>
      <button type="button" class="entry" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span class="seq">{entry.seq}</span>
        <span class="when">
          <Time at={entry.at} />
        </span>
        <span class="type">{entry.type.replace(/\.v\d+$/, "")}</span>
        <span class="actor">
          <Line text={entry.actor} most={60} />
        </span>
        <span class="gist">
          <Line text={gist(entry)} most={200} />
        </span>
      </button>
      {open && (
        <div class="entry-body">
          {link && entry.handoff_id && <a href={withFilters({ open: entry.handoff_id })}>Open the handoff</a>}
          <Json value={entry} label={`entry ${entry.seq}`} />
        </div>
      )}
    </li>
  );
}

/** The words of an entry, if it has some; else what it says in its data. */
function gist(entry: Entry): string {
  const body = entry.body as Data | null;
  if (body && typeof body === "object")
    for (const key of ["title", "status", "question", "answer", "text", "reason", "name"]) {
      const said = body[key];
      if (typeof said === "string" && said) return said;
    }
  const data = (entry.data ?? {}) as Data;
  const told = Object.entries(data)
    .filter(([, value]) => typeof value === "string" || typeof value === "number")
    .slice(0, 4)
    .map(([key, value]) => {
      if (typeof value === "number" && key.endsWith("_at")) return `${key.slice(0, -3)} ${written(new Date(value).toISOString(), now.peek())}`;
      if (typeof value === "number" && key.endsWith("_ms")) return `${key.slice(0, -3)} ${duration(value)}`;
      return `${key} ${oneLine(String(value), 60)}`;
    });
  return told.join(" · ");
}

// --- attempts, steps ----------------------------------------------------------------------------------

function Attempts({ h, entries }: { h: Handoff; entries: readonly Entry[] }): JSX.Element | null {
  const attempts = useMemo(() => {
    const found = new Map<number, Entry[]>();
    let current = 0;
    for (const entry of entries) {
      const attempt = (entry.data as Data | null)?.attempt;
      if (typeof attempt === "number") current = attempt;
      if (current > 0 && entry.type.startsWith("handoff.")) found.set(current, [...(found.get(current) ?? []), entry]);
    }
    return found;
  }, [entries]);
  if (attempts.size === 0) return null;
  const latest = Math.max(...attempts.keys());
  const chosen = Number(filter("attempt")) || latest;
  const mine = attempts.get(chosen) ?? [];
  const steps = mine.filter((entry) => verb(entry) === "step_recorded");
  const first = mine[0];
  const last = mine.at(-1);
  return (
    <Fold title="Attempts" count={attempts.size} open>
      {attempts.size > 1 && (
        <Tabs
          label="Attempt"
          tabs={[...attempts.keys()].map((n): [string, string] => [String(n), `${n}`])}
          current={String(chosen)}
          onPick={(key) => go(withFilters({ attempt: key === String(latest) ? null : key }), { replace: true })}
        />
      )}
      <p class="quiet">
        Attempt {chosen} of {h.to}
        {first && last && first !== last && <> · {took(Date.parse(last.at) - Date.parse(first.at))}</>} · {h.tries} of {h.attempts_max} tries used
      </p>
      {steps.length > 0 && (
        <ul class="steps" aria-label="Recorded steps">
          {steps.map((entry) => (
            <li key={entry.seq}>
              <span aria-hidden="true">✓</span> <Line text={String((entry.data as Data).name ?? "")} /> <span class="quiet"><Time at={entry.at} /></span>
              {(entry.body as Data | null)?.value !== undefined && <Json value={(entry.body as Data).value} label="step" />}
            </li>
          ))}
        </ul>
      )}
      <ol class="raw">
        {mine
          .filter((entry) => verb(entry) !== "step_recorded")
          .map((entry) => (
            <EntryLine key={entry.seq} entry={entry} />
          ))}
      </ol>
    </Fold>
  );
}

// --- data ---------------------------------------------------------------------------------------------

function Data({ h, entries }: { h: Handoff; entries: readonly Entry[] }): JSX.Element {
  if (h.withheld) return <p class="readonly">Payload and words are not shown to this sign-in.</p>;
  if (h.erased) return <p class="readonly">Its words and data were erased.</p>;
  const result = h.outcome?.result;
  const extras = { trigger: h.trigger, expected_outcome: h.expected_outcome, observations: h.observations, parameters: h.parameters, covariates: h.covariates, metadata: h.metadata, answers: h.answers };
  const told = Object.fromEntries(Object.entries(extras).filter(([, value]) => value !== null && (typeof value !== "object" || Object.keys(value).length > 0)));
  const artifacts = artifactsIn(result);
  const signed = entries.filter((entry) => (entry.body as Data | null)?.signed !== undefined);
  return (
    <>
      {result !== undefined && <Value title="Result" value={result} />}
      {artifacts.length > 0 && (
        <Fold title="Artifacts" count={artifacts.length} open>
          <ul class="artifacts">
            {artifacts.map((artifact, i) => (
              <li key={i}>
                <Json value={artifact} label="artifact" />
              </li>
            ))}
          </ul>
        </Fold>
      )}
      <Value title="Payload" value={h.payload} />
      {Object.keys(told).length > 0 && <Value title="More" value={told} />}
      <p class="signed quiet">
        {h.verified ? "✓ Offer signed, and verified by the relay" : "Offer not signed"}
        {h.outcome && (h.outcome.verified ? " · ✓ outcome signed and verified" : " · outcome not signed")}
        {signed.length > 0 && ` · ${signed.length} signed entries`}
      </p>
    </>
  );
}

/** Large values are only put on screen when somebody asks for them. */
function Value({ title, value }: { title: string; value: unknown }): JSX.Element | null {
  const bytes = useMemo(() => JSON.stringify(value)?.length ?? 0, [value]);
  if (value === null || value === undefined) return null;
  const large = bytes > SEARCH_BYTES;
  return (
    <Fold title={large ? `${title}, ${Math.round(bytes / 1024)} KiB` : title} open={!large}>
      <Json value={value} label={title.toLowerCase()} />
    </Fold>
  );
}

export function artifactsIn(result: unknown): unknown[] {
  const found = (result as Data | null | undefined)?.artifacts;
  return Array.isArray(found) ? found : [];
}

function steps(them: Handoff["team_steps"]): string {
  return them.map((step) => JSON.stringify(step)).join(" ");
}

function Terms({ h }: { h: Handoff }): JSX.Element {
  const facts: [string, ComponentChildren][] = [
    ["from", <Line key="from" text={h.from} />],
    ["to", <Line key="to" text={h.to} />],
    ["requester", <Line key="origin" text={h.chain.origin} />],
    ["capability", h.capability ?? "–"],
    ["deadline", <Time key="deadline" at={h.deadline} />],
    ["accept within", h.accept_within],
    ["update every", h.update_every],
    ["timeout", h.timeout ?? "–"],
    ["watchers", h.watchers.join(", ") || "–"],
    ["escalation", steps(h.escalation ?? []) || (h.escalation ? "none, and none of the team's" : "–")],
    ["team's steps", steps(h.team_steps) || "–"],
    ["contract", h.contract_digest ? oneLine(h.contract_digest, 20) : "–"],
    ["trace", h.traceparent],
    ["id", h.id],
  ];
  return (
    <Fold title="Terms and identity">
      <dl class="facts">
        {facts.map(([name, value]) => (
          <>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </>
        ))}
      </dl>
      <Command text={`nodrop track ${ref(h)}`} />
    </Fold>
  );
}

/** A chain: lanes by holder over time, the broken leg named; as a graph second. */
import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Entry, Handoff, Step, Trace } from "../api/client.ts";
import { all, changes, onEntries } from "../state/board.ts";
import { address, filter, go, withFilters } from "../state/route.ts";
import { course } from "../state/segments.ts";
import { api } from "../state/session.ts";
import { Empty, Refusal, State, Tabs, Time, useLoad } from "../ui/bits.tsx";
import { Line, plural } from "../ui/text.tsx";
import { Graph } from "./graph.tsx";
import { readLog } from "./handoff.tsx";
import { Lanes } from "./lanes.tsx";

const MEMBERS_SHOWN = 3;

interface Loaded {
  trace: Trace;
  entries: Entry[];
}

export function ChainView({ id }: { id: string }): JSX.Element {
  const { value, problem, again } = useLoad<Loaded>(id, async (signal) => {
    const trace = await api.value.get("/trace/{name}", { name: id, signal });
    const entries = await readLog(api.value, { correlation_id: trace.correlation_id }, signal);
    return { trace, entries };
  });
  const [unfolded, setUnfolded] = useState<ReadonlySet<string>>(new Set());
  const known = value?.trace.correlation_id ?? null;
  useEffect(() => {
    if (known === null) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = onEntries((entries) => {
      if (entries.some((entry) => entry.correlation_id === known)) timer ??= setTimeout(() => ((timer = undefined), again()), 250);
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [known]);

  const folded = useMemo(() => (value ? fold(value.trace.steps, unfolded) : null), [value, unfolded]);
  const shown = useMemo(() => {
    if (value === null || folded === null) return null;
    const ids = new Set(folded.steps.map((step) => step.id));
    return course(value.entries.filter((entry) => entry.handoff_id !== null && ids.has(entry.handoff_id)));
  }, [value, folded]);

  if (value === null || folded === null || shown === null)
    return (
      <section class="view">
        <h1>Chain</h1>
        <Refusal problem={problem} />
      </section>
    );
  const { trace } = value;
  const first = trace.steps[0];
  const titles = new Map(trace.steps.map((step) => [step.id, step.title ?? step.ref]));
  const broken = new Map(trace.breaks.filter((b) => b.kind === "dead").map((b) => [b.id, b.code ?? b.state]));
  const last = trace.handoffs.findLast((h) => h.next_leg === null && h.successor === null);
  const ahead = trace.state === "completed" || trace.state === "cancelled" ? [] : (last?.chain.next ?? []);
  const view = filter("as") || "lanes";
  const pick = (handoff: string) => go(withFilters({ open: handoff }));
  return (
    <section class="view chain" aria-labelledby="chain">
      <h1 id="chain">
        <Line text={first?.title ?? "Chain"} />
      </h1>
      <p class="standing">
        <b class={`verdict ${trace.state === "broken" || trace.state === "late" ? "bad" : trace.state === "completed" ? "good" : ""}`}>{trace.state}</b>
        <span>
          asked for by <Line text={trace.handoffs[0]?.chain.origin ?? first?.from ?? ""} />
        </span>
        <span class="quiet">{plural(trace.steps.length, "handoff")}</span>
      </p>
      {trace.breaks.map((b) => (
        <section key={b.id} class="callout bad" aria-label="Broken leg">
          <h3>
            {b.kind === "dead" ? "Broken" : "Late"} at leg {b.leg} of {b.legs}: <Line text={b.agent} /> {b.code && <code>{b.code}</code>} · <Time at={b.at} />
          </h3>
          <p>
            {b.reason && <Line text={b.reason} most={500} />} {b.clock ? `The ${b.clock} clock ran out.` : ""} {b.holder && <>Next move: <Line text={b.holder} />.</>}
          </p>
          {b.did.length > 0 && (
            <ul class="did">
              {b.did.slice(-6).map((did) => (
                <li key={did.seq}>
                  <Time at={did.at} /> <Line text={did.what} />
                </li>
              ))}
            </ul>
          )}
          <a class="button" href={withFilters({ open: b.id })}>
            Open the {b.kind === "dead" ? "broken" : "late"} leg
          </a>
        </section>
      ))}
      <Tabs
        label="View"
        tabs={[
          ["lanes", "Lanes"],
          ["graph", "Graph"],
        ]}
        current={view}
        onPick={(key) => go(withFilters({ as: key === "lanes" ? null : key }), { replace: true })}
      />
      {view === "graph" ? (
        <Graph steps={folded.steps} broken={broken} folded={folded.hidden} onPick={pick} />
      ) : (
        <Lanes course={shown} titles={titles} settled={trace.state === "completed" || trace.state === "cancelled" || trace.state === "broken"} broken={broken} onPick={pick} />
      )}
      {[...folded.hidden].map(([group, count]) => (
        <button type="button" key={group} class="link" onClick={() => setUnfolded(new Set([...unfolded, group]))}>
          Unfold {plural(count, "more member")} of {titles.get(group) ?? "the group"}
        </button>
      ))}
      <ol class="legs" aria-label="Handoffs of the chain">
        {folded.steps.map((step) => (
          <li key={step.id} class={broken.has(step.id) ? "bad" : ""}>
            <a href={withFilters({ open: step.id })}>
              <State state={step.state} /> <b><Line text={step.title ?? step.ref} most={120} /></b>
            </a>
            <span class="quiet">
              {step.kind}
              {step.label ? ` ${step.label}` : ""} · <Line text={step.from} most={40} /> → <Line text={step.to} most={40} /> · <Time at={step.since} />
            </span>
          </li>
        ))}
        {ahead.map((agent, i) => (
          <li key={`ahead ${i}`}>
            <span class="quiet">○ {trace.state === "broken" ? "not reached" : "to come"}</span>
            <span class="quiet">
              leg · <Line text={agent} most={40} />
            </span>
          </li>
        ))}
      </ol>
      {trace.truncated && <p class="quiet">The chain is longer than one answer; its beginning is shown.</p>}
    </section>
  );
}

/** Leave out the members of large groups, counted by group. */
export function fold(steps: readonly Step[], unfolded: ReadonlySet<string>): { steps: Step[]; hidden: Map<string, number> } {
  const members = new Map<string, Step[]>();
  for (const step of steps) if (step.kind === "member" && step.under) members.set(step.under, [...(members.get(step.under) ?? []), step]);
  const hidden = new Map<string, number>();
  const left = new Set<string>();
  for (const [group, list] of members) {
    if (unfolded.has(group) || list.length <= MEMBERS_SHOWN) continue;
    // Those that went wrong are what somebody looks for.
    const kept = [...list].sort((a, b) => rank(a) - rank(b)).slice(0, MEMBERS_SHOWN);
    for (const step of list) if (!kept.includes(step)) left.add(step.id);
    hidden.set(group, list.length - kept.length);
  }
  return { steps: steps.filter((step) => !left.has(step.id) && !(step.under !== null && left.has(step.under))), hidden };
}

function rank(step: Step): number {
  return ["failed", "rejected", "expired", "blocked"].includes(step.state) ? 0 : step.state === "completed" ? 2 : 1;
}

/** Chains with something open, or among the latest handoffs. */
export function ChainsView(): JSX.Element {
  const { value, problem } = useLoad<Handoff[]>("chains", async (signal) => (await api.value.get("/handoffs", { query: { limit: 300 }, signal })).handoffs as Handoff[]);
  void changes.value;
  const chains = useMemo(() => {
    const found = new Map<string, { title: string; count: number; states: string[]; at: string; legs: number }>();
    for (const h of [...(value ?? [])].reverse()) {
      const known = found.get(h.correlation_id);
      const legs = h.chain.here + 1 + h.chain.next.length;
      if (known) {
        known.count++;
        known.states.push(h.state);
        known.legs = Math.max(known.legs, legs);
      } else found.set(h.correlation_id, { title: h.title ?? h.ref, count: 1, states: [h.state], at: h.stored_at, legs });
    }
    return [...found].filter(([, chain]) => chain.count > 1 || chain.legs > 1).reverse();
  }, [value, all.value.length]);
  return (
    <section class="view" aria-labelledby="chains">
      <h1 id="chains">Chains</h1>
      <Refusal problem={problem} />
      {value !== null && chains.length === 0 && <Empty>No chain among the latest handoffs. A handoff with `then` legs, a fan-out or a redrive makes one.</Empty>}
      <ol class="legs">
        {chains.map(([id, chain]) => (
          <li key={id}>
            <a href={address("chains", id)}>
              <State state={chain.states.at(-1) ?? "offered"} /> <b><Line text={chain.title} most={120} /></b>
            </a>
            <span class="quiet">
              {plural(chain.count, "handoff")}, {plural(chain.legs, "leg")} · <Time at={chain.at} />
            </span>
          </li>
        ))}
      </ol>
    </section>
  );
}

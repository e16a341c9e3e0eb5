/** Agents: who is there, what waits for them, how they do against what they claim; and handing them work. */
import type { JSX } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import type { Agent, Entry, Handoff } from "../api/client.ts";
import { agents, readAgents } from "../state/agents.ts";
import { onEntries, summary } from "../state/board.ts";
import { duration, took } from "../state/clock.ts";
import { address, filter, go, withFilters } from "../state/route.ts";
import { FINAL } from "../state/rows.ts";
import { acts, api } from "../state/session.ts";
import { Chart } from "../ui/chart.tsx";
import { Empty, Refusal, Time, useLoad } from "../ui/bits.tsx";
import { HandOffForm } from "../ui/form.tsx";
import { Json } from "../ui/json.tsx";
import { Line, plural } from "../ui/text.tsx";
import { EntryLine, Fold } from "./handoff.tsx";

interface Capability {
  name: string;
  description?: string;
  input_schema?: unknown;
}

interface Manifest {
  description?: string;
  capabilities?: Capability[];
  tags?: string[];
}

const PRESENCE: Record<string, string> = { working: "●", idle: "○", asleep: "☾", ghost: "✕" };
const SAMPLE = 300;

export function Presence({ agent }: { agent: Agent }): JSX.Element {
  const tone = agent.presence === "working" ? "busy" : agent.presence === "ghost" ? "bad" : "quiet";
  return (
    <span class={`state ${tone}`}>
      <span aria-hidden="true">{PRESENCE[agent.presence] ?? "○"}</span> {agent.presence}
    </span>
  );
}

/** Read the agents now, and again when the log says that they or their queues changed. */
function useAgents(): void {
  useEffect(() => {
    void readAgents().catch(() => {});
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = onEntries((entries) => {
      if (entries.some((entry) => /^agent\.|offered|delivered|accepted|completed|failed/.test(entry.type))) timer ??= setTimeout(() => ((timer = undefined), void readAgents().catch(() => {})), 2_000);
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, []);
}

export function AgentsView(): JSX.Element {
  useAgents();
  const words = filter("q").toLowerCase();
  const shown = agents.value.filter((agent) => !words || `${agent.agent_id} ${JSON.stringify(agent.manifest)}`.toLowerCase().includes(words)).slice(0, 500);
  return (
    <section class="view" aria-labelledby="agents">
      <h1 id="agents">Agents</h1>
      <div class="chips">
        <input type="search" id="search" placeholder="Filter by name or capability (/)" aria-label="Filter agents" value={filter("q")} onInput={(event) => go(withFilters({ q: event.currentTarget.value || null }), { replace: true })} />
      </div>
      {shown.length === 0 && <Empty>No agent matches. An agent is here once it has published a manifest.</Empty>}
      <div class="scroll" tabIndex={0} role="group" aria-label="Agents">
        <table class="grid">
          <thead>
            <tr>
              <th scope="col">Agent</th>
              <th scope="col">Presence</th>
              <th scope="col" class="number">
                Waiting
              </th>
              <th scope="col" class="number">
                Owes
              </th>
              <th scope="col">Capabilities</th>
              <th scope="col">Seen</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((agent) => (
              <tr key={agent.agent_id}>
                <th scope="row">
                  <a href={address("agents", agent.agent_id)}>
                    <Line text={agent.agent_id} most={60} />
                  </a>
                </th>
                <td>
                  <Presence agent={agent} />
                </td>
                <td class="number">{agent.queued}</td>
                <td class="number">{summary.value.agents.get(agent.agent_id) ?? 0}</td>
                <td>
                  <Line text={((agent.manifest as Manifest).capabilities ?? []).map((each) => each.name).join(", ") || "–"} most={80} />
                </td>
                <td>
                  <Time at={agent.seen_at} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

interface Loaded {
  agent: Agent;
  handoffs: Handoff[];
  questions: Entry[];
}

export function AgentView({ name }: { name: string }): JSX.Element {
  const { value, problem, again } = useLoad<Loaded>(name, async (signal) => {
    const [{ agent }, { handoffs }, log] = await Promise.all([
      api.value.get("/agents/{name}", { name, signal }),
      api.value.get("/handoffs", { query: { to: name, limit: SAMPLE }, signal }),
      api.value.get("/log", { query: { actor: name, type: "handoff.blocked.v1", limit: 200 }, signal }),
    ]);
    return { agent, handoffs: handoffs as Handoff[], questions: (log.entries as Entry[]).slice(-50).reverse() };
  });
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = onEntries((entries) => {
      if (entries.some((entry) => entry.actor === name)) timer ??= setTimeout(() => ((timer = undefined), again()), 2_000);
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [name]);
  const figures = useMemo(() => measure(value?.handoffs ?? []), [value]);
  if (value === null)
    return (
      <section class="view">
        <h1>
          <Line text={name} />
        </h1>
        <Refusal problem={problem} />
      </section>
    );
  const { agent } = value;
  const manifest = agent.manifest as Manifest;
  const capabilities = manifest.capabilities ?? [];
  const chosen = capabilities.find((each) => each.name === filter("form"));
  return (
    <section class="view agent" aria-labelledby="agent">
      <h1 id="agent">
        <Line text={name} />
      </h1>
      <p class="standing">
        <Presence agent={agent} /> <span>{plural(agent.queued, "handoff")} waiting</span>
        <span>
          owes {summary.value.agents.get(name) ?? 0} moves now · <a href={address("now", null, { agent: name })}>see them</a>
        </span>
        <span class="quiet">
          seen <Time at={agent.seen_at} />
        </span>
      </p>
      {manifest.description && (
        <p>
          <Line text={manifest.description} most={1000} />
        </p>
      )}
      <h2>Figures</h2>
      <p class="quiet">From the last {plural(value.handoffs.length, "handoff")} to {name}.</p>
      <div class="figures">
        <Figure label="finished" value={String(figures.ended)} />
        <Figure label="completed" value={figures.ended ? `${Math.round((figures.completed / figures.ended) * 100)} %` : "–"} />
        <Figure label="p50" value={figures.percentiles[0]} />
        <Figure label="p90" value={figures.percentiles[1]} />
        <Figure label="p99" value={figures.percentiles[2]} />
        <Figure label="until accepted" value={figures.accepted} />
      </div>
      {figures.x.length > 1 && <Chart x={figures.x} y={figures.y} label="Finished over time" />}
      <h2>Capabilities</h2>
      {capabilities.length === 0 && <Empty>None declared: it takes untyped work.</Empty>}
      <ul class="capabilities">
        {capabilities.map((capability) => {
          const offering = agent.offers?.find((each) => each.capability === capability.name);
          const claimed = offering?.claimed.reliability_sla;
          const observed = offering?.observed;
          const below = claimed != null && observed?.success != null && observed.success < claimed;
          return (
            <li key={capability.name}>
              <h3>
                <Line text={capability.name} />
              </h3>
              {capability.description && <p><Line text={capability.description} most={400} /></p>}
              <p>
                claims {claimed == null ? "no reliability" : `${Math.round(claimed * 100)} %`}
                {offering?.claimed.timeout_seconds ? ` within ${duration(offering.claimed.timeout_seconds * 1000)}` : ""} ·{" "}
                <span class={below ? "bad" : ""}>observed {observed?.success == null ? (observed?.says ?? "nothing yet") : `${Math.round(observed.success * 100)} % of ${observed.n}`}{below ? ", below its claim" : ""}</span>
                {observed?.duration_seconds != null && ` · median ${took(observed.duration_seconds * 1000)}`}
              </p>
              {acts.value && (
                <button type="button" class={chosen === capability ? "" : "primary"} aria-expanded={chosen === capability} onClick={() => go(withFilters({ form: chosen === capability ? null : capability.name }), { replace: true })}>
                  {chosen === capability ? "Close the form" : "Hand off…"}
                </button>
              )}
              {chosen === capability && acts.value && <HandOffForm key={capability.name} agent={name} capability={capability.name} schema={capability.input_schema} />}
            </li>
          );
        })}
      </ul>
      {value.questions.length > 0 && (
        <Fold title="Questions it asked" count={value.questions.length}>
          <ol class="raw">
            {value.questions.map((entry) => (
              <EntryLine key={entry.seq} entry={entry} link />
            ))}
          </ol>
        </Fold>
      )}
      <Fold title="Manifest">
        <Json value={agent.manifest} label="manifest" />
      </Fold>
    </section>
  );
}

function Figure({ label, value }: { label: string; value: string }): JSX.Element {
  return (
    <span class="figure">
      <b>{value}</b> {label}
    </span>
  );
}

/** Throughput and percentiles from receipts: acknowledged to finished, and stored to acknowledged. */
export function measure(handoffs: readonly Handoff[]): { ended: number; completed: number; percentiles: [string, string, string]; accepted: string; x: number[]; y: number[] } {
  const lasted: number[] = [];
  const waited: number[] = [];
  const ends: number[] = [];
  let completed = 0;
  for (const h of handoffs) {
    const first = h.receipts.find((each) => each.rung === "acknowledged");
    if (first) waited.push(Date.parse(first.at) - Date.parse(h.stored_at));
    if (!h.outcome || !FINAL.has(h.state)) continue;
    ends.push(Date.parse(h.outcome.at));
    if (h.state === "completed") completed++;
    const acked = h.receipts.findLast((each) => each.rung === "acknowledged");
    if (acked && h.state === "completed") lasted.push(Date.parse(h.outcome.at) - Date.parse(acked.at));
  }
  const at = (list: number[], part: number) => (list.length === 0 ? "–" : took(list.sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * part))]!));
  const { x, y } = histogram(ends);
  return { ended: ends.length, completed, percentiles: [at(lasted, 0.5), at(lasted, 0.9), at(lasted, 0.99)], accepted: at(waited, 0.5), x, y };
}

function histogram(ends: number[]): { x: number[]; y: number[] } {
  if (ends.length === 0) return { x: [], y: [] };
  const first = Math.min(...ends);
  const last = Math.max(...ends);
  const size = [60_000, 300_000, 900_000, 3_600_000, 21_600_000, 86_400_000].find((each) => (last - first) / each <= 48) ?? 604_800_000;
  const from = Math.floor(first / size);
  const counts = new Array<number>(Math.floor(last / size) - from + 1).fill(0);
  for (const end of ends) counts[Math.floor(end / size) - from]!++;
  return { x: counts.map((_, i) => ((from + i) * size) / 1000), y: counts };
}

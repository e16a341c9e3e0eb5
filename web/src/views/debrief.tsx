/** The debrief: what happened while nobody looked, as a page for the morning. */
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import type { Entry } from "../api/client.ts";
import { all, summary } from "../state/board.ts";
import { now } from "../state/clock.ts";
import { address, filter, go, withFilters } from "../state/route.ts";
import { lateness, verb } from "../state/rows.ts";
import { api, me } from "../state/session.ts";
import { Command, Empty, Refusal, Tabs, Time, useLoad } from "../ui/bits.tsx";
import { Line, plural } from "../ui/text.tsx";
import { FindingList, RAISED } from "./findings.tsx";
import { RowLine } from "./now.tsx";

const ENTRIES_MAX = 20_000;

export interface Report {
  count: number;
  offered: number;
  endings: Map<string, number>;
  agents: Map<string, { finished: number; lost: number; asked: number }>;
  relay: Map<string, number>;
  questions: number;
  answered: number;
  notes: Entry[];
  findings: Entry[];
}

const DID: Record<string, string> = {
  nudged: "reminders sent",
  escalated: "escalation steps taken",
  returned: "deliveries taken back",
  reassigned: "handoffs given to another agent",
  redriven: "dead letters tried again",
  accepted_late: "late results accepted",
  discarded: "dead letters discarded",
};

export function report(entries: readonly Entry[]): Report {
  const found: Report = { count: entries.length, offered: 0, endings: new Map(), agents: new Map(), relay: new Map(), questions: 0, answered: 0, notes: [], findings: [] };
  const agent = (name: string) => {
    const known = found.agents.get(name) ?? { finished: 0, lost: 0, asked: 0 };
    found.agents.set(name, known);
    return known;
  };
  for (const entry of entries) {
    const what = verb(entry);
    if (entry.type.startsWith("team.noted") || what === "noted") found.notes.push(entry);
    if (entry.type === RAISED) found.findings.push(entry);
    if (what === null) continue;
    if (what === "offered") found.offered++;
    else if (what === "completed") agent(entry.actor).finished++;
    else if (what === "failed" || what === "rejected") agent(entry.actor).lost++;
    else if (what === "blocked") {
      found.questions++;
      agent(entry.actor).asked++;
    } else if (what === "answered") found.answered++;
    if (["completed", "failed", "rejected", "expired", "cancelled"].includes(what)) found.endings.set(what, (found.endings.get(what) ?? 0) + 1);
    if (DID[what]) found.relay.set(DID[what], (found.relay.get(DID[what]) ?? 0) + 1);
  }
  return found;
}

export function DebriefView(): JSX.Element {
  const since = filter("since") || "12h";
  const { value, problem, loading } = useLoad(since, async (signal) => {
    const entries: Entry[] = [];
    let after = 0;
    for (;;) {
      const page = await api.value.get("/log", { query: { since, after, limit: 500 }, signal });
      entries.push(...(page.entries as Entry[]));
      if (page.entries.length < 500 || entries.length >= ENTRIES_MAX) return { entries, whole: page.entries.length < 500 };
      after = page.after;
    }
  });
  const told = useMemo(() => report(value?.entries ?? []), [value]);
  const at = now.peek();
  const owed = all.value.filter((row) => row.dead || lateness(row, at) !== null || (row.holder === me.value && !row.settled)).slice(0, 50);
  const ended = [...told.endings].map(([state, count]) => `${count} ${state}`).join(", ");
  return (
    <section class="view debrief" aria-labelledby="debrief">
      <h1 id="debrief">Debrief</h1>
      <Tabs
        label="Since"
        tabs={[
          ["1h", "1 hour"],
          ["6h", "6 hours"],
          ["12h", "12 hours"],
          ["24h", "1 day"],
          ["7d", "7 days"],
        ]}
        current={since}
        onPick={(key) => go(withFilters({ since: key === "12h" ? null : key }), { replace: true })}
      />
      <Refusal problem={problem} />
      {value !== null && (
        <>
          <p class="lead">
            {told.offered === 0 && told.endings.size === 0
              ? "Nothing was handed off, and nothing ended."
              : `${plural(told.offered, "handoff was", "handoffs were")} handed off. ${ended ? `Ended: ${ended}.` : "None ended."}`}{" "}
            {told.questions > 0 && `${plural(told.questions, "question was", "questions were")} asked, ${told.answered} answered. `}
            {summary.value.dead > 0 ? `${plural(summary.value.dead, "dead letter waits", "dead letters wait")} for a decision. ` : "No dead letters. "}
            {summary.value.mine > 0 ? `${plural(summary.value.mine, "handoff waits", "handoffs wait")} for you.` : "Nothing waits for you."}
          </p>
          {!value.whole && <p class="quiet">The first {ENTRIES_MAX} entries of that time were read.</p>}
        </>
      )}
      {value === null && loading && <p class="quiet">Reading the log…</p>}
      <h2>Needs somebody</h2>
      {owed.length === 0 ? (
        <Empty>Nothing is late, dead or waits for you.</Empty>
      ) : (
        <ol class="plain">
          {owed.map((row) => (
            <li key={row.id}>
              <RowLine row={row} gone={false} />
            </li>
          ))}
        </ol>
      )}
      {told.findings.length > 0 && (
        <>
          <h2>What to look at</h2>
          <FindingList entries={told.findings} />
        </>
      )}
      {told.relay.size > 0 && (
        <>
          <h2>What the relay did</h2>
          <ul class="did">
            {[...told.relay].map(([what, count]) => (
              <li key={what}>
                <b>{count}</b> {what}
              </li>
            ))}
          </ul>
        </>
      )}
      {told.agents.size > 0 && (
        <>
          <h2>By agent</h2>
          <table class="grid">
            <thead>
              <tr>
                <th scope="col">Agent</th>
                <th scope="col" class="number">
                  Completed
                </th>
                <th scope="col" class="number">
                  Failed
                </th>
                <th scope="col" class="number">
                  Asked
                </th>
              </tr>
            </thead>
            <tbody>
              {[...told.agents]
                .sort((a, b) => b[1].finished - a[1].finished)
                .slice(0, 100)
                .map(([name, figures]) => (
                  <tr key={name}>
                    <th scope="row">
                      <a href={address("agents", name)}>
                        <Line text={name} most={60} />
                      </a>
                    </th>
                    <td class="number">{figures.finished}</td>
                    <td class="number">{figures.lost}</td>
                    <td class="number">{figures.asked}</td>
                  </tr>
                ))}
            </tbody>
          </table>
        </>
      )}
      {told.notes.length > 0 && (
        <>
          <h2>Notes</h2>
          <ul class="talk">
            {told.notes.slice(-20).map((entry) => (
              <li key={entry.seq}>
                <b>
                  <Line text={entry.actor} />
                </b>{" "}
                <span class="quiet">
                  <Time at={entry.at} />
                </span>{" "}
                <Line text={String((entry.body as { text?: string } | null)?.text ?? "(not shown)")} most={500} />
              </li>
            ))}
          </ul>
        </>
      )}
      <Command text={`nodrop debrief --since ${since}`} />
    </section>
  );
}

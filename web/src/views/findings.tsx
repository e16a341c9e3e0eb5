/** What the relay found in the log of the last day: loops, storms and work that nobody collects. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Entry } from "../api/client.ts";
import { onEntries } from "../state/board.ts";
import { api } from "../state/session.ts";
import { Time, useLoad } from "../ui/bits.tsx";
import { Line, plural } from "../ui/text.tsx";

export const RAISED = "finding.raised.v1";
const SHOWN_MAX = 20;

export function textOf(entry: Entry): string {
  const said = (entry.body as { text?: string } | null)?.text;
  return said ?? String((entry.data as { subject?: string }).subject ?? "");
}

export function FindingList({ entries }: { entries: readonly Entry[] }): JSX.Element {
  return (
    <ul class="talk findings">
      {entries.slice(-SHOWN_MAX).map((entry) => (
        <li key={entry.seq}>
          <b>
            <Line text={String((entry.data as { detector?: string }).detector ?? "")} most={40} />
          </b>{" "}
          <span class="quiet">
            <Time at={entry.at} />
          </span>{" "}
          <Line text={textOf(entry)} most={500} />
        </li>
      ))}
    </ul>
  );
}

/** A line on Now, opened for the findings; nothing where there are none. */
export function FindingsLine(): JSX.Element | null {
  const [turn, setTurn] = useState(0);
  useEffect(() => onEntries((entries) => entries.some((entry) => entry.type === RAISED) && setTurn((n) => n + 1)), []);
  const { value } = useLoad(`findings ${turn}`, async (signal) => {
    const page = await api.value.get("/log", { query: { type: RAISED, since: "24h", limit: 100 }, signal });
    return page.entries as Entry[];
  });
  if (value === null || value.length === 0) return null;
  return (
    <details class="found">
      <summary>{plural(value.length, "finding", "findings")} in the last day: loops, storms or work that nobody collects</summary>
      <FindingList entries={value} />
    </details>
  );
}

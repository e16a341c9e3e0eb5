/** Lanes: one line per holder over time. Waiting is hatched, working solid, waiting for an answer dotted. */
import type { JSX } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { absolute, now, took } from "../state/clock.ts";
import { times } from "../state/prefs.ts";
import type { Course, Segment } from "../state/segments.ts";
import { iso } from "../ui/bits.tsx";
import { oneLine } from "../ui/text.tsx";

const NARROWEST = 480;
const NAME = 132;
const ROOM_FOR_WORDS = 130;
const LANE = 34;
const BAR = 16;
const TOP = 26;
const KIND_WORDS: Record<string, string> = { waiting: "waiting", working: "working", asking: "waiting for an answer", outcome: "outcome" };

export function Lanes({ course, titles, settled, broken, onPick }: { course: Course; titles: Map<string, string>; settled: boolean; broken?: Map<string, string>; onPick?: (id: string) => void }): JSX.Element {
  const [hovered, setHovered] = useState<string | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(720);
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    const measure = () => setWidth(Math.max(element.clientWidth, NARROWEST));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const { segments, endings } = course;
  if (segments.length === 0)
    return (
      <div ref={box}>
        <p class="empty">The log holds nothing about it any more.</p>
      </div>
    );
  const at = settled ? 0 : now.value;
  const start = Math.min(...segments.map((s) => s.from));
  const seen = Math.max(at, ...segments.map((s) => s.to ?? s.from), ...endings.map((e) => e.at));
  const span = Math.max(seen - start, 1);
  // The due line is shown where it is near enough to leave the bars readable.
  const due = course.deadline !== null && course.deadline - start < span * 3 ? course.deadline : null;
  const end = Math.max(seen, due ?? 0) + span * 0.06;
  const right = endings.some((e) => e.lost) ? ROOM_FOR_WORDS : 16;
  const x = (time: number) => NAME + ((time - start) / (end - start)) * (width - NAME - right);
  const holders = [...new Set(segments.map((s) => s.holder))];
  const height = TOP + holders.length * LANE + 24;
  const y = (holder: string) => TOP + holders.indexOf(holder) * LANE;
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => start + span * part);
  const label = (s: Segment) =>
    `${s.holder} ${KIND_WORDS[s.kind]} ${took((s.to ?? seen) - s.from)}, attempt ${s.attempt || 1}: ${oneLine(titles.get(s.handoff) ?? "", 80)}`;
  return (
    <figure class="lanes">
      <div class="scroll" ref={box} tabIndex={0} role="group" aria-label="Lanes by holder over time">
        <svg viewBox={`0 0 ${width} ${height}`} width={width} height={height} role="img" aria-label={`Who had it when: ${holders.join(", ")}`}>
          <defs>
            <pattern id="hatch" width="6" height="6" patternTransform="rotate(45)" patternUnits="userSpaceOnUse">
              <rect class="hatch-ground" width="6" height="6" />
              <line class="hatch-line" x1="0" y1="0" x2="0" y2="6" />
            </pattern>
          </defs>
          {ticks.map((time, i) => (
            <g key={i} class="tick">
              <line x1={x(time)} x2={x(time)} y1={TOP - 6} y2={height - 20} />
              <text x={x(time)} y={12} text-anchor={i === 0 ? "start" : "middle"}>
                {times.value === "relative" ? `+${took(time - start)}` : absolute(iso(time), times.value === "utc", start)}
              </text>
            </g>
          ))}
          {holders.map((holder) => (
            <text key={holder} class="holder" x={0} y={y(holder) + BAR - 3}>
              {oneLine(holder, 18)}
            </text>
          ))}
          {segments.map((s, i) => {
            const from = x(s.from);
            const wide = Math.max(x(s.to ?? Math.max(at, s.from)) - from, 3);
            const bad = broken?.has(s.handoff) && isLast(segments, i);
            return (
              <rect
                key={i}
                class={`seg ${s.kind} ${bad ? "broken" : ""} ${hovered === s.handoff ? "near" : ""}`}
                x={from}
                y={y(s.holder)}
                width={wide}
                height={BAR}
                rx="2"
                fill={s.kind === "waiting" ? "url(#hatch)" : undefined}
                onMouseEnter={() => setHovered(s.handoff)}
                onMouseLeave={() => setHovered(null)}
                onClick={() => onPick?.(s.handoff)}
              >
                <title>{label(s)}</title>
              </rect>
            );
          })}
          {endings.map((e) => (
            <g key={e.handoff} class={`ending ${e.lost ? "bad" : "good"}`}>
              <text x={x(e.at) + 3} y={y(e.holder) + BAR - 3}>
                {e.lost ? `✕ ${broken?.get(e.handoff) ?? e.state}` : e.state === "completed" ? "✓" : `– ${e.state}`}
              </text>
            </g>
          ))}
          {due !== null && (
            <g class="dueline">
              <line x1={x(due)} x2={x(due)} y1={TOP - 8} y2={height - 18} />
              <text x={x(due)} y={height - 6} text-anchor="end">
                due
              </text>
            </g>
          )}
          {!settled && (
            <g class="nowline">
              <line x1={x(at)} x2={x(at)} y1={TOP - 8} y2={height - 18} />
              <text x={x(at)} y={height - 6} text-anchor="middle">
                now
              </text>
            </g>
          )}
        </svg>
      </div>
      <figcaption>
        <span class="legend waiting">waiting</span>
        <span class="legend working">working</span>
        <span class="legend asking">waiting for an answer</span>
      </figcaption>
      <table class="aside" aria-label="The same as a table">
        <tbody>
          {segments.map((s, i) => (
            <tr key={i}>
              <td>{label(s)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </figure>
  );
}

function isLast(segments: readonly Segment[], index: number): boolean {
  const mine = segments[index]!.handoff;
  return !segments.slice(index + 1).some((s) => s.handoff === mine);
}

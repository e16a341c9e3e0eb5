/** A chain as a graph: what follows from what. Laid out by dagre, drawn here. */
import { graphlib, layout } from "@dagrejs/dagre";
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import type { Step } from "../api/client.ts";
import { word } from "../state/rows.ts";
import { mark, toneOf } from "../ui/bits.tsx";
import { oneLine, plural } from "../ui/text.tsx";

const WIDTH = 190;
const HEIGHT = 52;
/** Layout takes a quarter of a second for three hundred. */
const NODES_MAX = 200;

export function Graph({ steps, broken, folded, onPick }: { steps: readonly Step[]; broken: Map<string, string>; folded: Map<string, number>; onPick: (id: string) => void }): JSX.Element {
  const drawn = useMemo(() => arrange(steps.slice(0, NODES_MAX), folded), [steps, folded]);
  return (
    <figure class="graph">
      <div class="scroll" tabIndex={0} role="group" aria-label="Graph of the chain">
        <svg viewBox={`0 0 ${drawn.width} ${drawn.height}`} width={drawn.width} height={drawn.height}>
          {drawn.edges.map((edge) => (
            <g key={edge.key} class="edge">
              <polyline points={edge.points} />
              {edge.label && (
                <text x={edge.x} y={edge.y} text-anchor="middle">
                  {edge.label}
                </text>
              )}
            </g>
          ))}
          {drawn.nodes.map(({ key, step, more, x, y }) =>
            step ? (
              <g
                key={key}
                class={`vertex ${broken.has(step.id) ? "bad" : toneOf(step.state)}`}
                transform={`translate(${x - WIDTH / 2} ${y - HEIGHT / 2})`}
                role="link"
                tabindex={0}
                onClick={() => onPick(step.id)}
                onKeyDown={(event) => event.key === "Enter" && onPick(step.id)}
              >
                <rect width={WIDTH} height={HEIGHT} rx="4" />
                <text class="name" x="10" y="21">
                  {oneLine(step.title ?? step.ref, 24)}
                </text>
                <text class="more" x="10" y="40">
                  {mark(step.state)} {broken.has(step.id) ? `broken: ${oneLine(broken.get(step.id) ?? "", 16)}` : word(step.state)} · {oneLine(step.to, 14)}
                </text>
              </g>
            ) : (
              <g key={key} class="vertex folded" transform={`translate(${x - WIDTH / 2} ${y - HEIGHT / 2})`}>
                <rect width={WIDTH} height={HEIGHT} rx="4" />
                <text class="more" x="10" y="31">
                  {plural(more, "more member")}
                </text>
              </g>
            ),
          )}
        </svg>
      </div>
      {steps.length > NODES_MAX && <figcaption>The first {NODES_MAX} of {steps.length}.</figcaption>}
    </figure>
  );
}

interface Drawn {
  width: number;
  height: number;
  nodes: { key: string; step: Step | null; more: number; x: number; y: number }[];
  edges: { key: string; points: string; label: string; x: number; y: number }[];
}

function arrange(steps: readonly Step[], folded: Map<string, number>): Drawn {
  const graph = new graphlib.Graph();
  graph.setGraph({ rankdir: "LR", nodesep: 18, ranksep: 56, marginx: 8, marginy: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  const known = new Map(steps.map((step) => [step.id, step]));
  for (const step of steps) graph.setNode(step.id, { width: WIDTH, height: HEIGHT });
  for (const step of steps) if (step.under && known.has(step.under)) graph.setEdge(step.under, step.id);
  for (const group of folded.keys())
    if (known.has(group)) {
      graph.setNode(`+${group}`, { width: WIDTH, height: HEIGHT });
      graph.setEdge(group, `+${group}`);
    }
  layout(graph);
  const size = graph.graph() as { width?: number; height?: number };
  return {
    width: size.width ?? 100,
    height: size.height ?? 100,
    nodes: graph.nodes().map((key: string) => {
      const at = graph.node(key) as { x: number; y: number };
      return { key, step: known.get(key) ?? null, more: folded.get(key.slice(1)) ?? 0, x: at.x, y: at.y };
    }),
    edges: graph.edges().map((edge: { v: string; w: string }) => {
      const points = (graph.edge(edge) as { points: { x: number; y: number }[] }).points;
      const middle = points[Math.floor(points.length / 2)] ?? { x: 0, y: 0 };
      const kind = known.get(edge.w)?.kind ?? "";
      return { key: `${edge.v} ${edge.w}`, points: points.map((p) => `${p.x},${p.y}`).join(" "), label: kind === "leg" || kind === "first" ? "" : kind, x: middle.x, y: middle.y - 4 };
    }),
  };
}

/** A series over time, by uPlot. Drawn again at most four times a second. */
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { theme } from "../state/prefs.ts";

export function Chart({ x, y, label, unit = "" }: { x: readonly number[]; y: readonly number[]; label: string; unit?: string }): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const chosen = theme.value;
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const style = getComputedStyle(element);
    const ink = style.getPropertyValue("--quiet").trim();
    const rule = style.getPropertyValue("--rule").trim();
    const bar = style.getPropertyValue("--accent").trim();
    const axis = { stroke: ink, grid: { stroke: rule, width: 1 }, ticks: { stroke: rule, width: 1 }, font: "11px system-ui" };
    const plot = new uPlot(
      {
        width: element.clientWidth || 480,
        height: 150,
        legend: { show: false },
        cursor: { y: false },
        scales: { y: { range: (_, __, most) => [0, Math.max(1, most * 1.1)] } },
        axes: [axis, { ...axis, size: 44, values: (_, ticks) => ticks.map((tick) => `${tick}${unit}`) }],
        series: [{}, { stroke: bar, fill: `color-mix(in srgb, ${bar} 18%, transparent)`, width: 1.5, paths: uPlot.paths.bars!({ size: [0.8, 40] }), points: { show: false } }],
      },
      [x as number[], y as number[]],
      element,
    );
    const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: 150 }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.destroy();
    };
  }, [x, y, chosen]);
  const total = y.reduce((sum, value) => sum + value, 0);
  return <div ref={box} class="chart" role="img" aria-label={`${label}: ${Math.round(total)} in all`} />;
}

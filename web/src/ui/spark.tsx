/** A small figure of counts over time, drawn as bars. */
import type { JSX } from "preact";

export function Spark({ values, label }: { values: readonly number[]; label: string }): JSX.Element | null {
  const grouped: number[] = [];
  for (let i = 0; i < values.length; i += 3) grouped.push((values[i] ?? 0) + (values[i + 1] ?? 0) + (values[i + 2] ?? 0));
  const most = Math.max(1, ...grouped);
  const total = values.reduce((sum, value) => sum + value, 0);
  return (
    <span class="spark" title={`${label}: ${total}`}>
      <svg viewBox={`0 0 ${Math.max(grouped.length, 1) * 4} 22`} role="img" aria-label={`${label}: ${total}`} preserveAspectRatio="none">
        {grouped.map((value, i) => {
          const height = value === 0 ? 1 : 2 + (value / most) * 20;
          return <rect key={i} x={i * 4} y={22 - height} width="3" height={height} class={value === 0 ? "none" : ""} />;
        })}
      </svg>
      <span class="quiet">{total} finished</span>
    </span>
  );
}

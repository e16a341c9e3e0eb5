/** A long list of which only the lines on screen are in the document. Heights are known beforehand. */
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

export interface ListItem {
  key: string;
  height: number;
}

const AROUND_PX = 400;

export function VirtualList<T extends ListItem>({
  items,
  render,
  label,
  onShown,
  onScrolled,
  focused,
}: {
  items: readonly T[];
  render: (item: T, index: number) => JSX.Element;
  label: string;
  onShown?: (keys: string[]) => void;
  onScrolled?: (top: number) => void;
  /** A key to bring on screen and focus; the counter makes the same key count again. */
  focused?: { key: string; turn: number } | null;
}): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(800);

  const offsets = useMemo(() => {
    const found = new Float64Array(items.length + 1);
    items.forEach((item, i) => {
      found[i + 1] = found[i]! + item.height;
    });
    return found;
  }, [items]);

  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    const measure = () => setHeight(element.clientHeight || 800);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  const first = Math.max(0, at(offsets, top - AROUND_PX));
  const last = Math.min(items.length, at(offsets, top + height + AROUND_PX) + 1);
  const shown = items.slice(first, last);
  const keys = shown.map((item) => item.key).join("\n");

  useEffect(() => {
    onShown?.(shown.map((item) => item.key));
  }, [keys]);

  useEffect(() => {
    if (!focused || box.current === null) return;
    const index = items.findIndex((item) => item.key === focused.key);
    if (index < 0) return;
    const from = offsets[index]!;
    const to = offsets[index + 1]!;
    const element = box.current;
    if (from < element.scrollTop) element.scrollTop = from - 40;
    else if (to > element.scrollTop + element.clientHeight) element.scrollTop = to - element.clientHeight + 40;
    requestAnimationFrame(() => element.querySelector<HTMLElement>(`[data-key="${CSS.escape(focused.key)}"]`)?.focus());
  }, [focused]);

  return (
    <div
      ref={box}
      class="list"
      onScroll={(event) => {
        const scrolled = event.currentTarget.scrollTop;
        setTop(scrolled);
        onScrolled?.(scrolled);
      }}
    >
      <div class="lines" role="list" aria-label={label} style={{ height: `${offsets[items.length]}px` }}>
        {shown.map((item, i) => (
          <div key={item.key} class="at" role="listitem" aria-setsize={items.length} aria-posinset={first + i + 1} style={{ transform: `translateY(${offsets[first + i]}px)`, height: `${item.height}px` }}>
            {render(item, first + i)}
          </div>
        ))}
      </div>
    </div>
  );
}

/** The item at a distance from the top, by halving. */
function at(offsets: Float64Array, distance: number): number {
  let low = 0;
  let high = offsets.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (offsets[middle]! <= distance) low = middle;
    else high = middle - 1;
  }
  return low;
}

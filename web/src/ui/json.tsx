/** JSON as a tree: folded, searchable; only what is unfolded is in the document. */
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { plural, size, visible } from "./text.tsx";

const CHILDREN = 100;
const STRING_MAX = 400;
const HITS_MAX = 200;
const OPEN_DEPTH = 2;
const OPEN_SIZE = 20;

export function Json({ value, label }: { value: unknown; label: string }): JSX.Element {
  const [query, setQuery] = useState("");
  const hits = useMemo(() => (query.length > 1 ? search(value, query.toLowerCase()) : null), [value, query]);
  const searchable = value !== null && typeof value === "object" && Object.keys(value).length > 3;
  return (
    <div class="json">
      {searchable && (
        <input type="search" placeholder={`Search ${label}`} aria-label={`Search ${label}`} value={query} onInput={(event) => setQuery(event.currentTarget.value)} />
      )}
      {hits === null ? (
        <Node name={null} value={value} depth={0} />
      ) : (
        <ul class="hits" aria-label={`Found in ${label}`}>
          {hits.map(([path, found]) => (
            <li key={path}>
              <span class="key">{visible(path)}</span> <Leaf value={found} />
            </li>
          ))}
          {hits.length === 0 && <li class="quiet">Nothing found.</li>}
          {hits.length >= HITS_MAX && <li class="quiet">The first {HITS_MAX}.</li>}
        </ul>
      )}
    </div>
  );
}

/** Paths whose key or value holds the words, without recursion: JSON may be deep. */
export function search(value: unknown, query: string): [string, unknown][] {
  const hits: [string, unknown][] = [];
  const stack: [string, unknown][] = [["", value]];
  while (stack.length > 0 && hits.length < HITS_MAX) {
    const [path, here] = stack.pop()!;
    if (here !== null && typeof here === "object") {
      const below = Object.entries(here).map(([key, inner]): [string, unknown] => [path ? `${path}.${key}` : key, inner]);
      stack.push(...below.reverse());
    } else if (path.toLowerCase().includes(query) || String(here).toLowerCase().includes(query)) hits.push([path, here]);
  }
  return hits;
}

function Leaf({ value }: { value: unknown }): JSX.Element {
  const [whole, setWhole] = useState(false);
  if (typeof value !== "string") return <span class={`value ${value === null ? "null" : typeof value}`}>{String(value)}</span>;
  const long = value.length > STRING_MAX && !whole;
  return (
    <span class="value string">
      <bdi>"{visible(long ? value.slice(0, STRING_MAX) : value)}"</bdi>
      {long && (
        <button type="button" class="link" onClick={() => setWhole(true)}>
          … {size(value.length)}
        </button>
      )}
    </span>
  );
}

function Node({ name, value, depth }: { name: string | null; value: unknown; depth: number }): JSX.Element {
  const branch = value !== null && typeof value === "object";
  const count = branch ? Object.keys(value).length : 0;
  const [open, setOpen] = useState(depth < OPEN_DEPTH && count <= OPEN_SIZE);
  const [shown, setShown] = useState(CHILDREN);
  const key = name === null ? null : <span class="key">{visible(name.slice(0, 200))}: </span>;
  if (!branch || count === 0)
    return (
      <div class="node">
        {key}
        {branch ? <span class="value">{Array.isArray(value) ? "[]" : "{}"}</span> : <Leaf value={value} />}
      </div>
    );
  const entries = open ? Object.entries(value).slice(0, shown) : [];
  return (
    <div class="node">
      <button type="button" class="fold" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span aria-hidden="true">{open ? "▾" : "▸"}</span> {key}
        <span class="quiet">{Array.isArray(value) ? plural(count, "item") : plural(count, "field")}</span>
      </button>
      {open && (
        <div class="below">
          {entries.map(([inner, below]) => (
            <Node key={inner} name={inner} value={below} depth={depth + 1} />
          ))}
          {count > shown && (
            <button type="button" class="link" onClick={() => setShown(shown + CHILDREN)}>
              … {count - shown} more
            </button>
          )}
        </div>
      )}
    </div>
  );
}

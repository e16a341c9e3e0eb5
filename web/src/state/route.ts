/** The address: `#/view/name?filters`. Views and filters live in the fragment, which no server sees. */
import { computed, signal } from "@preact/signals";

const hash = signal(location.hash);
window.addEventListener("hashchange", () => {
  hash.value = location.hash;
});

export interface Place {
  view: string;
  name: string | null;
  filters: URLSearchParams;
}

export function parse(fragment: string): Place {
  const [path = "", query = ""] = fragment.replace(/^#\/?/, "").split("?", 2);
  const [view = "", ...rest] = path.split("/");
  const name = rest.length > 0 ? decode(rest.join("/")) : null;
  return { view: view || "now", name: name || null, filters: new URLSearchParams(query) };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const place = computed(() => parse(hash.value));
export const opened = computed(() => place.value.filters.get("open"));

export function filter(name: string): string {
  return place.value.filters.get(name) ?? "";
}

export function address(view: string, name: string | null = null, filters: Record<string, string | null> = {}): string {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(filters)) if (value) query.set(key, value);
  const path = name === null ? view : `${view}/${encodeURIComponent(name)}`;
  const text = query.toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

/** The address of this view with other filters; null removes one. */
export function withFilters(changes: Record<string, string | null>): string {
  const { view, name, filters } = place.value;
  return address(view, name, { ...Object.fromEntries(filters), ...changes });
}

export function go(to: string, { replace = false } = {}): void {
  if (replace) {
    history.replaceState(null, "", to);
    hash.value = location.hash;
  } else {
    location.hash = to;
    hash.value = location.hash;
  }
}

/** Open a handoff beside the list; null closes it. */
export function open(id: string | null): void {
  go(withFilters({ open: id, zoom: null, attempt: null }));
}

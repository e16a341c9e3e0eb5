/** Now: open handoffs by who owes the next move, late and dead first, then by due time. */
import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { all, changes, failure, finished, loaded, row as rowOf, summary, truncated, watch } from "../state/board.ts";
import { now } from "../state/clock.ts";
import { filter, go, open, opened, place, withFilters } from "../state/route.ts";
import { FINAL, lateness, owed, type Row, word } from "../state/rows.ts";
import { acts, me } from "../state/session.ts";
import { Due, Empty, mark, Refusal, toneOf } from "../ui/bits.tsx";
import { VirtualList } from "../ui/list.tsx";
import { Line, oneLine } from "../ui/text.tsx";
import { Spark } from "../ui/spark.tsx";
import { rowKeys } from "../state/keys.ts";
import { FindingsLine } from "./findings.tsx";

const ROW = 58;
const HEADING = 40;
const SECTIONS = [
  ["late", "Late"],
  ["dead", "Dead letters"],
  ["you", "You"],
  ["next", "Next"],
  ["ended", "Finished, not collected"],
] as const;
type Section = (typeof SECTIONS)[number][0];

interface LineItem {
  key: string;
  height: number;
  heading?: string;
  count?: number;
  row?: Row;
  gone?: boolean;
}

export function sectionOf(row: Row, at: number, viewer: string): Section {
  if (row.dead) return "dead";
  if (lateness(row, at) !== null) return "late";
  if (row.holder === viewer && !FINAL.has(row.state)) return "you";
  return FINAL.has(row.state) ? (row.holder === viewer ? "you" : "ended") : "next";
}

/** The ids of the rows that pass the filters, by section, each sorted by due time. */
export function arrange(rows: readonly Row[], at: number, viewer: string, filters: URLSearchParams): Map<Section, Row[]> {
  const agent = filters.get("agent");
  const state = filters.get("state");
  const priority = filters.get("priority");
  const words = filters.get("q")?.toLowerCase();
  const found = new Map<Section, Row[]>(SECTIONS.map(([key]) => [key, []]));
  for (const row of rows) {
    if (row.settled && !row.dead) continue;
    if (agent && row.holder !== agent && row.to !== agent && row.from !== agent) continue;
    if (state && row.state !== state) continue;
    if (priority && row.priority !== priority) continue;
    if (words && !`${row.title ?? ""} ${row.ref} ${row.to} ${row.from} ${row.capability ?? ""}`.toLowerCase().includes(words)) continue;
    found.get(sectionOf(row, at, viewer))!.push(row);
  }
  const when = (row: Row) => lateness(row, at)?.since ?? row.due ?? Number.MAX_SAFE_INTEGER;
  for (const [key, list] of found) list.sort((a, b) => (key === "dead" ? b.since - a.since : when(a) - when(b)) || (a.id < b.id ? -1 : 1));
  return found;
}

/** The list as it is shown: held still while it is read, with what is new counted apart. */
function useHeld(): { items: LineItem[]; fresh: number; release: () => void; reading: (why: string, is: boolean) => void } {
  const why = useRef(new Set<string>());
  const shown = useRef<{ section: Section; ids: string[] }[]>([]);
  const kept = useRef(new Map<string, Row>());
  const filters = useRef("");
  const last = useRef(0);
  const [fresh, setFresh] = useState(0);
  const [items, setItems] = useState<LineItem[]>([]);

  const step = (force: boolean) => {
    const wanted = arrange(all.peek(), now.peek(), me.peek(), place.peek().filters);
    const text = place.peek().filters.toString().replace(/(^|&)(open|zoom|attempt)=[^&]*/g, "");
    const moved = text !== filters.current;
    filters.current = text;
    const known = new Set(shown.current.flatMap((section) => section.ids));
    const held = !force && !moved && why.current.size > 0 && known.size > 0;
    const stillYoung = !force && !moved && !held && known.size > 0 && performance.now() - last.current < 1_000;
    if (!held && !stillYoung) {
      shown.current = SECTIONS.map(([section]) => ({ section, ids: wanted.get(section)!.map((r) => r.id) }));
      last.current = performance.now();
      kept.current.clear();
      setFresh(0);
    } else {
      let count = 0;
      for (const list of wanted.values()) for (const r of list) if (!known.has(r.id)) count++;
      setFresh(held ? count : 0);
    }
    const lines: LineItem[] = [];
    for (const { section, ids } of shown.current) {
      if (ids.length === 0) continue;
      const title = SECTIONS.find(([key]) => key === section)![1];
      lines.push({ key: `#${section}`, height: HEADING, heading: title, count: ids.length });
      for (const id of ids) {
        const current = rowOf(id);
        if (current) kept.current.set(id, current);
        const shownRow = current ?? kept.current.get(id);
        if (shownRow) lines.push({ key: id, height: ROW, row: shownRow, gone: current === undefined || (current.settled && !current.dead) });
      }
    }
    setItems(lines);
  };
  useSignalEffect(() => {
    void changes.value;
    void place.value;
    void now.value;
    step(false);
  });
  return {
    items,
    fresh,
    release: () => step(true),
    reading: (reason, is) => {
      if (is) why.current.add(reason);
      else why.current.delete(reason);
    },
  };
}

export function NowView(): JSX.Element {
  const { items, fresh, release, reading } = useHeld();
  const [focused, setFocused] = useState<{ key: string; turn: number } | null>(null);
  const list = useRef<HTMLDivElement>(null);
  const rows = useMemo(() => items.filter((item) => item.row), [items]);

  useEffect(
    () =>
      rowKeys({
        move: (by) => {
          const current = (document.activeElement as HTMLElement | null)?.dataset.key ?? opened.peek();
          const at = rows.findIndex((item) => item.key === current);
          const next = rows[at < 0 ? 0 : Math.min(Math.max(at + by, 0), rows.length - 1)];
          if (next) setFocused({ key: next.key, turn: Math.random() });
        },
      }),
    [rows],
  );

  return (
    <section class="view now" aria-labelledby="now">
      <h1 id="now" class="aside">
        Now
      </h1>
      <Headline />
      <FindingsLine />
      <Chips />
      {failure.value && <Refusal problem={failure.value} />}
      <div
        class="reading"
        ref={list}
        onMouseMove={() => reading("pointer", true)}
        onMouseLeave={() => reading("pointer", false)}
        onFocusCapture={() => reading("focus", true)}
        onBlurCapture={() => reading("focus", false)}
      >
        {fresh > 0 && (
          <button
            type="button"
            class="pill"
            onClick={() => {
              list.current?.querySelector(".list")?.scrollTo({ top: 0 });
              release();
            }}
          >
            {fresh} new
          </button>
        )}
        {loaded.value && items.length === 0 ? (
          <Empty>{place.value.filters.size > 0 ? "Nothing matches." : "Nothing is open. New handoffs appear here by themselves."}</Empty>
        ) : (
          <VirtualList
            items={items}
            label="Open handoffs"
            onShown={watch}
            onScrolled={(top) => reading("scroll", top > 4)}
            focused={focused}
            render={(item) => (item.heading ? <h2 class={`heading ${item.key.slice(1)}`}>{item.heading} <span class="quiet">{item.count}</span></h2> : <RowLine row={item.row!} gone={item.gone ?? false} />)}
          />
        )}
      </div>
      {truncated.value && <p class="quiet">More than 5,000 are open in one state; the newest are shown.</p>}
    </section>
  );
}

export function RowLine({ row, gone }: { row: Row; gone: boolean }): JSX.Element {
  const late = gone ? null : lateness(row, now.value);
  const ask = row.state === "blocked" && row.question;
  const tone = gone ? "quiet" : row.dead || late ? "bad" : toneOf(row.state);
  return (
    <a
      class={`row ${tone} ${gone ? "gone" : ""}`}
      data-key={row.id}
      aria-current={opened.value === row.id ? "true" : undefined}
      href={withFilters({ open: row.id, zoom: null, attempt: null })}
      onClick={(event) => {
        if (event.metaKey || event.ctrlKey || event.shiftKey) return;
        event.preventDefault();
        open(row.id);
      }}
    >
      <span class="mark" aria-hidden="true">
        {gone ? "✓" : row.dead ? "✕" : mark(row.state)}
      </span>
      <span class="title">
        <Line text={ask && row.question?.text ? row.question.text : (row.title ?? row.capability ?? row.ref)} most={200} />
      </span>
      <span class="right">{gone ? <span class="due quiet">done</span> : row.dead ? <span class="due bad">{row.code ?? row.state}</span> : <Due at={row.due} late={late} />}</span>
      <span class="sub">
        <span class="holder">
          <Line text={row.dead ? row.origin : (row.holder ?? row.to)} most={40} />
        </span>{" "}
        {gone ? "settled" : row.dead ? "owes a decision" : (late?.what ?? owed(row))}
        {row.dead && (
          <span>
            {" "}
            · {row.state} at <Line text={row.to} most={40} />
          </span>
        )}
        {ask && row.title && (
          <>
            {" · "}
            <Line text={row.title} most={80} />
          </>
        )}
        {row.priority !== "medium" && <span class={`priority ${row.priority}`}>{row.priority}</span>}
        {row.attempt > 1 && <span> · attempt {row.attempt}</span>}
        {row.legs > 1 && (
          <span>
            {" "}
            · leg {row.leg}/{row.legs}
          </span>
        )}
        <span class="ref">
          <Line text={row.ref.length > 48 ? row.id.slice(0, 13) : row.ref === row.id ? row.id.slice(0, 13) : row.ref} />
        </span>
      </span>
    </a>
  );
}

function Headline(): JSX.Element {
  const total = summary.value;
  const figures: [number, string, string, Record<string, string | null>][] = [
    [total.open, "open", "", {}],
    [total.late, "late", total.late > 0 ? "bad" : "", {}],
    [total.dead, total.dead === 1 ? "dead letter" : "dead letters", total.dead > 0 ? "bad" : "", {}],
    ...(acts.value ? ([[total.mine, total.mine === 1 ? "waits for you" : "wait for you", total.mine > 0 ? "ask" : "", { agent: me.value }]] as [number, string, string, Record<string, string | null>][]) : []),
    [total.working, "working", "", { state: "accepted" }],
  ];
  return (
    <div class="headline">
      {figures.map(([count, label, tone, filters]) => (
        <a key={label} class={`figure ${tone}`} href={label === "dead letters" || label === "dead letter" ? "#/dead" : withFilters({ agent: null, state: null, priority: null, q: null, ...filters })}>
          <b>{count}</b> {label}
        </a>
      ))}
      <span class="spring" />
      <Spark values={finished.value.counts} label="Finished in the last 15 minutes" />
    </div>
  );
}

/** Counts by state, agent and priority; each is a filter, and the filter is in the address. */
function Chips(): JSX.Element {
  const total = summary.value;
  const words = useSignal(filter("q"));
  const shown = useComputed(() => filter("q"));
  useSignalEffect(() => {
    words.value = shown.value;
  });
  const kinds: [string, string, Map<string, number>, (key: string) => string][] = [
    ["state", "State", total.states, word],
    ["agent", "Holder", total.agents, (key) => key],
    ["priority", "Priority", total.priorities, (key) => key],
  ];
  return (
    <div class="chips">
      <input
        type="search"
        id="search"
        placeholder="Filter (/)"
        aria-label="Filter by words"
        value={words.value}
        onInput={(event) => go(withFilters({ q: event.currentTarget.value || null }), { replace: true })}
      />
      {kinds.map(([name, label, counts, say]) => (
        <label key={name} class="chip">
          <span class="aside">{label}</span>
          <select value={filter(name)} onChange={(event) => go(withFilters({ [name]: event.currentTarget.value || null }), { replace: true })}>
            <option value="">{label}: all</option>
            {filter(name) && !counts.has(filter(name)) && <option value={filter(name)}>{oneLine(say(filter(name)), 60)} 0</option>}
            {[...counts]
              .sort((a, b) => b[1] - a[1])
              .slice(0, 100)
              .map(([key, count]) => (
                <option key={key} value={key}>
                  {oneLine(say(key), 60)} {count}
                </option>
              ))}
          </select>
        </label>
      ))}
    </div>
  );
}

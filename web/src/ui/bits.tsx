/** Small parts that every view uses. */
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Problem } from "../api/client.ts";
import { absolute, duration, now, relative, written } from "../state/clock.ts";
import { times } from "../state/prefs.ts";
import { FINAL, type Lateness, word } from "../state/rows.ts";

import { oneLine } from "./text.tsx";

const MARKS: Record<string, string> = {
  offered: "○",
  delivered: "◔",
  accepted: "●",
  blocked: "◆",
  completed: "✓",
  failed: "✕",
  rejected: "✕",
  expired: "✕",
  cancelled: "–",
};

/** A state: a mark, a word and a colour, in this order of importance. */
export function State({ state, tone }: { state: string; tone?: string }): JSX.Element {
  return (
    <span class={`state ${tone ?? toneOf(state)}`}>
      <span aria-hidden="true">{MARKS[state] ?? "○"}</span> {word(state)}
    </span>
  );
}

export function mark(state: string): string {
  return MARKS[state] ?? "○";
}

export function toneOf(state: string): string {
  if (state === "completed") return "good";
  if (state === "blocked") return "ask";
  if (state === "cancelled" || state === "offered" || state === "delivered") return "quiet";
  return FINAL.has(state) ? "bad" : "busy";
}

/** A time as the reader has chosen; the other forms are in its title. */
export function Time({ at }: { at: string | null | undefined }): JSX.Element {
  if (!at) return <span class="quiet">–</span>;
  const shown = times.value === "relative" ? written(at, now.value) : written(at, now.peek());
  return (
    <time dateTime={at} title={`${absolute(at, false, 0)} · ${absolute(at, true, 0)}`}>
      {shown}
    </time>
  );
}

/** What is due: how long is left, or how late it is. */
export function Due({ at, late }: { at: number | null; late?: Lateness | null }): JSX.Element {
  if (late) {
    const text = times.value === "relative" ? `${duration(now.value - late.since)} late` : `late since ${written(iso(late.since), now.peek())}`;
    return <span class="due bad">{text}</span>;
  }
  if (at === null) return <span class="due quiet">–</span>;
  const left = at - now.value;
  const text = times.value === "relative" ? (left >= 0 ? duration(left) : `${duration(left)} late`) : written(iso(at), now.peek());
  return (
    <span class={`due ${left < 0 ? "bad" : left < 300_000 ? "soon" : ""}`} title={absolute(iso(at), false, 0)}>
      {text}
    </span>
  );
}

export function iso(ms: number): string {
  return new Date(ms).toISOString();
}

export function Since({ at }: { at: number }): JSX.Element {
  return <span title={absolute(iso(at), false, 0)}>{relative(iso(at), now.value)}</span>;
}

export function Refusal({ problem }: { problem: Problem | null }): JSX.Element | null {
  if (problem === null) return null;
  return (
    <p class="refusal" role="alert">
      <b>{oneLine(problem.message, 500)}</b> {problem.next && oneLine(problem.next, 500)} <code>{problem.code}</code>
    </p>
  );
}

export function asProblem(error: unknown): Problem {
  return error instanceof Problem ? error : new Problem(-1, { code: "page_fault", detail: String(error) });
}

/** A command line that does the same, to copy. */
export function Command({ text }: { text: string }): JSX.Element {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
    } catch {
      setCopied(false);
    }
  };
  return (
    <div class="command">
      <code tabIndex={0}>{text}</code>
      <button type="button" class="small" onClick={() => void copy()}>
        {copied ? "Copied" : "Copy"}
      </button>
    </div>
  );
}

/** A modal dialog; Escape and a click outside close it. */
export function Dialog({ title, onClose, children, wide }: { title: string; onClose: () => void; children: ComponentChildren; wide?: boolean }): JSX.Element {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    const dialog = ref.current;
    if (dialog && !dialog.open) dialog.showModal();
    return () => before?.focus?.();
  }, []);
  return (
    <dialog
      ref={ref}
      class={wide ? "wide" : ""}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => {
        if (event.target === ref.current) onClose();
      }}
    >
      <div class="dialog">
        <h2>{title}</h2>
        {children}
      </div>
    </dialog>
  );
}

/** What was done, said once in a corner and to screen readers. */
export const said = signal<string | null>(null);
let saying: ReturnType<typeof setTimeout> | undefined;
export function say(text: string): void {
  said.value = text;
  clearTimeout(saying);
  saying = setTimeout(() => {
    said.value = null;
  }, 6_000);
}
export function Said(): JSX.Element {
  return (
    <div class="said" role="status" aria-live="polite">
      {said.value !== null && <span>{said.value}</span>}
    </div>
  );
}

export function Tabs({ label, tabs, current, onPick }: { label: string; tabs: readonly [string, string][]; current: string; onPick: (key: string) => void }): JSX.Element {
  return (
    <div class="tabs" role="group" aria-label={label}>
      {tabs.map(([key, name]) => (
        <button type="button" key={key} aria-pressed={key === current} onClick={() => onPick(key)}>
          {name}
        </button>
      ))}
    </div>
  );
}

export function Empty({ children }: { children: ComponentChildren }): JSX.Element {
  return <p class="empty">{children}</p>;
}

/** Load something when `key` changes; what was loaded stays on screen until the next is there. */
export function useLoad<T>(key: string | null, load: (signal: AbortSignal) => Promise<T>): { value: T | null; problem: Problem | null; again: () => void; loading: boolean } {
  const [value, setValue] = useState<T | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [turn, setTurn] = useState(0);
  const [loading, setLoading] = useState(true);
  const shown = useRef<string | null>(null);
  useEffect(() => {
    if (key === null) return;
    if (shown.current !== key) setValue(null);
    shown.current = key;
    const abort = new AbortController();
    setLoading(true);
    load(abort.signal).then(
      (found) => {
        if (abort.signal.aborted) return;
        setValue(found);
        setProblem(null);
        setLoading(false);
      },
      (error: unknown) => {
        if (abort.signal.aborted) return;
        setProblem(asProblem(error));
        setLoading(false);
      },
    );
    return () => abort.abort();
  }, [key, turn]);
  return { value, problem, loading, again: () => setTurn((n) => n + 1) };
}

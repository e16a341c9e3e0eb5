/** Text of others, shown as text: bounded, isolated, with nothing invisible in it. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";

const LINE_MAX = 240;
const BLOCK_MAX = 4_000;
// Controls, and characters that change direction or have no width: shown as what they are.
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]|[\u{e0000}-\u{e007f}]/gu;

export function visible(text: string): string {
  return text.replace(INVISIBLE, (found) => `⟨${found.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

export function oneLine(text: string, most = LINE_MAX): string {
  const cut = text.length > most ? `${text.slice(0, most)}…` : text;
  return visible(cut.replace(/\s+/g, " "));
}

/** One line of somebody's words. */
export function Line({ text, most }: { text: string; most?: number }): JSX.Element {
  return <bdi>{oneLine(text, most)}</bdi>;
}

/** Several lines of somebody's words; the rest of a long text is shown when asked for. */
export function Block({ text }: { text: string }): JSX.Element {
  const [whole, setWhole] = useState(false);
  const long = text.length > BLOCK_MAX;
  return (
    <div class="block">
      <bdi>{visible(whole || !long ? text : text.slice(0, BLOCK_MAX))}</bdi>
      {long && !whole && (
        <button type="button" class="link" onClick={() => setWhole(true)}>
          … show all {size(text.length)}
        </button>
      )}
    </div>
  );
}

export function size(chars: number): string {
  if (chars < 1024) return `${chars} characters`;
  return chars < 1024 ** 2 ? `${Math.round(chars / 1024)} K characters` : `${(chars / 1024 ** 2).toFixed(1)} M characters`;
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

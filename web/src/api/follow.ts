/**
 * Follows the team's log from a cursor, as server-sent events over `fetch` (an `EventSource` cannot
 * carry a bearer). After any break it goes on from the last entry it has seen: nothing is missed and
 * nothing comes twice. Where the relay has another entry there, because an older copy of its database
 * was put back, it stops and says so.
 */
import { type Api, type Entry, Problem } from "./client.ts";

export type Line = "connecting" | "live" | "broken" | "paused";

const WAITS_MS = [250, 500, 1000, 2000, 4000];
/** The relay writes at least a comment every 15 s; a line that is silent for longer is dead. */
const SILENT_MS = 40_000;

/** The last entry that was read: its number, and its hash if that is known. */
export interface Cursor {
  seq: number;
  hash: string | null;
}

export class Follower {
  cursor: Cursor;
  private readonly api: Api;
  private readonly onEntries: (entries: Entry[]) => void;
  private readonly onLine: (line: Line) => void;
  private readonly onLost: () => void;
  private abort: AbortController | null = null;
  private failures = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private stopped = true;

  constructor(api: Api, cursor: Cursor, onEntries: (entries: Entry[]) => void, onLine: (line: Line) => void, onLost: () => void) {
    this.api = api;
    this.cursor = cursor;
    this.onEntries = onEntries;
    this.onLine = onLine;
    this.onLost = onLost;
  }

  start(): void {
    if (!this.stopped) return;
    this.stopped = false;
    this.failures = 0;
    void this.run();
  }

  /** Stop; `start` goes on from the cursor. */
  pause(line: Line = "paused"): void {
    this.stopped = true;
    clearTimeout(this.timer);
    this.abort?.abort();
    this.onLine(line);
  }

  private async run(): Promise<void> {
    if (this.stopped) return;
    const abort = (this.abort = new AbortController());
    if (this.failures === 0) this.onLine("connecting");
    try {
      await this.stream(abort);
    } catch (error) {
      if (abort.signal.aborted && this.stopped) return;
      if (error instanceof Problem && error.status === 401) return;
      if (error instanceof Problem && error.code === "cursor_unknown") {
        this.pause("broken");
        this.onLost();
        return;
      }
    }
    if (this.stopped) return;
    this.onLine("broken");
    const wait = WAITS_MS[Math.min(this.failures++, WAITS_MS.length - 1)];
    this.timer = setTimeout(() => void this.run(), wait);
  }

  private async stream(abort: AbortController): Promise<void> {
    const url = this.api.address("/log", {}, { after: this.cursor.seq, after_hash: this.cursor.hash });
    const headers = this.api.headers({ accept: "text/event-stream" });
    let silence = setTimeout(() => abort.abort(), SILENT_MS);
    try {
      const response = await fetch(url, { headers, signal: abort.signal, cache: "no-store" });
      if (!response.ok || response.body === null) await this.api.read(response);
      this.failures = 0;
      this.onLine("live");
      const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        clearTimeout(silence);
        if (done) return;
        silence = setTimeout(() => abort.abort(), SILENT_MS);
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop() ?? "";
        this.take(blocks);
      }
    } finally {
      clearTimeout(silence);
    }
  }

  private take(blocks: string[]): void {
    const entries: Entry[] = [];
    for (const block of blocks) {
      const at = block.indexOf("data: ");
      if (at < 0) continue;
      const entry = JSON.parse(block.slice(at + 6)) as Entry;
      if (entry.seq <= this.cursor.seq) continue;
      this.cursor = { seq: entry.seq, hash: entry.hash };
      entries.push(entry);
    }
    if (entries.length > 0) this.onEntries(entries);
  }
}

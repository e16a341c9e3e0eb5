import { afterEach, expect, test, vi } from "vitest";
import { Api, type Entry } from "../src/api/client.ts";
import { Follower, type Line } from "../src/api/follow.ts";

const block = (seq: number) => `id: ${seq}\ndata: ${JSON.stringify({ seq, hash: `h${seq}` })}\n\n`;

/** A relay whose streams end after the given chunks, or that has another log (none); it notes where each was asked to begin. */
function relay(...streams: string[][]): { asked: (string | null)[] } {
  const asked: (string | null)[] = [];
  vi.stubGlobal("fetch", async (url: URL, { signal }: { signal: AbortSignal }) => {
    asked.push(`${url.searchParams.get("after")} ${url.searchParams.get("after_hash")}`);
    const chunks = streams.shift();
    if (chunks?.length === 0) return Response.json({ code: "cursor_unknown", detail: "another entry is there" }, { status: 410 });
    if (chunks === undefined) return new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("aborted"))));
    const encoder = new TextEncoder();
    return new Response(
      new ReadableStream({
        start(controller) {
          for (const chunk of chunks) controller.enqueue(encoder.encode(chunk));
          controller.close();
        },
      }),
    );
  });
  return { asked };
}

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test("a broken line goes on after the last entry: nothing is missed, nothing comes twice", async () => {
  const { asked } = relay([block(11), block(12).slice(0, 9)], [block(11) + block(12), block(13)]);
  const seen: number[] = [];
  const lines: Line[] = [];
  const follower = new Follower(new Api(new URL("http://relay.test/"), "t"), { seq: 10, hash: "h10" }, (entries: Entry[]) => seen.push(...entries.map((e) => e.seq)), (line) => lines.push(line), () => {});
  follower.start();
  await vi.waitFor(() => expect(asked).toEqual(["10 h10", "11 h11", "13 h13"]), 3_000);
  follower.pause();
  expect(seen).toEqual([11, 12, 13]);
  expect(lines).toContain("broken");
  expect(lines.at(-1)).toBe("paused");
});

test("a paused one asks for nothing, and resumes where it was", async () => {
  const { asked } = relay([block(4)]);
  const follower = new Follower(new Api(new URL("http://relay.test/"), "t"), { seq: 3, hash: null }, () => {}, () => {}, () => {});
  follower.start();
  await vi.waitFor(() => expect(follower.cursor).toEqual({ seq: 4, hash: "h4" }));
  follower.pause();
  const before = asked.length;
  follower.start();
  await vi.waitFor(() => expect(asked.length).toBe(before + 1));
  expect(asked.at(-1)).toBe("4 h4");
  follower.pause();
});

test("a log that is another one by now is not asked for again and again: who follows is told once", async () => {
  const { asked } = relay([block(11)], []);
  let lost = 0;
  const lines: Line[] = [];
  const follower = new Follower(new Api(new URL("http://relay.test/"), "t"), { seq: 10, hash: "h10" }, () => {}, (line) => lines.push(line), () => lost++);
  vi.useFakeTimers();
  follower.start();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(asked).toEqual(["10 h10", "11 h11"]);
  expect(lost).toBe(1);
  expect(lines.at(-1)).toBe("broken");
});

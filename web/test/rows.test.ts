import { describe, expect, test } from "vitest";
import type { Entry } from "../src/api/client.ts";
import { fold, lateness, owed, parseDuration, type Row } from "../src/state/rows.ts";
import { entry, MINUTE, OFFERED, T0 } from "./entries.ts";

function follow(...entries: Entry[]): Row {
  let row: Row | undefined;
  for (const each of entries) row = fold(row, each);
  return row!;
}

describe("an offer", () => {
  test("is a row at once, with its words, its holder and its due time", () => {
    const row = follow(OFFERED);
    expect(row).toMatchObject({ ref: "inbox/k", title: "Login button", state: "offered", holder: "code", leg: 1, legs: 2, due: T0 + 15 * MINUTE });
    expect(owed(row)).toBe("owes acceptance");
  });

  test("that was read again from the log changes nothing", () => {
    const row = follow(OFFERED, entry("delivered", 2, { attempt: 1 }));
    expect(fold(row, OFFERED)).toBe(row);
    expect(fold(row, entry("delivered", 2, { attempt: 1 }))).toBe(row);
  });

  test("made before its agent registered has the capability that its first delivery bound", () => {
    expect(follow({ ...OFFERED, data: { ...(OFFERED.data as object), capability: undefined } } as Entry, entry("delivered", 2, { attempt: 1, capability: "triage", manifest_version: 1 })).capability).toBe("triage");
  });

  test("whose words are not for the reader has no title", () => {
    expect(fold(undefined, { ...OFFERED, body: null } as Entry)!.title).toBeNull();
  });
});

describe("the holder", () => {
  const accepted = [OFFERED, entry("delivered", 2, { attempt: 1 }), entry("accepted", 3, { attempt: 1, next_update_at: T0 + 30 * MINUTE })];

  test("is the recipient while it works, and owes an update by its promise", () => {
    expect(follow(...accepted)).toMatchObject({ state: "accepted", holder: "code", due: T0 + 30 * MINUTE, attempt: 1 });
  });

  test("is who was asked, until there is an answer", () => {
    const asked = [...accepted, entry("blocked", 4, { attempt: 1, kind: "question", asked: "me" }, { question: "Which version?" })];
    expect(follow(...asked)).toMatchObject({ state: "blocked", holder: "me", question: { text: "Which version?" } });
    expect(owed(follow(...asked))).toBe("owes an answer");
    expect(follow(...asked, entry("answered", 5, { question: 4, by: "me" }), entry("resumed", 6, { attempt: 1 }))).toMatchObject({ state: "accepted", holder: "code", question: null });
  });

  test("is the requester once there is an outcome, and nobody once it is settled", () => {
    const done = [...accepted, entry("completed", 4, { attempt: 1 })];
    expect(follow(...done)).toMatchObject({ state: "completed", holder: "inbox", dead: false });
    expect(follow(...done, entry("settled", 5))).toMatchObject({ holder: null, settled: true });
  });

  test("of a failure waits for a decision until it is redriven", () => {
    const lost = [...accepted, entry("failed", 4, { attempt: 1, code: "no_access" })];
    expect(follow(...lost)).toMatchObject({ dead: true, code: "no_access" });
    expect(follow(...lost, entry("redriven", 5, { successor: "h2" })).dead).toBe(false);
  });
});

describe("a queued acknowledgement", () => {
  const queued = [OFFERED, entry("queued", 2, { position: 2, next_update_at: T0 + 30 * MINUTE }, { status: "Added to queue" })];

  test("keeps it offered, and is due when the next word was promised", () => {
    const row = follow(...queued);
    expect(row).toMatchObject({ state: "offered", holder: "code", due: T0 + 30 * MINUTE, status: "Added to queue" });
    expect(owed(row)).toBe("has it queued 2");
    expect(owed({ ...row, queued: { position: 2, of: 5 } })).toBe("has it queued 2 of 5");
  });

  test("is over when it lapses, when it is delivered and when another is asked", () => {
    const lapsed = follow(...queued, entry("queue_lapsed", 3, { reason: "agent_silent" }, null, T0 + MINUTE));
    expect(lapsed).toMatchObject({ queued: null, promise: null, due: T0 + 16 * MINUTE });
    expect(owed(lapsed)).toBe("owes acceptance");
    expect(follow(...queued, entry("delivered", 3, { attempt: 1 })).queued).toBeNull();
    expect(follow(...queued, entry("reassigned", 3, { recipient: "other", reason: "reassigned" })).queued).toBeNull();
  });
});

describe("lateness", () => {
  test("begins when a clock runs out and says what is owed", () => {
    const row = follow(OFFERED);
    expect(lateness(row, T0 + 14 * MINUTE)).toBeNull();
    expect(lateness(row, T0 + 16 * MINUTE)).toEqual({ since: T0 + 15 * MINUTE, what: "owes acceptance" });
  });

  test("is not taken back by a reminder, which changes nothing about what is owed", () => {
    const nudged = follow(OFFERED, entry("nudged", 2, { clock: "accept", to: "code", again_at: T0 + 45 * MINUTE, length_ms: 30 * MINUTE }, null, T0 + 15 * MINUTE));
    expect(nudged.due).toBe(T0 + 15 * MINUTE);
    expect(lateness(nudged, T0 + 20 * MINUTE)).toEqual({ since: T0 + 15 * MINUTE, what: "owes acceptance" });
  });

  test("of work is a missed promise", () => {
    const row = follow(OFFERED, entry("accepted", 2, { attempt: 1, next_update_at: T0 + 30 * MINUTE }));
    expect(lateness(row, T0 + 31 * MINUTE)?.what).toBe("owes an update");
  });
});

test("durations are read as the relay writes them", () => {
  expect([parseDuration("15m"), parseDuration("1500ms"), parseDuration("90s"), parseDuration("2d")]).toEqual([900_000, 1_500, 90_000, 172_800_000]);
});

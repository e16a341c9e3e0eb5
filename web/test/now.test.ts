import { expect, test } from "vitest";
import { fold, type Row } from "../src/state/rows.ts";
import { arrange } from "../src/views/now.tsx";
import { OFFERED } from "./entries.ts";

const T0 = Date.parse("2026-01-01T09:00:00Z");
const base = fold(undefined, OFFERED)!;
const row = (id: string, changes: Partial<Row>): Row => ({ ...base, id, ...changes });

const ROWS = [
  row("next-later", { due: T0 + 900_000 }),
  row("next-sooner", { due: T0 + 500_000 }),
  row("mine", { state: "blocked", holder: "me", question: { kind: "question", text: "?", asked: "me", at: T0 }, due: T0 + 9_000_000 }),
  row("late", { due: T0 + 1_000 }),
  row("later-late", { due: T0 + 30_000 }),
  row("dead", { state: "failed", dead: true, settled: true, holder: null }),
  row("gone", { state: "completed", settled: true, holder: null }),
  row("ended", { state: "completed", holder: "inbox", due: T0 + 86_400_000 }),
];

const ids = (filters: string) => Object.fromEntries([...arrange(ROWS, T0 + 60_000, "me", new URLSearchParams(filters))].map(([key, list]) => [key, list.map((r) => r.id)]));

test("late and dead come first, then what waits for me, then by due time", () => {
  const found = ids("");
  expect(Object.keys(found)).toEqual(["late", "dead", "you", "next", "ended"]);
  expect(found).toEqual({ late: ["late", "later-late"], dead: ["dead"], you: ["mine"], next: ["next-sooner", "next-later"], ended: ["ended"] });
});

test("filters of the address narrow every section", () => {
  expect(ids("state=blocked").you).toEqual(["mine"]);
  expect(ids("state=blocked").next).toEqual([]);
  expect(ids("agent=me")).toMatchObject({ late: [], dead: [], you: ["mine"], next: [] });
  expect(ids("q=NOTHING+SUCH")).toMatchObject({ late: [], you: [], next: [] });
  expect(ids("q=login").next).toEqual(["next-sooner", "next-later"]);
});

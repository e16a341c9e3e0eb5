import { fireEvent, render, screen } from "@testing-library/preact";
import { expect, test } from "vitest";
import type { Handoff } from "../src/api/client.ts";
import { actionsFor, sh } from "../src/state/actions.ts";
import { absolute, duration, relative } from "../src/state/clock.ts";
import { parse } from "../src/state/route.ts";
import { course } from "../src/state/segments.ts";
import { Json, search } from "../src/ui/json.tsx";
import { Line, visible } from "../src/ui/text.tsx";
import { fold as foldSteps } from "../src/views/chain.tsx";
import { entry, OFFERED } from "./entries.ts";

test("what cannot be seen in a text is shown: directions, escapes, nothing-wide characters", () => {
  expect(visible("a\u202Eb")).toBe("a⟨202E⟩b");
  expect(visible("\u001b[31m\u200b")).toBe("⟨001B⟩[31m⟨200B⟩");
  expect(visible("tab\tand\nline")).toBe("tab\tand\nline");
});

test("markup in a text stays text", () => {
  const { container } = render(<Line text={'<img src=x onerror="alert(1)"><script>alert(2)</script>'} />);
  expect(container.querySelector("img, script")).toBeNull();
  expect(container.textContent).toContain("<script>");
});

test("only what is unfolded of a large value is in the document", () => {
  const { container } = render(<Json label="payload" value={{ many: Array.from({ length: 5_000 }, (_, i) => i), long: "x".repeat(1_048_576) }} />);
  expect(container.querySelectorAll("*").length).toBeLessThan(60);
  expect(container.textContent!.length).toBeLessThan(2_000);
  fireEvent.click(screen.getByRole("button", { name: /many/ }));
  expect(container.querySelectorAll(".node").length).toBeLessThan(120);
});

test("deep values can be searched without running out of stack", () => {
  let deep: unknown = "needle";
  for (let i = 0; i < 20_000; i++) deep = [deep];
  expect(search(deep, "needle")).toHaveLength(1);
});

test("durations and times read well", () => {
  expect([duration(0), duration(59_000), duration(605_000), duration(3_600_000), duration(93_784_000)]).toEqual(["0 s", "59 s", "10 min", "1 h", "1 d 2 h"]);
  expect(relative("2026-01-01T09:00:00Z", Date.parse("2026-01-01T08:30:00Z"))).toBe("in 30 min");
  expect(absolute("2026-01-01T09:00:05Z", true, 0)).toBe("2026-01-01 09:00:05Z");
});

test("an address is a view, a name and filters; what is malformed does no harm", () => {
  expect(parse("#/agents/a%2Fb?q=x")).toMatchObject({ view: "agents", name: "a/b" });
  expect(parse("#/agents/%E0%A4%A").name).toBe("%E0%A4%A");
  expect(parse("").view).toBe("now");
});

test("text of others cannot leave the quotes of a command line", () => {
  expect(sh("a'; rm -rf ~; '")).toBe("'a'\\''; rm -rf ~; '\\'''");
  expect(sh("inbox/msg_1")).toBe("inbox/msg_1");
  expect(sh("a'\u001b[2J\u202e")).toBe("$'a\\'\\U0000001b[2J\\U0000202e'");
});

test("actions are those that the viewer may take", () => {
  const h = { id: "h", ref: "inbox/k", from: "inbox", to: "code", state: "blocked", chain: { origin: "inbox" }, question: { seq: 4, kind: "question", asked: "me" }, decision: null, late_result: false, settled_at: null } as unknown as Handoff;
  const names = (role: "agent" | "operator" | "observer", agent: string, of = h) => actionsFor(of, { role, agent }).map((each) => each.name);
  expect(names("observer", "me")).toEqual([]);
  expect(names("agent", "me")).toEqual(["answer", "note"]);
  expect(names("agent", "inbox")).toEqual(["answer", "reassign", "cancel", "note"]);
  expect(names("agent", "code")).toEqual(["note"]);
  const dead = { ...h, state: "failed", question: null, late_result: true } as unknown as Handoff;
  expect(names("operator", "ops", dead)).toEqual(["accept", "redrive", "discard", "settle", "note"]);
  expect(names("operator", "ops", { ...dead, decision: "redriven", settled_at: "x" } as unknown as Handoff)).toEqual(["note"]);
});

test("lanes show waiting, working and being asked, and where it was lost", () => {
  const at = (minutes: number) => Date.parse("2026-01-01T09:00:00Z") + minutes * 60_000;
  const found = course([
    OFFERED,
    entry("delivered", 2, { attempt: 1 }, null, at(5)),
    entry("accepted", 3, { attempt: 1 }, null, at(6)),
    entry("blocked", 4, { attempt: 1, asked: "me" }, null, at(10)),
    entry("resumed", 5, { attempt: 1 }, null, at(20)),
    entry("failed", 6, { attempt: 1, code: "x" }, null, at(30)),
  ]);
  expect(found.segments.map((s) => [s.holder, s.kind, (s.from - at(0)) / 60_000, (s.to! - at(0)) / 60_000])).toEqual([
    ["code", "waiting", 0, 6],
    ["code", "working", 6, 10],
    ["me", "asking", 10, 20],
    ["code", "working", 20, 30],
  ]);
  expect(found.endings).toMatchObject([{ holder: "code", lost: true }]);
});

test("members of a large group are folded, those that went wrong stay", () => {
  const step = (id: string, kind: string, state: string) => ({ id, kind, state, under: kind === "member" ? "g" : null }) as never;
  const members = ["a", "b", "c", "d", "e"].map((id) => step(id, "member", id === "e" ? "failed" : "completed"));
  const folded = foldSteps([step("g", "group", "accepted"), ...members], new Set());
  expect(folded.steps.map((s) => s.id)).toEqual(["g", "a", "b", "e"]);
  expect(folded.hidden).toEqual(new Map([["g", 2]]));
  expect(foldSteps([step("g", "group", "accepted"), ...members], new Set(["g"])).hidden.size).toBe(0);
});

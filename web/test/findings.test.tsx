import { render } from "@testing-library/preact";
import { expect, test } from "vitest";
import { report } from "../src/views/debrief.tsx";
import { FindingList, RAISED } from "../src/views/findings.tsx";
import { entry } from "./entries.ts";

const TEXT = "a and b handed <b>it</b> round. To stop it: nodrop cancel 7";
const LOOP = { ...entry("", 7, { detector: "ping-pong", subject: "c", agents: ["a", "b"] }, { text: TEXT }), type: RAISED, handoff_id: null };

test("the debrief tells what the relay found", () => {
  expect(report([LOOP]).findings).toEqual([LOOP]);
});

test("a finding says what goes on and how to stop it, as text", () => {
  const { container } = render(<FindingList entries={[LOOP]} />);
  expect(container.textContent).toContain("ping-pong");
  expect(container.textContent).toContain(TEXT);
  expect(container.querySelectorAll("li")).toHaveLength(1);
});

test("a finding whose words are not shown still says what it is about", () => {
  const { container } = render(<FindingList entries={[{ ...LOOP, body: null }]} />);
  expect(container.textContent).toMatch(/ping-pong.*c/);
});

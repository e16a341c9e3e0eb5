import { fireEvent, render, screen } from "@testing-library/preact";
import { afterEach, expect, test, vi } from "vitest";
import { expand, read } from "../src/state/schema.ts";
import { session } from "../src/state/session.ts";
import { HandOffForm } from "../src/ui/form.tsx";

const SCHEMA = {
  type: "object",
  properties: { email_id: { type: "string", minLength: 3 }, users: { type: "integer", minimum: 1 }, steps: { type: "array", items: { type: "string" } }, severity: { enum: ["low", "high"] } },
  required: ["email_id", "severity"],
};

afterEach(() => vi.unstubAllGlobals());

test("short types of a manifest are a schema in which all is required", () => {
  expect(expand({ query: "string", depth: "int" })).toEqual({ type: "object", properties: { query: { type: "string" }, depth: { type: "integer" } }, required: ["query", "depth"] });
  expect(expand({ type: "object" })).toEqual({ type: "object" });
});

test("what is typed becomes the value that the schema asks for", () => {
  const problems = new Map<string, string>();
  const value = read(SCHEMA, { email_id: "msg_1", users: "41", steps: "open\n\ntap", severity: "high" }, true, "", problems);
  expect(value).toEqual({ email_id: "msg_1", users: 41, steps: ["open", "tap"], severity: "high" });
  expect(problems.size).toBe(0);
});

test("what is wrong is said by field", () => {
  const problems = new Map<string, string>();
  read(SCHEMA, { email_id: "x", users: "1.5", severity: "" }, true, "", problems);
  expect(Object.fromEntries(problems)).toEqual({ email_id: "At least 3 characters", users: "A whole number", severity: "Required" });
});

test("a form with wrong input sends nothing; a right one hands off, once", async () => {
  session.value = null;
  const sent: unknown[] = [];
  vi.stubGlobal("fetch", async (_: URL, options: { body: string }) => {
    sent.push(JSON.parse(options.body));
    return new Response(JSON.stringify({ handoff: { id: "h9" } }), { status: 201 });
  });
  render(<HandOffForm agent="code_agent" capability="bug_triage" schema={SCHEMA} />);
  fireEvent.input(screen.getByLabelText(/email_id/), { target: { value: "m" } });
  fireEvent.click(screen.getByRole("button", { name: "Hand off to code_agent" }));
  expect(await screen.findByText("At least 3 characters")).toBeTruthy();
  expect(sent).toEqual([]);
  fireEvent.input(screen.getByLabelText(/email_id/), { target: { value: "msg_1" } });
  fireEvent.change(screen.getByLabelText(/severity/), { target: { value: "high" } });
  fireEvent.click(screen.getByRole("button", { name: "Hand off to code_agent" }));
  await vi.waitFor(() => expect(sent).toEqual([{ to: "code_agent", capability: "bug_triage", priority: "medium", payload: { email_id: "msg_1", severity: "high" } }]));
});

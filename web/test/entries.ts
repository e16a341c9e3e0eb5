/** Log entries of one handoff, as a relay writes them. */
import type { Entry } from "../src/api/client.ts";

export const T0 = Date.parse("2026-01-01T09:00:00Z");
export const MINUTE = 60_000;

export function entry(verb: string, version: number, data: object = {}, body: object | null = null, atMs = T0): Entry {
  return { seq: version, at: new Date(atMs).toISOString(), type: `handoff.${verb}.v1`, handoff_id: "h1", version, correlation_id: "h1", actor: "code_agent", command_id: null, data, body, body_digest: null, prev_hash: "", hash: "" } as Entry;
}

export const OFFERED = entry(
  "offered",
  1,
  { sender: "inbox", origin: "inbox", recipient: "code", correlation_id: "h1", key: "k", terms: { priority: "medium", accept_within_ms: 15 * MINUTE, answer_within_ms: 240 * MINUTE, deadline_at: T0 + 240 * MINUTE }, legs: [{ to: "support" }] },
  { title: "Login button" },
);

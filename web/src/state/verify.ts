/** Checks the hash chain of log entries in the browser, as far as the browser lets it. */
import type { Entry } from "../api/client.ts";

export interface Checked {
  how: "Verified" | "Linked";
  from: number;
  to: number;
  /** The first entry that does not hold. */
  broken: number | null;
}

/** The canonical JSON of RFC 8785: JavaScript writes numbers and strings that way by itself. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value !== null && typeof value === "object") {
    const fields = Object.entries(value as Record<string, unknown>).sort(([a], [b]) => (a < b ? -1 : 1));
    return `{${fields.map(([key, inner]) => `${JSON.stringify(key)}:${canonical(inner)}`).join(",")}}`;
  }
  return JSON.stringify(value);
}

export async function hashOf(entry: Entry, team: string): Promise<string> {
  const { seq, at, type, actor, handoff_id, version, correlation_id, command_id, data, body_digest, prev_hash } = entry;
  const hashed = canonical({ team, seq, at: Date.parse(at), type, actor, handoff_id, version, correlation_id, command_id, data, body_digest, prev_hash });
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(hashed));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Without a secure context there is no SHA-256, and only the links are compared. */
export async function checkEntries(entries: readonly Entry[], team: string): Promise<Checked> {
  const subtle = globalThis.crypto?.subtle !== undefined;
  const result: Checked = { how: subtle ? "Verified" : "Linked", from: entries[0]?.seq ?? 0, to: entries.at(-1)?.seq ?? 0, broken: null };
  let before: Entry | null = null;
  for (const entry of entries) {
    const linked = before === null || (entry.seq === before.seq + 1 && entry.prev_hash === before.hash);
    if (!linked || (subtle && (await hashOf(entry, team)) !== entry.hash)) {
      result.broken = entry.seq;
      break;
    }
    before = entry;
  }
  return result;
}

import { expect, test } from "vitest";
import type { Entry } from "../src/api/client.ts";
import { checkEntries, hashOf } from "../src/state/verify.ts";

// Two entries as a relay wrote them: the hashes are its own.
const FIRST = {
  seq: 1,
  at: "2026-11-18T03:18:43.054Z",
  type: "agent.registered.v1",
  handoff_id: null,
  version: null,
  correlation_id: null,
  actor: "relay",
  command_id: null,
  data: { agent: "me", capabilities: [], version: 1 },
  body: null,
  body_digest: "da9aad08bd583febf99520989132a47a405b3406f4982dc5dcc7ed6b0478f800",
  prev_hash: "0000000000000000000000000000000000000000000000000000000000000000",
  hash: "52eeca38cf27ecc62fdb0a0a9bc2ae721773f9ab8ba967f513ad2007633d237c",
} as unknown as Entry;
const SECOND = {
  ...FIRST,
  seq: 2,
  at: "2026-11-18T03:18:43.065Z",
  type: "token.created.v1",
  data: { agent: "me", role: "operator", token_id: "01a1eca9-f279-71c6-82c2-fe603681fc34" },
  body_digest: null,
  prev_hash: FIRST.hash,
  hash: "759b9b1696e389dc0450d2ca26e04bec3871f93ed2981c4c4aeff628a7866917",
} as unknown as Entry;

test("the hash of an entry is the relay's", async () => {
  expect(await hashOf(FIRST, "default")).toBe(FIRST.hash);
});

test("entries that follow from one another hold; a changed one is named", async () => {
  expect(await checkEntries([FIRST, SECOND], "default")).toEqual({ how: "Verified", from: 1, to: 2, broken: null });
  const changed = { ...SECOND, actor: "mallory" } as Entry;
  expect((await checkEntries([FIRST, changed], "default")).broken).toBe(2);
});

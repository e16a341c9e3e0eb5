import { cleanup, fireEvent, render, screen } from "@testing-library/preact";
import { afterEach, expect, test, vi } from "vitest";
import type { Item } from "../src/api/client.ts";
import { Notice } from "../src/views/lists.tsx";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const HANDOFFS = [1, 2, 3, 4].map((n) => ({ id: `h${n}`, ref: `a/k${n}`, title: `Bug <b>${n}</b>` }));
const NOTICE = {
  about: "failed",
  agent: "code_agent",
  code: null,
  what: "4 handoffs failed with code_agent",
  reason: "no <i>access</i>",
  why: 'the team\'s step "dead"',
  since: "2026-01-01T00:00:01.000Z",
  commands: ["nodrop dlq list", "nodrop dismiss a/k1 --alike"],
  count: 4,
  handoffs: HANDOFFS,
};
const ITEM: Item = { kind: "notice", seq: 9, at: NOTICE.since, handoff_id: "h4", ref: "a/k4", from: "relay", state: "failed", summary: "4 handoffs failed", open: true, notice: NOTICE };

function answering(status: number): string[] {
  const asked: string[] = [];
  vi.stubGlobal("fetch", async (url: URL, options: { method: string }) => {
    asked.push(`${options.method} ${new URL(url).pathname}`);
    const body = status === 200 ? { handoff: {} } : { code: "not_found", detail: "gone", next_step: "Look again." };
    return new Response(JSON.stringify(body), { status, headers: { "content-type": "application/json" } });
  });
  return asked;
}

test("a notice says what happened, why, since when, to which handoffs, and the command", () => {
  const { container } = render(<Notice item={ITEM} notice={NOTICE} onDismissed={() => undefined} />);
  const said = container.textContent;
  for (const part of [NOTICE.what, NOTICE.reason, NOTICE.why, "Bug <b>1</b>", "Bug <b>3</b>", "and 1 more", "nodrop dlq list"]) expect(said).toContain(part);
  expect(said).not.toContain("Bug <b>4</b>");
  expect(container.querySelector("b")).toBeNull();
});

test("dismissing a gathered notice dismisses it for each of its handoffs", async () => {
  const asked = answering(200);
  const again = vi.fn();
  render(<Notice item={ITEM} notice={NOTICE} onDismissed={again} />);
  fireEvent.click(screen.getByRole("button", { name: `Dismiss: ${NOTICE.what}` }));
  await vi.waitFor(() => expect(again).toHaveBeenCalledOnce());
  expect(asked.map((one) => one.replace(/^(\w+) .*(\/handoffs\/)/, "$1 $2"))).toEqual(HANDOFFS.map(({ id }) => `POST /handoffs/${id}/dismiss`));
});

test("a dismissal that is refused says why", async () => {
  answering(404);
  const { container } = render(<Notice item={ITEM} notice={NOTICE} onDismissed={() => undefined} />);
  fireEvent.click(screen.getByRole("button", { name: `Dismiss: ${NOTICE.what}` }));
  await vi.waitFor(() => expect(container.textContent).toContain("gone"));
});

test("a notice that no longer waits has nothing to dismiss", () => {
  render(<Notice item={{ ...ITEM, open: false }} notice={NOTICE} onDismissed={() => undefined} />);
  expect(screen.queryByRole("button", { name: /Dismiss/ })).toBeNull();
});

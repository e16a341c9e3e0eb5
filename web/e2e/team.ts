/** A team at work: something of every kind, for pictures and for looking around. */
import type { Json, Relay } from "./stage.ts";

const TRIAGE = {
  type: "object",
  properties: {
    email_id: { type: "string", description: "The message that reported it", minLength: 3 },
    reproduction_steps: { type: "array", items: { type: "string" } },
    severity: { enum: ["low", "medium", "high"] },
    affected_users: { type: "integer", minimum: 1 },
  },
  required: ["email_id", "severity"],
};

export interface Told {
  blocked: Json;
  working: Json;
  retried: Json;
  dead: Json;
  broken: string;
  group: string;
}

export async function populate(relay: Relay): Promise<Told> {
  const [inbox, code, support, writer, research] = await Promise.all(["inbox_monitor", "code_agent", "support_agent", "writer", "research_agent"].map((name) => relay.actor(name)));
  const me = relay.operator;
  await code!.call("PUT", "agents/code_agent", {
    agent_id: "code_agent",
    description: "Investigates bugs and says when they will be fixed",
    capabilities: [
      { name: "bug_triage", description: "Reproduce a report, find the cause, give a timeline", input_schema: TRIAGE, timeout_seconds: 10_800, reliability_sla: 0.95 },
      { name: "review", input_schema: { pull_request: "string" }, timeout_seconds: 3_600, reliability_sla: 0.9 },
    ],
  });
  await writer!.call("PUT", "agents/writer", { agent_id: "writer", description: "Writes what people read", capabilities: [{ name: "release_notes", input_schema: { type: "object", properties: { version: { type: "string" } } } }] });
  await support!.call("PUT", "agents/support_agent", { agent_id: "support_agent", description: "Talks to customers", capabilities: [] });
  await research!.call("PUT", "agents/research_agent", { agent_id: "research_agent", description: "Looks things up", capabilities: [{ name: "lookup", input_schema: { type: "object", properties: { query: { type: "string" } } } }] });

  // A chain that went well.
  const done = await inbox!.offer({ to: "code_agent", title: "Checkout total is rounded twice", capability: "bug_triage", payload: { email_id: "msg_098", severity: "high" }, idempotency_key: "bug_098", then: [{ to: "support_agent", title: "Tell the customer" }] });
  await code!.accept({ status: "reproducing", eta: "2h" });
  await code!.call("PUT", `handoffs/${done.id}/steps/open-ticket`, { value: { ticket: "NOD-1180" }, attempt: 1 });
  await code!.tell("update", done, { attempt: 1, status: "found it: the tax is added to a rounded total" });
  await code!.tell("complete", done, { attempt: 1, result: { ticket: "NOD-1180", timeline: "fixed by tomorrow" } });
  const told = await support!.accept({ status: "writing to the customer" });
  await support!.tell("complete", told, { attempt: 1, result: { sent: true } });
  await inbox!.tell("settle", told);
  for (let i = 0; i < 14; i++) {
    const each = await inbox!.offer({ to: "code_agent", capability: "review", title: `Review pull request ${440 + i}`, payload: { pull_request: `#${440 + i}` } });
    const taken = await code!.accept();
    await code!.tell("complete", taken, { attempt: 1, result: { approved: i % 4 !== 0 } });
    await inbox!.tell("settle", each);
  }

  // A chain that broke in the middle.
  const first = await inbox!.offer({ to: "research_agent", title: "Who reported the outage first?", payload: { query: "outage 2026-11-17" }, idempotency_key: "outage", then: [{ to: "writer", title: "Draft the post-mortem" }, { to: "support_agent", title: "Publish it" }] });
  await research!.accept({ status: "reading the channel" });
  await research!.tell("complete", first, { attempt: 1, result: { reporter: "ana", at: "09:14" } });
  const draft = await writer!.accept({ status: "drafting" });
  await writer!.tell("fail", draft, { attempt: 1, code: "no_access", reason: "The incident document is not shared with me: 403 from the wiki." });

  // A fan-out.
  const group = (
    await me.call("POST", "groups", {
      title: "Translate the release notes",
      offers: Object.fromEntries(["de", "fr", "ja", "es", "pt", "it"].map((lang) => [lang, { to: "research_agent", title: `Release notes in ${lang}`, payload: { lang } }])),
    })
  ).group;
  const translated = await research!.accept({ status: "translating" });
  await research!.tell("complete", translated, { attempt: 1, result: { ok: true } });

  // One that was given back and is tried again.
  const retried = await inbox!.offer({ to: "code_agent", title: "Flaky test in the payments suite", capability: "bug_triage", payload: { email_id: "ci_771", severity: "medium" }, idempotency_key: "ci_771", priority: "high" });
  await code!.accept({ status: "looking at the runs" });
  await code!.tell("release", retried, { attempt: 1, reason: "the runner is down" });
  await code!.accept({ status: "running it two hundred times", eta: "40m", next_update: "10m" });

  // One that waits for a person.
  const blocked = await me.offer({ to: "code_agent", title: "Login button not working on mobile", capability: "bug_triage", payload: { email_id: "msg_123", severity: "high", reproduction_steps: ["open the app on a phone", "tap Log in", "nothing happens"], affected_users: 41 }, deadline: "4h", idempotency_key: "msg_123", priority: "high", then: [{ to: "inbox_monitor", title: "Customer-ready response" }, { to: "support_agent", title: "Final review" }] });
  await code!.accept({ status: "reproducing", eta: "2h" });
  await code!.tell("block", blocked, { attempt: 1, question: "Which app version? 4.2 and 4.3 fail differently." });
  await me.call("POST", `handoffs/${blocked.id}/notes`, { text: "Jane called again at nine; she is on a Pixel 8." });

  // One that is late, some that wait, a few dead.
  await inbox!.offer({ to: "support_agent", title: "Refund for order 20311", accept_within: "1s", priority: "urgent", idempotency_key: "refund_20311" });
  await inbox!.offer({ to: "support_agent", title: "Answer the press request", deadline: "90m", accept_within: "40m", idempotency_key: "press_7" });
  const working = await me.offer({ to: "writer", title: "Release notes 0.2", capability: "release_notes", payload: { version: "0.2" }, idempotency_key: "notes_02" });
  await writer!.accept({ status: "collecting what changed", next_update: "23m" });
  await me.offer({ to: "writer", title: "Shorten the landing page", payload: {}, deadline: "2d", idempotency_key: "landing" });
  for (const [title, reason] of [
    ["Export the audit log for March", "The bucket has been deleted."],
    ["Renew the certificate of the old host", "That host is gone since May."],
  ]) {
    const lost = await inbox!.offer({ to: "research_agent", title, payload: {} });
    const { deliveries } = await research!.call("POST", "inbox/take", { max: 20 });
    const mine = deliveries.find((each: Json) => each.handoff.id === lost.id);
    if (mine) {
      await research!.tell("ack", lost, { attempt: mine.attempt });
      await research!.tell("fail", lost, { attempt: mine.attempt, code: "not_possible", reason });
    }
    for (const each of deliveries) if (each.handoff.id !== lost.id) await research!.tell("release", each.handoff, { attempt: each.attempt });
  }
  await inbox!.offer({ to: "code_agent", capability: "review", payload: { pull_request: "#454" }, title: "Update the changelog", idempotency_key: "changelog" });
  const dead = (await me.get("dead-letters")).handoffs.find((h: Json) => h.id === draft.id);
  return { blocked, working, retried, dead, broken: first.correlation_id, group: group.handoff.correlation_id };
}

/** What people do with the dashboard, each with a relay, agents and a browser of its own. */
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync } from "node:fs";
import { createServer, request as httpRequest, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { type Actor, DESKTOP, goTo, type Json, launch, live, NODROP, Relay, row, signIn, visit, type Viewer } from "./stage.ts";

let browser: Browser;
let relay: Relay;
let me: Actor;
const viewers: Viewer[] = [];

beforeAll(async () => {
  browser = await launch();
});
afterAll(() => browser.close());
beforeEach(async () => {
  relay = await Relay.start();
  me = relay.operator;
});
afterEach(async () => {
  const complaints = viewers.flatMap((viewer) => viewer.complaints);
  await Promise.all(viewers.splice(0).map((viewer) => viewer.context.close()));
  await relay.stop();
  expect(complaints).toEqual([]);
});

async function look(who: Actor = me, at = ""): Promise<Page> {
  const viewer = await signIn(browser, relay, who, DESKTOP, at);
  viewers.push(viewer);
  await live(viewer.page);
  return viewer.page;
}

const panel = (page: Page) => page.getByRole("article", { name: "Handoff" });

test("the demo runs live, through a killed worker and a killed relay", async () => {
  const folder = mkdtempSync(join(tmpdir(), "nodrop-watched-"));
  const demo = spawn(NODROP, ["demo", "--open", "--json"], { env: { ...process.env, TMPDIR: folder, BROWSER: "true" }, stdio: ["ignore", "pipe", "ignore"] });
  const figures = new Promise<Json>((resolve) => {
    let said = "";
    demo.stdout.on("data", (chunk) => {
      said += chunk;
      if (said.endsWith("}\n")) resolve(JSON.parse(said));
    });
  });
  const ended = new Promise<number | null>((resolve) => demo.on("exit", resolve));
  const credentials = await until(() => {
    for (const name of readdirSync(folder)) {
      const file = join(folder, name, "credentials");
      if (existsSync(file)) {
        const found = JSON.parse(readFileSync(file, "utf8"));
        if (found.url && found.operator) return found;
      }
    }
    return null;
  });
  const viewer = await visit(browser, `${credentials.url}/`);
  viewers.push(viewer);
  const { page } = viewer;
  await page.getByLabel("Token").fill(credentials.operator);
  await page.getByRole("button", { name: "Sign in" }).click();
  // The relay is away for about a second: watch for it from the start, whatever else is seen first.
  const broken = page.locator(".line.broken").waitFor({ timeout: 80_000 });
  await row(page, "code_agent").filter({ hasText: "bug_123" }).first().click();
  // Its worker is killed, and then the relay: it is delivered again and finishes, before the viewer's eyes.
  await panel(page).getByText("· attempt 2").first().waitFor({ timeout: 40_000 });
  await broken;
  await panel(page).locator(".ladder li.done", { hasText: "completed" }).waitFor({ timeout: 40_000 });
  expect(await figures).toMatchObject({ ok: true, dropped: 0, duplicated: 0, tickets: 1 });
  demo.kill("SIGINT");
  expect(await ended).toBe(0);
});

test("a blocked handoff is answered, and the work goes on", async () => {
  const code = await relay.actor("code_agent");
  const handoff = await me.offer({ to: "code_agent", title: "Login button", idempotency_key: "msg_1" });
  await code.accept();
  await code.tell("block", handoff, { attempt: 1, question: "Which app version?" });
  const page = await look();
  await page.getByRole("heading", { name: /^You/ }).waitFor();
  await row(page, "Which app version?").click();
  await panel(page).getByRole("button", { name: "Answer" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("textbox", { name: "Answer" }).fill("4.2, on Android");
  expect(await dialog.locator(".command code").textContent()).toBe("nodrop answer me/msg_1 '4.2, on Android'");
  await dialog.getByRole("button", { name: "Answer" }).click();
  await panel(page).getByText("code_agent owes an update").waitFor();
  const { entries } = await me.get(`log?handoff_id=${handoff.id}&type=handoff.answered.v1`);
  expect(entries.map((entry: Json) => [entry.actor, entry.body.answer])).toEqual([["me", "4.2, on Android"]]);
});

test("a dead letter is redriven and finishes", async () => {
  const code = await relay.actor("code_agent");
  const handoff = await me.offer({ to: "code_agent", title: "Export the audit log" });
  await code.accept();
  await code.tell("fail", handoff, { attempt: 1, code: "no_access", reason: "403" });
  const page = await look(me, "#/dead");
  await page.getByRole("checkbox", { name: "Select Export the audit log" }).check();
  await page.getByRole("button", { name: "Redrive 1" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Redrive" }).click();
  await page.getByText("No dead letters").waitFor();
  const successor = await code.accept();
  await code.tell("complete", successor, { attempt: successor.attempt, result: { file: "audit.csv" } });
  await goTo(page, `#/handoffs/${successor.id}`);
  await panel(page).getByText("audit.csv").waitFor();
  expect((await me.get(`handoffs/${handoff.id}`)).handoff).toMatchObject({ decision: "redriven", successor: successor.id });
});

test("everything that matches is redriven or discarded, with its count", async () => {
  const code = await relay.actor("code_agent");
  for (let i = 0; i < 5; i++) {
    const each = await me.offer({ to: "code_agent", title: i < 3 ? `Old export ${i}` : `New export ${i}` });
    await code.accept();
    await code.tell("fail", each, { attempt: 1 });
  }
  const page = await look(me, "#/dead");
  await page.getByRole("searchbox", { name: "Filter dead letters" }).fill("old");
  await page.getByRole("checkbox", { name: "all 3 that match" }).check();
  await page.getByRole("button", { name: "Discard 3" }).click();
  await page.getByText("Everything that matches: 3 handoffs").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Discard 3 handoffs" }).click();
  await page.getByText("Nothing matches").waitFor();
  expect((await me.get("dead-letters")).handoffs.map((h: Json) => h.title).sort()).toEqual(["New export 3", "New export 4"]);
});

test("a chain is followed to its broken leg", async () => {
  const [research, writer] = [await relay.actor("research_agent"), await relay.actor("writer")];
  const first = await me.offer({ to: "research_agent", title: "Who reported it?", then: [{ to: "writer", title: "Draft it" }, { to: "me", title: "Publish it" }] });
  await research.accept();
  await research.tell("complete", first, { attempt: 1, result: { reporter: "ana" } });
  const draft = await writer.accept();
  await writer.tell("fail", draft, { attempt: 1, code: "no_access", reason: "403 from the wiki" });
  const page = await look();
  await row(page, "Draft it").click();
  await panel(page).getByRole("link", { name: "leg 2 of 3" }).click();
  const broken = page.getByRole("region", { name: "Broken leg" });
  await broken.getByText("Broken at leg 2 of 3: writer").waitFor();
  await broken.getByText("403 from the wiki").waitFor();
  await page.locator(".seg.broken").waitFor();
  await page.locator(".ending.bad", { hasText: "no_access" }).waitFor();
  await page.getByRole("button", { name: "Graph" }).click();
  await page.getByRole("link", { name: /Draft it.*broken/ }).press("Enter");
  await panel(page).getByRole("heading", { name: "Draft it" }).waitFor();
});

test("an observer sees where everything stands, no words, and cannot act", async () => {
  const code = await relay.actor("code_agent");
  const handoff = await me.offer({ to: "code_agent", title: "Secret plan", payload: { launch: "Tuesday" } });
  await code.accept();
  await code.tell("block", handoff, { attempt: 1, question: "Who knows?" });
  const page = await look(await relay.actor("watcher", "observer"));
  await page.locator("a.row").first().click();
  await panel(page).getByText("read-only").waitFor();
  expect(await panel(page).getByRole("button", { name: /Answer|Cancel|Reassign|Note$/ }).count()).toBe(0);
  expect(await page.getByRole("link", { name: "Inbox" }).count()).toBe(0);
  const text = await page.locator("body").textContent();
  for (const word of ["Secret plan", "Tuesday", "Who knows"]) expect(text).not.toContain(word);
});

test("the relay restarts, and nothing is missed or shown twice", async () => {
  const inbox = await relay.actor("inbox_monitor");
  for (let i = 0; i < 3; i++) await inbox.offer({ to: "code_agent", title: `Before ${i}` });
  const page = await look(me, "#/log?type=offered");
  await page.locator(".entry", { hasText: "Before 2" }).waitFor();
  await relay.restart(async () => {
    await page.locator(".line.broken").waitFor();
  });
  for (let i = 0; i < 3; i++) await inbox.offer({ to: "code_agent", title: `After ${i}` });
  await page.locator(".entry", { hasText: "After 2" }).waitFor();
  await live(page);
  const titles = (await page.locator(".entry .gist").allTextContents()).map((text) => text.trim());
  expect(titles).toEqual(["After 2", "After 1", "After 0", "Before 2", "Before 1", "Before 0"]);
  await goTo(page, "#/now");
  await row(page, "After 2").waitFor();
  expect(await page.locator("a.row").count()).toBe(6);
});

test("a form from a schema refuses wrong input and hands off", async () => {
  const code = await relay.actor("code_agent");
  await code.call("PUT", "agents/code_agent", {
    agent_id: "code_agent",
    capabilities: [{ name: "bug_triage", input_schema: { type: "object", properties: { email_id: { type: "string", minLength: 3 }, users: { type: "integer" } }, required: ["email_id"] } }],
  });
  const page = await look(me, "#/agents");
  await page.getByRole("link", { name: "code_agent" }).click();
  await page.getByRole("button", { name: "Hand off…" }).click();
  const form = page.getByRole("form", { name: "Hand off bug_triage" });
  await form.getByLabel("Title").fill("From the form");
  await form.getByLabel(/users/).fill("many");
  await form.getByRole("button", { name: "Hand off to code_agent" }).click();
  await form.getByText("Required").waitFor();
  await form.getByText("A number").waitFor();
  expect((await me.get("handoffs")).handoffs).toEqual([]);
  await form.getByLabel(/email_id/).fill("msg_9");
  await form.getByLabel(/users/).fill("12");
  await form.getByRole("button", { name: "Hand off to code_agent" }).click();
  await panel(page).getByRole("heading", { name: "From the form" }).waitFor();
  const [handed] = (await me.get("handoffs")).handoffs;
  expect(handed).toMatchObject({ to: "code_agent", capability: "bug_triage", payload: { email_id: "msg_9", users: 12 } });
});

test("a one-time link signs in once, and leaves the address at once", async () => {
  const { path } = await me.call("POST", "links", { kind: "sign_in" });
  const viewer = await visit(browser, `${relay.url}${path}`);
  viewers.push(viewer);
  await viewer.page.getByRole("navigation", { name: "Views" }).waitFor();
  expect(viewer.page.url()).toBe(`${relay.url}/#/now`);
  expect(await viewer.page.evaluate(() => document.cookie + JSON.stringify(localStorage))).not.toContain("nd_");
  await viewer.page.reload();
  await live(viewer.page);
  const again = await visit(browser, `${relay.url}${path}`);
  viewers.push(again);
  await again.page.getByRole("alert").waitFor();
  await again.page.getByLabel("Token").waitFor();
});

test("the read-only link hides payloads and expires", async () => {
  await me.offer({ to: "code_agent", title: "Secret plan", payload: { launch: "Tuesday" } });
  const { path } = await me.call("POST", "links", { kind: "view", expires_in: "10s", payloads: false });
  const viewer = await visit(browser, `${relay.url}${path}`);
  viewers.push(viewer);
  const { page } = viewer;
  await page.locator("a.row").first().waitFor();
  expect(await page.locator("body").textContent()).not.toContain("Secret plan");
  expect(await page.locator(".readonly-mark").textContent()).toContain("read-only");
  // It is over by itself: whatever is asked next is refused, and the page says so.
  await page.getByRole("alert").filter({ hasText: "ended" }).waitFor({ timeout: 30_000 });
  await page.getByLabel("Token").waitFor();
});

test("new rows wait behind a pill while somebody reads, and a hidden page catches up", async () => {
  for (let i = 0; i < 40; i++) await me.offer({ to: "code_agent", title: `Work ${i}` });
  const page = await look();
  await row(page, "Work 39").or(row(page, "Work 0")).first().waitFor();
  await page.locator(".list").evaluate((list) => list.scrollTo({ top: 400 }));
  await row(page, "Work 24").waitFor();
  const before = await page.locator("a.row").allTextContents();
  for (let i = 0; i < 12; i++) await me.offer({ to: "code_agent", title: `Fresh ${i}`, accept_within: "5m" });
  await page.getByRole("button", { name: "12 new" }).waitFor();
  expect((await page.locator("a.row").allTextContents()).map(title)).toEqual(before.map(title));
  await page.getByRole("button", { name: "12 new" }).click();
  await row(page, "Fresh 0").waitFor();
  await page.mouse.move(5, 5);

  // A hidden page asks for nothing; when it is looked at again it goes on from its cursor.
  await page.evaluate(() => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => true });
    document.dispatchEvent(new Event("visibilitychange"));
  });
  await page.locator(".line.paused").waitFor();
  await me.offer({ to: "code_agent", title: "While hidden", accept_within: "1m" });
  await page.evaluate(() => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => false });
    document.dispatchEvent(new Event("visibilitychange"));
  });
  await row(page, "While hidden").waitFor();
});

test("the page works below a path, behind a proxy", async () => {
  await me.offer({ to: "code_agent", title: "Behind a proxy" });
  const upstream = new URL(relay.url);
  const proxy: Server = createServer((incoming, outgoing) => {
    const path = (incoming.url ?? "").replace(/^\/tools\/nodrop/, "");
    const onwards = httpRequest({ host: upstream.hostname, port: upstream.port, path, method: incoming.method, headers: incoming.headers }, (answer) => {
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(outgoing);
    });
    onwards.on("error", () => outgoing.destroy());
    outgoing.on("close", () => onwards.destroy());
    incoming.pipe(onwards);
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  try {
    const { port } = proxy.address() as { port: number };
    const viewer = await signIn(browser, relay, me, DESKTOP, "", `http://127.0.0.1:${port}/tools/nodrop/`);
    await live(viewer.page);
    await row(viewer.page, "Behind a proxy").click();
    await panel(viewer.page).getByRole("heading", { name: "Behind a proxy" }).waitFor();
    expect(viewer.complaints).toEqual([]);
    await viewer.context.close();
  } finally {
    proxy.closeAllConnections();
    proxy.close();
  }
});

test("without the dashboard there is nothing at /", async () => {
  const bare = await Relay.start("--no-dashboard");
  try {
    expect((await fetch(`${bare.url}/`)).status).toBe(404);
    expect((await fetch(`${bare.url}/healthz`)).status).toBe(200);
  } finally {
    await bare.stop();
  }
});

test("all can be done from the keyboard: find, open, answer, keys, views", async () => {
  const code = await relay.actor("code_agent");
  const handoff = await me.offer({ to: "code_agent", title: "Keyboard work" });
  await code.accept();
  await code.tell("block", handoff, { attempt: 1, question: "Which one?" });
  const page = await look();
  await row(page, "Which one?").waitFor();
  await page.keyboard.press("j");
  await page.locator("a.row:focus").waitFor();
  await page.keyboard.press("Enter");
  await panel(page).getByRole("heading", { name: "Keyboard work" }).waitFor();
  const answer = panel(page).getByRole("button", { name: "Answer" });
  for (let i = 0; i < 10 && !(await answer.evaluate((button) => button === document.activeElement)); i++) await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.type("that one");
  for (let i = 0; i < 10 && !(await page.evaluate(() => (document.activeElement as HTMLButtonElement | null)?.type === "submit")); i++) await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await panel(page).getByText("code_agent owes an update").waitFor();
  await page.keyboard.press("Escape");
  await page.locator("aside.panel").waitFor({ state: "detached" });
  await page.keyboard.press("Control+k");
  await page.keyboard.type("keyboard work");
  await page.keyboard.press("Enter");
  await panel(page).getByRole("heading", { name: "Keyboard work" }).waitFor();
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keys" }).waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("g");
  await page.keyboard.press("a");
  await page.getByRole("heading", { name: "Agents" }).waitFor();
});

/** The title in the text of a row: countdowns beside it change. */
function title(text: string): string {
  return /(Work|Fresh) \d+/.exec(text)?.[0] ?? text;
}

async function until<T>(look: () => T | null): Promise<T> {
  const end = Date.now() + 30_000;
  for (;;) {
    const found = look();
    if (found !== null) return found;
    if (Date.now() > end) throw new Error("it did not come about within 30 s");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

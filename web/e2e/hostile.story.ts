/** Hostile text in every field renders harmlessly; axe finds nothing serious; nothing is wider than a phone. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { DESKTOP, goTo, type Json, launch, live, PHONE, Relay, signIn } from "./stage.ts";
import { populate, type Told } from "./team.ts";

const AXE = readFileSync(join(import.meta.dirname, "../node_modules/axe-core/axe.min.js"), "utf8");
const MARKUP = `"><script>window.hurt=1</script><img src=x onerror="window.hurt=2"><svg onload="window.hurt=3"><a href="javascript:window.hurt=4">x</a>`;
const SNEAKY = `${MARKUP} \u202Egnp.exe\u202C \u2066\u200B\u001b[31mred\u001b[0m \u0000 \u{E0041} {{7*7}} \${7*7} %s`;
/** As long as a body may be, less what else is in it. */
const LONG = "L".repeat(1_000_000);

let browser: Browser;
let relay: Relay;

beforeAll(async () => {
  browser = await launch();
  relay = await Relay.start();
}, 60_000);
afterAll(async () => {
  await browser.close();
  await relay.stop();
});

function deep(levels: number): Json {
  let value: Json = SNEAKY;
  for (let i = 0; i < levels; i++) value = i % 2 ? [value] : { [`k${i}${MARKUP}`]: value };
  return value;
}

test("hostile text in every field is shown as text", async () => {
  const me = relay.operator;
  const code = await relay.actor("code_agent");
  const clean = SNEAKY.replaceAll("\u0000", "");
  await code.call("PUT", "agents/code_agent", { agent_id: "code_agent", description: clean, tags: [clean.slice(0, 60)], capabilities: [{ name: "work", description: clean, input_schema: { type: "object", title: clean, properties: { [MARKUP]: { type: "string", title: clean, description: clean, enum: [clean, "ok"] } } } }] });
  const offer = { to: "code_agent", capability: "work", title: clean, trigger: clean, expected_outcome: clean, idempotency_key: `key ${MARKUP}`.slice(0, 100), payload: { [MARKUP]: clean, nested: deep(28), long: LONG }, metadata: { [MARKUP]: clean }, parameters: { p: clean }, observations: [clean] };
  const asked = await me.offer({ ...offer, payload: { [MARKUP]: "ok", nested: deep(28), long: LONG } });
  await code.accept({ status: clean });
  await code.call("PUT", `handoffs/${asked.id}/steps/${encodeURIComponent("step <b>")}`, { value: { v: clean }, attempt: 1 });
  await code.tell("block", asked, { attempt: 1, question: clean });
  await me.call("POST", `handoffs/${asked.id}/notes`, { text: clean });
  const lost = await me.offer({ ...offer, payload: { [MARKUP]: "ok" }, idempotency_key: "lost", then: [{ to: "code_agent", title: clean }] });
  await code.accept();
  await code.tell("fail", lost, { attempt: 1, code: "failed", reason: clean });
  await me.call("POST", "notes", { text: clean });
  await me.call("POST", "messages", { to: "me", text: clean }).catch(() => null);

  const viewer = await signIn(browser, relay, me);
  const { page } = viewer;
  await live(page);
  for (const at of [
    "#/now",
    `#/now?open=${asked.id}`,
    `#/now?open=${asked.id}&zoom=timeline`,
    `#/now?open=${asked.id}&zoom=log`,
    `#/dead?open=${lost.id}`,
    `#/chains/${lost.correlation_id}`,
    `#/chains/${lost.correlation_id}?as=graph`,
    "#/chains",
    "#/agents",
    "#/agents/code_agent?form=work",
    "#/handoffs",
    "#/inbox",
    "#/log",
    "#/debrief",
    "#/team",
    `#/now?q=${encodeURIComponent(MARKUP)}&agent=${encodeURIComponent(MARKUP)}`,
    `#/agents/${encodeURIComponent(MARKUP)}`,
    `#/${MARKUP}`,
  ]) {
    await goTo(page, at);
    await page.locator("main h1, main h2").first().waitFor({ state: "attached" });
    // Everything that can be unfolded is unfolded.
    await page.evaluate(async () => {
      for (let round = 0; round < 4; round++) {
        for (const button of document.querySelectorAll<HTMLButtonElement>('button[aria-expanded="false"]')) if (!button.textContent?.includes("Hand off")) button.click();
        await new Promise((resolve) => requestAnimationFrame(() => resolve(null)));
      }
    });
    await expectHarmless(page, at);
  }
  expect(viewer.complaints).toEqual([]);
  await viewer.context.close();
});

async function expectHarmless(page: Page, at: string): Promise<void> {
  const found = await page.evaluate(() => ({
    hurt: (window as { hurt?: number }).hurt ?? null,
    scripts: [...document.querySelectorAll("script")].filter((each) => !each.src).length,
    images: document.querySelectorAll("img, iframe, object, embed").length,
    handlers: [...document.querySelectorAll("*")].filter((each) => [...each.attributes].some((attribute) => /^on/.test(attribute.name))).length,
    links: [...document.querySelectorAll("a")].filter((each) => each.protocol === "javascript:").length,
    invisible: /[\u202a-\u202e\u2066-\u2069\u200b\u001b]/.test(document.body.textContent ?? ""),
  }));
  expect({ at, ...found }).toEqual({ at, hurt: null, scripts: 0, images: 0, handlers: 0, links: 0, invisible: false });
}

test.each([
  ["on a desktop", DESKTOP],
  ["in the dark", { ...DESKTOP, colorScheme: "dark" }],
  ["on a phone", PHONE],
] as [string, BrowserContextOptions][])("axe finds no serious fault %s, and nothing is too wide", async (_, options) => {
  const own = await Relay.start();
  try {
    const told: Told = await populate(own);
    const viewer = await signIn(browser, own, own.operator, options);
    const { page } = viewer;
    await live(page);
    const faults: Json[] = [];
    for (const at of ["#/now", `#/now?open=${told.blocked.id}`, `#/now?open=${told.retried.id}&zoom=timeline`, `#/chains/${told.broken}`, `#/chains/${told.group}?as=graph`, "#/agents", "#/agents/code_agent?form=bug_triage", "#/inbox", "#/dead", "#/log", "#/debrief", "#/team", "#/handoffs"]) {
      await goTo(page, at);
      await page.locator("main h1, main h2, article h2").first().waitFor({ state: "attached" });
      await page.waitForFunction(() => document.querySelector('[aria-busy="true"]') === null);
      const { violations, wide } = await page.evaluate(async (axe) => {
        if (!("axe" in window)) (0, eval)(axe);
        const result = await (window as Json).axe.run(document, { resultTypes: ["violations"], runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] });
        return {
          violations: result.violations.map((each: Json) => ({ id: each.id, impact: each.impact, nodes: each.nodes.slice(0, 3).map((node: Json) => node.html.slice(0, 160)) })),
          wide: document.documentElement.scrollWidth > innerWidth ? document.documentElement.scrollWidth : null,
        };
      }, AXE);
      for (const each of violations) if (each.impact === "serious" || each.impact === "critical") faults.push({ at, ...each });
      if (wide) faults.push({ at, wide });
    }
    expect(faults).toEqual([]);
    await viewer.context.close();
  } finally {
    await own.stop();
  }
}, 120_000);

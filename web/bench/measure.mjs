// Measures the page in Chromium while a relay is busy: see run.py.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { Agent, request } from "node:http";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [home, python, open, rate, minutes] = [process.argv[2], process.argv[3], ...process.argv.slice(4).map(Number)];
const BOUNDS = { interactive_ms: 1000, tasks_over_100_ms: 3, tasks_over_250_ms: 0, heap_growth: 1.15 };
/** Entries that one handoff leaves from its offer to its settlement. */
const ENTRIES = 5;

const relay = spawn(python, ["-m", "nodrop.cli", "up", "--port", "0", "--json"], { env: { ...process.env, NODROP_HOME: home }, stdio: ["ignore", "pipe", "inherit"] });
const url = await new Promise((resolve, reject) => {
  let said = "";
  relay.stdout.on("data", (chunk) => {
    said += chunk;
    if (said.includes("\n")) resolve(JSON.parse(said).url);
  });
  relay.on("exit", (code) => reject(new Error(`the relay ended with ${code}`)));
});
const operator = JSON.parse(readFileSync(join(home, "credentials"), "utf8")).operator;
const agent = new Agent({ keepAlive: true, maxSockets: 32 });

function call(token, path, body, method = "POST") {
  return new Promise((resolve, reject) => {
    const sent = request(`${url}/v1/${path}`, { method, agent, headers: { authorization: `Bearer ${token}`, "content-type": "application/json" } }, (answer) => {
      let text = "";
      answer.on("data", (chunk) => (text += chunk));
      answer.on("end", () => (answer.statusCode < 400 ? resolve(JSON.parse(text)) : reject(new Error(`${path}: ${text}`))));
    });
    sent.on("error", reject);
    sent.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

const token = async (name) => (await call(operator, "tokens", { agent: name })).token;
const names = Array.from({ length: 10 }, (_, i) => `worker_${i}`);
const workers = await Promise.all(names.map(async (name) => ({ name, token: await token(name) })));
const requester = await token("requester");
const opened = [];
for (let i = 0; i < open; i += 20)
  await Promise.all(
    Array.from({ length: Math.min(20, open - i) }, async (_, k) => {
      const { name } = workers[(i + k) % workers.length];
      const title = `Standing work ${i + k}: check what the customer reported and answer`;
      opened.push((await call(requester, "handoffs", { to: name, title, payload: { n: i + k, text: "a few words ".repeat(10) }, deadline: "2d", accept_within: "1d" })).handoff);
    }),
  );
const passing = await token("passing");

// Half of the events are handoffs that come and go; half are updates of those that stay.
for (const each of workers.slice(0, 5)) {
  const { deliveries } = await call(each.token, "inbox/take", { max: 40 });
  each.held = deliveries.map((d) => d.handoff);
  for (const h of each.held) await call(each.token, `handoffs/${h.id}/ack`, { attempt: 1, status: "begun", brief: true });
}
const held = workers.flatMap((each) => (each.held ?? []).map((h) => ({ token: each.token, id: h.id })));
let events = 0;
let busy = true;
let turn = 0;
async function comeAndGo() {
  const { handoff } = await call(requester, "handoffs", { to: "passing", title: `Passing ${turn}` });
  const { deliveries } = await call(passing, "inbox/take", { max: 1 });
  if (deliveries.length === 0) return;
  const { id } = deliveries[0].handoff;
  await call(passing, `handoffs/${id}/ack`, { attempt: 1, brief: true });
  await call(passing, `handoffs/${id}/complete`, { attempt: 1, result: { ok: true }, brief: true });
  await call(requester, `handoffs/${id}/settle`, { brief: true });
  events += ENTRIES;
  void handoff;
}
async function update() {
  const { token: by, id } = held[turn % held.length];
  await call(by, `handoffs/${id}/update`, { attempt: 1, status: `at ${turn}`, brief: true });
  events++;
}
const started = performance.now();
const traffic = setInterval(() => {
  const owed = ((performance.now() - started) / 1000) * rate - planned;
  for (let i = 0; i < owed; ) {
    turn++;
    const passes = turn % 6 === 0;
    const size = passes ? ENTRIES : 1;
    planned += size;
    i += size;
    if (busy) void (passes ? comeAndGo() : update()).catch(() => {});
  }
}, 50);
let planned = 0;

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: process.getuid?.() === 0 ? ["--no-sandbox"] : [] });
let failed = false;
try {
  const context = await browser.newContext({ viewport: { width: 1360, height: 860 } });
  const page = await context.newPage();
  await page.goto(url);
  await page.getByLabel("Token").fill(operator);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.locator("a.row").first().waitFor();
  // Measured from a fresh load of a signed-in tab.
  await page.addInitScript(() => {
    const found = (window.found = { rows: null, tasks: [] });
    new PerformanceObserver((list) => found.tasks.push(...list.getEntries().map((e) => [e.startTime, e.duration]))).observe({ type: "longtask", buffered: true });
    const look = () => (document.querySelector("a.row") ? (found.rows = performance.now()) : requestAnimationFrame(look));
    requestAnimationFrame(look);
  });
  await page.reload();
  await page.locator("a.row").first().waitFor();
  const interactive = await page.evaluate(() => window.found.rows);
  const cdp = await context.newCDPSession(page);
  await cdp.send("Performance.enable");
  const heap = async () => {
    await cdp.send("HeapProfiler.collectGarbage");
    const { metrics } = await cdp.send("Performance.getMetrics");
    return Object.fromEntries(metrics.filter((m) => ["JSHeapUsedSize", "Nodes"].includes(m.name)).map((m) => [m.name, m.value]));
  };
  await new Promise((resolve) => setTimeout(resolve, 3000)); // loaded, and drawn
  const from = await page.evaluate(() => performance.now());
  const eventsBefore = events;
  const heaps = [await heap()];
  const rounds = Math.max(1, Math.round(minutes * 2));
  for (let i = 0; i < rounds; i++) {
    await new Promise((resolve) => setTimeout(resolve, (minutes * 60_000) / rounds));
    // Collecting garbage stops the page: what it takes is not counted as the page's.
    if (minutes > 1) heaps.push(await heap());
  }
  if (minutes <= 1) heaps.push(await heap());
  const to = await page.evaluate(() => performance.now());
  const tasks = (await page.evaluate(() => window.found.tasks)).filter(([at]) => at >= from && at <= to).map(([, ms]) => Math.round(ms));
  const third = Math.max(1, Math.floor(heaps.length / 3));
  const mean = (list) => list.reduce((sum, h) => sum + h.JSHeapUsedSize, 0) / list.length;
  const figures = {
    interactive_ms: Math.round(interactive),
    events_per_second: Math.round((events - eventsBefore) / ((to - from) / 1000)),
    rows_in_document: await page.locator("a.row").count(),
    open_shown: await page.locator(".headline .figure b").first().textContent(),
    tasks_over_50_ms: tasks.length,
    tasks_over_100_ms: tasks.filter((ms) => ms > 100).length,
    tasks_over_250_ms: tasks.filter((ms) => ms > 250).length,
    longest_ms: Math.max(0, ...tasks),
    heap_mb: heaps.map((h) => Math.round(h.JSHeapUsedSize / 104857.6) / 10),
    nodes: heaps.map((h) => h.Nodes),
    heap_growth: Math.round((mean(heaps.slice(-third)) / mean(heaps.slice(0, third))) * 100) / 100,
  };
  // Tasks are held to their bound within a minute, memory over longer: collecting garbage is a task too.
  const left_out = minutes <= 1 ? ["heap_growth"] : ["tasks_over_100_ms", "tasks_over_250_ms"];
  const beyond = Object.entries(BOUNDS).filter(([name]) => !left_out.includes(name)).filter(([name, bound]) => figures[name] > bound).map(([name]) => name);
  console.log(JSON.stringify({ handoffs_open: open, rate, minutes, ...figures, beyond }, null, 1));
  failed = beyond.length > 0;
} finally {
  busy = false;
  clearInterval(traffic);
  await browser.close();
  relay.removeAllListeners("exit");
  relay.kill("SIGTERM");
  agent.destroy();
}
process.exit(failed ? 1 : 0);

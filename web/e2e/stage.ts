/** The stage of the stories: a relay of their own, agents played over HTTP, and Chromium. */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Browser, type BrowserContext, type BrowserContextOptions, chromium, type Locator, type Page } from "playwright-core";

const ROOT = join(import.meta.dirname, "..", "..");
export const NODROP = join(ROOT, ".venv", "bin", "nodrop");
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
/** Screenshots are written here, outside of the repository. */
export const SHOTS = process.env.NODROP_SHOTS ?? join(tmpdir(), "nodrop-screenshots");
mkdirSync(SHOTS, { recursive: true });

// biome-ignore lint: answers are JSON
export type Json = any;

export class Refused extends Error {
  readonly status: number;
  readonly problem: Json;
  constructor(status: number, problem: Json) {
    super(`${status} ${problem?.code}: ${problem?.detail}`);
    this.status = status;
    this.problem = problem;
  }
}

export class Actor {
  readonly name: string;
  readonly token: string;
  private readonly relay: Relay;

  constructor(relay: Relay, name: string, token: string) {
    this.relay = relay;
    this.name = name;
    this.token = token;
  }

  async call(method: string, path: string, body?: Json): Promise<Json> {
    const response = await fetch(`${this.relay.url}/v1/${path}`, {
      method,
      headers: { authorization: `Bearer ${this.token}`, "content-type": "application/json" },
      body: body === undefined ? null : JSON.stringify(body),
    });
    const answer = await response.json();
    if (!response.ok) throw new Refused(response.status, answer);
    return answer;
  }

  get(path: string): Promise<Json> {
    return this.call("GET", path);
  }

  async offer(request: Json): Promise<Json> {
    return (await this.call("POST", "handoffs", request)).handoff;
  }

  /** Take the next handoff and acknowledge it. */
  async accept(said: Json = {}): Promise<Json> {
    const { deliveries } = await this.call("POST", "inbox/take", { wait: "10s" });
    const { handoff, attempt } = deliveries[0];
    return (await this.call("POST", `handoffs/${handoff.id}/ack`, { attempt, ...said })).handoff;
  }

  async tell(verb: string, handoff: Json, body: Json = {}): Promise<Json> {
    return (await this.call("POST", `handoffs/${handoff.id}/${verb}`, body)).handoff;
  }
}

export class Relay {
  url = "";
  operator!: Actor;
  readonly home: string;
  private process: ChildProcess | null = null;
  private readonly options: string[];

  private constructor(options: string[]) {
    this.home = mkdtempSync(join(tmpdir(), "nodrop-story-"));
    this.options = options;
  }

  static async start(...options: string[]): Promise<Relay> {
    const relay = new Relay(options);
    await relay.run(0);
    const credentials = JSON.parse(readFileSync(join(relay.home, "credentials"), "utf8"));
    relay.operator = new Actor(relay, "me", credentials.operator);
    return relay;
  }

  private async run(port: number): Promise<void> {
    const process_ = spawn(NODROP, ["up", "--port", String(port), "--json", ...this.options], {
      env: { ...process.env, NODROP_HOME: this.home },
      stdio: ["ignore", "pipe", "inherit"],
    });
    this.process = process_;
    const line = await new Promise<string>((resolve, reject) => {
      let said = "";
      process_.stdout!.on("data", (chunk) => {
        said += chunk;
        if (said.includes("\n")) resolve(said);
      });
      process_.on("exit", (code) => reject(new Error(`the relay ended with ${code}`)));
    });
    this.url = JSON.parse(line).url;
  }

  /** End the process as a crash would, and start it again at the same address. */
  async restart(between: () => Promise<void> = async () => {}): Promise<void> {
    await this.end("SIGKILL");
    await between();
    await this.run(Number(new URL(this.url).port));
  }

  private async end(signal: NodeJS.Signals): Promise<void> {
    const ending = this.process;
    if (ending === null || ending.exitCode !== null) return;
    ending.removeAllListeners("exit");
    const gone = new Promise((resolve) => ending.once("exit", resolve));
    ending.kill(signal);
    await gone;
  }

  async stop(): Promise<void> {
    await this.end("SIGTERM");
    rmSync(this.home, { recursive: true, force: true });
  }

  async actor(name: string, role = "agent"): Promise<Actor> {
    const { token } = await this.operator.call("POST", "tokens", { agent: name, role });
    return new Actor(this, name, token);
  }
}

export async function launch(): Promise<Browser> {
  const root = process.getuid?.() === 0;
  return chromium.launch({ executablePath: CHROMIUM, args: root ? ["--no-sandbox"] : [] });
}

export interface Viewer {
  page: Page;
  context: BrowserContext;
  /** What the browser complained about: violations of the policy, script errors, foreign requests. */
  complaints: string[];
}

export const DESKTOP: BrowserContextOptions = { viewport: { width: 1360, height: 860 } };
export const PHONE: BrowserContextOptions = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true };

/** Open the page at `url` and record whatever the browser complains about. */
export async function visit(browser: Browser, url: string, options: BrowserContextOptions = DESKTOP): Promise<Viewer> {
  const context = await browser.newContext({ locale: "en-GB", timezoneId: "Europe/Berlin", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  const complaints: string[] = [];
  const origin = new URL(url).origin;
  await page.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
  });
  page.on("console", (message) => {
    if (message.type() === "error" && !/ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY|Failed to load resource/.test(message.text())) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(origin) && !request.url().startsWith("data:")) complaints.push(`foreign request: ${request.url()}`);
  });
  await page.goto(url);
  return { page, context, complaints };
}

/** Sign in with a token, as the form does. */
export async function signIn(browser: Browser, relay: Relay, who: Actor, options?: BrowserContextOptions, at = "", base = `${relay.url}/`): Promise<Viewer> {
  const viewer = await visit(browser, base, options);
  await viewer.page.getByLabel("Token").fill(who.token);
  await viewer.page.getByRole("button", { name: "Sign in" }).click();
  await viewer.page.getByRole("navigation", { name: "Views" }).waitFor();
  if (at) await goTo(viewer.page, at);
  return viewer;
}

export async function goTo(page: Page, address: string): Promise<void> {
  await page.evaluate((hash) => {
    location.hash = hash;
  }, address);
}

export function row(page: Page, words: string): Locator {
  return page.locator("a.row", { hasText: words });
}

export async function live(page: Page): Promise<void> {
  await page.locator(".line.live").waitFor();
}

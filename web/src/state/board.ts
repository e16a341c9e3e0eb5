/**
 * The open handoffs of the team, live. Loaded once by lists, then kept by the log: each entry is
 * folded at once, and what it is about is read again from the relay, a few a second, the rows on
 * screen first. Hidden pages pause and resume from their cursor. Where the relay's log is another one by
 * then, because an older copy of its database was put back, everything is loaded again.
 */
import { batch, computed, effect, signal } from "@preact/signals";
import { type Api, type Entry, type Handoff, Problem } from "../api/client.ts";
import { Follower, type Line } from "../api/follow.ts";
import { now } from "./clock.ts";
import { FINAL, fold, fromView, lateness, LOST, type Row, verb } from "./rows.ts";
import { acts, api, me, session } from "./session.ts";

const OPEN = ["offered", "delivered", "accepted", "blocked"] as const;
const PAGE = 500;
/** Rows kept of one state; a team with more sees the newest, and is told. */
const ROWS_MAX = 5_000;
/** Entries that a page which was away reads one by one; beyond that it loads everything again. */
const CATCH_UP_MAX = 5_000;
const RECENT_MAX = 400;
const REFRESH_PER_SECOND = 24;
const DRAW_MS = 250;
const BUCKET_MS = 10_000;
const BUCKETS = 90;

export const line = signal<Line>("connecting");
export const loaded = signal(false);
export const truncated = signal(false);
export const failure = signal<Problem | null>(null);
/** Bumped after changes, at most four times a second. */
export const changes = signal(0);
export const inboxCount = signal(0);
export const recent = signal<readonly Entry[]>([]);
export const head = signal(0);
/** Bumped when the log turns out to be another one than was read so far: what was read of it is void. */
export const history = signal(0);
/** Finished handoffs in each of the last buckets, oldest first, and the time of the last one. */
export const finished = signal<{ counts: readonly number[]; at: number }>({ counts: [], at: 0 });

const rows = new Map<string, Row>();
const stale = new Map<string, number>();
let watched: ReadonlySet<string> = new Set();
let follower: Follower | null = null;
let generation = 0;
let drawing: ReturnType<typeof setTimeout> | undefined;
let buffer: Entry[] = [];
const listeners = new Set<(entries: readonly Entry[]) => void>();
const counts = new Array<number>(BUCKETS).fill(0);
let bucket = Math.floor(Date.now() / BUCKET_MS);

/** Call `listener` with every batch of entries from now on; returns how to stop. */
export function onEntries(listener: (entries: readonly Entry[]) => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function row(id: string): Row | undefined {
  return rows.get(id);
}

/** Say which rows are on screen: they are read again first. */
export function watch(ids: readonly string[]): void {
  watched = new Set(ids);
}

export const all = computed<readonly Row[]>(() => {
  void changes.value;
  return [...rows.values()];
});

export interface Summary {
  open: number;
  late: number;
  dead: number;
  mine: number;
  working: number;
  states: Map<string, number>;
  agents: Map<string, number>;
  priorities: Map<string, number>;
}

export const summary = computed<Summary>(() => {
  const total: Summary = { open: 0, late: 0, dead: 0, mine: 0, working: 0, states: new Map(), agents: new Map(), priorities: new Map() };
  const at = now.peek();
  const add = (map: Map<string, number>, key: string) => map.set(key, (map.get(key) ?? 0) + 1);
  for (const r of all.value) {
    if (r.dead) total.dead++;
    if (r.settled || (FINAL.has(r.state) && r.dead)) continue;
    total.open++;
    if (lateness(r, at) !== null) total.late++;
    if (r.holder === me.value) total.mine++;
    if (r.state === "accepted") total.working++;
    add(total.states, r.state);
    add(total.priorities, r.priority);
    if (r.holder !== null) add(total.agents, r.holder);
  }
  return total;
});

// --- loading -------------------------------------------------------------------------------------

async function pages(path: "/handoffs" | "/dead-letters", state: (typeof OPEN)[number] | "completed" | null, most: number, from: Api, take: (page: readonly Handoff[]) => void): Promise<void> {
  let before: string | undefined;
  for (let got = 0; got < most; ) {
    const query = { limit: PAGE, ...(before ? { before } : {}), ...(state ? { state } : {}) };
    const answer = await from.get(path, { query });
    take(answer.handoffs);
    got += answer.handoffs.length;
    before = answer.before ?? undefined;
    if (!before) return;
  }
  truncated.value = true;
}

async function load(): Promise<void> {
  const mine = ++generation;
  const from = api.value;
  try {
    const checkpoint = await from.get("/checkpoints");
    if (mine !== generation) return;
    rows.clear();
    stale.clear();
    buffer = [];
    truncated.value = false;
    const take = (dead: boolean) => (page: readonly Handoff[]) => {
      if (mine !== generation) return;
      for (const h of page) {
        const known = rows.get(h.id);
        if (known === undefined || known.version <= h.version) rows.set(h.id, fromView(h, dead || known?.dead));
      }
      draw();
    };
    head.value = checkpoint.size;
    follower?.pause();
    follower = new Follower(
      from,
      { seq: checkpoint.size, hash: checkpoint.head },
      receive,
      (next) => {
        if (mine !== generation) return;
        line.value = next;
        if (next === "live") later(countInbox, 0);
      },
      () => {
        if (mine === generation) begin();
      },
    );
    await Promise.all([
      ...OPEN.map((state) => pages("/handoffs", state, ROWS_MAX, from, take(false))),
      pages("/dead-letters", null, ROWS_MAX, from, take(true)),
      // Finished, but not collected: those among the latest.
      from.get("/handoffs", { query: { state: "completed", limit: 100 } }).then((page) =>
        take(false)(page.handoffs.filter((h) => h.settled_at === null)),
      ),
      // The latest entries, for the log and the figure of the last minutes.
      from.get("/log", { query: { after: Math.max(0, checkpoint.size - RECENT_MAX), limit: PAGE } }).then((page) => {
        if (mine === generation) remember(page.entries.filter((e) => e.seq <= checkpoint.size));
      }),
    ]);
    if (mine !== generation) return;
    failure.value = null;
    loaded.value = true;
    if (!document.hidden) follower.start();
    else follower.pause();
  } catch (error) {
    if (mine !== generation || !(error instanceof Problem)) return;
    failure.value = error;
    if (error.status !== 401) setTimeout(() => mine === generation && void load(), 2_000);
  }
}

/** Forget what was read of a log that is gone, and load everything of the one that is there. */
function begin(): void {
  console.warn("The relay's log is not the one that was read: it was restored from an older copy. Loading it again.");
  recent.value = [];
  history.value++;
  void load();
}

// --- the log -------------------------------------------------------------------------------------

function receive(entries: Entry[]): void {
  buffer.push(...entries);
  draw();
}

function draw(): void {
  drawing ??= setTimeout(() => {
    drawing = undefined;
    apply();
  }, DRAW_MS);
}

function apply(): void {
  const entries = buffer;
  buffer = [];
  let letters = false;
  let inbox = false;
  const moved = new Set<string>();
  const soon = performance.now() + 300;
  for (const entry of entries) {
    const id = entry.handoff_id;
    const what = verb(entry);
    inbox ||= what === null || what === "blocked" || FINAL.has(what) || what === "settled" || what === "escalated" || what === "nudged" || what === "answered" || what === "dismissed";
    if (id === null || what === null) continue;
    const next = fold(rows.get(id), entry);
    if (next === undefined) continue;
    moved.add(next.to);
    if (next.settled && !next.dead) {
      rows.delete(id);
      stale.delete(id);
      continue;
    }
    rows.set(id, next);
    if (LOST.has(what) || what === "discarded" || what === "redriven") letters = true;
    if (!stale.has(id)) stale.set(id, soon);
  }
  // A place in a queue changes with what is before it.
  for (const id of watched) {
    const seen = rows.get(id);
    if (seen?.queued && moved.has(seen.to) && !stale.has(id)) stale.set(id, soon);
  }
  batch(() => {
    if (entries.length > 0) {
      remember(entries);
      head.value = entries.at(-1)!.seq;
    }
    changes.value++;
  });
  if (entries.length > 0) for (const listener of listeners) listener(entries);
  if (letters) later(readLetters, 500);
  if (inbox) later(countInbox, 500);
}

function remember(entries: readonly Entry[]): void {
  const known = recent.value.at(-1)?.seq ?? 0;
  const fresh = entries.filter((entry) => entry.seq > known);
  for (const entry of fresh) if (verb(entry) === "completed") count(Date.parse(entry.at));
  recent.value = [...recent.value, ...fresh].slice(-RECENT_MAX);
  advance();
  finished.value = { counts: counts.slice(), at: bucket * BUCKET_MS };
}

function advance(): void {
  const current = Math.floor(Date.now() / BUCKET_MS);
  for (; bucket < current; bucket++) {
    counts.shift();
    counts.push(0);
  }
}

function count(at: number): void {
  advance();
  const place = BUCKETS - 1 - (bucket - Math.floor(at / BUCKET_MS));
  if (place >= 0 && place < BUCKETS) counts[place] = (counts[place] ?? 0) + 1;
}

const pending = new Map<() => Promise<void>, ReturnType<typeof setTimeout>>();
function later(what: () => Promise<void>, wait: number): void {
  if (pending.has(what)) return;
  pending.set(
    what,
    setTimeout(() => {
      pending.delete(what);
      void what().catch(() => {});
    }, wait),
  );
}

/** What became of dead letters is decided by more than one handoff: the relay's list is the truth. */
async function readLetters(): Promise<void> {
  const mine = generation;
  const listed = new Set<string>();
  await pages("/dead-letters", null, ROWS_MAX, api.value, (page) => {
    for (const h of page) {
      listed.add(h.id);
      rows.set(h.id, fromView(h, true));
    }
  });
  if (mine !== generation) return;
  for (const [id, r] of rows)
    if (r.dead && !listed.has(id)) {
      if (r.settled) rows.delete(id);
      else rows.set(id, { ...r, dead: false });
    }
  draw();
}

async function countInbox(): Promise<void> {
  if (!acts.value) return;
  const answer = await api.value.get("/inbox", { query: { limit: 200 } });
  inboxCount.value = answer.items.length;
}

// --- reading again what has changed ----------------------------------------------------------------

let credit = 0;
setInterval(() => {
  if (document.hidden || stale.size === 0 || session.value === null) return;
  credit = Math.min(credit + REFRESH_PER_SECOND / 4, REFRESH_PER_SECOND);
  const at = performance.now();
  const due = [...stale].filter(([, when]) => when <= at).map(([id]) => id);
  due.sort((a, b) => Number(watched.has(b)) - Number(watched.has(a)));
  for (const id of due.slice(0, Math.floor(credit))) {
    credit--;
    stale.delete(id);
    void refresh(id);
  }
}, 250);

/** Read one handoff again, now: the view is the truth that folding comes close to. */
export async function refresh(id: string): Promise<Handoff | null> {
  try {
    const { handoff } = await api.value.get("/handoffs/{id}", { id });
    const known = rows.get(id);
    if (known !== undefined && handoff.version >= known.version) {
      if (handoff.settled_at !== null && !known.dead) rows.delete(id);
      else rows.set(id, fromView(handoff, known.dead));
      draw();
    }
    return handoff;
  } catch {
    return null;
  }
}

// --- life -----------------------------------------------------------------------------------------

async function resume(): Promise<void> {
  if (follower === null || !loaded.value) return;
  try {
    const { size } = await api.value.get("/checkpoints");
    if (size - follower.cursor.seq > CATCH_UP_MAX) await load();
    else follower.start();
  } catch {
    follower.start();
  }
}

document.addEventListener("visibilitychange", () => {
  if (session.value === null) return;
  if (document.hidden) follower?.pause();
  else void resume();
});

effect(() => {
  const signedIn = session.value !== null;
  generation++;
  follower?.pause("connecting");
  follower = null;
  rows.clear();
  loaded.value = false;
  recent.value = [];
  if (signedIn) void load();
});

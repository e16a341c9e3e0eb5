/** Who looks at the page: the bearer from a sign-in link or a pasted token, kept for this tab alone. */
import { computed, effect, signal } from "@preact/signals";
import { Api, Problem } from "../api/client.ts";
import { go } from "./route.ts";

export type Role = "agent" | "operator" | "observer";

export interface Session {
  token: string;
  team: string;
  agent: string;
  role: Role;
  /** Whether words and data are shown. */
  payloads: boolean;
  expires_at: string | null;
}

const base = new URL(".", document.baseURI);
const ENDED = "This sign-in has ended: it expired or was revoked.";
const MAX_TIMER_MS = 2 ** 31 - 1;
const KEY = `nodrop:${base.pathname}`;

function kept(): Session | null {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? "null") as Session | null;
  } catch {
    return null;
  }
}

export const session = signal<Session | null>(kept());
export const signInError = signal<string | null>(null);
export const signingIn = signal(false);

export const api = computed(() => {
  const made = new Api(base, session.value?.token ?? null);
  made.onSignedOut = () => signOut(ENDED);
  return made;
});
export const me = computed(() => session.value?.agent ?? "");
export const acts = computed(() => session.value !== null && session.value.role !== "observer");
export const operates = computed(() => session.value?.role === "operator");

// A sign-in that expires ends here too, and not only when the relay refuses the next request.
let expiry: ReturnType<typeof setTimeout> | undefined;
effect(() => {
  clearTimeout(expiry);
  const ends = session.value?.expires_at;
  if (!ends) return;
  const left = Date.parse(ends) - Date.now();
  if (left < MAX_TIMER_MS) expiry = setTimeout(() => signOut(ENDED), Math.max(left, 0));
});

function keep(next: Session): void {
  sessionStorage.setItem(KEY, JSON.stringify(next));
  signInError.value = null;
  session.value = next;
}

export function signOut(why: string | null = null): void {
  sessionStorage.removeItem(KEY);
  signInError.value = why;
  session.value = null;
}

/** Take the code of a one-time link out of the address, before anything else can see it there. */
export function codeInAddress(): string | null {
  const found = /^#signin=([^&]+)$/.exec(location.hash);
  if (found === null) return null;
  go("#/now", { replace: true });
  return decodeURIComponent(found[1] ?? "");
}

export async function redeem(code: string): Promise<void> {
  await attempt(async () => {
    const visitor = new Api(base, null);
    const { token, team, agent, role, payloads, expires_at } = await visitor.post("/links/redeem", { code });
    keep({ token, team, agent, role: role as Role, payloads, expires_at: expires_at ?? null });
  });
}

export async function signInWithToken(token: string): Promise<void> {
  await attempt(async () => {
    const visitor = new Api(base, token.trim());
    const who = await visitor.get("/me");
    const role = who.role as Role;
    keep({ token: token.trim(), team: who.team, agent: who.agent, role, payloads: role !== "observer", expires_at: null });
  });
}

async function attempt(how: () => Promise<void>): Promise<void> {
  signingIn.value = true;
  try {
    await how();
  } catch (error) {
    signInError.value =
      error instanceof Problem ? `${error.message}. ${error.next ?? ""}`.trim() : "The sign-in did not work.";
  } finally {
    signingIn.value = false;
  }
}

/** What this browser prefers: theme, and how times are written. */
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
export type Times = "relative" | "local" | "utc";

function remembered<T extends string>(name: string, among: readonly T[], otherwise: T): T {
  try {
    const found = localStorage.getItem(`nodrop:${name}`) as T | null;
    return found !== null && among.includes(found) ? found : otherwise;
  } catch {
    return otherwise;
  }
}

export const THEMES: readonly Theme[] = ["system", "light", "dark"];
export const TIMES: readonly Times[] = ["relative", "local", "utc"];
export const theme = signal<Theme>(remembered("theme", THEMES, "system"));
export const times = signal<Times>(remembered("times", TIMES, "relative"));

effect(() => {
  if (theme.value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
  remember("theme", theme.value);
});
effect(() => remember("times", times.value));

function remember(name: string, value: string): void {
  try {
    localStorage.setItem(`nodrop:${name}`, value);
  } catch {
    // A browser that keeps nothing still shows the page.
  }
}

export function next<T>(among: readonly T[], current: T): T {
  return among[(among.indexOf(current) + 1) % among.length] as T;
}

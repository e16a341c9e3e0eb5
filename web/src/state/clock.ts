/** Time: one tick a second for all that counts down, and how times are written. */
import { signal } from "@preact/signals";
import { times } from "./prefs.ts";

export const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);

const UNITS: readonly [number, string][] = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
  [1_000, "s"],
];

/** "2 h 5 min": the two largest units, seconds only below ten minutes. */
export function duration(ms: number): string {
  let rest = Math.abs(ms);
  const parts: string[] = [];
  for (const [size, unit] of UNITS) {
    const count = Math.floor(rest / size);
    if (count === 0 && parts.length === 0) continue;
    if (parts.length === 2) break;
    if (unit === "s" && Math.abs(ms) >= 600_000) break;
    if (count > 0) parts.push(`${count} ${unit}`);
    else break;
    rest -= count * size;
  }
  return parts.length > 0 ? parts.join(" ") : "0 s";
}

/** A duration that was measured, which may be a small part of a second. */
export function took(ms: number): string {
  return ms < 1_000 ? `${Math.round(ms)} ms` : ms < 10_000 ? `${(ms / 1_000).toFixed(1)} s` : duration(ms);
}

export function ms(time: string): number {
  return Date.parse(time);
}

export function relative(time: string, at: number): string {
  const left = ms(time) - at;
  return left >= 0 ? `in ${duration(left)}` : `${duration(left)} ago`;
}

const pad = (value: number, width = 2): string => String(value).padStart(width, "0");

export function absolute(time: string, utc: boolean, at = Date.now()): string {
  const t = new Date(time);
  if (Number.isNaN(t.getTime())) return time;
  const [y, mo, d, h, mi, s] = utc
    ? [t.getUTCFullYear(), t.getUTCMonth(), t.getUTCDate(), t.getUTCHours(), t.getUTCMinutes(), t.getUTCSeconds()]
    : [t.getFullYear(), t.getMonth(), t.getDate(), t.getHours(), t.getMinutes(), t.getSeconds()];
  const clock = `${pad(h)}:${pad(mi)}:${pad(s)}`;
  const today = Math.abs(at - t.getTime()) < 12 * 3_600_000;
  return `${today ? "" : `${y}-${pad(mo + 1)}-${pad(d)} `}${clock}${utc ? "Z" : ""}`;
}

/** A time as the reader has chosen to see times. */
export function written(time: string, at: number): string {
  if (times.value === "relative") return relative(time, at);
  return absolute(time, times.value === "utc", at);
}

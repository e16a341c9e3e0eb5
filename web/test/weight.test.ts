// @vitest-environment node
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";

const BUILT = join(import.meta.dirname, "../../src/nodrop/servers/http/dist");

test("the built page is under 150 KB compressed, and all of it comes from the relay", () => {
  const files = ["index.html", ...readdirSync(join(BUILT, "assets")).map((name) => join("assets", name))];
  const bytes = files.reduce((sum, name) => sum + gzipSync(readFileSync(join(BUILT, name)), { level: 6 }).length, 0);
  expect(bytes).toBeGreaterThan(20_000);
  expect(bytes).toBeLessThan(150_000);
});

test("the page has no inline script or style, and no address of its own", () => {
  const html = readFileSync(join(BUILT, "index.html"), "utf8");
  expect(html).not.toMatch(/<style|<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=/i);
  for (const [, address] of html.matchAll(/(?:src|href)="([^"]+)"/g)) expect(address).toMatch(/^\.\/assets\//);
});

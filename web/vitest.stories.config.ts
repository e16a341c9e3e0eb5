import { defineConfig } from "vitest/config";

/** Stories run in Chromium against a relay of their own, on the page as it is built. */
export default defineConfig({
  root: import.meta.dirname,
  test: {
    environment: "node",
    include: ["e2e/**/*.story.ts"],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    maxWorkers: 2,
  },
});

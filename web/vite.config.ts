import { defineConfig } from "vite";

/** The page is built into the Python package; every address in it is relative. */
export default defineConfig({
  root: import.meta.dirname,
  base: "./",
  publicDir: false,
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../src/nodrop/servers/http/dist",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: {
      output: { codeSplitting: { groups: [{ name: "libraries", test: /node_modules\/(preact|@preact)/ }] } },
    },
  },
});

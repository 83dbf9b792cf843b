import { defineConfig } from "vite";
import { licences } from "./licences";

/** Elsewhere in `make web-check`. */
const ASSETS = process.env.SDSSM_ASSETS ?? "../src/sdssm/report/page/assets";

/** Two scripts, `vite build --mode report|playground`, each with its style sheet, into the Python package. */
export default defineConfig(({ mode }) => ({
  define: { "process.env.NODE_ENV": JSON.stringify("production") },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  plugins: [licences({ file: `${ASSETS}/LICENSES.txt`, isComplete: mode === "report" })], // it contains the playground
  build: {
    outDir: ASSETS,
    emptyOutDir: false, // the other script is there too
    target: "es2022",
    lib: {
      entry: `src/${mode}.tsx`,
      name: "sdssm",
      formats: ["iife"],
      fileName: () => `${mode}.js`,
      cssFileName: mode,
    },
  },
}));

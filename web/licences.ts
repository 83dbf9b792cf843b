/** Collects the licence texts of the packages in a bundle. */
import { existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Plugin } from "vite";

interface Package {
  name: string;
  version: string;
  licence: string; // its short name, such as "MIT"
  text: string;
}

interface LicencesOptions {
  /** The file with all licence texts. */
  file: string;
  /** Whether this bundle has all packages and writes the file; another one only checks that its own are in it. */
  isComplete: boolean;
}

/** Write or check the file of licences, and name the packages at the top of the script. */
export function licences({ file, isComplete }: LicencesOptions): Plugin {
  return {
    name: "licences",
    generateBundle(_, bundle) {
      for (const chunk of Object.values(bundle)) {
        if (chunk.type !== "chunk") continue;
        const packages = findPackages(Object.keys(chunk.modules));
        const text = packages.map(formatPackage).join("\n\n");
        if (isComplete)
          writeFileSync(file, `Packages in the scripts of this folder, and their licences.\n\n\n${text}\n`);
        else checkListed(packages, existsSync(file) ? readFileSync(file, "utf8") : "");
        const names = packages.map(({ name, version, licence }) => `${name} ${version} (${licence})`);
        chunk.code = `/*! Contains ${names.join(", ")}; see LICENSES.txt of sdssm. */\n${chunk.code}`;
      }
    },
  };
}

function checkListed(packages: Package[], text: string): void {
  const missing = packages.filter((item) => !text.includes(heading(item)));
  if (missing.length)
    throw new Error(`LICENSES.txt lacks ${missing.map(({ name }) => name).join(", ")}; build the report page first`);
}

/** The packages that modules belong to, by name. */
function findPackages(modules: string[]): Package[] {
  const folders = modules.flatMap((id) => /^(.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(id)?.[1] ?? []);
  return [...new Set(folders)].map(readPackage).sort((a, b) => (a.name < b.name ? -1 : 1));
}

function readPackage(folder: string): Package {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as Record<
    string,
    string
  >;
  const file = readdirSync(folder).find((entry) => /^(licen[cs]e|copying)/i.test(entry));
  if (!name || !version || !license || !file)
    throw new Error(`${folder} names no licence or has no file with its text`);
  return {
    name,
    version,
    licence: license,
    text: readFileSync(join(folder, file), "utf8").replaceAll("\r\n", "\n").trim(),
  };
}

function heading({ name, version, licence }: Package): string {
  return `== ${name} ${version} (${licence})`;
}

function formatPackage(item: Package): string {
  return `${heading(item)}\n\n${item.text}\n`;
}

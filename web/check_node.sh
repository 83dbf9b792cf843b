#!/bin/sh
# Say in one line what is missing: Vite 8 needs node 20.19 or 22.12 and later.
set -eu
needed="make web and make web-check need node 20.19 or later and npm"
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  echo "$needed; install both (https://nodejs.org). Nothing else needs them." >&2
  exit 2
fi
node -e '
  const [major, minor] = process.versions.node.split(".").map(Number);
  process.exit(major > 22 || (major === 22 && minor >= 12) || (major === 20 && minor >= 19) ? 0 : 1);
' || { echo "$needed, but not 21 or 22.0 to 22.11; node is $(node --version)" >&2; exit 2; }

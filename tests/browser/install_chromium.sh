#!/bin/sh
# Install Chromium with apt-get if no browser is found; do nothing otherwise.
set -eu
for program in chromium chromium-browser google-chrome; do
  if command -v "$program" >/dev/null; then exit 0; fi
done
if ! command -v apt-get >/dev/null; then
  echo "no browser and no apt-get: install Chromium or Google Chrome, then run make browser again" >&2
  exit 2
elif [ "$(id -u)" -eq 0 ]; then as_root=
elif command -v sudo >/dev/null; then as_root=sudo
else
  echo "no browser: as root, run apt-get install chromium, then run make browser again" >&2
  exit 2
fi
export DEBIAN_FRONTEND=noninteractive
# A font is only recommended by the package; without one a page has no text.
$as_root apt-get update -qq
$as_root apt-get install -qq --yes --no-install-recommends chromium fonts-dejavu-core >/dev/null

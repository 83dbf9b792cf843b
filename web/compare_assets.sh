#!/bin/sh
# Build the scripts into an empty folder and compare them with the committed ones: compare_assets.sh COMMITTED
set -eu
committed=$(realpath "$1")
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
cd "$(dirname "$0")"
SDSSM_ASSETS="$built" npm run --silent build >&2
if ! diff --recursive --brief "$built" "$committed" >&2; then
  echo "the committed scripts differ from what web/ builds; run make web and commit $1" >&2
  exit 1
fi

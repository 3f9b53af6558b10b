#!/usr/bin/env bash
# Prints the folder with prometheus and promtool: where they are installed, or else unpacked from Debian's package.
set -euo pipefail
cd "$(dirname "$0")/.."

if installed=$(command -v promtool) && command -v prometheus >/dev/null; then
    dirname "$installed"
    exit 0
fi
folder=$PWD/build/prometheus
if [ ! -x "$folder/usr/bin/promtool" ]; then
    mkdir -p build
    scratch=$(mktemp -d build/prometheus.XXXXXX)
    trap 'rm -rf "$scratch"' EXIT
    [ -n "$(apt-cache show prometheus 2>/dev/null)" ] || apt-get update -qq >&2
    (cd "$scratch" && apt-get download -qq prometheus >&2 && dpkg-deb --extract prometheus_*.deb root)
    mv -T "$scratch/root" "$folder"
fi
echo "$folder/usr/bin"

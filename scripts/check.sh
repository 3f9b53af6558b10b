#!/usr/bin/env bash
# What CI runs: linters, while the images are built, then every test; the container tests only where there are containers.
set -euo pipefail
cd "$(dirname "$0")/.."

images=
if why=$(scripts/no-containers.sh); then
    echo "check: the container tests are skipped: $why"
else
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    make images >"$log" 2>&1 &
    images=$!
fi
make lint
if [ -n "$images" ]; then
    wait $images && built=0 || built=$?
    cat "$log"
    [ "$built" = 0 ]
fi
.venv/bin/pytest
[ -z "$images" ] || .venv/bin/pytest -m compose
make test-relay

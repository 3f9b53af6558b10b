#!/usr/bin/env bash
# Builds the container images and prints what each adds to its base image.
# A CPU build of torch in the folder $UV_FIND_LINKS goes into them; without one it comes from its index.
set -euo pipefail
cd "$(dirname "$0")/.."

compose=docker-compose
docker compose version >/dev/null 2>&1 && compose="docker compose"

build() { # SERVICE...; what the builder says is of interest only if it fails
    local log started=$SECONDS
    log=$(mktemp)
    $compose build "$@" >"$log" 2>&1 || {
        cat "$log" >&2
        echo "images: $* could not be built" >&2
        return 1
    }
    rm "$log"
    echo "images: $* built in $((SECONDS - started)) s"
}

for wheel in "${UV_FIND_LINKS:-}"/torch-*+cpu-cp311-*_"$(uname -m)".whl; do
    [ ! -e "$wheel" ] || cp --update "$wheel" docker/wheels/
done
scripts/base-images.sh
# Two at a time, but one behind the other where they share steps: an old builder would do those twice.
build relay orchestrator &
others=$!
build verifier-0 draft model
wait $others
scripts/image-sizes.sh

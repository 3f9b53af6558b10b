#!/usr/bin/env bash
# Prints what each image adds to its public base image, in MB, and fails if one is over its budget.
set -euo pipefail

tag=${IMAGE_TAG:-latest}
over=0

size() { # IMAGE
    docker image inspect --format '{{.Size}}' "$1"
}

row() { # IMAGE BASE BUDGET_MB
    local added=$((($(size "shardflow-$1:$tag") - $(size "$2")) / 1000000))
    printf '%-24s %6d of %4d MB over %s\n' "shardflow-$1" "$added" "$3" "$2"
    [ "$added" -le "$3" ] || over=1
}

row relay debian:bookworm-slim 30
row orchestrator python:3.11-slim-bookworm 300
row draft python:3.11-slim-bookworm 1000
row verifier python:3.11-slim-bookworm 1000
exit $over

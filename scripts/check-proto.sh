#!/usr/bin/env bash
# The contract is well written (buf), and the committed generated code is what protoc makes of it.
set -euo pipefail
cd "$(dirname "$0")/.."

.venv/bin/buf lint proto
.venv/bin/buf format --diff --exit-code proto

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
make proto PROTO_OUT="$fresh"
diff --recursive --exclude=__init__.py --exclude=__pycache__ "$fresh/shardflow/v1" shardflow/v1 || {
    echo "shardflow/v1 is not what proto/ says: run \`make proto\`" >&2
    exit 1
}

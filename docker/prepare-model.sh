#!/bin/sh
# Makes the demo's model in the volume unless it is there already. The directory appears whole or not at all.
set -eu
out=/models/smollm2-135m-instruct

if [ -e "$out/config.json" ]; then
    echo "$out is there already"
    exit 0
fi
exec python -m shardflow.engine.prepare --out "$out"

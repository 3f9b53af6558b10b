#!/bin/sh
# Installs what a service depends on into the environment of the image. usage: install-dependencies.sh EXTRA cpu|cuda
set -eu
extra=$1 torch=$2

case $torch in
    cpu | cuda) ;;
    *) echo "TORCH: $torch is neither cpu nor cuda" >&2 && exit 64 ;;
esac
if [ -n "$extra" ] && [ "$torch" = cuda ] && ls /wheels/torch-*+cpu*.whl >/dev/null 2>&1; then
    echo "TORCH is cuda, but docker/wheels/ holds a CPU build of torch, which would win: remove it" >&2 && exit 64
fi
# The package index has the CUDA build; the CPU build has an index of its own, which need not be asked if a wheel is there.
if [ -n "$extra" ] && [ "$torch" = cpu ] && ! ls /wheels/torch-*.whl >/dev/null 2>&1; then
    export UV_TORCH_BACKEND=cpu
fi
cd /src
uv pip install --quiet --find-links /wheels --constraints constraints.txt --requirements pyproject.toml ${extra:+--extra "$extra"}

rm -rf "$UV_CACHE_DIR"

if [ -n "$extra" ]; then
    # Of torch 190 MB that only building against it, and testing it, need.
    cd "$VIRTUAL_ENV"/lib/python3.*/site-packages/torch
    rm -rf include test
    find bin -type f ! -name torch_shm_manager -delete
fi

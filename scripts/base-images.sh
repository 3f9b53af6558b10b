#!/usr/bin/env bash
# Makes stand-ins for the public base images on a Debian machine that reaches package registries but no image registry.
# usage: scripts/base-images.sh            needs root, docker, debootstrap and rustup; does nothing where the images exist
# The Dockerfiles build on them unchanged: they hold the same system and tools, and trust what this machine trusts.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work" "$work.log"' EXIT

missing() {
    ! docker image inspect "$1" >/dev/null 2>&1
}

build() { # TAG; what it says is of interest only if it fails
    docker build --tag "$1" "$work" >"$work.log" 2>&1 || {
        tail "$work.log" >&2
        return 1
    }
}

debian() {
    command -v debootstrap >/dev/null || {
        apt-get update --quiet=2
        apt-get install --yes --quiet=2 debootstrap
    } >/dev/null
    debootstrap --variant=minbase --include=ca-certificates bookworm "$work/image" >"$work.log" || {
        tail "$work.log" >&2
        return 1
    }
    rm -rf "$work"/image/var/cache/apt/archives/*.deb "$work"/image/var/lib/apt/lists/*
    install -m 644 /etc/ssl/certs/ca-certificates.crt "$work/image/etc/ssl/host.crt"
    tar -C "$work/image" -c . | docker import \
        --change 'ENV SSL_CERT_FILE=/etc/ssl/host.crt PIP_CERT=/etc/ssl/host.crt CARGO_HTTP_CAINFO=/etc/ssl/host.crt' \
        --change 'CMD ["bash"]' - "$1" >/dev/null
    rm -rf "$work/image"
}

python() {
    cat >"$work/Dockerfile" <<'EOD'
FROM debian:bookworm-slim
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 python3-pip python3-venv >/dev/null \
    && apt-get clean \
    && rm -rf /var/lib/apt/lists/* /usr/lib/python3.11/EXTERNALLY-MANAGED \
    && ln -s python3 /usr/bin/python
CMD ["python3"]
EOD
    build "$1"
}

rust() {
    # Of the toolchain only what compiles.
    tar -C "$(rustc --print sysroot)" -cf "$work/toolchain.tar" bin/cargo bin/rustc lib
    cat >"$work/Dockerfile" <<'EOD'
FROM debian:bookworm-slim
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null \
    && apt-get clean \
    && rm -rf /var/lib/apt/lists/*
ADD toolchain.tar /usr/local/
EOD
    build "$1"
}

make_image() { # FUNCTION TAG
    missing "$2" || return 0
    local started=$SECONDS
    "$1" "$2"
    echo "base-images: stand-in $2 made in $((SECONDS - started)) s"
}

make_image debian debian:bookworm-slim
make_image python python:3.11-slim-bookworm
make_image rust rust:1-slim-bookworm

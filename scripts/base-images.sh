#!/usr/bin/env bash
# Brings the public base images; on a Debian machine that reaches package registries but no image registry, stand-ins.
# usage: scripts/base-images.sh            needs docker, for stand-ins also root and rustup; does nothing where they exist
# The Dockerfiles build on stand-ins unchanged: they hold the same system and tools, and trust what this machine trusts.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work" "$work.log"' EXIT

bring() { # TAG
    docker image inspect "$1" >/dev/null 2>&1 || timeout 600 docker pull --quiet "$1" >/dev/null 2>&1
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
    bring "$2" && return
    local started=$SECONDS
    "$1" "$2"
    echo "base-images: no registry has $2; a stand-in was made in $((SECONDS - started)) s"
}

make_image debian debian:bookworm-slim
make_image python python:3.11-slim-bookworm
make_image rust rust:1-slim-bookworm

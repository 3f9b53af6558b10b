#!/usr/bin/env bash
# Brings the public base images; on a Debian machine that reaches package registries but no image registry, stand-ins.
# usage: scripts/base-images.sh            needs docker, for stand-ins also root and rustup; does nothing where they exist
# The Dockerfiles build on stand-ins unchanged: they hold the same system and tools, and trust what this machine trusts.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

bring() { # TAG
    docker image inspect "$1" >/dev/null 2>&1 || timeout 600 docker pull --quiet "$1" >/dev/null 2>&1
}

quietly() { # COMMAND; what it says is of interest only if it fails
    local log
    log=$(mktemp -p "$work")
    "$@" >"$log" 2>&1 || {
        tail "$log" >&2
        return 1
    }
}

debian() { # TAG
    command -v debootstrap >/dev/null || {
        quietly apt-get update --quiet=2
        quietly apt-get install --yes --quiet=2 debootstrap
    }
    local root=$work/debian
    quietly debootstrap --variant=minbase --include=ca-certificates bookworm "$root"
    # Slim as the public image is, and whatever is installed later: builders walk through all files at each step.
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,info,locale,man}/*
    printf 'path-exclude=/usr/share/%s/*\n' doc info locale man >"$root/etc/dpkg/dpkg.cfg.d/slim"
    install -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/host.crt"
    tar -C "$root" -c . | docker import \
        --change 'ENV SSL_CERT_FILE=/etc/ssl/host.crt PIP_CERT=/etc/ssl/host.crt CARGO_HTTP_CAINFO=/etc/ssl/host.crt' \
        --change 'CMD ["bash"]' - "$1" >/dev/null
}

python() { # TAG
    mkdir "$work/python"
    cat >"$work/python/Dockerfile" <<'EOD'
FROM debian:bookworm-slim
CMD ["python3"]
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 python3-pip python3-venv >/dev/null \
    && apt-get clean \
    && rm -rf /var/lib/apt/lists/* /usr/lib/python3.11/EXTERNALLY-MANAGED \
    && ln -s python3 /usr/bin/python
EOD
    quietly docker build --tag "$1" "$work/python"
}

rust() { # TAG
    mkdir "$work/rust"
    # Of the toolchain only what compiles.
    tar -C "$(rustc --print sysroot)" -cf "$work/rust/toolchain.tar" bin/cargo bin/rustc lib
    cat >"$work/rust/Dockerfile" <<'EOD'
FROM debian:bookworm-slim
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null \
    && apt-get clean \
    && rm -rf /var/lib/apt/lists/*
ADD toolchain.tar /usr/local/
EOD
    quietly docker build --tag "$1" "$work/rust"
}

make_image() { # FUNCTION TAG
    bring "$2" && return
    local started=$SECONDS
    "$1" "$2"
    echo "base-images: no registry has $2; a stand-in was made in $((SECONDS - started)) s"
}

make_image debian debian:bookworm-slim
make_image python python:3.11-slim-bookworm &
python=$!
make_image rust rust:1-slim-bookworm &
wait $!
wait $python

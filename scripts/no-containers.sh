#!/usr/bin/env bash
# Prints why containers can be neither built nor run here, and ends with 1 if they can.
set -euo pipefail

need_gib=8 # of disk: five images, and what is built on the way

if ! command -v docker >/dev/null; then
    echo "there is no docker"
elif ! answer=$(timeout 60 docker info --format '{{.DockerRootDir}}' 2>&1); then
    echo "no docker engine answers: ${answer##*$'\n'}"
elif ! docker compose version >/dev/null 2>&1 && ! command -v docker-compose >/dev/null; then
    echo "docker has neither its compose plugin nor docker-compose"
elif [ -d "$answer" ] && [ "$(df --output=avail --block-size=1G "$answer" | tail -1)" -lt $need_gib ]; then
    echo "$answer has less than $need_gib GiB left"
else
    exit 1
fi

#!/usr/bin/env bash
# Every shell script of the repository through shellcheck, where that is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v shellcheck >/dev/null || {
    echo "shellcheck is not installed: shell scripts are not checked"
    exit 0
}
git ls-files -z --cached --others --exclude-standard -- '*.sh' .ci/run | xargs -0 shellcheck

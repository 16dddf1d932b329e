#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh clone to the first answer: packages, build, prediction of the founding scenario.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
source scripts/common.sh

usage() {
    cat <<'TEXT'
usage: scripts/quickstart.sh [--no-install] [--jobs N]

Installs the missing Debian packages, builds the command line in build/, and predicts the shipped
scenario kimi-k2.5-eagle3-founding. No GPU and no CUDA is needed.
  --no-install  install nothing; the packages of 'scripts/packages.sh build' have to be there
  --jobs N      compile N files at a time (default: one a core, less where memory is short)
TEXT
}

scenario=kimi-k2.5-eagle3-founding
install=1
jobs=$(default_jobs)
while (( $# > 0 )); do
    case $1 in
        --help | -h) usage; exit 0 ;;
        --no-install) install=0 ;;
        --jobs) jobs=${2:-}; check_jobs "$jobs"; shift ;;
        *) die "unknown argument '$1'" "quickstart.sh knows --no-install and --jobs" "see scripts/quickstart.sh --help" 2 ;;
    esac
    shift
done

if (( install )); then
    scripts/packages.sh --install build
fi

if [[ -f build/CMakeCache.txt ]]; then
    say "configure: build/ is there, its settings are kept"
    cmake -S . -B build >&2
else
    say "configure: Release in build/, without the tests"
    cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DDRAFTBOARD_TESTS=OFF >&2
fi
say "build: $jobs job(s)"
cmake --build build --parallel "$jobs" --target draftboard >&2

say "predict: build/cli/draftboard predict $scenario  (${SECONDS} s since the start)"
answer=$(build/cli/draftboard predict "$scenario") || {
    status=$?
    # Exit 1 is an answer too ("does not fit"), so it is shown as one.
    (( status == 1 )) ||
        die "the prediction failed with exit status $status" "see its message above" \
            "this is a fault of the clone: please report it with the output of 'build/cli/draftboard --version'" "$status"
}
[[ -n $answer ]] ||
    die "the prediction printed nothing" "build/cli/draftboard has no command 'predict' in this revision" \
        "use a released revision"
printf '%s\n' "$answer"

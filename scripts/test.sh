#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that is checked before a change is accepted. Continuous integration runs it through .ci/run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
source scripts/common.sh

usage() {
    cat <<'TEXT'
usage: scripts/test.sh [--werror] [--no-install] [--jobs N] [unit] [golden] [fuzz] [sanitize]

Installs the missing packages, builds, and runs the sections named, or all of them:
  unit      the unit tests (build/)
  golden    the golden transcripts and the table of bad inputs, against the built command line (build/)
  fuzz      every reader under libFuzzer for FUZZ_SECONDS each (default 60; build-fuzz/, clang)
  sanitize  all tests under AddressSanitizer and UndefinedBehaviorSanitizer (build-asan/), the threaded ones under
            ThreadSanitizer (build-tsan/)
The summary of the test runner comes last. A section that fails does not keep the others from running.

  --werror      warnings are errors (also: DRAFTBOARD_WERROR=1)
  --no-install  install nothing
  --jobs N      jobs at a time (default: one a core, less where memory is short)
  DRAFTBOARD_UPDATE_GOLDEN=1 scripts/test.sh golden    rewrites the golden transcripts
TEXT
}

install=1
werror=${DRAFTBOARD_WERROR:-0}
jobs=$(default_jobs)
sections=()
while (( $# > 0 )); do
    case $1 in
        --help | -h) usage; exit 0 ;;
        --werror) werror=1 ;;
        --no-install) install=0 ;;
        --jobs) jobs=${2:-}; check_jobs "$jobs"; shift ;;
        unit | golden | fuzz | sanitize) sections+=("$1") ;;
        *) die "unknown argument '$1'" "the sections are unit, golden, fuzz and sanitize" "see scripts/test.sh --help" 2 ;;
    esac
    shift
done
(( ${#sections[@]} > 0 )) || sections=(unit golden fuzz sanitize)
chosen() { [[ " ${sections[*]} " == *" $1 "* ]]; }

if (( install )); then
    purposes=(build test)
    if chosen fuzz; then purposes+=(fuzz); fi
    scripts/packages.sh --install "${purposes[@]}"
    # Tests against other simulators are left out of the build where the package can't be had.
    if chosen unit || chosen golden; then
        scripts/packages.sh --install gui || say "packages: the desktop's not installed, it is left out"
    fi
    scripts/packages.sh --install optional || say "packages: optional ones not installed, their tests are left out"
fi

summary=$(mktemp)
trap 'rm -f "$summary"' EXIT
failed=()
fail_section() {
    failed+=("$1")
    say "FAILED: $1"
}

# configure PRESET: the werror flag is only ever turned on, so that a plain run keeps the objects of a strict one.
configure() {
    local -a options=(-DDRAFTBOARD_TESTS=ON)
    if (( werror )) && [[ $1 == release ]]; then options+=(-DDRAFTBOARD_WERROR=ON); fi
    say "configure: $1 (${SECONDS} s)"
    cmake --preset "$1" "${options[@]}" >&2
}

# build PRESET TARGET...
build() {
    local preset=$1
    shift
    say "build: $preset $* (${SECONDS} s)"
    cmake --build --preset "$preset" --parallel "$jobs" --target "$@" >&2
}

# run_ctest TITLE DIR OPTION...: runs tests and keeps the runner's summary for the end.
run_ctest() {
    local title=$1 directory=$2 status=0
    shift 2
    say "test: $title (${SECONDS} s)"
    ctest --test-dir "$directory" --output-on-failure --no-tests=error --parallel "$jobs" --timeout 300 \
        --output-junit ctest.xml --output-log "$directory/ctest.log" "$@" || status=$?
    {
        echo "-- $title"
        # From "NN% tests passed" on: the count, the labels, and the tests that failed or were skipped.
        sed -n '/tests passed,/,$p' "$directory/ctest.log"
    } >>"$summary"
    return "$status"
}

# Builds and runs one sanitizer. Errors end the program under test, and ctest counts it as failed.
sanitize() {
    configure "$1" && build "$1" "$2" && run_ctest "$3" "build-$1" "${@:4}"
}
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:allocator_may_return_null=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1}

if chosen unit || chosen golden; then
    labels=()
    if chosen unit; then labels+=(unit unit_threads); fi
    if chosen golden; then labels+=(golden bad_input); fi
    pattern="^($(IFS='|'; echo "${labels[*]}"))\$"
    { configure release && build release all && run_ctest "unit and command-line tests" build -L "$pattern"; } ||
        fail_section "unit/golden"
fi

if chosen fuzz; then
    { configure fuzz && build fuzz fuzz_targets; } || fail_section "fuzz (build)"
    say "fuzz: ${FUZZ_SECONDS:-60} s a target (${SECONDS} s)"
    FUZZ_JOBS=${FUZZ_JOBS:-$jobs} tests/fuzz/run_all.sh build-fuzz | tee -a "$summary" || fail_section "fuzz"
fi

if chosen sanitize; then
    # hwloc's plugins (displays, OpenCL), which other packages bring, leak what they ask the system for.
    export HWLOC_PLUGINS_PATH=/nonexistent
    sanitize asan all "address and undefined-behaviour sanitizers, all tests" || fail_section "sanitize (address, undefined)"
    sanitize tsan thread_tests "thread sanitizer, the threaded tests" -L '^unit_threads$' || fail_section "sanitize (thread)"
fi

say "summary of ${sections[*]} after ${SECONDS} s"
cat "$summary"
if (( ${#failed[@]} > 0 )); then
    if chosen fuzz && [[ -s build-fuzz/fuzz_failures.txt ]]; then cat build-fuzz/fuzz_failures.txt; fi
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
echo "all sections passed: ${sections[*]}"

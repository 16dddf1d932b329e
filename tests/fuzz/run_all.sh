#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every libFuzzer target of a build folder for some seconds, and fails if one crashes, hangs or leaks.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: tests/fuzz/run_all.sh [BUILD_DIR] [TARGET...]

Runs the fuzz targets in BUILD_DIR (default build-fuzz; `cmake --preset fuzz` makes it), all or those named, from
the seeds in tests/fixtures, on a corpus that is thrown away. Prints a line for each target.
  FUZZ_SECONDS   seconds a target (default 60)
  FUZZ_JOBS      targets at a time (default 2)
Inputs that crash are kept in BUILD_DIR/crashes/TARGET; run BUILD_DIR/tests/fuzz/TARGET FILE to see one again. What failed,
with small inputs in base64, also goes to BUILD_DIR/fuzz_failures.txt.
TEXT
}

fail() {
    printf 'error: %s\n  why: %s\n  do:  %s\n' "$1" "$2" "$3" >&2
    exit 2
}

[[ ${1:-} != --help && ${1:-} != -h ]] || { usage; exit 0; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${1:-$root/build-fuzz}
shift || true
seconds=${FUZZ_SECONDS:-60}
jobs=${FUZZ_JOBS:-2}
[[ $seconds =~ ^[1-9][0-9]{0,5}$ ]] || fail "FUZZ_SECONDS is '$seconds'" "it has to be a count from 1" "FUZZ_SECONDS=60"
[[ $jobs =~ ^[1-9][0-9]{0,2}$ ]] || fail "FUZZ_JOBS is '$jobs'" "it has to be a count from 1" "FUZZ_JOBS=2"
list=$build/tests/fuzz/targets.txt
[[ -f $list ]] || fail "no fuzz targets in '$build'" "$list is not there" \
    "cmake --preset fuzz && cmake --build --preset fuzz"
build=$(cd "$build" && pwd)
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
: >"$build/fuzz_failures.txt"

# describe_failure NAME STATUS LOG CRASHES: what went wrong, and the input that shows it, in a few lines.
describe_failure() {
    printf '%s: exit %s\n' "$1" "$2"
    grep -E -m 4 'ERROR|SUMMARY|runtime error|deadly signal|ALARM' "$3" | cut -c1-300 | sed 's/^/    /' || true
    grep -E -m 6 '^ +#[0-9]+ .* draftboard::' "$3" | cut -c1-240 || true
    local input
    input=$(find "$4" -type f -newer "$work/started" | head -n 1)
    if [[ -n $input ]] && (( $(stat -c %s "$input") <= 1500 )); then
        printf '    input %s in base64: %s\n' "$(basename "$input")" "$(base64 -w 0 "$input")"
    elif [[ -n $input ]]; then
        printf '    input %s, %s bytes\n' "$input" "$(stat -c %s "$input")"
    fi
}
touch "$work/started"

# Runs one target; writes its summary line to $work/NAME.line, and "ok" or "failed" to $work/NAME.result.
run_target() {
    local name=$1
    shift
    local corpus=$work/$name.corpus log=$work/$name.log crashes=$build/crashes/$name status=0 seed
    local -a seeds=()
    mkdir -p "$corpus" "$crashes"
    for seed in "$@"; do
        if [[ -d $root/tests/fixtures/$seed ]]; then
            seeds+=("$root/tests/fixtures/$seed")
        elif [[ -f $root/tests/fixtures/$seed ]]; then
            cp "$root/tests/fixtures/$seed" "$corpus/"
        else
            echo "failed" >"$work/$name.result"
            printf '%-28s FAILED  its seeds tests/fixtures/%s do not exist\n' "$name" "$seed" >"$work/$name.line"
            return
        fi
    done
    "$build/tests/fuzz/$name" "$corpus" ${seeds[@]+"${seeds[@]}"} -max_total_time="$seconds" -max_len=65536 \
        -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 -artifact_prefix="$crashes/" >"$log" 2>&1 || status=$?
    local runs coverage
    runs=$(awk '/stat::number_of_executed_units/ { print $2 }' "$log")
    coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
    if (( status == 0 )) && [[ -n $runs ]]; then
        echo ok >"$work/$name.result"
        printf '%-28s ok      %10s runs  %6s edges  %5s inputs kept\n' "$name" "$runs" "${coverage:-0}" \
            "$(find "$corpus" -type f | wc -l)" >"$work/$name.line"
    else
        echo failed >"$work/$name.result"
        {
            printf '%-28s FAILED  exit %s; inputs in %s\n' "$name" "$status" "$crashes"
            grep -E -m 3 'ERROR|SUMMARY|runtime error|deadly signal' "$log" | sed 's/^/    /' || true
            tail -n 25 "$log" | sed 's/^/    /'
        } >"$work/$name.line"
        describe_failure "$name" "$status" "$log" "$crashes" >"$work/$name.failure"
    fi
}

names=()
while read -r name seeds; do
    [[ -n $name ]] || continue
    if (( $# > 0 )) && [[ " $* " != *" $name "* ]]; then
        continue
    fi
    [[ -x $build/tests/fuzz/$name ]] || fail "fuzz target '$name' is not built" "$build/tests/fuzz/$name is not there" \
        "cmake --build '$build' --target fuzz_targets"
    names+=("$name")
    while (( $(jobs -rp | wc -l) >= jobs )); do
        wait -n || true
    done
    # shellcheck disable=SC2086  # seeds is a list of words
    run_target "$name" $seeds &
done <"$list"
(( ${#names[@]} > 0 )) || fail "nothing to run" "no target is called: $*" "see $list for the names"
wait

echo "fuzz: ${#names[@]} target(s), $seconds s each"
failed=0
for name in "${names[@]}"; do
    cat "$work/$name.line"
    [[ $(cat "$work/$name.result") == ok ]] || failed=$(( failed + 1 ))
    if [[ -f $work/$name.failure ]]; then cat "$work/$name.failure" >>"$build/fuzz_failures.txt"; fi
done
if (( failed > 0 )); then
    echo "fuzz: $failed of ${#names[@]} FAILED"
    exit 1
fi
echo "fuzz: no crash, hang or leak in ${#names[@]} target(s)"

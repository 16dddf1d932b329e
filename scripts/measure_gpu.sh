#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks and measures the GPU engine on the GPUs of this machine: what docs/cuda.md quotes comes from here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
source scripts/common.sh

usage() {
    cat <<'TEXT'
usage: scripts/measure_gpu.sh [--build DIR] [--out DIR] [tests] [bench] [speed] [sanitize] [loop]

Runs the sections named, or all of them, with what is built in DIR (default: build), and writes their output to --out (default: gpu-results):
  tests     cuda_matrix_tests, cuda_attention_tests, cuda_collective_tests, cuda_engine_tests
  bench     cuda_matrices_bench, cuda_attention_bench, cuda_collectives_bench (with two GPUs or more also without peer access)
  speed     draftboard run over big models' shapes with random weights, each operation beside the read ceiling
  sanitize  compute-sanitizer's memcheck and racecheck over the engine's small tests
  loop      draftboard calibrate --device cuda, then draftboard validate h200-1 with what it found
Build first: cmake --build build --target all cuda_matrices_bench cuda_attention_bench cuda_collectives_bench
TEXT
}

build=build
out=gpu-results
sections=()
while (( $# > 0 )); do
    case $1 in
        --help | -h) usage; exit 0 ;;
        --build) build=${2:?}; shift ;;
        --out) out=${2:?}; shift ;;
        tests | bench | speed | sanitize | loop) sections+=("$1") ;;
        *) die "unknown argument '$1'" "the sections are tests, bench, speed, sanitize and loop" "see scripts/measure_gpu.sh --help" 2 ;;
    esac
    shift
done
(( ${#sections[@]} > 0 )) || sections=(tests bench speed sanitize loop)
chosen() { [[ " ${sections[*]} " == *" $1 "* ]]; }
mkdir -p "$out"

gpus=$({ nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null || true; } | grep -c . || true)
(( gpus > 0 )) || die "no GPU was found" "nvidia-smi lists none" "run this on a machine with one" 3
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv >"$out/machine.txt"
failed=()

# keep NAME COMMAND...: output to a file, the outcome to the terminal.
keep() {
    local name=$1 status=0
    shift
    "$@" >"$out/$name.txt" 2>&1 || status=$?
    say "$name: $([[ $status == 0 ]] && echo ok || echo "FAILED ($status)") (${SECONDS} s)"
    [[ $status == 0 ]] || failed+=("$name")
}

if chosen tests; then
    for name in cuda_matrix_tests cuda_attention_tests cuda_collective_tests cuda_engine_tests; do
        DRAFTBOARD_TEST_REPETITIONS=${DRAFTBOARD_TEST_REPETITIONS:-2000} keep "$name" "$build/tests/$name" --gtest_brief=1
    done
    grep -h "share of the tolerance\|median row" "$out/cuda_engine_tests.txt" || true
fi
if chosen bench; then
    keep cuda_matrices_bench "$build/tests/cuda_matrices_bench"
    keep cuda_attention_bench "$build/tests/cuda_attention_bench"
    if (( gpus > 1 )); then
        keep cuda_collectives_bench "$build/tests/cuda_collectives_bench" --ranks "$gpus"
        keep cuda_collectives_bench_no_peer "$build/tests/cuda_collectives_bench" --ranks "$gpus" --no-peer
    else
        keep cuda_collectives_bench "$build/tests/cuda_collectives_bench" --ranks 2 --share
    fi
fi
if chosen speed; then
    tokens=$(mktemp)
    trap 'rm -f "$tokens"' EXIT
    seq -s ' ' 1 64 >"$tokens"
    speed() {
        local name=$1
        shift
        keep "$name" "$build/cli/draftboard" run --device cuda --bf16 --bf16-cache --tokens-file "$tokens" --max-tokens 96 --operations "$@"
    }
    speed plain_qwen3_30b --synthetic qwen3-30b
    speed verify4_qwen3_30b --synthetic qwen3-30b --speculation scripted --rates 0.7,0.6,0.5
    speed plain_kimi_tp8 --synthetic kimi-k2.5 --tp-rank-of 8 --layers 6
    speed verify4_kimi_tp8 --synthetic kimi-k2.5 --tp-rank-of 8 --layers 6 --speculation scripted --rates 0.7,0.6,0.5
    speed plain_qwen35_tp8 --synthetic qwen3.5-397b --tp-rank-of 8 --layers 8
    for name in plain_qwen3_30b verify4_qwen3_30b plain_kimi_tp8 verify4_kimi_tp8 plain_qwen35_tp8; do
        echo "-- $name"
        grep -h "tok/s over\|^cycle\|at the ceiling" "$out/$name.txt" || true
    done
fi
if chosen sanitize; then
    command -v compute-sanitizer >/dev/null || die "compute-sanitizer is not installed" "it comes with CUDA" "install the toolkit" 3
    small='*kimi_k2_int4*:*qwen3_5_moe_published*:*deepseek_v3_no_qlora*'
    for tool in memcheck racecheck; do
        keep "sanitize_$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 "$build/tests/cuda_engine_tests" \
            --gtest_filter="$small" --gtest_brief=1
    done
fi

if chosen loop; then
    calibration=$out/h200.json
    keep calibrate "$build/cli/draftboard" calibrate --device cuda -o "$calibration"
    [[ -f $calibration ]] || keep calibrate_resumed "$build/cli/draftboard" calibrate --device cuda -o "$calibration" --resume
    keep validation "$build/cli/draftboard" validate h200-1 --device cuda --calibration "$calibration" -o "$out/validation.html"
fi

if (( ${#failed[@]} > 0 )); then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
echo "all sections passed: ${sections[*]}"

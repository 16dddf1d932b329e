#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh clone to the first answer: packages, build, prediction of the founding scenario; then the whole loop on this
# machine's CPU: calibrate, run, predicted against measured.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
source scripts/common.sh

usage() {
    cat <<'TEXT'
usage: scripts/quickstart.sh [--no-install] [--no-cpu] [--jobs N]

Installs the missing Debian packages, builds the command line in build/, and predicts the shipped
scenario kimi-k2.5-eagle3-founding. Then it calibrates the CPU engine at this machine, runs a tiny model with and without
speculation, and holds predictions against runs (some two minutes). No GPU and no CUDA is needed.
  --no-install  install nothing; the packages of 'scripts/packages.sh build' have to be there
  --no-cpu      stop after the prediction
  --jobs N      compile N files at a time (default: one a core, less where memory is short)
TEXT
}

scenario=kimi-k2.5-eagle3-founding
install=1
cpu=1
jobs=$(default_jobs)
while (( $# > 0 )); do
    case $1 in
        --help | -h) usage; exit 0 ;;
        --no-install) install=0 ;;
        --no-cpu) cpu=0 ;;
        --jobs) jobs=${2:-}; check_jobs "$jobs"; shift ;;
        *) die "unknown argument '$1'" "quickstart.sh knows --no-install, --no-cpu and --jobs" "see scripts/quickstart.sh --help" 2 ;;
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
(( cpu )) || exit 0

draftboard=build/cli/draftboard
calibration=build/here.json
report=build/validation.html
say "calibrate: $draftboard calibrate --device cpu --quick -o $calibration  (${SECONDS} s since the start)"
"$draftboard" calibrate --device cpu --quick -o "$calibration" > build/calibrate.txt ||
    die "the calibration failed with exit status $?" "see its message above" "run it by itself, with --resume" 1
say "run: $draftboard run tiny-kimi, plain and with its EAGLE-3 head  (${SECONDS} s since the start)"
for speculation in none eagle3; do
    "$draftboard" run tiny-kimi --prompt "def main(" --max-tokens 64 --speculation "$speculation" ||
        die "the run failed with exit status $?" "see its message above" "run it by itself" 1
done
say "validate: $draftboard validate cpu-quick --calibration $calibration -o $report  (${SECONDS} s since the start)"
status=0
"$draftboard" validate cpu-quick --calibration "$calibration" -o "$report" || status=$?
# Exit 1 is a finding: predictions are off by more than the bound, as on a machine that is busy with something else.
(( status <= 1 )) || die "the validation failed with exit status $status" "see its message above" "run it by itself" "$status"
say "the report is $report  (${SECONDS} s since the start)"

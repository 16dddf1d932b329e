#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks the reference fixtures, for ctest: the formulas against them, the fixtures against transformers, the trained models against transformers.
# Usage: test_reference.sh [formulas|fixtures|trained ...]   (all three when none is named)
# PYTHON names the interpreter. Exit 0 all good, 1 a finding, 77 where what a check needs is absent and nothing else is wrong.
set -u
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
command -v "$python" >/dev/null 2>&1 || { echo "no $python" >&2; exit 77; }
# Nothing is written beside the sources, and nothing is fetched.
export PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1

has_torch() {
    "$python" -c 'import torch, transformers, safetensors' 2>/dev/null ||
        { echo "torch or transformers is absent: $1 not checked" >&2; return 1; }
}

formulas() { "$python" "$here/check_formulas.py" --faults; }
fixtures() { has_torch fixtures || return 77; "$python" "$here/make_fixtures.py" --check; }
trained() {
    [ -d "$here/../../data/models" ] || { echo "no trained models here" >&2; return 77; }
    has_torch "trained models" || return 77
    "$python" "$here/check_trained.py"
}

[ $# -gt 0 ] || set -- formulas fixtures trained
status=0
for check in "$@"; do
    case $check in
        formulas | fixtures | trained) ;;
        *) echo "unknown check: $check" >&2; exit 2 ;;
    esac
    "$check"
    result=$?
    if [ $result -eq 77 ]; then
        [ $status -ne 0 ] || status=77
    elif [ $result -ne 0 ]; then
        status=1
    fi
done
exit $status

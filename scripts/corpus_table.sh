#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the importers make of a folder of tool outputs, as a markdown table on stdout.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'TEXT'
usage: scripts/corpus_table.sh FOLDER...

Runs `draftboard machine import FILE --json --quiet` on every file below the folders and prints a row
each: file, format, result, GPUs, path types, warnings or the error. DRAFTBOARD names the program
(default: build/cli/draftboard beside this script, else the one on the PATH).
TEXT
}

case ${1:-} in
    "") usage >&2; exit 2 ;;
    --help | -h) usage; exit 0 ;;
esac
command -v python3 >/dev/null || die "python3 is missing" "the table is cut from JSON with it" \
    "install the package python3" 3
program=${DRAFTBOARD:-}
for candidate in "$(dirname "${BASH_SOURCE[0]}")/../build/cli/draftboard" draftboard; do
    [[ -n $program ]] || program=$(command -v "$candidate" || true)
done
[[ -n $program ]] || die "there is no draftboard program" "neither build/cli nor the PATH has it" \
    "build the target draftboard, or set DRAFTBOARD" 3

errors=$(mktemp)
trap 'rm -f "$errors"' EXIT

echo '| file | format | result | GPUs | paths | warnings or error |'
echo '|---|---|---|---|---|---|'
find "$@" -type f | sort | while IFS= read -r file; do
    short=$(basename "$(dirname "$file")")/$(basename "$file")
    # An error leaves stdout empty; the first line of stderr says what and where.
    { "$program" machine import "$file" --json --quiet 2>"$errors" || true; } |
        python3 -c '
import json, sys
short, path, errors = sys.argv[1:4]
clean = lambda text: text.replace("|", "/").replace("\n", " ")
text = sys.stdin.read()
if not text.strip():
    lines = open(errors, encoding="utf-8", errors="replace").read().splitlines() or ["no message"]
    reason = lines[0].replace("error: ", "", 1).replace(path + ":", "line ")
    print(f"| {short} | | refused | | | {clean(reason)} |")
    raise SystemExit
report = json.loads(text)
order = ["NV", "PIX", "PXB", "PHB", "NODE", "SYS"]
seen = {"NV" if pair.get("nvlinks") else pair["path"] for pair in report.get("pairs", [])}
paths = " ".join(name for name in order if name in seen)
warnings = clean("; ".join(report["warnings"]))
count, form = report["gpu"]["count"], report["imported_as"]
print(f"| {short} | {form} | read | {count} | {paths} | {warnings} |")
' "$short" "$file" "$errors"
done

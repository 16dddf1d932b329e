#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes the tables of docs/backtest.md anew from a table of published cells.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'TEXT'
usage: scripts/backtest_report.sh PUBLISHED.csv [PAGE.md]

Runs `draftboard backtest PUBLISHED.csv` and puts its groups, skipped rows and worst cells between the two
markers of PAGE.md (default: docs/backtest.md). DRAFTBOARD names the program (default: build/cli/draftboard
beside this script, else the one on the PATH).
TEXT
}

case ${1:-} in
    "") usage >&2; exit 2 ;;
    --help | -h) usage; exit 0 ;;
esac
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
table=$1
page=${2:-$here/../docs/backtest.md}
[[ -r $table ]] || die "$table can't be read" "the published cells are read from it" "name a CSV file" 2
grep -q '^<!-- generated: begin -->$' "$page" && grep -q '^<!-- generated: end -->$' "$page" ||
    die "$page has no markers" "the tables are put between two of them" \
        "add the lines '<!-- generated: begin -->' and '<!-- generated: end -->'" 2
program=${DRAFTBOARD:-}
for candidate in "$here/../build/cli/draftboard" draftboard; do
    [[ -n $program ]] || program=$(command -v "$candidate" || true)
done
[[ -n $program ]] || die "there is no draftboard program" "neither build/cli nor the PATH has it" \
    "build the target draftboard, or set DRAFTBOARD" 3

new=$(mktemp)
trap 'rm -f "$new"' EXIT
sed '/^<!-- generated: begin -->$/q' "$page" >"$new"
{
    echo '```'
    "$program" backtest "$table" --worst 12 --quiet | cut -c1-170 | sed 's/ *$//'
    echo '```'
} >>"$new"
sed -n '/^<!-- generated: end -->$/,$p' "$page" >>"$new"
cat "$new" >"$page"
say "$page is written"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes docs/plan_of_levers.md: the founding cases' plans, and predicted gains beside published before/after pairs.
#   scripts/plan_of_levers.sh PUBLISHED_FOLDER     (holds levers.csv and decode_grid.csv)
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
published=${1:-}
[[ -f $published/levers.csv && -f $published/decode_grid.csv ]] ||
    die "no tables in '$published'" "levers.csv and decode_grid.csv are needed" "usage: scripts/plan_of_levers.sh PUBLISHED_FOLDER" 2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
draftboard=$root/build/cli/draftboard
page=$root/docs/plan_of_levers.md
# A plan's summary: everything down to the single levers, headings one deeper.
summary() { "$draftboard" plan "$1" --quiet --markdown - | sed '/^## Each lever/,$d; s/^#/##/'; }
{
    echo "# Plans of levers"
    echo
    echo "Made by \`scripts/plan_of_levers.sh\`; do not edit. How gains and probabilities come about is in [optimisation.md](optimisation.md)."
    echo "\`draftboard plan SCENARIO -o plan.md\` gives each lever's flags, risk and evidence too."
    echo
    for scenario in kimi-k2.5-eagle3-founding kimi-k2.5-ngram-founding qwen3.5-397b-founding; do summary "$scenario"; done
    echo
    echo "## Held against published pairs"
    echo
    echo "Somebody measured before and after. Both sides are predicted with the constants that \`draftboard backtest\` uses, from the publisher's"
    echo "words alone; the rules stand in \`planning/published_levers.cpp\`. Part of the tables' rows was kept back when rules and"
    echo "constants were made. Intervals hold the scatter of two measurements."
    echo
    "$draftboard" plan --against-published "$published/levers.csv" --grid "$published/decode_grid.csv" --quiet --markdown - | tail -n +3 | sed 's/^#/##/'
} >"$page"
say "written: docs/plan_of_levers.md"

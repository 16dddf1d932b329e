#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Draws every view of the desktop, in both themes and two sizes, off-screen; with --docs the pictures of README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
source scripts/common.sh

usage() {
    cat <<'TEXT'
usage: scripts/screenshots.sh [--docs] [DIRECTORY]

Writes VIEW-THEME-SIZE.png for every view into DIRECTORY (default screenshots/). Needs build/gui/draftboard-gui, no display.
  --docs   instead, writes the pictures that README.md and docs/desktop.md show, into docs/pictures
TEXT
}

docs=0
directory=screenshots
for argument in "$@"; do
    case $argument in
        --help | -h) usage; exit 0 ;;
        --docs) docs=1 ;;
        -*) die "unknown option '$argument'" "screenshots.sh knows --docs" "see scripts/screenshots.sh --help" 2 ;;
        *) directory=$argument ;;
    esac
done
binary=build/gui/draftboard-gui
[[ -x $binary ]] || die "no program '$binary'" "it is not built" "scripts/packages.sh --install gui, then build" 3
export QT_QPA_PLATFORM=offscreen
export QT_LOGGING_RULES='*.debug=false;qt.qpa.*=false'

# shot VIEW THEME SIZE FILE [OPTION...]
shot() { "$binary" founding-case --view "$1" --theme "$2" --size "$3" --screenshot "$4" "${@:5}" 2>/dev/null; }

if (( docs )); then
    mkdir -p docs/pictures
    shot waterfall light 1280x800 docs/pictures/waterfall.png --small
    shot timeline dark 1280x800 docs/pictures/timeline.png --range 10:10.8 --small
    say "pictures written to docs/pictures"
    exit 0
fi
mkdir -p "$directory"
# The program names its views when it is asked for one that does not exist.
views=$("$binary" --view '?' --screenshot /dev/null 2>&1 | sed -n 's/.*there are //p' | tr -d ',' || true)
count=0
for view in $views; do
    for theme in light dark; do
        for size in 1280x800 2560x1440; do
            shot "$view" "$theme" "$size" "$directory/$view-$theme-$size.png"
            count=$(( count + 1 ))
        done
    done
done
(( count > 0 )) || die "no picture" "the program named no view" "run $binary --view '?' by hand"
say "$count pictures written to $directory"

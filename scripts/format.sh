#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks, or applies, the layout of .clang-format to the C++ files; with --tidy, runs clang-tidy too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
source scripts/common.sh

usage() {
    cat <<'TEXT'
usage: scripts/format.sh [--fix | --tidy] [FILE...]

Lists the C++ files (those named, else all that git knows) whose layout differs from .clang-format; exit 1 if any does.
  --fix   rewrites them instead
  --tidy  runs clang-tidy with .clang-tidy over the .cpp files instead (slow; needs a configured build/)
TEXT
}

action=check
files=()
for argument in "$@"; do
    case $argument in
        --help | -h) usage; exit 0 ;;
        --fix) action=fix ;;
        --tidy) action=tidy ;;
        -*) die "unknown option '$argument'" "format.sh knows --fix and --tidy" "see scripts/format.sh --help" 2 ;;
        *)
            [[ -f $argument ]] || die "no file '$argument'" "names are relative to the repository" "check the path" 2
            files+=("$argument") ;;
    esac
done
(( ${#files[@]} > 0 )) || mapfile -t files < <(git ls-files -- '*.cpp' '*.h')

tool=clang-format
[[ $action != tidy ]] || tool=clang-tidy
command -v "$tool" >/dev/null ||
    die "$tool is not installed" "it is in the list 'lint'" "scripts/packages.sh --install lint" 3

if [[ $action == fix ]]; then
    clang-format -i "${files[@]}"
    exit 0
fi

if [[ $action == tidy ]]; then
    [[ -f build/compile_commands.json ]] ||
        die "build/compile_commands.json is not there" "clang-tidy needs the compile commands" "cmake --preset release" 3
    units=()
    for file in "${files[@]}"; do
        if [[ $file == *.cpp ]] && grep -qF "/$file\"" build/compile_commands.json; then
            units+=("$file")
        fi
    done
    (( ${#units[@]} > 0 )) || die "nothing to check" "no file named is compiled in build/" "name a .cpp file of the build" 2
    printf '%s\0' "${units[@]}" | xargs -0 -n 1 -P "$(default_jobs)" clang-tidy --quiet -p build
    exit 0
fi

differing=()
for file in "${files[@]}"; do
    clang-format --dry-run --Werror "$file" 2>/dev/null || differing+=("$file")
done
if (( ${#differing[@]} > 0 )); then
    printf '%s\n' "${differing[@]}"
    say "${#differing[@]} of ${#files[@]} files differ from .clang-format; scripts/format.sh --fix FILE... rewrites them"
    exit 1
fi
say "layout: ${#files[@]} files are as .clang-format says"

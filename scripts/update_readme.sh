#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts the present output of commands into README.md, between its markers:
#   <!-- output of: draftboard ARGUMENTS -->  ...  <!-- end of output -->
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
source scripts/common.sh

usage() {
    cat <<'TEXT'
usage: scripts/update_readme.sh [--check] [BINARY]

Runs BINARY (default build/cli/draftboard) for each marker in README.md and replaces the text below it.
  --check  changes nothing; exit 1 if README.md does not show what the binary prints
TEXT
}

check=0
binary=build/cli/draftboard
for argument in "$@"; do
    case $argument in
        --help | -h) usage; exit 0 ;;
        --check) check=1 ;;
        -*) die "unknown option '$argument'" "update_readme.sh knows --check" "see scripts/update_readme.sh --help" 2 ;;
        *) binary=$argument ;;
    esac
done
[[ -x $binary ]] || die "no program '$binary'" "it is not built" "scripts/quickstart.sh" 3

begin='<!-- output of: draftboard '
end='<!-- end of output -->'
updated=$(mktemp)
trap 'rm -f "$updated"' EXIT
inside=0
count=0
while IFS= read -r line || [[ -n $line ]]; do
    if [[ $line == "$begin"* ]]; then
        (( ! inside )) || die "two markers without an end between them" "README.md: $line" "add '$end'" 2
        inside=1
        count=$(( count + 1 ))
        arguments=${line#"$begin"}
        arguments=${arguments%' -->'}
        read -ra words <<<"$arguments"
        status=0
        output=$("$binary" "${words[@]}") || status=$?
        { (( status <= 1 )) && [[ -n $output ]]; } ||
            die "'draftboard $arguments' gave nothing to show" "it ended with status $status" "run it by hand"
        # shellcheck disable=SC2016  # the backquotes are Markdown's
        printf '%s\n```\n$ build/cli/draftboard %s\n%s\n```\n' "$line" "$arguments" "$output" >>"$updated"
    elif [[ $line == "$end" ]]; then
        (( inside )) || die "an end of output without its beginning" "README.md" "add '$begin... -->'" 2
        inside=0
        printf '%s\n' "$line" >>"$updated"
    elif (( ! inside )); then
        printf '%s\n' "$line" >>"$updated"
    fi
done <README.md
(( ! inside )) || die "a marker without an end" "README.md" "add '$end'" 2
(( count > 0 )) || die "no marker" "README.md has no line '$begin... -->'" "add one" 2

if cmp -s README.md "$updated"; then
    say "README.md shows what the program prints ($count blocks)"
elif (( check )); then
    diff -u README.md "$updated" >&2 || true
    die "README.md is out of date" "the program prints something else" "scripts/update_readme.sh"
else
    cat "$updated" >README.md
    say "README.md: $count blocks taken from $binary"
fi

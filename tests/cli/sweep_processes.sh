#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One grid, computed by 1, 2 and 4 processes, and by one that is killed ten times: the same file each time.
#   sweep_processes.sh DRAFTBOARD (kills | mpi)
set -euo pipefail
draftboard=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# shellcheck disable=SC2054  # the comma belongs to a value
grid=(kimi-k2.5-eagle3-founding --vary speculation.steps=1..8 --vary workload.concurrency=1..32:*2
      --vary workload.context_tokens=256..131072:*2 --vary engine.launch.verify=eager,graph)
sweep() { "$draftboard" sweep "${grid[@]}" --quiet "$@" >/dev/null; }
same() { cmp "$folder/reference.$2" "$1" || { echo "FAILED: $1 differs"; exit 1; }; }

for kind in csv sqlite; do sweep -o "$folder/reference.$kind"; done

if [[ $2 == kills ]]; then
    RANDOM=20
    for kind in csv sqlite; do
        out=$folder/killed.$kind
        kills=0
        for ((attempt = 0; attempt < 200 && kills < 10; ++attempt)); do
            "$draftboard" sweep "${grid[@]}" --quiet -o "$out" --threads $((1 + RANDOM % 3)) >/dev/null &
            worker=$!
            sleep "0.0$((20 + RANDOM % 70))"
            if kill -9 "$worker" 2>/dev/null; then kills=$((kills + 1)); fi
            wait "$worker" 2>/dev/null || true
            if [[ -e $out ]]; then
                same "$out" $kind
                rm "$out"  # too fast for the kill: again from nothing
            fi
        done
        (( kills == 10 )) || { echo "FAILED: killed only $kills times"; exit 1; }
        sweep -o "$out"
        same "$out" $kind
        [[ ! -e $out.part ]] || { echo "FAILED: $out.part is still there"; exit 1; }
        echo "$kind: killed $kills times, the same file"
    done
    exit 0
fi

export ASAN_OPTIONS=detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}  # MPI keeps what it has until the process ends
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_rmaps_base_oversubscribe=1
start=(mpirun --oversubscribe)
(( EUID != 0 )) || start+=(--allow-run-as-root)
for processes in 1 2 4; do
    for kind in csv sqlite; do
        out=$folder/$processes.$kind
        "${start[@]}" -n "$processes" "$draftboard" sweep "${grid[@]}" --threads 1 --quiet -o "$out" >/dev/null
        same "$out" $kind
    done
    echo "$processes processes: the same file"
done
# A process that is killed ends the others; started again, even with another number of them, they go on.
out=$folder/killed.csv
for processes in 2 3 4; do
    "${start[@]}" -n "$processes" "$draftboard" sweep "${grid[@]}" --threads 1 --quiet -o "$out" >/dev/null 2>&1 &
    launcher=$!
    sleep 0.5
    victim=$(pgrep -P "$launcher" | tail -1 || true)
    [[ -z $victim ]] || kill -9 "$victim" 2>/dev/null || true
    wait "$launcher" 2>/dev/null || true
done
[[ -e $out ]] || sweep -o "$out"
same "$out" csv
echo "processes killed: the same file"
# The error of one is the error of all.
if "${start[@]}" -n 2 "$draftboard" sweep no-such-scenario --vary seed=1,2 -o "$folder/x.csv" 2>"$folder/error"; then
    echo "FAILED: an unknown scenario was swept"; exit 1
fi
grep -q no-such-scenario "$folder/error" || { echo "FAILED: the message is lost"; exit 1; }

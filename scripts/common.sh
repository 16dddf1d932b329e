# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the scripts in this folder share: messages, the number of parallel jobs, becoming root for apt.
# It is sourced and never run. It installs nothing by itself: see packages.sh.

# Progress on stderr, so that stdout stays free for results.
say() { printf '== %s\n' "$*" >&2; }

# die WHAT WHY WHAT-TO-DO [EXIT]: the three sentences of every error.
die() {
    printf 'error: %s\n  why: %s\n  do:  %s\n' "$1" "$2" "$3" >&2
    exit "${4:-1}"
}

# One job a core, but no more than one for each 1.5 GiB of free memory: a heavy C++ file takes about 1 GiB.
default_jobs() {
    local cores kib jobs
    cores=$(nproc 2>/dev/null || echo 1)
    kib=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo 2>/dev/null || true)
    jobs=$cores
    if [[ -n $kib ]] && (( kib / 1572864 < cores )); then
        jobs=$(( kib / 1572864 ))
    fi
    (( jobs >= 1 )) || jobs=1
    echo "$jobs"
}

# Runs a command as root: directly, or through sudo.
as_root() {
    if (( EUID == 0 )); then
        "$@"
    elif command -v sudo >/dev/null; then
        # sudo drops the environment, so that the apt settings go through env.
        sudo env DEBIAN_FRONTEND=noninteractive "$@"
    else
        die "packages have to be installed, and this user can't do it" \
            "the user is not root and there is no sudo" \
            "run 'scripts/packages.sh build test fuzz' to see the list, and let an administrator install it" 3
    fi
}

# check_jobs TEXT: the value of --jobs.
check_jobs() {
    [[ $1 =~ ^[1-9][0-9]{0,3}$ ]] ||
        die "--jobs '$1' is not a count" "it has to be a whole number from 1 to 9999" "for example: --jobs 2" 2
}

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Debian packages that Draftboard needs, by purpose: the only list of them.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'TEXT'
usage: scripts/packages.sh [--missing | --install] PURPOSE...

Prints the Debian 12 packages for each PURPOSE, one a line.
  build      compile the library and the command line
  test       compile and run the tests
  fuzz       compile and run the fuzz targets (clang)
  optional   tests against other simulators, left out where the package is absent
  lint       scripts/format.sh and shellcheck

  --missing  print only those that are not installed
  --install  install those that are not installed, with apt-get (root, or sudo)
TEXT
}

packages_of() {
    case $1 in
        build) echo "g++ cmake ninja-build pkg-config nlohmann-json3-dev libcli11-dev libfmt-dev
                     libexpected-dev libboost-dev libpugixml-dev libre2-dev libhwloc-dev
                     libeigen3-dev libspdlog-dev libhwy-dev libsqlite3-dev" ;;
        test) echo "libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev" ;;
        fuzz) echo "clang libclang-rt-14-dev" ;;
        optional) echo "libsimgrid-dev" ;;
        lint) echo "clang-format clang-tidy shellcheck" ;;
        *) die "unknown purpose '$1'" "the list knows build, test, fuzz, optional and lint" \
               "see scripts/packages.sh --help" 2 ;;
    esac
}

installed() {
    [[ $(dpkg-query -W -f='${Status}' "$1" 2>/dev/null || true) == 'install ok installed' ]]
}

action=print
purposes=()
for argument in "$@"; do
    case $argument in
        --help | -h) usage; exit 0 ;;
        --missing) action=missing ;;
        --install) action=install ;;
        -*) die "unknown option '$argument'" "only --missing and --install exist" "see scripts/packages.sh --help" 2 ;;
        *) purposes+=("$argument") ;;
    esac
done
(( ${#purposes[@]} > 0 )) || { usage >&2; exit 2; }

packages=()
for purpose in "${purposes[@]}"; do
    list=$(packages_of "$purpose")
    for package in $list; do
        packages+=("$package")
    done
done

if [[ $action == print ]]; then
    printf '%s\n' "${packages[@]}"
    exit 0
fi

command -v dpkg-query >/dev/null ||
    die "this is not a Debian system" "dpkg-query is not there" \
        "install the equivalents of: ${packages[*]}; then build with cmake as README.md says" 3
missing=()
for package in "${packages[@]}"; do
    installed "$package" || missing+=("$package")
done
if [[ $action == missing ]]; then
    (( ${#missing[@]} == 0 )) || printf '%s\n' "${missing[@]}"
    exit 0
fi

if (( ${#missing[@]} == 0 )); then
    say "packages: nothing to install"
    exit 0
fi
say "packages: installing ${#missing[@]}: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt_options=(-o Acquire::Retries=3 -o DPkg::Lock::Timeout=120)
as_root apt-get "${apt_options[@]}" -qq update >&2 ||
    die "apt-get update failed" "the package lists could not be fetched" \
        "check the network and /etc/apt/sources.list" 3
as_root apt-get "${apt_options[@]}" -qq -y --no-install-recommends -o Dpkg::Use-Pty=0 install "${missing[@]}" >&2 ||
    die "apt-get install failed" "see apt's own message above" \
        "on a release other than Debian 12 names may differ: ${missing[*]}" 3

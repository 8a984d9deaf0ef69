# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Functions of scripts/quickstart and scripts/check: output, packages, build. Source this file, do
# not run it.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$top/build

# The Debian packages that the build needs, each with what detects it: a command, a header, or a
# module of pkg-config or Python. apt is used only if one is missing.
needs=(
    "gcc                cmd gcc"
    "libc6-dev          inc stdio.h"
    "make               cmd make"
    "autoconf           cmd autoconf"
    "automake           cmd automake"
    "libtool            cmd libtoolize"
    "pkg-config         cmd pkg-config"
    "libnng-dev         inc nng/nng.h"
    "libev-dev          inc ev.h"
    "libssl-dev         pkg openssl"
    "libseccomp-dev     pkg libseccomp"
    "libprotobuf-c-dev  pkg libprotobuf-c"
    "protobuf-c-compiler cmd protoc-c"
    "libopenblas-dev    pkg openblas"
    "libyaml-dev        pkg yaml-0.1"
    "libjansson-dev     pkg jansson"
    "libmxml-dev        pkg mxml"
    "libxml2-dev        pkg libxml-2.0"
    "libsmartcols-dev   pkg smartcols"
    "libncurses-dev     pkg ncurses"
    "libmicrohttpd-dev  pkg libmicrohttpd"
    "check              pkg check"
)

say() { printf '==> %s\n' "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

have() { # KIND NAME
    case $1 in
    cmd) command -v "$2" >/dev/null 2>&1 ;;
    inc) printf '#include <%s>\n' "$2" | cc -E -x c - >/dev/null 2>&1 ;;
    pkg) pkg-config --exists "$2" >/dev/null 2>&1 ;;
    py) python3 -c "import $2" >/dev/null 2>&1 ;;
    esac
}

packages_missing() {
    local need package kind name
    for need in "${needs[@]}"; do
        read -r package kind name <<<"$need"
        have "$kind" "$name" || printf '%s\n' "$package"
    done
}

packages_install() {
    local missing sudo=()
    mapfile -t missing < <(packages_missing)
    ((${#missing[@]})) || return 0
    command -v apt-get >/dev/null 2>&1 ||
        die "missing: ${missing[*]} (Debian names); there is no apt-get here, install them by other means"
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null 2>&1 ||
            die "missing: ${missing[*]}; run as root: apt-get install ${missing[*]}"
        sudo=(sudo)
    fi
    say "installing ${missing[*]} (apt-get${sudo:+ through sudo})"
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq update ||
        say "apt-get update failed; trying with the package lists that are there"
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install -y --no-install-recommends "${missing[@]}" >"$build/install.log" 2>&1 ||
        { tail -n 20 "$build/install.log" >&2; die "apt-get could not install ${missing[*]}"; }
}

# Runs a command with its output in a file. If it fails, prints the end of the file and exits.
step() { # LOG COMMAND...
    local log=$build/$1
    shift
    "$@" >"$log" 2>&1 || { tail -n 40 "$log" >&2; die "failed: $* (all of it: $log)"; }
}

jobs_wanted() { nproc 2>/dev/null || echo 2; }
# Most tests wait most of the time, so three run for each core.
tests_wanted() { echo $(($(jobs_wanted) * 3)); }

# Configures if needed, and builds.
build_all() { # CONFIGURE-OPTIONS...
    local cc=gcc
    command -v ccache >/dev/null 2>&1 && cc="ccache gcc"
    cd "$build" || exit 1
    if [ ! -x "$top/configure" ]; then
        say "generating configure"
        step autoreconf.log autoreconf -fi "$top"
    fi
    if [ ! -f Makefile ]; then
        say "configuring in build/"
        step configure.log "$top/configure" CC="${CC:-$cc}" "$@"
    fi
    say "building in build/ with $(jobs_wanted) jobs"
    step make.log make -j"$(jobs_wanted)"
}

# Prints the compute capabilities of this machine's GPUs from 8.0 up, as "80 90"; nothing without
# such a GPU.
gpu_archs() {
    nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
        grep -x '[0-9.]*' | tr -d . | awk '$1 >= 80' | sort -un | paste -sd ' '
}

set_up() { # CONFIGURE-OPTIONS...
    mkdir -p "$build" || die "cannot create $build"
    packages_install
    build_all "$@"
}

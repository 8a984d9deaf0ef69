#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installed files need no symbol newer than glibc 2.34, so that they run on RHEL 9 and Ubuntu 22.04. Checks the
# versions of symbols in the build. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
newest=2.34

# Prints "SYMBOL GLIBC_x.y" for each undefined symbol of the file that is newer than $newest.
newer() { # FILE
    LC_ALL=C objdump -T "$1" | awk -v newest="$newest" '
        function after(a, b,    i, x, y) {
            split(a, x, "."); split(b, y, ".")
            for (i = 1; i <= 3; i++) if (x[i] + 0 != y[i] + 0) return x[i] + 0 > y[i] + 0
            return 0
        }
        $2 !~ /UND/ && !/\*UND\*/ { next }
        match($0, /GLIBC_[0-9.]+/) {
            version = substr($0, RSTART + 6, RLENGTH - 6)
            if (after(version, newest)) print $NF, "GLIBC_" version
        }'
}

# From glibc 2.38 on, the headers redirect ordinary functions (strtol) to new symbols
# (__isoc23_strtol, GLIBC_2.38).
headers=$(printf '#include <features.h>\n__GLIBC__ __GLIBC_MINOR__\n' | ${CC:-cc} -E -P - 2>/dev/null | tail -n 1)
redirects() {
    [ "${headers%% *}" != 2 ] || [ "${headers##* }" -ge 38 ]
}

if ! command -v objdump >/dev/null 2>&1; then
    tap_skip "symbols of the C library" "no objdump here"
elif redirects; then
    tap_skip "symbols of the C library" "built with glibc ${headers%% *}.${headers##* }, whose headers ask for newer symbols"
elif ldd "$top_builddir/cpattnd" 2>/dev/null | grep -qE 'lib[a-z]+san\.'; then
    tap_skip "symbols of the C library" "built with a sanitizer, whose library asks for more"
else
    for name in cpattnd cpattn-rank cpattn-rank-cuda cpattn-submit client/libcpattn.so \
        check/libcpattn-check.so check/libcpattn-check-cuda.so guest/libcpattn-guest.so; do
        file=$top_builddir/$(dirname "$name")/.libs/$(basename "$name")
        [ -f "$file" ] || file=$top_builddir/$name
        [ -f "$file" ] || continue # not built here
        tap_is "$name needs no newer glibc than $newest" "$(newer "$file")" ""
    done
    # newer() does find symbols: with an older limit it prints those of 2.34.
    newest=2.2
    tap_has "symbols are seen" "$(newer "$top_builddir/cpattnd")" "GLIBC_2.34"
fi
tap_done

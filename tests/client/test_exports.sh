#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# libcpattn.so exports exactly the functions of <cpattn.h>, <cpattn_answer.h> and <cpattn_watch.h>.
# libcpattn-check.so exports exactly the functions of <cpattn_check.h>, libcpattn-guest.so those of
# <cpattn_guest.h>. Together they export all names of tests/client/exported.txt with their versions.
# Each function is in the manual page of its header. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
library=$top_builddir/client/.libs/libcpattn.so
check_library=$top_builddir/check/.libs/libcpattn-check.so
guest_library=$top_builddir/guest/.libs/libcpattn-guest.so

exported_by() { # LIBRARY
    nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort
}

# Removes comments. Then each name cpattn_* before a parenthesis is a declared function.
declared_in() { # HEADER
    sed 's,//.*,,' "$1" | tr '\n' ' ' | sed 's,/\*[^*]*\*/,,g' |
        grep -o 'cpattn_[a-z0-9_]* *(' | tr -d ' (' | sort -u
}

exported=$(exported_by "$library")
declared=$(
    declared_in "$top_srcdir/client/cpattn.h"
    declared_in "$top_srcdir/client/cpattn_answer.h"
    declared_in "$top_srcdir/client/cpattn_watch.h"
)
check_exported=$(exported_by "$check_library")
check_declared=$(declared_in "$top_srcdir/check/cpattn_check.h")
guest_exported=$(exported_by "$guest_library")
guest_declared=$(declared_in "$top_srcdir/guest/cpattn_guest.h")

compare() { # NAME FIRST SECOND: fails if a line of FIRST is not in SECOND
    missing=$(printf '%s\n' "$2" | grep -vxF -e "$3")
    if [ -z "$missing" ]; then
        echo "ok $1"
    else
        echo "not ok $1"
        echo "$missing" | sed 's/^/# /'
    fi
}

echo "1..11"
if [ -n "$exported" ] && [ -n "$declared" ] && [ -n "$check_declared" ] && [ -n "$guest_declared" ]; then
    echo "ok 1 - there is something to compare"
else
    echo "not ok 1 - there is something to compare"
fi
compare "2 - every declared function is exported" "$declared" "$exported"
compare "3 - every exported symbol is declared" "$exported" "$declared"
versioned=$(nm -D --defined-only "$library" "$check_library" "$guest_library" |
    awk 'NF == 3 && $2 != "A" { print $3 }' | sort)
compare "4 - what was exported once still is, by the version it had" \
    "$(grep -v '^#' "$top_srcdir/tests/client/exported.txt")" "$versioned"
unexplained=
for name in $declared; do
    grep -q "^\.Fn $name\( \|\$\)" "$top_srcdir/doc/cpattn.3" || unexplained="$unexplained $name"
done
compare "5 - every declared function is in cpattn(3)" "$unexplained" ""
unexplained=
for name in $check_declared; do
    grep -q "^\.Fn $name\( \|\$\)" "$top_srcdir/doc/cpattn_check.3" || unexplained="$unexplained $name"
done
compare "6 - every declared function is exported by the check library" "$check_declared" "$check_exported"
compare "7 - and every exported symbol of it is declared" "$check_exported" "$check_declared"
compare "8 - and in cpattn_check(3)" "$unexplained" ""
unexplained=
for name in $guest_declared; do
    grep -q "^\.Fn $name\( \|\$\)" "$top_srcdir/doc/cpattn_guest.3" || unexplained="$unexplained $name"
done
compare "9 - every declared function is exported by the guest library" "$guest_declared" "$guest_exported"
compare "10 - and every exported symbol of it is declared" "$guest_exported" "$guest_declared"
compare "11 - and in cpattn_guest(3)" "$unexplained" ""

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# On machines with AMX: runs the tests of matrix products without AMX, on the BLAS. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
if "$top_builddir/tests/judge/test_amx" 'usable?'; then
    tap_skip "tests without AMX" "AMX is not used here: all tests run on the BLAS"
    tap_done
    exit 0
fi
without() { # PROGRAM [NAME=VALUE]...
    program=$1
    shift
    if output=$(env CPATTN_AMX=no CPATTN_RANDOM_CASES=60 CPATTN_RANDOM_ORDERS=2 "$@" \
        "$top_builddir/tests/$program" 2>&1); then
        tap_pass "$program without AMX"
    else
        tap_fail "$program without AMX" "$output"
    fi
}
for program in judge/test_expected kernels/test_attention judge/test_verify judge/test_rounding \
    rank/test_random_cases; do
    without "$program"
done
without rank/test_rank CK_RUN_CASE=verdicts
tap_done

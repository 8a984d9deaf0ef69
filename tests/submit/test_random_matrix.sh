#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Random cases as a matrix file, through the command and the daemon. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
# shellcheck source=tests/support/daemon.sh
. "$top_srcdir/tests/support/daemon.sh"
random_cases=$top_builddir/tests/rank/test_random_cases

"$random_cases" --matrix 100 >"$scratch/cases.yaml" 2>"$scratch/err"
tap_is "prints a matrix" "$?$(cat "$scratch/err")" 0
tap_is "the matrix has every case" "$("$submit" matrix --list "$scratch/cases.yaml" | grep -c '^seed-')" 100
"$random_cases" --matrix 100 1000 | sed -n 's/.*seqlen_q: .\([0-9]*\).*/\1/p' | sort -n | tail -n 1 >"$scratch/longest"
tap_is "the longest sequence" "$(cat "$scratch/longest")" 1000

daemon_start --backend cpu --devices 2
"$submit" matrix "$scratch/cases.yaml" >"$scratch/out" 2>&1
tap_is "exit status" "$?" 0
tap_has "all cases pass" "$(tail -n 1 "$scratch/out")" "100 cases: 100 passed"
daemon_stop

"$random_cases" --matrix ten >"$scratch/out" 2>&1
tap_is "a count that is no number" "$?" 2
"$random_cases" --matrix 10 99999999 >"$scratch/out" 2>&1
tap_is "a sequence that is too long" "$?" 2
tap_has "says what is accepted" "$(cat "$scratch/out")" "a number up to 8388608"
tap_done

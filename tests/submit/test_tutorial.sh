#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of doc/tutorial.md have the printed results. Prints TAP. The page uses the example installed by the
# packages; this test takes it from the source tree.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
# shellcheck source=tests/support/python.sh
. "$top_srcdir/tests/support/python.sh"
python_needs 'import numpy' numpy
python_libraries guest
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
examples=$top/examples
PATH=$(cd "$top_builddir" && pwd):$PATH
export PATH

awk '/^```sh$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$top_srcdir/doc/tutorial.md" |
    sed "s|/usr/share/doc/cpattnd/examples|$examples|" >"$scratch/page.sh"
told=$(cd "$scratch" && timeout 600 bash -m page.sh 2>&1)
tap_is "the page ends" "$?" 0
tap_has "the first case passes" "$told" "pass  bf16 bshd p2p w1 b2 h4 s200 d128 causal by mine"
tap_has "what it does not support is told" "$told" "exit status 76"
tap_has "all of the matrix pass" "$told" "8 cases: 8 passed in "
tap_has "and so does the script" "$told" "exit status 0"
tap_has "the broken kernel fails" "$told" "8 cases: 8 failed"
tap_has "with its diagnosis" "$told" "times what it should be (the scale of the softmax is missing)"
tap_has "and an exit status" "$told" "exit status 1"
tap_is "the failed cases are listed" "$(printf '%s\n' "$told" | tail -n 9 | grep -c '^ *\(mha\|gqa\)/')" 8
tap_is "the report is there" "$(grep -c '<html' "$scratch/report.html")" 1
tap_is "JUnit has the failures" "$(grep -o '<failure' "$scratch/results.xml" | wc -l | tr -d ' ')" 8
tap_has "the summary is Markdown" "$(cat "$scratch/summary.md")" "| "
tap_done

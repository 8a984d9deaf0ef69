#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of doc/tutorial.md have the printed results. Prints TAP. The page uses the example
# that the packages install; this test takes it from the source tree.
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
tap_is "all commands of the page run" "$?" 0
tap_has "case: verdict" "$told" "pass  bf16 bshd p2p w1 b2 h4 s200 d128 causal by mine"
tap_has "case: an unsupported option is refused" "$told" "exit status 76"
tap_has "matrix: all cases pass" "$told" "8 cases: 8 passed in "
tap_has "ci.sh: exit status" "$told" "exit status 0"
tap_has "broken kernel: cases fail" "$told" "8 cases: 8 failed"
tap_has "broken kernel: diagnosis" "$told" "times what it should be (the scale of the softmax is missing)"
tap_has "broken kernel: exit status of ci.sh" "$told" "exit status 1"
tap_is "broken kernel: --last-failed lists the cases" "$(printf '%s\n' "$told" | tail -n 9 | grep -c '^ *\(mha\|gqa\)/')" 8
tap_has "broken kernel: what changed" "$told" "beside good: 8 verdicts changed, 8 of them for the worse, 0 the same"
tap_is "broken kernel: report.html" "$(grep -c '<html' "$scratch/report.html")" 1
tap_is "broken kernel: results.xml" "$(grep -o '<failure' "$scratch/results.xml" | wc -l | tr -d ' ')" 8
tap_has "broken kernel: summary.md" "$(cat "$scratch/summary.md")" "| "
tap_done

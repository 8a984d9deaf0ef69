#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of doc/test-your-collective.md have the printed results. Prints TAP; skipped without PyTorch.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
# shellcheck source=tests/support/python.sh
. "$top_srcdir/tests/support/python.sh"
python_needs 'import torch.distributed as d; assert d.is_gloo_available()' 'PyTorch with gloo'
python_libraries guest check client
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
PATH=$(cd "$top_builddir" && pwd):$PATH
LD_LIBRARY_PATH=$(cd "$top_builddir" && pwd)/client/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PATH LD_LIBRARY_PATH
awk '/^```sh$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$top_srcdir/doc/test-your-collective.md" \
    >"$scratch/page.sh"
told=$(cd "$scratch" && timeout 600 bash -m page.sh 2>&1)
tap_is "the page ends" "$?" 0
tap_is "both sums pass" "$(printf '%s\n' "$told" | grep -c '^pass  collective all_reduce w3 count=10240')" 2
tap_has "what it raises is told" "$told" "UNIMPLEMENTED: rank 0 of 3: does sums to all ranks"
tap_has "with an exit status" "$told" "exit status 76"
tap_has "the mistake is found" "$told" "fail  collective all_reduce w3 count=10240"
tap_has "and named" "$told" "diagnosis: rank 1 is missing"
tap_has "with an exit status, too" "$told" "exit status 1
"
tap_has "the judge passes what is right" "$told" "pass on rank 0: cpattn-submit collective all_reduce --world-size 3 --count 1000"
tap_has "and refuses what is wrong" "$told" "FAIL on rank 0: cpattn-submit collective all_reduce --world-size 3 --count 1000"
tap_has "by name" "$(printf '%s\n' "$told" | tail -n 1)" "diagnosis: rank 2 is missing"
tap_done

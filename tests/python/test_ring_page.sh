#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of doc/test-your-ring.md have the printed results. Prints TAP; skipped without PyTorch.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
# shellcheck source=tests/support/python.sh
. "$top_srcdir/tests/support/python.sh"
python_needs 'import torch.distributed as d; assert d.is_gloo_available()' 'PyTorch with gloo'
python_libraries guest
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
PATH=$(cd "$top_builddir" && pwd):$PATH
export PATH
awk '/^```sh$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$top_srcdir/doc/test-your-ring.md" \
    >"$scratch/page.sh"
told=$(cd "$scratch" && timeout 600 bash page.sh 2>&1)
tap_is "the page ends" "$?" 0
tap_has "the daemon knows the guest" "$told" "guest          mine: any number of ranks"
tap_has "the ring passes" "$told" "pass  bf16 bshd p2p w2 b2 h4 s128 d128 causal by mine forward"
tap_has "what it raises is told" "$told" "UNIMPLEMENTED: rank 0 of 2: does bshd, forward only, even lengths
"
tap_has "with an exit status" "$told" "exit status 76"
tap_has "the mistake is found" "$told" "fail  bf16 bshd p2p w2 b2 h4 s128 d128 causal by mine forward"
tap_has "and named" "$told" "diagnosis: the mask admits one key too many"
tap_has "the matrix" "$told" "8 cases: 6 passed, 2 could not be run"
tap_done

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Memory that attention must leave as it is. A guest or a provider with right results that writes
# outside of its tensors fails, and so does a provider that changes an input. The answer names the
# tensor and the rank. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
# shellcheck source=tests/support/daemon.sh
. "$top_srcdir/tests/support/daemon.sh"
build=$(cd "$top_builddir" && pwd)
peek=$build/tests/support/peek
guest=$build/tests/kinds/guest_attention
toys=$build/tests/providers/.libs

daemon_start --backend cpu --devices 2 --log-level warning \
    --guest "honest=$guest" --guest "behind=$guest behind" --guest "before=$guest before" \
    --guest "scales=$guest scales" --guest "all=$guest all" \
    --provider honest="$toys/toy.so" --provider merging="$toys/toy_merges.so" \
    --provider outside="$toys/toy_outside.so" --provider packed="$toys/toy_packed.so" --provider input="$toys/toy_input.so"

run() { # OPTIONS...
    out=$("$submit" "$@" --timeout 60s 2>&1)
    status=$?
}
has() { # DESCRIPTION STATUS WORDS: the exit status and a part of the last output, on any lines
    tap_is "$1" "$status" "$2"
    tap_has "$1: its words" "$(printf '%s' "$out" | tr -s ' \n' ' ')" "$3"
}

# ---- guests ----

case="case --world-size 1 --dtype fp32 --mask none --heads 2 --seqlen 40 --head-dim 16"
# shellcheck disable=SC2086
{
    run $case --implementation honest --verbose
    has "an honest guest passes" 0 "guards 0 pad"
    tap_has "and changes no input" "$out" "6 of 6"
    run $case --implementation behind
    has "one element behind out fails" 1 \
        "diagnosis: bytes outside of the tensors of rank 0 have changed: 4 bytes behind out for"
    tap_has "its table names the rule" "$out" "!padding"
    run $case --implementation before
    has "one element before dk fails" 1 \
        "diagnosis: bytes outside of the tensors of rank 0 have changed: 4 bytes before dk for"
    run $case --implementation before --json
    tap_is "JSON: the figures" "$(printf '%s' "$out" | "$peek" json ranks.0.diagnosis.tensor)" "guards"
    run $case --implementation scales
    has "a guest may change an input, and the answer says so" 0 \
        "diagnosis: rank 0 has changed its input q, which a guest may do for"
    run $case --implementation all
    has "several tensors are named" 1 "4 bytes behind out, 4 bytes before dk;"
    run $case --implementation behind --verify off
    tap_is "without a verdict nothing is compared" "$status" 0
}

# ---- providers ----

case="case --heads 4 --kv-heads 2 --seqlen 40 --head-dim 16"
# shellcheck disable=SC2086
{
    for name in honest merging; do
        run $case --provider $name --verbose
        has "provider $name passes" 0 "guards 1 pad"
    done
    run $case --provider outside
    has "a provider that writes behind a running result fails" 1 \
        "diagnosis: bytes outside of the tensors of rank 0 have changed: 4 bytes behind"
    run $case --provider packed
    has "a provider that writes behind a packed result ends its case" 77 \
        "forward() of provider packed has written outside of its packed o: 0 bytes before it and 4 behind it have changed"
    run $case --provider input
    has "a provider that changes q fails" 1 "diagnosis: rank 0 has changed its input q for"
    run $case --provider input --repeat 2
    tap_is "and fails again with a kept plan" "$status" 1
}
tap_done

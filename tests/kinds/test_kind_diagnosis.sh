#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A mistake in the plans of ranks: the command shows verdict and diagnosis, as text and as JSON. The
# same ranks then run other jobs. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
# shellcheck source=tests/support/daemon.sh
. "$top_srcdir/tests/support/daemon.sh"
peek=$top_builddir/tests/support/peek
daemon_start --backend cpu --devices 4 --log-level warning \
    --rank-program "$(cd "$top_builddir" && pwd)/tests/kinds/wrong_rank"

run() { # OPTIONS...
    out=$("$submit" "$@" --timeout 60s 2>&1)
    status=$?
}
diagnosis_of() {
    printf '%s\n' "$out" | grep '^ *diagnosis:'
}

reduce="collective reduce --world-size 3 --count 1000 --algorithm direct"
layer="linear row --world-size 3 --dtype fp32 --tokens 24 --in-features 40 --out-features 20"
# shellcheck disable=SC2086
{
    run $reduce
    tap_is "a reduction without one rank fails" "$status" 1
    tap_has "the failure has a diagnosis" "$(diagnosis_of)" "is missing"
    run $reduce --json
    tap_has "the diagnosis is in JSON" "$(printf '%s\n' "$out" | "$peek" json ranks.0.diagnosis.text)" "is missing"
    run $layer
    tap_is "a row layer without its bias fails" "$status" 1
    tap_has "the failure has a diagnosis" "$(diagnosis_of)" "bias"
    run $layer --bias false
    tap_is "a layer without a bias passes on the same ranks" "$status" 0
    run collective all_gather --world-size 3 --count 100
    tap_is "an operation without a reduction passes" "$status" 0
}
daemon_stop
tap_done

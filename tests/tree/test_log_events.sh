#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# doc/operating.md has a row for each event of the daemon's log, with its levels, and no other rows. Prints TAP.
set -u
: "${top_srcdir:=.}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"

# "EVENT LEVEL" of each call of log_LEVEL("EVENT ..."), also where clang-format has broken the line. rank_exited is
# left out: it is logged by log_write(), which takes the level as a parameter. So is log_dropped, which has no level.
logged() {
    find "$top_srcdir/daemon" -name '*.c' -exec cat {} + | tr '\n' ' ' |
        grep -oE 'log_(error|warning|notice|info|debug)\( *"[a-z_]+' |
        sed -E 's/log_([a-z]+)\( *"/\1 /' | awk '{ print $2, $1 }' | sort -u
}

written() {
    sed -n '/^## Every line of the log/,$p' "$top_srcdir/doc/operating.md" | grep '^| `' |
        awk -F'|' '{
            gsub(/[` ]/, "", $2); gsub(/ /, "", $3)
            n = split($2, events, ","); m = split($3, levels, ",")
            for (i = 1; i <= n; i++) for (j = 1; j <= m; j++) print events[i], levels[j]
        }' | grep -vE '^(rank_exited|log_dropped) ' | sort -u
}

scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
logged >"$scratch/logged"
written >"$scratch/written"
tap_is "events are found in the sources" "$([ "$(wc -l <"$scratch/logged")" -gt 30 ] && echo yes)" yes
tap_is "each event that is logged is in the guide" "$(comm -23 "$scratch/logged" "$scratch/written")" ""
tap_is "each event in the guide is logged" "$(comm -13 "$scratch/logged" "$scratch/written")" ""
tap_done

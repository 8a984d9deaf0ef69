#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# TransformerEngine's whole matrix, and what its backends skip, through the daemon. Lengths are divided by
# CPATTN_TE_SCALE, 128 unless set; 16 is the thorough setting and takes many minutes.
# Prints TAP, one test for each model.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
submit=$top_builddir/cpattn-submit
scratch=$(mktemp -d) || exit 99
CPATTN_SOCKET=$scratch/cpattnd.sock
export CPATTN_SOCKET
daemon=
trap '[ -n "$daemon" ] && kill -KILL "$daemon" 2>/dev/null; rm -rf "$scratch"' EXIT

"$top_builddir/cpattnd" --socket "$CPATTN_SOCKET" --backend cpu --devices 2 2>"$scratch/log" &
daemon=$!
until "$submit" status >/dev/null 2>&1; do
    kill -0 "$daemon" 2>/dev/null || { cat "$scratch/log"; exit 99; }
    sleep 0.05
done

"$submit" matrix "$top_srcdir/cases/transformer-engine.yaml" --unskip --timeout 1h \
    --seqlen-scale "${CPATTN_TE_SCALE:-128}" >"$scratch/out" 2>"$scratch/err"
status=$?

# A line of the progress is "12/960 pass  flash.cp_1_0/bf16/...": the model ends at the first slash behind it.
sed -n 's|^ *[0-9]*/[0-9]* \([a-z ]*[a-z]\)  *\([a-z]*\.[a-z0-9_]*\)/.*|\2 \1|p' "$scratch/out" |
    sort | uniq -c >"$scratch/models"
cut -c9- "$scratch/models" | cut -d' ' -f1 | uniq >"$scratch/names"
while read -r model; do
    tap_is "$model passes" "$(grep -c " $model pass\$" "$scratch/models")/$(grep -c " $model " "$scratch/models")" 1/1
done <"$scratch/names"
tap_is "every model is there" "$(grep -c . "$scratch/names")" 36
tap_has "all cases passed" "$(tail -n 1 "$scratch/out")" "960 cases: 960 passed"
tap_is "exit status" "$status$(cat "$scratch/err")" 0
tap_done

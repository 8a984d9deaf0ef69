#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of doc/when-a-case-fails.md, on a guest with a fault. Prints TAP; skipped without
# numpy.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
# shellcheck source=tests/support/python.sh
. "$top_srcdir/tests/support/python.sh"
# shellcheck source=tests/support/daemon.sh
. "$top_srcdir/tests/support/daemon.sh"
python_needs 'import numpy' numpy
python_libraries guest
PATH=$(cd "$top_builddir" && pwd):$PATH
export PATH

# The kernel of the tutorial. Its fault is limited to fp16.
sed 's/^        ds \*= .*/        ds *= numpy.float32(1 if case.dtype == "fp16" else case.softmax_scale)/' \
    "$top/examples/guests/numpy_attention.py" >"$scratch/kernel.py"
sed -n "/^cat >mine.yaml/,/^END/p" "$top/doc/tutorial.md" | sed '1d;$d' >"$scratch/mine.yaml"
daemon_start --backend cpu --devices 2 --guest mine="python3 $scratch/kernel.py"
awk '/^```sh$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$top/doc/when-a-case-fails.md" >"$scratch/page.sh"
told=$(cd "$scratch" && timeout 300 bash page.sh 2>&1)
tap_has "--minimize: a small case that fails" "$told" "again: cpattn-submit case --implementation mine --world-size 1 \
--sharding contiguous --dtype fp16 --batch 1 --heads 1 --head-dim-qk 4 "
tap_has "dump: a map" "$told" "error by head (rows) and chunk"
tap_is "dump: its files" "$(cd "$scratch" && ls case.safetensors errors.svg 2>&1)" "case.safetensors
errors.svg"
tap_has "matrix: what fails" "$told" "8 cases: 4 passed, 4 failed in "
tap_has "--last-failed: these again" "$told" "4 cases: 4 failed in "
tap_has "known failures are listed with the reason" "$told" "#12: overflow of the scores"
tap_has "--unskip runs them" "$told" "2 cases: 2 failed in "
tap_has "report: two kernels" "$(cat "$scratch/compare.html")" "Beside other"
tap_is "bench: two kernels" "$(printf '%s\n' "$told" | tail -n 2 | grep -cE '^ +[23]00 .* [0-9.]+$')" 2
tap_done

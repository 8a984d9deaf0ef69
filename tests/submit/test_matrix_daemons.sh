#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A matrix over two daemons: verdicts and digests are those of one daemon, and each case runs once,
# also if one of the daemons is killed. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
submit=$top_builddir/cpattn-submit
peek=$top_builddir/tests/support/peek
scratch=$(mktemp -d) || exit 99
unset CPATTN_SOCKET
one='' two=''
# shellcheck disable=SC2086
trap 'kill -KILL $one $two 2>/dev/null; rm -rf "$scratch"' EXIT

daemon_start() { # NAME: sets $started
    "$top_builddir/cpattnd" --socket "$scratch/$1.sock" --backend cpu --devices 2 2>"$scratch/$1.log" &
    started=$!
    until "$submit" status --socket "$scratch/$1.sock" >/dev/null 2>&1; do
        tap_step "$started" || { cat "$scratch/$1.log"; exit 99; }
    done
}
taken() { # NAME: cases that a daemon took in
    "$submit" status --socket "$scratch/$1.sock" --json | "$peek" json admitted
}
results() { # FILE: id, outcome and digest of each answer
    for member in id outcome digest; do "$peek" json "$member" <"$1" >"$scratch/$member"; done
    paste -d ' ' "$scratch/id" "$scratch/outcome" "$scratch/digest" | sort
}

cat >"$scratch/m.yaml" <<'END'
defaults: {batch: 1, heads: 2, seqlen: 96, head_dim: 32}
models: {a: {}, b: {mask: causal}, c: {window_left: 5}}
axes: {dtype: [bf16, fp16], world_size: [1, 2], comm: [p2p, a2a]}
END

daemon_start one
one=$started
daemon_start two
two=$started
"$submit" matrix "$scratch/m.yaml" --socket "$scratch/one.sock" --save "$scratch/one.jsonl" >/dev/null
both="--socket $scratch/one.sock --socket $scratch/two.sock"
before=$(taken one)
# shellcheck disable=SC2086
"$submit" matrix "$scratch/m.yaml" $both -j 2 --save "$scratch/both.jsonl" >"$scratch/out"
tap_is "two daemons: exit status" "$?" 0
tap_is "two daemons: 24 results" "$(results "$scratch/both.jsonl" | grep -c ' pass [0-9a-f]')" 24
tap_is "two daemons: the results of one daemon" "$(results "$scratch/both.jsonl")" "$(results "$scratch/one.jsonl")"
first=$(($(taken one) - before)) second=$(taken two)
tap_is "two daemons: each case runs once" "$((first + second))" 24
worked=yes
[ "$first" -gt 0 ] && [ "$second" -gt 0 ] || worked="$first and $second"
tap_is "two daemons: both run cases" "$worked" yes

# Runs the matrix in the background until its record has more than four answers, or it has ended. Sets `running`.
matrix_begin() { # RECORD OPTIONS...
    record=$1
    shift
    "$submit" matrix "$scratch/m.yaml" "$@" -j 2 --set seqlen=512 --save "$record" >"$scratch/out" 2>"$scratch/err" &
    running=$!
    until [ "$(wc -l <"$record")" -gt 4 ]; do
        tap_step "$running" || break
    done 2>/dev/null
}

# One daemon hangs while cases run. Its cases go to the other daemon when it has not answered for the patience.
# shellcheck disable=SC2086
matrix_begin "$scratch/hang.jsonl" $both --patience 1s
kill -STOP "$two"
tap_wait "$running"
status=$?
tap_is "one of two daemons hangs: exit status" "$status$([ "$status" = 0 ] || cat "$scratch/err")" 0
tap_has "one of two daemons hangs: counts" "$(tail -n 1 "$scratch/out")" "24 cases: 24 passed"
tap_is "one of two daemons hangs: each case is answered once" "$(wc -l <"$scratch/hang.jsonl") $("$peek" json id <"$scratch/hang.jsonl" | sort -u | wc -l)" "24 24"
tap_is "one of two daemons hangs: message" "$(cat "$scratch/err")" \
    "cpattn-submit: the daemon at $scratch/two.sock does not answer; its cases go to another daemon"

# The only daemon hangs.
matrix_begin "$scratch/alone.jsonl" --socket "$scratch/one.sock" --patience 1s
kill -STOP "$one"
tap_wait "$running"
tap_is "the only daemon hangs: exit status" "$?" 78
tap_has "the only daemon hangs: each other case says so" "$(tail -n 1 "$scratch/out")" \
    "$(grep -c 'does not answer' "$scratch/alone.jsonl") could not be run"
tap_is "the only daemon hangs: each case is answered once" "$("$peek" json id <"$scratch/alone.jsonl" | sort -u | wc -l)" 24
kill -CONT "$one" "$two"

# One daemon is killed while cases run. Its cases and the remaining ones go to the other daemon.
# shellcheck disable=SC2086
matrix_begin "$scratch/less.jsonl" $both
kill -KILL "$two"
tap_wait "$running"
status=$?
tap_is "one of two daemons ends: exit status" "$status$([ "$status" = 0 ] || cat "$scratch/err")" 0
tap_has "one of two daemons ends: counts" "$(tail -n 1 "$scratch/out")" "24 cases: 24 passed"
tap_is "one of two daemons ends: each case is answered once" "$(wc -l <"$scratch/less.jsonl") $("$peek" json id <"$scratch/less.jsonl" | sort -u | wc -l)" "24 24"
tap_has "one of two daemons ends: message" "$(cat "$scratch/err")" "its cases go to another daemon"

# shellcheck disable=SC2086
"$submit" matrix "$scratch/m.yaml" $both >"$scratch/out" 2>"$scratch/err"
tap_is "a daemon that is missing at the start" "$? $(grep -c "no daemon at $scratch/two.sock" "$scratch/err")" "78 1"
"$submit" matrix "$scratch/m.yaml" --socket x --socket x 2>"$scratch/err"
tap_is "the same daemon twice" "$? $(cat "$scratch/err")" "64 cpattn-submit: --socket x is given twice"
kill -TERM "$one"
tap_wait "$one"
tap_is "the other daemon ends with status 0" "$?" 0
one='' two=''
tap_done

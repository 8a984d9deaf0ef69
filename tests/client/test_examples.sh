#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The examples work against a daemon with real ranks. The harnesses in C and in Python pass, have
# the documented exit status without a daemon and after an interrupt, and continue after the daemon
# is killed and started again. The program of cpattn(3) runs. The kernel in C needs no daemon, and
# also compiles as C++. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
# shellcheck source=tests/support/daemon.sh
. "$top_srcdir/tests/support/daemon.sh"
CPATTN_LIBRARY_PATH=$top_builddir/client/.libs:$top_builddir/check/.libs
PYTHONPATH=$top_srcdir/python
PYTHONDONTWRITEBYTECODE=1
export CPATTN_LIBRARY_PATH PYTHONPATH PYTHONDONTWRITEBYTECODE

await_verdict() {
    until grep -qs '^pass' "$scratch/out"; do
        tap_step "$1" || return
    done
}

sum() {
    tail -n 1 "$scratch/out"
}

# A shell starts background jobs with SIGINT ignored; env restores the default.
background() {
    rm -f "$scratch/out"
    env --default-signal=INT "$@" >"$scratch/out" 2>"$scratch/err" &
}

harness() { # NAME COMMAND...
    name=$1
    shift
    "$@" >"$scratch/out" 2>"$scratch/err"
    tap_is "$name: no daemon" "$? $(cat "$scratch/out")" "2 "
    tap_has "$name: no daemon, and how to start one" "$(cat "$scratch/err")" "start it with"

    daemon_start --backend cpu
    "$@" >"$scratch/out" 2>"$scratch/err"
    tap_is "$name: all pass" "$? $(sum)" "0 12 cases: 12 passed, 0 failed, 0 not run"
    tap_is "$name: each has its figures" "$(grep -c ' of what is allowed$' "$scratch/out")" 12

    background "$@" 20000 # long sequences: the cases run until the interrupt
    until "$submit" status | grep -q '; [1-9][0-9]* running'; do
        tap_step $! || break
    done
    kill -INT $!
    tap_wait $!
    tap_is "$name: an interrupt" "$? $(sum)" "2 12 cases: 0 passed, 0 failed, 12 not run"
    until "$submit" status | grep -q '; 0 running, 0 queued'; do
        tap_step "$daemon" || break
    done
    tap_pass "$name: an interrupt leaves nothing in the queue"

    background "$@" 600 # the daemon dies long before the last case
    harness=$!
    await_verdict $harness
    kill -KILL "$daemon"
    wait "$daemon" 2>/dev/null
    tap_is "$name: cases are left when the daemon is killed" "$(($(grep -c '^pass' "$scratch/out") < 12))" 1
    daemon_start --backend cpu
    tap_wait $harness
    status=$?
    tap_is "$name: lives through a daemon that is killed" \
        "$status $(sum)$([ "$status" = 0 ] || grep -E '^(again|error)' "$scratch/out")" \
        "0 12 cases: 12 passed, 0 failed, 0 not run"
    daemon_stop
}

kernel() {
    told=$("$top_builddir/examples/kernel" "$@" 2>&1)
    status=$?
}
kernel
tap_is "kernel: a pass" "$status $(printf '%s\n' "$told" | head -n 1)" "0 pass"
kernel heads=6 kv_heads=2 seqlen=50 head_dim=32 batch=1
tap_is "kernel: grouped heads" "$status" 0
kernel wrong=1.05
tap_is "kernel: a wrong scale" "$status $(printf '%s\n' "$told" | head -n 1)" "1 FAIL"
tap_has "kernel: its diagnosis" "$told" "diagnosis: the softmax scale is 1.05 times what it should be"
kernel mask=none
tap_is "kernel: an unsupported field" "$status $told" "2 kernel: mask is none; only causal is supported"
for field in format=sbhd world_size=2 training=false window_left=16 scale=0.5 softcap=30 softmax=off_by_one bias=11ss \
    max_logit=true lengths_q=200,100 lengths_kv=200,100; do
    kernel "$field"
    tap_has "kernel: ${field%=*} is unsupported" "$status $told" "2 kernel: ${field%=*} is ${field#*=}; only "
done
kernel inputs=te seed=3 scale=0 window_right=0 deterministic=true
tap_is "kernel: fields that do not change the attention" "$status" 0
kernel mask=diagonal
tap_has "kernel: a wrong value" "$status $told" "2 kernel: mask is 'diagonal'"
kernel wrong=x
tap_is "kernel: no number" "$status $told" "2 kernel: wrong is 'x'; accepted is a number"
if command -v c++ >/dev/null 2>&1; then
    tap_is "kernel: compiled as C++" "$(c++ -x c++ -std=c++11 -Wall -Wextra -fsyntax-only -I"$top_srcdir/client" \
        -I"$top_srcdir/check" "$top_srcdir/examples/kernel.c" 2>&1)" ""
else
    tap_skip "kernel: compiled as C++" "there is no c++"
fi

harness C "$top_builddir/examples/harness"
if ! command -v python3 >/dev/null 2>&1; then
    tap_skip "the harness in Python" "there is no python3"
elif nm -D "$top_builddir/client/.libs/libcpattn.so.0" | grep -qE '__(asan|tsan|ubsan)_'; then
    tap_skip "the harness in Python" "the library is built with sanitizers"
else
    harness Python python3 "$top_srcdir/examples/harness.py"
fi

daemon_start --backend cpu
told=$("$top_builddir/examples/manual" 2>&1)
tap_is "the program of cpattn(3)" "$told $?" "pass 0"
daemon_stop
tap_done

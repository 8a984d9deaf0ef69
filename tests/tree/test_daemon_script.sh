#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/support/daemon.sh and tap.sh: a daemon or another process that hangs fails a test, which does not hang.
# shellcheck disable=SC2031 # the functions run in the subshell that sets `daemon`
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"

# Runs a function in a test whose daemon serves, with little patience from then on.
hang() { # FUNCTION
    out=$(
        # shellcheck source=tests/support/daemon.sh
        . "$top_srcdir/tests/support/daemon.sh"
        daemon_start --backend cpu --devices 2
        daemon_patience=4
        "$1"
    )
    status=$?
}

hang_at_exit() {
    kill -STOP "$daemon"
}

hang_at_stop() {
    kill -STOP "$daemon"
    daemon_stop
}

hang_at_start() {
    submit=false
    daemon_await
}

hang hang_at_exit
tap_is "a daemon that does not end when the test ends: exit status" "$status" 137
tap_has "a daemon that does not end when the test ends: message" "$out" "# the daemon does not end; its log ends with: "
hang hang_at_stop
tap_has "a daemon that does not stop" "$out" "# got:
# 137
# expected:
# 0"
hang hang_at_start
tap_is "a daemon that does not serve: exit status" "$status" 99
tap_has "a daemon that does not serve: message" "$out" "# the daemon does not begin to serve; its log ends with: "

# A process that a script waits for.
out=$(
    tap_patience=3
    sleep 1000 &
    tap_wait $!
    echo "ends with $?"
)
tap_has "a process that hangs is killed" "$out" "ends with 137"
tap_has "a process that hangs: message" "$out" "hangs: sleep 1000"
(exit 7) &
tap_wait $!
tap_is "a process that ends: its exit status" "$?" 7
tap_done

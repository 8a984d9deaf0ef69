# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# For script tests with a daemon: source it after tap.sh, call daemon_start and daemon_stop. Sets
# `submit`, the command; `scratch`, a folder with the socket and the log; and CPATTN_SOCKET. When the
# test ends, a daemon that still runs is ended and the folder is removed. A daemon that has crashed
# by then, or does not end with status 0, fails the test. A test that kills its daemon empties
# `daemon`. A daemon that does not begin to serve, or does not end, within 60 s is killed.
: "${top_srcdir:=.}" "${top_builddir:=build}"
submit=$top_builddir/cpattn-submit
scratch=$(mktemp -d) || exit 99
CPATTN_SOCKET=$scratch/cpattnd.sock
export CPATTN_SOCKET
daemon=
daemon_patience=1200 # in steps of 0.05 s
helpers= # other processes, which are killed when the test ends
trap daemon_exit EXIT

# Sets `daemon`, its process. Ends the test if the daemon ends.
daemon_start() { # OPTIONS...
    "$top_builddir/cpattnd" --socket "$CPATTN_SOCKET" "$@" 2>"$scratch/log" &
    daemon=$!
    daemon_await
}

# Waits until the daemon serves.
daemon_await() {
    daemon_steps=0
    until timeout 10 "$submit" status >/dev/null 2>&1; do
        kill -0 "$daemon" 2>/dev/null || { cat "$scratch/log"; exit 99; }
        daemon_late "begin to serve" && exit 99
    done
}

# Waits for a step. True, and the daemon is killed, if it is late.
daemon_late() { # TO DO WHAT
    sleep 0.05
    daemon_steps=$((daemon_steps + 1))
    [ "$daemon_steps" -ge "$daemon_patience" ] || return 1
    echo "# the daemon does not $1; its log ends with: $(tail -n 1 "$scratch/log")"
    kill -KILL "$daemon" 2>/dev/null
}

# Ends the daemon by SIGTERM. Returns its exit status.
daemon_end() {
    daemon_steps=0
    kill -TERM "$daemon" 2>/dev/null
    while grep -qs '^State:[[:space:]]*[^Z]' "/proc/$daemon/status"; do
        daemon_late end && break
    done
    wait "$daemon"
}

# Ends the daemon by SIGTERM: two tests.
daemon_stop() {
    daemon_end
    tap_is "the daemon ends with status 0" "$?" 0
    daemon=
    tap_is "and leaves no socket" "$(find "$scratch" -name 'cpattnd.sock*')" ""
}

daemon_exit() {
    exit_status=$?
    # shellcheck disable=SC2086
    [ -z "$helpers" ] || kill -KILL $helpers 2>/dev/null
    if [ -n "$daemon" ] && [ "$exit_status" -ne 0 ]; then
        kill -KILL "$daemon" 2>/dev/null
    elif [ -n "$daemon" ]; then
        daemon_end
        exit_status=$?
        [ "$exit_status" -eq 0 ] || echo "# the daemon ended with status $exit_status: $(tail -n 1 "$scratch/log")"
    fi
    rm -rf "$scratch"
    exit "$exit_status"
}

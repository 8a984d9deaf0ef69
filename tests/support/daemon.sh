# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# For script tests with a daemon: source it, call daemon_start. Sets `submit`, the command;
# `scratch`, a folder with the socket and the log; and CPATTN_SOCKET. The daemon ends and the folder
# is removed when the test ends.
: "${top_srcdir:=.}" "${top_builddir:=build}"
submit=$top_builddir/cpattn-submit
scratch=$(mktemp -d) || exit 99
CPATTN_SOCKET=$scratch/cpattnd.sock
export CPATTN_SOCKET
daemon=
trap '[ -n "$daemon" ] && kill -KILL "$daemon" 2>/dev/null; rm -rf "$scratch"' EXIT

# Sets `daemon`, its process. Ends the test if the daemon ends.
daemon_start() { # OPTIONS...
    "$top_builddir/cpattnd" --socket "$CPATTN_SOCKET" "$@" 2>"$scratch/log" &
    daemon=$!
    until "$submit" status >/dev/null 2>&1; do
        kill -0 "$daemon" 2>/dev/null || { cat "$scratch/log"; exit 99; }
        sleep 0.05
    done
}

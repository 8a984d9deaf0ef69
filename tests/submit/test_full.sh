#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Full file systems: of a report, of /dev/shm, and of the folder of the socket. The last two are
# skipped without the right to mount. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
scratch=$(mktemp -d) || exit 99
CPATTN_SOCKET=$scratch/cpattnd.sock
export CPATTN_SOCKET
daemon=
trap '[ -n "$daemon" ] && kill -KILL "$daemon" 2>/dev/null; rm -rf "$scratch"' EXIT

cat >"$scratch/matrix.yaml" <<'END'
models:
  small: {batch: 1, heads: 1, kv_heads: 1, head_dim: 16, seqlen: 32}
END

daemon_start() { # COMMAND...
    "$@" "$top_builddir/cpattnd" --socket "$CPATTN_SOCKET" --backend cpu 2>"$scratch/log" &
    daemon=$!
    until "$top_builddir/cpattn-submit" status >/dev/null 2>&1; do
        kill -0 "$daemon" 2>/dev/null || { cat "$scratch/log"; exit 99; }
        sleep 0.05
    done
}

daemon_stop() {
    kill "$daemon"
    wait "$daemon"
    status=$?
    daemon=
}

# ---- a report ----

daemon_start env
"$top_builddir/cpattn-submit" matrix "$scratch/matrix.yaml" --junit /dev/full >"$scratch/out" 2>"$scratch/err"
status=$?
tap_is "full disk of a report: an error status" "$status" 79
tap_has "full disk of a report: the cause" "$(cat "$scratch/err")" "No space left on device"
tap_has "full disk of a report: the verdicts are shown" "$(cat "$scratch/out")" "1 passed"
"$top_builddir/cpattn-submit" matrix "$scratch/matrix.yaml" >/dev/full 2>"$scratch/err"
status=$?
tap_is "full standard output: an error status" "$([ "$status" -ne 0 ] && echo fails)" fails
for command in status "status --json" describe "describe --json" "case --seqlen 32" "case --seqlen 32 --json" \
    "bench --repeat 1 --warmup 0 --seqlen 32 --json" "matrix $scratch/matrix.yaml --json" \
    "matrix $scratch/matrix.yaml --list" "matrix $scratch/matrix.yaml --list --json"; do
    # shellcheck disable=SC2086
    "$top_builddir/cpattn-submit" $command >/dev/full 2>"$scratch/err"
    tap_is "$command: output to a closed pipe" "$? $(cat "$scratch/err")" \
        "79 cpattn-submit: the output could not be written: No space left on device"
done
daemon_stop
tap_is "a full disk of a client does not affect the daemon" "$status" 0

# ---- shared memory and the folder of the socket ----

cat >"$scratch/full" <<'END'
mount -t tmpfs -o size=4k none /dev/shm || exit 77
head -c 100000 /dev/zero >/dev/shm/filled 2>/dev/null
exec "$@"
END
if unshare -m sh "$scratch/full" true 2>/dev/null; then
    daemon_start unshare -m sh "$scratch/full"
    "$top_builddir/cpattn-submit" case --batch 1 --heads 1 --kv-heads 1 --seqlen 32 >"$scratch/out" 2>&1
    tap_is "/dev/shm is full: a case passes" "$?" 0
    daemon_stop
    tap_is "/dev/shm is full: the daemon ends well" "$status" 0

    cat >"$scratch/no-inodes" <<'END'
mkdir -p "$1" && mount -t tmpfs -o size=4k,nr_inodes=1 none "$1" || exit 77
shift
exec "$@"
END
    unshare -m sh "$scratch/no-inodes" "$scratch/run" "$top_builddir/cpattnd" --backend cpu \
        --socket "$scratch/run/socket" 2>"$scratch/log"
    tap_is "the socket's folder is full: the daemon does not start" "$?" 1
    tap_has "the socket's folder is full: the reason" "$(cat "$scratch/log")" "No space left on device"
else
    tap_skip "/dev/shm is full, the socket's folder is full" "nothing can be mounted here"
fi
tap_done

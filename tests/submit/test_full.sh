#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Full file systems: of a report, of /dev/shm, and of the folder of the socket. The last two are
# skipped without the right to mount. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
# shellcheck source=tests/support/daemon.sh
. "$top_srcdir/tests/support/daemon.sh"

cat >"$scratch/matrix.yaml" <<'END'
models:
  small: {batch: 1, heads: 1, kv_heads: 1, head_dim: 16, seqlen: 32}
END

daemon_under() { # COMMAND...
    "$@" "$top_builddir/cpattnd" --socket "$CPATTN_SOCKET" --backend cpu 2>"$scratch/log" &
    daemon=$!
    daemon_await
}

# ---- a report ----

daemon_under env
"$submit" matrix "$scratch/matrix.yaml" --junit /dev/full >"$scratch/out" 2>"$scratch/err"
status=$?
tap_is "full disk of a report: an error status" "$status" 79
tap_has "full disk of a report: the cause" "$(cat "$scratch/err")" "No space left on device"
tap_has "full disk of a report: the verdicts are shown" "$(cat "$scratch/out")" "1 passed"
"$submit" matrix "$scratch/matrix.yaml" >/dev/full 2>"$scratch/err"
status=$?
tap_is "full standard output: an error status" "$([ "$status" -ne 0 ] && echo fails)" fails
for command in status "status --json" describe "describe --json" "case --seqlen 32" "case --seqlen 32 --json" \
    "bench --repeat 1 --warmup 0 --seqlen 32 --json" "matrix $scratch/matrix.yaml --json" \
    "matrix $scratch/matrix.yaml --list" "matrix $scratch/matrix.yaml --list --json"; do
    # shellcheck disable=SC2086
    "$submit" $command >/dev/full 2>"$scratch/err"
    tap_is "$command: output to a full disk" "$? $(cat "$scratch/err")" \
        "79 cpattn-submit: the output could not be written: No space left on device"
done
for command in --help "help bench" "case --help" "collective -h" "matrix --usage" "bench linear -?" version --version; do
    # shellcheck disable=SC2086
    "$submit" $command >/dev/full 2>"$scratch/err"
    tap_is "$command: output to a full disk" "$? $(cat "$scratch/err")" \
        "79 cpattn-submit: the output could not be written: No space left on device"
done
for program in cpattnd cpattn-agent; do
    for option in --help --usage --version; do
        "$top_builddir/$program" $option >/dev/full 2>"$scratch/err"
        tap_is "$program $option: output to a full disk" "$? $(cat "$scratch/err")" \
            "1 $program: the output could not be written: No space left on device"
    done
done
# A full disk of a client does not affect the daemon.
daemon_stop

# ---- shared memory and the folder of the socket ----

cat >"$scratch/full" <<'END'
mount -t tmpfs -o size=4k none /dev/shm || exit 77
head -c 100000 /dev/zero >/dev/shm/filled 2>/dev/null
exec "$@"
END
if unshare -m sh "$scratch/full" true 2>/dev/null; then
    daemon_under unshare -m sh "$scratch/full"
    "$submit" case --batch 1 --heads 1 --kv-heads 1 --seqlen 32 >"$scratch/out" 2>&1
    tap_is "/dev/shm is full: a case passes" "$?" 0
    daemon_stop

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

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The fields of the log in a real journal: systemd-journald with private folders. Needs the right to
# mount, and systemd's journald. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
journald=/lib/systemd/systemd-journald

if [ ! -x $journald ] || [ ! -s /etc/machine-id ] || ! unshare --mount mount -t tmpfs tmpfs /run 2>/dev/null; then
    echo "1..0 # SKIP no systemd-journald, or no right to mount"
    exit 0
fi
# Mounts and processes of the namespaces end with them.
if [ "${1:-}" != inside ]; then
    exec unshare --mount --pid --fork --kill-child --mount-proc sh "$0" inside
fi

mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/systemd/journal "/run/log/journal/$(cat /etc/machine-id)"
$journald 2>/run/journald.log &
for _ in $(seq 100); do
    [ -S /run/systemd/journal/stdout ] && [ -S /run/systemd/journal/socket ] && break
    sleep .05
done

CPATTN_SOCKET=/run/cpattnd.sock
export CPATTN_SOCKET
submit=$top_builddir/cpattn-submit
# As systemd starts a service: the journal's stream is stderr, and JOURNAL_STREAM names it.
# shellcheck disable=SC2016
systemd-cat --identifier=cpattnd sh -c 'JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2) exec "$0" "$@"' \
    "$top_builddir/cpattnd" --socket "$CPATTN_SOCKET" --backend cpu --devices 2 &
daemon=$!
until "$submit" status >/dev/null 2>&1 || ! tap_step $daemon; do :; done

fields() { # MATCHES...
    journalctl --no-pager --quiet --directory=/run/log/journal "$@"
}

"$submit" case --world-size 2 --seqlen 64 --seed 5 >/dev/null
"$submit" case --world-size 2 --heads 16 --seqlen 8192 >/dev/null 2>&1 &
asked=$!
while [ "$(fields CPATTN_EVENT=run | wc -l)" -lt 2 ] && tap_step $asked; do :; done
pkill -KILL -f '^cpattn-rank 1 2 '
tap_wait $asked
kill $daemon
tap_wait $daemon
tap_is "the daemon ends with status 0" "$?" 0

tap_is "each event of a case is found by its field" \
    "$(fields --field=CPATTN_EVENT | sort | grep -xE 'admitted|run|answered|pool_start|pool_ready|pool_kill|ready|exit' | tr '\n' ' ')" \
    "admitted answered exit pool_kill pool_ready pool_start ready run "
tap_is "answers are found by user and verdict" \
    "$(fields --output=cat CPATTN_EVENT=answered CPATTN_UID="$(id -u)" CPATTN_VERDICT=pass | grep -c 'seed=5')" 1
tap_is "a message with spaces is one field" "$(fields --output=cat --output-fields=CPATTN_REASON CPATTN_EVENT=pool_kill CPATTN_RANK=1)" \
    "was killed by signal 9 (SIGKILL)"
id=$(fields --output=cat --output-fields=CPATTN_ID CPATTN_EVENT=answered CPATTN_STATUS=ABORTED)
tap_is "the life of a request is found by its id" \
    "$(fields --output=cat --output-fields=CPATTN_EVENT CPATTN_ID="$id" | tr '\n' ' ')" "admitted run answered "
tap_is "each line has a priority and the daemon's name" \
    "$(fields --output=cat --output-fields=PRIORITY SYSLOG_IDENTIFIER=cpattnd CPATTN_EVENT=ready)" 5
tap_done

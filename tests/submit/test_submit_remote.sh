#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The command and a daemon on a network: the subcommands accept credentials as options and from the
# environment. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
# shellcheck source=tests/support/daemon.sh
. "$top_srcdir/tests/support/daemon.sh"
socket=$CPATTN_SOCKET
unset CPATTN_SOCKET CPATTN_TOKEN_FILE
umask 077
echo "sixteen letters!" >"$scratch/token"
echo "seventeen letters" >"$scratch/other"

run() {
    "$submit" "$@" >"$scratch/out" 2>"$scratch/err"
    status=$?
    err=$(cat "$scratch/err")
}

# Starts the daemon on the first free port.
port=$(tap_port)
until grep -q ' ready ' "$scratch/log" 2>/dev/null; do
    if [ -z "$daemon" ] || ! tap_step "$daemon"; then
        [ -z "$daemon" ] || grep -q 'choose another port' "$scratch/log" || { cat "$scratch/log"; exit 99; }
        port=$((port + 1))
        "$top_builddir/cpattnd" --socket "$socket" --backend cpu --devices 2 \
            --listen "tcp://127.0.0.1:$port" --token-file "$scratch/token" 2>"$scratch/log" &
        daemon=$!
    fi
done
url=tcp://127.0.0.1:$port
small="--heads 1 --kv-heads 1 --head-dim 16 --seqlen 32"

# shellcheck disable=SC2086
for command in status describe "case $small" "bench $small --repeat 2" \
    "matrix $top_srcdir/cases/demonstration.yaml --filter model=cp_2_0 --set seqlen=64"; do
    name=${command%% *}
    run $command --socket "$url" --token-file "$scratch/token"
    tap_is "$name with the token" "$status $err" "0 "
    run $command --socket "$url" --token-file "$scratch/other"
    tap_is "$name with another token: exit status" "$status" 80
    tap_has "$name with another token: message" "$err$(cat "$scratch/out")" "the token is wrong"
done
run cancel 0123456789abcdef0123456789abcdef --socket "$url" --token-file "$scratch/token"
tap_is "cancel with the token" "$status" 69
run status --socket "$url"
tap_is "without a token" "$status" 80
tap_has "without a token: message" "$err" "--token-file or"

CPATTN_SOCKET=$url CPATTN_TOKEN_FILE=$scratch/token
export CPATTN_SOCKET CPATTN_TOKEN_FILE
run status
tap_is "token from CPATTN_TOKEN_FILE" "$status $err" "0 "
run status --token-file "$scratch/other"
tap_is "--token-file has precedence over the environment" "$status" 80
CPATTN_TOKEN_FILE=/nonexistent run status --socket "$socket"
tap_is "a unix socket needs no token" "$status $err" "0 "
run status --socket "$socket" --token-file "$scratch/token"
tap_is "a token that no address uses is refused" "$status $err" \
    "64 cpattn-submit: --token-file is for a daemon at tcp://HOST:PORT or tls+tcp://HOST:PORT"
chmod 0644 "$scratch/token"
run status
tap_is "a token file that everybody can read: exit status" "$status" 71
tap_has "a token file that everybody can read: message" "$err" "chmod 0600"
run status --socket tcp://127.0.0.1
tap_is "an address without a port" "$status" 67
chmod 0600 "$scratch/token"
run status --socket "tls+$url"
tap_has "TLS without --tls-ca" "$err" "--tls-ca, or"
daemon_end
tap_is "the daemon ends with status 0 at SIGTERM" "$?" 0
daemon=
tap_done

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Collectives and linear layers on two hosts, with an agent for the second one: the bits are the
# same as on one host. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
# shellcheck source=tests/support/daemon.sh
. "$top_srcdir/tests/support/daemon.sh"
port=$(tap_port)
od -An -tx1 -N16 /dev/urandom | tr -d ' \n' >"$scratch/secret"
chmod 600 "$scratch/secret"
"$top_builddir/cpattnd" --socket "$CPATTN_SOCKET" --backend cpu --devices 2 --hosts b=2 \
    --agents-listen "tcp://127.0.0.1:$port" --agents-token-file "$scratch/secret" 2>"$scratch/log" &
daemon=$!
"$top_builddir/cpattn-agent" --daemon "tcp://127.0.0.1:$port" --token-file "$scratch/secret" --backend cpu --devices 2 \
    --name b 2>"$scratch/log-b" &
agent=$!
helpers=$agent
until grep -q host_back "$scratch/log"; do
    tap_step "$daemon" || { cat "$scratch/log"; exit 99; }
    kill -0 "$agent" 2>/dev/null || { cat "$scratch/log-b"; exit 99; }
done

run() { # OPTIONS...
    out=$("$submit" "$@" --timeout 60s 2>&1)
    status=$?
    digest=$(printf '%s\n' "$out" | grep -o 'digest.*')
}
# shellcheck disable=SC2086
for job in "collective all_reduce --count 1000" "linear mlp --tokens 30 --in-features 20 --hidden 30 --out-features 16"; do
    run $job --world-size 4 --nodes 1
    one=$digest
    tap_has "on one host: $job" "$status $digest" "0 digest"
    run $job --world-size 4 --nodes 2
    tap_is "on two: $job" "$status $digest" "0 $one"
    run $job --world-size 4 --ranks-per-node 2
    tap_is "on two, by the ranks of each: $job" "$status $digest" "0 $one"
    run $job --world-size 4 --nodes 3
    tap_has "what cannot be is refused: $job" "$status $out" \
        "67 cpattn-submit: nodes is 3 and world_size is 4; accepted is a divisor of world_size, or 0"
done
tap_is "the daemon has started ranks on both hosts" "$(grep -c 'pool_start .*hosts=0x3' "$scratch/log")" 1

kill -TERM "$agent"
daemon_end
tap_is "the daemon ends with status 0" "$?" 0
daemon=
tap_wait "$agent"
tap_is "the agent, too" "$?" 0
helpers=
tap_done

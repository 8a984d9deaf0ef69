#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A daemon and two agents in three network namespaces, each with a link to a bridge: cases over the
# three, and a link that is cut and restored. Needs the right to create namespaces, and ip(8).
# Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"

if ! command -v ip >/dev/null || ! unshare --net --mount true 2>/dev/null; then
    echo "1..0 # SKIP no ip(8), or no right to make network namespaces"
    exit 0
fi
# The whole test runs in a namespace with the bridge. Everything in the namespace ends with it.
if [ "${1:-}" != inside ]; then
    exec unshare --net --mount --pid --fork --kill-child --mount-proc sh "$0" inside
fi

PATH=$(cd "$top_builddir" && pwd):$PATH
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
od -An -tx1 -N16 /dev/urandom | tr -d ' \n' >"$scratch/secret"
chmod 600 "$scratch/secret"

# Makes a namespace with the address 10.99.0.NUMBER. A process keeps it; NAME is set to its id.
host() { # NAME NUMBER
    unshare --net sleep 1000 &
    eval "$1=$!"
    while [ "$(readlink /proc/$!/ns/net)" = "$(readlink /proc/$$/ns/net)" ]; do sleep .02; done
    ip link add "v$1" type veth peer name eth0 netns $!
    ip link set "v$1" master br0 up
    in_host $! ip link set lo up
    in_host $! ip address add "10.99.0.$2/24" dev eth0
    in_host $! ip link set eth0 up
}
in_host() { # PROCESS COMMAND...
    process=$1
    shift
    nsenter --target "$process" --net -- "$@"
}
await() { # COUNT TEXT
    for _ in $(seq 600); do
        [ "$(grep -c "$2" "$scratch/log")" -ge "$1" ] && return
        sleep .1
    done
    echo "# not $1 times '$2'"
    sed 's/^/# /' "$scratch/log"
}
await_ranks() { # COUNT PATTERN: sets ranks
    for _ in $(seq 600); do
        ranks=$(pgrep -fc "$2")
        [ "$ranks" = "$1" ] && break
        sleep .1
    done
}
agent() { # PROCESS NAME
    nsenter --target "$1" --net -- cpattn-agent --daemon tcp://10.99.0.1:7422 --token-file "$scratch/secret" --backend cpu \
        --devices 2 --name "$2" 2>"$scratch/log-$2" &
}
run_case() {
    cpattn-submit case --socket "$scratch/socket" "$@" 2>&1
}

ip link add br0 address 02:00:00:00:00:01 type bridge
ip link set br0 up
a='' b='' c='' # host() assigns them
host a 1
host b 2
host c 3
nsenter --target "$a" --net -- cpattnd --socket "$scratch/socket" --backend cpu --devices 2 --hosts b=2,c=2 \
    --agents-listen tcp://10.99.0.1:7422 --agents-token-file "$scratch/secret" 2>"$scratch/log" &
daemon=$!
agent "$b" b
agent "$c" c
await 2 host_back

one=$(run_case --world-size 6 --nodes 1 --seqlen-q 96 --seqlen-kv 96 | grep -o 'digest.*')
three=$(run_case --world-size 6 --nodes 3 --seqlen-q 96 --seqlen-kv 96 | grep -o 'digest.*')
tap_has "a case has a digest" "$one" digest
tap_is "three hosts give the bits of one" "$three" "$one"

run_case --world-size 6 --nodes 3 --heads 16 --seqlen-q 8192 --seqlen-kv 8192 >"$scratch/answer" &
asked=$!
await 3 ' run '
await_ranks 6 '^cpattn-rank . 6 2 ' # of the second pool
tap_is "a case over three hosts has its ranks" "$ranks" 6
ip link set vc down
tap_wait "$asked"
tap_has "cut connection: the answer names the host" "$(cat "$scratch/answer")" "host c was lost"
tap_has "cut connection: the other hosts run cases" "$(run_case --world-size 4 --nodes 2)" "pass  bf16"
await_ranks 0 '^cpattn-rank . 6 2 '
tap_is "cut connection: the agent has ended its ranks" "$ranks" 0
ip link set vc up
await 3 host_back
tap_has "restored connection: the host is used again" "$(run_case --world-size 6 --nodes 3)" "pass  bf16"

tap_is "there are ranks" "$(pgrep -fc '^cpattn-rank ' | sed 's/^[1-9][0-9]*$/yes/')" yes
kill $daemon
tap_wait $daemon
tap_is "the daemon ends" $? 0
await_ranks 0 '^cpattn-rank '
tap_is "no rank is left anywhere" "$ranks" 0
tap_done

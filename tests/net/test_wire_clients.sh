#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The daemon with other clients: pynng and nng of other versions, nanomsg, Python's ssl, OpenSSL's
# s_client, and the project's client with the installed nng. Prints TAP; missing libraries are
# skipped with a reason. PYTHON names a python3 that has pynng and nng (nng-ssl for TLS).
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}" "${PYTHON:=python3}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
"$PYTHON" -c 'import ssl' 2>/dev/null || {
    echo "1..0 # SKIP there is no python3 with ssl"
    exit 0
}
command -v openssl >/dev/null 2>&1 || {
    echo "1..0 # SKIP there is no openssl to make certificates with"
    exit 0
}
"$top_builddir/cpattnd" --version | grep -q 'network: yes' || {
    echo "1..0 # SKIP this cpattnd was built without TLS"
    exit 0
}
scratch=$(mktemp -d) || exit 99
daemons=
trap 'kill -KILL $daemons 2>/dev/null; rm -rf "$scratch"' EXIT
token="a token that nobody guesses, 42"

sign() { # NAME SUBJECT EXTENSION
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$scratch/$1.key" -subj "$2" \
        -out "$scratch/$1.csr" 2>/dev/null
    echo "$3" >"$scratch/$1.ext"
    openssl x509 -req -in "$scratch/$1.csr" -CA "$scratch/ca.pem" -CAkey "$scratch/ca.key" -CAcreateserial \
        -days 365 -extfile "$scratch/$1.ext" -out "$scratch/$1.pem" 2>/dev/null
}
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$scratch/ca.key" -subj /CN=ca \
    -addext keyUsage=critical,keyCertSign -days 365 -out "$scratch/ca.pem" 2>/dev/null
sign server /CN=127.0.0.1 "subjectAltName=DNS:127.0.0.1,IP:127.0.0.1"
sign alice /O=Lab/CN=alice "extendedKeyUsage=clientAuth"
cat "$scratch/alice.pem" "$scratch/alice.key" >"$scratch/alice.both"
(umask 077 && echo "$token" >"$scratch/token")
chmod 600 "$scratch"/*.key

# Two daemons, because each listens on one port beside its socket. The system chooses the ports.
ports=$("$PYTHON" -c 'import socket
free = [socket.socket() for _ in range(2)]
for one in free: one.bind(("127.0.0.1", 0))
print(*[one.getsockname()[1] for one in free])')
tcp_port=${ports% *}
tls_port=${ports#* }

start() { # NAME ARGUMENT...
    name=$1
    shift
    "$top_builddir/cpattnd" --backend cpu --devices 2 --socket "$scratch/$name.sock" "$@" 2>"$scratch/$name.log" &
    daemons="$daemons $!"
    for _ in $(seq 600); do
        grep -q 'ready ' "$scratch/$name.log" && return
        sleep 0.1
    done
    echo "Bail out! the daemon does not start: $(tail -n 1 "$scratch/$name.log")"
    exit 1
}
start tcp --listen "tcp://127.0.0.1:$tcp_port" --token-file "$scratch/token"
start tls --listen "tls+tcp://127.0.0.1:$tls_port" --tls-certificate "$scratch/server.pem" \
    --tls-key "$scratch/server.key" --tls-clients "$scratch/ca.pem"

"$PYTHON" "$top_srcdir/tests/net/wire_clients.py" "$scratch" "$scratch/tcp.sock" "$tcp_port" "$tls_port" \
    "$token" >"$scratch/clients" 2>&1
status=$?
sed '/^# tests: /d' "$scratch/clients"
tap_number=$(sed -n 's/^# tests: //p' "$scratch/clients")
: "${tap_number:=0}"
tap_is "all clients end" "$status" 0
tap_has "certificates are users in the log" "$(cat "$scratch/tls.log")" 'subject="CN=alice,O=Lab"'

# The client of this project, over nng.
remote() { # COMMAND...
    "$top_builddir/cpattn-submit" "$@" --socket "tls+tcp://127.0.0.1:$tls_port" --tls-ca "$scratch/ca.pem" \
        --tls-certificate "$scratch/alice.pem" --tls-key "$scratch/alice.key" 2>&1
}
tap_has "cpattn-submit, tls" "$(remote case --seqlen 32 --world-size 2)" "pass  bf16"

# The greeting and a request in the format of the wire, through the client of OpenSSL. That client
# runs until it is killed.
request=$top_srcdir/tests/fuzz/corpus/request/status
frame() {
    printf '\000SP\000\000\060\000\000'
    # shellcheck disable=SC2059
    printf "\\000\\000\\000\\000\\000\\000\\000\\$(printf %03o $(($(wc -c <"$request") + 4)))\\200\\000\\000\\001"
    cat "$request"
}
frame >"$scratch/frame"
for version in tls1_3 tls1_2; do
    answer=$scratch/answer-$version
    : >"$answer"
    openssl s_client -quiet -"$version" -connect "127.0.0.1:$tls_port" -CAfile "$scratch/ca.pem" \
        -cert "$scratch/alice.pem" -key "$scratch/alice.key" <"$scratch/frame" >"$answer" 2>"$scratch/client" &
    client=$!
    for _ in $(seq 300); do
        [ "$(wc -c <"$answer")" -ge 40 ] && break
        kill -0 "$client" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "$client" 2>/dev/null
    wait "$client" 2>/dev/null
    [ -s "$answer" ] || sed 's/^/# /' "$scratch/client"
    tap_is "openssl s_client, $version: the greeting" "$(head -c 8 "$answer" | od -An -tx1 | tr -d ' ')" \
        0053500000310000
    tap_is "openssl s_client, $version: the reply has the id" \
        "$(tail -c +25 "$answer" | head -c 16 | od -An -tx1)" \
        "$(tail -c +5 "$request" | head -c 16 | od -An -tx1)"
done

# shellcheck disable=SC2086 # a list of processes
tap_ends $daemons
daemons=
tap_done

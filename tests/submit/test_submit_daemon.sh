#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The command with a daemon that has real ranks: the demonstration passes; a failure has its cause
# and exit status, and other cases go on. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
# shellcheck source=tests/support/daemon.sh
. "$top_srcdir/tests/support/daemon.sh"
peek=$top_builddir/tests/support/peek

run() {
    "$submit" "$@" >"$scratch/out" 2>"$scratch/err"
    status=$?
    out=$(cat "$scratch/out")
    err=$(cat "$scratch/err")
}

# Prints a member of the status.
status_of() {
    "$submit" status --json | "$peek" json "$1"
}

# Waits until a member of the status has a value.
await_status() { # MEMBER VALUE
    until [ "$(status_of "$1")" = "$2" ]; do
        tap_step "$daemon" || return
    done
}

# Prints the process ids of the daemon's ranks, the oldest first.
ranks() {
    tr ' ' '\n' <"/proc/$daemon/task/$daemon/children" | while read -r child; do
        [ -z "$child" ] || [ "$(cat "/proc/$child/comm")" = cpattnd-starter ] || echo "$child"
    done
}

# A case that runs much longer than a test needs, in little memory.
long="case --batch 1 --seqlen 32k --heads 4"

# ---- no daemon ----

run status
tap_is "no daemon: exit status" "$status$out" 78
tap_has "no daemon: message names the socket" "$err" "cpattn-submit: no daemon at $CPATTN_SOCKET"
tap_has "no daemon: message says how to start it" "$err" "cpattnd --socket $CPATTN_SOCKET"
run case
tap_is "no daemon: exit status of case" "$status$out" 78
run matrix "$top_srcdir/cases/demonstration.yaml"
tap_is "no daemon: exit status of matrix" "$status$out" 78
for command in "matrix $top_srcdir/cases/demonstration.yaml" bench; do
    echo earlier >"$scratch/kept.jsonl"
    # shellcheck disable=SC2086
    run $command --save "$scratch/kept.jsonl"
    tap_is "no daemon: an earlier record stays as it is: ${command%% *}" \
        "$status $(cat "$scratch/kept.jsonl")" "78 earlier"
done

# ---- a daemon with another version of the protocol, or with unusual answers ----

mkfifo "$scratch/stdin"
"$top_builddir/tests/client/fake_daemon" "$CPATTN_SOCKET" <"$scratch/stdin" >"$scratch/ready" &
daemon=$!
exec 3>"$scratch/stdin"
until grep -q ready "$scratch/ready"; do
    tap_step "$daemon" || exit 99
done
run case --model version
tap_is "another version: exit status and sentence" "$status $(sed -n 2p "$scratch/out")" \
    "73       FAILED_PRECONDITION: the daemon speaks version 2 of the protocol, this client version 1"
run case --model garbage
tap_is "an answer that cannot be decoded: exit status" "$status" 79
for verify in auto off; do
    run case --model drift --repeat 3 --verify $verify
    tap_is "results that differ, verify $verify: exit status" "$status" 1
    tap_has "results that differ, verify $verify: message" "$out" ": the results differ between runs"
    run case --model same --repeat 3 --verify $verify
    tap_is "equal results, verify $verify: exit status and message" "$status $(grep -o '3 runs, all of digest [0-9a-f]*' "$scratch/out")" \
        "0 3 runs, all of digest 00000000000004d2"
done
exec 3>&-
tap_wait "$daemon"
tap_is "the false daemon ends with status 0" "$?" 0

# ---- cases ----

daemon_start --backend cpu --devices 2
run describe --json
tap_is "describe" "$status $("$peek" json backend <"$scratch/out") $(
    "$peek" json devices <"$scratch/out")" "0 cpu 2"
run status
tap_has "status without a pool" "$out" "no pool yet"
# Sends an order, then prints the exit status of `status --check`.
checked() { # COMMAND DEVICE
    "$submit" "$1" "$2" >/dev/null
    run status --check
    echo "$status"
}
tap_is "status --check: both devices, one, none, one, both are in use" \
    "$(run status --check; echo "$status") $(checked drain 0) $(checked drain 1) $(checked enable 0) $(checked enable 1)" \
    "0 0 1 0 0"

# The bench runs once with verification, once for warming up, and twice with measurement.
run bench --repeat 2 --warmup 1 --seqlen 64 --json
tap_is "bench: exit status" "$status$err" 0
tap_is "bench: what was run" \
    "$("$peek" json verified <"$scratch/out") $(status_of admitted) $(status_of passed)" "pass 4 1"
for series in times_ns.forward times_ns.backward times_ns.wall per_device.tflops; do
    tap_is "bench: $series was measured" \
        "$("$peek" json "$series.median" <"$scratch/out" | awk '{ print ($1 > 0) }')" 1
done
run case --world-size 3 --seqlen 101 --heads 6 --kv-heads 2 --head-dim 40 --json
tap_is "an odd case passes on every rank" "$status $("$peek" json outcome <"$scratch/out") $(
    "$peek" json ranks.2.pass <"$scratch/out") $("$peek" json ranks.3 <"$scratch/out")" "0 pass true -"
run case --seqlen 64 --heads 2 --kv-heads 2 --repeat 20 --json
tap_is "20 runs, one digest" "$status $("$peek" json digest <"$scratch/out" | sort -u | wc -l)" "0 1"
run case --seqlen 0
tap_is "a case without tokens" "$status $(head -n 1 "$scratch/out")" \
    "0 pass  bf16 bshd p2p w2 b2 h8 s0 d128 causal"
run case --world-size 64 --seqlen 4194304
tap_is "a case that needs more memory than granted" "$status $(sed -n 's/^ *\([A-Z_]*\): .*/\1/p' "$scratch/out")" \
    "72 RESOURCE_EXHAUSTED"

run watch --kind finished --last 1 --json
tap_is "watch: verdict of the last case" "$status $("$peek" json verdict <"$scratch/out") $(
    "$peek" json case <"$scratch/out")" "0 pass bf16 bshd p2p w2 b2 h8 s0 d128 causal"
"$submit" watch --follow --last 0 --kind pool >"$scratch/followed" 2>&1 &
watcher=$!

# ---- another kind of job ----

run collective all_gather --world-size 3 --dtype bf16 --count 1000 --repeat 3
tap_is "a collective: exit status and verdict" "$status $(head -n 1 "$scratch/out")" \
    "0 pass  collective all_gather w3 count=1000 dtype=bf16"
tap_is "a collective: its runs" "$(tail -n 1 "$scratch/out" | sed 's/ [0-9a-f]\{16\};.*/ X/')" "3 runs, all of digest X"
tap_is "a collective: its tensors" "$(sed -n 's/^\(receive\|send\|guards\) .*/\1/p' "$scratch/out" | tr '\n' ' ')" \
    "receive send guards "
run collective --operation reduce --root 1 --count 100 --json
tap_is "a collective in JSON" "$status $("$peek" json outcome <"$scratch/out") $(
    "$peek" json job.kind <"$scratch/out") $("$peek" json job.root <"$scratch/out") $(
    "$peek" json ranks.1.figures.0.tensor <"$scratch/out")" "0 pass collective 1 receive"
tap_is "a collective: the command that runs it again" "$("$peek" json command <"$scratch/out")" \
    "cpattn-submit collective reduce --count 100 --root 1"
run collective all_gather --count 2 --size 16 --json
tap_is "a collective: a size and its count agree" "$status $("$peek" json job.count <"$scratch/out")" "0 2"
run bench collective all_gather,reduce --count 10 --root 1 --repeat 1 --warmup 0
tap_is "a sweep of collectives: a root of one of them" "$status $err" "0 "
cat >"$scratch/root.yaml" <<'END'
kind: collective
axes: {operation: [all_gather, broadcast]}
END
run matrix "$scratch/root.yaml" --set root=1 --set reduction=max --set count=10 --json
tap_is "the command of a collective has no field without effect" "$status $("$peek" json command <"$scratch/out" | sort)" \
    "0 cpattn-submit collective all_gather --count 10
cpattn-submit collective broadcast --count 10 --root 1"
run collective all_reduce --count 1000000 --timeout 1ms
tap_is "a collective: time limit" "$status" 68
run collective all_gather --algorithm tree
tap_is "a collective: unsupported algorithm" "$status $err" "76 cpattn-submit: algorithm is tree with all_gather; \
accepted is auto, or an algorithm that this operation has"
run collective reduce --world-size 3 --explain 0 --count 10
tap_is "the plan of a collective" "$status $(grep -c 'reduce .* -> receive' "$scratch/out")" "0 2"
run bench collective all_gather,reduce --world-size 2 --size 1k,64k --repeat 3 --warmup 0
tap_is "a sweep of collectives" "$status $(head -n 1 "$scratch/out" | tr -s ' ' | cut -d ' ' -f 1-9) $(
    sed 1d "$scratch/out" | awk '{ printf "%s ", $2 }')" \
    "0 SIZE OPERATION TIME LEAST SPREAD ALGORITHM GB/s BUS GB/s all_gather reduce all_gather reduce "
run bench collective all_gather --count 1k --repeat 2
tap_is "the times of a collective: it has no backward" \
    "$status $(sed -n '/^OF EACH RUN/,/^$/p' "$scratch/out" | awk 'NR > 1 && NF { printf "%s ", $1 }')" \
    "0 run exchange exposed wall "
run bench collective all_gather --count 1k --world-size 4 --dtype fp16 --repeat 2 --json
tap_is "bandwidths as nccl-tests has them" "$status $("$peek" json rates <"$scratch/out" >/dev/null
    for rate in ALGORITHM BUS; do "$peek" json "rates.${rate}_GB/s" <"$scratch/out"; done | tr '\n' ' ' |
        awk '{ print $2 / $1 }') $("$peek" json job.verify <"$scratch/out")" "0 0.75 false"
run matrix "$top_srcdir/cases/collectives.yaml" --filter 'size<=512' --filter world_size=2 --filter elements=fp32 \
    --save "$scratch/collectives.jsonl" --junit "$scratch/collectives.xml"
tap_is "a matrix of collectives" "$status $(tail -n 1 "$scratch/out" | sed 's/ in .*//')" "0 24 cases: 24 passed"
tap_is "a matrix of collectives: reports" "$(grep -c '<testcase' "$scratch/collectives.xml") $(
    "$peek" json command <"$scratch/collectives.jsonl" | sort | head -n 1)" \
    "24 cpattn-submit collective all_gather --count 1 --size 8"
run matrix "$top_srcdir/cases/collectives.yaml" --list --filter seqlen=4
tap_has "a matrix of collectives: a filter with a field of attention" "$status $err" "64 cpattn-submit: --filter seqlen=4: 'seqlen' is neither a field"
run linear column --tokens 20 --sequence-parallel true --repeat 2
tap_is "a linear layer passes twice" "$status $(cut -c1-4 "$scratch/out" | head -n 1)" "0 pass"
run linear mlp --explain 1
tap_is "the plan of a layer" "$status $(grep -c 'product .* -> dw[12] ' "$scratch/out")" "0 2"
run linear mlp --chunks 0
tap_has "a layer: invalid field" "$status $err" "64 cpattn-submit: chunks is '0'; accepted is 1 to 64"
run matrix "$top_srcdir/cases/tensor-parallel.yaml" --subset quick --filter dtype=bf16 --filter chunks=4
tap_is "a matrix of layers" "$status $(tail -n 1 "$scratch/out" | sed 's/ in .*//')" "0 8 cases: 8 passed"
run linear mlp --world-size 2 --tokens 1k --in-features 16 --hidden 32 --out-features 16
tap_is "sizes of layers have units" "$status $(head -n 1 "$scratch/out")" \
    "0 pass  linear mlp w2 tokens=1024 in_features=16 hidden=32 out_features=16"
run linear row --in-features 64 --out-features 64 --tokens 16 --json
tap_is "defaults that follow from the layer are not in the command" "$("$peek" json command <"$scratch/out")" \
    "cpattn-submit linear row --tokens 16 --in-features 64 --out-features 64"
run linear row --activation gelu
tap_is "an activation of a row layer is refused" "$status $err" "67 cpattn-submit: activation is gelu with layer row; \
accepted is auto, or layer mlp, which has one between its layers"
run bench linear --tokens 1k,x
tap_is "a sweep of layers: invalid value" "$status $err" \
    "64 cpattn-submit: tokens is 'x'; accepted is 1 to 4194304"
run bench linear row --tokens 16,32 --in-features 64 --out-features 64 --repeat 2 --warmup 0
tap_is "a sweep of layers" "$status $(sed 1d "$scratch/out" | awk '{ printf "%s ", $1 }')" "0 16 32 "
run linear mlp --world-size 2 --chunks 2 --svg -
tap_is "the picture of a layer" "$status $(grep -c '<svg ' "$scratch/out") $(grep -c 'class="lane"' "$scratch/out")" "0 1 4"
run linear mlp --world-size 2 --tokens 32 --trace "$scratch/layer.json"
tap_is "the trace of a layer" "$status $(grep -c 'rank [01], measured' "$scratch/layer.json") $(
    grep -c '"name":"product".*"predicted_us"' "$scratch/layer.json")" "0 2 $(
    "$submit" linear mlp --world-size 2 --tokens 32 --svg "$scratch/layer.svg" && grep -c '"name":"product".*"flop"' "$scratch/layer.json" |
        awk '{ print $1 / 2 }')"
run collective all_reduce --count 1k --json --trace "$scratch/collective.json"
tap_is "the trace of a collective, beside JSON" "$status $("$peek" json outcome <"$scratch/out") $(
    grep -c 'rank [01], measured' "$scratch/collective.json")" "0 pass 2"
run collective all_reduce --world-size 2 --count 1k --trace "$scratch/missing/trace.json"
tap_has "a trace that cannot be written" "$status $(cat "$scratch/out")$err" "64 cpattn-submit: $scratch/missing/trace.json cannot be written"
run collective reduce --explain 2
tap_is "the plan of a rank that does not exist" "$status" 64

run matrix "$top_srcdir/cases/demonstration.yaml" --seqlen-scale "${CPATTN_TEST_PART:-4}" --junit "$scratch/report.xml"
tap_is "the demonstration passes" "$status $(tail -n 1 "$scratch/out" | sed 's/ in .*//')" \
    "0 16 cases: 16 passed"
[ "$status" -eq 0 ] || sed 's/^/# /' "$scratch/out"
tap_is "the demonstration: JUnit" "$("$peek" xml 'concat(//testsuite/@tests, " ", //testsuite/@failures, " ",
    //testsuite/@errors, " ", //testsuite/@skipped)' <"$scratch/report.xml")" "16 0 0 0"
until grep -q ': idle' "$scratch/followed"; do
    tap_step "$watcher" || break
done
kill -INT "$watcher"
tap_wait "$watcher"
tap_is "watch --follow: ends with Ctrl-C" "$? $(grep -c ': idle' "$scratch/followed" | sed 's/[1-9][0-9]*/some/')" "0 some"

# ---- errors -------------

daemon_stop
daemon_start --backend cpu --devices 2

# shellcheck disable=SC2086
"$submit" $long >"$scratch/long" 2>&1 &
await_status running 1
"$submit" case --seqlen 64 >"$scratch/next" 2>&1 &
await_status queued 1
victim=$(ranks | tail -n 1)
kill -KILL "$victim"
tap_wait $!
tap_is "a queued case survives a killed rank" "$? $(cut -c1-4 "$scratch/next" | head -n 1)" "0 pass"
tap_has "a killed rank: the cause" "$(grep '<- cause' "$scratch/long")" "killed by signal 9"
tap_is "a killed rank: one cause" "$(grep -c '<- cause' "$scratch/long")" 1
tap_has "a killed rank: the status" "$(sed -n 2p "$scratch/long")" "ABORTED: rank "
tap_is "a killed rank: the command" "$(sed -n 's/^ *again: //p' "$scratch/long")" \
    "cpattn-submit case --batch 1 --heads 4 --seqlen-q 32768 --seqlen-kv 32768"
tap_is "a killed rank: the pool is counted" "$(status_of pools.0.deaths)" 1

kill -STOP "$(ranks | tail -n 1)"
run case --seqlen 64 --timeout 500ms
tap_is "a time limit" "$status $(sed -n 's/^ *\([A-Z_]*\): .*/\1/p' "$scratch/out")" \
    "68 DEADLINE_EXCEEDED"
tap_has "a time limit: phase in the message" "$(cat "$scratch/out")" "time limit of 500 ms passed while rank"

# shellcheck disable=SC2086
run $long --timeout 100ms
tap_is "a time limit that cannot be met" \
    "$status $(sed -n 's/^ *\([A-Z_]*\): .*/\1/p' "$scratch/out")" "68 DEADLINE_EXCEEDED"
advice=$(sed -n 's/.* does not allow; accepted is \([0-9.]*m\{0,1\}s\) or more$/\1/p' "$scratch/out")
tap_has "a time limit that cannot be met: sufficient limit in the message" "${advice:-nothing}" s
# shellcheck disable=SC2086
run $long --timeout 100ms --json
tap_is "a time limit that cannot be met, in JSON" \
    "$status $("$peek" json status <"$scratch/out") $(
        "$peek" json message <"$scratch/out" | grep -o "$advice or more"
    )" "68 DEADLINE_EXCEEDED $advice or more"

# shellcheck disable=SC2086
"$submit" $long >"$scratch/long" 2>&1 &
await_status running 1
kill -TERM $!
tap_wait $!
tap_is "an interrupted case is cancelled" "$? $(sed -n 's/^ *\([A-Z_]*\): .*/\1/p' "$scratch/long")" \
    "65 CANCELLED"
run case --seqlen 64
tap_is "after a cancelled case the next one runs" "$status" 0

# shellcheck disable=SC2086
env --default-signal=INT "$submit" $long >"$scratch/long" 2>&1 &
running=$!
await_status running 1
kill -STOP "$daemon"
kill -INT $running
tap_wait $running
tap_is "an interrupt at a daemon that hangs: exit status and sentence" "$? $(grep -o 'CANCELLED.*' "$scratch/long")" \
    "65 CANCELLED: cancelled, and not answered in time"
kill -CONT "$daemon"
await_status running 0

if command -v script >/dev/null 2>&1; then
    TERM=xterm script -qefc "$submit $long" "$scratch/terminal" >/dev/null </dev/null &
    until grep -q 'cancels request' "$scratch/terminal" 2>/dev/null; do
        tap_step $! || break
    done
    id=$(grep -o 'request [0-9a-f]*' "$scratch/terminal" | head -n 1 | cut -c9-)
    run cancel "$id"
    tap_wait $!
    tap_is "cancel by the id that a waiting case shows" "$status$err $?" "0 65"
    tap_has "cancel by the id that a waiting case shows: message of the case" "$(cat "$scratch/terminal")" "CANCELLED: "
else
    tap_skip "cancel by the id that a waiting case shows" "no script command"
fi
# The output of `status` is enough to find whose case runs, and to cancel it.
# shellcheck disable=SC2086
"$submit" $long >"$scratch/long" 2>&1 &
await_status running 1
run status
line=$(printf '%s\n' "$out" | tr -s ' ' | grep '^[0-9a-f]\{32\} running ')
tap_has "status names who runs a case" "$line" " uid=$(id -u) pid=$! "
tap_has "status names the case that runs" "$line" "s32768"
run cancel "${line%% *}"
tap_wait $!
tap_is "cancel by the id that status shows" "$status$err $?" "0 65"
run cancel 0123456789abcdef0123456789abcdef
tap_is "cancel of an unknown request" "$status" 69
run cancel nonsense
tap_is "cancel of an invalid id" "$status" 67

# ---- a matrix and daemons that go away ----

"$submit" watch --follow --last 1024 --kind finished >"$scratch/watched" 2>"$scratch/watched.err" &
watcher=$!
until [ -s "$scratch/watched" ]; do
    tap_step "$watcher" || break
done
kill -KILL "$daemon"
wait "$daemon" 2>/dev/null
until grep -q 'waiting for a daemon' "$scratch/watched.err"; do
    tap_step "$watcher" || break
done
daemon_start --backend cpu --devices 2
run case --seqlen 64
until grep -q 'started again' "$scratch/watched"; do
    tap_step "$watcher" || break
done
kill -INT "$watcher" 2>/dev/null
tap_wait "$watcher"
tap_is "watch --follow goes on with the next daemon" "$? $(sed -n '/started again/,$p' "$scratch/watched" | grep -c ' pass ') $(
    grep -c 'waiting for a daemon' "$scratch/watched.err")" "0 1 1"

small="$top_srcdir/cases/demonstration.yaml --set seqlen=150 --filter dtype=bf16 -j 2"
matrix_start() { # OPTIONS...
    rm -f "$scratch/matrix" "$scratch/matrix.err"
    # shellcheck disable=SC2086
    "$submit" matrix $small "$@" >"$scratch/matrix" 2>"$scratch/matrix.err" &
    matrix=$!
    until grep -qs '^ *1/8 pass' "$scratch/matrix"; do
        tap_step $matrix || break
    done
}

matrix_start
kill -KILL "$daemon"
wait "$daemon" 2>/dev/null
daemon_start --backend cpu --devices 2
tap_wait $matrix
tap_is "a matrix goes on with the next daemon" "$? $(tail -n 1 "$scratch/matrix" | sed 's/ in .*//')" \
    "0 8 cases: 8 passed"
tap_has "and says that the first is lost" "$(cat "$scratch/matrix.err")" "; waiting for a daemon"
matrix_start
daemon_stop
daemon_start --backend cpu --devices 2
tap_wait $matrix
tap_is "a matrix goes on with the next daemon when the first drains" "$? $(tail -n 1 "$scratch/matrix" | sed 's/ in .*//')" \
    "0 8 cases: 8 passed"
tap_has "and says that the first is gone" "$(cat "$scratch/matrix.err")" "; waiting for a daemon"
matrix_start --patience 300ms
kill -KILL "$daemon"
wait "$daemon" 2>/dev/null
tap_wait $matrix
tap_is "a matrix waits no longer than --patience" "$? $(grep -c '^ *[0-9]/8' "$scratch/matrix")" "78 8"
matrix_start --patience 1h
tap_wait $matrix
tap_is "a matrix does not wait for a daemon that is missing at the start" "$?" 78
daemon_start --backend cpu --devices 2
matrix_start --patience 1h
kill -KILL "$daemon"
wait "$daemon" 2>/dev/null
until grep -qs 'waiting for a daemon' "$scratch/matrix.err"; do
    tap_step $matrix || break
done
tap_has "a matrix prints what it waits for" "$(cat "$scratch/matrix.err")" "; waiting for a daemon"
kill -TERM $matrix
tap_wait $matrix
tap_is "an interrupt ends the wait of a matrix" "$? $(tail -n 1 "$scratch/matrix" | sed 's/: .* passed, .* not run in .*//')" \
    "65 8 cases"
daemon_start --backend cpu --devices 2

daemon_stop
daemon_start --backend cpu --devices 2 --queue-max 2
# shellcheck disable=SC2086
run matrix $small -j 8
tap_is "a matrix larger than the queue" \
    "$status $(tail -n 1 "$scratch/out" | sed 's/ in .*//')" "0 8 cases: 8 passed"

# Another command fills the user's share of the queue, and a stopped rank holds it up.
daemon_stop
daemon_start --backend cpu --devices 2 --queue-max 2
run case --seqlen 64
held=$(ranks | tail -n 1)
kill -STOP "$held"
"$submit" case --seqlen 64 >"$scratch/first" 2>&1 &
await_status running 1
# shellcheck disable=SC2086
run matrix $small --patience 300ms
tap_is "a matrix waits for room in the queue, no longer than --patience" \
    "$status $(tail -n 1 "$scratch/out" | sed 's/ in .*//')" "72 8 cases: 8 could not be run"
# shellcheck disable=SC2086
"$submit" matrix $small --patience 1h >"$scratch/matrix" 2>"$scratch/matrix.err" &
matrix=$!
until grep -qs 'waiting for room in the queue' "$scratch/matrix.err"; do
    tap_step $matrix || break
done
kill -CONT "$held"
tap_wait $matrix
tap_is "a matrix runs when there is room" "$? $(tail -n 1 "$scratch/matrix" | sed 's/ in .*//')" "0 8 cases: 8 passed"
daemon_stop
daemon_start --backend cpu --devices 2 --timeout-max 80s # less than the usual limit
run case --seqlen 64
tap_is "a case without a limit has what the daemon grants" "$status $(grep -c ' timeout_ms=80000$' "$scratch/log")" "0 1"
# shellcheck disable=SC2086
run matrix $small
tap_is "a matrix, too" "$status $(tail -n 1 "$scratch/out" | sed 's/ in .*//') $(grep -c ' timeout_ms=80000$' "$scratch/log")" \
    "0 8 cases: 8 passed 9"
daemon_stop

# A reload lowers the longest time limit while a matrix runs. The matrix goes on with the new limit
# and says so. A stopped rank keeps the first case from ending before the reload.
echo "timeout-max: 80s" >"$scratch/settings"
daemon_start --config "$scratch/settings" --backend cpu --devices 2
run case --seqlen 64
kill -STOP "$(ranks | tail -n 1)"
# shellcheck disable=SC2086
"$submit" matrix $small --filter world_size=2 --timeout 65s >"$scratch/matrix" 2>"$scratch/matrix.err" &
matrix=$!
await_status running 1
await_status queued 1
echo "timeout-max: 70s" >"$scratch/settings"
"$submit" reload >"$scratch/out" 2>&1
kill -CONT "$(ranks | tail -n 1)"
tap_wait $matrix
tap_is "a matrix goes on when the longest limit falls" "$? $(tail -n 1 "$scratch/matrix" | sed 's/ in .*//')" \
    "0 4 cases: 4 passed"
tap_has "and says so" "$(cat "$scratch/matrix.err")" \
    "the daemon at $CPATTN_SOCKET grants a case at most 70.0 s with its wait (timeout-max)"
tap_is "and says so once" "$(grep -c '' "$scratch/matrix.err")" 1
tap_is "each of its cases has one of the two limits" \
    "$(sed -n 's/.* admitted .* \(timeout_ms=[0-9]*\)$/\1/p' "$scratch/log" | sort -u | tr '\n' ' ')" \
    "timeout_ms=70000 timeout_ms=80000 "
# shellcheck disable=SC2086
run matrix $small --timeout 75s
tap_is "a limit that the user gives and the daemon does not grant" \
    "$status $(tail -n 1 "$scratch/out" | sed 's/ in .*//')" "0 8 cases: 8 passed"
tap_has "is told" "$err" "at most 70.0 s with its wait (timeout-max), not the given 75.0 s"
daemon_stop
daemon_start --backend cpu --devices 2 --memory 1M
# shellcheck disable=SC2086
run matrix $small
tap_is "a matrix does not wait for memory that is not granted" "$status $(tail -n 1 "$scratch/out" | sed 's/ in .*//')" \
    "72 8 cases: 8 could not be run"
daemon_stop
daemon_start --backend cpu --devices 2

# ---- the end of the daemon ----

# The log tells the requests that were in flight: they are admitted and not answered.
run case --seqlen 64
# shellcheck disable=SC2086
"$submit" $long >"$scratch/long" 2>&1 &
running=$!
await_status running 1
# shellcheck disable=SC2086
"$submit" $long >/dev/null 2>&1 &
waiting=$!
await_status queued 1
kill -KILL "$daemon"
tap_wait $running
tap_is "a daemon that dies: exit status" "$?" 78
tap_wait $waiting
of() { # EVENT
    sed -n "s/^.* $1 id=\([0-9a-f]*\) .*/\1/p" "$scratch/log"
}
flying=$(of admitted | grep -vxF "$(of answered)")
tap_is "a daemon that dies: the log has the requests in flight" "$(for id in $flying; do
    sed -n "s/^.* admitted id=$id client=[0-9]* \(uid=[0-9]* pid=[0-9]*\) case=.* s32768 .*/\1/p" "$scratch/log"
done)" "uid=$(id -u) pid=$running
uid=$(id -u) pid=$waiting"
tap_is "a daemon that dies: the log has the running request" "$(of run | grep -xF "$flying")" "$(echo "$flying" | head -n 1)"
wait "$daemon" 2>/dev/null
daemon=
tap_done

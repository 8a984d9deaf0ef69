#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Benches of several cases, and comparison with earlier benches. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
fake=$top_builddir/tests/submit/submit_fake
peek=$top_builddir/tests/support/peek
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
unset CPATTN_SOCKET

run() {
    "$fake" bench "$@" >"$scratch/out" 2>"$scratch/err"
    status=$?
    err=$(cat "$scratch/err")
}

run --seqlen 1k,2k --comm p2p,a2a --repeat 3 --save "$scratch/all.jsonl"
tap_is "a sweep: a row for each case, the last option fastest" \
    "$status $(sed 1d "$scratch/out" | awk '{printf "%s/%s ", $1, $2}')" "0 1k/p2p 1k/a2a 2k/p2p 2k/a2a "
tap_is "a sweep: columns" "$(head -n 1 "$scratch/out" | tr -s ' ')" \
    "SEQLEN COMM FORWARD BACKWARD SPREAD FWD TFLOP/s BWD TFLOP/s BOTH SENT GB/s EXPOSED"
# A rank sends its keys and values to the other one: 2 sequences, 512 tokens, 8 heads, 128 elements,
# 2 bytes, 2 tensors: 4 MiB in forward and 4 MiB in backward. Their gradients are another 4 MiB.
run --seqlen 1k,2k --batch 2 --heads 8 --mask none --repeat 1
tap_is "a sweep: bytes sent by a rank grow with the length" "$(grep -o '[0-9.]* MiB' "$scratch/out" | tr '\n' ' ')" "12 MiB 24 MiB "
run --seqlen 8,16 --batch 1 --heads 1 --mask none --repeat 1
tap_is "a sweep: bytes sent have their unit" "$(grep -o '[0-9.]* KiB' "$scratch/out" | tr '\n' ' ')" "6 KiB 12 KiB "
run --seqlen 1k,2k --comm p2p,a2a --repeat 3 --json
tap_is "a sweep in JSON: one object for each case" "$("$peek" json case.seqlen_q <"$scratch/out" | tr '\n' ' ')" "1024 1024 2048 2048 "
tap_is "a sweep: --save has one line for each case" "$("$peek" json case.comm <"$scratch/all.jsonl" | tr '\n' ' ')" "p2p a2a p2p a2a "
run --heads 8,16 --kv-heads 4 --json --repeat 1
tap_is "a sweep: fields that follow from others" "$("$peek" json case.kv_heads <"$scratch/out" | tr '\n' ' ')" "4 4 "
run --heads 8,16 --json --repeat 1
tap_is "a sweep: fields that follow from others, without an option of their own" "$("$peek" json case.kv_heads <"$scratch/out" | tr '\n' ' ')" "8 16 "
run --lengths-q 5,6 --batch 2 --format thd --json --repeat 1
tap_is "a sweep: a list of lengths is one value" "$status $("$peek" json case.batch <"$scratch/out" | tr '\n' ' ')" "0 2 "

refuses() { # STATUS SENTENCE ARGUMENTS...
    wanted="$1 cpattn-submit: $2"
    shift 2
    run "$@"
    tap_is "refused: $*" "$status $err" "$wanted"
}
refuses 64 "heads is 'x'; accepted is 1 to 4096" --heads 8,x
refuses 64 "--heads is given twice" --heads 8,9 --heads 1,2
refuses 67 "heads is 9 and kv_heads is 4; accepted is a heads that is a multiple of kv_heads" \
    --heads 8,9 --kv-heads 4
refuses 64 "--slower is 'x'; accepted is 0 to 10000" --slower x
refuses 64 "$scratch/none: cannot be read: No such file or directory" --compare "$scratch/none"
damaged() { # LINE SENTENCE
    printf '%s\n' "$1" >"$scratch/bad.jsonl"
    refuses 64 "$scratch/bad.jsonl:1: no bench: $2" --compare "$scratch/bad.jsonl"
}
above="a number above 0, as bench --save of this version writes it"
damaged '{"command":"x"' "'}' expected near end of file, at byte 15; accepted is an object of JSON"
damaged '{"command":5}' "command is 5; accepted is a text"
damaged '{"command":"x"}' "times_ns.run.median is missing; accepted is $above"
damaged '{"command":"x","times_ns":{"run":{"median":0}}}' "times_ns.run.median is 0; accepted is $above"
refuses 64 "$scratch/none/x cannot be written: No such file or directory" --save "$scratch/none/x"
"$fake" case --seqlen 1k,2k >/dev/null 2>"$scratch/err"
tap_is "one case: one value" "$? $(cat "$scratch/err")" \
    "64 cpattn-submit: seqlen_q is '1k,2k'; accepted is 0 to 16777216"

# The first run of this model loses a rank, the second one fails.
run --seqlen 1k,2k --model flaky_shaky
tap_is "a sweep: a fail comes before a case that could not be run" "$status" 1

# With this model rank 1 has the longer forward and the shorter backward.
run --seqlen 1k --model skew --repeat 1 --json
tap_is "a run is forward and backward of the same rank" \
    "$(for name in forward backward run; do "$peek" json "times_ns.$name.median" <"$scratch/out"; done | tr '\n' ' ')" \
    "2500001 6000000 8500000 "
run --seqlen 1k,2k,3k --repeat 3 --compare "$scratch/all.jsonl"
tap_is "--compare: ratio of times" "$status $(sed 1d "$scratch/out" | awk '{printf "%s ", $NF}')" "0 1.000 1.000 - "
sed 's/"run":{"median":[0-9]*/"run":{"median":6500000/' "$scratch/all.jsonl" >"$scratch/fast.jsonl"
tap_is "--compare: a case that the earlier bench does not have is named" \
    "$(printf '%s' "$err" | grep -c "all.jsonl has no bench of case --seqlen-q 3072 --seqlen-kv 3072")" 1
run --seqlen 1k,2k --repeat 3 --provider other --compare "$scratch/all.jsonl"
tap_is "--compare: with another provider or implementation" "$status $(sed 1d "$scratch/out" | awk '{printf "%s ", $NF}')" \
    "0 1.000 1.000 "
run --seqlen 1k --repeat 3 --compare "$scratch/fast.jsonl"
tap_is "--compare: exit status if slower than allowed" "$status" 1
tap_has "--compare: message if slower than allowed" "$err" "s1024 d128 causal verify=off: forward and backward take 1.308 times"
run --seqlen 1k --repeat 3 --compare "$scratch/fast.jsonl" --save /dev/full
tap_is "--compare: slower than allowed comes before a full disk" "$status" 1
tap_has "--compare: the full disk is told, too" "$err" "/dev/full could not be written: No space left on device"
run --seqlen 1k --repeat 3 --compare "$scratch/fast.jsonl" --slower 50
tap_is "--compare: exit status within the allowed change" "$status $err" "0 "
run --model fail --repeat 3 --seqlen 1k,2k
tap_is "a sweep with failing cases" "$status $(wc -l <"$scratch/out")" "1 0"
tap_done

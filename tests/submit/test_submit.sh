#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The command with a fake client library: refusals and their exit status, output for every kind of
# answer, lists, reports, help. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
fake=$top_builddir/tests/submit/submit_fake
peek=$top_builddir/tests/support/peek
cases=$(cd "$top_srcdir/cases" && pwd)
demonstration=$cases/demonstration.yaml
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
unset CPATTN_SOCKET

# Runs the command. Sets out to its stdout, err to its stderr, and status to its exit status.
run() {
    "$fake" "$@" >"$scratch/out" 2>"$scratch/err"
    status=$?
    out=$(cat "$scratch/out")
    err=$(cat "$scratch/err")
}

# Passes if the command prints nothing on stdout and SENTENCE on stderr, and exits with STATUS.
refuses() { # STATUS SENTENCE ARGUMENTS...
    wanted=$1 sentence="cpattn-submit: $2"
    shift 2
    run "$@"
    tap_is "refused: $*" "$status|$err|$out" "$wanted|$sentence|"
}

# Prints the values at several paths of the one printed object.
peeks() { # PATH...
    for path; do "$peek" json "$path" <"$scratch/out"; done | tr '\n' ' '
}

# ---- the command line ----

refuses 64 "unknown command 'cse' (did you mean 'case'?); cpattn-submit --help lists them" cse
refuses 64 "unknown command 'x'; cpattn-submit --help lists them" x
refuses 64 "options follow the command: cpattn-submit COMMAND --socket; cpattn-submit --help lists the commands" \
    --socket /x status
refuses 64 "unknown option '--hedas' (did you mean --heads?); cpattn-submit case --help lists them" \
    case --hedas 3
refuses 64 "option '--hea' could be --heads, --head-dim-qk, --head-dim-v or --head-dim" case --hea 3
refuses 64 "unknown option '--num-kv-heads' (did you mean --kv-heads?); cpattn-submit case --help lists them" \
    case --num-kv-heads 4
refuses 64 "unknown option '--softcap'; cpattn-submit collective --help lists them" \
    collective --softcap 4
refuses 64 "unknown option '-tls-ca' (did you mean --tls-ca?); cpattn-submit case --help lists them" \
    case -tls-ca x
refuses 64 "unknown option '-x'; cpattn-submit case --help lists them" case -x
refuses 64 "unknown option '-1'; cpattn-submit enable --help lists them" enable -1
refuses 64 "unknown option '-q'; cpattn-submit case --help lists them" case -vq
refuses 64 "an option has the byte 0xc3; cpattn-submit case --help lists them" case -ä
refuses 64 "option '-j' needs a value; see cpattn-submit matrix --help" matrix a -j
refuses 64 "--jobs is '--x'; accepted is 1 to 512" matrix a -j --x
refuses 64 "--jobs is 'v'; accepted is 1 to 512" matrix a -jv
refuses 64 "option '--json' takes no value; see cpattn-submit status --help" status --json=3
refuses 64 "option '--model' needs a value; see cpattn-submit case --help" case --model
refuses 64 "unexpected argument 'x'; see cpattn-submit case --help" case x
refuses 64 "unexpected argument 'bench': help is for one command" help case bench
refuses 64 "unexpected argument 'linear': this kind of job has a command of its own; see cpattn-submit linear --help" \
    explain linear
refuses 64 "unexpected argument 'linear': the kind of job comes first, as in cpattn-submit bench linear" \
    bench --repeat 3 linear
refuses 64 "unexpected argument 'linear': the kind of job comes first, as in cpattn-submit bench linear" \
    bench collective all_reduce linear
refuses 64 "world_size is '0'; accepted is 1 to 64" case --world-size 0
refuses 64 "world_size is '65'; accepted is 1 to 64" case --world_size=65
refuses 64 "seqlen_q is '-1'; accepted is 0 to 16777216" case --seqlen -1
refuses 64 "seqlen_kv is '1099511627776'; accepted is 0 to 16777216" case --seqlen-kv 1099511627776
refuses 64 "dtype is 'bf17'; accepted is bf16, fp16 or fp32" case --dtype bf17
refuses 67 "heads is 12 and kv_heads is 5; accepted is a heads that is a multiple of kv_heads" \
    case --heads 12 --kv-heads 5
refuses 72 "batch 4096 x seqlen 16777216/16777216 x heads 4096/4096 x head_dim 256/256 needs more than \
1 PiB of memory per rank (world_size 1)" case --batch 4096 --seqlen 16777216 --heads 4096 \
    --kv-heads 4096 --head-dim 256 --world-size 1
refuses 64 "--timeout is '0'; accepted is a length of time such as 90, 90s, 1.5s, 250ms, 10us, 2m or 1h, \
more than 0 and up to 24h" case --timeout 0
refuses 64 "--repeat is '0'; accepted is 1 to 1000000" case --repeat 0
refuses 64 "--warmup is '-1'; accepted is 0 to 100000" bench --warmup=-1
refuses 64 "--rank is 2; accepted is 0 to 1 with world_size 2" explain --rank 2
refuses 64 "unknown option '--verbose'; cpattn-submit status --help lists them" status --verbose
refuses 64 "--kind is 'pol'; accepted is admitted, started, finished, pool, device or daemon (did you \
mean 'pool'?)" watch --kind finished,pol
refuses 64 "--last is '1025'; accepted is 0 to 1024" watch --last 1025
refuses 64 "unexpected argument 'x'; see cpattn-submit watch --help" watch x
refuses 64 "the id of a request is missing; see cpattn-submit cancel --help" cancel
refuses 69 "no such request waits or runs" cancel 00000000000000000000000000000000
refuses 64 "the matrix file is missing; see cpattn-submit matrix --help" matrix
refuses 64 "unexpected argument 'b'; see cpattn-submit matrix --help" matrix a b
refuses 64 "--excluded requires --list" matrix a --excluded
refuses 64 "--rank does not go with --svg, which draws all ranks" explain --rank 0 --svg x
refuses 64 "--rank does not go with --compare, which compares the plans of all ranks" explain --rank 1 --compare p2p,a2a
refuses 64 "--trace does not go with --compare: a trace is of one case" explain --trace x --compare p2p,a2a
refuses 64 "--comm does not go with --compare, whose values replace it" explain --comm p2p --compare p2p,a2a
for option in --rate-tflops --rate-memory --rate-link --rate-node --overhead; do
    refuses 64 "$option requires --svg, --trace or --compare: the text of a plan has no times" explain $option 5
done
refuses 64 "unknown option '--token-file'; cpattn-submit explain --help lists them" explain --token-file x
for option in "--repeat 1" --verbose --json "--timeout 90" "--patience 10" "--socket x" "--token-file x" "--tls-key x"; do
    # shellcheck disable=SC2086
    refuses 64 "${option%% *} does not go with --explain, which runs nothing" collective --explain 0 $option
    # shellcheck disable=SC2086
    refuses 64 "${option%% *} does not go with --svg, which runs nothing" linear --svg x $option
done
for command in case collective linear; do
    refuses 64 "--operation-times false does not go with --trace, which shows these times" \
        $command --trace x --operation-times false
done
refuses 64 "--slower requires --compare" bench --slower 5
refuses 64 "--implementation does not go with explain: a guest has no plan" explain --implementation mine
refuses 64 "--implementation does not go with --explain: a guest has no plan" collective --implementation mine --explain 0
refuses 64 "--implementation does not go with --svg: a guest has no plan" linear --implementation mine --svg x
refuses 64 "--count has no effect: size is given, too, and sets the count" collective --count 1m --size 8
refuses 64 "--count has no effect: size is given, too, and sets the count" bench collective --count 5 --size 8,16
refuses 64 "--reduction has no effect: only all_reduce, reduce_scatter and reduce have one" collective all_gather --reduction max
refuses 64 "--root has no effect: only broadcast and reduce have one" bench collective all_gather,all_reduce --root 1
refuses 67 "specials is true with dtype int32; accepted is false there, or dtype fp32, fp16 or bf16" \
    collective --specials true --dtype int32
for command in collective linear; do
    refuses 67 "operation_times is true with implementation mine; accepted is false there, or implementation cpattn" \
        $command --implementation mine --operation-times true
done
refuses 64 "--inputs does not go with attend, whose inputs are in a file" attend --in x --inputs sharp
refuses 64 "--title is the heading of the page, which --text writes only with --output" report x --text --title y
refuses 64 "--columns requires --once: the screen has its own width" top --columns 80
refuses 64 "--interval does not go with --once, which prints one picture" top --once --interval 1s
refuses 64 "--token-file is for a daemon at tcp://HOST:PORT or tls+tcp://HOST:PORT" status --token-file x
refuses 64 "--tls-ca is for a daemon at tls+tcp://HOST:PORT" case --tls-ca x --socket tcp://fake:1
refuses 64 "--tls-key is for a daemon at tls+tcp://HOST:PORT" matrix "$demonstration" --tls-key x --socket x --socket tcp://fake:1
run matrix "$demonstration" --tls-ca x --token-file x --socket x --socket tls+tcp://fake:1
tap_is "options of a network, and one of the daemons is there" "$status $err" "0 "
printf 'kind: collective\naxes: {operation: [all_reduce]}\n' >"$scratch/other.yaml"
for option in "--dump-fails x" "--seqlen-scale 1"; do
    # shellcheck disable=SC2086
    refuses 64 "${option%% *} is for cases of attention, and the kind of this matrix is collective" \
        matrix "$scratch/other.yaml" $option
done
refuses 64 "--jobs is '513'; accepted is 1 to 512" matrix a -j 513
refuses 64 "--seqlen-scale is '0'; accepted is 1 to 16777216" matrix a --seqlen-scale 0
refuses 64 "there is no file $scratch/none" matrix "$scratch/none"
refuses 64 "$scratch: cannot be read: Is a directory" matrix "$scratch"
refuses 64 "--filter modle=x: 'modle' is neither a field nor an axis (did you mean 'model'?)" \
    matrix "$demonstration" --filter modle=x
refuses 64 "--filter model=cp_9_9: no model is called 'cp_9_9' (did you mean 'cp_1_0'?)" \
    matrix "$demonstration" --filter model=cp_9_9
refuses 64 "--set sqlen=3: 'sqlen' is not a field of a case (did you mean 'seqlen'?)" \
    matrix "$demonstration" --set sqlen=3
refuses 64 "--set dytpe=x: 'dytpe' is not a field of a case (did you mean 'dtype'?)" \
    matrix "$demonstration" --set dytpe=x
refuses 64 "unknown command 'cse' (did you mean 'case'?); cpattn-submit --help lists them" help cse
refuses 64 "--set heads=0: heads is '0'; accepted is 1 to 4096" matrix "$demonstration" --set heads=0
refuses 64 "$demonstration: no case is left: 0 excluded, 16 left out by the command line" \
    matrix "$demonstration" --filter nowhere
refuses 64 "$scratch/none/x cannot be written: No such file or directory" \
    matrix "$demonstration" --junit "$scratch/none/x"

printf 'title: "a\\e[31mb"\nmodels: {a: {}}\n' >"$scratch/escape.yaml"
refuses 64 "$scratch/escape.yaml:1:8: key 'title': value 'a?[31mb': expected a text without control \
characters" matrix "$scratch/escape.yaml"
refuses 64 "$demonstration: no case is left: 0 excluded, 16 left out by the command line" \
    matrix "$demonstration" --filter nowhere --list
refuses 64 "$demonstration: no case is left: 0 excluded, 16 left out by the command line" \
    matrix "$demonstration" --filter nowhere --list --json
refuses 64 "--subset none: the file has no subsets; leave the option out" matrix "$demonstration" --subset none

printf 'models:\n  a: {heads: 12,\n  b: [}\n' >"$scratch/torn.yaml"
run matrix "$scratch/torn.yaml"
tap_is "a torn file: exit status" "$status" 64
tap_has "a torn file: line and column" "$err" "$scratch/torn.yaml:3:7: not readable as YAML: "
printf 'models: {a: {}}\naxis: {dtype: [bf16]}\n' >"$scratch/key.yaml"
refuses 64 "$scratch/key.yaml:2:1: unknown key 'axis' (did you mean 'axes'?); known: title, kind, timeout, \
defaults, models, axes, set, exclude, subsets" matrix "$scratch/key.yaml"

run
tap_is "without a command: the help on stderr" "$status $(head -n 1 "$scratch/err")" \
    "64 Usage: cpattn-submit COMMAND [OPTION...]"

# ---- one case ----

run case --world-size 4 --heads 12 --kv-heads 4
tap_is "a pass: exit status, nothing on stderr" "$status$err" 0
tap_is "a pass: the verdict comes first" "$(head -n 1 "$scratch/out")" \
    "pass  bf16 bshd p2p w4 b2 h12/4 s512 d128 causal"
tap_is "a pass: one row of figures per tensor" "$(grep -cE '^(out|lse|dq|dk|dv) ' "$scratch/out")" 5
tap_is "a pass: errors in units of the twin, each with what it may be" "$(grep ^dq "$scratch/out")" \
    "dq         3  1      1.08 of 1.50  -1e-05 of 3e-04  2.16 of 20      27%"
tap_is "a pass: of a logarithm the elements alone" "$(grep ^lse "$scratch/out" | tr -s ' ')" "lse 3 1 - - - 26%"
tap_is "a pass: no line of figures is wider than 80 columns" \
    "$(sed -n '/^RMSE/,/^$/p' "$scratch/out" | grep -cE '.{81}')" 0
tap_has "a pass: TransformerEngine's own rule, for comparison" "$out" \
    "
for comparison: TransformerEngine's own rule holds
"
tap_lacks "a pass: no sample, no remark, no diagnosis" "$out" "judged:"
tap_is "a pass: one row of times per rank" "$(grep -cE '^   [0-3] ' "$scratch/out")" 4
tap_lacks "no colour where no terminal is" "$out" "$(printf '\033')"
run case --world-size 4 --verbose
tap_is "--verbose: every chunk" "$(grep -cE '^(out|lse|dq|dk|dv) ' "$scratch/out")" 40

# kv_heads equals heads unless it is given. The order of the options does not matter.
for heads in "--heads 4:h4" "--heads 16 --kv-heads 8:h16/8" "--kv-heads 8 --heads 16:h16/8" ":h8"; do
    # shellcheck disable=SC2086
    run case ${heads%:*}
    tap_has "kv_heads of '${heads%:*}'" "$(head -n 1 "$scratch/out")" " ${heads#*:} "
done
run case --heads 16 --json
tap_is "kv_heads that follow are not in the command" "$("$peek" json command <"$scratch/out")" \
    "cpattn-submit case --heads 16"
run case --heads 16 --kv-heads 8 --json
tap_is "kv_heads that do not are" "$("$peek" json command <"$scratch/out")" \
    "cpattn-submit case --heads 16 --kv-heads 8"
printf '%s\n' 'models: {a: {heads: 4}, b: {heads: 16, kv_heads: 8}, c: {kv_heads: 2}}' \
    'set: [{when: {kv_heads: 4}, fields: {dtype: fp16}}]' >"$scratch/heads.yaml"
run matrix "$scratch/heads.yaml" --list
tap_is "kv_heads in a matrix, and as its conditions see them" "$(echo "$out" | sed 's/.* \(.p16\|bf16\) .* \(h[^ ]*\) .*/\1 \2/')" \
    "fp16 h4
bf16 h16/8
bf16 h8/2"
run matrix "$scratch/heads.yaml" --list --set heads=32
tap_is "kv_heads and --set heads" "$(echo "$out" | sed 's/.* \(h[^ ]*\) .*/\1/' | tr '\n' ' ')" "h32 h32/8 h32/2 "
run case --seqlen 16k --window-left 1k
tap_is "lengths in thousands of 1024" "$(head -n 1 "$scratch/out")" \
    "pass  bf16 bshd p2p w2 b2 h8 s16384 d128 causal window(1024,-1)"

run case --model fail
tap_is "a fail: exit status" "$status" 1
tap_is "a fail: verdict, rule, first bad element, command" "$(head -n 4 "$scratch/out")" \
    "fail  fail bf16 bshd p2p w2 b2 h8 s512 d128 causal
      dq of rank 1, chunk 0: 132 of 65536 elements outside, the worst 31 times its limit; RMS error 182 \
times the twin's, allowed 1.50; 25 % too small as a whole, allowed 0.03 %; worst row 500 times the twin's, \
allowed 20, at sequence 1, head 2, position 3 (and 5 more)
      first bad element: dq at sequence 0, head 3, position 300, dim 17: got 0.125, expected 0.25
      again: cpattn-submit case --model fail"
tap_is "a fail: a mark where a limit is broken, and nowhere else" \
    "$(grep -E '^(out|dq) ' "$scratch/out" | tr -s ' ')" "out 1 1 1.02 of 1.50 -1e-05 of 3e-04 2.04 of 20 26%
dq 1 0 !182 of 1.50 !-2e-01 of 3e-04 !500 of 20 !31.0x"
tap_is "a fail: the diagnosis and TransformerEngine's rule under the table" \
    "$(sed -n '/^dv /{n;N;p}' "$scratch/out")" \
    "diagnosis: the scale is missing; it explains 97 % of the error of dq on rank 1
for comparison: TransformerEngine's own rule refuses 72 elements"
run case --model fail_ranks --world-size 3
tap_is "several diagnoses: the one that explains most, then by rank" \
    "$(grep '^diagnosis' "$scratch/out" | cut -d ';' -f 1)" "diagnosis: the scale is missing
diagnosis: the mask is ignored
diagnosis: dq is zero"
run case --model fail --json
tap_is "a fail in JSON: figures" "$(peeks ranks.1.figures.4.twin ranks.1.figures.4.slope \
    ranks.1.figures.4.judged ranks.1.figures.4.te_mismatches ranks.1.figures.4.broken.2)" \
    "0.0016999999999999999 -0.25 65536 12 slope "
tap_is "a fail in JSON: the diagnosis" "$("$peek" json diagnosis <"$scratch/out"), $(
    peeks ranks.1.diagnosis.tensor ranks.1.diagnosis.explained)$("$peek" json ranks.0.diagnosis <"$scratch/out")" \
    "the scale is missing; it explains 97 % of the error of dq on rank 1, dq 0.96999999999999997 -"
for kind in "zero:not exactly zero where nothing is visible" "padding:3 of 640 elements are not zero" \
    "nan:7 NaN or infinite"; do
    run case --model "${kind%%:*}"
    tap_has "what has to hold exactly: ${kind%%:*}" "$(sed -n 2p "$scratch/out")" "${kind#*:}"
    tap_is "what has to hold exactly: ${kind%%:*} in the table" \
        "$(sed -n 's/^dq .* \(!.*\)$/\1/p' "$scratch/out")" \
        "$(echo "!${kind%%:*}" | sed s/nan/nonfinite/)"
done
run case --model sample
tap_has "a sample: how much was judged" "$out" \
    "judged: a sample of 6.2 %, 81920 of 1310720 elements; --verify full judges all of them"
run case --window-left 600
tap_has "text of a case with undetectable errors" "$out" "
cannot show: the window hides no key
"
run case --window-left 600 --json
tap_is "JSON of a case with undetectable errors" "$(peeks outcome blind)" "pass the window hides no key "
run case --json
tap_is "a case without undetectable errors" "$("$peek" json blind <"$scratch/out")" -
run case --model nothing --json
tap_is "a reference of nothing but zeros" "$(peeks outcome ranks.0.figures.4.twin ranks.0.figures.4.rmse_limit)" \
    "pass inf inf "
run case --model nothing
tap_is "a reference of nothing but zeros has no units" "$(grep ^dq "$scratch/out" | tr -s ' ')" \
    "dq 1 1 - - 2.12 of 20 26%"
printf 'models: {nothing: {}}\n' >"$scratch/nothing.yaml"
run matrix "$scratch/nothing.yaml"
tap_has "a reference of nothing but zeros is near no limit" "$(grep ^nothing "$scratch/out" | tr -s ' ')" " 73% rmse dv "
run case --model remark
tap_has "a remark" "$out" "remark: lse is within its limit only because its sums have many terms"
tap_has "a pass that TransformerEngine's rule refuses is a pass" "$status$out" "0pass "
run case --model remark --json
tap_is "a remark in JSON" "$(peeks ranks.0.figures.2.remark ranks.0.figures.0.remark)" "long_sum - "
run case --model faint
tap_has "zeros would pass, too" "$out" "remark: dq passes, as zeros would: rounding errors of an honest kernel are"
run case --model faint --json
tap_is "the same in JSON" "$(peeks ranks.0.figures.4.remark ranks.0.figures.0.remark)" "zeros_pass - "

run case --model nan --json
tap_is "NaN in figures is a text in JSON" \
    "$status $("$peek" json ranks.1.figures.4.rmse <"$scratch/out")" "1 nan"

run case --model killed --world-size 3
tap_is "a killed rank: exit status is that of ABORTED" "$status" 74
tap_is "a killed rank: the sentence" "$(sed -n 2p "$scratch/out")" \
    "      ABORTED: rank 1 was killed by signal 9 in forward, step 1"
tap_is "a killed rank: the cause is marked, and only it" "$(grep -c '<- cause' "$scratch/out") $(
    grep '<- cause' "$scratch/out" | tr -s ' ')" "1  1 <- cause killed by signal 9 X forward 1 - -"
tap_has "a killed rank: its last lines" "$out" "| rank 1: second line"
tap_is "a killed rank: a row for each" "$(grep -c 'aborted sibling' "$scratch/out")" 2
run case --model killed --json
tap_is "a killed rank in JSON" "$("$peek" json status <"$scratch/out") $(
    "$peek" json ranks.1.culprit <"$scratch/out") $("$peek" json ranks.0.waited_for <"$scratch/out")" \
    "ABORTED true 1"

run case --model busy
tap_is "a refused case: exit status and sentence" "$status $(sed -n 2p "$scratch/out")" \
    "72       RESOURCE_EXHAUSTED: the queue is full"

run case --repeat 5
tap_is "repeats: exit status" "$status" 0
tap_has "repeats: one digest" "$out" "5 runs, all of digest 0123456789abcdef; "
interrupted() { # ARGUMENTS...: the command gets SIGINT after a second
    timeout --foreground -s INT 1 "$fake" "$@" >"$scratch/out" 2>"$scratch/err"
    out=$(cat "$scratch/out")
}
interrupted case --repeat 1000000
tap_has "repeats that are interrupted: what was done" "$out" "before the interrupt, all of digest"
interrupted bench --repeat 100000
tap_has "a bench that is interrupted: what was measured" "$out" "interrupted before the other"
tap_has "a killed rank: table of the ranks" "$out" "forward per device"
run case --repeat 5 --model drift
tap_is "repeats that differ: exit status" "$status" 1
tap_has "repeats that differ: the sentence" "$out" ": the results differ between runs"
run case --repeat 5 --model drift --verify off
tap_is "unverified repeats that differ: exit status and outcome" "$status $(head -n 1 "$scratch/out" | cut -c1-5)" "1 fail "
tap_has "unverified repeats that differ: the sentence" "$out" ": the results differ between runs"
tap_lacks "unverified repeats that differ: no figures" "$out" "TENSOR"
run case --repeat 5 --model drift --deterministic false
tap_is "repeats that may differ" "$status $(grep -c digest "$scratch/out")" "0 1"
run case --repeat 3 --json
tap_is "repeats in JSON: an object each" "$("$peek" json outcome <"$scratch/out" | tr '\n' ' ')" \
    "pass pass pass "

# A case that is not verified is neither a pass nor a fail. Its exit status is 0.
run case --verify false
tap_is "unverified: exit status and outcome" "$status $(head -n 1 "$scratch/out")" \
    "0 unverified bf16 bshd p2p w2 b2 h8 s512 d128 causal verify=off"
run case --verify false
tap_is "unverified: text" "$status $(head -n 1 "$scratch/out")" \
    "0 unverified bf16 bshd p2p w2 b2 h8 s512 d128 causal verify=off"
tap_has "unverified: the sentence" "$out" "but not compared"
case $out in
*TENSOR*) tap_fail "unverified: no figures" "$out" ;;
*) tap_pass "unverified: no figures" ;;
esac

# The times are those of fill_answer() in fake_client.c. The first run is verified. With `slower`,
# forward takes 1 ms more in each run.
run bench --repeat 5 --model slower --json
tap_is "bench: what was run" "$status $(peeks verified repeat case.verify)" \
    "0 pass 5 off "
tap_is "bench: the slowest rank of the timed runs" \
    "$(peeks times_ns.forward.median times_ns.forward.least times_ns.forward.most \
        times_ns.forward.runs.4)" "11500001 9500001 13500001 13500001 "
tap_is "bench: spread between the quartiles" \
    "$("$peek" json times_ns.forward.spread <"$scratch/out" | cut -c 1-6)" 0.1739
run bench --repeat 2 --warmup 0
tap_is "bench: how near the limits the verified run was" "$(sed -n 2p "$scratch/out")" \
    "verified once: pass, 73% of a limit at most (rmse of dv); 2 timed runs after 0 for warming up"
tap_has "bench: a table" "$(printf '%s' "$out" | tr -s ' ')" \
    "
backward 6.00 ms 6.00 ms 6.00 ms 0.0%
"
# Each rank computes 1 GFLOP. Two of seven matrix products are forward.
tap_has "bench: rates" "$(printf '%s' "$out" | tr -s ' ')" \
    "
backward per device 0.119 TFLOP/s 0.119 TFLOP/s 0.119 TFLOP/s 0.0%
forward and backward per device 0.1176 TFLOP/s "
run bench --repeat 5 --model drift
tap_is "bench: runs whose results differ" "$status$out" 1
tap_has "bench: runs whose results differ, in words" "$err" "run 2 gave digest"
run bench --repeat 5 --model drift --deterministic false
tap_is "bench: runs whose results may differ" "$status$err" 0
run bench --model fail
tap_is "bench: what is wrong is not measured" "$status$out" 1
tap_has "bench: what is wrong" "$err" "dq of rank 1"
run bench --model killed
tap_is "bench: what cannot be run" "$status$out" 74
run bench --verify off --repeat 1 --warmup 0
tap_has "bench without verification says so" "$out" "not verified; 1 timed run after 0"
run case --json
tap_is "wall time: its parts" \
    "$(peeks times_ns.parts.queue times_ns.parts.inputs times_ns.parts.run times_ns.parts.rest \
        times_ns.total)" "1000000 300000 8500001 1495677 12345678 "

# The command that an answer shows gives the same case.
run case --model cp_2_1 --dtype fp16 --mask none --seqlen-q 17 --window-left 3 --seed 9 --json
again=$("$peek" json command <"$scratch/out")
"$peek" json case <"$scratch/out" >"$scratch/case"
eval "set -- ${again#cpattn-submit }"
run "$@" --json
tap_is "the command of an answer gives the same case" "$("$peek" json case <"$scratch/out")" \
    "$(cat "$scratch/case")"

# ---- a matrix ----

run matrix "$demonstration" --list
tap_is "--list: exit status and count" "$status $(wc -l <"$scratch/out")" "0 16"
tap_is "--list: id and case" "$(sed -n 10p "$scratch/out")" \
    "cp_2_0/bf16/w4  cp_2_0 bf16 bshd p2p w4 b2 h32/4 s512 d128 causal"
run matrix "$demonstration" --list --filter model=cp_2_* --filter dtype!=fp16 --set seqlen=100
tap_is "--list with filters and --set" "$out" \
    "cp_2_0/bf16/w2  cp_2_0 bf16 bshd p2p w2 b2 h32/4 s100 d128 causal
cp_2_0/bf16/w4  cp_2_0 bf16 bshd p2p w4 b2 h32/4 s100 d128 causal
cp_2_1/bf16/w2  cp_2_1 bf16 bshd p2p w2 b2 h12/2 s100 d128 full
cp_2_1/bf16/w4  cp_2_1 bf16 bshd p2p w4 b2 h12/2 s100 d128 full"

cat >"$scratch/mixed.yaml" <<'END'
title: All there is
models: {good: {}, fail1: {}, killed2: {}, impossible: {heads: 12, kv_heads: 5}}
axes: {dtype: [bf16, fp16], world_size: [2, 3]}
exclude:
  - {when: {model: fail1, dtype: fp16}, reason: one dtype is enough}
subsets: {quick: {model: good, world_size: 2}}
END
run matrix "$scratch/mixed.yaml" --list --excluded
tap_is "--excluded: ids and reasons" "$out" "fail1/fp16/w2  one dtype is enough
fail1/fp16/w3  one dtype is enough"
run matrix "$scratch/mixed.yaml" --list --filter model=impossible,good --filter w2
tap_is "--list: what is refused" "$out" "good/bf16/w2        good bf16 bshd p2p w2 b2 h8 s512 d128 causal
good/fp16/w2        good fp16 bshd p2p w2 b2 h8 s512 d128 causal
impossible/bf16/w2  refused: heads is 12 and kv_heads is 5; accepted is a heads that is a multiple of \
kv_heads
impossible/fp16/w2  refused: heads is 12 and kv_heads is 5; accepted is a heads that is a multiple of \
kv_heads"
te=$cases/transformer-engine.yaml
run matrix "$te" --list --subset essential --seqlen-scale 16 --filter model=fused.cp_4_3
tap_is "--seqlen-scale and --subset: what is listed" "$(echo "$out" | sed 's/  */ /')" \
    "fused.cp_4_3/bf16/sbhd/a2a/tight fused.cp_4_3 bf16 sbhd a2a w2 b2 h64 s256 d64 causal window(8,-1) \
learnable nondeterministic
fused.cp_4_3/bf16/thd/a2a/padded fused.cp_4_3 bf16 thd a2a w2 b2 h64 s256 d64 lengths[175,207] pad4 causal \
window(8,-1) learnable nondeterministic"
run matrix "$te" --list --excluded --filter flash.cp_3_3/fp16/thd/a2a
tap_is "--excluded: reason and kind" "$(echo "$out" | sed 's/.*  //' | sort | uniq -c | sed 's/^ *//')" \
    "2 flash: different head dimensions of keys and values only in the ring (backend)
1 flash: no padding between sequences with a2a+p2p (backend)
1 flash: no sliding window in the ring (backend)"
run matrix "$te" --unskip --list --excluded --filter flash.cp_3_3/fp16/thd/a2a
tap_is "--unskip: nothing of that is excluded" "$status$out" 0
run matrix "$te" --unskip
tap_is "--unskip: all of them run" "$status $(tail -n 1 "$scratch/out" | sed 's/ in .*//')" "0 960 cases: 960 passed"

run matrix "$scratch/mixed.yaml" --list --json
tap_is "--list --json: an object each" "$("$peek" json outcome <"$scratch/out" | sort | uniq -c |
    tr -s ' ' | tr '\n' ';')" " 4 error; 10 not run;"

run matrix "$scratch/mixed.yaml" --subset quick
tap_is "a matrix that passes: exit status, title, sum" \
    "$status $(head -n 1 "$scratch/out"); $(tail -n 1 "$scratch/out" | sed 's/ in .*//')" \
    "0 All there is: 2 cases, 14 left out; 2 cases: 2 passed"
run matrix "$scratch/mixed.yaml" --junit "$scratch/report.xml"
tap_is "a matrix with a fail: exit status" "$status" 1
tap_is "a matrix: the sum" "$(tail -n 1 "$scratch/out" | sed 's/ in .*//')" \
    "14 cases: 4 passed, 2 failed, 8 could not be run"
tap_is "a matrix: a line for each answer" "$(grep -cE '^ *[0-9]+/14 ' "$scratch/out")" 14
tap_is "a matrix: a row for each case" "$(grep -cE '^[a-z0-9]+/[a-z0-9]+/w[23] ' "$scratch/out")" 14
tap_has "a matrix: a fail in full" "$out" "fail  fail1/bf16/w2
      dq of rank 1, chunk 0: 132 of 65536"
tap_has "a matrix: its command" "$out" "again: cpattn-submit case --model fail1
"
junit() { "$peek" xml "$1" <"$scratch/report.xml"; }
tap_is "JUnit: totals" "$(junit 'concat(//testsuite/@name, " ", //testsuite/@tests, " ",
    //testsuite/@failures, " ", //testsuite/@errors, " ", //testsuite/@skipped)')" "All there is 16 2 8 2"
tap_is "JUnit: cases" "$(junit 'concat(count(//testcase), " ", count(//failure), " ", count(//error), " ",
    count(//skipped))')" "16 2 8 2"
tap_is "JUnit: class and type" "$(junit 'concat(//testcase[@name="killed2/fp16/w3"]/@classname, " ",
    //testcase[@name="killed2/fp16/w3"]/error/@type)')" "mixed ABORTED"
tap_is "JUnit: why it is skipped" "$(junit '//testcase[@name="fail1/fp16/w2"]/skipped/@message')" \
    "one dtype is enough"
tap_has "JUnit: the detail of a failure" "$(junit '//testcase[@name="fail1/bf16/w2"]/failure')" \
    "again: cpattn-submit case --model fail1"
tap_has "JUnit: the message ends with the diagnosis" \
    "$(junit 'string(//testcase[@name="fail1/bf16/w2"]/failure/@message)')|" \
    " (and 5 more); diagnosis: the scale is missing; it explains 97 % of the error of dq on rank 1|"

# A report is written to a temporary file, and renamed when it is complete. Another link to the
# earlier file keeps the earlier text.
echo earlier >"$scratch/reports.xml"
chmod 640 "$scratch/reports.xml"
mkdir "$scratch/reports"
ln "$scratch/reports.xml" "$scratch/reports/earlier"
run matrix "$scratch/mixed.yaml" --subset quick --junit "$scratch/reports.xml"
tap_is "JUnit: takes the place of an earlier file" \
    "$(grep -c '<testcase' "$scratch/reports.xml") $(cat "$scratch/reports/earlier") $(stat -c %a "$scratch/reports.xml")" \
    "2 earlier 640"
tap_is "JUnit: nothing is left beside it" "$(find "$scratch" -name '*reports.xml.*' | grep -c '')" 0
ln -s reports2.xml "$scratch/link.xml"
echo earlier >"$scratch/reports2.xml"
run matrix "$scratch/mixed.yaml" --subset quick --junit "$scratch/link.xml"
tap_is "JUnit: through a link, which stays" \
    "$(grep -c '<testcase' "$scratch/reports2.xml") $(readlink "$scratch/link.xml")" "2 reports2.xml"
mkfifo "$scratch/pipe.xml"
cat "$scratch/pipe.xml" >"$scratch/piped" &
run matrix "$scratch/mixed.yaml" --subset quick --junit "$scratch/pipe.xml"
tap_wait $!
tap_is "JUnit: into a pipe" "$(grep -c '<testcase' "$scratch/piped") $(test -p "$scratch/pipe.xml"; echo $?)" "2 0"
if [ -c /dev/full ]; then
    run matrix "$scratch/mixed.yaml" --subset quick --junit /dev/full
    tap_is "JUnit: a full disk" "$status $(tail -n 1 "$scratch/err")" \
        "79 cpattn-submit: /dev/full could not be written: No space left on device"
fi

run matrix "$scratch/mixed.yaml" --filter model=killed2,good
tap_is "without a fail the status of the first error counts" "$status" 74
run matrix "$scratch/mixed.yaml" --filter model=impossible,good
tap_is "a refused case counts as an error" "$status" 67
run matrix "$scratch/mixed.yaml" --json
tap_is "--json: an object per case, no table" "$status $("$peek" json outcome <"$scratch/out" | sort |
    uniq -c | tr -s ' ' | tr '\n' ';')" "1  8 error; 2 fail; 4 pass;"
run matrix "$scratch/mixed.yaml" --fail-fast -j 1 --filter model!=impossible
tap_is "--fail-fast: stops at the first" "$status $(tail -n 1 "$scratch/out" | sed 's/ in .*//')" \
    "1 10 cases: 4 passed, 1 failed, 5 not run"

run case --model fail1 --world-size 3 --dtype fp16 --heads 12 --minimize
tap_is "--minimize: a smaller case that fails, too" "$status $(grep -c '^fail ' "$scratch/out") $(grep again: "$scratch/out" | tail -n 1)" \
    "1 2       again: cpattn-submit case --model fail1 --world-size 1 --sharding contiguous --batch 1 --heads 1 \
--head-dim-qk 1 --head-dim-v 1 --seqlen-q 0 --seqlen-kv 0 --mask none --training false"
run case --model fail_reasons --world-size 3 --heads 12 --minimize
tap_has "--minimize: the diagnosis stays the same" "$status $(grep again: "$scratch/out" | tail -n 1)" \
    "1       again: cpattn-submit case --model fail_reasons --world-size 1 --sharding contiguous --batch 1 --heads 3 "
tap_is "--minimize: numbers, ranks and heads may differ" "$(grep '^diagnosis' "$scratch/out" | cut -d ';' -f 1)" \
    "diagnosis: in heads 1 and 3, not in head 0: keys 4 to 7 and 8 to 9 (rank 1, ring step 1) are missing from dq
diagnosis: perhaps keys 2 to 3 are missing from dq"
run case --model killed2 --minimize
tap_has "--minimize: the same status" "$status $(grep again: "$scratch/out" | tail -n 1)" \
    "74       again: cpattn-submit case --model killed2 --world-size 1"
run case --model good --minimize
tap_is "--minimize: a pass needs none" "$status $(grep -c smaller "$scratch/out")" "0 0"

printf 'models: {good: {}, sample: {}, remark: {}, remark2: {}, blind: {window_left: 600}}\n' >"$scratch/notes.yaml"
run matrix "$scratch/notes.yaml"
tap_is "a matrix: what the verdicts do not say" "$(tail -n 6 "$scratch/out" | head -n 4)" \
    "1 case judged by a sample; --set verify=full judges every element
2 cases with a remark; --json has it
1 case passed with a feature that cannot show in the verdict; --json names it
2 cases with elements that TransformerEngine's own rule refuses, for comparison"
run matrix "$scratch/notes.yaml" --filter model=good
tap_lacks "a matrix: nothing is said of nothing" "$out" "cases with"

# The time limit of a case in a matrix counts its run, not its wait in the queue.
printf 'timeout: 7s\nmodels: {limits: {}}\n' >"$scratch/limits.yaml"
run case --model limits --timeout 5s
tap_has "time limits: of a case" "$out" "DEADLINE_EXCEEDED: limits of 5 s and 0 s"
run matrix "$scratch/limits.yaml"
tap_has "time limits: of a matrix" "$out" "limits of 86400 s and 7 s"
run matrix "$scratch/limits.yaml" --timeout 3s
tap_has "time limits: of a matrix, by option" "$out" "limits of 86400 s and 3 s"

printf 'models: {unsent: {}, good: {}}\naxes: {batch: [1, 2, 3, 4, 5]}\n' >"$scratch/unsent.yaml"
run matrix "$scratch/unsent.yaml" -j 2
tap_is "cases that cannot be submitted do not delay the others" \
    "$status $(tail -n 1 "$scratch/out" | sed 's/ in .*//')" \
    "78 10 cases: 5 passed, 5 could not be run"

cat >"$scratch/many.yaml" <<'END'
models: {good1: {}, good2: {}, fail3: {}}
axes: {batch: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], dtype: [bf16, fp16], world_size: [2, 4]}
exclude: [{when: {model: fail3, dtype: fp16}, reason: none}]
END
run matrix "$scratch/many.yaml"
tap_is "many cases: a row for each model" "$(grep -E '^(good|fail)[123] ' "$scratch/out" | tr -s ' ')" \
    "good1 40 - - - - 75% rmse dv 11.3 ms
good2 40 - - - - 75% rmse dv 11.3 ms
fail3 - 20 - - 20 > 99x slope dq 11.3 ms"
tap_is "many cases: where the failures are, without axes that tell nothing" \
    "$(sed -n '/^Where the failures are/,/^$/p' "$scratch/out" | tr -s ' ')" "Where the failures are:
AXIS VALUE FAIL ERROR OF
model fail3 20 - 20
dtype bf16 20 - 60"
tap_has "many cases: the first failures in full, the rest counted" "$out" \
    "and 10 more; --verbose, --json or --junit has all of them"
cat >"$scratch/no_fp32.yaml" <<'END'
models: {good1: {}, fail3: {}}
axes: {batch: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], dtype: [fp32, bf16, fp16], world_size: [2, 4]}
exclude: [{when: {dtype: fp32}, reason: none}]
END
run matrix "$scratch/no_fp32.yaml"
tap_is "many cases: an axis with a value of which no case ran tells nothing by that" \
    "$(sed -n '/^Where the failures are/,/^$/p' "$scratch/out" | tr -s ' ')" "Where the failures are:
AXIS VALUE FAIL ERROR OF
model fail3 40 - 40"
run matrix "$scratch/many.yaml" --verbose
tap_is "many cases, --verbose: all failures" "$(grep -c 'again: ' "$scratch/out")" 20

# ---- interruption ----

# Waits until the process is the program and has a handler for SIGTERM. Before exec it is a shell,
# and the shell may have a handler, too.
await_handler() { # PID
    while tap_step "$1"; do
        [ "$(cat "/proc/$1/comm")" = "${fake##*/}" ] || continue
        caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$1/status")
        [ $((0x${caught#????????} & 0x4000)) -ne 0 ] && return
    done
}

"$fake" case --model stuck >"$scratch/out" 2>&1 &
await_handler $!
kill -TERM $!
tap_wait $!
tap_is "an interrupted case is cancelled" "$? $(sed -n 2p "$scratch/out")" \
    "65       CANCELLED: cancelled while it waited for its turn"
printf 'models: {good: {}, stuck: {}, good2: {}}\naxes: {dtype: [bf16]}\n' >"$scratch/stuck.yaml"
"$fake" matrix "$scratch/stuck.yaml" -j 1 >"$scratch/out" 2>&1 &
await_handler $!
kill -TERM $!
tap_wait $!
tap_is "an interrupted matrix shows what it has" "$? $(tail -n 1 "$scratch/out" | sed 's/ in .*//')" \
    "65 3 cases: 1 passed, 2 not run"

# ---- on a terminal ----

if command -v script >/dev/null 2>&1; then
    printf 'models: {slow1: {}, fail2: {}}\naxes: {dtype: [bf16, fp16], batch: [1, 2, 3]}\n' \
        >"$scratch/slow.yaml"
    TERM=xterm script -qec "$fake matrix $scratch/slow.yaml" /dev/null >"$scratch/terminal" </dev/null
    tap_is "on a terminal: a live line" "$(grep -c '/12: .* passed, .* failed' "$scratch/terminal")" 1
    tap_has "on a terminal: colour" "$(cat "$scratch/terminal")" "$(printf '\033[32mpass')"
    NO_COLOR=1 TERM=xterm script -qec "$fake case" /dev/null >"$scratch/terminal" </dev/null
    tap_lacks "NO_COLOR" "$(cat "$scratch/terminal")" "$(printf '\033')"
    NO_COLOR=1 TERM=xterm script -qec "stty cols 80; $fake case --model fail" /dev/null \
        >"$scratch/terminal" </dev/null
    tap_is "on a terminal: no line is wider than that" \
        "$(tr -d '\r' <"$scratch/terminal" | grep -cE '.{81}')" 0
    tap_has "on a terminal: sentences go on under their beginning" "$(tr -d '\r' <"$scratch/terminal")" "
      its limit; RMS error 182 times"
else
    tap_skip "on a terminal" "no script command"
fi

# ---- explain, status, describe, version ----

run explain --world-size 3 --rank 2
tap_is "explain: exit status" "$status$err" 0
tap_is "explain: the check" "$(head -n 1 "$scratch/out")" \
    "checked together: the plans of 3 ranks have no race and no deadlock"
tap_has "explain: the rank" "$out" "rank 2 of 3 holds chunks 2 and 3 of 6"
run attend --help
help=$(printf '%s' "$out" | tr -s ' \n' ' ')
tap_has "attend --help: sizes follow from the file" "$help" "--batch=N sequences; 1 to 4096 [that of the file]"
tap_has "attend --help: nothing is verified by default" "$help" "off, auto or full [off; without a value: auto]"
tap_lacks "attend --help: no option for inputs that are drawn" "$help" "--inputs"
for command in attend dump; do
    tap_is "$command --help: the options for files" "$("$fake" $command --help | sed -n '/^ Files:/,/^$/p' | grep -o ' --[a-z]*=' | tr '\n' ' ')" \
        "$([ $command = attend ] && echo " --compare=  --in=  --out= " || echo " --out=  --picture= ")"
done
run explain --training false
tap_has "explain: a single wait" "$out" "6 operations    1 wait
"
run explain --world-size 3 --svg "$scratch/plan.svg" --overhead 1s --rate-tflops 7
tap_is "explain --svg: the check, then what is predicted" "$status$err $(echo "$out" | sed 's/: [0-9.]* s / /')" \
    "0 checked together: the plans of 3 ranks have no race and no deadlock
$scratch/plan.svg predicted"
svg() { "$peek" xml "$1" <"$scratch/plan.svg"; }
tap_is "explain --svg: lanes" "$(svg "count(//*[@class='lane'])")" 6
tap_has "explain --svg: the rates" "$(svg "string(//*[contains(text(), 'TFLOP/s')])")" \
    "with 7 TFLOP/s of attention, 3000 GB/s of memory, 300 GB/s between ranks in each direction, 1 s before"
run explain --world-size 4 --seqlen 8192 --compare p2p,a2a,all_gather
tap_is "explain --compare: a line for each" "$status$err $(awk 'NR > 1 { print $1 }' "$scratch/out" | tr '\n' ' ')" \
    "0 p2p a2a all_gather "
tap_is "explain --compare: times of the fastest" "$(awk 'NR > 1 { print $4 < 1, $4 == "1.00" }' "$scratch/out" | sort |
    uniq -c | tr -s ' ' | tr '\n' ';')" " 2 0 0; 1 0 1;"
run explain --world-size 16 --nodes 2 --heads 16 --a2a-size 8 --compare p2p,a2a+p2p
tap_is "explain --compare: a2a_size is for a2a+p2p" "$status$err $(awk 'NR > 1 { print $1 }' "$scratch/out" | tr '\n' ' ')" \
    "0 p2p a2a+p2p "
refuses 67 "a2a_size is 8 with comm p2p; accepted is 2 there, or comm a2a+p2p" explain --world-size 16 --heads 16 --a2a-size 8 --compare p2p,a2a
run explain --world-size 4 --seqlen 8192 --compare p2p,a2a,all_gather --svg -
cp "$scratch/out" "$scratch/plan.svg"
tap_is "explain --compare --svg: one picture, three panels" \
    "$status$err $(svg "count(/*)") $(svg "count(/*/*[local-name() = 'g'])")" "0 1 3"
tap_is "explain --compare --svg: one axis" "$(for panel in 1 2 3; do
    svg "string((/*/*[local-name() = 'g'])[$panel]/*[@class='tick'][last()])"; done | sort -u | wc -l)" 1
tap_is "explain --compare --svg: one is the fastest" \
    "$(svg "count(//*[contains(text(), 'predicted, the fastest')])") $(svg "count(//*[contains(text(), 'times the fastest')])")" "1 2"
refuses 64 "--compare foo: comm is 'foo'; accepted is p2p, all_gather, a2a, a2a+p2p or auto" \
    explain --compare p2p,foo
refuses 67 "$("$fake" explain --world-size 3 --comm a2a+p2p 2>&1 | sed 's/^cpattn-submit: //')" \
    explain --world-size 3 --compare p2p,a2a+p2p
refuses 64 "--compare takes up to 8 values" explain --compare p2p,p2p,p2p,p2p,p2p,p2p,p2p,p2p,p2p
refuses 64 "$scratch/none/x cannot be written: No such file or directory" explain --svg "$scratch/none/x"
refuses 64 "--rate-link is '0'; accepted is 1 to 1000000" explain --svg x --rate-link 0
if [ -c /dev/full ]; then
    run explain --svg /dev/full
    tap_is "explain --svg: a full disk" "$status $err" \
        "79 cpattn-submit: /dev/full could not be written: No space left on device"
fi
TZ=UTC
export TZ
run watch
tap_is "watch: a line for each event, and for those that were lost" "$status $out" \
    "0 7 events lost
22:13:20.000 pool      2 ranks, instance 0 on 0-1: idle
22:13:21.005 admitted  bf16 w2 s512; uid=1000 pid=4242 id=00112233445566778899aabbccddeeff
22:13:21.006 started   bf16 w2 s512; uid=1000 pid=4242 id=00112233445566778899aabbccddeeff
22:13:22.000 finished  pass in 40.0 ms with a wait of 10.0 ms; bf16 w2 s512; uid=1000 pid=4242 \
id=00112233445566778899aabbccddeeff
22:13:23.000 finished  ABORTED in 1.00 ms; 4 ranks; uid=1001
22:13:24.000 finished  fail in 2.00 ms; bf16 w2 s1024; uid=1000 pid=4243 id=10112233445566778899aabbccddeeff
22:13:25.000 pool      4 ranks, instance 0 on 0-3: down; rank 3 exited with 1 while it started
22:13:26.000 device    0,2: drained
22:13:27.000 daemon    draining"
run watch --last 2
tap_is "watch --last" "$status $(wc -l <"$scratch/out")" "0 2"
run watch --kind finished,device --last 3
tap_is "watch --kind" "$status $(cut -d ' ' -f 2 "$scratch/out" | tr '\n' ' ')" "0 finished finished device "
run watch --user 1000
tap_is "watch --user, by number" "$status $(wc -l <"$scratch/out") $(grep -v uid=1000 "$scratch/out")" \
    "0 5 7 events lost"
run watch --user uid=1001
tap_is "watch --user, a part" "$status $(wc -l <"$scratch/out")" "0 2"
run watch --user 100
tap_is "watch --user: a number is whole" "$status $out" "0 "
run watch --json --kind finished --last 1
tap_is "watch --json" "$status $(peeks event number lost time_ns verdict status case total_ns user text)" \
    "0 finished 106 0 1700000004000000000 fail OK bf16 w2 s1024 2000000 uid=1000 pid=4243 - "
run watch --follow --last 1
tap_is "watch --follow: the daemon goes away, and the next one refuses" "$status $(wc -l <"$scratch/out") $err" \
    "71 1 cpattn-submit: the daemon went away; waiting for a daemon
cpattn-submit: the next daemon serves others"
run top --once --columns 80 --socket tcp://fake:1
tap_is "top --once: one picture" "$status $(tail -n +2 "$scratch/out")" \
    "0 cases  1 running, 3 queued; 12 passed, 1 failed, 1 error, 2 unverified, 2 refuse
rate   0.0022/s since the start; last 3: median 2.00 ms, p90 40.0 ms
drained: 0,2

POOL      STATE     DEVICES      CASES DEATHS  LAST FAILURE
    2.0  idle*      0,3            12      0
    4.0  down       0-3             0      5  torch: rank 3 exited with 1 while

RANKS     USER          RUNS      SLOWEST RANK  CASE
    2     uid=1000      4.00 s    forward 3     bf16 w2 s512
          0 forward 3     1 backward 1

RANKS     USER          WAITS     CASE
    4     uid=1001      1.00 s    torch
  and 2 more

USER                 RUNNING  QUEUED  FINISHED  FAILED
uid=1000                   1       0         2       1
uid=1001                   0       1         1       1

ENDED     USER          TOOK      VERDICT       CASE
22:13:24  uid=1000      2.00 ms   fail          bf16 w2 s1024
22:13:23  uid=1001      1.00 ms   ABORTED       4 ranks
22:13:22  uid=1000      40.0 ms   pass          bf16 w2 s512"
tap_has "top --once: its head" "$(head -n 1 "$scratch/out")" "cpattnd up 2 h 01 m"
for columns in 40 60 80 200; do
    run top --once --columns "$columns"
    tap_is "top --once --columns $columns: no line is longer" \
        "$status $(awk -v most="$columns" 'length > most' "$scratch/out")" "0 "
done
run top --once --columns 80 --socket many
tap_is "top: 64 ranks, a letter for each" "$(grep -o '[a-z.]\{64\}$' "$scratch/out")" \
    "........ppppppppiiiiiiiiffffffffbbbbbbbbrrrrrrrrcccccccc........"
tap_has "top: users of a socket in the current folder have names" "$(tr -s ' ' <"$scratch/out")" " 64 $(id -un 0) 4.00 s"
run top --once --columns 60 --socket many
tap_is "top: 64 ranks on a narrow terminal" "$(grep -o '^ *[0-9]*  [a-z.]\{32\}$' "$scratch/out")" \
    "       0  ........ppppppppiiiiiiiiffffffff
      32  bbbbbbbbrrrrrrrrcccccccc........"
refuses 64 "--sort is 'x'; accepted is age, user or ranks" top --sort x
refuses 73 "standard input and output are no terminal; --once prints one picture" top
refuses 64 "--columns is '39'; accepted is 40 to 512" top --columns 39
run status
tap_has "status: pools" "$(printf '%s' "$out" | tr -s ' ')" \
    " 4 0 0-3 down - 6 0 5 - rank 3 exited with 1 while it started"
tap_has "status: a spare, and devices that are not neighbours" "$(printf '%s' "$out" | tr -s ' ')" \
    " 2 0 0,3 idle yes 1 12 0 copies -"
tap_has "status: a request that runs" "$(printf '%s' "$out" | tr -s ' ')" \
    "00112233445566778899aabbccddeeff running 5.00 s 4.00 s forward 3 uid=1000 pid=4242 bf16 w2 s512"
tap_has "status: another user's that waits" "$(printf '%s' "$out" | tr -s ' ')" \
    "- waiting 1.00 s - - uid=1001 torch -"
tap_has "status: not all are listed" "$out" "and 2 more"
tap_has "status: what becomes of cases adds up" "$out" \
    "20 cases admitted: 12 passed, 1 failed, 2 unverified, 1 did not come to its end; 2 refused"
tap_has "status: devices out of use" "$out" "out of use by order: 0 2"
tap_has "status: the loop" "$out" "the loop was busy for 12.0 ms at most, 99 % of its rounds for 400 us or less"
run status --socket many
tap_has "status: hosts" "$(printf '%s' "$out" | tr -s ' ')" "node1 lost 8 0,2 1"
tap_has "status: the hosts of a pool" "$out" "0-3 of node0,node1"
run status --socket many --json
tap_is "status --json: hosts" "$(peeks hosts.1.name hosts.1.state hosts.1.devices_out.1 hosts.1.devices_stuck.0 pools.1.hosts.1)" "node1 lost 2 1 1 "
run status --check
tap_is "status --check: a pool that is down" "$status" 1
run status --json
tap_is "status --json: requests" "$(peeks requests.0.id requests.0.phase requests.1.running requests.0.ranks.1.phase)" \
    "00112233445566778899aabbccddeeff forward false backward "
tap_is "status --json" "$("$peek" json pools.1.state <"$scratch/out")" down
tap_is "status --json: devices out of use, unverified cases" \
    "$(peeks devices_out.0 devices_out.1 unverified)" "0 2 2 "
tap_is "status --json: the loop" "$(peeks loop_lag_max_ns loop_lag_p99_ns)" "12000000 400000 "
tap_is "status --json: spares" "$(
    for i in 0 1; do "$peek" json pools.$i.spare <"$scratch/out"; done | tr '\n' ' '
)" "true false "
tap_is "status --json: devices" "$("$peek" json pools.0.devices.1 <"$scratch/out")" 3
run describe
tap_has "describe" "$out" "backend        cuda, 2 GPUs
GPU 0          NVIDIA H200, sm_90, 139.0 GiB
GPU 3          NVIDIA A100, sm_80, 40.0 GiB
world sizes    1 to 8"
tap_has "describe: what a field accepts" "$out" "bf16, fp16 or fp32"
tap_has "describe: what is refused" "$out" "a number of heads that is not a multiple of kv_heads (--heads 12 --kv-heads 5)"
run describe --json
tap_is "describe --json: GPUs" "$("$peek" json gpus.1.name <"$scratch/out")" "NVIDIA A100"
tap_is "describe --json" "$("$peek" json queue_max <"$scratch/out")" 4096
tap_is "describe --json: fields" "$("$peek" json fields.format <"$scratch/out")" "bshd, sbhd or thd"
run cancel 0123456789abcdef0123456789abcdef
tap_is "cancel" "$status$out$err" 0
run drain 3
tap_is "drain" "$status $out" "0 2 devices out of use"
run drain 63
tap_is "drain: no such device" "$status $err" "67 cpattn-submit: device is 63; this daemon has devices 0, 1"
# shellcheck disable=SC3044
run enable 3
tap_is "enable" "$status $out" "0 0 devices out of use"
run unpoison
tap_is "unpoison" "$status $out" "0 1 case may run again"
run reload
tap_is "reload" "$status $out" "0 the daemon has read its settings again; they apply now"
refuses 64 "algorithm is nccl, a call of NCCL's own: there is no plan to draw; accepted with --svg is any other" collective all_reduce --algorithm nccl --svg -
refuses 64 "--explain, --svg and --trace are given together; give one of them" linear --svg - --explain 0
refuses 64 "--explain, --svg and --trace are given together; give one of them" collective --svg - --trace x
refuses 64 "device is 'x'; expected the number of a GPU or core, 0 to 63, or HOST:NUMBER for another host" drain x
refuses 64 "device is ':3'; expected the number of a GPU or core, 0 to 63, or HOST:NUMBER for another host" drain :3
refuses 64 "the number of a device is missing; see cpattn-submit enable --help" enable
run version
tap_is "version" "$status $out" "0 cpattn-submit 0.0.0-fake"
run --version
tap_is "--version" "$status $out" "0 cpattn-submit 0.0.0-fake"
run -V
tap_is "-V" "$status $out" "0 cpattn-submit 0.0.0-fake"
run help bench
tap_is "help bench" "$status $(head -n 1 "$scratch/out")" "0 Usage: cpattn-submit bench [OPTION...]"

# ---- files that are installed ----

mkdir -p "$scratch/prefix/bin" "$scratch/prefix/share/cpattnd" "$scratch/elsewhere"
cp "$fake" "$scratch/prefix/bin/submit"
cp "$demonstration" "$scratch/prefix/share/cpattnd/installed.yaml"
cp "$scratch/key.yaml" "$scratch/elsewhere/mine.yaml"
tap_is "an installed matrix is found by its name" \
    "$(cd "$scratch/elsewhere" && "$scratch/prefix/bin/submit" matrix installed.yaml --list | wc -l)" 16
cp "$scratch/key.yaml" "$scratch/elsewhere/installed.yaml"
tap_has "a matrix in the working directory has precedence over an installed one" \
    "$(cd "$scratch/elsewhere" && "$scratch/prefix/bin/submit" matrix installed.yaml --list 2>&1)" \
    "installed.yaml:2:1: unknown key"
tap_is "a path to a matrix is not searched" \
    "$(cd "$scratch" && "$scratch/prefix/bin/submit" matrix ./installed.yaml --list 2>&1)" \
    "cpattn-submit: there is no file ./installed.yaml"

# ---- terminals ----

terminal() { # TERM ARGUMENTS...: prints what the command writes to a terminal
    term=$1
    shift
    TERM=$term script -qec "$fake $*" /dev/null </dev/null
}
if command -v script >/dev/null 2>&1; then
    escape=$(printf '\033')
    tap_has "progress on a terminal is redrawn" "$(terminal xterm matrix "$demonstration")" "${escape}[K"
    tap_lacks "a dumb one is not" "$(terminal dumb matrix "$demonstration")" "$escape"
    tap_has "progress in a file has a line for each case" "$(terminal dumb matrix "$demonstration")" \
        "16/16 pass  cp_2_1/fp16/w4"
    tap_lacks "NO_COLOR: no colour" "$(NO_COLOR=1 terminal xterm case)" "$escape"
    # Without curses the command says so, and only `top --once` works.
    drawn=$(printf q | TERM=xterm script -qec "$fake top" /dev/null)
    case $drawn in
    *"no curses"*) tap_skip "top on the whole screen" "no curses" ;;
    *)
        tap_has "top on the whole screen" "$drawn" "SLOWEST RANK"
        tap_has "top: it gives the screen back" "$drawn" "${escape}[?1049l"
        drawn=$(printf q | NO_COLOR=1 TERM=xterm script -qec "$fake top" /dev/null)
        tap_lacks "top, NO_COLOR: no colour" "$drawn" "${escape}[31m"
        drawn=$(printf '\033[4~q' | LINES=16 COLUMNS=80 TERM=linux script -qec "$fake top --socket many" /dev/null)
        tap_has "top: the end key shows the last rows" "$drawn" "rows 9-23 of 23"
        ;;
    esac
else
    tap_skip "what is drawn on terminals" "no script command"
fi

# ---- the help -----------------

run --help
commands=$(sed -n '/^  cpattn-submit/d; s/^  \([a-z]*\)  *[a-z].*/\1/p' "$scratch/out")
tap_has "--help: names the commands" "$(echo "$commands" | tr '\n' ' ')" "case attend dump bench "
page=$top_srcdir/doc/cpattn-submit.1
one='"dtype":"F32","shape":[1,1,1,1],"data_offsets"'
tensors="{\"q\":{$one:[0,4]},\"k\":{$one:[4,8]},\"v\":{$one:[8,12]}}"
for command in $commands; do
    run "$command" --help
    undocumented=
    options=$(grep -oE -- '^ +(-., )?--[a-z0-9-]+' "$scratch/out" | grep -oE -- '--[a-z0-9-]+')
    for option in $options; do
        grep -q "Fl Fl ${option#--}\( \|\$\)" "$page" || undocumented="$undocumented $option"
    done
    tap_is "$command --help: every option is in the manual" "$status$undocumented" 0
    cp "$scratch/out" "$scratch/help.$command"
    # argp prints a line of blanks after a text that ends exactly at the margin. Such a text needs
    # other words.
    tap_is "$command --help: no line of blanks" "$(grep -B 1 '^  *$' "$scratch/out")" ""
    # The command accepts the options and arguments of each example. The records that examples name
    # exist, empty, and the files of tensors with q, k and v of one element each.
    : >"$scratch/run.jsonl"
    : >"$scratch/old.jsonl"
    for file in qkv mine; do
        {
            # shellcheck disable=SC2059
            printf "\\$(printf %o ${#tensors})\0\0\0\0\0\0\0"
            printf '%s\0\0\0\0\0\0\0\0\0\0\0\0' "$tensors"
        } >"$scratch/$file.safetensors"
    done
    sed -n 's/^  cpattn-submit //p' "$scratch/out" | while read -r line; do
        # shellcheck disable=SC2086
        (cd "$scratch" && cp "$cases"/*.yaml . && "$fake" $line >/dev/null 2>&1)
        [ $? -eq 64 ] && echo "cpattn-submit $line"
    done >"$scratch/examples"
    tap_is "$command --help: its examples work" "$(cat "$scratch/examples")" ""
done
unknown=
options=$(grep -oE 'Fl Fl [a-z0-9-]+' "$page" | sed 's/Fl Fl //' | sort -u)
for option in $options; do
    grep -qE -- "--$option\b" "$scratch"/help.* || [ "$option" = version ] || unknown="$unknown $option"
done
tap_is "the manual has no option that does not exist" "$unknown" ""
sed -n '/^\.Bd -literal/,/^\.Ed/p' "$top_srcdir/doc/cpattn-matrix.5" | grep -v '^\.' >"$scratch/page.yaml"
run matrix "$scratch/page.yaml" --list
tap_is "the matrix of the manual is understood" "$status $(grep -vc refused "$scratch/out")" "0 60"
run matrix "$scratch/page.yaml" --list --subset essential
tap_is "the subset of the manual's matrix is understood" "$status $(wc -l <"$scratch/out")" "0 13"
tap_done

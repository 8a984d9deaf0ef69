#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs of a matrix: shards, records, resume, shuffle, repeat and retry. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
fake=$top_builddir/tests/submit/submit_fake
peek=$top_builddir/tests/support/peek
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
unset CPATTN_SOCKET

cat >"$scratch/m.yaml" <<'END'
title: All there is
models: {good: {}, fail1: {}, killed2: {}, sample: {}}
axes: {dtype: [bf16, fp16], world_size: [2, 3]}
exclude: [{when: {model: sample, world_size: 3}, reason: none}]
END
cat >"$scratch/flaky.yaml" <<'END'
models: {good: {}, flaky: {}}
END
cat >"$scratch/good.yaml" <<'END'
models: {good: {}, zzz: {}}
axes: {dtype: [bf16, fp16, fp32], world_size: [1, 2, 3, 4]}
END

run() {
    "$fake" matrix "$@" >"$scratch/out" 2>"$scratch/err"
    status=$?
    out=$(cat "$scratch/out")
    err=$(cat "$scratch/err")
}
ids() { # FILE: the ids of a record, in the order of the answers
    "$peek" json id <"$1"
}
summary() {
    tail -n 1 "$scratch/out" | sed 's/ in [^,]*$//'
}

# ---- parts ----

for i in 1 2 3 4 5; do
    run "$scratch/m.yaml" --list --shard "$i/5"
    cat "$scratch/out" >>"$scratch/parts"
done
run "$scratch/m.yaml" --list
tap_is "--shard: five parts have each case once" "$(sort "$scratch/parts" | sed 's/ .*//')" "$(echo "$out" | sort | sed 's/ .*//')"
run "$scratch/m.yaml" --list --shard 1/3
tap_is "--shard: parts of similar size" "$(echo "$out" | wc -l)" 5
for shard in 0/3 4/3 1 1/ a/b 1/3x 1/99999 -1/3; do
    run "$scratch/m.yaml" --shard "$shard"
    tap_is "--shard: invalid value $shard" "$status $err" \
        "64 cpattn-submit: --shard is '$shard'; accepted is I/N with N from 1 to 10000 and I from 1 to N"
done

# ---- the record ----

run "$scratch/m.yaml" --save "$scratch/all.jsonl" -j 1
tap_is "--save: exit status and counts" "$status $(summary)" "1 14 cases: 6 passed, 4 failed, 4 could not be run"
tap_is "--save: one line for each answer" "$(ids "$scratch/all.jsonl" | sort -u | wc -l)" 14
run "$scratch/m.yaml" --last-failed "$scratch/all.jsonl" --list
tap_is "--last-failed: lists fails and errors" "$(echo "$out" | sed 's/ .*//' | tr '\n' ' ')" \
    "fail1/bf16/w2 fail1/bf16/w3 fail1/fp16/w2 fail1/fp16/w3 killed2/bf16/w2 killed2/bf16/w3 killed2/fp16/w2 killed2/fp16/w3 "
grep -v fail1 "$scratch/all.jsonl" | grep -v killed2 >"$scratch/fine.jsonl"
run "$scratch/m.yaml" --last-failed "$scratch/fine.jsonl"
tap_is "--last-failed: a record without failures" "$status $out" "0 no case of $scratch/m.yaml failed in $scratch/fine.jsonl"
echo earlier >"$scratch/n.xml"
run "$scratch/m.yaml" --last-failed "$scratch/fine.jsonl" --json --junit "$scratch/n.xml" --save "$scratch/n.jsonl"
tap_is "--last-failed: without failures --json prints nothing" "$status $out:$err" \
    "0 :no case of $scratch/m.yaml failed in $scratch/fine.jsonl"
tap_is "--last-failed: without failures the outputs are those of a run without a case" \
    "$(grep -o 'tests="0"' "$scratch/n.xml") $(wc -c <"$scratch/n.jsonl")" 'tests="0" 0'
run "$scratch/m.yaml" --last-failed "$scratch/all.jsonl" --filter model=good
tap_is "--last-failed: the failures are not among the chosen cases" "$status $out" \
    "0 no case of $scratch/m.yaml failed in $scratch/all.jsonl, of those that the command line chooses"
run "$scratch/good.yaml" --last-failed "$scratch/all.jsonl"
tap_is "--last-failed: the record of another matrix" "$status $out$err" \
    "64 cpattn-submit: $scratch/all.jsonl: 8 cases that failed there are not in $scratch/good.yaml and cannot run again, such as fail1/bf16/w2"
sed 's|"id":"killed2/fp16/w3"|"id":"gone"|' "$scratch/all.jsonl" >"$scratch/gone.jsonl"
run "$scratch/m.yaml" --last-failed "$scratch/gone.jsonl" --list
tap_is "--last-failed: a failure that the matrix does not have is named" "$status $(echo "$out" | wc -l) $err" \
    "0 7 cpattn-submit: $scratch/gone.jsonl: 1 case that failed there is not in $scratch/m.yaml and cannot run again, such as gone"
head -c 1000 "$scratch/fine.jsonl" | tr -d '\n' >"$scratch/cut.jsonl"
cut="cpattn-submit: $scratch/cut.jsonl: the last line is incomplete and does not count; matrix --resume ends this run"
run "$scratch/m.yaml" --last-failed "$scratch/cut.jsonl"
tap_is "--last-failed: an incomplete last line is named" "$status $err" "0 $cut"
"$fake" report "$scratch/cut.jsonl" --text >"$scratch/out" 2>"$scratch/err"
tap_is "report: an incomplete last line is named" "$? $(cat "$scratch/err")" "0 $cut"

head -n 5 "$scratch/all.jsonl" >"$scratch/part.jsonl"
printf '{"id": "good/bf16/w2", "outc' >>"$scratch/part.jsonl"
run "$scratch/m.yaml" --resume "$scratch/part.jsonl" -j 1
tap_is "--resume: exit status and counts of all cases" "$status $(summary)" \
    "1 14 cases: 6 passed, 4 failed, 4 could not be run"
tap_has "--resume: the sum tells what was recorded" "$(tail -n 1 "$scratch/out")" "; 5 of them recorded before"
tap_is "--resume: each case is recorded once, in the order of the matrix" \
    "$(ids "$scratch/part.jsonl")" "$(ids "$scratch/all.jsonl")"
tap_is "--resume: cases with a verdict do not run again" "$(grep -cE '^ *[0-9]+/14 ' "$scratch/out")" 9
run "$scratch/m.yaml" --resume "$scratch/part.jsonl" -j 1
tap_is "--resume twice: cases that could not run are tried again" "$(grep -cE '^ *[0-9]+/14 ' "$scratch/out")" 4
run "$scratch/m.yaml" --resume "$scratch/all.jsonl" --set seed=9
tap_is "--resume with other cases is refused" "$status $err" \
    "64 cpattn-submit: $scratch/all.jsonl: good/bf16/w2 was another case in that run; --resume takes the \
matrix and the options of the run that it goes on with"
cat >"$scratch/kinds.yaml" <<'END'
models: {good: {}, flaky: {}, fail1: {}, plain: {verify: off}, killed1: {}, zzz: {}}
axes: {batch: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}
END
run "$scratch/kinds.yaml" --save "$scratch/kinds.jsonl" -j 1 --retry 1
grep -v killed1 "$scratch/kinds.jsonl" | grep -v zzz >"$scratch/started.jsonl"
run "$scratch/kinds.yaml" --resume "$scratch/started.jsonl" -j 1 --fail-fast
tap_is "a long sum is complete" "$(tail -n 1 "$scratch/out" | sed 's/ in [0-9.]* [mun]*s;/;/')" \
    "72 cases: 24 passed, 1 of them flaky (1 with a wrong result first), 12 failed, 1 could not be run, \
12 run without verification, 23 not run; 48 of them recorded before"
printf '{"id": 3}\n' >"$scratch/bad.jsonl"
run "$scratch/m.yaml" --resume "$scratch/bad.jsonl"
tap_is "--resume: not a record" "$status $err" \
    "64 cpattn-submit: $scratch/bad.jsonl:1: no answer of a matrix: id is 3; accepted is a text"
{ head -n 1 "$scratch/all.jsonl" | head -c 100; cat "$scratch/all.jsonl"; } >"$scratch/joined.jsonl"
run "$scratch/m.yaml" --resume "$scratch/joined.jsonl"
tap_is "--resume: records joined behind an incomplete line" "$status $err" \
    "64 cpattn-submit: $scratch/joined.jsonl:1: an incomplete line, and another one behind it; end a killed run \
with --resume before its record is joined with others"
run "$scratch/m.yaml" --resume "$scratch/none.jsonl"
tap_is "--resume: missing file" "$status $err" \
    "64 cpattn-submit: $scratch/none.jsonl: cannot be read: No such file or directory"
run "$scratch/m.yaml" --save "$scratch/none/x"
tap_is "--save: file cannot be created" "$status $err" \
    "64 cpattn-submit: $scratch/none/x cannot be written: No such file or directory"
cp "$scratch/m.yaml" "$scratch/copy.yaml"
run "$scratch/copy.yaml" --save "$scratch/copy.yaml"
tap_is "--save: the file of the matrix is refused" "$status $err" \
    "64 cpattn-submit: --save and the matrix are the same file, '$scratch/copy.yaml'; accepted is another file for --save"
cp "$scratch/all.jsonl" "$scratch/failed.jsonl"
ln -s failed.jsonl "$scratch/link.jsonl"
for option in --save --junit --markdown; do
    run "$scratch/m.yaml" --last-failed "$scratch/failed.jsonl" $option "$scratch/link.jsonl"
    tap_is "--last-failed and $option: the same file is refused" "$status $err" \
        "64 cpattn-submit: $option and --last-failed are the same file, '$scratch/link.jsonl'; accepted is another file for $option"
done
tap_is "--last-failed: a refused command does not change the record" \
    "$(cmp "$scratch/all.jsonl" "$scratch/failed.jsonl" && echo yes)" yes
tap_is "--save: a refused command does not change the matrix" "$(cmp "$scratch/m.yaml" "$scratch/copy.yaml" && echo yes)" yes
"$fake" matrix "$scratch/good.yaml" --save "$scratch/closed.jsonl" >&- 2>"$scratch/err"
tap_is "closed standard output: exit status and message" "$? $(cat "$scratch/err")" \
    "79 cpattn-submit: the output could not be written: Bad file descriptor"
"$fake" report "$scratch/closed.jsonl" >/dev/null 2>"$scratch/err"
tap_is "closed standard output: the record is valid" "$? $(cat "$scratch/err")" "0 "
printf 'models: {fail: {}, stuck: {}}\n' >"$scratch/stuck.yaml"
run "$scratch/stuck.yaml" --fail-fast
tap_has "--fail-fast: why the other cases end" "$out" \
    "not run stuck: another case did not pass, and --fail-fast ends the run"
if [ -e /dev/full ]; then
    run "$scratch/good.yaml" --save /dev/full
    tap_is "--save on a full disk" "$status $err" "79 cpattn-submit: /dev/full could not be written: No space left on device"
    printf 'models: {good: {}, stuck: {}}\n' >"$scratch/stuck.yaml"
    run "$scratch/stuck.yaml" --save /dev/full
    tap_has "--save on a full disk: why the other cases end" "$out" "not run stuck: the record cannot be written"
    "$fake" bench --save /dev/full >/dev/null 2>"$scratch/err"
    tap_is "bench --save on a full disk" "$? $(cat "$scratch/err")" \
        "79 cpattn-submit: /dev/full could not be written: No space left on device"
fi
echo file >"$scratch/file"
for command in "matrix $scratch/m.yaml" case; do
    # shellcheck disable=SC2086
    "$fake" $command --dump-fails "$scratch/file" >"$scratch/out" 2>"$scratch/err"
    tap_is "--dump-fails: a file is refused before a case runs: ${command%% *}" "$? $(cat "$scratch/out" "$scratch/err")" \
        "64 cpattn-submit: --dump-fails is '$scratch/file': Not a directory; accepted is a directory, or the name of a new one"
    # shellcheck disable=SC2086
    "$fake" $command --dump-fails "$scratch/none/new" >"$scratch/out" 2>"$scratch/err"
    tap_is "--dump-fails: a directory that cannot be made: ${command%% *}" "$? $(cat "$scratch/out" "$scratch/err")" \
        "64 cpattn-submit: --dump-fails is '$scratch/none/new': No such file or directory; accepted is a directory, or the name of a new one"
done
run "$scratch/good.yaml" --dump-fails "$scratch/new"
tap_is "--dump-fails: no directory is left without a fail" "$status $(find "$scratch" -name new)" "0 "
run "$scratch/m.yaml" --save "$scratch/x" --resume "$scratch/all.jsonl"
tap_is "--save with --resume is refused" "$status $err" \
    "64 cpattn-submit: --save does not go with --resume, which adds to its own file"

# ---- order ----

run "$scratch/good.yaml" -j 1 --save "$scratch/plain.jsonl"
run "$scratch/good.yaml" -j 1 --save "$scratch/one.jsonl" --shuffle 1
run "$scratch/good.yaml" -j 1 --save "$scratch/again.jsonl" --shuffle 1
run "$scratch/good.yaml" -j 1 --save "$scratch/two.jsonl" --shuffle 2
tap_is "--shuffle: a seed gives one order" "$(ids "$scratch/one.jsonl")" "$(ids "$scratch/again.jsonl")"
tap_is "--shuffle: has every case" "$(ids "$scratch/one.jsonl" | sort)" "$(ids "$scratch/plain.jsonl" | sort)"
different=yes
[ "$(ids "$scratch/one.jsonl")" = "$(ids "$scratch/two.jsonl")" ] && different=no
[ "$(ids "$scratch/one.jsonl")" = "$(ids "$scratch/plain.jsonl")" ] && different=no
tap_is "--shuffle: seeds give different orders" "$different" yes

# ---- retries ----

run "$scratch/flaky.yaml" -j 1
tap_is "without --retry a flaky case fails" "$status $(summary)" "1 2 cases: 1 passed, 1 failed"
run "$scratch/flaky.yaml" -j 1 --retry 2 --junit "$scratch/j.xml" --markdown "$scratch/m.md" --save "$scratch/f.jsonl"
tap_is "--retry: exit status and counts" "$status $(summary)" \
    "1 2 cases: 2 passed, 1 of them flaky (1 with a wrong result first)"
tap_has "--retry: progress names the failed try" "$out" "again flaky: dq of rank 1"
tap_has "--retry: flaky cases are listed" "$out" "Flaky, passed after another try:
  flaky: dq of rank 1"
tap_has "--retry: flaky cases have their diagnosis" "$(grep '^  flaky: ' "$scratch/out")" "; diagnosis: the scale is missing"
tap_has "--retry: JUnit" "$(cat "$scratch/j.xml")" '<flakyFailure message="dq of rank 1'
tap_has "--retry: Markdown" "$(cat "$scratch/m.md")" "| flaky | flaky | dq of rank 1"
tap_is "--retry: record of the first outcome" "$("$peek" json first_outcome <"$scratch/f.jsonl" | grep fail)" fail
run "$scratch/flaky.yaml" -j 1 --retry 2 --resume "$scratch/f.jsonl"
tap_is "--retry: a resumed run has the exit status, too" "$status" 1
run "$scratch/flaky.yaml" --last-failed "$scratch/f.jsonl" --list
tap_is "--last-failed: a wrong result before a pass counts" "$status $(echo "$out" | sed 's/ .*//')" "0 flaky"
tap_is "--retry: record" "$("$peek" json first_message <"$scratch/f.jsonl" | grep -c 'dq of rank 1')" 1
echo 'models: {good: {}, shaky: {}}' >"$scratch/shaky.yaml"
run "$scratch/shaky.yaml" -j 1 --retry 1 --junit "$scratch/j.xml"
tap_is "--retry: an error may go away: exit status and counts" "$status $(summary)" "0 2 cases: 2 passed, 1 of them flaky"
tap_has "--retry: JUnit after an error" "$(cat "$scratch/j.xml")" '<flakyError message="rank 1 was killed'
echo 'models: {flaky_shaky: {}}' >"$scratch/unsteady.yaml"
run "$scratch/unsteady.yaml" --retry 2 --junit "$scratch/j.xml"
tap_is "--retry: an error, a wrong result and a pass" "$status $(summary)" \
    "1 1 case: 1 passed, 1 of them flaky (1 with a wrong result first)"
tap_has "--retry: the wrong result counts, not the error" "$(cat "$scratch/j.xml")" '<flakyFailure message="dq of rank 1'
echo 'models: {flaky_killed: {}}' >"$scratch/brittle.yaml"
run "$scratch/brittle.yaml" --retry 2 --save "$scratch/b.jsonl"
tap_is "--retry: a wrong result and then errors are a fail" "$status $(summary)" "1 1 case: 1 failed"
tap_is "--retry: and so does the record say" "$("$peek" json outcome <"$scratch/b.jsonl")" fail
run "$scratch/m.yaml" --retry 2 -j 1 --filter fail1/bf16/w2
tap_is "--retry: a case that fails each time: exit status and counts" "$status $(summary)" "1 1 case: 1 failed"
tap_is "--retry: a case that fails each time runs twice" "$(grep -c '^again fail1' "$scratch/out")" 2
run "$scratch/good.yaml" --repeat 3 -j 2
tap_is "--repeat: counts" "$status $(summary)" "0 24 cases: 24 passed"
cat >"$scratch/drift.yaml" <<'END'
models: {good: {}, drift: {}}
END
run "$scratch/drift.yaml" --repeat 3
tap_is "--repeat: counts with different results" "$status $(summary)" "1 2 cases: 1 passed, 1 failed"
tap_has "--repeat: message with different results" "$out" "the results differ between runs"
run "$scratch/drift.yaml" --repeat 3 --retry 1
tap_is "--repeat with --retry is refused" "$status $err" \
    "64 cpattn-submit: --retry does not go with --repeat: a repeated case must pass each time"
run "$scratch/drift.yaml" --json --durations 3
tap_is "--json with --durations is refused" "$status $err" \
    "64 cpattn-submit: --durations does not go with --json, which has the times of every case"

# ---- reports ----

run "$scratch/m.yaml" --durations 2 -j 1
tap_is "--durations" "$(grep -A 3 '^LONGEST' "$scratch/out" | wc -l | tr -d ' ')" 4
cat >"$scratch/wild.yaml" <<'END'
title: "a <b> | *c* `d`"
models: {fail1: {}}
END
: >"$scratch/w.md"
echo before >"$scratch/w.md"
run "$scratch/wild.yaml" --markdown "$scratch/w.md"
# shellcheck disable=SC2016
tap_is "--markdown appends, and escapes text" "$(head -n 2 "$scratch/w.md")" \
    'before
### a &lt;b> \| \*c\* \`d\`'
run "$scratch/m.yaml" --junit "$scratch/host.xml" --filter good
tap_has "--junit: host name" "$(cat "$scratch/host.xml")" "hostname=\"$(hostname)\""
tap_has "--junit: version of the daemon" "$(cat "$scratch/host.xml")" '<property name="backend"'

# ---- the longest time limit of a daemon ----

export FAKE_TIMEOUT_MAX_S=80
FAKE_DESCRIBE_MS=1500 run "$scratch/good.yaml"
tap_is "a daemon that takes more than a second to say its longest limit" "$status $(summary)" "0 24 cases: 24 passed"
tap_is "is asked again, and the limit is told once" "$err" \
    "cpattn-submit: the daemon at fake grants a case at most 80.0 s with its wait (timeout-max)"
FAKE_DESCRIBE_MS=99000 run "$scratch/good.yaml"
tap_has "one that never says it: each case has its refusal" "$out" "the time limit is too long"
# After a case that cannot be submitted, the command asks the daemon for its description again. That
# call fails here.
printf 'models: {unsent: {}, zzz: {}}\naxes: {dtype: [bf16, fp16, fp32]}\n' >"$scratch/unsent.yaml"
FAKE_DESCRIBES=1 run "$scratch/unsent.yaml"
tap_is "the limit that a daemon has said stays" "$(summary)" "6 cases: 3 passed, 3 could not be run"
unset FAKE_TIMEOUT_MAX_S

# ---- time limits of dumps ----

printf 'models: {fail_limits: {}}\ntimeout: 7s\n' >"$scratch/dumped.yaml"
not_written="cpattn-submit: the tensors of a failed case are not written: "
run "$scratch/dumped.yaml" --dump-fails "$scratch/dumps"
tap_is "--dump-fails: the time limit of the matrix" "$err" "${not_written}limits of 7 s and 0 s"
run "$scratch/dumped.yaml" --dump-fails "$scratch/dumps" --timeout 11s
tap_is "--dump-fails: --timeout" "$err" "${not_written}limits of 11 s and 0 s"
FAKE_TIMEOUT_MAX_S=10 run "$scratch/dumped.yaml" --dump-fails "$scratch/dumps" --timeout 11s
tap_is "--dump-fails: no more than the daemon grants" "$(tail -n 1 "$scratch/err")" "${not_written}limits of 10 s and 0 s"

for option in "--junit x" "--save x" "--resume x" "--markdown x" "--dump-fails x" "--shuffle 1" "--repeat 1" \
    "--durations 3"; do
    # shellcheck disable=SC2086
    run "$scratch/m.yaml" --list $option
    tap_is "--list refuses $option" "$status $err" \
        "64 cpattn-submit: ${option%% *} does not go with --list, which runs nothing"
done
run "$scratch/m.yaml" --list
listed=$out
run "$scratch/m.yaml" --list --jobs 4 --timeout 90 --patience 60 --fail-fast --retry 2 --socket x --verbose
tap_is "--list accepts options on how cases are run" "$status $out" "0 $listed"
tap_done

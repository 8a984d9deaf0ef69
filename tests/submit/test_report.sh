#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The HTML page of a recorded run: contents, escaping, refusals. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
fake=$top_builddir/tests/submit/submit_fake
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
unset CPATTN_SOCKET

cat >"$scratch/m.yaml" <<'END'
models: {good: {}, fail1: {}, killed2: {}, flaky: {}}
axes: {dtype: [bf16, fp16]}
END
"$fake" matrix "$scratch/m.yaml" -j 1 --retry 1 --save "$scratch/run.jsonl" >/dev/null 2>&1

report() {
    "$fake" report "$@" >"$scratch/out" 2>"$scratch/err"
    status=$?
    err=$(cat "$scratch/err")
}
page() { # the page without line breaks
    tr '\n' ' ' <"${1:-$scratch/out}"
}

report "$scratch/run.jsonl"
tap_is "a page: exit status and first line" "$status $(head -n 1 "$scratch/out")" "0 <!DOCTYPE html>"
tap_has "a page: counts of outcomes" "$(page)" \
    "<b>8</b> cases <span class=p>4 pass</span> <span class=f>2 fail</span> <span class=e>2 error</span> <span class=k>1 flaky</span>"
tap_is "a page: a cell for each case, and six in the legend" "$(grep -o '<i class=' "$scratch/out" | wc -l)" 14
tap_has "a page: a row of the grid has its number of failures" "$(page)" "<span>fail1 <b class=f>2</b></span>"
tap_has "a page: message of a fail" "$(page)" "<b class=f>fail</b> fail1/bf16</summary><p>dq of rank 1, chunk 0"
tap_has "a page: diagnosis of a fail" "$(page)" "diagnosis: the scale is missing"
tap_has "a page: command of a fail" "$(page)" "<pre>cpattn-submit case --model fail1"
tap_has "a page: flaky case" "$(page)" "<b class=k>flaky</b> flaky/bf16"
tap_has "a page: data of the table" "$(page)" '["good/bf16","p","pass",'
tap_lacks "no address of anything elsewhere" "$(page)" "://"

report "$scratch/run.jsonl" -o "$scratch/page.html" --title "a <b> run"
tap_is "--output" "$status $(cat "$scratch/out")" "0 "
tap_has "--title" "$(page "$scratch/page.html")" "<h1>a &lt;b&gt; run</h1>"

cat >"$scratch/wild.jsonl" <<'END'
{"id":"</script><script>x","outcome":"fail","message":"<img src=x>&\"","command":"</pre>","rule":"\"]//","tensor":"<i>"}
END
report "$scratch/wild.jsonl"
tap_is "hostile text: exit status" "$status" 0
tap_lacks "hostile text: no tag of it" "$(page)" "<img"
tap_is "hostile text: one script" "$(grep -o '</script>' "$scratch/out" | wc -l)" 1
tap_has "hostile text: in the data" "$(page)" '"\u003c/script\u003e\u003cscript\u003ex"'

cat >"$scratch/numbers.jsonl" <<'END'
{"id":"a","outcome":"pass","of_limit":1.7e308,"tensor":"out","times_ns":{"run":9223372036854775807,"queue":9223372036854775807,"start":9223372036854775807}}
{"id":"b","outcome":"pass","of_limit":"nan","tensor":"out","times_ns":{"run":-9223372036854775807}}
{"id":"c","outcome":"pass","of_limit":0,"tensor":"out","times_ns":{"run":1e300},"ranks":[{"times_ns":{"forward":-1}}]}
END
report "$scratch/numbers.jsonl"
tap_is "huge and negative numbers: exit status" "$status $err" "0 "
tap_has "huge numbers: a part of a limit" "$(page)" "<tr><td>a</td><td class=p>pass</td><td>beyond</td>"
tap_lacks "huge and negative numbers: each is finite" "$(page)" "inf %"

sed 's/"outcome":"pass"/"outcome":"fail"/; s/"digest":"0123/"digest":"9123/' "$scratch/run.jsonl" |
    grep -v killed2/fp16 >"$scratch/old.jsonl"
report "$scratch/run.jsonl" --compare "$scratch/old.jsonl"
tap_has "--compare: counts of changes" "$(page)" \
    "<h2>Beside old</h2> <p>4 verdicts changed, 3 the same, 1 new, 0 gone; the results of 6 have other bits.</p>"
tap_has "--compare: row of a changed verdict" "$(page)" \
    "<tr><td>good/bf16</td><td class=f>fail</td><td class=p>pass</td>"
i=0
while [ $i -lt 203 ]; do
    echo "{\"id\":\"c$i\",\"outcome\":\"pass\"}"
    i=$((i + 1))
done >"$scratch/now.jsonl"
sed 's/pass/fail/' "$scratch/now.jsonl" >"$scratch/then.jsonl"
report "$scratch/now.jsonl" --compare "$scratch/then.jsonl"
tap_is "--compare: rows of many changed verdicts" "$(grep -c '^<tr><td>c[0-9]*</td><td class=f>' "$scratch/out")" 200
tap_has "--compare: the rest of them is counted" "$(page)" "</table></div> <p class=dim>and 3 more</p>"
report "$scratch/run.jsonl" --compare "$scratch/run.jsonl"
tap_has "--compare with the same record: no changes" "$(page)" "0 verdicts changed, 8 the same, 0 new, 0 gone; the results of 0 have"
tap_has "--compare with the same record: ratio of times" "$(page)" "cases that passed in both: median 1.00 times"

report "$scratch/run.jsonl" --text
tap_is "--text: the totals, and no page" "$status $(cat "$scratch/out")" \
    "0 8 cases: 4 passed, 1 of them flaky (1 with a wrong result first), 2 failed, 2 could not be run"
report "$scratch/run.jsonl" --compare "$scratch/old.jsonl" --text
tap_is "--text: nothing became worse" "$status" 0
tap_has "--text: counts of changes" "$(page)" \
    "beside old: 4 verdicts changed, 0 of them for the worse, 3 the same, 1 new, 0 gone; the results of 6 have other bits"
report "$scratch/old.jsonl" --compare "$scratch/run.jsonl" --text
tap_is "--text: exit status if a case became worse" "$status" 1
tap_has "--text: counts of worse ones" "$(page)" "4 verdicts changed, 4 of them for the worse, 3 the same, 0 new, 1 gone"
tap_is "--text: a row of a changed verdict" "$(grep -c '^good/bf16  *pass  *fail' "$scratch/out")" 1
sed 's/"digest":"0123/"digest":"9123/' "$scratch/run.jsonl" >"$scratch/bits.jsonl"
report "$scratch/bits.jsonl" --compare "$scratch/run.jsonl" --text -o "$scratch/page.html"
tap_is "--text: other bits are no failure" "$status" 0
tap_is "--text: a row of other bits" "$(grep -c '^good/bf16  *pass  *pass  *other bits' "$scratch/out")" 1
tap_is "--text beside --output: the page" "$(head -n 1 "$scratch/page.html")" "<!DOCTYPE html>"
: >"$scratch/empty.jsonl"
report "$scratch/empty.jsonl"
tap_is "an empty record: a warning" "$status $err" "0 cpattn-submit: $scratch/empty.jsonl: the record has no case"
tap_has "an empty record: the page says so" "$(page)" "<p class=sum><b>0</b> cases</p> <p>The record has no case."
tap_is "an empty record: no empty grid, table or script" "$(grep -cE '<h2>|<table|<script|<i ' "$scratch/out")" 0
report "$scratch/empty.jsonl" --compare "$scratch/run.jsonl"
tap_has "an empty record beside an earlier one" "$(page)" "0 verdicts changed, 0 the same, 0 new, 8 gone;"
report "$scratch/run.jsonl" --compare "$scratch/empty.jsonl" --text
tap_is "an empty earlier record: a warning" "$status $err" "0 cpattn-submit: $scratch/empty.jsonl: the record has no case"

refuses() { # STATUS SENTENCE ARGUMENTS...
    wanted="$1 cpattn-submit: $2"
    shift 2
    report "$@"
    tap_is "refused: $*" "$status $err" "$wanted"
}
refuses 64 "the record is missing; see cpattn-submit report --help"
refuses 64 "$scratch/none: cannot be read: No such file or directory" "$scratch/none"

damaged() { # LINE SENTENCE
    { head -n 1 "$scratch/run.jsonl" && printf '%s\n' "$1"; } >"$scratch/damaged.jsonl"
    report "$scratch/damaged.jsonl"
    tap_is "refused: $(printf '%s' "$1" | tr -cd ' -~')" "$status $err" \
        "64 cpattn-submit: $scratch/damaged.jsonl:2: no answer of a matrix: $2"
}
outcomes="not run, pass, fail, error, excluded or unverified"
damaged 'models: {}' "'[' or '{' expected near 'models', at byte 6; accepted is an object of JSON"
damaged '{"id":"a","id":"b"}' "duplicate object key near '\"id\"', at byte 14; accepted is an object of JSON"
damaged "$(printf '{"id":"\377"}')" "unable to decode byte 0xff near '\"', at byte 7; accepted is an object of JSON"
damaged '["a","pass"]' "a list; accepted is an object of JSON"
damaged '{"outcome":"pass"}' "id is missing; accepted is the name of a case"
damaged '{"id":"","outcome":"pass"}' 'id is ""; accepted is the name of a case'
damaged '{"id":"a"}' "outcome is missing; accepted is $outcomes"
damaged '{"id":"a","outcome":"passed"}' "outcome is \"passed\"; accepted is $outcomes"
damaged '{"id":"a","outcome":{"kind":"pass"}}' 'outcome is {"kind": "pass"}; accepted is a text'
damaged '{"id":"a","outcome":"fail","message":["x"]}' 'message is ["x"]; accepted is a text'
damaged '{"id":"a","outcome":"pass","of_limit":-9}' 'of_limit is -9; accepted is a number from 0, "inf" or "nan"'
damaged '{"id":"a","outcome":"pass","of_limit":-1e308}' \
    'of_limit is -1e308; accepted is a number from 0, "inf" or "nan"'
damaged '{"id":"a","outcome":"pass","of_limit":true}' 'of_limit is true; accepted is a number from 0, "inf" or "nan"'
damaged "{\"id\":\"a\",\"outcome\":\"$(printf '%060d' 0)\"}" \
    "outcome is \"$(printf '%044d' 0)...; accepted is $outcomes"
refuses 64 "$scratch/none/x cannot be written: No such file or directory" "$scratch/run.jsonl" -o "$scratch/none/x"
cp "$scratch/run.jsonl" "$scratch/copy.jsonl"
same="are the same file, '$scratch/copy.jsonl'; accepted is another file for --output"
refuses 64 "--output and the record $same" "$scratch/copy.jsonl" -o "$scratch/copy.jsonl"
refuses 64 "--output and --compare $same" "$scratch/run.jsonl" --compare "$scratch/copy.jsonl" -o "$scratch/copy.jsonl"
tap_is "refused: no record is changed" "$(cmp "$scratch/run.jsonl" "$scratch/copy.jsonl" && echo yes)" yes
echo before >"$scratch/page.html"
[ -e /dev/full ] && refuses 79 "/dev/full could not be written: No space left on device" "$scratch/run.jsonl" -o /dev/full
tap_done

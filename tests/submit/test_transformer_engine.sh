#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# TransformerEngine's matrix through the daemon. First its 450 cases. Then 1 in CPATTN_TEST_PART
# (default 4) of the 960 cases that --unskip gives: it adds those that the backends skip. Then 1 in
# CPATTN_TEST_PART of the 450 on two daemons, interrupted by signals and resumed. CPATTN_TE_SCALE
# (default 128) divides the lengths; 16 is the thorough setting and takes many minutes. Prints TAP,
# one test for each model.
set -u
# What nohup starts ignores SIGHUP, and so would cpattn-submit here.
case $(sed -n 's/^SigIgn:[[:space:]]*//p' /proc/self/status) in
*[13579bdf]) exec env --default-signal=HUP "$0" "$@" ;;
esac
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
submit=$top_builddir/cpattn-submit
scratch=$(mktemp -d) || exit 99
CPATTN_SOCKET=$scratch/cpattnd.sock
export CPATTN_SOCKET
peek=$top_builddir/tests/support/peek
te_file=$top_srcdir/cases/transformer-engine.yaml
daemons=
# shellcheck disable=SC2086
trap 'kill -KILL $daemons 2>/dev/null; rm -rf "$scratch"' EXIT

daemon_start() { # SOCKET
    "$top_builddir/cpattnd" --socket "$1" --backend cpu --devices 2 2>"$1.log" &
    daemons="$daemons $!"
    until "$submit" status --socket "$1" >/dev/null 2>&1; do
        tap_step "$!" || { cat "$1.log"; exit 99; }
    done
}
te_exec() { # OPTIONS...
    exec "$submit" matrix "$te_file" --timeout 1h --seqlen-scale "${CPATTN_TE_SCALE:-128}" "$@"
}
te() { (te_exec "$@"); }
daemon_start "$CPATTN_SOCKET"
te --save "$scratch/all.jsonl" >"$scratch/out" 2>"$scratch/err"
tap_is "exit status" "$?$(cat "$scratch/err")" 0
tap_has "all cases passed" "$(tail -n 1 "$scratch/out")" "450 cases: 450 passed"
part=${CPATTN_TEST_PART:-4}
te --unskip --shard "1/$part" --resume "$scratch/all.jsonl" >"$scratch/skipped" 2>"$scratch/err"
tap_is "with what is skipped: exit status" "$?$(cat "$scratch/err")" 0
cases=$(((960 + part - 1) / part))
tap_has "with what is skipped: all passed" "$(tail -n 1 "$scratch/skipped")" "$cases cases: $cases passed"

# A progress line is "12/450 pass  flash.cp_1_0/bf16/...". The name of the model ends at the first
# slash.
sed -n 's|^ *[0-9]*/[0-9]* \([a-z ]*[a-z]\)  *\([a-z]*\.[a-z0-9_]*\)/.*|\2 \1|p' "$scratch/out" "$scratch/skipped" |
    sort | uniq -c >"$scratch/models"
cut -c9- "$scratch/models" | cut -d' ' -f1 | uniq >"$scratch/names"
while read -r model; do
    tap_is "$model passes" "$(grep -c " $model pass\$" "$scratch/models")/$(grep -c " $model " "$scratch/models")" 1/1
done <"$scratch/names"
tap_is "every model is there" "$(grep -c . "$scratch/names")" 36

# ---- two daemons, and signals ----

daemon_start "$scratch/second.sock"
cases=$("$submit" matrix "$te_file" --list --shard "1/$part" | wc -l)
# A report also has its share of the 1278 cases that the file excludes.
all=$((cases + (1278 + part - 1) / part))
te_part() { te --shard "1/$part" "$@"; }
lines() { if [ -f "$1" ]; then wc -l <"$1"; else echo 0; fi; }
# True if the process is cpattn-submit and has a handler for SIGTERM. Before exec it is a shell.
handles() { # PID
    [ "$(cat "/proc/$1/comm" 2>/dev/null)" = cpattn-submit ] || return
    caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null)
    [ $((0x${caught#????????} & 0x4000)) -ne 0 ]
}
# Starts the matrix, sends SIGNAL when the record has ANSWERS lines, and waits for the end, which must
# have the exit status. With a 2 at the end of SIGNAL it is sent twice; the second one kills, or comes
# together with the first one.
interrupted() { # SIGNAL STATUS[|STATUS] ANSWERS OPTIONS...
    signal=$1 ends=$2 answers=$3
    shift 3
    (te_exec --shard "1/$part" --socket "$CPATTN_SOCKET" --socket "$scratch/second.sock" --junit "$scratch/te.xml" "$@") \
        >/dev/null 2>&1 &
    running=$!
    until handles "$running" && [ "$(lines "$scratch/two.jsonl")" -ge "$answers" ]; do
        tap_step "$running" || break
    done
    kill -"${signal%2}" "$running"
    [ "$signal" = "${signal%2}" ] || kill -"${signal%2}" "$running" 2>/dev/null
    tap_wait "$running"
    ended=$?
    case "|$ends|" in *"|$ended|"*) ended=$ends ;; esac
    tap_is "$signal: the matrix ends by it" "$ended" "$ends"
}
# Prints the number of cases in the JUnit file, with the excluded ones. Fails if the XML is not
# complete.
junit_cases() { "$peek" xml 'count(//testcase)' <"$scratch/te.xml"; }

interrupted INT 65 $((cases / 10)) --save "$scratch/two.jsonl"
tap_is "interrupted: JUnit is whole" "$(junit_cases)" "$all"
interrupted TERM2 '65|143' $((cases * 3 / 10)) --resume "$scratch/two.jsonl"
tap_is "two signals: JUnit is whole" "$(junit_cases)" "$all"
interrupted KILL 137 $((cases * 4 / 10)) --resume "$scratch/two.jsonl"
tap_is "killed: JUnit is that of before" "$(junit_cases)" "$all"
interrupted HUP 129 $((cases * 6 / 10)) --resume "$scratch/two.jsonl"
tap_is "hung up: JUnit is whole" "$(junit_cases)" "$all"
te_part --socket "$CPATTN_SOCKET" --socket "$scratch/second.sock" --resume "$scratch/two.jsonl" \
    --junit "$scratch/te.xml" >"$scratch/out" 2>"$scratch/err"
tap_is "resumed: exit status" "$?$(cat "$scratch/err")" 0
tap_has "resumed: the sum" "$(tail -n 1 "$scratch/out")" "$cases cases: $cases passed"
results() { # FILE: id, outcome and digest of each answer with a verdict
    for member in id outcome digest; do "$peek" json "$member" <"$1" >"$scratch/$member"; done
    paste -d ' ' "$scratch/id" "$scratch/outcome" "$scratch/digest" | grep ' pass ' | sort
}
results "$scratch/all.jsonl" >"$scratch/one"
results "$scratch/two.jsonl" >"$scratch/two"
tap_is "each case has one verdict" "$(cut -d ' ' -f 1 "$scratch/two" | uniq -d | wc -l) $(lines "$scratch/two")" "0 $cases"
tap_is "and the bits of one daemon" "$(comm -13 "$scratch/one" "$scratch/two")" ""
# shellcheck disable=SC2086 # a list of processes
tap_ends $daemons
daemons=
tap_done

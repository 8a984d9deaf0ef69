#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Traces: the events follow the trace-event format and agree with the plan. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
fake=$top_builddir/tests/submit/submit_fake
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
unset CPATTN_SOCKET
if ! command -v python3 >/dev/null; then
    tap_skip "traces" "there is no python3"
    tap_done
    exit 0
fi

# Prints up to five faults of a trace, or the number of its events of each name; then the names of
# the processes.
cat >"$scratch/check.py" <<'END'
import json, sys
from collections import Counter, defaultdict
events = json.load(open(sys.argv[1]))["traceEvents"]
wrong, lanes, flows, names = [], defaultdict(list), defaultdict(dict), {}
needed = {"M": ("name", "pid", "args"), "X": ("name", "cat", "pid", "tid", "ts", "dur", "args"),
          "s": ("name", "cat", "id", "pid", "tid", "ts"), "f": ("name", "cat", "id", "pid", "tid", "ts", "bp")}
for e in events:
    if e.get("ph") not in needed:
        wrong.append("kind of event %r" % e.get("ph"))
        continue
    wrong += ["no %s in %r" % (n, e) for n in needed[e["ph"]] if n not in e]
    if e["ph"] == "X":
        lanes[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
        if e["ts"] < 0 or e["dur"] < 0:
            wrong.append("negative time in %r" % e)
    elif e["ph"] in "sf":
        flows[e["id"]][e["ph"]] = e
    elif e["name"] == "process_name":
        names[e["pid"]] = e["args"]["name"]
for lane, spans in lanes.items():
    spans.sort()
    wrong += ["%r overlap in %r" % ((a, b), lane) for a, b in zip(spans, spans[1:]) if b[0] < a[1] - 1e-3]
    if lane[0] not in names:
        wrong.append("process %d has no name" % lane[0])
predicted = {(names[e["pid"]].split(",")[0], e["args"]["operation"]): e for e in events
             if e["ph"] == "X" and "predicted" in names[e["pid"]]}
for e in events:
    if e["ph"] != "X" or "measured" not in names[e["pid"]] or e["cat"] == "phase":
        continue
    twin = predicted.get((names[e["pid"]].split(",")[0], e["args"]["operation"]), {"args": {}})
    if any(twin.get(key) != e[key] for key in ("name", "cat", "tid")) or twin["args"]["step"] != e["args"]["step"]:
        wrong.append("%r is measured and not predicted" % e)
    elif abs(e["args"]["predicted_us"] - twin["dur"]) > 1e-3:
        wrong.append("%r is predicted otherwise" % e)
for id, ends in flows.items():
    if set(ends) != {"s", "f"} or ends["s"]["pid"] == ends["f"]["pid"]:
        wrong.append("flow %s has no two ends" % id)
        continue
    for end in ends.values():
        if not any(a <= end["ts"] <= b for a, b in lanes[end["pid"], end["tid"]]):
            wrong.append("an end of flow %s lies in no exchange" % id)
count = Counter(e["name"] if e["ph"] == "X" else e["ph"] for e in events)
print("\n".join(wrong[:5]) or " ".join("%s=%d" % x for x in sorted(count.items())))
print("; ".join(n for _, n in sorted(names.items())))
END
check() { # FILE
    python3 "$scratch/check.py" "$1" | tr '\n' '|'
}

"$fake" explain --world-size 2 --trace "$scratch/two.json" >"$scratch/out"
tap_is "two ranks" "$(check "$scratch/two.json")" "M=8 add=2 attend=4 attend backward=4 convert=6 exchange=4 f=4 fill=10 row dot=2 s=4|rank 0, predicted; rank 1, predicted|"
for comm in p2p all_gather a2a a2a+p2p; do
    "$fake" explain --world-size 4 --comm "$comm" --trace "$scratch/$comm.json" >"$scratch/out"
    tap_has "$comm" "$(check "$scratch/$comm.json")" "rank 0, predicted; rank 1, predicted; rank 2, predicted; rank 3, predicted|"
    tap_has "$comm: every kind of work" "$(check "$scratch/$comm.json")" " attend backward="
done
"$fake" explain --world-size 1 --trace "$scratch/one.json" >"$scratch/out"
tap_has "one rank" "$(check "$scratch/one.json")" "|rank 0, predicted|"
tap_lacks "one rank sends nothing" "$(check "$scratch/one.json")" " s="
"$fake" explain --world-size 64 --heads 64 --seqlen 4096 --trace "$scratch/many.json" >"$scratch/out"
tap_has "64 ranks" "$(check "$scratch/many.json")" "rank 63, predicted|"

"$fake" case --world-size 2 --trace "$scratch/case.json" >"$scratch/out"
tap_is "a case: exit status" "$?" 0
tap_has "a case: predicted and measured lanes" "$(check "$scratch/case.json")" \
    "rank 0, predicted; rank 0, measured; rank 1, predicted; rank 1, measured|"
tap_has "a case: its phases" "$(check "$scratch/case.json")" " backward=2 compare=2 "
# The fake client reports times of the first 13 operations of both ranks. Rank 1 begins 1 us after
# rank 0.
cat >"$scratch/measured.py" <<'END'
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
ops = [e for e in events if e["ph"] == "X" and "measured" in names[e["pid"]] and e["cat"] != "phase"]
print(len(ops), sorted({(e["pid"], e["ts"] - 52 * e["args"]["operation"], e["dur"]) for e in ops}))
END
tap_is "a case: its operations" "$(python3 "$scratch/measured.py" "$scratch/case.json")" "26 [(1, 0.0, 50.0), (3, 1.0, 50.0)]"
"$fake" case --implementation torch --trace "$scratch/guest.json" >"$scratch/out"
tap_is "a guest: phases without operations" "$? $(python3 "$scratch/measured.py" "$scratch/guest.json")" "0 0 []"
"$fake" case --repeat 2 --json --operation-times true >"$scratch/out"
tap_is "times in JSON" "$(head -1 "$scratch/out" | python3 -c 'import json, sys
t = [r["operation_times"] for r in json.load(sys.stdin)["ranks"]]
print(t[1]["begin_ns"] - t[0]["begin_ns"], t[0]["start_ns"][1], t[0]["end_ns"][1], len(t[1]["end_ns"]))')" "1000 52000 102000 13"

"$fake" bench --warmup 0 --repeat 2 --trace "$scratch/bench.json" >"$scratch/out"
tap_is "a bench" "$? $(check "$scratch/bench.json" | grep -c "rank 1, measured")" "0 1"
tap_has "a bench: its operations" "$(python3 "$scratch/measured.py" "$scratch/bench.json")" "26 ["
"$fake" bench --seqlen 1k,2k --trace "$scratch/bench.json" >"$scratch/out" 2>"$scratch/err"
tap_is "a bench of several cases is refused" "$? $(cat "$scratch/err")" \
    "64 cpattn-submit: --trace takes one case, and these options stand for 2"
"$fake" case --model fail1 --trace "$scratch/fail.json" >"$scratch/out"
tap_is "a fail has a trace" "$? $(check "$scratch/fail.json" | grep -c measured)" "1 1"
"$fake" case --trace "$scratch/none/x" >"$scratch/out" 2>"$scratch/err"
tap_is "a file that cannot be written, before the case runs" "$? $(cat "$scratch/out" "$scratch/err")" \
    "64 cpattn-submit: $scratch/none/x cannot be written: No such file or directory"
"$fake" bench --trace "$scratch/none/x" >"$scratch/out" 2>"$scratch/err"
tap_is "the same of a bench" "$? $(cat "$scratch/out" "$scratch/err")" \
    "64 cpattn-submit: $scratch/none/x cannot be written: No such file or directory"

# ---- pictures of many ranks ----

"$fake" explain --world-size 64 --heads 64 --seqlen 4096 --svg - >"$scratch/64.svg"
tap_is "svg: equal ranks share a row" "$(grep -c '>64 ranks<' "$scratch/64.svg") $(grep -c '>ranks 0-63<' "$scratch/64.svg")" "1 1"
tap_is "svg: size with 64 ranks" "$(($(wc -c <"$scratch/64.svg") <= 1000000))" 1
tap_is "svg: nothing else on standard output" "$(head -c 4 "$scratch/64.svg")" "<svg"
tap_has "svg: waiting times" "$(cat "$scratch/64.svg")" "which ends last, loses"
"$fake" explain --world-size 16 --heads 16 --seqlen 64k --window-left 3000 --sharding contiguous --svg "$scratch/16.svg" >/dev/null
tap_is "svg: ranks at the ends of a window have rows of their own" "$(grep -o '>rank[s 0-9-]*<' "$scratch/16.svg" | sort -u | tr '\n' ' ')" \
    ">rank 0< >rank 15< >ranks 1-14< "
"$fake" explain --world-size 8 --heads 8 --svg "$scratch/8.svg" >/dev/null
tap_is "svg: few ranks have a row each" "$(grep -o '>rank [0-7]<' "$scratch/8.svg" | sort -u | wc -l)" 8
# ---- the critical path ----

# Prints the sum of the widths of the operations on the critical path, and 1 if they are on several
# rows. The sample in the legend is left out. The operations follow one another without a gap, so
# the sum is the width of the axis.
framed() { # SVG
    sed -n 's/.*class="critical" d="M\([0-9.]*\) \([0-9.]*\)h\([0-9.]*\)v30h.*/\1 \2 \3/p' "$1" |
        awk '{ sum += $3; rows[$2] = 1 } END { n = 0; for (r in rows) n++; printf "%.0f %d", sum, (n > 1) }'
}
tap_is "svg: the critical path is as long as the axis" "$(framed "$scratch/8.svg")" "1456 1"
"$fake" explain --world-size 3 --seqlen 1001 --mask causal --sharding contiguous --svg "$scratch/3.svg" >/dev/null
tap_is "svg: the critical path includes waits for other ranks" "$(framed "$scratch/3.svg")" "1456 1"
tap_has "svg: messages have their bytes" "$(cat "$scratch/3.svg")" " from rank 0 to rank 1, exchange "
tap_done

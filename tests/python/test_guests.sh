#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Guests of the daemon: attention in numpy is judged; a fault of a guest gets a message, and the
# next case runs. Prints TAP; skipped without numpy.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
# shellcheck source=tests/support/python.sh
. "$top_srcdir/tests/support/python.sh"
# shellcheck source=tests/support/daemon.sh
. "$top_srcdir/tests/support/daemon.sh"
# shellcheck source=tests/python/guest_faults.sh
. "$top_srcdir/tests/python/guest_faults.sh"
python_needs 'import numpy' numpy
python_libraries guest

cat >"$scratch/settings.yaml" <<YAML
guests:
  numpy:
    command: [python3, "$top/examples/guests/numpy_attention.py"]
    world-sizes: [1]
    supports: bshd, mask none or causal
  faults: {command: [python3, "$top/tests/python/guest_faults.py"], world-sizes: "1-2"}
  torch_faults: {command: [python3, "$top/tests/python/guest_faults.py", torch], world-sizes: "1-2"}
  dead: {command: [python3, -c, "import sys; sys.exit('no module named kernel')"]}
  shot:
    command: [sh, -c, "echo first line >&2; echo second >&2; echo third >&2; echo fourth >&2; kill -KILL \$\$"]
  brief: {command: "true"}
  stranger: {command: "sleep 600", start-timeout: 1s}
  slow: {command: [sh, -c, 'sleep 3; exec python3 "\$0"', "$top/tests/python/guest_faults.py"]}
YAML
daemon_start --config "$scratch/settings.yaml" --backend cpu --devices 2 --log-level warning \
    --guest again="python3 '$top/examples/guests/numpy_attention.py'"

# ---- the list of guests ----

described=$("$submit" describe)
tap_has "describe lists a guest" "$described" "guest          numpy: 1 rank; bshd, mask none or causal"
tap_has "with its numbers of ranks" "$described" "guest          faults: 1-2 ranks"
tap_has "and those of the command line" "$described" "guest          again: any number of ranks"
tap_has "in JSON, too" "$("$submit" describe --json)" '{"name":"faults","world_sizes":[1,2],"supports":""}'
run --implementation numby
tap_has "an unknown name is refused with those that there are" "$status $out" \
    "implementation is 'numby'; accepted here is cpattn, numpy, faults, torch_faults, dead, shot, brief, stranger, slow or again"
run --implementation numpy
tap_has "so is another number of ranks" "$status $out" \
    "world_size is 2 with implementation numpy; accepted is 1 there"

# ---- a right guest ----

numpy="--implementation numpy --world-size 1 --seqlen 70 --heads 4"
for options in "" "--dtype fp16 --mask none" "--dtype fp32 --kv-heads 2" "--training false" \
    "--seqlen-kv 50 --mask none --head-dim-v 64 --batch 3" "--bias 1hss" "--bias b11s --mask none --kv-heads 2" \
    "--bias 111s --dtype fp16" "--bias bhss --training false"; do
    # shellcheck disable=SC2086
    run $numpy $options
    tap_is "numpy passes: $options" "$status" 0
done
tap_has "its answer names it" "$out" "by numpy"
tap_has "lse is judged where it is delivered" "$out" "lse "
# shellcheck disable=SC2086
run $numpy --scale 0.05 --repeat 2
tap_is "another scale, twice" "$status" 0
# shellcheck disable=SC2086
run $numpy --window-left 5 --mask none
tap_has "an unsupported case has the reason of the guest" "$out" \
    "UNIMPLEMENTED: rank 0 of 1: takes no windows, sinks or largest logits"
tap_has "status names the pools of guests" "$("$submit" status)" "numpy "
run --implementation again --world-size 1 --seqlen 33
tap_is "a guest of the command line" "$status" 0
run --implementation again --world-size 2 --seqlen 70 --heads 4 --mask none
tap_has "without the keys of other ranks: the diagnosis numbers no step of its ring" \
    "$status $(printf '%s\n' "$out" | grep '^diagnosis:' | tr '\n' ' ')" "(rank 1, for rows of rank 0) are missing from the"

# ---- wrong ones ----

faults_of faults
fault "right" --world-size 1
tap_is "right: it passes" "$code" 0
tap_lacks "right: nothing is said of lse, which it leaves out" "$told" "lse "

started=$(pools_started)
# The second run of "changes its directory" asserts that the directory was set back after the first.
faults_harmless forks prints "changes its directory" "changes its directory" "replaces signals" leaks "replaces stderr" \
    "leaves a process behind"
faults_in_results float64 uint16
fault unsupported --world-size 1
tap_has "unsupported" "$told" "UNIMPLEMENTED: rank 0 of 1: only sees nothing"
tap_is "all cases ran in one pool" "$(pools_started)" "$started"

faults_of_ranks
fault "lse of one" --world-size 2
tap_has "lse of one" "$told" "rank 1 of 2: delivers no lse, which other ranks do"
fault "closes descriptors" --world-size 1
tap_has "closes descriptors" "$code $told" "rank 0 of 1"

# The time limit of the first case passes while the pool starts; its message says so. The next case
# gets its own message.
faults_of slow
# shellcheck disable=SC2086
run $faults --world-size 1 --timeout 1s
tap_has "too slow to begin" "$out" "passed while the pool of 1 rank was being started"
tap_has "too slow to begin: the rank" "$out" " still starting "
# shellcheck disable=SC2086
run $faults --world-size 1 --model exits
tap_has "too slow to begin: the next case" "$out" "of guest slow exited with 7 in forward, step 0"

# ---- in PyTorch ----

if python3 -c 'import torch.distributed as d; assert d.is_gloo_available()' 2>/dev/null; then
    faults_of torch_faults
    fault right --world-size 2
    tap_is "PyTorch: right: it passes" "$code" 0
    fault NaN --world-size 1
    tap_has "PyTorch: NaN" "$code $told" "320 NaN or infinite"
    fault "wrong dtype" --world-size 1
    tap_has "PyTorch: wrong dtype" "$told" "dq has elements of torch.float64, not torch.bfloat16"
    fault "wrong device" --world-size 1
    tap_has "PyTorch: wrong device" "$told" "UNKNOWN: rank 0 of 1: dq is on meta, not on cpu"
    fault "wrong shape" --world-size 1
    tap_has "PyTorch: wrong shape" "$told" "dq has the shape (2, 39, 8, 32), not (2, 40, 8, 32)"
    fault "raises alone" --world-size 2
    tap_has "PyTorch: raises alone" "$told" "UNKNOWN: rank 1 of 2: ValueError: the ring is broken"
    fault "raises while others exchange" --world-size 2
    tap_has "PyTorch: raises while others exchange: the cause" "$told" \
        "rank 1 of 2 failed in forward, step 0: ValueError: the ring is broken"
    tap_has "PyTorch: raises while others exchange: the others" "$told" "rank 0 was still in its function then"
else
    tap_skip "faults in PyTorch" "python3 has no PyTorch with gloo"
fi

# ---- programs that are not guests ----

run --implementation dead --world-size 1
tap_has "one that ends is named with its command and how it ended" "$out" "the pool of 1 rank cannot be started: \
rank 0 of 1 of guest dead (python3 -c import sys; sys.exit('no module named kernel')) exited with 1 before it was \
ready; it wrote: no module named kernel"
run --implementation shot --world-size 2
tap_has "so is one that a signal ends" "$out" "of 2 of guest shot (sh -c echo first line >&2; echo second >&2; echo third ...) \
was killed by signal 9 (SIGKILL) before it was ready; it wrote: second | third | fourth"
tap_has "the status of the daemon says so, too" "$("$submit" status)" "of guest shot (sh -c"
run --implementation brief --world-size 1
tap_has "a program that returns gets a hint" "$out" "rank 0 of 1 of guest brief (true) exited with 0 before it \
was ready; a guest calls cpattn.guest.serve() or cpattn_guest_main(), which do not return"
run --implementation stranger --world-size 1
tap_has "a program that does not begin is ended" "$out" "cannot be started: rank 0 of 1 of guest stranger (sleep 600) \
was not ready in time (start-timeout)"
tap_has "a guest without a daemon ends" \
    "$(python3 "$top/tests/python/guest_faults.py" 2>&1)" "this is a guest of cpattnd, which has to start it"
tap_has "a missing program is reported at the start" \
    "$("$top_builddir/cpattnd" --socket "$scratch/other" --guest x=/nowhere/program 2>&1)" \
    "guest 'x': cannot execute /nowhere/program"
tap_has "an invalid name is reported at the start" \
    "$("$top_builddir/cpattnd" --socket "$scratch/other" --guest "a b=true" 2>&1)" "expected NAME=COMMAND"
run --implementation stranger --world-size 2 --timeout 900ms
tap_is "no rank is accused while several start" "$(printf '%s' "$out" | grep -c 'still starting') $(
    printf '%s' "$out" | grep -c '<- cause')" "2 0"
daemon_stop

# ---- smaller cases ----

daemon_start --config "$scratch/settings.yaml" --backend cpu --devices 2 --log-level warning
faults_of faults
# shellcheck disable=SC2086
run $faults --model "wrong dtype" --world-size 2 --minimize
smaller=${out##*smaller case}
tap_has "--minimize: the smallest has the same message" "$smaller" "dq has elements of float64, not uint16"
tap_has "--minimize: fewer ranks" "$smaller" "--world-size 1"
# shellcheck disable=SC2086
run $faults --model "ends the daemon" --world-size 2 --minimize
tap_has "--minimize: the search ends with the daemon" "$out" "the daemon does not answer any more: 1 smaller case tried; \
none fails as this one"
daemon= # the guest has killed it
tap_done

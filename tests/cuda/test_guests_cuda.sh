#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Guests of a daemon with GPUs: PyTorch's attention and a ring are judged on the device, mistakes of a guest are
# answered with a message, and the next case runs. Prints TAP; skipped without a GPU or without a PyTorch for it. One
# GPU suffices: two ranks share it.
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
skip() {
    echo "1..0 # SKIP $1"
    exit 0
}
gpus=$(python3 -c 'import torch; print(torch.cuda.device_count())' 2>/dev/null) || skip "python3 has no PyTorch"
[ "$gpus" -gt 0 ] || skip "PyTorch finds no GPU"
[ -e "$top_builddir/guest/.libs/libcpattn-guest-cuda.so.0" ] || skip "guests are built without CUDA"
python_libraries guest

cat >"$scratch/settings.yaml" <<YAML
guests:
  ring: {command: [python3, "$top/examples/guests/torch_ring.py"]}
  sdpa: {command: [python3, -m, cpattn.guests.torch_sdpa], world-sizes: [1]}
  cp: {command: [python3, -m, cpattn.guests.torch_context_parallel]}
  faults: {command: [python3, "$top/tests/python/guest_faults.py"], world-sizes: "1-2"}
  numpy: {command: [python3, "$top/examples/guests/numpy_attention.py"], world-sizes: [1]}
YAML
daemon_start --config "$scratch/settings.yaml" --backend cuda --ranks-per-gpu 2 --log-level warning

passes() { # NAME OPTIONS...
    name=$1
    shift
    run "$@"
    tap_is "$name: $*" "$status$([ "$status" = 0 ] || printf '\n%s' "$out")" 0
}

# Each guest takes seconds to begin: where one cannot, the others are not tried.
begins() { # IMPLEMENTATION WORLD-SIZE
    run --implementation "$1" --world-size "$2" --seqlen 64 --heads 2
    [ "$status" -ne 78 ] && return
    printf '%s\n' "$out" | sed 's/^/# /'
    echo "Bail out! the guest $1 does not begin on $2 ranks"
    exit 99
}
begins ring 1
begins ring 2

# ---- right guests ----

passes "ring" --implementation ring --world-size 1 --seqlen 300 --heads 4 --mask causal
tap_has "its answer names it" "$out" "by ring"
tap_has "lse is judged where it is delivered" "$out" "lse "
passes "ring" --implementation ring --world-size 1 --seqlen 300 --heads 4 --repeat 3
passes "ring" --implementation ring --world-size 1 --seqlen 256 --heads 4 --verify off
passes "sdpa" --implementation sdpa --world-size 1 --seqlen 512 --heads 8 --kv-heads 2 --mask causal
tap_lacks "nothing is said of lse, which it leaves out" "$out" "lse "
passes "sdpa" --implementation sdpa --world-size 1 --seqlen 500 --format sbhd --dtype fp16 --training false
run --implementation sdpa --world-size 1 --softcap 5
tap_has "what it does not take is refused in its words" "$out" "UNIMPLEMENTED: rank 0 of 1: has no sinks, softcap"
run --implementation numpy --world-size 1
tap_has "numpy has no GPUs" "$out" "numpy has no tensors on GPUs; the daemon has GPUs"
ring="--implementation ring --world-size 2 --batch 2 --heads 8"
for options in "--seqlen 301 --mask causal" "--seqlen 256 --dtype fp16 --format sbhd --kv-heads 2 --softmax learnable" \
    "--seqlen 200 --dtype fp32 --mask none --window-left 30"; do
    # shellcheck disable=SC2086
    passes "ring" $ring $options
done
for comm in p2p all_gather; do
    passes "context_parallel" --implementation cp --world-size 2 --comm $comm --batch 2 --heads 8 --seqlen 512 --mask causal
done

# ---- wrong ones ----

faults_of faults
fault "right" --world-size 1
tap_is "right: it passes" "$code" 0
started=$(pools_started)
faults_harmless forks prints "changes its directory" "changes its directory" "replaces signals" leaks "replaces stderr" \
    "another stream" "leaves a process behind"
faults_in_results torch.float64 torch.bfloat16
fault "wrong device" --world-size 1
tap_has "wrong device" "$told" "UNKNOWN: rank 0 of 1: dq is on cpu, not on cuda:"
fault "takes all memory" --world-size 1
tap_has "takes all memory" "$told" "OutOfMemoryError"
tap_is "all of this was one pool" "$(pools_started)" "$started"

faults_of_ranks
fault "breaks the device" --world-size 1
tap_has "breaks the device" "$told" "rank 0 of 1 failed in forward, step 0: "
tap_has "breaks the device: what" "$told" "device-side assert"
fault "keeps the device busy" --world-size 1 --timeout 4s
tap_has "keeps the device busy" "$told" "passed while rank 0 of 1 was in forward, step 0"
fault "raises while others exchange" --world-size 2
tap_has "raises while others exchange: the cause" "$told" "rank 1 of 2 failed in forward, step 0: ValueError"
fault "lse of one" --world-size 2
tap_has "lse of one" "$told" "rank 1 of 2: delivers no lse, which other ranks do"
daemon_stop
tap_done

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Guests with rings over PyTorch's process group: the guests of the package and right variants pass,
# wrong variants fail with a diagnosis. Prints TAP; skipped without PyTorch.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
# shellcheck source=tests/support/python.sh
. "$top_srcdir/tests/support/python.sh"
# shellcheck source=tests/support/daemon.sh
. "$top_srcdir/tests/support/daemon.sh"
python_needs 'import torch.distributed as d; assert d.is_gloo_available()' 'PyTorch with gloo'
python_libraries guest
daemon_start --backend cpu --devices 4 --log-level warning \
    --guest ring="python3 '$top/examples/guests/torch_ring.py'" \
    --guest packed="python3 '$top/tests/python/guest_packed.py'" \
    --guest rings="python3 '$top/tests/python/guest_rings.py'" \
    --guest sdpa="python3 -m cpattn.guests.torch_sdpa" \
    --guest efficient="python3 -m cpattn.guests.torch_sdpa --backend efficient" \
    --guest context_parallel="python3 -m cpattn.guests.torch_context_parallel"

run() { # OPTIONS...
    out=$("$submit" case --timeout 300s --batch 2 --heads 4 --head-dim 32 --seqlen 96 "$@" 2>&1)
    status=$?
}

# ---- the guests of the package ----

for options in "--world-size 1" "--world-size 3" "--world-size 3 --dtype fp32 --mask none --kv-heads 2" \
    "--world-size 3 --format sbhd --sharding contiguous --dtype fp16 --window-left 11 --seqlen 97" \
    "--world-size 3 --softmax learnable" "--world-size 3 --softmax off_by_one --seqlen-kv 61 --mask causal_bottom_right"; do
    # shellcheck disable=SC2086
    run --implementation ring $options
    tap_is "the ring to copy: $options" "$status" 0
done
for options in "" "--format sbhd --dtype fp16 --mask none" "--dtype fp32 --kv-heads 2 --scale 0.2"; do
    # shellcheck disable=SC2086
    run --implementation sdpa --world-size 1 $options
    tap_is "scaled_dot_product_attention: $options" "$status" 0
done

# Every shape of bias. comm says how the daemon's own ranks share tokens and heads; a guest may
# ignore it.
for bias in 111s 11ss 1h1s 1hss b11s b1ss bh1s bhss; do
    run --implementation ring --world-size 3 --seqlen 97 --bias $bias --kv-heads 2
    tap_is "the ring to copy: a bias $bias" "$status" 0
    run --implementation ring --world-size 3 --bias $bias --comm a2a --format sbhd --dtype fp16 --sharding contiguous
    tap_is "the ring to copy: a bias $bias, sbhd, comm a2a" "$status" 0
    run --implementation packed --world-size 3 --format thd --lengths-q 96,31 --lengths-kv 96,31 --pad-multiple 6 \
        --bias $bias --comm a2a
    tap_is "packed sequences: a bias $bias" "$status" 0
done
run --implementation sdpa --world-size 1 --bias bhss
tap_is "scaled_dot_product_attention: a bias" "$status" 0
run --implementation packed --world-size 3 --format thd --bias bhss --model "bias ignored"
tap_has "an ignored bias fails" "$status $out" "1 fail"
run --implementation packed --world-size 3 --format thd --bias 1h1s --model "bias gradient of one rank"
tap_has "a gradient of one rank fails" "$status $out" "dbias of rank 0"

run --implementation efficient --world-size 1
tap_has "a backend that PyTorch has no kernel of" "$out" "UNIMPLEMENTED: rank 0 of 1: PyTorch has no kernel for it"
run --implementation context_parallel --world-size 2
tap_has "context_parallel reports its requirements" "$out" "UNIMPLEMENTED: rank 0 of 2: PyTorch's context_parallel needs GPUs"

# ---- right guests ----

right() { # MODEL OPTIONS...
    model=$1
    shift
    run --implementation rings --model "$model" --world-size 3 "$@"
    tap_is "right: $model $*" "$status" 0
    [ "$status" = 0 ] || printf '%s\n' "$out" | head -n 8 | sed 's/^/# /'
}
right ""
right "" --sharding contiguous --format sbhd
right reverse
right "no lse"
right backwards
right striped
right "striped + reverse" --window-left 17
right uneven
right "uneven + tiles" --softmax learnable
right "uneven + reverse + running maximum"
right tiles --dtype fp16
right "running maximum" --softmax off_by_one
right "running maximum + striped" --dtype fp32
right "whole rows"
right "whole rows + whole gradients" --kv-heads 2
right "whole gradients + striped"
right "16-bit parts"
right "16-bit merges"
right "16-bit gradients"
right "16-bit parts + 16-bit gradients + rounded out"
right "rounded out" --mask none

# ---- wrong ones ----

wrong() { # MODEL DIAGNOSIS OPTIONS...
    model=$1
    words=$2
    shift 2
    run --implementation rings --model "$model" --world-size 3 "$@"
    tap_is "wrong: $model: it is refused" "$status" 1
    tap_has "wrong: $model: the diagnosis" "$(printf '%s\n' "$out" | grep '^diagnosis:')" "$words"
}
wrong "stale keys" "the keys of all other ranks are those of rank 1 itself"
wrong "one hop short" "has the contributions to the keys of rank 1 at the same places"
wrong "merged without lse" "partial results are merged with fixed weights"
wrong "window ignored" "the window is ignored" --window-left 17
wrong "wrong scale" "the softmax scale is 1.41"
wrong "tokens swapped" "the two chunks of keys of every other rank are exchanged"
wrong "mask one off" "the mask admits one key too many"
wrong "delta left out" "delta = rowsum(dO * O) is missing"
wrong "lse in base 2" "lse is 1.4"
wrong "sink of each rank" "the sink is in the denominator 3 times" --softmax learnable
wrong "sink gradient of all ranks" "dsink is 3 times what it should be (the world size" --softmax learnable
wrong "gradients of all ranks" "times what it should be (the world size: it is added up once per rank)"
wrong "gradients unscaled" "the scale of the softmax is missing"
wrong "last step left out" "(rank 1, for rows of rank "
wrong "sink left out" "the 1 of the off-by-one softmax is left out of the denominator" --softmax off_by_one
wrong "window one off" "the window is one key narrower on the left" --window-left 17
daemon_stop
tap_done

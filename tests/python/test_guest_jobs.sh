#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Guests for collectives and linear layers over PyTorch's process group: the example passes, wrong
# ones are diagnosed. Prints TAP; skipped without PyTorch.
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

cat >"$scratch/wrong.py" <<'PY'
import torch.distributed as dist

import cpattn.guest


def collective(job, t, group):
    if job.count == 13:
        raise ValueError("13 elements")
    if job.count == 14:
        return {"receive": t.receive}
    mine = t.send if t.rank != 1 else t.send * 0
    total = mine.clone()
    dist.all_reduce(total, group=group)
    t.receive.copy_(total)


def linear(job, t, group):
    y = t.x @ t.w.T + t.b
    dist.all_reduce(y, group=group)
    t.y.copy_(y)


cpattn.guest.serve(collective=collective, linear=linear)
PY
daemon_start --backend cpu --devices 4 --log-level warning \
    --guest parallel="python3 '$top/examples/guests/torch_parallel.py'" \
    --guest wrong="python3 '$scratch/wrong.py'"

run() { # GUEST OPTIONS...
    name=$1
    shift
    out=$("$submit" "$@" --implementation "$name" --timeout 300s 2>&1)
    status=$?
}
right() { # OPTIONS...
    run parallel "$@"
    tap_is "right: $*" "$status" 0
    [ "$status" = 0 ] || printf '%s\n' "$out" | head -n 8 | sed 's/^/# /'
}

right collective all_reduce --world-size 3 --count 1000 --repeat 2
right collective all_reduce --world-size 3 --count 1000 --dtype int64 --reduction avg
right collective all_reduce --world-size 2 --count 100 --dtype uint8 --reduction max --in-place true
right collective reduce_scatter --world-size 3 --count 77
right collective all_gather --world-size 3 --count 77 --dtype fp16 --offset 1
right collective broadcast --world-size 3 --count 77 --root 2
layer="--world-size 3 --tokens 31 --in-features 40 --out-features 28"
# shellcheck disable=SC2086
for options in "column" "row" "mlp --hidden 50" "mlp --hidden 50 --activation swiglu --sequence-parallel true" \
    "column --sequence-parallel true" "row --sequence-parallel true --bias false" "mlp --hidden 50 --training false" \
    "mlp --hidden 50 --activation gelu_tanh --dtype bf16"; do
    case $options in *dtype*) ;; *) options="$options --dtype fp32" ;; esac
    right linear $options $layer
done
# Some ranks have no features or no tokens.
right linear row --world-size 3 --tokens 31 --in-features 1 --out-features 28 --dtype fp32
right linear column --world-size 3 --tokens 2 --in-features 5 --out-features 1 --sequence-parallel true --dtype fp32
right linear mlp --world-size 3 --tokens 2 --in-features 5 --hidden 1 --out-features 4 --sequence-parallel true --dtype fp32

run parallel collective send_receive --world-size 2
tap_has "what the guest does not support" "$out" "UNIMPLEMENTED: rank 0 of 2: does no send_receive"
run parallel case --world-size 2
tap_has "it has no attention" "$out" "the guest has no function for jobs 'attention'"
run wrong collective all_reduce --world-size 3 --count 1000
tap_has "a rank missing from a sum: named" "$status $out" "diagnosis: rank 1 is missing from the sum"
run wrong collective all_reduce --world-size 2 --count 13
tap_has "what a function raises is told" "$out" "ValueError: 13 elements [wrong.py:"
run wrong collective all_reduce --world-size 2 --count 14
tap_has "and so is what it returns" "$out" "collective returned something; it writes results to its tensors"
run wrong linear row --world-size 3 --dtype fp32 --training false --tokens 24 --in-features 40 --out-features 20
tap_has "a bias of every rank: named" "$status $out" "diagnosis: y has the bias 3 times: every rank adds it"

daemon_stop
tap_done

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Guests for collectives and linear layers: right results pass, wrong results fail with a diagnosis
# of the mistake, and the answer to a failure has the guest's message. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
# shellcheck source=tests/support/daemon.sh
. "$top_srcdir/tests/support/daemon.sh"
guest=$(cd "$top_builddir" && pwd)/tests/kinds/guest_kinds

set --
for mistake in missing twice undivided factor swapped outside send unequal nothing fails unlike compares; do
    set -- "$@" --guest "$mistake=$guest $mistake"
done
daemon_start --backend cpu --devices 4 --log-level warning \
    --guest "right=$guest none $scratch/calls" --guest "bias=$guest 'bias of all'" --guest "attention=$guest 'attention alone'" "$@"

run() { # GUEST OPTIONS...
    name=$1
    shift
    out=$("$submit" "$@" --implementation "$name" --timeout 60s 2>&1)
    status=$?
}
right() { # OPTIONS...
    run right "$@"
    tap_is "right: $*" "$status" 0
    [ "$status" = 0 ] || printf '%s\n' "$out" | head -n 8 | sed 's/^/# /'
}
# The name of a guest is in the output: words must have more than that.
wrong() { # GUEST WORDS OPTIONS...: the verdict is a failure, and the output has the words
    words=$2
    mistake=$1
    shift 2
    run "$mistake" "$@"
    tap_is "wrong: $mistake: $*: it is refused" "$status" 1
    tap_has "wrong: $mistake: $*: and named" "$out" "$words"
}

# ---- collectives ----

reduce="collective all_reduce --world-size 3 --count 1000"
# shellcheck disable=SC2086
{
    right $reduce --repeat 2
    tap_has "the answer names the guest" "$out" "implementation=right"
    right $reduce --dtype int32 --in-place true
    right $reduce --reduction avg --offset 3 --iterations 3
    right collective reduce_scatter --world-size 4 --count 33
    right collective all_gather --world-size 4 --count 33 --in-place true
    right collective all_to_allv --world-size 4 --count 33
    right collective all_to_all --world-size 1 --count 0
    right collective broadcast --world-size 3 --root 1 --count 50
    for ranks in 2 3 8; do
        right collective all_reduce --world-size $ranks --reduction min --specials true --count 500
        right collective reduce_scatter --world-size $ranks --specials true --count 500
        right collective all_gather --world-size $ranks --specials true --count 500
    done
    right $reduce --dtype int32 --reduction min
    wrong compares "ELEMENT" $reduce --reduction min --specials true
    wrong missing "rank 1 is missing" $reduce
    wrong twice "diagnosis: rank 1 is in the sum twice" $reduce
    wrong undivided "diagnosis: the sum is not divided by the number of ranks" $reduce --reduction avg
    wrong factor "diagnosis: the sum is 3 times too large" $reduce
    wrong swapped "diagnosis: the blocks of ranks 0 and 1 are swapped" collective all_gather --world-size 3 --count 50
    wrong swapped "diagnosis: the blocks of ranks 0 and 1 are swapped" collective all_to_all --world-size 2 --count 50
    wrong outside "bytes around the tensors have changed" $reduce
    tap_has "and which ones" "$out" "bytes outside of the tensors of rank 1 have changed: 1 byte behind receive"
    wrong send "1 of 1000 elements of the input have changed" $reduce
    wrong nothing "diagnosis: the memory was never written" $reduce
    run unequal $reduce --repeat 2
    tap_is "sums in a varying order fail" "$status" 1
    tap_has "sums in a varying order are told" "$out" ": the results differ between runs"

    run right $reduce --dtype bf16
    tap_has "an unsupported job has the reason of the guest" "$out" \
        "UNIMPLEMENTED: rank 0 of 3: knows fp32 and int32 alone"
    run fails $reduce
    tap_has "a rank that fails is named" "$out" "rank 1 of 3 failed in forward, step 0: the ring is broken"
    tap_is "its siblings are listed" "$(printf '%s\n' "$out" | grep -c 'aborted sibling')" 2
    run attention $reduce
    tap_has "a guest with only attention refuses the job" "$out" "the guest has no function for jobs 'collective'"
    run right case --world-size 2 --seqlen 32
    tap_has "a guest without attention refuses a case" "$out" "the guest has no function for jobs 'attention'"
    run right $reduce --explore-seed 5
    tap_has "explore_seed is refused with a guest" "$out" "explore_seed is 5 with implementation right"
    run nobody $reduce
    tap_has "an unknown name is refused" "$out" "implementation is 'nobody'; accepted here is cpattn, right"
}

# The guest's function runs once on each rank, with the right number.
calls() { # OPTIONS...
    : >"$scratch/calls"
    run right "$@"
    tap_is "counted: $*" "$status" 0
    tap_is "each rank is called once: $*" "$(sort "$scratch/calls" | tr '\n' ' ')" "0 1 2 "
}
calls collective all_reduce --world-size 3 --count 1000
calls linear row --world-size 3 --dtype fp32 --tokens 24 --in-features 40 --out-features 20
tap_is "a repeat calls each function once more" "$(run right collective all_reduce --world-size 3 --count 1000 --repeat 2
    sort "$scratch/calls" | uniq -c | tr -s ' \n' ' ')" " 3 0 3 1 3 2 "

# ---- linear layers ----

layer="--world-size 3 --dtype fp32 --tokens 24 --in-features 40 --out-features 20"
# shellcheck disable=SC2086
{
    right linear column $layer --repeat 2
    right linear row $layer --repeat 2
    right linear row $layer --training false --bias false
    right linear column --world-size 4 --dtype fp32 --tokens 5 --in-features 7 --out-features 3
    wrong missing "diagnosis: y lacks the part of rank 1 in the sum" linear row $layer
    wrong twice "diagnosis: dx counts the part of rank 1 twice" linear column $layer
    wrong factor "diagnosis: y is 3 times what it should be: the number of ranks" linear row $layer --bias false
    wrong factor "the sum multiplied by the number of ranks, before the bias" linear row $layer
    wrong bias "diagnosis: y has the bias 3 times: every rank adds it" linear row $layer
    wrong outside "bytes outside of the tensors of rank 2 have changed: 4 bytes behind y" linear row $layer
    wrong send "inputs of rank 0: 1 of 4 inputs have changed" linear column $layer
    tap_has "and which one, on which rank" "$out" "diagnosis: rank 2 has changed its input x"
    wrong unlike "1 of 2 results differ between ranks" linear row $layer
    tap_has "and which one, on which rank" "$out" \
        "y differs from that of rank 0; it explains 100 % of the error of same on rank 1"
    run right linear mlp $layer
    tap_has "a layer that the guest does not support" "$out" \
        "UNIMPLEMENTED: rank 0 of 3: knows single layers in fp32 without sequence parallelism"
}

daemon_stop

# ---- ranks that hang or end ----

daemon_start --backend cpu --devices 4 --log-level error --guest "waits=$guest waits" --guest "spins=$guest spins" \
    --guest "talks=$guest talks"
# shellcheck disable=SC2086
{
    run waits $reduce --timeout 1s
    tap_has "ranks that hang and tell nothing" "$out" \
        "in the function of guest waits; none of them wrote to stderr where it was; the pool"
    run spins $reduce --timeout 1s
    tap_has "a rank that computes while others wait" "$out" "; only rank 1 was computing (state R)"
    run talks $reduce
    tap_has "the last lines of stderr are whole" "$out" "it wrote: line 1"
}
daemon_stop
tap_done

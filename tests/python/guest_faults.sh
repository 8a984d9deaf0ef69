# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Faults of a guest (guest_faults.py) and the daemon's messages for them, on the CPU and on GPUs.
# Source this file after tap.sh and daemon.sh. `submit` is the cpattn-submit that talks to the
# daemon of the test.

run() { # OPTIONS...: sets out and status
    # shellcheck disable=SC2154
    out=$("$submit" case --timeout 120s "$@" 2>&1)
    status=$?
}

# No query sees a key: the right results are zeros.
faults_of() { # IMPLEMENTATION
    faults="--implementation $1 --batch 2 --heads 8 --head-dim 32 --seqlen-q 40 --seqlen-kv 0 --mask none"
}

# Runs a case of MODEL, then a right case. Sets told and code to those of the first.
fault() { # MODEL OPTIONS...
    model=$1
    shift
    # shellcheck disable=SC2086
    run $faults --model "$model" "$@"
    told=$out
    code=$status
    # shellcheck disable=SC2086
    run $faults "$@" --timeout 120s
    tap_is "$model: the next case passes" "$status$([ "$status" = 0 ] || printf '\n%s' "$out")" 0
}

pools_started() {
    "$submit" status --json | grep -o '"implementation":"faults"[^}]*"generation":[0-9]*' | grep -o '[0-9]*$' | tr '\n' ' '
}

# The counter of the daemon's status, or the sum of several.
counted() { # NAME...
    state=$("$submit" status --json)
    for name; do
        printf '%s' "$state" | grep -o "\"$name\":[0-9]*" | head -n 1
    done | awk -F : '{ sum += $2 } END { print sum }'
}

# These models do no harm: their case passes, and so does the next.
faults_harmless() { # MODEL...
    for harmless; do
        fault "$harmless" --world-size 1
        tap_is "$harmless: it passes" "$code$([ "$code" = 0 ] || printf '\n%s' "$told")" 0
    done
}

# Wrong results of attend(), and an exception. The rank survives them.
faults_in_results() { # WRONG-DTYPE RIGHT-DTYPE
    fault raises --world-size 1
    tap_has "raises: type, message and frames" "$told" "UNKNOWN: rank 0 of 1: ValueError: the ring is broken \
[guest_faults.py:"
    tap_has "raises: the last frame" "$told" "in deep]"
    tap_is "raises: the exit status" "$code" 66
    fault NaN --world-size 1
    tap_has "NaN: fails" "$code $told" "1 fail"
    tap_has "NaN: which rule" "$told" "320 NaN or infinite"
    fault "wrong dtype" --world-size 1
    tap_has "wrong dtype" "$told" "UNKNOWN: rank 0 of 1: dq has elements of $1, not $2"
    fault "wrong shape" --world-size 1
    tap_has "wrong shape" "$told" "dq has the shape (2, 39, 8, 32), not (2, 40, 8, 32)"
    fault "too few" --world-size 1
    tap_has "too few" "$told" "attend returned no dv"
    fault unknown --world-size 1
    tap_has "unknown" "$told" "attend returned 'dx'; the results of this case are out, lse, dq, dk, dv"
    fault "a tuple" --world-size 1
    tap_has "a tuple" "$told" "attend returned a tuple, not a dict of tensors by name"
    tap_is "each answer is counted once" "$(counted passed failed unverified errors)" "$(counted admitted)"
}

# Ranks that end, hang, or raise while others wait.
faults_of_ranks() {
    fault exits --world-size 1
    tap_has "exits" "$told" "ABORTED: rank 0 of 1 of guest faults exited with 7 in forward, step 0"
    fault "exits with a sentence" --world-size 1
    tap_has "exits with a sentence" "$told" "exited with 1 in forward, step 0; it wrote: the fabric is down"
    fault dies --world-size 2
    tap_has "dies" "$told" "rank 1 of 2 of guest faults was killed by signal 11 (SIGSEGV) in forward, step 0"
    tap_is "dies: nothing of earlier cases is told" "$(printf '%s' "$told" | grep -c 'the ring is')" 0
    fault hangs --world-size 2 --timeout 4s
    tap_has "hangs" "$told" "passed while rank 1 of 2 was in forward, step 0"
    tap_has "hangs: the line of Python" "$told" "guest_faults.py\", line "
    fault "one hangs, one waits" --world-size 2 --timeout 4s
    tap_has "one hangs, one waits: no rank is accused" "$told" "passed while several of 2 ranks were in the function of \
guest faults; their stderr tells where each was"
    tap_has "one hangs, one waits: where rank 0 was" "$told" " in wait_for_peer"
    tap_has "one hangs, one waits: where rank 1 was" "$told" " in oversleep"
    tap_is "one hangs, one waits: a stderr for each rank" "$(printf '%s' "$told" | grep -c '^ *stderr of rank')" 2
    fault "raises alone" --world-size 2
    tap_has "raises alone: who" "$told" "UNKNOWN: rank 1 of 2: ValueError: the ring is broken"
    fault "raises while others wait" --world-size 2
    tap_has "raises while others wait: the cause" "$told" "rank 1 of 2 failed in forward, step 0: ValueError"
    tap_has "raises while others wait: the others" "$told" "rank 0 was still in its function then"
}

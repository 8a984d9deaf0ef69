#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Attention kernels in shared objects. A right kernel passes with every schedule, a wrong one fails.
# Unsupported operations are refused or computed by the daemon's own kernels. A crash costs only its
# case. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
# shellcheck source=tests/support/daemon.sh
. "$top_srcdir/tests/support/daemon.sh"
peek=$top_builddir/tests/support/peek
objects=$top_builddir/tests/providers/.libs

# The daemon does not start with a provider that cannot be loaded.
refused() { # NAME FILE
    timeout 60 "$top_builddir/cpattnd" --socket "$CPATTN_SOCKET" --backend cpu --devices 2 \
        --provider "$1=$2" >"$scratch/out" 2>&1
    status=$?
    out=$(tail -n 1 "$scratch/out")
}
refused absent "$scratch/none.so"
tap_is "the daemon does not start with a missing object" "$status" 1
tap_has "missing object: its name" "$out" "cpattnd: the provider absent ($scratch/none.so) cannot be used: cannot open shared object file"
tap_has "missing object: the reason" "$out" "No such file or directory"
echo text >"$scratch/text"
refused stranger "$scratch/text"
tap_has "nor with a file that is not an object" "$status $out" "1 cpattnd: the provider stranger ($scratch/text) cannot be used: "
refused other "$top_builddir/client/.libs/libcpattn.so.0"
tap_has "nor with another library" "$out" "it does not export cpattn_provider()"
cp "$objects/toy_moods.so" "$scratch/poisonous.so"
: >"$scratch/poisonous.so.poisonous"
refused poison "$scratch/poisonous.so"
tap_has "nor with an object that crashes the process" "$out" "loading it ended the process by signal 6 (Aborted)"
printf 'providers: {absent: %s}\n' "$scratch/none.so" >"$scratch/settings.yaml"
timeout 60 "$top_builddir/cpattnd" --config "$scratch/settings.yaml" --socket "$CPATTN_SOCKET" --backend cpu 2>"$scratch/out"
tap_has "the same with the settings" "$? $(tail -n 1 "$scratch/out")" "1 cpattnd: the provider absent"

for mood in moods deadly gone; do cp "$objects/toy_moods.so" "$scratch/$mood.so"; done
: >"$scratch/moods.so.closed"
: >"$scratch/deadly.so.deadly"
cat >"$scratch/settings.yaml" <<SETTINGS
providers:
  toy: $objects/toy.so
  merging: $objects/toy_merges.so
SETTINGS
daemon_start --config "$scratch/settings.yaml" --backend cpu \
    --devices 2 --provider scale="$objects/toy_scale.so" --provider crashes="$objects/toy_crashes.so" \
    --provider fails="$objects/toy_fails.so" --provider causal="$objects/toy_causal.so" \
    --provider moods="$scratch/moods.so" --provider deadly="$scratch/deadly.so" \
    --provider gone="$scratch/gone.so"

run() {
    "$submit" "$@" >"$scratch/out" 2>&1
    status=$?
    out=$(cat "$scratch/out")
}
small="--heads 4 --kv-heads 2 --seqlen 40 --head-dim 16"
count() { # MEMBER of the first rank, in the last output of run()
    echo "$out" | "$peek" json "ranks.0.attention.$1"
}

run describe
tap_has "describe lists them" "$out" "provider       toy: /"
tap_has "describe lists those of options" "$out" "tests/providers/.libs/toy_causal.so, a toy"
tap_has "describe has the reason why one does not open" "$out" "moods.so could not be opened: the toy's box is closed"
tap_has "describe has the reason of a crash" "$out" "open() ended the process by signal 6 (Aborted)"
tap_has "the log has the reason" "$(cat "$scratch/log")" "provider name=moods file=\"$scratch/moods.so\" action=tried_again_by_cases trouble="
run describe --json
tap_is "JSON has the reason" "$(echo "$out" | "$peek" json providers.0.about)" "a toy"

# shellcheck disable=SC2086
for name in toy merging; do
    for comm in p2p all_gather a2a a2a+p2p; do
        run case $small --provider $name --world-size 4 --comm $comm
        tap_is "$name passes: $comm" "$status" 0
    done
    run case $small --provider $name --format thd --lengths-q 40,13 --window-left 5
    tap_is "$name passes: thd, a window" "$status" 0
    run case $small --provider $name --format sbhd --softcap 3 --softmax learnable
    tap_is "$name passes: sbhd, softcap, a sink" "$status" 0
    run case $small --provider $name --bias 1hss --max-logit true --sharding contiguous
    tap_is "$name passes: bias, largest logit" "$status" 0
    run case $small --provider $name --dtype fp32 --mask none --softmax off_by_one --explore-seed 7
    tap_is "$name passes: fp32, in another order" "$status" 0
    run case $small --heads 5 --kv-heads 5 --provider $name --world-size 3 --comm a2a --dtype fp16
    tap_is "$name passes: uneven heads" "$status" 0
done

# shellcheck disable=SC2086
run case $small --provider toy --json
tap_is "the answer counts its operations" "$(count provider_forward) $(count provider_backward)" "2 2"
tap_is "the answer counts our operations" "$(count own_forward) $(count own_backward)" "0 0"
# shellcheck disable=SC2086
run case $small --json
tap_is "without a provider all operations are ours" "$(count own_forward) $(count provider_forward)" "2 0"

# shellcheck disable=SC2086
run case $small --provider scale
tap_is "a wrong provider fails" "$status" 1
tap_has "wrong provider: the diagnosis" "$out" "diagnosis: the softmax scale is "

# shellcheck disable=SC2086
run case $small --provider causal
tap_is "an unsupported case is refused" "$status" 76
tap_has "unsupported case: the reason" "$out" "the toy knows causal rectangles only"
# shellcheck disable=SC2086
run case $small --provider causal --provider-fallback true
tap_is "fallback: our own kernels compute" "$status" 0
tap_has "fallback: the answer names it" "$out" "2 operations by causal, 6 by our own kernels: the toy knows causal rectangles only"

# shellcheck disable=SC2086
run case $small --provider crashes
tap_is "a crash ends its case" "$status" 74
tap_has "crash: the signal" "$out" "killed by signal 6"
# shellcheck disable=SC2086
run case $small --provider fails
tap_is "a failure ends its case" "$status" 77
tap_has "with its sentence" "$out" "the toy is broken"
# shellcheck disable=SC2086
run case $small --provider moods
tap_is "one that does not open is refused" "$status" 73
tap_has "with its sentence" "$out" "the toy's box is closed"
rm "$scratch/moods.so.closed"
# shellcheck disable=SC2086
run case $small --provider moods
tap_is "it opens after the repair" "$status" 0
rm "$scratch/gone.so"
# shellcheck disable=SC2086
run case $small --provider gone
tap_is "a removed object is refused" "$status" 73
tap_has "removed object: the file" "$out" "gone.so"
# shellcheck disable=SC2086
run case $small --provider nobody
tap_is "an unknown name is refused" "$status" 73
tap_has "unknown name: the known ones" "$out" "toy, merging, scale"
# shellcheck disable=SC2086
run case $small --provider toy
tap_is "the next case runs" "$status" 0

printf 'models:\n  m: {heads: 2, seqlen: 24, head_dim: 8}\naxes:\n  provider: [toy, merging]\n' >"$scratch/m.yaml"
run matrix "$scratch/m.yaml"
tap_is "a matrix has providers as an axis" "$status" 0
tap_done

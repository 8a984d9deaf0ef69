#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attend, dump and --dump-fails with a daemon with real ranks, and with one whose ranks compute wrong results. Prints
# TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
# shellcheck source=tests/support/daemon.sh
. "$top_srcdir/tests/support/daemon.sh"

run() {
    "$submit" "$@" >"$scratch/out" 2>"$scratch/err"
    status=$?
    out=$(cat "$scratch/out")
    err=$(cat "$scratch/err")
}

daemon_stop() {
    kill -TERM "$daemon"
    wait "$daemon"
    tap_is "the daemon drains" "$?" 0
    tap_is "no socket is left" "$(find "$scratch" -name 'cpattnd.sock*')" ""
    daemon=
}

small="--heads 4 --kv-heads 2 --head-dim 16 --seqlen 40"
daemon_start --backend cpu --devices 2

# shellcheck disable=SC2086
run dump $small --out "$scratch/all" --picture "$scratch/all.svg"
tap_is "a dump" "$status $err" "0 "
tap_has "has a picture" "$(head -c 100 "$scratch/all.svg")" "<svg xmlns="
tap_is "with all heads of four tensors in four chunks" "$(grep -c '<title>' "$scratch/all.svg")" 48
tap_is "where all is rounding" "$(grep -c '<title>' "$scratch/all.svg")" \
    "$(grep '<title>' "$scratch/all.svg" | grep -c 'fill="#e8f0e8"')"
tap_has "and a map" "$out" "head    1  .  .  .  ."
tap_has "the file says the case" "$(head -c 300 "$scratch/all")" "cpattn-submit case --heads 4 --kv-heads 2"
tap_is "and nothing is beside it" "$(find "$scratch" -name '*.part')" ""

run attend --in "$scratch/all" --out "$scratch/again" --compare "$scratch/all" --verify
tap_is "the same inputs pass" "$status $err" "0 "
tap_has "with a verdict" "$out" "pass  bf16 bshd p2p w2 b2 h4/2 s40 d16"
for tensor in out lse dq dk dv; do
    tap_has "with the same $tensor" "$(echo "$out" | grep "^$tensor .*the same")" "the same in all"
done
run attend --in "$scratch/all" --mask none --compare "$scratch/again"
tap_is "without --verify there is no verdict" "$status" 0
tap_has "and none is shown" "$out" "unverified"
tap_has "another mask differs" "$out" "differs in"
run attend --in "$scratch/all" --mask none --compare "$scratch/again" --verify
tap_is "by more than two right results do" "$status" 1
tap_has "which is said" "$out" "DIFFERS"
run attend --in "$scratch/all" --world-size 1 --compare "$scratch/again" --verify full
tap_is "another number of ranks agrees" "$status" 0
tap_has "within what two honest results may have" "$out" "times an honest kernel's error"

run attend --in "$scratch/again"
tap_is "without inputs" "$status" 67
tap_has "it says which are missing" "$err" 'there is no tensor "q"'
run attend --in "$scratch/all" --softmax learnable
tap_has "a sink is one of them" "$err" 'there is no tensor "sink"'
run attend --in "$scratch/all" --format thd
tap_has "the format counts" "$err" "in thd it has 3 dimensions (--format)"
run attend
tap_is "without a file" "$status $err" "64 cpattn-submit: --in is missing: the file with q, k and v"
run dump
tap_is "without a file to write" "$status $err" "64 cpattn-submit: --out is missing: the file to write"
head -c 2000 "$scratch/all" >"$scratch/short"
run attend --in "$scratch/short"
tap_is "a file that is cut" "$status" 67
tap_has "is told" "$err" "outside of the file"
# shellcheck disable=SC2086
run dump $small --out /nonexistent/x
tap_is "a file that cannot be written is told before the case runs" "$status $out $err" \
    "64  cpattn-submit: /nonexistent/x cannot be written: No such file or directory"
run dump --out "$scratch"
tap_has "nor can a folder" "$err" "$scratch cannot be written: Is a directory"
run dump --out -
tap_has "nor standard output" "$err" "--out is '-'; accepted is the name of a file"
run dump --out "$scratch/new" --picture "$scratch/new"
tap_has "two outputs need two files" "$err" "--picture and --out are the same file"
tap_is "a refused dump leaves nothing" "$(find "$scratch" -name 'new*')" ""
cp "$scratch/all" "$scratch/mine"
ln -s mine "$scratch/link"
run attend --in "$scratch/mine" --out "$scratch/link"
tap_has "results do not replace their inputs" "$status $err" "64 cpattn-submit: --out and --in are the same file"
run attend --in "$scratch/all" --out "$scratch/mine" --compare "$scratch/mine"
tap_has "nor what they are compared with" "$status $err" "64 cpattn-submit: --out and --compare are the same file"
tap_is "which is unchanged" "$(cmp "$scratch/all" "$scratch/mine" && echo yes)" yes
# shellcheck disable=SC2086
run dump $small --out /dev/full
tap_has "a full disk is told" "$status $err" "79 cpattn-submit: /dev/full cannot be written: No space left on device"
# shellcheck disable=SC2086
run case $small --dump-fails "$scratch/fails"
tap_is "a pass leaves no dump" "$status $(test -e "$scratch/fails" && echo there)" "0 "
daemon_stop

umask 077
echo "sixteen letters!" >"$scratch/token"
port=$((20000 + $$ % 20000))
while [ -z "$daemon" ]; do
    : >"$scratch/log" # of the daemon before
    "$top_builddir/cpattnd" --socket "$CPATTN_SOCKET" --backend cpu --devices 2 \
        --listen "tcp://127.0.0.1:$port" --token-file "$scratch/token" 2>"$scratch/log" &
    daemon=$!
    until grep -q ' ready ' "$scratch/log"; do
        kill -0 "$daemon" 2>/dev/null || { daemon=; port=$((port + 1)); break; }
        sleep 0.05
    done
done
run attend --in "$scratch/all" --socket "tcp://127.0.0.1:$port" --token-file "$scratch/token"
tap_is "over a network" "$status" 76
tap_has "is refused with the reason" "$out" "tensors travel as shared memory"
daemon_stop

daemon_start --backend cpu --devices 2 --rank-program "$top_builddir/tests/submit/wrong_rank"
# shellcheck disable=SC2086
run case $small --dump-fails "$scratch/fails"
tap_is "a fail" "$status" 1
tap_has "is dumped" "$err" "wrote $scratch/fails/case-"
tap_is "as a file and a picture" "$(find "$scratch/fails" -type f | sed 's/.*\.//' | sort | tr '\n' ' ')" \
    "safetensors svg "
worst=$(cat "$scratch"/fails/*.svg | grep '<title>' | grep -v 'fill="#e8f0e8"' | sed 's/.*<title>\(dv, head 1\),.*/\1/' | sort -u)
tap_is "in which only dv of the last head is wrong" "$worst" "dv, head 1"
# shellcheck disable=SC2086
run dump $small --out "$scratch/wrong"
tap_is "a dump of it is a fail" "$status" 1
tap_has "its map is of dv" "$out" "dv: error by head"
tap_has "where the first head is fine" "$out" "head    0  .  .  .  ."
tap_is "and the last is not" "$(echo "$out" | grep -c '^head    1  [1-5]  [1-5]  [1-5]  [1-5]')" 1
cat >"$scratch/matrix.yaml" <<'YAML'
defaults: {world_size: 2, head_dim: 16, seqlen: 40}
models:
  small: {heads: 4, kv_heads: 2}
axes:
  mask: [causal, none]
YAML
run matrix "$scratch/matrix.yaml" --dump-fails "$scratch/of matrix"
tap_is "fails of a matrix" "$status" 1
tap_is "are dumped each" "$(find "$scratch/of matrix" -type f | wc -l)" 4
tap_lacks "with nothing to complain" "$err" "not written"
daemon_stop
tap_done

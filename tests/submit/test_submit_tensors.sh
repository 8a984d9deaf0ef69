#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attend, dump and --dump-fails with a daemon that has real ranks, and with one that has a rank
# program with a fault. Prints TAP.
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

small="--heads 4 --kv-heads 2 --head-dim 16 --seqlen 40"
daemon_start --backend cpu --devices 2

# shellcheck disable=SC2086
run dump $small --out "$scratch/all" --picture "$scratch/all.svg"
tap_is "dump: exit status" "$status $err" "0 "
tap_has "dump: --picture writes SVG" "$(head -c 100 "$scratch/all.svg")" "<svg xmlns="
tap_is "dump: the picture has 4 heads x 4 chunks of out and dq, 2 heads x 4 chunks of dk and dv" "$(grep -c '<title>' "$scratch/all.svg")" 48
tap_is "dump: all cells of the picture have the colour of rounding errors" "$(grep -c '<title>' "$scratch/all.svg")" \
    "$(grep '<title>' "$scratch/all.svg" | grep -c 'fill="#e8f0e8"')"
tap_has "dump: a map of errors is printed" "$out" "head    1  .  .  .  ."
tap_has "dump: the metadata has the command of the case" "$(head -c 300 "$scratch/all")" "cpattn-submit case --heads 4 --kv-heads 2"
tap_is "dump: no temporary file is left" "$(find "$scratch" -name '*.part')" ""

run attend --in "$scratch/all" --out "$scratch/again" --compare "$scratch/all" --verify
tap_is "attend: exit status with the inputs of a dump" "$status $err" "0 "
tap_has "attend --verify: verdict" "$out" "pass  bf16 bshd p2p w2 b2 h4/2 s40 d16"
for tensor in out lse dq dk dv; do
    tap_has "attend --compare: $tensor has the same bits" "$(echo "$out" | grep "^$tensor .*the same")" "the same in all"
done
run attend --in "$scratch/all" --verif full
tap_is "attend with an abbreviated --verify: exit status and verdict" "$status $(grep -o '^pass ' "$scratch/out")" "0 pass "
run attend --in "$scratch/all" --mask none --compare "$scratch/again"
tap_is "attend --compare with another mask, without --verify: exit status" "$status" 1
tap_has "attend --compare with another mask: LSE is judged without a twin" "$(echo "$out" | grep ^lse)" \
    "differ by more than 0.001 + 1e-05 of the value  DIFFERS"
tap_is "attend --compare without --verify: the others are only shown" "$(echo "$out" | grep -c DIFFERS)" 1
tap_has "attend without --verify: shown as unverified" "$out" "unverified"
tap_has "attend --compare with another mask: elements differ" "$out" "differs in"
run attend --in "$scratch/all" --mask none --compare "$scratch/again" --verify
tap_is "attend --compare --verify with another mask: exit status" "$status" 1
tap_has "attend --compare --verify with another mask: DIFFERS" "$out" "DIFFERS"
run attend --in "$scratch/all" --world-size 1 --compare "$scratch/again" --verify full
tap_is "attend --compare with another world size: exit status" "$status" 0
tap_has "attend --compare with another world size: differences in units of an honest kernel" "$out" "times an honest kernel's error"

run attend --in "$scratch/again"
tap_is "attend with a file of results: exit status" "$status" 64
tap_has "attend with a file of results: names the missing tensors" "$err" 'there is no tensor "q"'
run attend --in "$scratch/all" --softmax learnable
tap_has "attend with a learnable softmax: names the missing sink" "$err" 'there is no tensor "sink"'
run attend --in "$scratch/all" --format thd
tap_has "attend --format thd: names the expected dimensions" "$err" "in thd it has 3 dimensions (--format)"
run attend
tap_is "attend without --in" "$status $err" "64 cpattn-submit: --in is missing: the file with q, k and v"
run attend --in "$scratch/none"
tap_is "attend: a file that does not exist" "$status $out$err" \
    "64 cpattn-submit: $scratch/none: cannot be read: No such file or directory"
run attend --in "$scratch/all" --compare "$scratch/none"
tap_is "attend: a file of --compare that does not exist is found before the case runs" "$status $out$err" \
    "64 cpattn-submit: $scratch/none: cannot be read: No such file or directory"
run attend --in "$scratch/all" --heads 4 --kv-heads 2 --seqlen 40 --dtype bf16 --training true
tap_is "attend: sizes and dtype of the file are accepted as options" "$status $err" "0 "
for wrong in "heads 8 4" "head-dim 32 16" "seqlen 64 40" "dtype fp16 bf16" "training false true"; do
    # shellcheck disable=SC2086
    set -- $wrong
    run attend --in "$scratch/all" "--$1" "$2"
    tap_is "attend: another $1 than in the file" "$status $out$(echo "$err" | cut -d ' ' -f 3-)" \
        "64 is $2; accepted is $3, which follows from the tensors of $scratch/all"
done
cp "$scratch/all" "$scratch/nan"
first=$(($(od -An -tu8 -N8 "$scratch/nan") + 8))
printf '\377\177' | dd of="$scratch/nan" bs=1 seek="$first" conv=notrunc 2>/dev/null
run attend --in "$scratch/nan" --verify
tap_is "attend: inputs that cannot pass are named" "$status $err" \
    "1 cpattn-submit: $scratch/nan: 1 element of q is NaN or infinite, so the results cannot pass"
run dump
tap_is "dump without --out" "$status $err" "64 cpattn-submit: --out is missing: the file to write"
head -c 2000 "$scratch/all" >"$scratch/short"
run attend --in "$scratch/short"
tap_is "attend with a truncated file: exit status" "$status" 64
tap_has "attend with a truncated file: message" "$err" "outside of the file"
# shellcheck disable=SC2086
run dump $small --out /nonexistent/x
tap_is "dump --out that cannot be written: refused before the case runs" "$status $out $err" \
    "64  cpattn-submit: /nonexistent/x cannot be written: No such file or directory"
run dump --out "$scratch"
tap_has "dump --out of a folder" "$err" "$scratch cannot be written: Is a directory"
run dump --out -
tap_has "dump --out -" "$err" "--out is '-'; accepted is the name of a file"
run dump --out "$scratch/new" --picture "$scratch/new"
tap_has "dump: --out and --picture are the same file" "$err" "--out and --picture are the same file"
tap_is "dump: a refused command leaves no file" "$(find "$scratch" -name 'new*')" ""
cp "$scratch/all" "$scratch/mine"
ln -s mine "$scratch/link"
run attend --in "$scratch/mine" --out "$scratch/link"
tap_has "attend: --out is a link to the file of --in" "$status $err" "64 cpattn-submit: --out and --in are the same file"
run attend --in "$scratch/all" --out "$scratch/mine" --compare "$scratch/mine"
tap_has "attend: --out is the file of --compare" "$status $err" "64 cpattn-submit: --out and --compare are the same file"
tap_is "attend: a refused command changes no file" "$(cmp "$scratch/all" "$scratch/mine" && echo yes)" yes
# shellcheck disable=SC2086
run dump $small --out /dev/full
tap_has "dump --out on a full disk" "$status $err" "79 cpattn-submit: /dev/full cannot be written: No space left on device"
# shellcheck disable=SC2086
run case $small --dump-fails "$scratch/fails"
tap_is "--dump-fails: no file for a pass" "$status $(test -e "$scratch/fails" && echo there)" "0 "
daemon_stop

umask 077
echo "sixteen letters!" >"$scratch/token"
port=$(tap_port)
while [ -z "$daemon" ]; do
    : >"$scratch/log" # drops the lines of the previous daemon
    "$top_builddir/cpattnd" --socket "$CPATTN_SOCKET" --backend cpu --devices 2 \
        --listen "tcp://127.0.0.1:$port" --token-file "$scratch/token" 2>"$scratch/log" &
    daemon=$!
    until grep -q ' ready ' "$scratch/log"; do
        tap_step "$daemon" || { daemon=; port=$((port + 1)); break; }
    done
done
run attend --in "$scratch/all" --socket "tcp://127.0.0.1:$port" --token-file "$scratch/token"
tap_is "attend over a network: exit status" "$status" 76
tap_has "attend over a network: message" "$out" "tensors travel as shared memory"
daemon_stop

daemon_start --backend cpu --devices 2 --rank-program "$top_builddir/tests/submit/wrong_rank"
# shellcheck disable=SC2086
run case $small --dump-fails "$scratch/fails"
tap_is "--dump-fails: exit status of a fail" "$status" 1
tap_has "--dump-fails: names the file" "$err" "wrote $scratch/fails/case-"
tap_is "--dump-fails: writes tensors and a picture" "$(find "$scratch/fails" -type f | sed 's/.*\.//' | sort | tr '\n' ' ')" \
    "safetensors svg "
worst=$(cat "$scratch"/fails/*.svg | grep '<title>' | grep -v 'fill="#e8f0e8"' | sed 's/.*<title>\(dv, head 1\),.*/\1/' | sort -u)
tap_is "--dump-fails: the picture marks dv of the last head only" "$worst" "dv, head 1"
# shellcheck disable=SC2086
run dump $small --out "$scratch/wrong"
tap_is "dump of a fail: exit status" "$status" 1
tap_has "dump of a fail: the map is of the wrong tensor" "$out" "dv: error by head"
tap_has "dump of a fail: the right head in the map" "$out" "head    0  .  .  .  ."
tap_is "dump of a fail: the wrong head in the map" "$(echo "$out" | grep -c '^head    1  [1-5]  [1-5]  [1-5]  [1-5]')" 1
# shellcheck disable=SC2086
run dump $small --out /dev/full
tap_has "dump of a fail on a full disk: the fail comes first" "$status $err" "1 cpattn-submit: /dev/full cannot be written"
run attend --in "$scratch/wrong" --verify --out /dev/full
tap_has "attend of a fail on a full disk: the fail comes first" "$status $err" "1 cpattn-submit: /dev/full cannot be written"
run attend --in "$scratch/wrong" --mask none --compare "$scratch/wrong" --out /dev/full
tap_has "attend on a full disk: a difference comes first" "$status $err" "1 cpattn-submit: /dev/full cannot be written"
# shellcheck disable=SC2086
"$submit" case $small --json >/dev/full 2>"$scratch/err"
tap_has "case --json of a fail on a full disk: the fail comes first" "$? $(cat "$scratch/err")" \
    "1 cpattn-submit: the output could not be written: No space left on device"
mv "$scratch/wrong" "$scratch/it's wrong"
run attend --in "$scratch/it's wrong" --verify --mask none --timeout 60
tap_is "attend of a fail: exit status" "$status $err" "1 "
again=$(echo "$out" | sed -n 's/^ *again: cpattn-submit //p')
tap_is "attend of a fail: the command has the file and all options" "$again" \
    "attend --in '$scratch/it'\\''s wrong' --verify --heads 4 --kv-heads 2 --head-dim-qk 16 --head-dim-v 16 --seqlen-q 40 --seqlen-kv 40 --mask none --timeout 60s"
digest=$(echo "$out" | grep digest)
eval "run $again"
tap_is "attend of a fail: the command runs it again" "$status $(echo "$out" | grep digest)" "1 $digest"
run attend --in "$scratch/it's wrong" --json --verify
tap_has "attend --json: the command has the file" "$out" "\"command\":\"cpattn-submit attend --in '"
cat >"$scratch/matrix.yaml" <<'YAML'
defaults: {world_size: 2, head_dim: 16, seqlen: 40}
models:
  small: {heads: 4, kv_heads: 2}
axes:
  mask: [causal, none]
YAML
for place in "--json" "--save /dev/full"; do
    # shellcheck disable=SC2086
    "$submit" matrix "$scratch/matrix.yaml" $place >/dev/full 2>"$scratch/err"
    tap_is "matrix $place: a fail on a full disk: the fail comes first" "$?" 1
    tap_has "matrix $place: a fail on a full disk: the cause" "$(cat "$scratch/err")" "No space left on device"
done
run case --world-size 1 --batch 1 --heads 1 --head-dim 1 --seqlen 1
tap_has "a fail of a single element" "$out" ": 1 of 1 element outside"
tap_has "a fail of a single element, by TransformerEngine's rule" "$out" "own rule refuses 1 element
"
long=$(printf %062d 0)
cat >"$scratch/alike.yaml" <<YAML
defaults: {world_size: 2, head_dim: 16, seqlen: 40}
models:
  a: {heads: 4, kv_heads: 2}
  a_b: {heads: 4, kv_heads: 2}
axes:
  model: all
  part: {b_c: {mask: causal}, c: {mask: none}}
YAML
run matrix "$scratch/alike.yaml" --dump-fails "$scratch/alike"
tap_is "matrix --dump-fails: alike ids have different names" "$(find "$scratch/alike" -name '*.svg' -printf '%f\n' | LC_ALL=C sort | tr '\n' ' ')" \
    "a_b~b_c.svg a_b~c.svg a~b_c.svg a~c.svg "
cat >"$scratch/long.yaml" <<YAML
defaults: {world_size: 2, head_dim: 16, seqlen: 40, heads: 4, kv_heads: 2}
models: {$long: {}}
axes:
  a: {$long: {}}
  b: {$long: {}}
  c: {${long}1: {mask: causal}, ${long}2: {mask: none}}
YAML
for directory in long twice; do
    run matrix "$scratch/long.yaml" --dump-fails "$scratch/$directory"
    (cd "$scratch/$directory" && find . -name '*.svg' | LC_ALL=C sort) >"$scratch/$directory.names"
done
tap_is "matrix --dump-fails: long ids have different names" "$status $(wc -l <"$scratch/long.names")" "1 2"
tap_is "matrix --dump-fails: names are the same in each run" "$(cat "$scratch/twice.names")" "$(cat "$scratch/long.names")"
run matrix "$scratch/matrix.yaml" --dump-fails "$scratch/of matrix"
tap_is "matrix --dump-fails: exit status" "$status" 1
tap_is "matrix --dump-fails: two files for each fail" "$(find "$scratch/of matrix" -type f | wc -l)" 4
tap_lacks "matrix --dump-fails: no error message" "$err" "not written"
daemon_stop
tap_done

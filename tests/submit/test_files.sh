#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Output files that have no usable name, or that are another file of the same command line. Prints
# TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
fake=$(cd "$top_builddir" && pwd)/tests/submit/submit_fake
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
unset CPATTN_SOCKET
cd "$scratch" || exit 99
printf 'models: {good: {}}\n' >m.yaml
"$fake" matrix m.yaml --save run.jsonl >out
"$fake" bench --repeat 1 --save bench.jsonl >out
echo token >token
mkdir folder
cp m.yaml run.jsonl bench.jsonl token folder

run() { # ARGUMENTS...
    "$fake" "$@" >out 2>err
    echo "$? $(cat out err)"
}

for command in "matrix m.yaml --save" "matrix m.yaml --junit" "matrix m.yaml --markdown" "report run.jsonl --output" \
    "bench --save" "bench --trace" "case --trace" "dump --out" "attend --in a --out" "explain --trace" \
    "collective --trace"; do
    option=${command##* }
    for name in - ""; do
        # shellcheck disable=SC2086
        tap_is "an output '$name' is refused: ${command%% *} $option" "$(run $command "$name")" \
            "64 cpattn-submit: $option is '$name'; accepted is the name of a file, such as /dev/stdout or ./-"
    done
done

# Each file exists, or is given in two spellings. The second option would also be written, or be read
# before it is lost.
refuses() { # COMMAND OPTION OTHER FILE
    for same in "$4" "./$4"; do
        # shellcheck disable=SC2086
        tap_is "$1: $2 $4, $3 $same" "$(run $1 "$2" "$4" "$3" "$same")" \
            "64 cpattn-submit: $2 and $3 are the same file, '$4'; accepted is another file for $2"
    done
}
refuses "explain" --svg --trace new
refuses "bench" --save --trace new
refuses "bench" --save --compare bench.jsonl
refuses "bench" --trace --compare bench.jsonl
refuses "bench collective" --save --compare bench.jsonl
refuses "case" --trace --dump-fails new
refuses "case" --trace --token-file token
refuses "collective" --trace --token-file token
refuses "dump" --out --picture new
refuses "attend" --out --in run.jsonl
refuses "attend --in a" --out --compare run.jsonl
refuses "report run.jsonl" --output --compare bench.jsonl
refuses "matrix m.yaml" --save --junit new
refuses "matrix m.yaml" --save --markdown new
refuses "matrix m.yaml" --junit --markdown new
refuses "matrix m.yaml" --save --dump-fails new
refuses "matrix m.yaml" --junit --resume run.jsonl
refuses "matrix m.yaml" --markdown --resume run.jsonl
for option in --save --junit --markdown; do
    refuses "matrix m.yaml" $option --last-failed run.jsonl
    refuses "matrix m.yaml" $option --token-file token
done
tap_is "a refused command writes no file" "$(find . -name '*new*')" ""
for file in m.yaml run.jsonl bench.jsonl token; do
    tap_is "a refused command does not change $file" "$(cmp "$file" "folder/$file" && echo yes)" yes
done

tap_is "different files in one folder" "$(run explain --svg a --trace b | head -c 1)" 0
tap_is "the same name in different folders" "$(run explain --svg new --trace folder/new | head -c 1)" 0
ln -s new link
tap_has "a link and its file" "$(run explain --svg link --trace new)" "64 cpattn-submit: --svg and --trace are the same file"
tap_is "a picture on standard output, and a trace" "$(run explain --svg - --trace new | head -c 6)" "0 <svg"
tap_done

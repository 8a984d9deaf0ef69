#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Completion in bash: commands, options, and words that the programs accept. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
submit=$top_builddir/cpattn-submit
daemon=$top_builddir/cpattnd
if ! command -v bash >/dev/null 2>&1; then
    tap_skip "completion" "there is no bash"
    tap_done
    exit 0
fi

# Prints the completions of the last word of a line.
cat >"$scratch/offer" <<'END'
. "$top_srcdir/client/completion/cpattn.bash"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_cpattn_complete
echo "${COMPREPLY[*]}"
END
export top_srcdir
offer() {
    bash "$scratch/offer" "$@"
}

tap_is "commands" "$(offer "$submit" '')" \
    "$("$submit" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p' | tr '\n' ' ')--help --version"
tap_is "a command" "$(offer "$submit" mat)" matrix
tap_is "a command after help" "$(offer "$submit" help mat)" matrix
for command in $("$submit" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
    tap_is "all options of $command" "$(offer "$submit" "$command" -- | tr ' ' '\n' | sort)" \
        "$("$submit" "$command" --help | grep -oE -- '^ +(-., )?--[a-z0-9-]+' | grep -oE -- '--.*' | sort)"
done
tap_is "all options of the daemon" "$(offer "$daemon" -- | tr ' ' '\n' | sort)" \
    "$("$daemon" --help | grep -oE -- '^ +(-., +)?--[a-z0-9-]+' | grep -oE -- '--.*' | sort)"

# Completion takes the words of an option from the text of its help. The command accepts each word.
# For some options the test also knows the words.
options=0
for option in $("$submit" explain --help | sed -n 's/^ *\(--[a-z0-9-]*\)=\(WORD\|BOOL\).*/\1/p'); do
    refused=
    for word in $(offer "$submit" explain "$option" ''); do
        extra=
        [ "$word" = a2a+p2p ] && extra="--world-size 4"
        # shellcheck disable=SC2086
        "$submit" explain $extra "$option" "$word" >/dev/null 2>&1 || refused="$refused $word"
    done
    tap_is "the words of $option are taken" "$refused" ""
    options=$((options + 1))
    tap_has "$option has several words" "$(offer "$submit" explain "$option" '')" " "
done
tap_is "options with words are found" "$((options > 5))" 1
tap_is "words" "$(offer "$submit" case --comm '')" "p2p all_gather a2a a2a+p2p auto"
tap_is "words of options of the daemon" "$(offer "$daemon" --log-level '')" "error warning notice info debug"
tap_is "words with a remark about the last" "$(offer "$daemon" --backend '')" "cpu cuda auto"
for option in --spares --rank-filter; do
    tap_is "words of $option" "$(offer "$daemon" "$option" '')" "on off auto"
done
tap_is "words after =" "$(offer "$submit" case --mask = c)" "causal causal_bottom_right"
tap_is "words right after =" "$(offer "$submit" case --training =)" "true false"
tap_is "no words for a number" "$(offer "$submit" case --heads '')" ""
tap_is "options after a value" "$(offer "$submit" case --heads 3 --dt)" "--dtype"
tap_is "fields of a filter" "$(offer "$submit" matrix --filter head_)" "head_dim_qk= head_dim_v= head_dim="
: >"$scratch/some.yaml"
tap_is "files as arguments" "$(offer "$submit" matrix "$scratch/so")" "$scratch/some.yaml"
tap_is "files of an option" "$(offer "$daemon" --config "$scratch/so")" "$scratch/some.yaml"
mkdir -p "$scratch/bin" "$scratch/share/cpattnd"
cp "$submit" "$scratch/bin/cpattn-submit"
: >"$scratch/share/cpattnd/zz-installed.yaml"
tap_is "installed matrices" "$(PATH=$scratch/bin:$PATH offer cpattn-submit matrix zz)" zz-installed.yaml
tap_is "values in a filter" "$(offer "$submit" matrix --filter dtype =)" "bf16 fp16 fp32"
tap_is "values in a filter that begin with a prefix" "$(offer "$submit" matrix --filter dtype = f)" "fp16 fp32"
tap_is "values in a filter after a comma" "$(offer "$submit" matrix --filter dtype = bf16,f)" "bf16,fp16 bf16,fp32"
tap_is "values in a filter with !=" "$(offer "$submit" matrix --filter 'mask!' = causal_)" causal_bottom_right
tap_is "values in --set" "$(offer "$submit" matrix --set = training = t)" true
cat >"$scratch/sub.yaml" <<'END'
models: {a: {heads: 4}}
subsets:
  # a comment
  quick: {model: a}
  corners: [{model: a}]
# end
END
tap_is "subsets" "$(offer "$submit" matrix "$scratch/sub.yaml" --subset '')" "quick corners"
tap_is "values in a filter of an installed matrix" \
    "$(cp "$scratch/sub.yaml" "$scratch/share/cpattnd/zz-sub.yaml"; PATH=$scratch/bin:$PATH offer cpattn-submit matrix zz-sub.yaml --subset q)" quick
tap_done

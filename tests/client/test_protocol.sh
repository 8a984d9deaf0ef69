#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The client in doc/protocol.md works as printed. The page names every method and answer of the
# .proto, and the .proto has every code that the page names. Prints TAP.
# shellcheck disable=SC2016 # backquotes are Markdown's
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
# shellcheck source=tests/support/daemon.sh
. "$top_srcdir/tests/support/daemon.sh"
page=$top_srcdir/doc/protocol.md
proto=$top_srcdir/proto/cpattn.proto

methods=$(sed -n '/oneof method {/,/}/s/^ *\([A-Z][a-z]*\) .*/\1/p' "$proto" | sort)
told=$(sed -n '/^| method |/,/^$/s/^| `\([A-Z][a-z]*\)` |.*/\1/p' "$page" | sort)
tap_has "the page has methods" "$told" Cancel
tap_is "every method" "$told" "$methods"
answers=$(sed -n '/oneof answer {/,/}/s/^ *\([A-Z][A-Za-z]*\) .*/\1/p' "$proto" | grep -v '^Error$' | sort)
told=$(sed -n '/^| method |/,/^$/s/^| `[A-Z][a-z]*` | `\([A-Za-z]*\)`.*/\1/p' "$page" | sort)
tap_has "the page has answers" "$told" Status
tap_is "every answer" "$told" "$answers"
sed -n '/^| code |/,/^$/s/^| `\([A-Z_]*\)` |.*/\1/p' "$page" >"$scratch/codes"
while read -r code; do
    tap_is "there is the code $code" "$(grep -c "^    CODE_$code = " "$proto")" 1
done <"$scratch/codes"
tap_has "the page has codes" "$(cat "$scratch/codes")" UNAVAILABLE

if ! command -v python3 >/dev/null 2>&1; then
    tap_skip "the client without a library" "no python3"
    tap_done
    exit
fi
awk '/^```python/ { code = 1; next } /^```/ { code = 0 } code' "$page" >"$scratch/client.py"
daemon_start --backend cpu
python3 "$scratch/client.py" "$CPATTN_SOCKET" >"$scratch/out" 2>&1
tap_is "a verdict" "$? $(cat "$scratch/out")" "0 pass"
sed 's/^case = {2: 2,/case = {2: 65,/' "$scratch/client.py" >"$scratch/wrong.py"
python3 "$scratch/wrong.py" "$CPATTN_SOCKET" >"$scratch/out" 2>&1
tap_is "a refusal" "$? $(cat "$scratch/out")" "1 case.world_size is 65; accepted is 1 to 64"
daemon_stop
tap_done

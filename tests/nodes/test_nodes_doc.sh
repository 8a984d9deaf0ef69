#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of doc/nodes.md work as printed, and its settings are valid. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
doc=$(cd "$top_srcdir" && pwd)/doc/nodes.md
PATH=$(cd "$top_builddir" && pwd):$PATH
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT

# The shell blocks of the page, with another port for this run.
port=$(tap_port)
{
    echo 'set -eum'
    awk '/^```sh$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$doc" | sed "s/7422/$port/g"
} >"$scratch/commands"
tap_is "the page has commands" "$(grep -c cpattn-agent "$scratch/commands")" 2
(cd "$scratch" && timeout 120 bash commands >out 2>err)
status=$?
[ $status -eq 0 ] || sed 's/^/# /' "$scratch/err" "$scratch"/nodes/log*
tap_is "the commands run" $status 0
tap_is "both cases pass" "$(grep -ciE '^pass' "$scratch/out")" 2
tap_is "the cases had ranks on three hosts" "$(grep -c 'pool_start .*hosts=0x7' "$scratch/nodes/log")" 1

# The daemon accepts the settings. It then misses the file of the secret, which does not exist here.
awk '/^```yaml$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$doc" |
    sed "s,/etc/cpattnd,$scratch/none," >"$scratch/settings.yaml"
told=$(cpattnd --config "$scratch/settings.yaml" --backend cpu --socket "$scratch/socket" 2>&1)
tap_has "the settings are valid" "$told" "$scratch/none/agents-token"
options=$(cpattn-agent --help | sed -n 's/^ *\(-., \)*--\([a-z-]*\).*/\2/p' | grep -vxE 'help|usage|version')
tap_has "the agent has options" "$options" token-file
tap_is "every option of the agent is in its manual" "$(
    for option in $options; do
        grep -q "^\.It Fl Fl $option\b" "$top_srcdir/doc/cpattn-agent.8" || echo "$option"
    done
)" ""
tap_is "the script for Slurm has valid syntax" "$(bash -n "$top_srcdir/systemd/cpattnd.sbatch" 2>&1)" ""
tap_done

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The installed settings file: it has exactly the settings of the daemon, changes nothing, and each
# of its lines is valid. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
file=$top_builddir/systemd/cpattnd.yaml
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT

# All options but these four are settings.
options=$("$top_builddir/cpattnd" --help | sed -n 's/^ *\(-., \)*--\([a-z-]*\).*/\2/p' |
    grep -vxE 'config|help|usage|version' | sort)
tap_is "the file has exactly the settings of the daemon" "$(sed -n 's/^#*\([a-z-]*\):.*/\1/p' "$file" | sed -E 's/^(provider|guest)s$/\1/' | sort)" "$options"
undocumented=
for option in $options; do
    grep -q "^\.It Fl Fl $option\b\|, Fl Fl $option\b" "$top_srcdir/doc/cpattnd.8" || undocumented="$undocumented $option"
done
tap_is "the manual has each setting" "$undocumented" ""
# argp adds a line of blanks after a text that ends exactly at the margin. Change the words of such
# a text.
tap_is "the help has no blank lines of spaces" "$(for program in cpattnd cpattn-agent; do
    "$top_builddir/$program" --help | grep -B 1 '^  *$'
done)" ""
tap_is "each setting is there once" "$(sed -n 's/^#*\([a-z-]*\):.*/\1/p' "$file" | sort | uniq -d)" ""
tap_is "the file sets nothing" "$(grep -v '^#' "$file" | grep -v '^$')" ""
tap_is "every path is filled in" "$(grep '@' "$file")" ""

# Options that do not exist.
refuses() { # MESSAGE PROGRAM ARGUMENT...
    message=$1 program=$2
    shift 2
    tap_is "$program $*" "$("$top_builddir/$program" "$@" 2>&1)" "$program: $message"
    tap_is "$program $*: exit status" "$("$top_builddir/$program" "$@" 2>/dev/null || echo $?)" 64
}
refuses "unknown option '--sokcet' (did you mean --socket?); cpattnd --help lists them" cpattnd --sokcet x
refuses "unknown option '-socket' (did you mean --socket?); cpattnd --help lists them" cpattnd -socket x
refuses "unknown option '--nothing'; cpattnd --help lists them" cpattnd --nothing
refuses "option '--token' needs a value; see cpattnd --help" cpattnd --token
refuses "unknown option '-x'; cpattnd --help lists them" cpattnd -x
refuses "option '--help' takes no value; see cpattn-agent --help" cpattn-agent --help=x
refuses "option '--tls-c' could be --tls-certificate or --tls-clients" cpattnd --tls-c x
refuses "unknown option '--deamon' (did you mean --daemon?); cpattn-agent --help lists them" cpattn-agent --deamon x
tap_has "cpattnd -h" "$("$top_builddir/cpattnd" -h)" "Usage: cpattnd"

# Prints the messages of the daemon about a settings file. The daemon ends because it cannot make
# its socket.
told() {
    "$top_builddir/cpattnd" --config "$1" --backend cpu --socket "$scratch/none/socket" 2>&1 |
        grep "$1"
}
tap_has "a socket in a folder that does not exist" "$("$top_builddir/cpattnd" --backend cpu --socket "$scratch/none/socket" 2>&1)" \
    "$scratch/none/socket.lock: No such file or directory; create the directory, or choose another path with --socket"
tap_is "the file is valid" "$(told "$file")" ""
# This machine need not have the user of the example.
sed -n 's/^#*\([a-z-]*:.*\)/\1/p' "$file" | sed 's/^rank-user: .*/rank-user: 65534/' >"$scratch/lines"
while read -r line; do
    echo "$line" >"$scratch/one.yaml"
    tap_is "understood: $line" "$(told "$scratch/one.yaml")" ""
done <"$scratch/lines"
echo "memory: much" >"$scratch/one.yaml"
tap_has "an invalid line is reported" "$(told "$scratch/one.yaml")" "one.yaml:1:9: key 'memory'"

# The manual lists under SIGHUP the settings that the file marks with (reload).
marked=$(awk '/^#[a-z-]*:/ { sub(/^#/, ""); sub(/:.*/, ""); if (text ~ /\(reload\)/) print; text = ""; next }
    /^$/ { text = ""; next } { text = text $0 }' "$file" | sort | tr '\n' ' ')
manual=$(sed -n '/^\.It SIGHUP/,/^\.El/p' "$top_srcdir/doc/cpattnd.8" | tr -s ', \n' '\n' |
    grep -xF "$options" | sort -u | tr '\n' ' ')
tap_has "some settings are marked as reloadable" "$marked" "allow-users "
tap_is "the manual names the reloadable settings" "$marked" "$manual"
tap_done

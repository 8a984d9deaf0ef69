#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The systemd units: valid for systemd, with an exposure level of at most 2.5 of 10. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
exposure_max=25 # tenths
units="cpattnd.service cpattn-agent.service"
systemd=$(command -v systemd-analyze || :)

# Prints the complaints about lines of one file. A program that is not installed is not among them.
complaints() { # UNIT FILE
    systemd-analyze verify --man=no --recursive-errors=no "$1" 2>&1 | grep "$2:[0-9]"
}

for name in $units; do
    unit=$top_builddir/systemd/$name
    tap_is "$name: there" "$(sed -n 's/^\[Service\]$/yes/p' "$unit")" yes
    tap_is "$name: every path is filled in" "$(grep '@[a-z]*@' "$unit")" ""
    if [ -z "$systemd" ]; then
        tap_skip "$name: systemd understands every line" "there is no systemd-analyze"
        continue
    fi
    tap_is "$name: systemd understands every line" "$(complaints "$unit" "$name")" ""
    systemd-analyze security --offline=yes --threshold=$exposure_max "$unit" >/dev/null 2>&1
    tap_is "$name: exposure is at most 2.5" $? 0
done

folder=$(mktemp -d)
mkdir "$folder/cpattnd.service.d"
cp "$top_builddir/systemd/cpattnd.service" "$folder"
cp "$top_srcdir/systemd/rank-user.conf" "$top_srcdir/systemd/real-time.conf" "$folder/cpattnd.service.d"
if [ -n "$systemd" ]; then
    tap_is "systemd understands the drop-ins" "$(complaints "$folder/cpattnd.service" "\.conf")" ""
    printf '[Service]\nNonsense=yes\n' >"$folder/cpattnd.service.d/wrong.conf"
    tap_has "a line that it does not understand is seen" "$(complaints "$folder/cpattnd.service" "\.conf")" "'Nonsense'"
else
    tap_skip "systemd understands the drop-ins" "there is no systemd-analyze"
fi
rm -r "$folder"
tap_done

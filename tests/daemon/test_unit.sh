#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The systemd unit: valid for systemd, with an exposure level of at most 2.5 of 10. Prints TAP.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
unit=$top_builddir/systemd/cpattnd.service
exposure_max=25 # tenths

echo "1..4"

if grep -q '@[a-z]*@' "$unit"; then
    echo "not ok 1 - every path is filled in"
else
    echo "ok 1 - every path is filled in"
fi

if ! systemd-analyze --version >/dev/null 2>&1; then
    echo "ok 2 - systemd understands every line # SKIP there is no systemd-analyze"
    echo "ok 3 - exposure is at most 2.5 # SKIP there is no systemd-analyze"
    echo "ok 4 - systemd understands the drop-ins # SKIP there is no systemd-analyze"
    exit 0
fi

# Complaints about the unit itself; that the program is not installed yet is not one.
complaints=$(systemd-analyze verify --man=no --recursive-errors=no "$unit" 2>&1 |
    grep "cpattnd.service:[0-9]")
if [ -z "$complaints" ]; then
    echo "ok 2 - systemd understands every line"
else
    echo "not ok 2 - systemd understands every line"
    echo "$complaints" | sed 's/^/# /'
fi

if verdict=$(systemd-analyze security --offline=yes --threshold=$exposure_max "$unit" 2>&1); then
    echo "ok 3 - exposure is at most 2.5"
else
    echo "not ok 3 - exposure is at most 2.5"
fi
echo "$verdict" | tail -n 1 | sed 's/^/# /'

folder=$(mktemp -d)
mkdir "$folder/cpattnd.service.d"
cp "$unit" "$folder"
cp "$top_srcdir/systemd/rank-user.conf" "$top_srcdir/systemd/real-time.conf" "$folder/cpattnd.service.d"
complaints=$(systemd-analyze verify --man=no --recursive-errors=no "$folder/cpattnd.service" 2>&1 |
    grep "\.conf:[0-9]")
rm -r "$folder"
if [ -z "$complaints" ]; then
    echo "ok 4 - systemd understands the drop-ins"
else
    echo "not ok 4 - systemd understands the drop-ins"
    echo "$complaints" | sed 's/^/# /'
fi

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each script prints the comment at its top for --help, and refuses an unknown option. Both calls
# start no program that builds or installs. Prints TAP.
set -u
: "${top_srcdir:=.}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT

# The scripts run in a separate tree. Programs that build or install are replaced by stubs that
# record the call.
mkdir "$scratch/bin"
for name in apt-get autoreconf make nvidia-smi sudo; do
    printf '#!/bin/sh\necho "%s $*" >>"%s"\nexit 1\n' "$name" "$scratch/called" >"$scratch/bin/$name"
    chmod +x "$scratch/bin/$name"
done
mkdir "$scratch/scripts" "$scratch/.ci"
cp "$top_srcdir"/scripts/* "$scratch/scripts/"
scripts=$(cd "$scratch" && find scripts -type f -perm -u+x | LC_ALL=C sort)
if [ -f "$top_srcdir/.ci/run" ]; then # not in a source archive
    cp "$top_srcdir/.ci/run" "$scratch/.ci/"
    scripts="$scripts .ci/run"
fi

run() { # SCRIPT ARGUMENTS...
    program=./$1
    shift
    rm -f "$scratch/called"
    out=$(cd "$scratch" && PATH="$scratch/bin:$PATH" "$program" "$@" 2>"$scratch/err")
    status=$?
    err=$(cat "$scratch/err")
    called=$(cat "$scratch/called" 2>/dev/null)
}

for script in $scripts; do
    run "$script" --help
    tap_is "$script --help: status, errors, programs called" "$status $err $called" "0  "
    tap_is "$script --help: the comment at its top" "$(printf '%s\n' "$out" | sed 's/^/# /; s/ $//')" \
        "$(sed -n '1,2d; /^#/!q; p' "$scratch/$script")"
    run "$script" --no-such-option
    tap_is "$script: an unknown option" "$status $called" "64 "
    tap_has "$script: an unknown option is named" "$err" "there is no option '--no-such-option'; "
done

run scripts/check --also lint --thorough --also bundle --help
tap_is "check: its options in any order" "$status $err" "0 "
run scripts/check --thorough --also lint TESTS= -k
tap_has "check: an option of make is named" "$err" "there is no option '-k'; "
run scripts/check --also lint,tests
tap_is "check: a name that --also does not know" "$status $err" \
    "1 check: --also knows lint, distcheck and bundle, not 'tests'"
run scripts/check --also
tap_is "check: --also without a list" "$status $err" "1 check: --also needs a list of lint, distcheck and bundle"
run scripts/check tests/plan/test_plan
tap_is "check: a word" "$status $err" \
    "1 check: 'tests/plan/test_plan' is no variable of make; accepted is NAME=VALUE, such as TESTS=tests/plan/test_plan"
tap_done

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# The options of scripts. The comment at the top of a script is its help. Sourced, not run.

help_print() {
    awk 'FNR <= 2 { next } /^#/ { sub(/^# ?/, ""); print; next } { exit }' "$0"
}

option_refuse() { # OPTION
    printf "%s: there is no option '%s'; %s --help says what is accepted\n" "${0##*/}" "$1" "$0" >&2
    exit 64
}

# For a script whose only option is --help.
options_none() { # ARGUMENTS...
    for argument; do
        case $argument in
        --help) help_print && exit 0 ;;
        -?*) option_refuse "$argument" ;;
        esac
    done
}

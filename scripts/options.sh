# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# The options of scripts. --help prints the comment at the top of a script. Source this file, do not
# run it.

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

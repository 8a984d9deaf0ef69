# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Completion of cpattn-submit and cpattnd for bash. What there is to complete is asked of the programs:
# commands, options and the words that an option takes are those of their --help.

_cpattn_help() { # PROGRAM [COMMAND]
    ARGP_HELP_FMT=rmargin=9999 command "$@" --help 2>/dev/null
}

# "--name" or "--name=VALUE" of each option, and the option's help behind it.
_cpattn_options() {
    _cpattn_help "$@" | sed -n 's/^ *\(-.,\)\{0,1\} *\(--[a-z0-9-]*\)\([^ ]*\) */\2\3 /p'
}

_cpattn_fields() { # PROGRAM
    _cpattn_options "$1" case | sed -n '/^--json/q; s/^--\([a-z0-9-]*\)=.*/\1/p' | tr - _
}

# What may stand behind an option; files for "FILE".
_cpattn_values() { # OPTION PROGRAM [COMMAND]
    local option=$1 line
    shift
    line=$(_cpattn_options "$@" | grep -m 1 -- "^$option\(=\| \)")
    case $line in
    "$option="BOOL*) echo true false ;;
    "$option="PATH* | "$option="FILE*) echo FILE ;;
    "$option="FIELD=* | "$option="FILTER*) _cpattn_fields "$1" | sed 's/$/=/' ;;
    # "how it is dealt: zigzag or contiguous [zigzag]"
    "$option="WORD* | "$option="NAME* | "$option="LEVEL* | "$option="WHEN*)
        echo "${line#* }" | sed 's/ \[.*//; s/.*: //; s/\( or [^ ]*\).*/\1/; s/,* or /, /' | tr ',' '\n' |
            sed -n 's/^ *\([a-z0-9_+]*\).*/\1/p'
        ;;
    esac
}

_cpattn_takes_value() { # OPTION PROGRAM [COMMAND]
    local option=$1
    shift
    _cpattn_options "$@" | grep -q -- "^$option="
}

_cpattn_commands() { # PROGRAM
    _cpattn_help "$1" | sed -n 's/^  \([a-z]*\)  *.*/\1/p' | grep -v '^cpattn'
}

_cpattn_matrices() { # PROGRAM
    local path
    path=$(command -v "$1") || return
    command ls "${path%/*}/../share/cpattnd" 2>/dev/null | grep '\.yaml$'
}

# The subsets of the matrix file on the line.
_cpattn_subsets() { # PROGRAM WORDS...
    local path word
    path=$(command -v "$1") || path=$1
    shift
    for word; do
        [[ $word == *.yaml ]] || continue
        [[ -f $word ]] || word=${path%/*}/../share/cpattnd/$word
        sed -n '/^subsets:/,/^[^ #]/s/^  \([A-Za-z0-9_.+-]*\):.*/\1/p' "$word" 2>/dev/null
        return
    done
}

# "FIELD=" or "FIELD!=" behind --filter or --set: what the field takes, behind the commas that are there.
_cpattn_field_values() { # PROGRAM FIELD WORD
    local given=
    [[ $3 == *,* ]] && given=${3%,*},
    _cpattn_values "--${2//_/-}" "$1" case | sed "s/^/$given/"
}

_cpattn_offer() { # ARGUMENTS OF compgen
    local line
    while IFS= read -r line; do
        COMPREPLY+=("$line")
    done < <(compgen "$@")
}

_cpattn_complete() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} words at=$COMP_CWORD field=
    local -a program=("${COMP_WORDS[0]}")
    COMPREPLY=()
    # "--mask=ca" are three words.
    if [[ $word == = ]]; then
        word=
        at=$((at + 1))
    elif [[ $before == = ]]; then
        before=${COMP_WORDS[at - 2]}
    fi
    # "--filter dtype=bf" are four, "--filter=dtype=bf" five.
    if ((at > 4)) && [[ ${COMP_WORDS[at - 1]} == = && ${COMP_WORDS[at - 3]} =~ ^(--filter|--set|=)$ ]]; then
        field=${COMP_WORDS[at - 2]%!}
    fi
    if [[ ${program[0]##*/} == cpattn-submit ]]; then
        if ((COMP_CWORD == 1)); then
            _cpattn_offer -W "$(_cpattn_commands "${program[0]}") --help --version" -- "$word"
            return
        fi
        program+=("${COMP_WORDS[1]}")
    fi
    if [[ -n $field ]]; then
        words=$(_cpattn_field_values "${program[0]}" "$field" "$word")
    elif [[ $before == --subset ]]; then
        words=$(_cpattn_subsets "${program[0]}" "${COMP_WORDS[@]:2}")
    elif [[ $before == --* ]] && _cpattn_takes_value "$before" "${program[@]}"; then
        words=$(_cpattn_values "$before" "${program[@]}")
        [[ $words == *= ]] && compopt -o nospace 2>/dev/null
    elif [[ $word == -* ]]; then
        words=$(_cpattn_options "${program[@]}" | sed 's/[= ].*//')
    elif [[ ${program[1]-} == matrix ]]; then
        words="FILE $(_cpattn_matrices "${program[0]}")"
    elif [[ ${program[1]-} == help ]]; then
        words=$(_cpattn_commands "${program[0]}")
    fi
    if [[ $words == FILE* ]]; then
        _cpattn_offer -f -- "$word"
        compopt -o filenames 2>/dev/null
        words=${words#FILE}
    fi
    _cpattn_offer -W "${words-}" -- "$word"
}

complete -F _cpattn_complete cpattn-submit cpattnd

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Test Anything Protocol for script tests: source it, call these, end with tap_done.
tap_number=0

tap_pass() { # NAME
    tap_number=$((tap_number + 1))
    echo "ok $tap_number - $1"
}

tap_fail() { # NAME LINES
    tap_number=$((tap_number + 1))
    echo "not ok $tap_number - $1"
    printf '%s\n' "$2" | sed 's/^/# /'
}

tap_skip() { # NAME REASON
    tap_number=$((tap_number + 1))
    echo "ok $tap_number - $1 # SKIP $2"
}

# A port that depends on the process, below the ports that Linux uses for outgoing connections.
tap_port() {
    echo $((20000 + $$ % 12000))
}

# The two texts are the same.
tap_is() { # NAME GOT EXPECTED
    if [ "$2" = "$3" ]; then
        tap_pass "$1"
    else
        tap_fail "$1" "got:
$2
expected:
$3"
    fi
}

# The text has this part.
tap_has() { # NAME TEXT PART
    case $2 in
    *"$3"*) tap_pass "$1" ;;
    *) tap_fail "$1" "no '$3' in:
$2" ;;
    esac
}

tap_patience=30000 # steps of 0.02 s for which a script may wait in all

# Waits for a step, in a loop that waits for a process to do something. False if the process has ended. A process for
# which the script waits too long is killed.
tap_step() { # PROCESS
    sleep 0.02
    grep -qs '^State:[[:space:]]*[^Z]' "/proc/$1/status" || return
    tap_patience=$((tap_patience - 1))
    [ "$tap_patience" -le 0 ] || return 0
    echo "# process $1 hangs: $(tr '\0' ' ' <"/proc/$1/cmdline" | cut -c 1-100)"
    kill -KILL "$1" 2>/dev/null
    return 1
}

# Waits for a process that this shell has started. Returns its exit status.
tap_wait() { # PROCESS
    while tap_step "$1"; do :; done
    wait "$1"
}

# Ends daemons that this shell has started: a test for each, that its exit status is 0.
tap_ends() { # PROCESS...
    for process; do
        kill -TERM "$process"
        tap_wait "$process"
        tap_is "a daemon ends with status 0" "$?" 0
    done
}

tap_lacks() { # NAME TEXT PART
    case $2 in
    *"$3"*) tap_fail "$1" "'$3' in:
$2" ;;
    *) tap_pass "$1" ;;
    esac
}

tap_done() {
    echo "1..$tap_number"
}

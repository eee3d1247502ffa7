# shellcheck shell=sh
# The common part of hooks that freeze something: it is thawed once, by the thaw hook or by a watchdog at the
# deadline, whatever happens to the program that runs hooks. A hook that sources this file defines
#
#   prepare_it    while work goes on (it may be missing)
#   freeze_it     with the hook's arguments; it fails by `fail` or by any command that fails
#   is_frozen     true if everything that freeze_it froze still is
#   thaw_it       may be called when only a part was frozen, and more than once; it returns 1 if it must be tried
#                 again. If it finds that something was not frozen to the end, it makes the file $state/lost
#
# and calls `run_phase "$@"`. They may keep files in the folder $state, which exists from freeze to thaw.
#
# SPINDLE_HOOKS_STATE: folder of the states; /run/spindle-hooks by default.

set -eu
umask 077

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

# What is not now is tried again by the program that runs hooks.
not_now() {
    printf '%s\n' "$*" >&2
    exit 75
}

run_phase() {
    : "${SPINDLE_SET:?is missing: this hook is for spindle protect}" "${SPINDLE_PHASE:?is missing}"
    states=${SPINDLE_HOOKS_STATE:-/run/spindle-hooks}
    state=$states/$(printf '%s.%s' "${0##*/}" "$SPINDLE_SET" | tr -c 'A-Za-z0-9._-' _)
    case $SPINDLE_PHASE in
    prepare) if command -v prepare_it >/dev/null; then prepare_it "$@"; fi ;;
    freeze) freeze_phase "$@" ;;
    thaw) thaw_phase "$@" ;;
    watchdog) watchdog_phase "$@" ;;
    after) ;;
    *) fail "no phase is called $SPINDLE_PHASE" ;;
    esac
}

freeze_phase() {
    mkdir -p "$states"
    # A folder that others can write to may be theirs.
    [ -n "$(find "$states" -prune -user "$(id -u)" ! -perm /022)" ] ||
        fail "$states is not a folder of this user alone; set SPINDLE_HOOKS_STATE to one that is"
    if [ -d "$state" ]; then
        if [ ! -e "$state/over" ] && watchdog_lives; then
            not_now "an earlier freeze of $SPINDLE_SET is not over"
        fi
        # A watchdog that was killed has thawed nothing.
        [ -e "$state/over" ] || (thaw_it "$@") || fail "an earlier freeze could not be thawed"
        rm -rf "$state"
    fi
    mkdir "$state"
    # In a session of its own it outlives the process group of this hook.
    SPINDLE_PHASE=watchdog setsid "$0" "$@" </dev/null >/dev/null 2>&1 &
    tries=0
    while [ ! -s "$state/watchdog" ]; do
        tries=$((tries + 1))
        [ "$tries" -le 200 ] || fail "the watchdog did not start"
        sleep 0.01
    done
    freeze_it "$@"
    : >"$state/frozen"
}

thaw_phase() {
    if [ ! -d "$state" ]; then
        printf 'nothing was frozen\n'
        exit 3
    fi
    # Who makes the folder thaws; the other finds that it was second.
    if mkdir "$state/thawing" 2>/dev/null; then
        held=no
        if [ -e "$state/frozen" ] && (is_frozen "$@"); then held=yes; fi
        if ! (thaw_it "$@"); then
            rmdir "$state/thawing"
            fail "it could not be thawed; the watchdog tries again at the deadline"
        fi
        [ ! -e "$state/lost" ] || held=no
        stop_watchdog
        rm -rf "$state"
        [ "$held" = yes ] && return
        printf 'it was no longer frozen\n'
        exit 3
    fi
    tries=0
    while [ ! -e "$state/over" ]; do
        tries=$((tries + 1))
        [ "$tries" -le 500 ] || fail "the watchdog began to thaw, and did not end"
        sleep 0.01
    done
    # A freeze that was under way at the deadline may have frozen one thing more.
    (thaw_it "$@") || fail "it could not be thawed"
    rm -rf "$state"
    printf 'the deadline had thawed it\n'
    exit 3
}

# False also of one that is dead and that nobody has waited for.
watchdog_lives() {
    watchdog=$(cat "$state/watchdog" 2>/dev/null || true)
    [ -n "$watchdog" ] && grep -q '^State:.[^ZX]' "/proc/$watchdog/status" 2>/dev/null
}

# Waits for its end: it must not find the folder half removed.
stop_watchdog() {
    tries=0
    while watchdog_lives; do
        kill -TERM "$watchdog" 2>/dev/null || true
        tries=$((tries + 1))
        [ "$tries" -le 200 ] || kill -KILL "$watchdog" 2>/dev/null || true
        sleep 0.01
    done
}

# Thaws at the deadline, and at once if it is ended: a service manager ends all of a service together.
watchdog_phase() {
    left=${SPINDLE_DEADLINE_MS:?is missing}
    trap '' HUP INT
    trap 'thaw_by_watchdog "$@"' TERM
    sleep "$((left / 1000)).$(printf '%03d' "$((left % 1000))")" &
    sleeping=$!
    printf '%s\n' "$$" >"$state/watchdog"
    wait "$sleeping" || true
    thaw_by_watchdog "$@"
}

thaw_by_watchdog() {
    trap '' TERM
    kill "$sleeping" 2>/dev/null || true
    if mkdir "$state/thawing" 2>/dev/null; then
        tries=0
        until (thaw_it "$@"); do
            tries=$((tries + 1))
            [ "$tries" -le 3600 ] || exit 1
            sleep 1
        done
        : >"$state/over"
    fi
    exit 0
}

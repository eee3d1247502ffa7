# shellcheck shell=sh
# Freezing of servers by SIGSTOP: no client is disconnected and no delivery fails, they wait. All that the servers
# wrote is made stable; a command that was under way is in the cut as after the servers were killed.
#
# A hook that sources this file (after frozen.sh) defines `main_processes`, which prints the process IDs of the
# servers' main processes, and gets the folders to sync as its arguments. Needs ps (procps) and root.
# shellcheck disable=SC2154 # frozen.sh sets state

# Main processes and all their descendants, with states: PID STATE lines, ancestors first.
process_trees() {
    # shellcheck disable=SC2046 # process IDs are words
    set -- $(main_processes)
    ps -e -o pid= -o ppid= -o state= | awk -v roots="$*" '
        BEGIN { count = split(roots, queue, " ") }
        { state[$1] = $3; children[$2] = children[$2] " " $1 }
        END {
            for (place = 1; place <= count; place++) {
                process = queue[place]
                if (!(process in state)) continue
                print process, state[process]
                number = split(children[process], next_ones, " ")
                for (child = 1; child <= number; child++) queue[++count] = next_ones[child]
            }
        }'
}

freeze_it() {
    [ $# -gt 0 ] || fail "name the folders of mails and queues, whose writes are made stable"
    for folder in "$@"; do
        [ -d "$folder" ] || fail "$folder is no folder"
    done
    [ -n "$(main_processes)" ] || fail "no server runs: nothing can be paused, and nothing keeps one from starting"
    # A process that starts another before it is stopped is found in the next look.
    tries=0
    while :; do
        process_trees >"$state/looking"
        # Written before anything is stopped: a thaw must find every process that was.
        cut -d' ' -f1 "$state/looking" >>"$state/processes"
        running=$(awk '$2 !~ /[TtZX]/ { print $1 }' "$state/looking")
        [ -n "$running" ] || break
        tries=$((tries + 1))
        [ ! -e "$state/thawing" ] || fail "the deadline passed before all processes were stopped"
        [ "$tries" -le 300 ] || fail "some processes do not stop: $(printf '%s ' "$running")"
        for process in $running; do
            kill -STOP "$process" 2>/dev/null || true
        done
        [ "$tries" -le 3 ] || sleep 0.01
    done
    cut -d' ' -f1 "$state/looking" | sort >"$state/paused"
    for folder in "$@"; do
        sync -f "$folder"
    done
    printf 'spindle-consistency: filesystem\n'
    printf 'paused %s processes\n' "$(wc -l <"$state/paused")"
}

# All that was paused is stopped still, and nothing runs beside it.
is_frozen() {
    process_trees >"$state/looking"
    [ -z "$(awk '$2 !~ /[TtZX]/ { print $1 }' "$state/looking")" ] &&
        [ "$(cut -d' ' -f1 "$state/looking" | sort)" = "$(cat "$state/paused")" ]
}

thaw_it() {
    [ -e "$state/processes" ] || return 0
    # Children first, so that the main process finds them at work.
    sort -u "$state/processes" >"$state/thaw"
    main=" $(main_processes | tr '\n' ' ') "
    while read -r process; do
        case $main in
        *" $process "*) ;;
        *) kill -CONT "$process" 2>/dev/null || true ;;
        esac
    done <"$state/thaw"
    for process in $main; do
        kill -CONT "$process" 2>/dev/null || true
    done
}

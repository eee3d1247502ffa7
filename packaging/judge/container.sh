#!/bin/sh
# The life of the image under a runner that is not ours: served as the image says, proven, stopped by a signal, served again.
# `cargo xtask package --container --judge` calls it: container.sh STORE IMAGE FOLDER PORT
set -eu
store=$1
image=$2
folder=$3
port=$4

say() { echo "judge: $*"; }
buildah() { command buildah --root "$store/root" --runroot "$store/run" --storage-driver vfs "$@"; }
of_image() { buildah inspect --type image --format "$1" "$image"; }
in_image() {
    buildah run --isolation chroot --volume "$folder/site.toml:/etc/spindle/site.toml:ro" \
        --volume "$folder/state:/var/lib/spindle" "$container" -- "$@"
}
server=
fail() {
    say "FAILED: $*"
    [ ! -e "$folder/log" ] || cat "$folder/log"
    exit 1
}

rm -rf "$folder"
mkdir -p "$folder/state"
cat > "$folder/site.toml" <<TOML
[serve]
nbd = '127.0.0.1:$port'
[[group]]
name = 'mail'
drives = 2
drive_gb = 0.6
[[volume]]
name = 'store'
group = 'mail'
gb = 0.25
[[nbd]]
name = 'store'
volume = 'store'
TOML
# What the image starts, and as which user, is what it says itself.
program=$(of_image '{{range .OCIv1.Config.Entrypoint}}{{.}} {{end}}')
arguments=$(of_image '{{range .OCIv1.Config.Cmd}}{{.}} {{end}}')
user=$(of_image '{{.OCIv1.Config.User}}')
chown -R "$user" "$folder/state"
container=$(buildah from "$image")
# This runner gives each run a volume of its own, that lies over ours.
buildah config --volume /var/lib/spindle- "$container"
ended() {
    for process in $(processes); do kill -KILL "$process" 2>/dev/null || true; done
    buildah rm "$container" > /dev/null
}
trap ended EXIT

# The server's own process: the runner stands between, and does not hand on signals.
processes() { pgrep --full --uid "${user%%:*}" "^$program *${arguments% }\$" || true; }

serve() {
    : > "$folder/log"
    # Words of the image are words.
    # shellcheck disable=SC2086
    in_image $program $arguments > "$folder/log" 2>&1 &
    server=$!
    tries=0
    until grep -q '^serving;' "$folder/log"; do
        kill -0 $server 2>/dev/null || fail "the server ended"
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "the server does not serve"
        sleep 0.1
    done
    [ "$(processes | wc -l)" = 1 ] || fail "the server is not one process of user $user"
}

end() {
    kill -TERM "$(processes)"
    wait $server || fail "the server did not end well"
    [ -z "$(processes)" ] || fail "the server is still there"
}

serve
say "served by user $user: $program$arguments"
code=0
in_image /usr/bin/spindle prove "nbd://127.0.0.1:$port/store" --size 64MiB --cache 16MiB --duration 5s \
    --report /var/lib/spindle/report || code=$?
[ $code -le 1 ] || fail "prove has no verdict"
[ -s "$folder/state/report.json" ] || fail "prove wrote no report"
say "proven (exit code $code)"
end
serve
grep -q 'nothing to change' "$folder/log" || fail "after a restart it is not the site that it was"
in_image /usr/bin/spindle pool show mail --server unix:/var/lib/spindle/spindle.sock > "$folder/pool"
grep -q 'store' "$folder/pool" || fail "the volume is not there after a restart"
end
say "stopped by a signal and served again, with its volume"

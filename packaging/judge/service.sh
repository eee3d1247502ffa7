#!/bin/sh
# The life of the package in a clean Debian: installed, served, proven, upgraded under its service, purged. `cargo xtask package
# --judge` calls it in a mount namespace of its own: service.sh ROOT PACKAGE PORT
set -eu
root=$1
package=$2
port=$3

say() { echo "judge: $*"; }
server=
fail() {
    say "FAILED: $*"
    [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
    [ ! -e "$root/tmp/log" ] || cat "$root/tmp/log"
    exit 1
}
in_root() { chroot "$root" "$@"; }
sums() { (cd "$root/var/lib/spindle" && find . -type f ! -name '*.sock' -exec sha256sum {} + | sort -k 2); }

mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
cp "$package" "$root/tmp/spindle.deb"

in_root dpkg --install /tmp/spindle.deb
in_root id spindle
[ "$(in_root stat -c %U:%G:%a /etc/spindle)" = root:spindle:750 ] || fail "/etc/spindle is open to others"
[ ! -e "$root/etc/spindle/site.toml" ] || fail "a site file was installed: the service would start"
if in_root ldd /usr/bin/spindle | grep 'not found'; then fail "a library is missing"; fi
in_root systemd-analyze verify --man=no /usr/lib/systemd/system/spindle.service || fail "the unit is wrong"
for page in spindle spindle-serve spindle-pool-create spindle-protect-run; do
    [ -e "$root/usr/share/man/man1/$page.1.gz" ] || fail "no manual page $page"
done
say "installed"

cat > "$root/etc/spindle/site.toml" <<END
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
END
# As the unit does it: the folder, the user, no capabilities. Not in a function, whose shell would take the signals.
in_root install -d -o spindle -g spindle -m 0750 /var/lib/spindle
chroot "$root" setpriv --reuid=spindle --regid=spindle --init-groups --no-new-privs --bounding-set=-all \
    env STATE_DIRECTORY=/var/lib/spindle /usr/bin/spindle serve /etc/spindle/site.toml > "$root/tmp/log" 2>&1 &
server=$!
tries=0
until grep -q '^serving;' "$root/tmp/log"; do
    kill -0 $server 2>/dev/null || fail "the server ended"
    tries=$((tries + 1))
    [ $tries -lt 600 ] || fail "the server does not serve"
    sleep 0.1
done
say "served"

code=0
in_root spindle prove "nbd://127.0.0.1:$port/store" --size 64MiB --cache 16MiB --duration 5s --report /tmp/report || code=$?
# On a busy machine a limit may be missed; the verdict counts, and what is damaged ends with a verdict too.
[ $code -le 1 ] || fail "prove has no verdict"
[ -s "$root/tmp/report.json" ] || fail "prove wrote no report"
say "proven (exit code $code)"

in_root dpkg --install /tmp/spindle.deb
kill -0 $server || fail "the upgrade ended the server"
say "upgraded, and the server serves"

kill -TERM $server
wait $server || fail "the server did not end well"
before=$(sums)
[ -n "$before" ] || fail "there are no pools to keep"
in_root dpkg --purge spindle | tee "$root/tmp/purge"
grep -q '/var/lib/spindle stays' "$root/tmp/purge" || fail "the purge does not say that pools stay"
[ "$(sums)" = "$before" ] || fail "the purge changed the pools"
[ ! -e "$root/usr/bin/spindle" ] || fail "the purge left the program"
[ ! -e "$root/etc/default/spindle" ] || fail "the purge left its configuration"
say "purged, and the pools are as they were"

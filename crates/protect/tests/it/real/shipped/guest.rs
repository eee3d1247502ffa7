//! QEMU's guest agent: the real one, for which the guest is a folder and one filesystem, and libvirt's and Proxmox's
//! commands, which are scripts here.
//!
//! The agent freezes every filesystem that it sees. It sees a memory filesystem as its root and the loop device of
//! the test: it starts only after a look at its table of mounts.

use super::{Cleanup, CopyCutter, LoopMount, expect_within, is_installed, round, script, shell, shipped};
use protect::backup::BackupLabel;
use std::{
    fs,
    path::Path,
    process::Command,
    rc::Rc,
    time::{Duration, Instant},
};
use world::real::{RealOptions, run};

const START: &str = r#"
mkdir ROOT; mount -t tmpfs tmpfs ROOT; cd ROOT; mkdir proc mnt old run etc
cp --parents -L $(command -v busybox) $(command -v qemu-ga) .
cp --parents -L $(ldd $(command -v busybox) $(command -v qemu-ga) | grep -o '/[^ :]*' | sort -u | grep '\.so') .
cp -L /etc/os-release etc/
mount --bind MOUNT mnt
cat > guest <<'E'
set -e
cd ROOT
busybox pivot_root . old
exec busybox chroot / busybox sh -ec '
busybox mount -t proc proc /proc
busybox umount -l /old
# Nothing of the machine is left to freeze.
kinds=$(busybox cut -d" " -f2,3 /proc/self/mounts | busybox sort | busybox tr "\n" " ")
[ "$kinds" = "/ tmpfs /mnt ext4 /proc proc " ] || { echo "mounts: $kinds" > /refusal; exit 1; }
exec qemu-ga -m unix-listen -p /agent -t /run -l /log
'
E
setsid unshare --mount --propagation private sh guest </dev/null >/dev/null 2>&1 &
echo $! > run/pid
"#;

const END: &str = "
fsfreeze -u MOUNT; kill $(cat ROOT/run/pid); sleep 0.3; umount ROOT/mnt; umount ROOT || umount -l ROOT
";

/// The real agent; its socket, and what ends it.
fn start_agent(mounted: &LoopMount) -> (String, Cleanup) {
    let root = mounted.folder().join("root").display().to_string();
    let mount = mounted.point().display().to_string();
    let fill = |text: &str| text.replace("ROOT", &root).replace("MOUNT", &mount);
    let cleanup = Cleanup::new(&fill(END));
    shell(&fill(START));
    let socket = format!("{root}/agent");
    let refusal = format!("{root}/refusal");
    expect_within(Duration::from_secs(10), "the agent listens", || {
        assert!(!Path::new(&refusal).exists(), "{}", fs::read_to_string(&refusal).unwrap());
        Path::new(&socket).exists()
    });
    (socket, cleanup)
}

#[test]
fn a_guest_is_frozen_by_its_agent_around_the_cut() {
    if !is_installed(&["qemu-ga", "socat", "busybox"]) {
        return;
    }
    let Some(mounted) = LoopMount::make("ext4") else { return };
    let mounted = Rc::new(mounted);
    let (socket, _cleanup) = start_agent(&mounted);
    run(7, RealOptions::default(), async |world| {
        let settings = shipped(mounted.folder(), "guest-fsfreeze", "", &["socket", &socket]);
        fs::write(mounted.point().join("file"), "not synced").unwrap();
        let cutter = CopyCutter::new(&mounted);
        let seen = Rc::clone(&mounted);
        cutter.meanwhile.replace(Some(Box::new(move || assert!(seen.is_frozen()))));
        let cut = cutter.cut.clone();
        let (outcome, runs) = round(&world, &settings, None, cutter).await;
        assert_eq!(outcome.label, Some(BackupLabel::Filesystem), "{outcome:?} {runs:?}");
        assert!(runs.iter().any(|run| run.output.contains("the agent froze 1 filesystems")), "{runs:?}");
        assert!(!mounted.is_frozen());
        let restored = mounted.mount_cut(&cut);
        assert_eq!(fs::read_to_string(restored.join("file")).unwrap(), "not synced");

        // The agent does not notice that somebody else thawed; its count tells.
        let cutter = CopyCutter::new(&mounted);
        let point = mounted.point();
        cutter.meanwhile.replace(Some(Box::new(move || {
            assert!(Command::new("fsfreeze").arg("-u").arg(point).status().unwrap().success());
        })));
        let (outcome, _) = round(&world, &settings, None, cutter).await;
        let Some(BackupLabel::Crash(reason)) = &outcome.label else { panic!("{outcome:?}") };
        assert!(reason.contains("it was not held"), "{reason}");

        // The watchdog thaws a guest that nobody else thaws.
        let began = Instant::now();
        let freeze = format!(
            "SPINDLE_SET=mail SPINDLE_POINT=b1 SPINDLE_PHASE=freeze SPINDLE_DEADLINE_MS=1500 \
             {}/start-guest-fsfreeze socket {socket}",
            mounted.folder().display()
        );
        shell(&freeze);
        assert!(mounted.is_frozen());
        expect_within(Duration::from_secs(10), "it thaws", || !mounted.is_frozen());
        assert!(began.elapsed() > Duration::from_millis(1400));
    });
}

/// A guest in a file: `thawed` or `frozen`, behind the commands of libvirt and of Proxmox.
const VIRSH: &str = r#"
for last; do :; done
case $last in
*get-osinfo*) echo '{"return":{"name":"SYSTEM","id":"SYSTEM"}}' ;;
*fsfreeze-status*) printf '{"return":"%s"}\n' "$(cat GUEST)" ;;
*fsfreeze-freeze*) echo frozen > GUEST; echo '{"return":2}' ;;
*fsfreeze-thaw*) echo thawed > GUEST; echo '{"return":2}' ;;
esac
"#;
const QM: &str = r#"
[ "$1 $2 $3" = "guest cmd 101" ] || exit 2
case $4 in
get-osinfo) printf '{\n   "id" : "debian"\n}\n' ;;
fsfreeze-status) cat GUEST ;;
fsfreeze-freeze) echo frozen > GUEST; echo COUNT ;;
fsfreeze-thaw) echo thawed > GUEST; echo COUNT ;;
esac
"#;

#[test]
fn the_label_of_a_guest_is_that_of_its_agent() {
    let folder = tempfile::tempdir().unwrap();
    let guest = folder.path().join("guest");
    let commands = folder.path().join("commands");
    fs::create_dir(&commands).unwrap();
    fs::write(&guest, "thawed\n").unwrap();
    fs::write(folder.path().join("image"), "").unwrap();
    let fill = |text: &str| text.replace("GUEST", &guest.display().to_string());
    let path = format!("export PATH={}:$PATH", commands.display());
    run(7, RealOptions::default(), async |world| {
        let check = async |arguments: &[&str]| {
            let settings = shipped(folder.path(), "guest-fsfreeze", &path, arguments);
            let (image, cut) = (folder.path().join("image"), folder.path().join("cut"));
            let cutter = CopyCutter { image, cut, meanwhile: Default::default() };
            let (outcome, _) = round(&world, &settings, None, cutter).await;
            assert_eq!(fs::read_to_string(&guest).unwrap(), "thawed\n", "{outcome:?}");
            match outcome.label {
                Some(BackupLabel::Crash(reason)) => reason,
                label => label.unwrap().to_string(),
            }
        };
        script(&commands.join("virsh"), &fill(VIRSH).replace("SYSTEM", "debian"));
        assert_eq!(check(&["virsh", "mailserver"]).await, "filesystem");
        script(&commands.join("virsh"), &fill(VIRSH).replace("SYSTEM", "mswindows"));
        assert_eq!(check(&["virsh", "mailserver"]).await, "application");
        script(&commands.join("virsh"), "echo 'error: Guest agent is not responding' >&2; exit 1");
        let reason = check(&["virsh", "mailserver"]).await;
        assert!(
            reason.ends_with("the agent of the guest mailserver does not tell whether it is frozen"),
            "{reason}"
        );
        script(&commands.join("qm"), &fill(QM).replace("COUNT", "3"));
        assert_eq!(check(&["qm", "101"]).await, "filesystem");
        script(&commands.join("qm"), &fill(QM).replace("COUNT", "0"));
        assert_eq!(check(&["qm", "101"]).await, "nothing was to be frozen");
        let refused = check(&["xl", "101"]).await;
        assert!(
            refused.contains("name virsh DOMAIN, qm VMID or socket PATH")
                || refused.contains("does not tell")
        );
    });
}

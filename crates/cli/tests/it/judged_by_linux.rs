//! Linux's own initiator (open-iscsi, the kernel's SCSI, udev, multipath), in an emulated guest: in full runs.
//!
//! Emulation is slow: it judges whether things are right, never how fast they are.

use crate::{
    guest::Guest,
    spindle::{Bench, PROGRAM, signal},
};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

const TARGET: &str = "iqn.2026-11.org.spindle:mail";
pub const PORTAL: &str = "10.9.0.1:3260";
/// The guest's, and the target's.
const SECRETS: [&str; 2] = ["a-secret-of-guests", "a-secret-of-arrays"];

/// The program in the guest's network, with its output in the log.
pub fn served_beside(bench: &Bench, guest: &Guest, arguments: &[&str]) -> Child {
    let mut command = guest.beside(PROGRAM);
    let log = fs::File::options().create(true).append(true).open(bench.path("log")).unwrap();
    command.args(arguments).current_dir(bench.path("")).stdout(log.try_clone().unwrap()).stderr(log);
    command.stdin(Stdio::null()).spawn().unwrap()
}

/// Further targets: with them the answer to SendTargets is longer than open-iscsi takes at once.
const OTHER_TARGETS: usize = 300;

/// A volume as unit 0 and a file as unit 5 of one target.
const ONE_TARGET: [&str; 4] = ["pool/store", "disk.img", "--access", "access.toml"];

/// The program, serving; killed when dropped.
pub struct Served(Child);

impl Served {
    pub fn begin(bench: &Bench, guest: &Guest, exports: &[&str]) -> Self {
        let before = said(bench).matches("serving;").count();
        let arguments = [&["export", "--iscsi", "0.0.0.0:3260"], exports].concat();
        let mut child = served_beside(bench, guest, &arguments);
        let begun = Instant::now();
        while said(bench).matches("serving;").count() == before {
            let has_ended = child.try_wait().unwrap().is_some();
            assert!(!has_ended && begun.elapsed() < Duration::from_secs(60), "{}", said(bench));
            thread::sleep(Duration::from_millis(20));
        }
        Self(child)
    }

    /// Ends it as Ctrl-C does, and waits until it has.
    pub fn end(mut self) {
        signal(&self.0, "INT");
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn said(bench: &Bench) -> String {
    fs::read_to_string(bench.path("log")).unwrap_or_default()
}

fn prepare(bench: &Bench) {
    for arguments in [
        &["pool", "create", "pool", "--drives", "2", "--size", "1GiB"][..],
        &["volume", "create", "pool/store", "512MiB"],
    ] {
        let made = bench.run(arguments);
        assert_eq!(made.code, Some(0), "{}", made.stderr);
    }
    bench.make_file("disk.img", &vec![0; 8 << 20]);
    for (name, secret) in ["guest.secret", "array.secret"].into_iter().zip(SECRETS) {
        let path = bench.make_file(name, secret.as_bytes());
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    bench.make_file(
        "access.toml",
        b"[own]\nuser = 'array'\nsecret-file = 'array.secret'\n\
        [[target]]\nname = 'mail'\nunits = ['store', { export = 'disk.img', lun = 5 }]\n\
        [[initiator]]\nname = 'iqn.2026-11.test.guest:1'\nuser = 'guest'\nsecret-file = 'guest.secret'\nuses = ['mail']\n",
    );
}

/// Changes a node record.
fn update(guest: &mut Guest, portal: &str, settings: &[(&str, &str)]) {
    for (name, value) in settings {
        guest.must(&format!("iscsiadm -m node -T {TARGET} -p {portal} -o update -n '{name}' -v '{value}'"));
    }
}

fn log_in(portal: &str) -> String {
    format!("iscsiadm -m node -T {TARGET} -p {portal} -l && sleep 1 && udevadm settle")
}

fn log_out(portal: &str) -> String {
    format!("iscsiadm -m node -T {TARGET} -p {portal} -u")
}

/// The guest's device of a unit, over its first path.
fn device(guest: &mut Guest, unit: u32) -> String {
    let link = format!("/dev/disk/by-path/ip-{PORTAL}-iscsi-{TARGET}-lun-{unit}");
    guest
        .must(&format!(
            "for i in 1 2 3 4 5 6 7 8 9; do [ -e {link} ] && break; sleep 1; done; readlink -f {link}"
        ))
        .trim()
        .to_owned()
}

/// The guest, in full runs.
pub fn boot() -> Option<Guest> {
    if std::env::var_os("SPINDLE_FULL").is_none() {
        println!("skipped: Linux in a guest judges full runs alone (cargo xtask test --full)");
        return None;
    }
    Guest::boot()
}

#[test]
fn open_iscsi_finds_its_target_and_keeps_its_data_while_servers_are_killed_and_paths_are_cut() {
    let Some(mut guest) = boot() else { return };
    let bench = Bench::new();
    prepare(&bench);
    let served = Served::begin(&bench, &guest, &ONE_TARGET);
    discovery_and_chap(&mut guest);
    identity_and_thinness(&mut guest);
    let served = filesystem_across_a_kill(&bench, &mut guest, served);
    multipath_with_a_path_cut(&mut guest);
    drop(served);
}

fn discovery_and_chap(guest: &mut Guest) {
    let find = format!("iscsiadm -m discovery -t st -p {PORTAL}");
    guest.must_not(&find);
    let [own, target] = SECRETS;
    guest.must(&format!(
        "for line in 'authmethod = CHAP' 'username = guest' 'password = {own}'; do \
        echo discovery.sendtargets.auth.$line >> /etc/iscsi/iscsid.conf; done"
    ));
    // It listens at every address: the guest hears of the one it has asked.
    let found = guest.must(&find);
    assert!(found.contains(&format!("{PORTAL},1 {TARGET}")), "{found}");
    guest.must_not(&log_in(PORTAL));
    let auth = |name: &str| format!("node.session.auth.{name}");
    let (method, name, secret) = (auth("authmethod"), auth("username"), auth("password"));
    update(guest, PORTAL, &[(&method, "CHAP"), (&name, "guest"), (&secret, "not-the-secret-it-is")]);
    guest.must_not(&log_in(PORTAL));
    let (name_in, secret_in) = (auth("username_in"), auth("password_in"));
    update(guest, PORTAL, &[(&secret, own), (&name_in, "array"), (&secret_in, "not-the-secret-it-is")]);
    guest.must_not(&log_in(PORTAL));
    let digest = |part: &str| format!("node.conn[0].iscsi.{part}Digest");
    update(
        guest,
        PORTAL,
        &[(&secret_in, target), (&digest("Header"), "CRC32C"), (&digest("Data"), "CRC32C")],
    );
    guest.must(&log_in(PORTAL));
    let session = guest.must("iscsiadm -m session -P 2");
    assert_eq!(session.matches("Digest: CRC32C").count(), 2, "{session}");
}

fn identity_and_thinness(guest: &mut Guest) {
    let (store, disk) = (device(guest, 0), device(guest, 5));
    assert_ne!(store, disk);
    let mut names = Vec::new();
    for device in [&store, &disk] {
        let page = guest.must(&format!("sg_vpd -p sn {device}"));
        let serial = page.split_whitespace().last().unwrap().to_owned();
        assert_eq!(serial.len(), 32, "{page}");
        let udev = guest.must(&format!("/lib/udev/scsi_id -g -u {device}")).trim().to_owned();
        assert_eq!(udev, format!("33{}", &serial[17..]), "udev keys on the locally assigned name");
        names.push(udev);
    }
    assert_ne!(names[0], names[1]);
    let name = store.rsplit('/').next().unwrap();
    let thin = guest.must(&format!("cat /sys/block/{name}/device/scsi_disk/*/thin_provisioning"));
    assert_eq!(thin.trim(), "1", "the kernel takes a volume for thin");
    let wwid = guest.must(&format!("cat /sys/block/{name}/device/wwid"));
    println!("the kernel's wwid: {}", wwid.trim());
}

/// XFS is made, filled, found again after a new login, and written by fio while the server is killed.
fn filesystem_across_a_kill(bench: &Bench, guest: &mut Guest, served: Served) -> Served {
    let store = device(guest, 0);
    guest.must(&format!("mkfs.xfs -f -q {store} && mount -t xfs {store} /mnt"));
    guest.must("for i in 1 2 3 4; do dd if=/dev/urandom of=/mnt/f$i bs=1M count=4; done; sync; cd /mnt && md5sum f* > /sums; cd /");
    guest.must(&format!("umount /mnt && {} && {}", log_out(PORTAL), log_in(PORTAL)));
    let store = device(guest, 0);
    guest.must(&format!("mount -t xfs {store} /mnt && cd /mnt && md5sum -c /sums; cd /"));
    guest.must(
        "fio --name=v --filename=/mnt/fio.dat --size=16m --rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=8 \
        --rate_iops=250 --verify=crc32c --do_verify=1 --verify_fatal=1 > /fio.log 2>&1 & echo $! > /fio.pid; sleep 5",
    );
    drop(served);
    guest.must("sleep 5");
    let served = Served::begin(bench, guest, &ONE_TARGET);
    let fio = guest.must("while kill -0 $(cat /fio.pid) 2>/dev/null; do sleep 1; done; cat /fio.log");
    assert!(fio.contains("err= 0"), "{fio}");
    guest.must("umount /mnt");
    let repaired = guest.must(&format!("xfs_repair -n {store}"));
    assert!(!repaired.to_lowercase().contains("bad"), "{repaired}");
    served
}

/// Two paths to one disk are one map; I/O goes on while one of them is cut.
fn multipath_with_a_path_cut(guest: &mut Guest) {
    const OTHER: &str = "10.9.1.1:3260";
    guest.must(&log_out(PORTAL));
    guest.must(&format!("iscsiadm -m discovery -t st -p {OTHER}"));
    let [own, _] = SECRETS;
    for portal in [PORTAL, OTHER] {
        update(
            guest,
            portal,
            &[
                ("node.session.auth.authmethod", "CHAP"),
                ("node.session.auth.username", "guest"),
                ("node.session.auth.password", own),
                ("node.session.timeo.replacement_timeout", "3"),
                ("node.conn[0].timeo.noop_out_interval", "2"),
                ("node.conn[0].timeo.noop_out_timeout", "2"),
            ],
        );
    }
    guest.must(
        "printf 'defaults {\\n find_multipaths no\\n polling_interval 2\\n path_grouping_policy multibus\\n no_path_retry 30\\n}\\n' \
        > /etc/multipath.conf; multipathd -d -s > /multipathd.log 2>&1 & sleep 1",
    );
    guest.must(&format!("{} && {}", log_in(PORTAL), log_in(OTHER)));
    let shown = guest.must("sleep 8; multipath -ll | tr -s ' '");
    assert_eq!(shown.matches("active ready running").count(), 4, "two maps of two paths: {shown}");
    let store =
        guest.must("multipath -ll | awk '/^3/ { name = $1 } /size=512M/ { print name }'").trim().to_owned();
    guest.must(&format!("mount -t xfs /dev/mapper/{store} /mnt"));
    guest.must(
        "fio --name=m --filename=/mnt/multi.dat --size=16m --rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=8 \
        --rate_iops=200 --verify=crc32c --do_verify=1 --verify_fatal=1 > /fio.log 2>&1 & echo $! > /fio.pid; sleep 4",
    );
    guest.must("ip link set eth1 down");
    let cut = guest.must("sleep 12; multipath -ll | tr -s ' '");
    assert!(cut.contains("failed faulty") && cut.contains("active ready running"), "{cut}");
    guest.must("ip link set eth1 up; ip addr add 10.9.1.2/24 dev eth1 2>/dev/null; sleep 20");
    let fio = guest.must("while kill -0 $(cat /fio.pid) 2>/dev/null; do sleep 1; done; cat /fio.log");
    assert!(fio.contains("err= 0"), "{fio}");
    let healed = guest.must("multipath -ll | tr -s ' '");
    assert_eq!(healed.matches("active ready running").count(), 4, "{healed}");
    guest.must("umount /mnt");
}

/// Serves three disks of 256 MiB, and those others. The guest gets the program by a fourth disk. The targets of the three.
fn serve_disks(bench: &Bench, guest: &mut Guest, others: &[String]) -> (Served, Vec<String>) {
    for name in ["one.img", "two.img", "three.img"] {
        fs::File::create(bench.path(name)).unwrap().set_len(256 << 20).unwrap();
    }
    let mut program = fs::read(PROGRAM).unwrap();
    let whole_blocks = program.len().next_multiple_of(1 << 20);
    program.resize(whole_blocks, 0);
    bench.make_file("program", &program);
    for name in others {
        bench.make_file(name, &[0; 4096]);
    }
    let mut exports = vec!["one.img", "two.img", "three.img", "program"];
    exports.extend(others.iter().map(String::as_str));
    let served = Served::begin(bench, guest, &exports);
    let found = guest.must(&format!("iscsiadm -m discovery -t st -p {PORTAL}"));
    let targets: Vec<&str> = found.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(targets.len(), 4 + others.len(), "{found}");
    let targets = targets.into_iter().filter(|name| !name.contains("other")).map(str::to_owned);
    let (programs, disks): (Vec<String>, Vec<String>) = targets.partition(|name| name.contains("program"));
    let program = log_in_to(guest, &programs[0]);
    guest.must(&format!(
        "dd if={program} of=/spindle bs=1M 2>/dev/null && chmod +x /spindle && /spindle --version"
    ));
    (served, disks)
}

/// The guest's device of a target, after a login.
fn log_in_to(guest: &mut Guest, target: &str) -> String {
    guest.must(&format!("iscsiadm -m node -T {target} -p {PORTAL} -l && sleep 2 && udevadm settle"));
    let link = format!("/dev/disk/by-path/ip-{PORTAL}-iscsi-{target}-lun-0");
    guest.must(&format!("readlink -f {link}")).trim().to_owned()
}

/// Disks that the kernel and udev have named: files served to the guest, in which the program itself makes a pool of them.
#[test]
fn a_pool_on_disks_that_linux_names_finds_them_under_other_names_and_says_that_they_are_thin() {
    let Some(mut guest) = boot() else { return };
    let bench = Bench::new();
    let others: Vec<String> = (0..OTHER_TARGETS).map(|at| format!("other-{at:0>60}")).collect();
    let (served, mut disks) = serve_disks(&bench, &mut guest, &others);
    let names: Vec<String> = disks.iter().map(|target| log_in_to(&mut guest, target)).collect();
    let devices: String = names.iter().map(|name| format!(" --device {name}")).collect();
    let made = guest.must(&format!("NO_COLOR=1 /spindle pool create /mail{devices}"));
    assert_eq!(made.matches("is thin provisioned").count(), 3, "{made}");
    assert_eq!(made.matches("SPINDLE EXPORT, serial ").count(), 3, "named by what they are: {made}");
    guest.must("/spindle volume create /mail/store 64MiB");

    for target in &disks {
        guest.must(&format!("iscsiadm -m node -T {target} -p {PORTAL} -u"));
    }
    disks.reverse();
    let other_names: Vec<String> = disks.iter().map(|target| log_in_to(&mut guest, target)).collect();
    assert_ne!(
        names,
        other_names.iter().rev().cloned().collect::<Vec<_>>(),
        "the kernel has given other names"
    );
    let shown = guest.must("NO_COLOR=1 /spindle pool show /mail && /spindle pool scrub /mail");
    println!("{made}\n{shown}");
    for name in &other_names {
        assert!(shown.contains(name.as_str()), "{name}: {shown}");
    }
    // One of them is not there any more: it is named by what it is.
    guest.must(&format!("iscsiadm -m node -T {} -p {PORTAL} -u", disks[0]));
    let shown = guest.must("NO_COLOR=1 /spindle pool show /mail");
    let missing =
        shown.lines().find(|line| line.contains("is not there")).unwrap_or_else(|| panic!("{shown}"));
    assert!(
        missing.contains("SPINDLE EXPORT, serial ") && missing.contains("last at /dev/disk/by-id/"),
        "{missing}"
    );
    drop(served);
}

/// The kernel takes a disk away under the program, whose pool the guest writes over its own target.
#[test]
fn a_disk_that_is_pulled_while_it_is_used_is_waited_for() {
    let Some(mut guest) = boot() else { return };
    let bench = Bench::new();
    let (served, disks) = serve_disks(&bench, &mut guest, &[]);
    let names: Vec<String> = disks.iter().map(|target| log_in_to(&mut guest, target)).collect();
    let devices: String = names.iter().map(|name| format!(" --device {name}")).collect();
    guest.must(&format!("/spindle pool create /mail{devices} && /spindle volume create /mail/store 64MiB"));
    let own = "127.0.0.1:3261";
    guest.must(&format!(
        "NO_COLOR=1 /spindle export /mail/store --iscsi {own} > /export.log 2>&1 & \
        for i in 1 2 3 4 5 6 7 8 9; do grep -q 'serving;' /export.log && break; sleep 1; done; \
        iscsiadm -m discovery -t st -p {own} && iscsiadm -m node -p {own} -l && sleep 2 && udevadm settle"
    ));
    let write = "dd if=/dev/urandom of=$(readlink -f /dev/disk/by-path/ip-127.0.0.1:3261-*-lun-0) bs=64k count=100 \
        oflag=direct";
    guest.must(write);
    let pulled = names[1].rsplit('/').next().unwrap();
    guest.must(&format!("{write} 2> /dev/null & echo 1 > /sys/block/{pulled}/device/delete; wait $!"));
    guest.must(&format!("{write} seek=200"));
    let said = guest.must("sleep 10; NO_COLOR=1 /spindle pool show /mail; cat /export.log");
    println!("{said}");
    assert!(said.contains("; the device was removed;"), "{said}");
    assert!(said.contains(" s, if no drive that is away comes back before,"), "{said}");
    assert!(said.contains("for drives that are away, and copies then"), "{said}");
    assert!(!said.contains("redundancy whole"), "no copies are made: {said}");
    drop(served);
}

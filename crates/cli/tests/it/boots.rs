//! A machine without disks boots from a volume: iPXE in the network card of an emulated machine, as docs/hosts.md says. Its
//! commands, its rows of the site file and its script are run as they are written there, but for the tables below.

use crate::{
    documents::{blocks_below, replaced},
    exported::is_here,
    guest::{self, GuestShell},
    judged_exports::until,
    pool_drives::done,
    serial_line::SerialLine,
    sites_served::Served,
    spindle::{Bench, PROGRAM, is_full_run},
};
use std::{
    fs,
    net::TcpListener,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

/// iPXE waits 2 s for a key and some seconds for DHCP; this machine may be busy.
const PATIENCE: Duration = Duration::from_secs(90);

/// 110 MB come over TFTP, in emulation: two minutes beside other work.
const LINUX_PATIENCE: Duration = Duration::from_secs(600);

/// Differences from the page's commands: the site lies in the bench, and no service manager runs it.
const COMMANDS: [(&str, &str); 4] = [
    ("sudo ", ""),
    ("/etc/spindle/", ""),
    // The service runs as this user; here it is the one who runs the tests.
    ("chown spindle ", "ls "),
    ("spindle export", "$PROGRAM export"),
];

/// The pool that the page's rows take for granted.
const POOL: &str = "[[group]]\nname = 'mail'\ndrives = 2\ndrive_gb = 0.25\n";

/// A boot sector in 16-bit code: reads sector 1 by INT 13h and prints its text on the serial line; then, for each byte
/// received, the sector of that number.
#[rustfmt::skip]
const BOOT_SECTOR: [u8; 118] = [
    0xfa,                               // 7c00  cli: SeaBIOS prints what it still has when it has the processor
    0x31, 0xc0,                         // 7c01  xor  ax, ax
    0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0, // 7c03  mov  ds, ax; mov es, ax; mov ss, ax
    0xbc, 0x00, 0x7c,                   // 7c09  mov  sp, 7c00
    0x88, 0x16, 0x59, 0x7c,             // 7c0c  mov  [drive], dl
    0xbe, 0x49, 0x7c,                   // 7c10  mov  si, packet
    0x8a, 0x16, 0x59, 0x7c,             // 7c13  mov  dl, [drive]
    0xb4, 0x42, 0xcd, 0x13,             // 7c17  mov  ah, 42; int 13: extended read
    0xbe, 0x00, 0x7e,                   // 7c1b  mov  si, 7e00
    0x73, 0x03,                         // 7c1e  jnc  7c23
    0xbe, 0x5a, 0x7c,                   // 7c20  mov  si, refusal
    0xac, 0x84, 0xc0, 0x74, 0x11,       // 7c23  lodsb; test al, al; jz 7c39
    0x88, 0xc3,                         // 7c28  mov  bl, al
    0xba, 0xfd, 0x03,                   // 7c2a  mov  dx, 3fd
    0xec, 0xa8, 0x20, 0x74, 0xfb,       // 7c2d  in   al, dx; test al, 20; jz 7c2d
    0x88, 0xd8, 0xb2, 0xf8, 0xee,       // 7c32  mov  al, bl; mov dl, f8; out dx, al
    0xeb, 0xea,                         // 7c37  jmp  7c23
    0xba, 0xfd, 0x03,                   // 7c39  mov  dx, 3fd
    0xec, 0xa8, 0x01, 0x74, 0xfb,       // 7c3c  in   al, dx; test al, 1; jz 7c3c
    0xb2, 0xf8, 0xec,                   // 7c41  mov  dl, f8; in al, dx
    0xa2, 0x51, 0x7c,                   // 7c44  mov  [number], al
    0xeb, 0xc7,                         // 7c47  jmp  7c10
    // packet: 16 bytes, one sector to 0000:7e00, its number
    16, 0, 1, 0, 0x00, 0x7e, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
    0x80,                               // drive
    // refusal
    b't', b'h', b'e', b' ', b's', b'e', b'c', b't', b'o', b'r', b' ', b'c', b'a', b'n', b'n', b'o', b't', b' ', b'b', b'e', b' ',
    b'r', b'e', b'a', b'd', b'\r', b'\n', 0,
];

/// The text of a sector, as the machine prints it.
fn text_of_sector(number: u64) -> String {
    format!("sector {number} of the volume\n")
}

/// A disk of 16 MiB with the boot sector and 100 sectors of text.
fn disk_image() -> Vec<u8> {
    let mut image = vec![0; 16 << 20];
    image[..BOOT_SECTOR.len()].copy_from_slice(&BOOT_SECTOR);
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
    for number in 1..100 {
        let text = text_of_sector(number).replace('\n', "\r\n");
        let start = 512 * number as usize;
        image[start..start + text.len()].copy_from_slice(text.as_bytes());
    }
    image
}

/// An emulated machine that boots from its network alone; killed when dropped.
struct Machine(Child);

/// Starts one with a script for its iPXE, and this memory in MiB. 192.0.2.10 is this host to it.
fn start(bench: &Bench, script: &str, memory: &str) -> (Machine, SerialLine) {
    bench.make_folder("tftp");
    bench.make_file("tftp/boot.ipxe", script.as_bytes());
    let mut qemu = Command::new("qemu-system-x86_64");
    // Without graphics SeaBIOS prints on the serial line, and iPXE through it.
    qemu.args([
        "-M",
        "pc,graphics=off",
        "-accel",
        "tcg,thread=multi",
        "-cpu",
        "max",
        "-smp",
        "2",
        "-m",
        memory,
    ]);
    qemu.args(["-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-boot", "n"]);
    let network = format!(
        "user,id=net,net=192.0.2.0/24,host=192.0.2.10,tftp={},bootfile=boot.ipxe",
        bench.path("tftp").display()
    );
    qemu.args(["-device", "virtio-net-pci,netdev=net", "-netdev", &network]);
    qemu.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut qemu = qemu.spawn().unwrap();
    let serial = SerialLine::of(&mut qemu);
    (Machine(qemu), serial)
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Has the booted machine read a sector.
#[track_caller]
fn read_sector(serial: &mut SerialLine, number: u8) {
    serial.write(&[number]);
    expect_sector(serial, number.into());
}

/// The text of a sector comes. What the firmware has printed before may come late.
#[track_caller]
fn expect_sector(serial: &mut SerialLine, number: u64) {
    serial.read_until(&text_of_sector(number), PATIENCE);
}

/// Runs commands of the page in the bench.
#[track_caller]
fn run(bench: &Bench, commands: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-euc", commands]).current_dir(bench.path("")).env("PROGRAM", PROGRAM);
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{commands}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A server at a port of its own, with the page's rows and the image on its volume; and the page's script for it.
fn served(bench: &Bench) -> (Served, String) {
    let heading = "## Boot from a volume";
    let [secrets, image] = &blocks_below("docs/hosts.md", heading, "sh")[..] else { panic!("two blocks") };
    let [rows] = &blocks_below("docs/hosts.md", heading, "toml")[..] else { panic!("one block") };
    let [script] = &blocks_below("docs/hosts.md", heading, "ipxe")[..] else { panic!("one block") };
    run(bench, &replaced(secrets, &COMMANDS));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let serve = format!("iscsi = '127.0.0.1:{port}'\nnbd = 'unix:socket'");
    let rows = replaced(rows, &[("iscsi = \"192.0.2.10:3260\"\nnbd = \"127.0.0.1:10809\"", &serve)]);
    bench.make_file("site.toml", format!("{POOL}{rows}").as_bytes());
    let served = Served::begin(bench);
    bench.make_file("disk.img", &disk_image());
    run(bench, "qemu-img convert -O qcow2 disk.img disk.qcow2");
    let reload = format!("'{PROGRAM}' apply site.toml --state state > reloaded");
    let uri = format!("'{}'", served.uri("/web1?socket=socket"));
    run(
        bench,
        &replaced(image, &[("sudo systemctl reload spindle", &reload), ("nbd://127.0.0.1/web1", &uri)]),
    );
    let secret = |name: &str| fs::read_to_string(bench.path(name)).unwrap().trim().to_owned();
    let [own, array] = ["web1.secret", "array.secret"].map(secret);
    let pairs = [("ARRAY_SECRET", &*array), ("SECRET", &own), (":3260:", &format!(":{port}:"))];
    (served, replaced(script, &pairs))
}

/// True if QEMU is there; its package brings iPXE.
fn qemu_is_here() -> bool {
    is_here("qemu-system-x86_64", "qemu-system-x86") && is_here("qemu-img", "qemu-utils")
}

#[test]
fn a_machine_without_disks_waits_for_its_server_boots_and_reads_on_after_restarts() {
    if !qemu_is_here() {
        return;
    }
    let bench = Bench::new();
    let (served, script) = served(&bench);
    // The machine is there before the server.
    served.end();
    let (_machine, mut serial) = start(&bench, &script, "64");
    serial.read_until("Could not open SAN device: ", PATIENCE);
    let served = Served::begin(&bench);
    serial.read_until("Registered SAN device 0x80\n", PATIENCE);
    expect_sector(&mut serial, 1);
    read_sector(&mut serial, 99);
    // A restart that the machine does not notice before it reads again, and one that it waits for.
    served.end();
    let served = Served::begin(&bench);
    read_sector(&mut serial, 7);
    served.end();
    serial.write(&[8]);
    thread::sleep(Duration::from_secs(2));
    let _served = Served::begin(&bench);
    expect_sector(&mut serial, 8);
}

#[test]
fn a_machine_that_may_not_boot_reads_why_and_so_does_the_administrator() {
    if !qemu_is_here() || !is_full_run("a list of boots that are refused") {
        return;
    }
    let bench = Bench::new();
    let (_served, script) = served(&bench);
    // The script as it is but for one thing; all of it in one boot.
    let value = |key: &str| script.lines().find(|line| line.starts_with(&format!("set {key} "))).unwrap();
    let attempt = |name: &str, from: &str, to: &str| {
        let once = [("#!ipxe\n", ""), (":again\n", ""), ("||\nsleep 5\ngoto again\n", "|| echo\n")];
        format!("echo attempt {name}\n{}", replaced(&replaced(&script, &once), &[(from, to)]))
    };
    let script = [
        "#!ipxe\n".to_owned(),
        attempt("secret", value("password"), "set password not-the-secret-1"),
        attempt("stranger", ":web1\nset username", ":stranger\nset username"),
        attempt("target", "spindle:web1", "spindle:mail"),
        attempt("unit", ":0:iqn", ":7:iqn"),
        attempt("array", value("reverse-password"), "set reverse-password not-the-secret-1"),
        attempt("none", "set username web1\n", "echo as it is\n"),
    ];
    let (_machine, mut serial) = start(&bench, &script.concat(), "64");
    // Events of iSCSI, which name the machine's address.
    let count = |event: &str| {
        let events = done(&bench.run(&["event", "--state", "state"]));
        events.lines().filter(|line| line.contains(" 127.0.0.1:") && line.contains(event)).count()
    };
    for (name, reason, event) in [
        ("secret", "Operation not permitted", "login refused: authentication failed (status 0x0201)"),
        ("stranger", "Operation not permitted", "login refused: initiator not authorized (status 0x0202)"),
        ("target", "No such device", "login refused: target not found (status 0x0203)"),
        ("unit", "Input/output error", "iqn.2026-11.org.example:web1 uses iqn.2026-11.org.spindle:web1"),
        ("array", "Permission denied", " is done"),
    ] {
        serial.read_until(&format!("attempt {name}\n"), PATIENCE);
        let said = serial.read_until(" (http", PATIENCE);
        assert!(said.ends_with(&format!("Could not open SAN device: {reason}")), "{name}: {said}");
        until(event, || count(event) > 0);
    }
    until("two connections are done: without the unit, and where the machine broke off", || {
        count(" is done") == 2
    });
    serial.read_until("Registered SAN device 0x80\n", PATIENCE);
    expect_sector(&mut serial, 1);
}

/// The whole way, in full runs: the Linux that such a machine boots finds its volume by what iPXE leaves it.
#[test]
fn linux_takes_name_secrets_and_target_from_ipxe_and_logs_in() {
    if !qemu_is_here() || !is_full_run("Linux booted by iPXE") {
        return;
    }
    let Some(guest) = guest::folder() else { return };
    let bench = Bench::new();
    let (_served, script) = served(&bench);
    // Its kernel comes over TFTP: there is no system on the volume.
    let (before, after) = script.split_once(":again\nsanboot ").unwrap();
    let uri = after.split(' ').next().unwrap();
    let boot = "kernel vmlinuz console=ttyS0 panic=-1 loglevel=3 mitigations=off initrd=initrd.img\ninitrd initrd.img\nboot\n";
    bench.make_folder("tftp");
    for file in ["vmlinuz", "initrd.img"] {
        std::os::unix::fs::symlink(guest.join(file), bench.path("tftp").join(file)).unwrap();
    }
    let (_machine, serial) = start(&bench, &format!("{before}sanhook {uri}\n{boot}"), "1024");
    let mut shell = GuestShell::of(serial);
    shell.await_boot(LINUX_PATIENCE);
    let [log_in] = &blocks_below("docs/hosts.md", "### The system's own initiator", "sh")[..] else {
        panic!("one block")
    };
    shell.must("ip addr flush dev eth0 && modprobe iscsi_ibft");
    shell.must("ip addr add $(cat /sys/firmware/ibft/ethernet0/ip-addr)/24 dev eth0");
    let said = shell.must(&format!("(set -e; {log_in})"));
    assert!(said.contains("node.name = iqn.2026-11.org.spindle:web1"), "{said}");
    assert!(said.contains("node.session.auth.username_in = array"), "{said}");
    let disk = "/dev/disk/by-path/ip-192.0.2.10:*-iscsi-iqn.2026-11.org.spindle:web1-lun-0";
    let sector = shell.must(&format!(
        "sleep 2; udevadm settle; dd if=$(readlink -f {disk}) bs=512 skip=5 count=1 2> /dev/null | head -n 1"
    ));
    assert_eq!(sector.trim(), text_of_sector(5).trim());
    shell.must(&format!("disk=$(readlink -f {disk}) && mkfs.ext4 -q -F $disk && mount $disk /mnt"));
    shell.must("touch /mnt/file && umount /mnt");
}

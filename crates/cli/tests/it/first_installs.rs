//! A first installation by the documents alone, in full runs: what docs/install.md says for the server, in a clean root, and what
//! `spindle setup` prints for the host, in the emulated Debian. Commands are counted, and the time is taken.

use crate::{
    clean_root::CleanRoot,
    documents::blocks_below,
    guest::Guest,
    judged_by_linux::boot,
    judged_exports::until,
    setups::script_of,
    spindle::{Bench, signal},
    storage::LoopDevice,
};
use std::{
    fs,
    process::Child,
    time::{Duration, Instant},
};

/// From the first command to a file on a mounted filesystem.
const TIME_MAX: Duration = Duration::from_secs(15 * 60);
/// Lines that a person types at both machines; a script that is pasted is one.
const COMMANDS_MAX: usize = 5;

/// Where the commands of docs/install.md are not run as they stand.
const REPLACED: [(&str, Replacement); 3] = [
    ("sudo spindle setup", Replacement::AtTerminal),
    ("sudo systemctl enable --now spindle", Replacement::Service),
    ("sudo spindle event test", Replacement::LeftOut("no mail address is given")),
];

#[derive(Clone, Copy)]
enum Replacement {
    /// Disks are named, because those of the test are loop devices, which are not offered; the other answers are typed.
    AtTerminal,
    /// The test starts the service as its unit does: there is no systemd.
    Service,
    LeftOut(&'static str),
}

/// The service; killed when dropped.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An administrator at both machines.
struct Administrator<'a> {
    bench: &'a Bench,
    root: CleanRoot,
    disks: &'a [LoopDevice],
    /// Of the mail host, as its file says it.
    iqn: String,
    service: Option<Service>,
    typed: usize,
    /// The output of `spindle setup`.
    set_up: String,
}

impl Administrator<'_> {
    /// Runs a line of docs/install.md.
    fn type_line(&mut self, line: &str) {
        let command = line.split(" #").next().unwrap().trim();
        let replacement = REPLACED.iter().find(|(from, _)| *from == command).map(|(_, how)| *how);
        if let Some(Replacement::LeftOut(why)) = replacement {
            println!("note: left out: {command}: {why}");
            return;
        }
        self.typed += 1;
        match replacement {
            Some(Replacement::AtTerminal) => self.set_up(),
            Some(Replacement::Service) => self.start_service(),
            Some(Replacement::LeftOut(_)) | None => {
                let output = self.root.shell(command);
                let said = String::from_utf8_lossy(&output.stdout).into_owned();
                assert!(
                    output.status.success(),
                    "{command}: {said}{}",
                    String::from_utf8_lossy(&output.stderr)
                );
            }
        }
    }

    fn set_up(&mut self) {
        let names: Vec<&str> = self.disks.iter().map(|disk| disk.path().to_str().unwrap()).collect();
        let line = format!("sudo spindle setup --disks {}", names.join(","));
        let host = format!("{}=mail1", self.iqn);
        let output = self.root.at_terminal(self.bench, &line, &[&host, "192.0.2.10", "", "yes"]);
        self.set_up = String::from_utf8_lossy(&output.stdout).replace('\r', "");
        assert!(output.status.success(), "{}", self.set_up);
        // The unit does what setup says is next.
        assert!(self.set_up.contains("\n  systemctl enable --now spindle\n"), "{}", self.set_up);
    }

    fn start_service(&mut self) {
        let mut service = Service(self.root.start_service(self.bench));
        let said = || fs::read_to_string(self.bench.path("log")).unwrap();
        until("the service serves", || {
            assert!(service.0.try_wait().unwrap().is_none(), "{}", said());
            said().contains("\nserving;")
        });
        self.service = Some(service);
    }
}

/// Gives both machines the addresses of the documents.
fn give_addresses(guest: &mut Guest) {
    let given = guest.beside("ip").args(["addr", "add", "192.0.2.10/24", "dev", "tap0"]).status().unwrap();
    assert!(given.success());
    guest.must("ip addr add 192.0.2.11/24 dev eth0");
}

#[test]
fn disks_become_a_mounted_filesystem_of_a_host_by_the_documents_alone() {
    let Some(mut guest) = boot() else { return };
    give_addresses(&mut guest);
    let bench = Bench::new();
    let disks: Vec<LoopDevice> = (0..4).map_while(|_| LoopDevice::new(512 << 20)).collect();
    if disks.len() < 4 {
        return;
    }
    let [first, script, key] = &blocks_below("docs/install.md", "### First install", "sh")[..] else {
        panic!("three blocks: at a terminal, in a script, the recovery key")
    };
    assert!(script.starts_with("sudo spindle setup --disks free "), "not run: it would take this machine's");

    let begun = Instant::now();
    let name = guest.must("cat /etc/iscsi/initiatorname.iscsi");
    let iqn = name.trim().strip_prefix("InitiatorName=").unwrap().to_owned();
    let root = CleanRoot::make(&bench, &guest, &disks);
    let mut administrator = Administrator {
        bench: &bench,
        root,
        disks: &disks,
        iqn,
        service: None,
        typed: 1,
        set_up: String::new(),
    };
    first.lines().for_each(|line| administrator.type_line(line));
    let pasted = script_of(&administrator.set_up);
    println!("{}", guest.must(&pasted));
    administrator.typed += 1;
    guest.must(
        "echo a message > /srv/mail/store/message && sync && grep -x 'a message' /srv/mail/store/message",
    );
    let (took, typed) = (begun.elapsed(), administrator.typed);
    println!(
        "note: from disks to a file on a mounted filesystem of an emulated host: {:.0} s, {typed} commands typed, one of \
         them a paste of {} lines",
        took.as_secs_f64(),
        pasted.lines().count()
    );
    assert!(took <= TIME_MAX, "{took:?}");
    assert!(typed <= COMMANDS_MAX, "{typed} commands");

    key.lines().for_each(|line| administrator.type_line(line));
    assert!(!administrator.root.shell("test -e /var/lib/spindle/recovery-key").status.success());
    // The host starts again: what was pasted has made records and lines of fstab that bring the filesystems back.
    guest.must(
        "umount /srv/mail/store /srv/mail/log && iscsiadm -m node -u && ! ls /dev/disk/by-path/*spindle*",
    );
    guest.must("iscsiadm -m node -L automatic && sleep 2 && udevadm settle && mount -a");
    guest.must("grep -x 'a message' /srv/mail/store/message && umount /srv/mail/store /srv/mail/log");
    guest.must("iscsiadm -m node -u");
    let mut service = administrator.service.take().unwrap();
    signal(&service.0, "TERM");
    assert!(service.0.wait().unwrap().success());
}

//! Installations by the documents alone, as docs/install.md says them, in a clean root.
//!
//! Commands of a first installation are counted and timed, to a filesystem that a host has mounted: in full runs, because
//! that host is the emulated Debian.

use crate::{
    clean_root::CleanRoot,
    documents::blocks_below,
    guest::Guest,
    judged_by_linux::boot,
    judged_exports::until,
    setups::script_of,
    spindle::{Bench, signal},
    storage::{LoopDevice, may_mount},
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

/// Commands of docs/install.md that are not run as they stand.
const REPLACED: [(&str, Replacement); 10] = [
    ("sudo spindle setup", Replacement::AtTerminal),
    ("sudo systemctl enable --now spindle", Replacement::Service),
    ("sudo spindle event test", Replacement::LeftOut("no mail address is given")),
    ("sudo spindle advise --template | sudo tee /etc/spindle/site.toml", Replacement::Edited),
    ("sudo spindle apply /etc/spindle/site.toml --dry-run", Replacement::HasChanges),
    ("sudo systemctl start spindle", Replacement::Service),
    ("sudo systemctl reload spindle", Replacement::Reload),
    ("systemctl status spindle", Replacement::LeftOut("there is no systemd")),
    ("journalctl -u spindle", Replacement::LeftOut("there is no systemd")),
    ("sudo spindle top", Replacement::LeftOut("it runs until somebody ends it")),
];

#[derive(Clone, Copy)]
enum Replacement {
    /// Disks are named, because those of the test are loop devices, which are not offered; the other answers are typed.
    AtTerminal,
    /// The test starts the service as its unit does: there is no systemd.
    Service,
    /// The test sends the signal that the unit sends.
    Reload,
    /// As it stands; then the test edits the file.
    Edited,
    /// As it stands; it ends with 1, because there are changes.
    HasChanges,
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

impl<'a> Administrator<'a> {
    fn at(bench: &'a Bench, root: CleanRoot, disks: &'a [LoopDevice], iqn: String) -> Self {
        Self { bench, root, disks, iqn, service: None, typed: 0, set_up: String::new() }
    }

    /// Runs a line of docs/install.md.
    fn type_line(&mut self, line: &str) {
        let command = line.split(" #").next().unwrap().trim();
        let replacement = REPLACED.iter().find(|(from, _)| *from == command).map(|(_, how)| *how);
        if let Some(Replacement::LeftOut(why)) = replacement {
            println!("left out: {command}: {why}");
            return;
        }
        self.typed += 1;
        match replacement {
            Some(Replacement::AtTerminal) => self.set_up(),
            Some(Replacement::Service) => self.start_service(),
            Some(Replacement::Reload) => self.reload(),
            Some(Replacement::Edited) => {
                self.shell(command, 0);
                self.edit();
            }
            Some(Replacement::HasChanges) => self.shell(command, 1),
            Some(Replacement::LeftOut(_)) | None => self.shell(command, 0),
        }
    }

    /// Runs a command that ends with this code.
    fn shell(&self, command: &str, code: i32) {
        let output = self.root.shell(command);
        let [said, complaint] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        assert_eq!(output.status.code(), Some(code), "{command}: {said}{complaint}");
    }

    /// Puts a pool of the disks and a volume in place of the rows of the site file.
    fn edit(&self) {
        let names: Vec<String> =
            self.disks.iter().map(|disk| format!("'{}'", disk.path().display())).collect();
        let rows = format!(
            "[serve]\nnbd = 'none'\n[[group]]\nname = 'mail'\ndevices = [{}]\n\
             [[volume]]\nname = 'store'\ngroup = 'mail'\ngb = 0.1\n",
            names.join(", ")
        );
        self.shell(&format!("cat > /etc/spindle/site.toml <<'END'\n{rows}END"), 0);
    }

    fn reload(&self) {
        signal(&self.service.as_ref().expect("it was started").0, "HUP");
        until("the file is applied again", || {
            self.log().contains("\n/etc/spindle/site.toml: nothing to change\n")
        });
    }

    /// Output of the service.
    fn log(&self) -> String {
        fs::read_to_string(self.bench.path("log")).unwrap()
    }

    /// Ends the service as systemd does.
    fn end_service(&mut self) {
        let mut service = self.service.take().unwrap();
        signal(&service.0, "TERM");
        assert!(service.0.wait().unwrap().success(), "{}", self.log());
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
        until("the service serves", || {
            assert!(service.0.try_wait().unwrap().is_none(), "{}", self.log());
            self.log().contains("\nserving;")
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
    let root = CleanRoot::beside(&guest, &bench, &disks);
    let mut administrator = Administrator::at(&bench, root, &disks, iqn);
    // The name was read at the host.
    administrator.typed += 1;
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
    administrator.end_service();
}

#[test]
fn a_site_file_that_is_written_by_hand_is_served_by_the_service_as_the_document_says() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    let disks: Vec<LoopDevice> = (0..2).map_while(|_| LoopDevice::new(256 << 20)).collect();
    if disks.len() < 2 {
        return;
    }
    let [by_hand, later] = &blocks_below("docs/install.md", "### Or write the site file yourself", "sh")[..]
    else {
        panic!("two blocks: to the first start, and afterwards")
    };
    let root = CleanRoot::alone(&bench, &disks);
    let mut administrator = Administrator::at(&bench, root, &disks, String::new());
    by_hand.lines().chain(later.lines()).for_each(|line| administrator.type_line(line));
    let shown = administrator.root.shell("stat -c %U:%G:%a /etc/spindle/site.toml && spindle pool show mail");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.starts_with("root:spindle:640\n") && shown.contains("store"), "{shown}");
    administrator.end_service();
}

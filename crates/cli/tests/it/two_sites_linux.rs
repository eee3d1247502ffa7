//! A Linux host whose volume fails over: the kernel's initiator with a node record of each site, dm-multipath that queues, XFS,
//! fio. In full runs, in the emulated guest. Both sites and the witness are processes in its network.

use crate::{
    documents::{blocks_below, replaced},
    guest::Guest,
    judged_by_linux::{boot, served_beside},
    judged_exports::until,
    pool_drives::done,
    spindle::{Bench, json_of},
};
use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

const TARGET: &str = "iqn.2026-11.org.spindle:disks";
/// Portals of Boston and of Denver: one on each link of the guest.
const PORTALS: [&str; 2] = ["10.9.0.1:3260", "10.9.1.1:3260"];
/// Addresses by which the sites reach each other.
const LINKS: [&str; 2] = ["127.0.0.2:7789", "127.0.0.3:7789"];
const WITNESS: &str = "127.0.0.30:7790";
const ROWS: &str = "[[volume]]\nname = 'disk'\ngroup = 'mail'\ngb = 0.4\n\
                    [[target]]\nname = 'disks'\n[[target.unit]]\nnumber = 3\nvolume = 'mail/disk'\n\
                    [[initiator]]\nname = 'iqn.2026-11.test.guest:1'\nuses = ['disks']\n";

/// A site whose server runs in the guest's network; killed when it is dropped.
struct LinuxSite {
    bench: Bench,
    server: Option<Child>,
}

impl LinuxSite {
    fn begin(guest: &Guest, (name, at): (&str, usize), tables: &str) -> Self {
        let bench = Bench::new();
        let text = format!(
            "[serve]\nsite = '{name}'\nnbd = 'unix:socket'\niscsi = '{}'\n[[site]]\nname = '{name}'\n[replication]\nlisten = '{}'\n\
             [[group]]\nname = 'mail'\ndrives = 2\ndrive_gb = 0.9\n{tables}",
            PORTALS[at], LINKS[at]
        );
        bench.make_file("site.toml", text.as_bytes());
        let mut site = Self { bench, server: None };
        site.start(guest);
        site
    }

    fn start(&mut self, guest: &Guest) {
        let arguments = ["serve", "site.toml", "--state", "state", "--quiet"];
        self.server = Some(served_beside(&self.bench, guest, &arguments));
        let begun = Instant::now();
        while self.bench.run(&["dr", "status", "--state", "state"]).code == Some(2) {
            let log = std::fs::read_to_string(self.bench.path("log")).unwrap();
            assert!(begun.elapsed() < Duration::from_secs(60), "it is not ready: {log}");
            thread::sleep(Duration::from_millis(200));
        }
    }

    fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    fn verb(&self, verb: &str) {
        let words: Vec<&str> = verb.split(' ').chain(["--state", "state"]).collect();
        done(&self.bench.run(&words));
    }

    fn row(&self) -> serde_json::Value {
        let said = self.bench.run(&["dr", "status", "--state", "state", "--json"]);
        json_of(&said.stdout)["groups"][0].clone()
    }

    fn is(&self, role: &str, state: &str) -> bool {
        let row = self.row();
        row["role"] == role && row["state"] == state
    }

    /// The other site takes over if this one is lost now.
    fn is_protected(&self) -> bool {
        let row = self.row();
        row["state"] == "streaming" && row["is_alone"] == false && row["witness"]["takes_over"] == true
    }
}

impl Drop for LinuxSite {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The witness; killed when it is dropped.
struct Witness(Child);

impl Witness {
    fn begin(bench: &Bench, guest: &Guest) -> Self {
        let arguments = ["witness", WITNESS, "--state", "witness.db", "--json"];
        let mut command = guest.beside(crate::spindle::PROGRAM);
        command.args(arguments).current_dir(bench.path("")).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains(WITNESS), "{line}");
        Self(child)
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A group in sync with a witness.
fn pair(guest: &Guest) -> (LinuxSite, LinuxSite, Witness) {
    let boston = LinuxSite::begin(guest, ("boston", 0), ROWS);
    let denver = LinuxSite::begin(guest, ("denver", 1), "");
    let witness = Witness::begin(&boston.bench, guest);
    let token = boston.bench.run(&["dr", "token", "--state", "state"]);
    denver.bench.make_file("token", token.stdout.as_bytes());
    denver.verb(&format!("dr pair boston {} --pairing-token token", LINKS[0]));
    until("boston learns denver's name", || {
        boston.bench.run(&["dr", "status", "--state", "state"]).stdout.contains("denver: connected")
    });
    boston.verb(&format!(
        "dr create sg1 mail/disk --to denver --mode sync --hold 15s --auto --witness {WITNESS}"
    ));
    until("the first copy is complete", || boston.is("primary", "streaming"));
    until("denver could serve", || denver.row()["could_serve"]["could_serve"] == true);
    (boston, denver, witness)
}

/// One record of each site, and multipath that queues while no path is there: the commands of docs/hosts.md, as they stand.
fn connect(guest: &mut Guest) -> String {
    let commands = |language| blocks_below("docs/hosts.md", "## Linux", language);
    let [discover, set_times, log_in] = &commands("sh")[..] else { panic!("three blocks of commands") };
    let [configuration] = &commands("")[..] else { panic!("/etc/multipath.conf") };
    let (log_in, show) = log_in.split_once('\n').unwrap();
    let at = |portal: &str, commands: &str| replaced(commands, &[("TARGET", TARGET), ("PORTAL", portal)]);
    let host = PORTALS[0].split(':').next().unwrap();
    let found = guest.must(&replaced(discover, &[("192.0.2.10", host)]));
    for (number, portal) in (1..).zip(PORTALS) {
        assert!(found.contains(&format!("{portal},{number} {TARGET}")), "{found}");
        guest.must(&format!("(set -e; {})", at(portal, set_times)));
    }
    guest.must(&format!("cat > /etc/multipath.conf <<'END'\n{configuration}END"));
    guest.must("multipathd -d -s > /multipathd.log 2>&1 & sleep 1");
    for portal in PORTALS {
        guest.must(&format!("{} && sleep 1 && udevadm settle", at(portal, log_in)));
    }
    let shown = guest.must(&format!("sleep 8; {show}")).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(shown.matches("active ready running").count(), 2, "one map of two paths: {shown}");
    guest.must("multipath -ll | awk '/^3/ { print $1 }'").trim().to_owned()
}

fn begin_fio(guest: &mut Guest) {
    guest.must(
        "fio --name=v --filename=/mnt/fio.dat --size=12m --rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=4 \
        --rate_iops=60 --verify=crc32c --do_verify=1 --verify_fatal=1 > /fio.log 2>&1 & echo $! > /fio.pid; sleep 8",
    );
}

fn end_fio(guest: &mut Guest) {
    let fio = guest.must("while kill -0 $(cat /fio.pid) 2>/dev/null; do sleep 1; done; cat /fio.log");
    assert!(fio.contains("err= 0"), "{fio}");
    // Paths fail; the map and the filesystem on it must not.
    let said = guest.must("dmesg");
    let is_error = |line: &&str| line.contains("I/O error") || line.contains("hutting down");
    let errors: Vec<&str> = said.lines().filter(is_error).filter(|line| !line.contains(" dev sd")).collect();
    assert!(errors.is_empty(), "errors above the paths: {errors:?}");
}

#[test]
fn linux_keeps_a_filesystem_through_a_planned_move_a_kill_and_the_way_back() {
    let Some(mut guest) = boot() else { return };
    let (mut boston, denver, _witness) = pair(&guest);
    let map = connect(&mut guest);
    guest.must(&format!("mkfs.xfs -f -q /dev/mapper/{map} && mount -t xfs /dev/mapper/{map} /mnt"));
    guest.must("dd if=/dev/urandom of=/mnt/kept bs=1M count=4; sync; cd /mnt && md5sum kept > /sums; cd /");

    until("it is in sync", || boston.is_protected());
    begin_fio(&mut guest);
    boston.verb("failover sg1");
    until("denver serves", || denver.is("primary", "streaming"));
    end_fio(&mut guest);

    // Back while nobody writes.
    until("it is in sync", || denver.is_protected());
    denver.verb("failover sg1");
    until("boston serves", || boston.is("primary", "streaming"));

    until("it is in sync", || boston.is_protected());
    begin_fio(&mut guest);
    boston.kill();
    until("denver took over by itself", || denver.row()["serves"] == true);
    end_fio(&mut guest);

    boston.start(&guest);
    until("boston follows", || boston.is("secondary", "following"));
    until("it is in sync", || denver.is_protected());
    begin_fio(&mut guest);
    denver.verb("failover sg1");
    until("boston serves", || boston.is("primary", "streaming"));
    end_fio(&mut guest);

    guest.must("cd /mnt && md5sum -c /sums; cd /; umount /mnt");
    let repaired = guest.must(&format!("xfs_repair -n /dev/mapper/{map}"));
    assert!(!repaired.to_lowercase().contains("bad"), "{repaired}");
}

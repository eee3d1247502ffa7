//! A planned restart of a server with four pools, and moves of volumes between them, under I/O of Linux's initiator, in full runs:
//! no error, and a short wait.

use crate::{
    guest::Guest,
    judged_by_linux::{PORTAL, boot, served_beside},
    spindle::{Bench, json_of, signal},
};
use std::{
    fs,
    process::Child,
    thread,
    time::{Duration, Instant},
};

const POOLS: [&str; 4] = ["mail", "logs", "files", "backups"];
/// Longest time in which hosts are not served.
const GAP_MAX: Duration = Duration::from_secs(10);
/// Verified writes to each unit for 40 s; the restart comes in the middle.
const FIO: &str = "fio --output-format=json --output=/fio.json --rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=4 \
    --size=16m --time_based --runtime=40 --rate_iops=40 --verify=crc32c --do_verify=1 --verify_fatal=1 --verify_backlog=64";

/// `spindle serve`, killed when dropped.
struct Server<'a> {
    bench: &'a Bench,
    child: Child,
}

impl<'a> Server<'a> {
    fn start(bench: &'a Bench, guest: &Guest) -> Self {
        let lines = Self::lines(bench);
        let child = served_beside(bench, guest, &["serve", "site.toml", "--state", "state"]);
        let mut server = Self { bench, child };
        let begun = Instant::now();
        while Self::lines(bench) == lines {
            let has_ended = server.child.try_wait().unwrap().is_some();
            assert!(!has_ended && begun.elapsed() < Duration::from_secs(60), "{}", said(bench));
            thread::sleep(Duration::from_millis(10));
        }
        server
    }

    /// Starts of servers in the log.
    fn lines(bench: &Bench) -> usize {
        said(bench).matches("\nserving;").count()
    }

    /// Ends it as systemd does.
    fn end(&mut self) {
        signal(&self.child, "TERM");
        assert!(self.child.wait().unwrap().success(), "{}", said(self.bench));
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(bench: &Bench) -> String {
    fs::read_to_string(bench.path("log")).unwrap_or_default()
}

/// Four pools of two drives, a unit of each in a target of its own.
fn site() -> String {
    let pool = |name: &str| {
        format!(
            "[[group]]\nname = '{name}'\ndrives = 2\ndrive_gb = 0.4\n\
             [[volume]]\nname = 'disk-{name}'\ngroup = '{name}'\ngb = 0.1\n\
             [[target]]\nname = '{name}'\nopen = true\n[[target.unit]]\nnumber = 0\nvolume = '{name}/disk-{name}'\n"
        )
    };
    let pools: String = POOLS.into_iter().map(pool).collect();
    format!("[serve]\niscsi = '0.0.0.0:3260'\nnbd = 'none'\n{pools}")
}

/// The guest's device of each pool.
fn log_in(guest: &mut Guest) -> Vec<String> {
    guest.must(&format!(
        "iscsiadm -m discovery -t st -p {PORTAL} && iscsiadm -m node -p {PORTAL} -l && sleep 2 && udevadm settle"
    ));
    let device = |pool: &&str| {
        let path = format!("/dev/disk/by-path/ip-{PORTAL}-iscsi-iqn.2026-11.org.spindle:{pool}-lun-0");
        guest.must(&format!("readlink -f {path}")).trim().to_owned()
    };
    POOLS.iter().map(device).collect()
}

/// Writes each device, and verifies it.
fn begin_fio(guest: &mut Guest, devices: &[String]) {
    let jobs: String = POOLS
        .iter()
        .zip(devices)
        .map(|(pool, device)| format!(" --name={pool} --filename={device}"))
        .collect();
    guest.must(&format!("{FIO}{jobs} > /fio.log 2>&1 & echo $! > /fio.pid"));
}

/// Waits for fio, which has seen no error, and returns its longest I/O.
fn longest_io(guest: &mut Guest) -> Duration {
    let log = guest.must("while kill -0 $(cat /fio.pid) 2>/dev/null; do sleep 1; done; cat /fio.log");
    let answer = guest.must("cat /fio.json");
    let answer = json_of(&answer[answer.find('{').unwrap_or_else(|| panic!("{log}"))..]);
    let jobs = answer["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), POOLS.len());
    let mut longest = Duration::ZERO;
    for job in jobs {
        assert_eq!(job["error"], 0, "{log}{job}");
        assert!(job["read"]["total_ios"].as_u64().unwrap() > 100, "what was written is verified: {job}");
        for way in ["read", "write"] {
            longest = longest.max(Duration::from_nanos(job[way]["clat_ns"]["max"].as_u64().unwrap()));
        }
    }
    longest
}

fn check_dmesg(guest: &mut Guest) {
    let errors = guest.must("dmesg");
    let errors: Vec<&str> = errors.lines().filter(|line| line.contains("I/O error")).collect();
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn a_restart_of_a_server_with_four_pools_costs_hosts_seconds_and_no_error() {
    let Some(mut guest) = boot() else { return };
    let bench = Bench::new();
    bench.make_file("site.toml", site().as_bytes());
    let mut server = Server::start(&bench, &guest);
    let devices = log_in(&mut guest);
    begin_fio(&mut guest, &devices);
    guest.must("sleep 15");
    let begun = Instant::now();
    server.end();
    let ended = begun.elapsed();
    drop(server);
    let mut server = Server::start(&bench, &guest);
    let gap = begun.elapsed();
    let longest = longest_io(&mut guest);
    println!(
        "note: a restart with four pools: ended in {ended:.2?}, serves again {gap:.2?} after the signal; the longest I/O of an \
         emulated host took {longest:.2?}"
    );
    assert!(gap <= GAP_MAX, "{gap:?}");
    assert!(longest <= GAP_MAX, "{longest:?}");
    check_dmesg(&mut guest);
    guest.must("iscsiadm -m node -u");
    server.end();
}

#[test]
fn a_volume_that_moves_between_pools_costs_linux_seconds_and_no_error() {
    let Some(mut guest) = boot() else { return };
    let bench = Bench::new();
    bench.make_file("site.toml", site().as_bytes());
    let mut server = Server::start(&bench, &guest);
    let devices = log_in(&mut guest);
    begin_fio(&mut guest, &devices);
    guest.must("sleep 5");
    let socket = format!("unix:{}", bench.path("state/spindle.sock").display());
    for (from, to) in [("mail", "logs"), ("logs", "backups"), ("backups", "mail")] {
        let (from, to) = (format!("{from}/disk-mail"), format!("{to}/disk-mail"));
        let begun = Instant::now();
        let said = bench.run(&["volume", "move", &from, &to, "--json", "--server", &socket]);
        assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
        println!("note: {from} to {to} in {:.2?}: {}", begun.elapsed(), said.stdout.trim_end());
        guest.must("sleep 3");
    }
    let longest = longest_io(&mut guest);
    println!("note: the longest I/O of an emulated host while a volume moved three times took {longest:.2?}");
    assert!(longest <= GAP_MAX, "{longest:?}");
    check_dmesg(&mut guest);
    // A cluster's fence does not come along.
    let register = |key: &str, new: &str| {
        format!("sg_persist --out --register --param-rk={key} --param-sark={new} {}", devices[0])
    };
    guest.must(&register("0", "abc"));
    let verb = ["volume", "move", "mail/disk-mail", "logs/disk-mail", "--server", &socket];
    let refused = bench.run(&verb);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("registered for persistent reservations on it (1)"),
        "{}",
        refused.stderr
    );
    guest.must(&register("abc", "0"));
    assert_eq!(bench.run(&verb).code, Some(0));
    let session = guest.must("sleep 5; iscsiadm -m session -P 1");
    assert_eq!(session.matches("LOGGED IN").count(), POOLS.len(), "{session}");
    guest.must("iscsiadm -m node -u");
    server.end();
}

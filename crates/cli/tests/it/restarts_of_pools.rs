//! A planned restart of a server with four pools under I/O of Linux's initiator, in full runs: no error, and a short wait.

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

#[test]
fn a_restart_of_a_server_with_four_pools_costs_hosts_seconds_and_no_error() {
    let Some(mut guest) = boot() else { return };
    let bench = Bench::new();
    bench.make_file("site.toml", site().as_bytes());
    let mut server = Server::start(&bench, &guest);
    let devices = log_in(&mut guest);
    let jobs: String = POOLS
        .iter()
        .zip(&devices)
        .map(|(pool, device)| format!(" --name={pool} --filename={device}"))
        .collect();
    guest.must(&format!("{FIO}{jobs} > /fio.log 2>&1 & echo $! > /fio.pid; sleep 15"));
    let begun = Instant::now();
    server.end();
    let ended = begun.elapsed();
    drop(server);
    let mut server = Server::start(&bench, &guest);
    let gap = begun.elapsed();
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
    println!(
        "note: a restart with four pools: ended in {ended:.2?}, serves again {gap:.2?} after the signal; the longest I/O of an \
         emulated host took {longest:.2?}"
    );
    assert!(gap <= GAP_MAX, "{gap:?}");
    assert!(longest <= GAP_MAX, "{longest:?}");
    let errors = guest.must("dmesg");
    let errors: Vec<&str> = errors.lines().filter(|line| line.contains("I/O error")).collect();
    assert!(errors.is_empty(), "{errors:?}");
    guest.must("iscsiadm -m node -u");
    server.end();
}

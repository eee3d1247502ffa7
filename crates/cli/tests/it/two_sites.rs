//! Two servers that keep a volume alike: paired by a token, moved by hand, taken over after a kill under fio, joined again.

use crate::{
    exported::{is_here, judge, judged},
    judged_exports::{BLOCK, Endpoint, JOBS, PART, answered_lengths, fio, until},
    pool_drives::{done, refused},
    spindle::{Bench, is_full_run, json_of},
};
use std::{
    fs,
    net::TcpListener,
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

pub const VOLUME: &str = "[[volume]]\nname = 'disk'\ngroup = 'mail'\ngb = 0.125\n";
pub const EXPORT: &str = "[[nbd]]\nname = 'disk'\nvolume = 'mail/disk'\n";

/// A site in a folder of its own; its server is killed when this is dropped.
pub struct Site {
    pub bench: Bench,
    pub port: u16,
    /// Port of iSCSI.
    pub iscsi: u16,
    server: Option<Child>,
}

impl Site {
    /// A site with a pool, and with what else its file has.
    pub fn begin(name: &str, tables: &str) -> Self {
        // Both at one time, so that they differ.
        let [link, iscsi] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [port, iscsi] = [link, iscsi].map(|listener| listener.local_addr().unwrap().port());
        let mut site = Self { bench: Bench::new(), port, iscsi, server: None };
        site.write(name, tables);
        site.start();
        site
    }

    pub fn write(&self, name: &str, tables: &str) {
        let text = format!(
            "[serve]\nsite = '{name}'\nnbd = 'unix:socket'\niscsi = '127.0.0.1:{}'\n[[site]]\nname = '{name}'\n\
             [replication]\nlisten = '127.0.0.1:{}'\n[[group]]\nname = 'mail'\ndrives = 2\ndrive_gb = 0.4\n{tables}",
            self.iscsi, self.port
        );
        self.bench.make_file("site.toml", text.as_bytes());
    }

    pub fn start(&mut self) {
        let mut command = self.bench.command(&["serve", "site.toml", "--state", "state", "--quiet"]);
        let log = fs::File::options().create(true).append(true).open(self.bench.path("log")).unwrap();
        self.server = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        until("it listens before long", || {
            UnixStream::connect(self.bench.path("state/spindle.sock")).is_ok()
        });
        until("it is ready", || self.bench.run(&["dr", "status", "--state", "state"]).code != Some(2));
    }

    pub fn kill(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// The row of the group.
    pub fn row(&self) -> serde_json::Value {
        let said = self.bench.run(&["dr", "status", "--state", "state", "--json"]);
        json_of(&said.stdout)["groups"][0].clone()
    }

    /// Waits until everything that hosts were answered is at the other site.
    pub fn wait_until_confirmed(&self) {
        // Rows are published once a second: the first may be of before the last write.
        thread::sleep(Duration::from_millis(1500));
        until("the other site has everything", || self.row()["unconfirmed_bytes"] == 0);
    }

    /// The rows of all groups.
    pub fn rows(&self) -> Vec<serde_json::Value> {
        let said = self.bench.run(&["dr", "status", "--state", "state", "--json"]);
        json_of(&said.stdout)["groups"].as_array().unwrap().clone()
    }

    pub fn is(&self, role: &str, state: &str) -> bool {
        let row = self.row();
        row["role"] == role && row["state"] == state
    }

    pub fn verb(&self, verb: &str) -> String {
        done(&self.bench.run(&self.words(verb)))
    }

    pub fn refused(&self, verb: &str, why: &str) {
        refused(&self.bench, &self.words(verb), why);
    }

    pub fn words<'v>(&self, verb: &'v str) -> Vec<&'v str> {
        let of_pools = ["--server", "unix:state/spindle.sock"];
        verb.split(' ')
            .chain(if verb.starts_with("volume") { of_pools } else { ["--state", "state"] })
            .collect()
    }

    pub fn uri(&self) -> String {
        self.uri_of("disk")
    }

    pub fn uri_of(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.bench.path("socket").display())
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.bench.path("log")).unwrap()
    }

    /// Hosts do not reach a secondary.
    pub fn is_closed(&self) {
        let said = self.refusal_of_hosts();
        assert!(said.contains("there is no export"), "{said}");
    }

    /// The refusal that a host gets when it looks at the volume.
    ///
    /// # Panics
    ///
    /// If it is served.
    pub fn refusal_of_hosts(&self) -> String {
        let said = judged("qemu-img", &["info", &self.uri()]);
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(!said.status.success(), "it is served");
        text
    }

    /// A host that was connected to the other site gets nothing, and reads why.
    fn refused_host_is_told(&self) {
        let said = self.refusal_of_hosts();
        assert!(said.contains("the export is withheld, because its contents changed"), "{said}");
    }

    pub fn server(&self) -> &Child {
        self.server.as_ref().unwrap()
    }

    /// True if a command of a host is done.
    pub fn answers(&self, command: &str) -> bool {
        let said = judged("qemu-io", &["-f", "raw", "-t", "none", "-c", command, &self.uri()]);
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        said.status.success()
            && text.contains("/sec")
            && !text.contains("failed")
            && !text.contains("Pattern")
    }

    /// Output of fio.
    pub fn fio_output(&self) -> String {
        fs::read_to_string(self.bench.path("said.json")).unwrap()
    }

    pub fn io(&self, commands: &[&str]) {
        self.io_of("disk", commands);
    }

    /// Commands of a host of another export.
    pub fn io_of(&self, export: &str, commands: &[&str]) {
        let uri = self.uri_of(export);
        let commands = commands.iter().flat_map(|command| ["-c", command]);
        let arguments: Vec<&str> =
            ["-f", "raw", "-t", "none"].into_iter().chain(commands).chain([&*uri]).collect();
        let said = judge("qemu-io", &arguments);
        assert!(!said.contains("failed") && !said.contains("Pattern"), "{said}");
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Boston with a volume, and Denver with a replica of it that is alike.
pub fn pair(mode: &str) -> (Site, Site) {
    pair_over(mode, |port| port)
}

/// The same; Denver reaches Boston by another port.
pub fn pair_over(mode: &str, line: impl FnOnce(u16) -> u16) -> (Site, Site) {
    let (boston, denver) = paired_over(line);
    boston.verb(&format!("dr create sg1 mail/disk --to denver --mode {mode}"));
    until("the first copy is complete", || boston.is("primary", "streaming"));
    // The file of the other site may name the volume from now on.
    denver.write("denver", &format!("{VOLUME}{EXPORT}"));
    denver.verb("apply site.toml");
    (boston, denver)
}

/// Boston with a volume, and Denver without.
pub fn paired() -> (Site, Site) {
    paired_over(|port| port)
}

/// The same; Boston's file has these tables.
pub fn paired_with(tables: &str) -> (Site, Site) {
    join(tables, |port| port)
}

/// The same; each site's file has tables of its own.
pub fn paired_with_both(tables: (&str, &str)) -> (Site, Site) {
    join_both(tables, |port| port)
}

fn paired_over(line: impl FnOnce(u16) -> u16) -> (Site, Site) {
    join(&format!("{VOLUME}{EXPORT}"), line)
}

fn join(tables: &str, line: impl FnOnce(u16) -> u16) -> (Site, Site) {
    join_both((tables, ""), line)
}

fn join_both((ours, theirs): (&str, &str), line: impl FnOnce(u16) -> u16) -> (Site, Site) {
    let boston = Site::begin("boston", ours);
    let denver = Site::begin("denver", theirs);
    let token = boston.bench.run(&["dr", "token", "--state", "state"]);
    denver.bench.make_file("token", token.stdout.as_bytes());
    denver.verb(&format!("dr pair boston 127.0.0.1:{} --pairing-token token", line(boston.port)));
    until("boston learns denver's name", || {
        let said = boston.bench.run(&["dr", "status", "--state", "state"]);
        said.stdout.contains("denver: connected")
    });
    (boston, denver)
}

pub fn has_clients() -> bool {
    is_here("qemu-io", "qemu-utils") && is_here("fio", "fio")
}

#[test]
fn a_group_moves_to_the_other_site_and_back_and_loses_nothing() {
    if !has_clients() {
        return;
    }
    let (boston, denver) = pair("sync");
    boston.io(&["write -P 17 0 8M", "write -P 18 16M 1M"]);
    until("it is in sync", || boston.row()["is_alone"] == false);
    assert!(boston.row()["summary"].as_str().unwrap().contains("would lose nothing"), "{}", boston.row());
    denver.is_closed();
    // A size in half a block is refused, and so is a second primary.
    boston.refused("volume resize mail/disk 268434944", "multiple of 4096");
    denver.refused("volume delete mail/disk --yes disk", "replica");
    denver.refused("failover sg1 --unplanned --accept-loss all", "is connected: nothing has to be lost");
    denver.refused("dr create two mail/disk --to boston --mode sync", "in DR group sg1 already");
    // From the primary, then from the other side, which asks it; twice without a write between.
    for (from, (old, new)) in
        [(&boston, (&boston, &denver)), (&boston, (&denver, &boston)), (&boston, (&boston, &denver))]
    {
        let begun = Instant::now();
        from.verb("failover sg1");
        println!("moved in {:?}", begun.elapsed());
        until("both have their roles", || new.is("primary", "streaming") && old.is("secondary", "following"));
        new.io(&["read -P 17 0 8M", "read -P 18 16M 1M"]);
    }
    denver.io(&["write -P 19 4M 1M"]);
    denver.verb("failover sg1");
    until("boston serves", || boston.is("primary", "streaming"));
    boston.io(&["read -P 17 0 4M", "read -P 19 4M 1M", "read -P 17 5M 3M"]);
    // A restart of either server changes nothing.
    let (mut boston, mut denver) = (boston, denver);
    for restarted in [&mut boston, &mut denver] {
        restarted.kill();
        restarted.start();
    }
    until("they find each other again", || {
        boston.is("primary", "streaming") && denver.is("secondary", "following")
    });
    boston.io(&["read -P 19 4M 1M", "write -P 20 0 1M"]);
    // A primary that returns waits for the other side, which may have more; if that is lost, a person says so.
    denver.kill();
    boston.kill();
    boston.start();
    until("it waits", || boston.is("primary", "connecting"));
    assert_eq!(boston.row()["serves"], false, "{}", boston.row());
    boston.is_closed();
    boston.refused("failover sg1 --unplanned", "what may be lost is not known");
    boston.verb("failover sg1 --unplanned --accept-loss all");
    until("it serves", || boston.row()["serves"] == true);
    boston.io(&["read -P 20 0 1M", "write -P 22 2M 4k"]);
    denver.start();
    until("denver follows", || boston.is("primary", "streaming") && denver.is("secondary", "following"));
    // Taken apart: both volumes are of hosts again.
    for site in [&boston, &denver] {
        site.verb("dr remove sg1 --yes sg1");
        site.io(&["read -P 20 0 1M", "write -P 21 0 4k"]);
        site.verb("volume resize mail/disk 256MiB");
    }
}

/// Kills the primary while fio writes in sync: the survivor has everything that fio was answered.
fn kill_the_primary_under_fio(program: &Path, round: u64) {
    let (mut boston, mut denver) = pair("sync");
    boston.io(&["write -P 17 0 4k"]);
    until("it is in sync", || boston.row()["is_alone"] == false);
    let by = |site: &Site, options: &str, lengths| {
        fio((&site.bench, program), &Endpoint::Socket(site.bench.path("socket")), options, lengths)
    };
    let mut writing = by(&boston, "do_verify=0", [PART; JOBS as usize]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1_500 + round * 97 % 700));
    boston.kill();
    until("fio hears of it", || writing.try_wait().unwrap().is_some());
    let lengths = answered_lengths(&boston.bench);
    assert!(lengths.iter().sum::<u64>() > 100 * BLOCK, "{lengths:?}");
    until("denver hears of it", || denver.row()["connected_since"].is_null());
    denver.refused("failover sg1 --unplanned", "may be lost");
    denver.verb("failover sg1 --unplanned --accept-loss 120s");
    // Without a witness nobody knows whether the primary had gone on alone.
    denver.refused_host_is_told();
    denver.verb("volume readmit mail/disk --nbd");
    let verified = by(&denver, "verify_only=1", lengths).status().unwrap();
    assert!(
        verified.success(),
        "{}\n{}",
        fs::read_to_string(denver.bench.path("said.json")).unwrap(),
        denver.log()
    );
    denver.io(&["write -P 44 0 1M"]);
    // The old primary returns, and follows: hosts never reach what it had.
    boston.start();
    until("it follows", || boston.is("secondary", "following") && denver.is("primary", "streaming"));
    boston.is_closed();
    denver.verb("failover sg1");
    until("boston serves again", || boston.is("primary", "streaming"));
    boston.io(&["read -P 44 0 1M", "write -P 45 0 4k"]);
    // Now the secondary is killed: hosts wait, then go on alone, and it gets what it lacks.
    until("it is in sync", || boston.row()["is_alone"] == false);
    denver.kill();
    boston.io(&["write -P 46 0 4k"]);
    until("it went on alone", || boston.row()["is_alone"] == true);
    denver.start();
    until("denver follows", || denver.is("secondary", "following") && boston.is("primary", "streaming"));
    boston.verb("failover sg1");
    until("denver serves", || denver.is("primary", "streaming"));
    denver.io(&["read -P 46 0 4k", "read -P 44 4k 1020k"]);
}

#[test]
fn the_survivor_has_everything_that_fio_was_answered_in_sync() {
    if !is_full_run("fio at a site that is killed") {
        return;
    }
    if !has_clients() {
        return;
    }
    let rounds = if std::env::var_os("SPINDLE_FULL").is_some() { 20 } else { 1 };
    (0..rounds).for_each(|round| kill_the_primary_under_fio(Path::new("fio"), round));
}

#[test]
fn pairing_and_making_of_groups_are_refused_in_one_line() {
    let boston = Site::begin("boston", VOLUME);
    let denver = Site::begin("denver", VOLUME);
    denver.bench.make_file("token", b"00112233445566778899aabbccddeeff\n");
    let pair = format!("dr pair boston 127.0.0.1:{} --pairing-token token", boston.port);
    denver.refused(&pair, "the pairing token is wrong, used or expired");
    denver.bench.make_file("token", b"no digits\n");
    denver.refused(&pair, "32 hexadecimal digits");
    denver.refused("dr pair boston 127.0.0.1:1 --pairing-token absent", "absent");
    boston.refused("dr create sg1 mail/disk --to denver --mode sync", "not paired with \"denver\"");
    std::thread::sleep(Duration::from_millis(1_100));
    let token = boston.bench.run(&["dr", "token", "--state", "state"]);
    denver.bench.make_file("token", token.stdout.as_bytes());
    denver.verb(&pair);
    until("boston learns denver's name", || {
        boston.bench.run(&["dr", "status", "--state", "state"]).stdout.contains("denver: connected")
    });
    boston.refused("dr create sg1 mail/disk --to denver --mode sync", "has a volume \"disk\" already");
    boston.refused(
        "dr create sg1 mail/disk --to denver --mode sync --pool other",
        "there is no pool \"other\"",
    );
    boston.refused(
        "dr create sg1 mail/disk --to denver --mode sync --behind 1s,1MiB",
        "of asynchronous groups",
    );
    boston.refused("dr create sg1 mail/none --to denver --mode sync", "there is no volume mail/none");
    boston.refused("dr create sg1 mail/disk --to denver --mode sync --hold 60s", "--hold");
    boston.refused("failover sg1", "there is no DR group \"sg1\" here");
    let status = boston.bench.run(&["dr", "status", "--state", "state"]);
    assert!(status.stdout.contains("no DR groups"), "{}", status.stdout);
}

//! Databases of a backup brought forward with the logs of later ones, and of the live volume, by `protect restore`: the records
//! are those of the database engine after an ordinary recovery of what the killed server left.

use crate::{
    judged_exports::until,
    pool_backups::{all_records, copy_files},
    pool_drives::done,
    sites_served::Served,
    spindle::{Bench, ProgramOutput, answered, is_full_run, json_of},
};
use array::pool::{OpenSetting, open};
use maildb::{ColumnId, Value};
use serde_json::Value as Json;
use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Stdio},
    rc::Rc,
    thread,
    time::Duration,
};
use world::{
    BlockDevice,
    real::{self, AccessMode, FileDevice, RealOptions},
};

const SITE: &str = "
[serve]
nbd = '127.0.0.1:0'
iscsi = '127.0.0.1:0'
[[group]]
name = 'mail'
drives = 2
drive_gb = 0.6
[[group]]
name = 'logs'
drives = 2
drive_gb = 0.6
[[volume]]
name = 'store'
group = 'mail'
gb = 0.0625
[[volume]]
name = 'log'
group = 'logs'
gb = 0.125
[[target]]
name = 'mail'
[[target.unit]]
number = 3
volume = 'mail/store'
[[target]]
name = 'logs'
[[target.unit]]
number = 4
volume = 'logs/log'
[[protect]]
set = 'post'
volumes = ['mail/store', 'logs/log']
logs = ['logs/log']
schedules = ['24x1h']
";

/// Every record of a group, in order.
pub type Records = Vec<Vec<(ColumnId, Value)>>;

pub struct MailServer {
    pub bench: Bench,
    pub served: Served,
}

impl MailServer {
    pub fn begin() -> Self {
        Self::begin_with("")
    }

    /// One whose set has these lines, too.
    pub fn begin_with(of_set: &str) -> Self {
        let bench = Bench::new();
        bench.make_file("site.toml", format!("{SITE}{of_set}").as_bytes());
        let served = Served::begin(&bench);
        Self { bench, served }
    }

    /// Arguments of a run of databases on the two units.
    pub fn prove<'o>(&'o self, options: &[&'o str]) -> Vec<String> {
        let run = ["--size", "16MiB", "--cache", "4MiB", "--seed", "9"];
        let places = ["prove", self.served.uri("/3"), "--logs", self.served.uri("/4")];
        let words = places.into_iter().chain(run).chain(options.iter().copied());
        words.map(str::to_owned).collect()
    }

    pub fn create_databases(&self) {
        self.create_databases_with(&[]);
    }

    /// With these options, too.
    pub fn create_databases_with(&self, options: &[&str]) {
        let words = self.prove(&[options, &["--duration", "1s"]].concat());
        answered(&self.bench.run(&words.iter().map(String::as_str).collect::<Vec<_>>()));
    }

    /// A run that holds a rate until it is killed.
    pub fn begin_load(&self) -> Child {
        self.begin_load_with(&[])
    }

    /// One with these options, too.
    pub fn begin_load_with(&self, options: &[&str]) -> Child {
        let run = ["--mailboxes", "60", "--iops", "1", "--duration", "10m"];
        let words = self.prove(&[&run[..], options].concat());
        let mut command = self.bench.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let log = fs::File::create(self.bench.path("load.log")).unwrap();
        command.stdout(Stdio::null()).stderr(log).spawn().unwrap()
    }

    /// A load that is killed once the logs go more than so many transactions further than a backup.
    pub fn load_and_kill(&self, backup: &str, than: u64) {
        self.load_and_kill_with(&[], backup, than);
    }

    /// The same of a load with these options, too.
    pub fn load_and_kill_with(&self, options: &[&str], backup: &str, than: u64) {
        let mut load = self.begin_load_with(options);
        until("transactions are in the log", || {
            thread::sleep(Duration::from_millis(300));
            self.commits_behind(backup) > than
        });
        load.kill().unwrap();
        load.wait().unwrap();
    }

    pub fn said(&self, arguments: &[&str]) -> ProgramOutput {
        self.bench.run(&[arguments, &["--state", "state", "--json"]].concat())
    }

    pub fn answer(&self, arguments: &[&str]) -> Json {
        json_of(&done(&self.said(arguments)))
    }

    pub fn refused(&self, arguments: &[&str]) -> String {
        let said = self.said(arguments);
        assert_eq!(said.code, Some(2), "{}{}", said.stdout, said.stderr);
        said.stderr
    }

    pub fn back_up(&self) -> String {
        self.answer(&["protect", "now", "post", "--hold", "test"])["number"].to_string()
    }

    /// Lets the killed host in again.
    pub fn readmit(&self) {
        for volume in ["state/pools/mail/store", "state/pools/logs/log"] {
            done(&self.bench.run(&["volume", "readmit", volume, "--all"]));
        }
    }

    /// Transactions that a restore of the backup would add.
    pub fn commits_behind(&self, backup: &str) -> u64 {
        let looked_at = self.answer(&["protect", "restore", "post", backup, "--dry-run"]);
        assert!(looked_at["not_brought_forward"].is_null(), "{looked_at}");
        looked_at["logs"][0]["commits"].as_u64().unwrap()
    }

    /// Begins a restore in place, and kills it when it has said this.
    fn kill_restore_at(&self, backup: &str, said: &str) {
        self.kill_at(&["protect", "restore", "post", backup, "--yes", "post"], said);
    }

    /// Begins a verb, and kills it when it has said this.
    pub fn kill_at(&self, words: &[&str], said: &str) {
        let mut command = self.bench.command(&[words, &["--state", "state"]].concat());
        let mut verb = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(verb.stderr.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains(said)), "it never said {said:?}");
        verb.kill().unwrap();
        verb.wait().unwrap();
    }

    /// Names of clones that are to take places.
    pub fn lasting(&self) -> Vec<String> {
        self.left().into_iter().filter(|name| name.contains("-restored-")).collect()
    }

    /// Names of all volumes that were made for a while.
    fn left(&self) -> Vec<String> {
        self.volumes().into_iter().filter(|name| name.contains("restore")).collect()
    }

    /// Names of all volumes.
    pub fn volumes(&self) -> Vec<String> {
        let show = |pool| self.bench.run(&["pool", "show", &format!("state/pools/{pool}"), "--json"]);
        let pools = ["mail", "logs"].map(|pool| json_of(&done(&show(pool))));
        let volumes = pools.iter().flat_map(|pool| pool["volumes"].as_array().unwrap().clone());
        volumes.map(|volume| volume["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// The records that an ordinary recovery finds on two volumes of the stopped pools.
pub fn records(bench: &Bench, [store, log]: [&str; 2]) -> Records {
    let name = format!("copied-{store}");
    // Files of an earlier look would be taken for those of this group.
    let _ = fs::remove_dir_all(bench.path(&name));
    let folder = bench.make_folder(&name);
    real::run(0, RealOptions::default(), async |world| {
        for (pool, volume) in [("mail", store), ("logs", log)] {
            let drives = bench.path(&format!("state/pools/{pool}"));
            let pool = open(&world, &drives_in(&drives), OpenSetting::default()).await.expect("it opens");
            copy_files(&pool, volume, &folder).await;
            pool.close().await.expect("it closes");
        }
        all_records(&world, &folder).await
    })
}

/// The drives of a pool of two.
pub fn drives_in(folder: &Path) -> Vec<Rc<dyn BlockDevice>> {
    let drive = |number| folder.join(format!("drive-{number}.spindle"));
    (1..=2)
        .map(|number| {
            Rc::new(FileDevice::open(&drive(number), AccessMode::ReadWrite).unwrap()) as Rc<dyn BlockDevice>
        })
        .collect()
}

#[test]
fn logs_bring_a_backup_forward_to_where_a_killed_mail_server_was() {
    let server = MailServer::begin();
    server.create_databases();
    let first = server.back_up();
    let mut load = server.begin_load();
    until("transactions are in the log", || {
        thread::sleep(Duration::from_millis(300));
        server.commits_behind(&first) > 20
    });
    let second = server.back_up();
    let then = server.commits_behind(&first);
    until("there are more", || {
        server.commits_behind(&second) > 0 && server.commits_behind(&first) > then + 20
    });
    load.kill().unwrap();
    load.wait().unwrap();

    // Beside the live volumes: up to the kill, up to the second backup, and that backup alone.
    let forward = server.answer(&["protect", "restore", "post", &first, "--as", "forward"]);
    let commits = forward["logs"][0]["commits"].as_u64().unwrap();
    assert!(commits > then, "{forward}");
    assert_eq!(
        forward["logs"][0]["logs"].as_array().unwrap().last().unwrap()["from"],
        "logs/log",
        "{forward}"
    );
    let to_second =
        server.answer(&["protect", "restore", "post", &first, "--as", "second", "--logs", &second]);
    assert!(to_second["logs"][0]["commits"].as_u64().unwrap() < commits, "{to_second}");
    let alone = server.answer(&["protect", "restore", "post", &second, "--as", "alone", "--logs", "none"]);
    assert_eq!(alone["logs"], json_of("[]"), "{alone}");
    // To a time between, and to one that the backup itself is past.
    let time = to_second["logs"][0]["time"].as_str().unwrap().replace(" UTC", "Z").replace(' ', "T");
    let to_time = server.answer(&["protect", "restore", "post", &first, "--as", "timed", "--to-time", &time]);
    let timed = to_time["logs"][0]["commits"].as_u64().unwrap();
    assert!(timed > 0 && timed < commits, "{to_time} {to_second}");
    for (words, why) in [
        (&["--to-time", "2026-01-01T00:00:00Z"][..], "choose an earlier backup"),
        (&["--to-log", "FFFFF"], "there is no generation 0xFFFFF"),
        (&["--logs", "none", "--to-log", "9"], "goes no further than the backup"),
        (&["--logs", "log~7"], "there is no volume logs/log~7"),
    ] {
        let refused =
            server.refused(&[&["protect", "restore", "post", &first, "--as", "not"], words].concat());
        assert!(refused.contains(why), "{words:?} {refused}");
    }
    assert_eq!(server.left(), [""; 0], "copies of logs are gone");

    // In place, with kills right before and within the changes of places: the same command goes on.
    for line in ["change places", ": restored"] {
        // A kill that comes late finds a restore that has ended.
        let is_early = (0..20).any(|_| {
            server.kill_restore_at(&first, line);
            !server.lasting().is_empty()
        });
        assert!(is_early, "no kill at {line:?} came before the end");
        let refused =
            server.refused(&["protect", "restore", "post", &second, "--logs", "none", "--yes", "post"]);
        assert!(refused.contains("has not taken the place of its volume"), "{line}: {refused}");
        let looked_at = server.said(&["protect", "restore", "post", &first, "--dry-run"]);
        assert!(looked_at.stderr.contains("it would be completed"), "{line}: {}", looked_at.stderr);
        let completed = server.answer(&["protect", "restore", "post", &first, "--yes", "post"]);
        let gone = completed["volumes"].as_array().unwrap().iter().filter(|row| row["made"].is_string());
        println!("note: killed at {line:?}: {} volumes were left to go back", gone.count());
        assert_eq!(server.lasting(), [""; 0], "{completed}");
    }
    let restored = server.answer(&["protect", "restore", "post", &first, "--yes", "post"]);
    assert_eq!(restored["logs"][0]["commits"], commits, "{restored}");
    let left_last = restored["volumes"][0]["made"].as_str().unwrap().rsplit_once('~').unwrap().1;
    let left_last: u32 = left_last.parse().unwrap();
    let MailServer { bench, served } = server;
    served.end();
    let head = records(&bench, ["store~1", "log~1"]);
    assert!(head.len() > 100, "{} records", head.len());
    assert!(records(&bench, ["store-forward", "log-forward"]) == head, "beside");
    assert!(left_last >= 3, "two that were completed, and the last one");
    for number in 2..=left_last {
        let left = [format!("store~{number}"), format!("log~{number}")];
        assert!(records(&bench, [&left[0], &left[1]]) == head, "completed after a kill");
    }
    assert!(records(&bench, ["store", "log"]) == head, "in place");
    let second = records(&bench, ["store-alone", "log-alone"]);
    assert!(records(&bench, ["store-second", "log-second"]) == second && second != head);
}

#[test]
fn a_log_of_another_line_is_refused_and_each_line_can_be_restored() {
    if !is_full_run("logs of two lines") {
        return;
    }
    let server = MailServer::begin();
    server.create_databases();
    let first = server.back_up();
    server.load_and_kill(&first, 20);
    let second = server.back_up();
    let of_first_line = server.commits_behind(&first);
    // The databases go back, and another line begins.
    server.answer(&["protect", "restore", "post", &first, "--logs", "none", "--yes", "post"]);
    server.readmit();
    server.load_and_kill(&first, 20);
    let forks = server.refused(&["protect", "restore", "post", &second, "--as", "not"]);
    assert!(forks.contains("forks") && forks.contains("--logs"), "{forks}");
    let words = ["protect", "restore", "post", &first, "--as", "old", "--logs"];
    let old = server.answer(&[&words[..], &[&second]].concat());
    assert_eq!(old["logs"][0]["commits"], of_first_line, "{old}");
    let words = ["protect", "restore", "post", &second, "--as", "left", "--logs", "log~1"];
    server.answer(&words);
    let new = server.answer(&["protect", "restore", "post", &first, "--as", "new"]);
    assert!(new["logs"][0]["commits"].as_u64().unwrap() > 20, "{new}");
    let MailServer { bench, served } = server;
    served.end();
    let left = records(&bench, ["store~1", "log~1"]);
    assert!(records(&bench, ["store-left", "log-left"]) == left, "the line that was left");
    let live = records(&bench, ["store", "log"]);
    assert!(records(&bench, ["store-new", "log-new"]) == live && live != left, "the line that goes on");
}

//! Events of an exported pool, and `pool show` while it is exported.

use crate::{
    exported::{noise, text},
    spindle::{Bench, ProgramOutput, json_of, signal},
    storage::{LoopDevice, may_mount},
};
use nbd::{Client, ClientOptions, NbdUri};
use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::Child,
    rc::Rc,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use world::{
    BlockDevice, Buffer, ByteOffset, IoResult, Stability, World,
    real::{self, RealOptions, Sockets},
};

/// Longer than any step of these tests takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// `spindle export --json` with its two outputs in files; killed when dropped.
struct Exporting<'a> {
    bench: &'a Bench,
    child: Child,
    uri: String,
}

impl<'a> Exporting<'a> {
    fn begin(bench: &'a Bench, volume: &str) -> Self {
        let place = format!("unix:{}", text(&bench.path("socket")));
        let mut command = bench.command(&["export", volume, "--json", "--nbd", &place]);
        let file = |name: &str| fs::File::create(bench.path(name)).unwrap();
        let child = command.stdout(file("stdout")).stderr(file("stderr")).spawn().unwrap();
        let mut exporting = Self { bench, child, uri: String::new() };
        exporting.wait_until("it says where it is", |exporting| exporting.objects().is_some());
        let served = json_of(exporting.said("stdout").lines().next().unwrap());
        exporting.uri = served[0]["uri"].as_str().unwrap().to_owned();
        exporting
    }

    fn said(&self, name: &str) -> String {
        fs::read_to_string(self.bench.path(name)).unwrap()
    }

    /// Objects on standard output behind the first line; `None` if there is no line yet.
    fn objects(&self) -> Option<Vec<Value>> {
        let said = self.said("stdout");
        let mut lines = said.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines.next()?;
        Some(lines.map(json_of).collect())
    }

    /// Events so far, in the order in which they were printed.
    fn events(&self) -> Vec<String> {
        let objects = self.objects().unwrap();
        objects.iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect()
    }

    fn event(&self, name: &str) -> Value {
        let mut objects = self.objects().unwrap().into_iter();
        objects
            .find(|event| event["event"] == name)
            .unwrap_or_else(|| panic!("no {name}: {:?}", self.events()))
    }

    #[track_caller]
    fn wait_until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "{what}: it ended ({ended:?}): {}", self.said("stderr"));
            assert!(begun.elapsed() < PATIENCE, "{what}: {}", self.said("stderr"));
            thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    fn wait_for(&mut self, event: &str) {
        self.wait_until(event, |exporting| exporting.events().iter().any(|one| one == event));
    }

    /// Writes pieces of 1 MiB, from the beginning, until one is refused or all are written.
    fn fill(&self, pieces: u64) -> IoResult<()> {
        let uri: NbdUri = self.uri.parse().unwrap();
        real::run(1, RealOptions::default(), async |world: World| {
            let client =
                Client::connect(&world, Rc::new(Sockets), uri, ClientOptions::default()).await.unwrap();
            for piece in 0..pieces {
                let data = vec![Arc::new(Buffer::copy_of(&noise(1 << 20, piece)))];
                client.write(ByteOffset(piece << 20), data, Stability::Stable).await?;
            }
            Ok(())
        })
    }

    /// Ends it as Ctrl-C does.
    fn end(mut self) -> Option<i32> {
        signal(&self.child, "INT");
        self.child.wait().unwrap().code()
    }
}

impl Drop for Exporting<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn done(said: &ProgramOutput) -> String {
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    said.stdout.clone()
}

fn pool_of(bench: &Bench, drives: &str, size: &str, volume: &str) {
    done(&bench.run(&["pool", "create", "mail", "--drives", drives, "--size", size]));
    done(&bench.run(&["volume", "create", "mail/store", volume]));
}

/// Has a drive of the pool lie elsewhere.
fn move_drive(bench: &Bench, drive: &str, to: &Path) {
    let drive = bench.path(&format!("mail/{drive}"));
    fs::copy(&drive, to).unwrap();
    fs::remove_file(&drive).unwrap();
    std::os::unix::fs::symlink(to, &drive).unwrap();
}

#[test]
fn a_pool_in_use_is_shown_as_its_owner_published_it() {
    let bench = Bench::new();
    pool_of(&bench, "3", "96MiB", "64MiB");
    let mut exporting = Exporting::begin(&bench, "mail/store");
    exporting.fill(8).unwrap();
    let shown = |bench: &Bench| json_of(&done(&bench.run(&["pool", "show", "mail", "--json"])));
    exporting.wait_until("what was written is published", |_| {
        shown(&bench)["used_bytes"].as_u64().unwrap() >= 8 << 20
    });
    let seen = shown(&bench);
    assert_eq!(seen["in_use"]["process"], exporting.child.id());
    assert!(seen["in_use"]["age_seconds"].as_u64().unwrap() < 60, "{seen}");
    assert_eq!((&seen["drives_in_use"], &seen["volumes"][0]["name"]), (&3.into(), &"store".into()));
    assert_eq!(seen["drives"][0]["is_in_use"], true, "{seen}");
    let said = done(&bench.run(&["pool", "show", "mail"]));
    assert!(said.contains(&format!("in use by process {} since 20", exporting.child.id())), "{said}");
    assert!(said.contains(" s ago"), "{said}");
    let refused = bench.run(&["volume", "delete", "mail/store", "--yes", "store"]);
    assert_eq!(refused.code, Some(2), "to read is all that others may: {}", refused.stdout);
    assert!(exporting.events().is_empty(), "nothing happened: {:?}", exporting.events());
    assert_eq!(exporting.end(), Some(0));
    assert!(!bench.path("mail/spindle-status.json").exists(), "a clean end leaves none");
    assert!(shown(&bench)["in_use"].is_null());
}

#[test]
fn the_status_of_a_killed_process_is_not_trusted() {
    let bench = Bench::new();
    pool_of(&bench, "2", "96MiB", "64MiB");
    let exporting = Exporting::begin(&bench, "mail/store");
    drop(exporting);
    let status = bench.path("mail/spindle-status.json");
    let left = fs::read_to_string(&status).expect("it could not remove it");
    let shown = json_of(&done(&bench.run(&["pool", "show", "mail", "--json"])));
    assert!(shown["in_use"].is_null(), "nobody holds the pool: {shown}");
    assert!(!status.exists(), "who takes the pool removes it");
    // Another process has the pool, and has not published anything yet.
    fs::write(&status, left).unwrap();
    let folder = fs::File::open(bench.path("mail")).unwrap();
    folder.lock().unwrap();
    let refused = bench.run(&["pool", "show", "mail"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stdout);
    assert!(
        refused.stderr.contains("another Spindle has the pool open, and its status is of process"),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("which is not here; try again in a moment"), "{}", refused.stderr);
    fs::write(&status, "{").unwrap();
    let refused = bench.run(&["pool", "show", "mail"]);
    assert_eq!((refused.code, refused.stderr.lines().count()), (Some(2), 1), "{}", refused.stderr);
    fs::remove_file(&status).unwrap();
    let refused = bench.run(&["pool", "show", "mail"]);
    assert!(
        refused.stderr.contains("has not published its status; try again in a moment"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_drive_that_is_not_there_is_waited_for_and_copies_are_made_at_once_on_request() {
    let bench = Bench::new();
    pool_of(&bench, "3", "96MiB", "64MiB");
    let exporting = Exporting::begin(&bench, "mail/store");
    exporting.fill(8).unwrap();
    assert_eq!(exporting.end(), Some(0));
    fs::remove_file(bench.path("mail/drive-2.spindle")).unwrap();
    let mut exporting = Exporting::begin(&bench, "mail/store");
    exporting.wait_for("redundancy_lost");
    assert_eq!(exporting.events(), ["drive_lost", "redundancy_lost"], "each once, in order");
    let lost = exporting.event("drive_lost");
    assert_eq!((&lost["severity"], &lost["pool"]), (&"error".into(), &"mail".into()));
    assert!(lost["drive"]["path"].as_str().unwrap().ends_with("drive-2.spindle"), "{lost}");
    assert!(lost["next_step"].as_str().unwrap().contains("spindle pool add-drive mail"), "{lost}");
    let redundancy = exporting.event("redundancy_lost");
    assert!(redundancy["segments"].as_u64().unwrap() > 0 && redundancy["copies"] == 2, "{redundancy}");
    assert!((290..=300).contains(&redundancy["copies_wait_s"].as_u64().unwrap()), "{redundancy}");
    let step = redundancy["next_step"].as_str().unwrap();
    assert!(step.contains(" s, if no drive that is away comes back before,"), "{step}");
    let said = exporting.said("stderr");
    let line = said.lines().find(|line| line.contains(" lost: it was not found")).unwrap();
    assert!(line.starts_with("20") && line.contains("Z error: mail: drive "), "{line}");
    assert!(!said.contains('\x1b'), "no colours where there is no terminal");
    let shown = json_of(&done(&bench.run(&["pool", "show", "mail", "--json"])));
    let events = shown["in_use"]["events"].as_array().unwrap();
    assert_eq!(events[0]["event"], "drive_lost", "they can be read later, too: {shown}");
    let text = bench.run(&["pool", "show", "mail"]).stdout;
    assert!(
        text.contains("for drives that are away, and copies then; 'spindle pool forget' does not"),
        "{text}"
    );
    assert_eq!(exporting.end(), Some(0));
    let said = bench.run(&["pool", "forget", "mail", "drive-2.spindle"]);
    done(&said);
    assert!(said.stderr.contains("redundancy whole: 2 copies"), "{}", said.stderr);
    let shown = json_of(&done(&bench.run(&["pool", "show", "mail", "--json"])));
    assert_eq!((&shown["degraded_segments"], &shown["copies_wait_s"]), (&0.into(), &0.into()), "{shown}");
}

#[test]
fn an_added_drive_makes_a_pool_of_two_whole_again() {
    let bench = Bench::new();
    pool_of(&bench, "2", "96MiB", "64MiB");
    fs::remove_file(bench.path("mail/drive-2.spindle")).unwrap();
    let forced = bench.run(&["pool", "force-open", "mail", "--yes", "mail"]);
    done(&forced);
    let said = bench.run(&["pool", "add-drive", "mail", "--size", "96MiB"]);
    done(&said);
    let words =
        ["error: mail: redundancy lost: ", "note: mail: drive ", "note: mail: redundancy whole: 2 copies"];
    let lines: Vec<&str> = said.stderr.lines().filter(|line| line.starts_with("20")).collect();
    assert_eq!(lines.len(), words.len(), "{}", said.stderr);
    assert!(lines.iter().zip(words).all(|(line, word)| line.contains(word)), "{}", said.stderr);
}

#[test]
fn alarms_are_printed_while_a_pool_fills() {
    let bench = Bench::new();
    pool_of(&bench, "2", "96MiB", "128MiB");
    let mut exporting = Exporting::begin(&bench, "mail/store");
    exporting.fill(128).expect_err("there is no room for all of it");
    exporting.wait_for("writes_refused");
    let objects = exporting.objects().unwrap();
    let levels: Vec<u64> = objects.iter().filter_map(|event| event["percent"].as_u64()).collect();
    assert!(levels.starts_with(&[80]) && levels.is_sorted(), "{levels:?}");
    let alarm = exporting.event("alarm");
    assert_eq!((&alarm["severity"], &alarm["percent_before"]), (&"warning".into(), &0.into()));
    assert!(alarm["used_bytes"].as_u64().unwrap() * 100 >= alarm["usable_bytes"].as_u64().unwrap() * 80);
    assert!(exporting.said("stderr").contains("warning: mail: 80 % full: "), "{}", exporting.said("stderr"));
    let refused = exporting.event("writes_refused");
    assert_eq!(refused["snapshot_room"], serde_json::json!([]), "{refused}");
    let advice = "no snapshot keeps anything: delete or discard data, or give the pool another drive";
    assert!(refused["next_step"].as_str().unwrap().starts_with(advice), "{refused}");
    assert_eq!(exporting.end(), Some(0));
    let shown = bench.run(&["pool", "show", "mail"]);
    done(&shown);
    assert!(shown.stdout.contains(&format!(" % full: {advice}")), "{}", shown.stdout);
}

#[test]
fn a_drive_that_fails_under_load_is_named_with_what_failed() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    pool_of(&bench, "3", "96MiB", "64MiB");
    let Some(device) = LoopDevice::new(256 << 20) else { return };
    device.make_ext4();
    let mount = device.mount(&bench, "elsewhere");
    move_drive(&bench, "drive-3.spindle", &mount.path("drive-3.spindle"));
    let mut exporting = Exporting::begin(&bench, "mail/store");
    exporting.fill(8).unwrap();
    assert!(exporting.events().is_empty(), "{:?}", exporting.events());
    if !mount.shut_down() {
        return;
    }
    exporting.fill(16).expect("two drives are left");
    exporting.wait_for("redundancy_whole");
    let events = exporting.events();
    // All copies may be made before anybody counted what lacks some.
    let is_quick = events == ["drive_lost", "redundancy_whole"];
    assert!(is_quick || events == ["drive_lost", "redundancy_lost", "redundancy_whole"], "{events:?}");
    let lost = exporting.event("drive_lost");
    let reason = lost["reason"].as_str().unwrap();
    assert!(lost["drive"]["path"].as_str().unwrap().ends_with("drive-3.spindle"), "{lost}");
    assert!(
        reason.contains("ing ") && reason.contains("(os error 5)"),
        "the operation and its error: {reason}"
    );
    // The process that has the pool open writes down how it is once a second.
    exporting.wait_until("the drive is shown as lost", |_| {
        let shown = json_of(&done(&bench.run(&["pool", "show", "mail", "--json"])));
        shown["drives_in_use"] == 2 && shown["drives"][2]["is_in_use"] == false
    });
    assert_eq!(exporting.end(), Some(0));
}

#[test]
fn a_pool_that_stops_says_why_and_is_shown_as_stopped() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    pool_of(&bench, "2", "96MiB", "64MiB");
    let Some(device) = LoopDevice::new(256 << 20) else { return };
    device.make_ext4();
    let mount = device.mount(&bench, "elsewhere");
    for drive in ["drive-1.spindle", "drive-2.spindle"] {
        move_drive(&bench, drive, &mount.path(drive));
    }
    let mut exporting = Exporting::begin(&bench, "mail/store");
    exporting.fill(8).unwrap();
    if !mount.shut_down() {
        return;
    }
    exporting.fill(16).expect_err("no drive is left");
    exporting.wait_for("pool_stopped");
    let events = exporting.events();
    assert_eq!(events.iter().filter(|event| *event == "pool_stopped").count(), 1, "{events:?}");
    let stopped = exporting.event("pool_stopped");
    assert!(stopped["next_step"].as_str().unwrap().contains("erase nothing"), "{stopped}");
    let mut shown = bench.run(&["pool", "show", "mail", "--json"]);
    exporting.wait_until("that is published", |_| {
        shown = bench.run(&["pool", "show", "mail", "--json"]);
        shown.code == Some(1)
    });
    let shown = json_of(&shown.stdout);
    assert_eq!(shown["in_use"]["stopped"], stopped["reason"], "{shown}");
}

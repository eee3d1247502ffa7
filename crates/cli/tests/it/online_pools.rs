//! The verbs of `pool` and `job` while a server has the pools open: the same words as with stopped pools, under clients, over
//! kills of the server.

use crate::{
    pool_drives::done,
    qemu_io::QemuIo,
    sites_served::{SITE, Served, qemu_is_here},
    spindle::{Bench, ProgramOutput, is_full_run, json_of, signal},
};
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Child, Stdio},
};
use world::{World, real};

const POOL: &str = "state/pools/mail";

/// A site with a larger pool of three drives, and the same made and not served.
fn site() -> String {
    SITE.replacen("drives = 2\ndrive_gb = 0.11", "drives = 3\ndrive_gb = 0.25", 1)
        .replace("gb = 0.015625", "gb = 0.125")
}

fn served_bench() -> (Bench, Served) {
    let bench = Bench::new();
    bench.make_file("site.toml", site().as_bytes());
    let served = Served::begin(&bench);
    (bench, served)
}

fn stopped_bench() -> Bench {
    let bench = Bench::new();
    bench.make_file("site.toml", site().as_bytes());
    done(&bench.run(&["apply", "site.toml", "--state", "state"]));
    bench
}

#[track_caller]
fn refused_with(said: &ProgramOutput, problem: &str) {
    assert_eq!(said.code, Some(2), "{}{}", said.stdout, said.stderr);
    assert!(said.stderr.contains(problem), "{}", said.stderr);
}

/// A text with each UUID as `UUID`: those of two sites differ.
fn without_uuids(text: &str) -> String {
    let mut words = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let is_uuid = rest.get(..36).is_some_and(|part| {
            part.bytes().enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            })
        });
        let length = if is_uuid { 36 } else { rest.chars().next().map_or(1, char::len_utf8) };
        words += if is_uuid { "UUID" } else { &rest[..length] };
        rest = &rest[length..];
    }
    words
}

/// The lines of standard error that are no progress and no event.
fn without_progress(text: &str) -> String {
    let is_kept =
        |line: &&str| !line.starts_with(' ') && !line.starts_with("20") && !line.starts_with("note:");
    text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect()
}

#[test]
fn pool_verbs_answer_the_same_served_and_stopped() {
    let (bench, served) = served_bench();
    let stopped = stopped_bench();
    let both = |arguments: &[&str]| {
        let words: Vec<String> = arguments.iter().map(|word| word.replace("POOL", POOL)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let said = [&bench, &stopped].map(|bench| bench.run(&[&["pool"], &words[..]].concat()));
        assert_eq!(said[0].code, said[1].code, "{arguments:?}: {}{}", said[0].stderr, said[1].stderr);
        // Segments of a log that was closed and opened for each verb lie elsewhere: fills differ, and the room for nodes.
        let is_exact = !["level", "set"].contains(&arguments[0]);
        let texts = said.each_ref().map(|said| match is_exact {
            true => without_uuids(&said.stdout),
            false => without_uuids(&said.stdout).replace(|c: char| c.is_ascii_digit() || c == '.', ""),
        });
        assert_eq!(texts[0], texts[1], "{arguments:?}");
        if said[0].code != Some(0) {
            let texts = said.each_ref().map(|said| without_progress(&without_uuids(&said.stderr)));
            assert_eq!(texts[0], texts[1], "{arguments:?}");
        }
        let [said, _] = said;
        said
    };
    for arguments in [
        &["add-drive", "POOL", "--size", "256MiB", "--json"][..],
        &["add-drive", "POOL", "--size", "256MiB", "--domain", "c"],
        &["add-drive", "POOL", "--device", "none"],
        &["set", "POOL", "--domain", "a=drive-1.spindle", "--domain", "b=drive-3.spindle"],
        &["set", "POOL", "--no-domain", "drive-1.spindle", "--json"],
        &["set", "POOL", "--sparing", "single"],
        &["set", "POOL", "--sparing", "single", "--failure-sets", "on", "--json"],
        &["set", "POOL", "--sparing", "none", "--failure-sets", "off"],
        &["set", "POOL", "--domain", "a=none"],
        &["grow", "POOL", "drive-1.spindle"],
        &["scrub", "POOL"],
        &["scrub", "POOL", "--json"],
        &["level", "POOL"],
        &["level", "POOL", "--json"],
        &["retire", "POOL", "drive-2.spindle"],
        &["retire", "POOL", "drive-2.spindle"],
        &["retire", "POOL", "drive-1.spindle", "--keep"],
        &["replace", "POOL", "drive-1.spindle", "--size", "256MiB"],
        &["replace", "POOL", "drive-3.spindle", "--size", "256MiB", "--json"],
        &["forget", "POOL", "drive-4.spindle"],
        &["readmit", "POOL", "drive-4.spindle"],
        &["retire", "POOL", "drive-4.spindle", "--json"],
        &["retire", "POOL", "drive-5.spindle"],
        &["retire", "POOL", "drive-2.spindle"],
    ] {
        both(arguments);
    }
    let shown = [&bench, &stopped].map(|bench| {
        let mut shown = json_of(&done(&bench.run(&["pool", "show", POOL, "--json"])));
        let fields = shown.as_object_mut().unwrap();
        let (in_use, server) = (fields.remove("in_use").unwrap(), fields.remove("server"));
        // These are of segments, too.
        for field in ["levelling", "losses", "sparing", "usable_bytes", "used_bytes"] {
            fields.remove(field).unwrap();
        }
        (in_use, server, without_uuids(&shown.to_string()))
    });
    assert_eq!(shown[0].2, shown[1].2);
    assert_eq!(shown[0].0["process"].as_u64().unwrap(), u64::from(served.process()));
    assert_eq!(shown[0].1.as_ref().unwrap()["jobs"].as_array().unwrap().len(), 7);
    let text = done(&bench.run(&["pool", "show", POOL]));
    let stopped_text = done(&stopped.run(&["pool", "show", POOL]));
    let lines = |text: &str| {
        text.lines().map(|line| line.replace(|c: char| c.is_ascii_digit(), "")).collect::<Vec<_>>()
    };
    assert!(lines(&text).starts_with(&lines(&stopped_text)), "{text}\n{stopped_text}");
    assert!(text.contains("  open in the server at unix:"), "{text}");
    // What no server does says why, and what to do.
    let socket = format!("unix:{}", bench.path("state/spindle.sock").display());
    for (arguments, why) in [
        (
            &["force-open", POOL, "--yes", "mail"][..],
            "is open in the server at unix:DIR/state/spindle.sock; it is open without",
        ),
        (&["salvage", "state/pools/mail/store", "out"], "take a snapshot, and export that"),
        (&["create", "new", "--size", "96MiB", "--server", &socket], "add a [[group]] to it"),
        (&["import", "--list", "--server", &socket], "import reads the drives of this machine"),
        (&["scrub", "none", "--server", &socket], "has no pool none; it has logs, mail"),
        (&["scrub", "./mail", "--server", &socket], "with --server this is a pool's name; say POOL"),
    ] {
        refused_with(&bench.run(&[&["pool"], arguments].concat()), why);
    }
    let said = done(&bench.run(&["pool", "settle", POOL]));
    assert!(said.contains("no snapshot of several pools waits"), "{said}");
    // A name at a server means its pool, with words for that name.
    let said = bench.run(&["pool", "retire", "mail", "drive-9.spindle", "--server", &socket]);
    refused_with(&said, "mail: the pool has no drive drive-9.spindle; 'spindle pool show mail' lists");
    let said = done(&bench.run(&["pool", "scrub", "mail", "--server", &socket]));
    assert!(said.starts_with("mail: "), "{said}");
    served.end();
    done(&bench.run(&["pool", "scrub", POOL]));
}

#[test]
fn drives_come_and_go_through_the_server_under_a_client() {
    if !qemu_is_here() {
        return;
    }
    let (bench, served) = served_bench();
    real::run(0, Default::default(), async |world: World| {
        let mut client = QemuIo::begin(&bench, &world, "client", served.uri("/store"));
        client.says("write -P 1 0 32M", "wrote", 1).await;
        done(&bench.run(&["pool", "add-drive", POOL, "--size", "256MiB"]));
        client.says("write -P 2 32M 16M", "wrote", 2).await;
        let said = done(&bench.run(&["pool", "replace", POOL, "drive-1.spindle", "--size", "256MiB"]));
        let text =
            "drive-1.spindle has left, and can be taken out; state/pools/mail/drive-5.spindle took its place";
        assert!(said.contains(text), "{said}");
        fs::remove_file(bench.path("state/pools/mail/drive-1.spindle")).unwrap();
        client.says("read -P 1 0 32M", "read 33554432", 1).await;
        client.says("read -P 2 32M 16M", "read 16777216", 1).await;
        // A drive that has grown is seen when its pool is opened.
        let file = fs::File::options().write(true).open(bench.path("state/pools/mail/drive-2.spindle"));
        file.unwrap().set_len(320 << 20).unwrap();
        let grow = ["pool", "grow", POOL, "drive-2.spindle", "--json"];
        refused_with(&bench.run(&grow), "a pool sees that when it is opened");
        client.says("write -P 3 0 1M", "wrote", 3).await;
        client.end().await;
    });
    served.end();
    let served = Served::begin(&bench);
    let grown = json_of(&done(&bench.run(&["pool", "grow", POOL, "drive-2.spindle", "--json"])));
    assert!(grown["gained_bytes"].as_u64().unwrap() >= 60 << 20, "{grown}");
    served.end();
    let scrubbed = json_of(&done(&bench.run(&["pool", "scrub", POOL, "--json"])));
    assert_eq!((&scrubbed["mended"], &scrubbed["lost_places"]), (&0.into(), &0.into()));
}

/// A verb that waits for a server, and the lines that it has said.
pub struct WaitingVerb(Child, BufReader<std::process::ChildStderr>);

impl WaitingVerb {
    /// Begins a verb, and waits for its first line of progress.
    pub fn begin(bench: &Bench, arguments: &[&str]) -> Self {
        let mut command = bench.command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.contains(" %  "), "{line}");
        Self(child, said)
    }

    /// Its code, and what it has said on standard error since.
    pub fn end(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.1.read_to_string(&mut said).unwrap();
        (self.0.wait().unwrap().code(), said)
    }
}

/// Fills the volume, so that work with it takes a while.
fn fill(bench: &Bench, served: &Served) {
    real::run(0, Default::default(), async |world: World| {
        let mut client = QemuIo::begin(bench, &world, "client", served.uri("/store"));
        client.says("write -P 1 0 120M", "wrote", 1).await;
        client.says("flush", "qemu-io>", 2).await;
        client.end().await;
    });
}

#[test]
fn a_verb_that_waits_says_that_the_server_was_killed_and_its_job_goes_on_after_a_restart() {
    if !is_full_run("a verb whose server is killed") {
        return;
    }
    if !qemu_is_here() {
        return;
    }
    let (bench, served) = served_bench();
    fill(&bench, &served);
    let retiring = WaitingVerb::begin(&bench, &["pool", "retire", POOL, "drive-2.spindle"]);
    let scrubbing = WaitingVerb::begin(&bench, &["pool", "scrub", POOL]);
    served.kill();
    let (code, said) = retiring.end();
    assert_eq!(code, Some(2), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.contains("drive-2.spindle is not over: the server at unix:"), "{said}");
    assert!(
        last.contains(
            "it goes on when 'spindle serve' runs again; 'spindle pool retire state/pools/mail drive-2.spindle' waits for it then"
        ),
        "{said}"
    );
    let (code, said) = scrubbing.end();
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("state/pools/mail: the scrub is not over: "), "{said}");
    refused_with(&bench.run(&["job", "wait", "state/pools/mail/scrub"]), "so it has no jobs");
    let again = Served::begin(&bench);
    let listed = json_of(&done(&bench.run(&["job", "list", "mail", "--state", "state", "--json"])));
    let job = |kind: &str| listed.as_array().unwrap().iter().find(|job| job["kind"] == kind).unwrap();
    assert!(job("scrub")["request"]["id"].is_string(), "{listed}");
    let said = done(&bench.run(&["job", "wait", "mail/scrub", "--state", "state"]));
    assert!(said.contains(" superblocks checked, every copy of them"), "{said}");
    done(&bench.run(&["job", "wait", "state/pools/mail/empty"]));
    let shown = json_of(&done(&bench.run(&["pool", "show", POOL, "--json"])));
    assert_eq!((&shown["drives_in_use"], &shown["leaving"]), (&2.into(), &serde_json::json!([])));
    let listed = done(&bench.run(&["job", "list", "--state", "state"]));
    assert!(listed.contains("mail/scrub: idle, done at 2"), "{listed}");
    again.end();
    done(&bench.run(&["pool", "scrub", POOL]));
}

#[test]
fn a_verb_that_waits_goes_on_when_the_server_comes_back() {
    if !qemu_is_here() {
        return;
    }
    let (bench, served) = served_bench();
    fill(&bench, &served);
    let scrubbing = WaitingVerb::begin(&bench, &["pool", "scrub", POOL]);
    let retiring = WaitingVerb::begin(&bench, &["pool", "retire", POOL, "drive-2.spindle"]);
    served.kill();
    let again = Served::begin(&bench);
    for waiting in [scrubbing, retiring] {
        let (code, said) = waiting.end();
        assert_eq!(code, Some(0), "{said}");
    }
    again.end();
}

#[test]
fn control_c_ends_the_wait_and_not_the_work() {
    if !qemu_is_here() {
        return;
    }
    let (bench, served) = served_bench();
    fill(&bench, &served);
    for (arguments, says) in [
        (&["scrub", POOL][..], "state/pools/mail: the scrub goes on in the server at unix:"),
        (&["retire", POOL, "drive-3.spindle"], "drive-3.spindle goes on in the server at unix:"),
    ] {
        let waiting = WaitingVerb::begin(&bench, &[&["pool"], arguments].concat());
        signal(&waiting.0, "INT");
        let (code, said) = waiting.end();
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(says) && said.contains("' waits for it; 'spindle "), "{said}");
    }
    refused_with(&bench.run(&["job", "cancel", "state/pools/mail/rebuild"]), "it keeps data safe");
    done(&bench.run(&["job", "wait", "state/pools/mail/scrub"]));
    refused_with(&bench.run(&["job", "cancel", "state/pools/mail/scrub"]), "is not under way");
    let waiting = WaitingVerb::begin(&bench, &["pool", "scrub", POOL]);
    let said = done(&bench.run(&["job", "cancel", "state/pools/mail/scrub"]));
    assert!(said.contains("cancelled; what it has done counts, and 'spindle pool scrub"), "{said}");
    let (code, said) = waiting.end();
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("the scrub was cancelled"), "{said}");
    refused_with(
        &bench.run(&["job", "show", "mail/none", "--state", "state"]),
        "say POOL/JOB, where JOB is rebuild, ",
    );
    served.end();
}

#[test]
fn the_room_of_a_pool_says_what_takes_it_and_what_gives_it_back() {
    if !qemu_is_here() {
        return;
    }
    let (bench, served) = served_bench();
    let store = format!("{POOL}/store");
    real::run(0, Default::default(), async |world: World| {
        let mut client = QemuIo::begin(&bench, &world, "client", served.uri("/store"));
        for (number, day) in ["monday", "tuesday", "wednesday"].iter().enumerate() {
            // A MiB of its own, and four of the day before.
            let write = format!("write -P {} 0 {}M", number + 1, if number == 0 { 8 } else { 4 });
            client.says(&write, "wrote", number + 1).await;
            client.says("flush", "qemu-io>", number + 2).await;
            done(&bench.run(&["volume", "snapshot", &format!("{store}@{day}")]));
        }
        client.says("write -P 9 0 1M", "wrote", 4).await;
        client.says("flush", "qemu-io>", 5).await;
        client.end().await;
    });
    let room = || json_of(&done(&bench.run(&["pool", "room", POOL, "--json"])));
    let known = room();
    let gains = known["gains"].as_array().unwrap();
    let commands: Vec<&str> =
        known["commands"].as_array().unwrap().iter().map(|command| command.as_str().unwrap()).collect();
    let mib = |gain: &serde_json::Value| gain["bytes"].as_u64().unwrap() >> 20;
    // Monday and Tuesday keep 4 MiB each, Wednesday the one that was overwritten since.
    let snapshots: Vec<_> =
        gains.iter().zip(&commands).filter(|(gain, _)| gain["step"] != "stop_sparing").collect();
    assert_eq!(snapshots.iter().map(|(gain, _)| mib(gain)).collect::<Vec<_>>(), [9, 4, 4, 1], "{known}");
    assert_eq!(*snapshots[0].1, format!("spindle volume delete {store}@SNAPSHOT"));
    assert_eq!(*snapshots[3].1, format!("spindle volume delete {store}@wednesday"));
    assert!(gains.iter().all(|gain| gain["is_exact"] == true), "{known}");
    assert_eq!(known["volumes"][0]["snapshots_bytes"], gains[0]["bytes"]);
    // Names may have all that a shell takes apart.
    done(&bench.run(&["volume", "snapshot", &format!("{store}@x; $(halt)")]));
    let text = done(&bench.run(&["pool", "room", POOL]));
    assert!(!text.contains(" state/pools/mail/store@x;"), "{text}");
    let quoted = "spindle volume delete 'state/pools/mail/store@x; $(halt)'";
    let odd = room();
    assert!(odd["commands"].as_array().unwrap().iter().all(|command| {
        let command = command.as_str().unwrap();
        !command.contains("halt") || command == quoted
    }));
    done(&bench.run(&["volume", "delete", &format!("{store}@x; $(halt)"), "--yes", "x; $(halt)"]));
    let text = done(&bench.run(&["pool", "room", POOL]));
    assert!(text.contains("  no forecast: no history is known yet; "), "{text}");
    assert!(text.contains(", of which its 3 snapshots keep 9.00 MiB\n"), "{text}");
    // What is said is what it gives back.
    let used = known["used_bytes"].as_u64().unwrap();
    let delete = ["volume", "delete", &format!("{store}@monday")];
    refused_with(
        &bench.run(&delete),
        "state/pools/mail/store@monday: a snapshot of 128 MiB → deleted; nothing brings it back: the name confirms that; say \
         --yes monday",
    );
    refused_with(&bench.run(&[&delete[..], &["--yes", "tuesday"]].concat()), "\"tuesday\" is not monday");
    done(&bench.run(&[&delete[..], &["--yes", "monday"]].concat()));
    served.end();
    let stopped = room();
    assert_eq!(stopped["gains"][0]["bytes"].as_u64().unwrap() >> 20, 5, "{stopped}");
    assert!(used - stopped["used_bytes"].as_u64().unwrap() >= 4 << 20, "{used}: {stopped}");
    // A history of two days, by which the pool is full at a known date.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let history =
        format!("{{\"format\":1,\"samples\":[{{\"unix_s\":{},\"used_bytes\":0}}]}}\n", now - 2 * 86_400);
    bench.make_file("state/pools/mail/spindle-room.json", history.as_bytes());
    let stopped = room();
    let growth = &stopped["growth"];
    assert_eq!(growth["grown_bytes"], stopped["used_bytes"]);
    assert!(growth["full_at"].as_str().unwrap().starts_with("20"), "{growth}");
    let text = done(&bench.run(&["pool", "room", POOL]));
    assert!(text.contains("  full at 20") && text.contains(" a day\n"), "{text}");
}

#[test]
fn a_lost_drive_is_forgotten_although_the_server_is_killed_meanwhile() {
    if !qemu_is_here() {
        return;
    }
    let (bench, served) = served_bench();
    fill(&bench, &served);
    served.end();
    fs::rename(bench.path("state/pools/mail/drive-2.spindle"), bench.path("away")).unwrap();
    let served = Served::begin(&bench);
    let forgetting = WaitingVerb::begin(&bench, &["pool", "forget", POOL, "drive-2.spindle"]);
    served.kill();
    let served = Served::begin(&bench);
    // It goes on, once drives that are only late after a start have had their five minutes; nobody has to ask again.
    let listed = json_of(&done(&bench.run(&["job", "list", "mail", "--state", "state", "--json"])));
    let rebuild = listed.as_array().unwrap().iter().find(|job| job["kind"] == "rebuild").unwrap();
    assert!(rebuild["request"]["id"].is_string() && rebuild["request"].get("outcome").is_none(), "{rebuild}");
    signal(&forgetting.0, "INT");
    let (code, said) = forgetting.end();
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("goes on in the server")
            && said.contains("'spindle job wait state/pools/mail/rebuild'"),
        "{said}"
    );
    let said = bench.run(&["job", "cancel", "state/pools/mail/rebuild"]);
    refused_with(&said, "it keeps data safe");
    served.end();
}

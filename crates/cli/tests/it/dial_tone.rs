//! `protect dial-tone` after the loss of databases: a run of `prove` works on the empty ones, with numbers of messages that the lost
//! ones do not have; `protect merge` joins both, or what was comes back by the command that the answer names.

use crate::{
    brought_forward::{MailServer, Records, records},
    judged_exports::until,
    one_database::{Loss, lose},
    pool_drives::done,
    sites_served::Served,
    spindle::{Bench, answered},
};
use maildb::{ColumnId, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt,
};

/// Mailbox and number of each message.
fn keys(records: &Records) -> BTreeSet<(i32, i64)> {
    let key = |record: &Vec<(ColumnId, Value)>| match record[..] {
        [(_, Value::I32(mailbox)), (_, Value::I64(message)), ..] => Some((mailbox, message)),
        _ => None,
    };
    records.iter().filter_map(key).collect()
}

/// Kills a command once clones with this in their names are to take places; false if it had ended before, which cannot be
/// repeated.
fn is_killed_between(server: &MailServer, words: &[&str], mark: &str) -> bool {
    server.kill_at(words, "change places");
    let is_early = server.volumes().iter().any(|name| name.contains(mark));
    if !is_early {
        println!("note: the kill came late: {} had ended", words[1]);
    }
    is_early
}

/// The messages by mailbox and number, without labels.
fn messages(records: &Records) -> BTreeMap<(i32, i64), Vec<(ColumnId, Value)>> {
    let key = |record: &Vec<(ColumnId, Value)>| keys(&vec![record.clone()]).into_iter().next();
    records.iter().filter_map(|record| Some((key(record)?, record.clone()))).collect()
}

/// Joins the dial tone with what was restored as `old`, with a kill when it is decided, and lets the mail server work on it.
fn join(bench: Bench, (lost, received): (&Records, &Records)) -> Bench {
    let served = Served::begin(&bench);
    let server = MailServer { bench, served };
    server.readmit();
    let nothing = server.refused(&["protect", "merge", "post", "--from", "nothing", "--yes", "post"]);
    assert!(nothing.contains("-nothing: nothing was changed"), "{nothing}");
    let merge = ["protect", "merge", "post", "--from", "old", "--yes", "post"];
    if is_killed_between(&server, &merge, "-merged-") {
        server.answer(&merge);
    }
    let again = server.refused(&merge);
    assert!(again.contains("is no dial tone"), "{again}");
    let MailServer { bench, served } = server;
    served.end();
    let mut both = messages(lost);
    both.extend(messages(received));
    assert!(messages(&records(&bench, ["store", "log"])) == both, "the messages of both");

    let served = Served::begin(&bench);
    let server = MailServer { bench, served };
    let words = server.prove(&["--attach", "--duration", "2s"]);
    let output = server.bench.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(output.stderr.contains("records read and checked"), "{}", output.stderr);
    answered(&output);
    let MailServer { bench, served } = server;
    served.end();
    bench
}

#[test]
fn mail_goes_on_in_empty_databases_and_what_was_comes_back() {
    let server = MailServer::begin();
    server.create_databases();
    let backup = server.back_up();
    let MailServer { bench, served } = server;
    served.end();
    let lost = records(&bench, ["store", "log"]);
    lose(&bench, "sg1-db1.edb", Loss::Overwritten);
    let served = Served::begin(&bench);
    let server = MailServer { bench, served };
    let dial_tone = ["protect", "dial-tone", "post", "--yes", "post"];
    // Volumes and snapshots of both pools, before and after a dry run.
    let before = server.volumes();
    let outlook = server.answer(&["protect", "dial-tone", "post", "--dry-run"]);
    assert_eq!(outlook["done"], "looked at", "{outlook}");
    assert_eq!(outlook["databases"][0], "sg1-db1.edb", "{outlook}");
    let mut named: Vec<&str> =
        outlook["volumes"].as_array().unwrap().iter().map(|row| row["volume"].as_str().unwrap()).collect();
    named.sort_unstable();
    assert_eq!(named, ["logs/log", "mail/store"], "{outlook}");
    assert_eq!(server.volumes(), before, "a dry run changes nothing");
    let no_hooks = server.refused(&[&dial_tone[..], &["--hooks", "site.toml"]].concat());
    assert!(no_hooks.contains("has no hooks under [protect.restore]"), "{no_hooks}");
    assert_eq!(server.volumes(), before, "nor one without the hooks that it is to run");
    // Killed when it is decided: the same command completes it.
    if is_killed_between(&server, &dial_tone, "-dialtone-") {
        let other = server.refused(&["protect", "restore", "post", &backup, "--yes", "post"]);
        assert!(other.contains("the dial tone by") && other.contains("has not taken the place"), "{other}");
        let begun = server.answer(&dial_tone);
        assert_eq!(begun["databases"][0], "sg1-db1.edb", "{begun}");
        assert!(!server.volumes().iter().any(|name| name.contains("-dialtone-")), "{begun}");
    }
    let second = server.refused(&dial_tone);
    assert!(second.contains("a dial tone is in place") && second.contains("nothing was changed"), "{second}");

    server.readmit();
    let empty = server.back_up();
    server.load_and_kill(&empty, 20);
    // Again: it reads what the first run has left, and fills nothing up.
    server.readmit();
    let then = server.commits_behind(&empty);
    server.load_and_kill(&empty, then + 20);
    // The lost ones come forward with the log that was left, and not with that of the empty ones.
    let beside = ["protect", "restore", "post", &backup, "--as", "old"];
    let foreign = server.refused(&beside);
    assert!(foreign.contains("another storage group") && foreign.contains("such as log~1"), "{foreign}");
    server.answer(&[&beside[..], &["--logs", "log~1"]].concat());
    let MailServer { bench, served } = server;
    served.end();
    let received = keys(&records(&bench, ["store", "log"]));
    assert!(records(&bench, ["store-old", "log-old"]) == lost, "beside");
    let lost_keys = keys(&lost);
    assert!(!received.is_empty() && received.len() < lost_keys.len() / 2, "{} messages", received.len());
    assert!(received.is_disjoint(&lost_keys), "numbers of their own");

    // The lost databases come back in place, and the dial tone stays beside.
    let received = records(&bench, ["store", "log"]);
    let bench = join(bench, (&lost, &received));
    let served = Served::begin(&bench);
    for volume in ["mail/store", "logs/log"] {
        let name = volume.rsplit_once('/').unwrap().1;
        let newest = format!("state/pools/{volume}~1");
        done(&bench.run(&["volume", "rollback", &newest, "--yes", &format!("{name}~1"), "--force"]));
    }
    let server = MailServer { bench, served };
    server.answer(&["protect", "restore", "post", &backup, "--database", "sg1-db1", "--yes", "post"]);
    let MailServer { bench, served } = server;
    served.end();
    assert!(records(&bench, ["store", "log"]) == lost, "the lost database, from what was");
}

/// A hook of the mail host that notes its phase, and does more.
fn hook(server: &MailServer, name: &str, rest: &str) -> String {
    let folder = server.bench.path("").display().to_string();
    let text = format!("#!/bin/sh\necho $SPINDLE_PHASE $SPINDLE_SET >> {folder}/ran\n{rest}\n");
    let path = server.bench.make_file(name, text.replace("DIR", &folder).as_bytes());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn hooks_end_the_mail_server_for_a_dial_tone_and_a_merge() {
    let server = MailServer::begin();
    server.create_databases();
    let backup = server.back_up();
    let stop = "[ -e DIR/gentle ] || { echo not at noon >&2; exit 5; }\n\
                [ -e DIR/server.pid ] || exit 0\npid=$(cat DIR/server.pid)\nkill $pid\n\
                while [ -e /proc/$pid ] && ! grep -q '^State:.*Z' /proc/$pid/status; do sleep 0.1; done";
    let (before, after) = (hook(&server, "stop", stop), hook(&server, "start", "true"));
    let site = fs::read_to_string(server.bench.path("site.toml")).unwrap();
    let hooks = format!("[protect.restore]\nbefore = ['{before}']\nafter = ['{after}']\n");
    server.bench.make_file("host.toml", format!("{site}{hooks}").as_bytes());
    let ran = || {
        let ran = fs::read_to_string(server.bench.path("ran")).unwrap_or_default();
        let _ = fs::remove_file(server.bench.path("ran"));
        ran
    };
    let both = "restore-before post\nrestore-after post\n";

    let dial_tone = ["protect", "dial-tone", "post", "--yes", "post"];
    let hooked = [&dial_tone[..], &["--hooks", "host.toml"]].concat();
    let volumes = server.volumes();
    let refused = server.refused(&hooked);
    assert!(
        refused.contains("restore-before: ") && refused.contains("it exited with 5: not at noon"),
        "{refused}"
    );
    assert_eq!(
        (ran().as_str(), server.volumes()),
        (both, volumes.clone()),
        "what was stopped in part is started"
    );

    let mut load = server.begin_load();
    let outlook = || server.answer(&["protect", "dial-tone", "post", "--dry-run"]);
    until("the mail server is connected", || {
        let log = || fs::read_to_string(server.bench.path("load.log")).unwrap();
        assert!(load.try_wait().unwrap().is_none(), "the load has ended: {}", log());
        outlook()["volumes"][0]["used_by"][0].is_string()
    });
    server.bench.make_file("server.pid", load.id().to_string().as_bytes());
    let refused = server.refused(&dial_tone);
    assert!(refused.contains("is used by") && refused.contains("nothing was changed"), "{refused}");
    assert_eq!((ran().as_str(), server.volumes()), ("", volumes.clone()), "nothing was done");
    server.bench.make_file("gentle", b"");
    let begun = server.answer(&hooked);
    assert_eq!((begun["done"].as_str(), ran().as_str()), (Some("emptied"), both), "{begun}");
    load.wait().unwrap();
    fs::remove_file(server.bench.path("server.pid")).unwrap();
    assert!(server.volumes().contains(&"store~1".to_owned()), "{:?}", server.volumes());

    // The lost ones come back beside, and both are joined.
    server.answer(&["protect", "restore", "post", &backup, "--as", "old", "--logs", "log~1"]);
    let merge = ["protect", "merge", "post", "--from", "old"];
    let outlook = server.answer(&[&merge[..], &["--dry-run"]].concat());
    assert_eq!((outlook["done"].as_str(), ran().as_str()), (Some("looked at"), ""), "{outlook}");
    let nothing = [&merge[..4], &["nothing", "--yes", "post", "--hooks", "host.toml"]].concat();
    let refused = server.refused(&nothing);
    assert!(refused.contains("-nothing: nothing was changed"), "{refused}");
    assert_eq!(ran(), "", "the mail server goes on where nothing can be done");
    let joined = server.answer(&[&merge[..], &["--yes", "post", "--hooks", "host.toml"]].concat());
    assert_eq!((joined["done"].as_str(), ran().as_str()), (Some("joined"), both), "{joined}");
}

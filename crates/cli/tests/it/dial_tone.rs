//! `protect dial-tone` after the loss of databases: a run of `prove` works on the empty ones, with numbers of messages that the lost
//! ones do not have; `protect merge` joins both, or what was comes back by the command that the answer names.

use crate::{
    brought_forward::{MailServer, Records, records},
    one_database::{Loss, lose},
    pool_drives::done,
    sites_served::Served,
    spindle::{Bench, answered},
};
use maildb::{ColumnId, Value};
use std::collections::{BTreeMap, BTreeSet};

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

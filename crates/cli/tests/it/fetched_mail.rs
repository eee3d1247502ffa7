//! Mailboxes of databases in a backup as files of mail: read by Python's own library, and compared with the records as libesedb
//! exports them.

use crate::{
    exported::{is_here, judge, text},
    online_verbs::make_token,
    pool_drives::done,
    sites_served::Served,
    spindle::{Bench, ProgramOutput, answered, is_full_run, json_of, short, signal},
};
use std::{fs, process::Stdio, thread, time::Duration};

/// Prints a line for each mail of the Maildir $1: mailbox, number, flags, subject and body, as libesedb does. A mail that is not
/// well-formed ends it.
const READ_MAILDIR: &str = r#"
import sys, mailbox, email.policy, email.utils
from email.parser import BytesParser
box = mailbox.Maildir(sys.argv[1], factory=lambda file: BytesParser(policy=email.policy.default).parse(file), create=False)
for mail in box:
    assert not mail.defects and mail.get_content_type() == "application/octet-stream", mail
    arrived = int(email.utils.parsedate_to_datetime(mail["Date"]).timestamp())
    assert (arrived + 11644473600) * 10000000 == 134116992000000000 + int(mail["X-Spindle-Message"]) * 10000000
    print(mail["X-Spindle-Mailbox"], mail["X-Spindle-Message"], mail["X-Spindle-Flags"], mail["Subject"], mail.get_content().hex(), sep="\t")
"#;

fn fetch(bench: &Bench, arguments: &[&str]) -> ProgramOutput {
    let place = ["--state", "state", "--json"];
    bench.run(&[&["protect", "fetch"], arguments, &place].concat())
}

/// The mails of a Maildir as lines, sorted.
fn lines_of_maildir(bench: &Bench, folder: &str) -> Vec<String> {
    let read = judge("python3", &["-c", READ_MAILDIR, &text(&bench.path(folder))]);
    sorted(read.lines().map(str::to_owned))
}

fn sorted(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines
}

/// A mailbox of a backup of `prove`'s databases is fetched; `number` is that of the backup.
pub fn mails_are_fetched(bench: &Bench, number: u64) {
    if !is_here("python3", "python3") {
        return;
    }
    let backup = format!("post@{number}");
    let fetched = fetch(bench, &[&backup, "--mailbox", "0", "--to", "anna"]);
    assert_eq!(fetched.code, Some(0), "{}{}", fetched.stdout, fetched.stderr);
    let answer = json_of(&fetched.stdout);
    let mails = answer["mails"].as_u64().unwrap();
    assert_eq!((answer["written"].as_u64(), &answer["problems"]), (Some(mails), &json_of("[]")), "{answer}");
    let lines = lines_of_maildir(bench, "anna");
    assert!(mails > 10 && lines.len() as u64 == mails, "{answer}");
    assert!(lines.iter().all(|line| line.starts_with("0\t") && line.contains(" of mailbox 0 ")), "{lines:?}");
    // Half of them is lost, and the same command goes on; one that was read stays where it is.
    let name =
        |index: usize| fs::read_dir(bench.path("anna/new")).unwrap().nth(index).unwrap().unwrap().path();
    let read = name(0);
    let kept = bench.path("anna/cur").join(format!("{}:2,S", read.file_name().unwrap().to_str().unwrap()));
    fs::rename(&read, &kept).unwrap();
    (0..mails / 2).for_each(|_| fs::remove_file(name(0)).unwrap());
    let again = json_of(&fetch(bench, &[&backup, "--mailbox", "0", "--to", "anna"]).stdout);
    assert_eq!(
        (again["mails"].as_u64(), again["written"].as_u64()),
        (Some(mails), Some(mails / 2)),
        "{again}"
    );
    assert!(kept.exists() && lines_of_maildir(bench, "anna") == lines);
    let late = ["--mailbox", "0", "--since", "2026-01-02", "--to", "late"];
    let late = json_of(&fetch(bench, &[&[&*backup][..], &late].concat()).stdout);
    assert_eq!(late["mails"], 0, "{late}");
    let none = fetch(bench, &[&backup, "--mailbox", "7000000", "--to", "nobody"]);
    assert_eq!((none.code, bench.path("nobody").exists()), (Some(1), false), "{}", none.stderr);
    for (arguments, why) in [
        (["--mailbox", "0", "--to", "state"], "is neither empty nor a Maildir"),
        (["--mailbox", "0", "--database=priv9", "--to=anna"], "the backup has no database priv9"),
        (["--mailbox", "0", "--since=soon", "--to=anna"], "is no day and no span"),
    ] {
        let refused = fetch(bench, &[&[&*backup][..], &arguments].concat());
        assert_eq!(refused.code, Some(2), "{arguments:?} {}", refused.stdout);
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
    }
}

/// The same records as libesedb finds in the database's file, which a mounted backup shows; fetched by an operator.
#[test]
fn a_fetched_mailbox_has_the_records_that_libesedb_exports() {
    let judges = [("python3", "python3"), ("esedbexport", "libesedb-utils"), ("fusermount3", "fuse3")];
    if !is_full_run("libesedb beside fetched mails")
        || !judges.iter().all(|(program, package)| is_here(program, package))
    {
        return;
    }
    let bench = Bench::new();
    let site = crate::sets_verified::SITE;
    bench.make_file("site.toml", site.as_bytes());
    let served = Served::begin(&bench);
    answered(&bench.run(&[&short(&[served.uri("/store")])[..], &["--databases", "2"]].concat()));
    done(&bench.run(&["protect", "now", "post", "--state", "state"]));
    make_token(&bench, "operator", &["--role", "operate"]);
    let socket = format!("unix:{}", bench.path("state/spindle.sock").display());
    let place = ["--server", &socket, "--token-file", "operator", "--json"];
    let both =
        bench.run(&[&["protect", "fetch", "post", "--mailbox", "1", "--to", "all"][..], &place].concat());
    assert_eq!(both.code, Some(2), "{}", both.stdout);
    assert!(both.stderr.contains("2 databases have a mailbox 1"), "{}", both.stderr);
    fs::create_dir(bench.path("look")).unwrap();
    let mut mount = bench.command(&["protect", "mount", "post", "look", "--state", "state"]);
    let mut mount = mount.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let shown = bench.path("look/mail-store");
    (0..100).take_while(|_| !shown.exists()).for_each(|_| thread::sleep(Duration::from_millis(100)));
    for database in ["sg1-db1", "sg1-db2"] {
        let copy = bench.path(&format!("{database}.edb"));
        fs::copy(shown.join(format!("{database}.edb")), &copy).unwrap();
        let out = bench.path(database);
        judge("esedbexport", &["-m", "tables", "-t", &text(&out), &text(&copy)]);
        let table = fs::read_to_string(bench.path(&format!("{database}.export/Mail.2"))).unwrap();
        let wanted = ["--mailbox", "1", "--database", database, "--to", &format!("of-{database}")];
        done(&bench.run(&[&["protect", "fetch", "post"][..], &wanted, &place].concat()));
        // Without the time of arrival, which the other judge compares.
        let without_time = |line: &str| {
            let columns: Vec<&str> = line.split('\t').collect();
            [columns[0], columns[1], columns[3], columns[4], columns[5]].join("\t")
        };
        let exported = sorted(table.lines().filter(|line| line.starts_with("1\t")).map(without_time));
        assert!(exported.len() > 10, "{}", exported.len());
        assert!(lines_of_maildir(&bench, &format!("of-{database}")) == exported, "{database}");
    }
    signal(&mount, "INT");
    assert!(mount.wait().unwrap().success());
    served.end();
}

//! Databases of a run that are frozen at its socket while their volumes are cut, by the server and by an agent, and whose logs
//! stay until a backup is proven.

use crate::{
    brought_forward::{MailServer, records},
    judged_exports::until,
    spindle::{answered, is_full_run},
};
use maildb::{ColumnId, Value};
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Child, Stdio},
};

/// A run that holds a rate until it is killed, and can be frozen; its messages go to `log`.
fn begin_load(server: &MailServer, socket: &Path, options: &[&str]) -> Child {
    begin_load_of((server, socket), "1", options)
}

/// One of so many I/O a second for each of 60 mailboxes.
fn begin_load_of((server, socket): (&MailServer, &Path), iops: &str, options: &[&str]) -> Child {
    let socket = socket.display().to_string();
    let rate = ["--mailboxes", "60", "--iops", iops, "--duration", "10m", "--control", &socket];
    let words = server.prove(&[&rate, options].concat());
    let mut command = server.bench.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let log = fs::File::create(server.bench.path("prove.log")).unwrap();
    command.stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

#[test]
fn a_set_of_databases_under_load_is_cut_while_they_are_frozen() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("mail.sock");
    let freeze = format!("freeze = {{ kind = 'maildb', sockets = ['{}'] }}\n", socket.display());
    let server = MailServer::begin_with(&freeze);
    server.create_databases();
    let now = ["protect", "now", "post", "--hold", "test"];
    // Nobody is there to be frozen.
    let refused = server.refused(&now);
    assert!(refused.contains("--control"), "{refused}");

    let mut load = begin_load(&server, &socket, &[]);
    until("the run can be frozen", || socket.exists());
    let backup = server.answer(&now);
    assert_eq!(backup["label"], "application", "{backup}");
    let said = || fs::read_to_string(server.bench.path("prove.log")).unwrap();
    let name = backup["name"].as_str().unwrap().to_owned();
    until("the run says so", || said().contains(&format!("{name}: frozen from outside for")));
    assert!(!said().contains("it had thawed before"), "{}", said());

    // A person's order freezes however soon it comes.
    let second = server.answer(&now);
    assert_eq!(second["label"], "application", "{second}");
    load.kill().unwrap();
    load.wait().unwrap();
    // A killed run leaves its socket, and the next one comes in its place.
    assert!(server.refused(&now).contains("--control"));
    let mut again = begin_load(&server, &socket, &[]);
    until("the next run can be frozen", || server.said(&now).stdout.contains("application"));
    again.kill().unwrap();
    again.wait().unwrap();

    // The cut has the databases as they were frozen: nothing has to be proven by their logs.
    let number = second["number"].to_string();
    let verified = server.said(&["protect", "verify", "post", &number]);
    assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
    assert!(verified.stdout.contains("proven"), "{}", verified.stdout);
    server.served.end();
}

#[test]
fn an_agent_freezes_databases_on_its_host() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("mail.sock");
    let of_set =
        format!("freeze = {{ kind = 'maildb', sockets = ['{}'], by = 'agent' }}\n", socket.display());
    let server = MailServer::begin_with(&of_set);
    server.create_databases();
    assert!(server.refused(&["protect", "now", "post"]).contains("kept by an agent"));
    let mut load = begin_load(&server, &socket, &[]);
    until("the run can be frozen", || socket.exists());
    let words = ["protect", "run", "site.toml", "--once", "--state", "state", "--catalogues", "agent"];
    let said = server.bench.run(&words);
    load.kill().unwrap();
    load.wait().unwrap();
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stderr.contains("was made: application"), "{}", said.stderr);
    server.served.end();
}

#[test]
fn logs_that_are_kept_go_once_a_backup_is_proven_and_older_backups_reach_the_present() {
    if !is_full_run("logs that wait for a proof") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("mail.sock");
    let freeze = format!("freeze = {{ kind = 'maildb', sockets = ['{}'] }}\n", socket.display());
    let server = MailServer::begin_with(&freeze);
    // A creation without it would leave no log, either.
    let words = server.prove(&["--duration", "1s", "--control", socket.to_str().unwrap(), "--keep-logs"]);
    answered(&server.bench.run(&words.iter().map(String::as_str).collect::<Vec<_>>()));
    let said = || fs::read_to_string(server.bench.path("prove.log")).unwrap();
    let back_up = || {
        let backup = server.answer(&["protect", "now", "post", "--hold", "test"]);
        assert_eq!(backup["label"], "application", "{backup}");
        (backup["number"].to_string(), backup["name"].as_str().unwrap().to_owned())
    };
    let prove = |number: &str, level: &str| {
        let verified = server.said(&["protect", "verify", "post", number, "--level", level]);
        assert!(verified.stdout.contains("proven"), "{}{}", verified.stdout, verified.stderr);
    };

    let mut load = begin_load(&server, &socket, &["--keep-logs"]);
    until("the run can be frozen", || socket.exists());
    let ((first, _), (second, second_name)) = (back_up(), back_up());
    // Those who look at the log chain alone know nothing of the databases.
    prove(&second, "chain");
    let (third, third_name) = back_up();
    assert!(!said().contains("is proven"), "{}", said());
    prove(&second, "pages");
    until("logs go", || said().contains(&format!("{second_name} is proven; the logs from generation ")));
    let report = server.answer(&["protect", "report", "post", "--since", "2020-01-01"]);
    let backups = report["backups"].as_array().unwrap();
    let went: Vec<_> = backups.iter().filter(|backup| backup["log_releases"].is_array()).collect();
    assert_eq!(went.len(), 1, "{report}");
    let text = went[0]["log_releases"][0]["text"].as_str().unwrap();
    assert!(text.contains(&format!("went: {second_name} has them")), "{text}");

    // The process that knew the third cut is gone: its logs go with those of the fourth.
    until("transactions are in the log", || server.commits_behind(&first) > 20);
    load.kill().unwrap();
    load.wait().unwrap();
    let forward = server.answer(&["protect", "restore", "post", &first, "--as", "forward"]);
    assert!(forward["logs"][0]["commits"].as_u64().unwrap() > 20, "{forward}");
    let mut load = begin_load(&server, &socket, &["--keep-logs"]);
    until("the next run can be frozen", || said().contains("it can be frozen at"));
    prove(&third, "pages");
    let (fourth, fourth_name) = back_up();
    assert!(!said().contains(&third_name), "{}", said());
    prove(&fourth, "recover");
    until("logs go", || said().contains(&format!("{fourth_name} is proven; the logs from generation ")));
    load.kill().unwrap();
    load.wait().unwrap();
    let present = server.answer(&["protect", "restore", "post", &first, "--as", "present"]);
    assert!(present["not_brought_forward"].is_null(), "{present}");
    let MailServer { bench, served } = server;
    served.end();
    let head = records(&bench, ["store", "log"]);
    assert!(head.len() > 100, "{} records", head.len());
    assert!(records(&bench, ["store-present", "log-present"]) == head, "over all the backups between");
    assert!(records(&bench, ["store-forward", "log-forward"]) != head, "the load went on");
}

#[test]
fn mails_of_a_backup_go_back_into_the_databases_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("mail.sock");
    let freeze = format!("freeze = {{ kind = 'maildb', sockets = ['{}'] }}\n", socket.display());
    let server = MailServer::begin_with(&freeze);
    server.create_databases();
    // A slow machine asks for the chain of logs late: they have to stay that long.
    let mut load = begin_load_of((&server, &socket), "5", &["--keep-logs"]);
    until("the run can be frozen", || socket.exists());
    let backup = server.answer(&["protect", "now", "post", "--hold", "test"]);
    let (number, name) = (backup["number"].to_string(), backup["name"].as_str().unwrap().to_owned());
    let before = server.answer(&["protect", "restore", "post", &number, "--as", "before", "--logs", "none"]);
    assert!(before["not_brought_forward"].is_null(), "{before}");

    // Many mails are changed and deleted, then a mailbox comes back, while little is done.
    until("transactions are in the log", || server.commits_behind(&number) > 2_000);
    load.kill().unwrap();
    load.wait().unwrap();
    fs::remove_file(&socket).unwrap();
    server.readmit();
    let mut load = begin_load_of((&server, &socket), "0.1", &["--keep-logs"]);
    until("the run can be frozen again", || socket.exists());
    let of_backup = format!("post@{name}");
    let fetch = ["protect", "fetch", &of_backup, "--mailbox", "0", "--into", "live"];
    let fetched = server.answer(&fetch);
    // The run answers the one who asked, and says it on its own output a little later.
    let said = || fs::read_to_string(server.bench.path("prove.log")).unwrap();
    until("the run says what was delivered", || said().contains("messages of a backup were delivered"));
    load.kill().unwrap();
    load.wait().unwrap();
    let (mails, written) = (fetched["mails"].as_u64().unwrap(), fetched["written"].as_u64().unwrap());
    let changed = fetched["changed_since"].as_u64().unwrap();
    assert!(written > 3 && changed > 0 && mails > written + changed, "{fetched}");
    assert_eq!(fetched["already_there"].as_u64(), Some(mails - written), "{fetched}");
    let nobody = server.refused(&fetch);
    assert!(nobody.contains("is there a run with --control"), "{nobody}");

    let MailServer { bench, served } = server;
    served.end();
    // By mailbox and number.
    let by_key = |store, log| -> BTreeMap<String, Vec<(ColumnId, Value)>> {
        let all = records(&bench, [store, log]).into_iter();
        all.map(|record| (format!("{:?} {:?}", record[0].1, record[1].1), record)).collect()
    };
    let (head, before) = (by_key("store", "log"), by_key("store-before", "log-before"));
    let (of_mailbox, of_others): (Vec<_>, Vec<_>) =
        before.iter().partition(|(_, record)| record[0].1 == Value::I32(0));
    assert_eq!(of_mailbox.len() as u64, mails);
    // The load went on until it was killed: it may have deleted one again.
    let gone = |of: &[(&String, &Vec<_>)]| of.iter().filter(|(key, _)| !head.contains_key(*key)).count();
    let (gone, gone_elsewhere) = (gone(&of_mailbox), gone(&of_others));
    assert!(
        gone * 4 * of_others.len() < gone_elsewhere * of_mailbox.len(),
        "{gone} of {}, and {gone_elsewhere} of {} in other mailboxes",
        of_mailbox.len(),
        of_others.len()
    );
    let same = of_mailbox.iter().filter(|(key, record)| head.get(*key) == Some(record)).count();
    assert!((same + gone) as u64 + changed + 6 >= mails, "{same}: they are as the backup has them");
}

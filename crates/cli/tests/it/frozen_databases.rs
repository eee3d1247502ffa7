//! Databases of a run that are frozen at its socket while their volumes are cut: by the server, and by an agent.

use crate::{brought_forward::MailServer, judged_exports::until};
use std::{
    fs,
    path::Path,
    process::{Child, Stdio},
    thread,
    time::Duration,
};

/// A run that holds a rate until it is killed, and can be frozen; its messages go to `log`.
fn begin_load(server: &MailServer, socket: &Path) -> Child {
    let socket = socket.display().to_string();
    let rate = ["--mailboxes", "60", "--iops", "1", "--duration", "10m", "--control", &socket];
    let words = server.prove(&rate);
    let mut command = server.bench.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let log = fs::File::create(server.bench.path("prove.log")).unwrap();
    command.stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

#[test]
fn a_set_of_databases_under_load_is_cut_while_they_are_frozen() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("mail.sock");
    let freeze =
        format!("freeze_every = '1s'\nfreeze = {{ kind = 'maildb', sockets = ['{}'] }}\n", socket.display());
    let server = MailServer::begin_with(&freeze);
    server.create_databases();
    let now = ["protect", "now", "post", "--hold", "test"];
    // Nobody is there to be frozen.
    let refused = server.refused(&now);
    assert!(refused.contains("--control"), "{refused}");

    let mut load = begin_load(&server, &socket);
    until("the run can be frozen", || socket.exists());
    let backup = server.answer(&now);
    assert_eq!(backup["label"], "application", "{backup}");
    let said = || fs::read_to_string(server.bench.path("prove.log")).unwrap();
    let name = backup["name"].as_str().unwrap().to_owned();
    until("the run says so", || said().contains(&format!("{name}: frozen from outside for")));
    assert!(!said().contains("it had thawed before"), "{}", said());

    // Sooner it would be of the logs alone.
    let next_freeze = || thread::sleep(Duration::from_millis(1_500));
    next_freeze();
    let second = server.answer(&now);
    assert_eq!(second["label"], "application", "{second}");
    load.kill().unwrap();
    load.wait().unwrap();
    // A killed run leaves its socket, and the next one comes in its place.
    next_freeze();
    assert!(server.refused(&now).contains("--control"));
    let mut again = begin_load(&server, &socket);
    until("the next run can be frozen", || {
        next_freeze();
        server.said(&now).stdout.contains("application")
    });
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
    let mut load = begin_load(&server, &socket);
    until("the run can be frozen", || socket.exists());
    let words = ["protect", "run", "site.toml", "--once", "--state", "state", "--catalogues", "agent"];
    let said = server.bench.run(&words);
    load.kill().unwrap();
    load.wait().unwrap();
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stderr.contains("was made: application"), "{}", said.stderr);
    server.served.end();
}

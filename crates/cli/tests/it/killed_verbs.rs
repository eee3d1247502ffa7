//! Kills of the verbs that back up, verify and restore: nothing is lost, and the same command does it afterwards.

use crate::{
    brought_forward::{MailServer, records},
    spindle::is_full_run,
};
use std::{
    process::Stdio,
    thread,
    time::{Duration, Instant},
};
use world::Random;

/// Kills of each verb.
const KILLS: u64 = 20;

/// Runs a verb once, kills it at random moments of that time, and runs it again. `words` gives those of a run by its number.
fn kill(server: &MailServer, random: &mut Random, words: impl Fn(u64) -> Vec<String>) {
    let run = |number: u64| {
        let words = words(number);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let said = server.said(&words);
        assert_eq!(said.code, Some(0), "{words:?}: {}{}", said.stdout, said.stderr);
        words.join(" ")
    };
    let began = Instant::now();
    let verb = run(0);
    let whole = began.elapsed();
    let mut ended = 0;
    for number in 1..=KILLS {
        let words = [&words(number)[..], &["--state", "state"].map(str::to_owned)].concat();
        let mut command = server.bench.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_micros(random.below(whole.as_micros() as u64 + 1)));
        ended += u64::from(child.try_wait().unwrap().is_some());
        let _ = child.kill();
        child.wait().unwrap();
    }
    run(KILLS + 1);
    println!("note: {verb}: {whole:?}; {ended} of {KILLS} had ended before their kill");
    assert_eq!(server.lasting(), [""; 0], "a restore is half done");
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[test]
fn verbs_that_are_killed_at_any_moment_lose_nothing() {
    if !is_full_run("kills of each verb are of") {
        return;
    }
    let server = MailServer::begin();
    server.create_databases();
    let first = server.back_up();
    server.load_and_kill(&first, 20);
    let mut random = Random::new(17, "kills");
    let of_first = format!("post@{first}");
    kill(&server, &mut random, |_| owned(&["protect", "now", "post"]));
    kill(&server, &mut random, |_| owned(&["protect", "verify", "post", &first]));
    kill(&server, &mut random, |_| owned(&["protect", "drill", "post", &first]));
    kill(&server, &mut random, |number| {
        let folder = format!("mails-{}", number % 5);
        owned(&["protect", "fetch", &of_first, "--mailbox", "0", "--to", &folder])
    });
    kill(&server, &mut random, |number| {
        owned(&["protect", "restore", "post", &first, "--as", &format!("beside-{number}")])
    });
    kill(&server, &mut random, |_| owned(&["protect", "restore", "post", &first, "--yes", "post"]));
    let proven = server.said(&["protect", "verify", "post", &first]);
    assert!(proven.stdout.contains("proven"), "{}{}", proven.stdout, proven.stderr);
    let MailServer { bench, served } = server;
    served.end();
    // The first restore in place left the state of the killed mail server.
    let head = records(&bench, ["store~1", "log~1"]);
    assert!(head.len() > 100, "{} records", head.len());
    assert!(records(&bench, ["store", "log"]) == head, "everything that there was");
    let beside = format!("beside-{}", KILLS + 1);
    let [store, log] = ["store", "log"].map(|volume| format!("{volume}-{beside}"));
    assert!(records(&bench, [&store, &log]) == head, "beside");
}

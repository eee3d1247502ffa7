//! A process killed in the middle of its work, many times.
//!
//! A child process runs several sessions of mixed transactions and reports to the parent, through a pipe,
//! which commits it begins and which were acknowledged. The parent kills it without warning, recovers the
//! group, and compares the contents with a model that it computes itself:
//!
//! - each session left the state after some whole number of its transactions;
//! - every acknowledged durable commit survived;
//! - so is every lazy commit that returned before an acknowledged durable one began: lazy commits
//!   survive as a prefix;
//! - every checksum, link and extent is right.

use crate::model::{self, Rows};
use maildb::{Durability, PageSize};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};
use world::{ByteCount, Random, World, real};

const SESSIONS: u64 = 4;
const MAILBOXES_PER_SESSION: u64 = 5;
const FOLDER: &str = "SPINDLE_CRASH_FOLDER";
const ROUND: &str = "SPINDLE_CRASH_ROUND";
const PAGES: &str = "SPINDLE_CRASH_PAGE_BYTES";

/// One change of one transaction.
#[derive(Clone, Debug)]
enum Change {
    Insert((i32, i64), (String, Vec<u8>)),
    Replace((i32, i64), (String, Vec<u8>)),
    Delete((i32, i64)),
}

/// End of a transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Durable,
    Lazy,
    Rollback,
}

/// The work of a session in a round: a function of round, session and initial rows, so that child and parent
/// draw the same.
struct Script {
    random: Random,
    session: u64,
    rows: Rows,
}

impl Script {
    fn new(round: u64, session: u64, rows: Rows) -> Self {
        Self { random: Random::new(round, &format!("session {session}")), session, rows }
    }

    /// The next transaction; applies its changes to `rows` if it commits.
    fn next(&mut self) -> (Vec<Change>, End) {
        let before = self.rows.clone();
        let changes = (0..=self.random.below(4)).map(|_| self.change()).collect();
        let end = match self.random.below(10) {
            0..=3 => End::Durable,
            4..=8 => End::Lazy,
            _ => End::Rollback,
        };
        if end == End::Rollback {
            self.rows = before;
        }
        (changes, end)
    }

    fn change(&mut self) -> Change {
        let mailbox =
            (self.session * MAILBOXES_PER_SESSION + self.random.below(MAILBOXES_PER_SESSION)) as i32;
        let from = (mailbox, self.random.below(1 << 20) as i64);
        let near = self.rows.range(from..).next().map(|(&key, _)| key);
        match (near, self.random.below(10)) {
            (Some(key), 0..=2) => {
                self.rows.remove(&key);
                Change::Delete(key)
            }
            (Some(key), 3..=5) => {
                let row = model::random_row(&mut self.random, 900);
                self.rows.insert(key, row.clone());
                Change::Replace(key, row)
            }
            _ => {
                let row = model::random_row(&mut self.random, 900);
                match self.rows.insert(from, row.clone()) {
                    None => Change::Insert(from, row),
                    Some(_) => Change::Replace(from, row),
                }
            }
        }
    }
}

fn config(page_size: PageSize) -> maildb::InstanceConfig {
    let mut config = model::config(page_size, ByteCount(200 * page_size.bytes() as u64));
    config.checkpoint_depth = ByteCount::kib(512);
    config.log_file = ByteCount::kib(256);
    config
}

/// Rows of one session: mailboxes are not shared.
fn rows_of(session: u64, all: &Rows) -> Rows {
    let from = (session * MAILBOXES_PER_SESSION) as i32;
    let to = from + MAILBOXES_PER_SESSION as i32;
    all.range((from, i64::MIN)..(to, i64::MIN)).map(|(key, row)| (*key, row.clone())).collect()
}

/// The child: works until it is killed. Not a test of its own.
#[test]
#[ignore = "the child of killed_processes_lose_nothing_durable"]
fn crash_child() {
    let path = std::env::var(FOLDER).expect("the parent names the folder");
    let round: u64 = std::env::var(ROUND).expect("and the round").parse().expect("a number");
    let page_bytes: u32 = std::env::var(PAGES).expect("and the page size").parse().expect("a number");
    let page_size = PageSize::from_bytes(page_bytes).expect("a page size");
    real::run(round, real::RealOptions::default(), async |world| {
        let instance = model::open(&world, Path::new(&path), 1, config(page_size)).await;
        let database = instance.databases().remove(0);
        let table = model::mail_table(&database).await;
        let rows = model::read_all(&database, &table).await;
        let mut sessions = Vec::new();
        for session in 0..SESSIONS {
            let script = Script::new(round, session, rows_of(session, &rows));
            sessions.push(world.spawn("session", run_session(instance.session(), table.clone(), script)));
        }
        tell("ready");
        for session in sessions {
            session.await;
        }
    });
}

fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "crash {line}").and_then(|()| out.flush()).expect("the parent listens");
}

async fn run_session(mut session: maildb::Session, table: maildb::Table, mut script: Script) {
    for number in 0_u64.. {
        let (changes, end) = script.next();
        for change in &changes {
            match change {
                Change::Insert(key, row) => session.insert(&table, &model::row_values(*key, row)).await,
                Change::Replace(key, row) => {
                    session.replace(&table, &model::key_values(*key), &model::row_values(*key, row)).await
                }
                Change::Delete(key) => session.delete(&table, &model::key_values(*key)).await,
            }
            .expect("a change of the script succeeds");
        }
        let who = script.session;
        tell(&format!("begin {who} {number}"));
        match end {
            End::Durable => session.commit(Durability::Stable).await.expect("a commit succeeds"),
            End::Lazy => session.commit(Durability::Lazy).await.expect("a commit succeeds"),
            End::Rollback => session.rollback().await.expect("a rollback succeeds"),
        }
        tell(&format!("done {who} {number}"));
    }
}

/// The child's report: how many transactions each session began to end, and how many must have survived.
#[derive(Default)]
struct ChildReport {
    begun: BTreeMap<u64, u64>,
    required: BTreeMap<u64, u64>,
    transactions: u64,
}

/// Parses the child's lines. A transaction must have survived if a durable commit that began after it
/// returned (or its own, if durable) was acknowledged.
fn understand(lines: &[String], ends: &BTreeMap<u64, Vec<End>>) -> ChildReport {
    let mut report = ChildReport::default();
    let mut returned: BTreeMap<u64, u64> = BTreeMap::new();
    let mut returned_at_begin: BTreeMap<(u64, u64), BTreeMap<u64, u64>> = BTreeMap::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let ["crash", what, who, number] = words[..] else { continue };
        let (who, number): (u64, u64) = (who.parse().expect("a session"), number.parse().expect("a number"));
        if what == "begin" {
            report.begun.insert(who, number + 1);
            returned_at_begin.insert((who, number), returned.clone());
            continue;
        }
        report.transactions += 1;
        returned.insert(who, number + 1);
        if ends[&who][number as usize] == End::Durable {
            let mut required = returned_at_begin[&(who, number)].clone();
            required.insert(who, number + 1);
            for (session, count) in required {
                let entry = report.required.entry(session).or_default();
                *entry = count.max(*entry);
            }
        }
    }
    report
}

/// Starts the child, kills it after `life` of work, and returns its lines.
fn run_child(path: &Path, round: u64, page_size: PageSize, life: Duration) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().expect("this test program"))
        .args(["--exact", "crash::crash_child", "--ignored", "--nocapture", "--test-threads=1"])
        .env(FOLDER, path)
        .env(ROUND, round.to_string())
        .env(PAGES, page_size.bytes().to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("the child starts");
    let out = BufReader::new(child.stdout.take().expect("its output is piped"));
    let (ready, is_ready) = std::sync::mpsc::channel();
    let reader = thread::spawn(move || {
        let mut lines = Vec::new();
        for line in out.lines() {
            // A line cut by the kill is incomplete and too short to parse.
            let Ok(line) = line else { break };
            if line.ends_with("crash ready") {
                let _ = ready.send(());
            }
            lines.push(line);
        }
        lines
    });
    is_ready.recv_timeout(Duration::from_secs(60)).expect("the child opens the group");
    thread::sleep(life);
    child.kill().expect("the child can be killed");
    child.wait().expect("the child has ended");
    reader.join().expect("the reader has ended")
}

/// Recovers the group and checks every acknowledged commit. Returns its rows.
async fn check_round(
    world: &World,
    path: &Path,
    round: u64,
    page_size: PageSize,
    before: &Rows,
    lines: &[String],
) -> Rows {
    let instance = model::open(world, path, 1, config(page_size)).await;
    let database = instance.databases().remove(0);
    let table = model::mail_table(&database).await;
    let found = model::read_all(&database, &table).await;

    // Every state that each session went through, with the ends of its transactions.
    let mut states: BTreeMap<u64, Vec<Rows>> = BTreeMap::new();
    let mut ends: BTreeMap<u64, Vec<End>> = BTreeMap::new();
    let begun_max = lines.iter().filter(|line| line.contains("begin")).count() + 1;
    for session in 0..SESSIONS {
        let mut script = Script::new(round, session, rows_of(session, before));
        let mut after = vec![script.rows.clone()];
        let count = lines.iter().filter(|line| line.contains(&format!("begin {session} "))).count();
        assert!(count < begun_max);
        for _ in 0..=count {
            let (_, end) = script.next();
            ends.entry(session).or_default().push(end);
            after.push(script.rows.clone());
        }
        states.insert(session, after);
    }
    let report = understand(lines, &ends);
    for session in 0..SESSIONS {
        let rows = rows_of(session, &found);
        let from = report.required.get(&session).copied().unwrap_or(0) as usize;
        let to = report.begun.get(&session).copied().unwrap_or(0) as usize;
        let matching = (from..=to).find(|&count| states[&session][count] == rows);
        assert!(
            matching.is_some(),
            "round {round}, session {session}: {} rows are the state after none of transactions {from}..={to}; \
             it is that after {:?}",
            rows.len(),
            states[&session].iter().position(|state| *state == rows),
        );
    }
    println!(
        "round {round}: {} transactions, {} rows, {:?}",
        report.transactions,
        found.len(),
        instance.recovery()
    );
    if round.is_multiple_of(2) {
        instance.close().await.expect("the group closes");
        model::check_whole(path, &model::file_name(0), page_size).await;
    }
    found
}

fn kill_again_and_again(page_size: PageSize, rounds: u64) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut random = Random::new(u64::from(page_size.bytes() as u32), "kills");
    let mut rows = Rows::new();
    for round in 0..rounds {
        let life = Duration::from_millis(5 + random.below(150));
        let lines = run_child(folder.path(), round, page_size, life);
        let path = folder.path().to_owned();
        let before = std::mem::take(&mut rows);
        rows = real::run(round, real::RealOptions::default(), async |world| {
            check_round(&world, &path, round, page_size, &before, &lines).await
        });
    }
}

/// 50 kills in all; 500 with `cargo xtask test --full`.
fn rounds(share: u64) -> u64 {
    if std::env::var_os("SPINDLE_FULL").is_some() { share * 10 } else { share }
}

#[test]
fn killed_processes_lose_nothing_durable_at_4_kib() {
    kill_again_and_again(PageSize::Kib4, rounds(20));
}

#[test]
fn killed_processes_lose_nothing_durable_at_8_kib() {
    kill_again_and_again(PageSize::Kib8, rounds(10));
}

#[test]
fn killed_processes_lose_nothing_durable_at_32_kib() {
    if !crate::is_full_run("kills at 32 KiB are of") {
        return;
    }
    kill_again_and_again(PageSize::Kib32, rounds(20));
}

//! The cost of protection, by the flush journal and by page stamps: a closed loop with and without it, in
//! turns, on real files of this machine. Rates are medians of all turns. Shared storage makes them vary, so
//! the reported ratio is the median over pairs of neighbouring turns, with processor time beside it.
//!
//! `cargo test --release -p maildb --test it torn::cost -- --ignored --nocapture`; the folder is that of
//! temporary files (`TMPDIR`).

use crate::model;
use maildb::{Durability, InstanceConfig, PageSize, PageStampMode, Statistics};
use std::{path::Path, rc::Rc, time::Duration};
use world::{ByteCount, Random, World, real};

const SESSIONS: u64 = 10;
const ROWS: i64 = 100_000;
const SPAN: Duration = Duration::from_secs(8);
const TURNS: usize = 5;

fn plain(page_size: PageSize) -> InstanceConfig {
    InstanceConfig {
        torn_page_protection: false,
        page_stamps: PageStampMode::Off,
        ..InstanceConfig::new(page_size, ByteCount::mib(16))
    }
}

fn row(random: &mut Random) -> (String, Vec<u8>) {
    let mut body = vec![0; 900];
    random.fill(&mut body);
    ("subject".to_owned(), body)
}

async fn fill(world: &World, path: &Path, page_size: PageSize) {
    let instance = model::open(world, path, 1, plain(page_size)).await;
    let table = model::mail_table(&instance.databases()[0]).await;
    let (mut session, mut random) = (instance.session(), Random::new(1, "rows"));
    for number in 0..ROWS {
        let values = model::row_values((1, number), &row(&mut random));
        session.insert(&table, &values).await.expect("inserted");
        if number % 50 == 0 {
            session.commit(Durability::Lazy).await.expect("committed");
        }
    }
    session.commit(Durability::Stable).await.expect("committed");
    drop(session);
    instance.close().await.expect("closed");
}

/// One turn: replaces rows at random, 93 of 100 commits lazy.
async fn turn(world: &World, path: &Path, config: InstanceConfig, turn: usize) -> Turn {
    let instance = Rc::new(model::open(world, path, 1, config).await);
    let table = model::mail_table(&instance.databases()[0]).await;
    let (end, cpu_before) = (world.now() + SPAN, world.thread_cpu().expect("a real thread"));
    let sessions: Vec<_> = (0..SESSIONS)
        .map(|number| {
            let (mut session, table, clock) = (instance.session(), table.clone(), world.clone());
            let mut random = Random::new(turn as u64, &format!("session {number}"));
            world.spawn("session", async move {
                while clock.now() < end {
                    let key = (1, random.below(ROWS as u64) as i64);
                    let values = model::row_values(key, &row(&mut random));
                    if session.replace(&table, &model::key_values(key), &values).await.is_err() {
                        session.rollback().await.expect("rolled back");
                        continue;
                    }
                    let durability = if random.percent(93.0) { Durability::Lazy } else { Durability::Stable };
                    session.commit(durability).await.expect("committed");
                }
            })
        })
        .collect();
    for session in sessions {
        session.await;
    }
    let (statistics, cpu_after) = (instance.statistics(), world.thread_cpu().expect("a real thread"));
    Rc::into_inner(instance).expect("all sessions have ended").close().await.expect("closed");
    Turn { statistics, cpu: cpu_after - cpu_before }
}

/// Result of one turn.
struct Turn {
    statistics: Statistics,
    cpu: Duration,
}

impl Turn {
    fn transactions(&self) -> f64 {
        (self.statistics.commits_durable + self.statistics.commits_lazy) as f64
    }

    fn cpu_us_each(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.transactions()
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

#[test]
#[ignore = "a measurement of some minutes"]
fn cost_of_protection() {
    compare("protected", |config| config.torn_page_protection = true);
}

#[test]
#[ignore = "a measurement of some minutes"]
fn cost_of_stamps() {
    compare("stamped in memory", |config| config.page_stamps = PageStampMode::WhileOpen);
    compare("stamped", |config| config.page_stamps = PageStampMode::Durable);
}

fn compare(what: &str, change: fn(&mut InstanceConfig)) {
    for page_size in [PageSize::Kib4, PageSize::Kib8, PageSize::Kib32] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().to_owned();
        real::run(1, real::RealOptions::default(), async |world| fill(&world, &path, page_size).await);
        let mut turns = [Vec::new(), Vec::new()];
        for number in 0..TURNS {
            for (is_changed, into) in [false, true].into_iter().zip(&mut turns) {
                let mut config = plain(page_size);
                if is_changed {
                    change(&mut config);
                }
                let work = async |world: World| turn(&world, &path, config, number).await;
                into.push(real::run(1, real::RealOptions::default(), work));
            }
        }
        let [without, with] = &turns;
        let ratio = |of: fn(&Turn) -> f64| {
            median(without.iter().zip(with).map(|(without, with)| of(with) / of(without)).collect())
        };
        let (rate_ratio, cpu_ratio) = (ratio(Turn::transactions), ratio(Turn::cpu_us_each));
        for (what, turns) in ["plain", what].into_iter().zip(turns) {
            let rate = |of: fn(&Statistics) -> u64| {
                median(turns.iter().map(|one| of(&one.statistics) as f64 / SPAN.as_secs_f64()).collect())
            };
            println!(
                "note: pages of {} bytes, {what}: {:.0} transactions/s, {:.1} us of processor each, {:.0} page \
                 writes/s, {:.1} stalls/s, {:.0} log writes/s, {:.0} log bytes/s",
                page_size.bytes(),
                rate(|one| one.commits_durable + one.commits_lazy),
                median(turns.iter().map(Turn::cpu_us_each).collect()),
                rate(|one| one.page_writes),
                rate(|one| one.page_fault_stalls),
                rate(|one| one.log_writes),
                rate(|one| one.log_bytes_written),
            );
        }
        println!(
            "note: pages of {} bytes, {what} to plain, pair by pair: transactions {rate_ratio:.2}, processor each \
             {cpu_ratio:.2}",
            page_size.bytes(),
        );
    }
}

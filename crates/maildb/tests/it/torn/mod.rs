//! Power cuts in the middle of page writes, which the flush journal must survive.
//!
//! Each seed is a group on a simulated drive, behind a directory that tears at a chosen write. A session
//! commits durably until the power fails; then the group is opened on the drive below. Everything
//! acknowledged must be there, or, without a usable journal, the damage must be noticed.

mod cost;
mod tearing;

use crate::{
    model::{self, Rows},
    simulated::{DATABASE, SimulatedDrive, open, read_all, read_file},
};
use maildb::{Durability, Error, InstanceConfig, PageSize};
use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};
use tearing::{Power, TearingDirectory};
use verify::in_world::{verify_database, verify_trees};
use world::{Buffer, ByteCount, ByteOffset, Directory, Random, Stability, World, sim::DriveOptions};

const JOURNAL: &str = "E00.fj";
/// Enough for every power cut to happen.
const ROUNDS_MAX: usize = 20_000;

/// One group, its drive, and its expected rows.
struct Case {
    seed: u64,
    disk: SimulatedDrive,
    config: InstanceConfig,
    rows: Rc<RefCell<Rows>>,
    /// Rows after the last transaction, which may or may not have committed.
    unsure: Rc<RefCell<Rows>>,
}

/// Result of opening the group after the crash.
#[derive(Debug)]
struct OpenResult {
    pages_restored: u64,
    unprotected: bool,
}

impl Case {
    fn new(seed: u64, sector: u32) -> Self {
        let atomic_unit = ByteCount(u64::from(sector));
        let options = DriveOptions { sector, atomic_unit, ..DriveOptions::new(ByteCount::mib(256)) };
        let disk = SimulatedDrive::formatted(seed, options);
        let mut random = disk.simulation.random("case");
        let page_size = [PageSize::Kib4, PageSize::Kib8, PageSize::Kib32][(seed % 3) as usize];
        let page_bytes = page_size.bytes() as u64;
        let mut config = model::config(page_size, ByteCount(64 * page_bytes));
        config.coalesce = ByteCount(page_bytes << random.below(4));
        config.checkpoint_depth = ByteCount::kib(64 << random.below(4));
        config.log_file = ByteCount(16 * page_bytes);
        config.writes_outstanding_max = 1 + random.below(8) as usize;
        Self { seed, disk, config, rows: Rc::default(), unsure: Rc::default() }
    }

    /// Runs `main` over the drive's directory.
    fn run<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        main: impl FnOnce(World, Rc<dyn Directory>) -> F + 'static,
    ) -> T {
        self.disk.run(main)
    }

    /// Works until the power fails; returns the state of the cut.
    fn work_until_cut(&mut self, suffix: &'static str, write: u64) -> Rc<Power> {
        let power = Power::fails_at(suffix, write, self.disk.simulation.random("tears"));
        let (config, seed) = (self.config.clone(), self.seed);
        let (rows, unsure, cut) = (Rc::clone(&self.rows), Rc::clone(&self.unsure), Rc::clone(&power));
        self.run(move |world, inner| async move {
            let directory: Rc<dyn Directory> = Rc::new(TearingDirectory { inner, power: Rc::clone(&cut) });
            let worked = work(&world, &directory, config, seed, &rows, &unsure).await;
            assert!(cut.is_off(), "seed {seed}: it ended without a cut: {worked:?}");
            cut.completed().await;
        });
        power
    }

    /// Opens the group on the drive as it is now, checks all rows, closes it and checks all pages.
    fn recover(&mut self, config: InstanceConfig) -> Result<OpenResult, Error> {
        let (seed, rows, unsure) = (self.seed, self.rows.borrow().clone(), self.unsure.take());
        let rows_now = Rc::clone(&self.rows);
        self.run(move |world, directory| async move {
            let instance = open(&world, &directory, config.clone()).await?;
            let summary = instance.recovery();
            let found = read_all(&instance.databases()[0]).await?;
            let mut with_unsure = rows.clone();
            with_unsure.extend(unsure);
            assert!(
                found == rows || found == with_unsure,
                "seed {seed}: {} rows found, {} acknowledged; {summary:?}",
                found.len(),
                rows.len()
            );
            *rows_now.borrow_mut() = found;
            instance.close().await?;
            let file = directory.open(DATABASE).await?;
            let verdict = verify_database(Rc::clone(&file), DATABASE, &mut |_, _| {}).await?;
            assert!(verdict.is_clean(), "seed {seed}: {:?}", verdict.damaged);
            let deep = verify_trees(file, DATABASE).await?;
            assert!(deep.findings.is_empty(), "seed {seed}: {:?}", deep.findings);
            let again = open(&world, &directory, config).await?;
            assert!(again.recovery().clean, "seed {seed}: {:?}", again.recovery());
            again.close().await?;
            Ok(OpenResult { pages_restored: summary.pages_restored, unprotected: summary.unprotected })
        })
    }
}

/// Changes rows in durable transactions until something fails.
async fn work(
    world: &World,
    directory: &Rc<dyn Directory>,
    config: InstanceConfig,
    seed: u64,
    rows: &Rc<RefCell<Rows>>,
    unsure: &Rc<RefCell<Rows>>,
) -> Result<(), Error> {
    let body_bytes_max = config.page_size.bytes() as u64 / 6;
    let instance = open(world, directory, config).await?;
    let database = instance.databases().remove(0);
    let table = match database.table("Mail") {
        Some(table) => table,
        None => {
            let primary_key = vec![model::MAILBOX, model::MESSAGE];
            let definition =
                maildb::TableDefinition { name: "Mail".to_owned(), columns: model::columns(), primary_key };
            database.create_table(definition).await?
        }
    };
    let mut session = instance.session();
    let mut random = Random::new(seed ^ rows.borrow().len() as u64, "rows");
    for _ in 0..ROUNDS_MAX {
        unsure.borrow_mut().clear();
        // Checkpoints come by time, and write too.
        world.sleep(Duration::from_millis(random.below(20))).await;
        for _ in 0..1 + random.below(6) {
            let key = (random.below(20) as i32, random.below(40) as i64);
            let row = model::random_row(&mut random, body_bytes_max);
            let is_there = rows.borrow().contains_key(&key) || unsure.borrow().contains_key(&key);
            if is_there {
                session.replace(&table, &model::key_values(key), &model::row_values(key, &row)).await?;
            } else {
                session.insert(&table, &model::row_values(key, &row)).await?
            }
            unsure.borrow_mut().insert(key, row);
        }
        session.commit(Durability::Stable).await?;
        rows.borrow_mut().extend(unsure.take());
    }
    Ok(())
}

/// Ten times as many under `cargo xtask test --full`.
fn seeds(count: u64) -> std::ops::Range<u64> {
    0..if std::env::var_os("SPINDLE_FULL").is_some() { count * 10 } else { count }
}

/// A number of database writes that every case reaches, after the creation.
fn some_write(seed: u64) -> u64 {
    40 + Random::new(seed, "which write").below(160)
}

#[test]
fn a_power_cut_in_the_middle_of_page_writes_loses_nothing_acknowledged() {
    let (mut torn, mut restored, mut with_restored) = (0, 0, 0);
    for seed in seeds(150) {
        let mut case = Case::new(seed, 512);
        let power = case.work_until_cut(".edb", some_write(seed));
        torn += u64::from(power.sectors_lost.get() > 0);
        let mut config = case.config.clone();
        if seed % 5 == 0 {
            // Settings of the journal may change between runs.
            config.coalesce = ByteCount(config.page_size.bytes() as u64 * 3);
        }
        let found = case.recover(config).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(!found.unprotected, "seed {seed}");
        restored += found.pages_restored;
        with_restored += u64::from(found.pages_restored > 0);
    }
    let count = seeds(150).end;
    println!("note: {restored} pages restored in {with_restored} of {count} cuts, {torn} of them torn");
    assert!(torn > count * 9 / 10, "cuts tear pages: {torn}");
    assert!(with_restored > count / 2, "the cuts are such that most need the journal: {with_restored}");
}

#[test]
fn a_power_cut_in_the_middle_of_the_journal_loses_nothing_acknowledged() {
    for seed in seeds(60) {
        let mut case = Case::new(seed, 512);
        case.work_until_cut(".fj", 10 + seed);
        let config = case.config.clone();
        case.recover(config).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn successive_power_cuts_lose_nothing_acknowledged() {
    for seed in seeds(30) {
        let mut case = Case::new(seed, 512);
        for cut in 0..4 {
            // The second and third cut come early: during recovery, or soon after it.
            let suffix = if cut % 2 == 0 { ".edb" } else { ".fj" };
            case.work_until_cut(suffix, if cut == 0 { some_write(seed) } else { 6 + seed % 20 });
            if !case.unsure.borrow().is_empty() {
                let config = case.config.clone();
                let unsure = case.unsure.borrow().clone();
                let is_there = case.run(move |world, directory| async move {
                    let instance = open(&world, &directory, config).await.expect("the group opens");
                    let rows = read_all(&instance.databases()[0]).await.expect("rows can be read");
                    unsure.iter().all(|(key, row)| rows.get(key) == Some(row))
                });
                let unsure = case.unsure.take();
                if is_there {
                    case.rows.borrow_mut().extend(unsure);
                }
            }
        }
        let config = case.config.clone();
        case.recover(config).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// True if an error reports damage, instead of rows being wrong silently.
fn is_noticed(error: &Error) -> bool {
    matches!(error, Error::PageDamaged { .. } | Error::LostWrite { .. } | Error::NotAsWritten { .. })
}

#[test]
fn without_protection_the_same_cuts_are_noticed_as_damaged_pages() {
    let mut damaged = 0;
    for seed in seeds(60) {
        let mut case = Case::new(seed, 512);
        case.config.torn_page_protection = false;
        case.work_until_cut(".edb", some_write(seed));
        let config = case.config.clone();
        match case.recover(config) {
            Ok(found) => assert_eq!(found.pages_restored, 0),
            Err(error) => {
                assert!(is_noticed(&error), "seed {seed}: {error}");
                if let Error::PageDamaged { .. } = &error {
                    damaged += 1;
                    let said = error.to_string();
                    let guard = "torn_page_protection, which prevents that, was off";
                    assert!(said.contains(guard) && said.contains(JOURNAL), "seed {seed}: {said}");
                }
            }
        }
    }
    let count = seeds(60).end;
    println!("note: {damaged} of {count} cuts left a damaged page");
    assert!(damaged > count / 2, "the cuts tear pages that are needed: {damaged}");
}

#[test]
fn a_missing_journal_is_reported() {
    let mut opened = 0;
    for seed in seeds(40) {
        let mut case = Case::new(seed, 512);
        case.work_until_cut(".edb", some_write(seed));
        case.run(|_, directory| async move { directory.remove(JOURNAL).await }).expect("it exists");
        let config = case.config.clone();
        match case.recover(config) {
            Ok(found) => {
                assert!(found.unprotected && found.pages_restored == 0, "seed {seed}: {found:?}");
                opened += 1;
            }
            Err(error) => assert!(is_noticed(&error), "seed {seed}: {error}"),
        }
    }
    assert!(opened > 0, "a missing journal alone is not an error");
}

#[test]
fn a_corrupted_journal_restores_only_whole_images() {
    let (mut opened, mut restored) = (0, 0);
    for seed in seeds(60) {
        let mut case = Case::new(seed, 512);
        case.work_until_cut(".edb", some_write(seed));
        let mut random = case.disk.simulation.random("garbling");
        case.run(move |_, directory| async move {
            let file = directory.open(JOURNAL).await?;
            let blocks = file.geometry().size.0 / 4096;
            for _ in 0..blocks / 8 {
                let at = ByteOffset(random.below(blocks) * 4096);
                let mut block = file.read(at, vec![Buffer::zeroed(4096)]).await?.remove(0);
                match random.below(3) {
                    0 => random.fill(&mut block),
                    1 => block[random.below(4096) as usize] ^= 1 << random.below(8),
                    _ => block[512 * random.below(8) as usize..][..512].fill(0),
                }
                file.write(at, vec![Arc::new(block)], Stability::Stable).await?;
            }
            world::IoResult::Ok(())
        })
        .expect("the journal can be corrupted");
        let config = case.config.clone();
        match case.recover(config) {
            Ok(found) => {
                opened += 1;
                restored += found.pages_restored;
            }
            Err(error) => assert!(is_noticed(&error), "seed {seed}: {error}"),
        }
    }
    assert!(opened > 0 && restored > 0, "{opened} groups opened, {restored} pages restored");
}

#[test]
fn a_journal_whose_head_is_damaged_still_protects() {
    for seed in seeds(20) {
        let mut case = Case::new(seed, 512);
        case.work_until_cut(".edb", some_write(seed));
        case.run(|_, directory| async move {
            let file = directory.open(JOURNAL).await?;
            file.write(ByteOffset(0), vec![Arc::new(Buffer::zeroed(4096))], Stability::Stable).await
        })
        .expect("the head can be damaged");
        let config = case.config.clone();
        case.recover(config).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn switching_protection_off_restores_once_more_and_removes_the_journal() {
    for seed in seeds(20) {
        let mut case = Case::new(seed, 512);
        case.work_until_cut(".edb", some_write(seed));
        let config = InstanceConfig { torn_page_protection: false, ..case.config.clone() };
        case.recover(config).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let names = case.run(|_, directory| async move { directory.list().await }).expect("listed");
        assert!(names.iter().all(|entry| entry.name != JOURNAL), "seed {seed}: {names:?}");
    }
}

#[test]
fn a_database_created_again_under_the_same_number_gets_no_old_page() {
    for seed in seeds(20) {
        let mut case = Case::new(seed, 512);
        case.work_until_cut(".edb", some_write(seed));
        let config = case.config.clone();
        case.run(move |world, directory| async move {
            // Without the checkpoint file the group does not know that the database is missing.
            directory.remove(DATABASE).await?;
            directory.remove("E00.chk").await?;
            let instance = open(&world, &directory, config).await?;
            assert_eq!(instance.recovery().pages_restored, 0, "seed {seed}");
            assert!(instance.databases()[0].table("Mail").is_none(), "seed {seed}");
            instance.close().await
        })
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        case.rows.borrow_mut().clear();
        case.unsure.borrow_mut().clear();
        let config = case.config.clone();
        case.recover(config).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// Restoring some of what a backup lacks would hide that it lacks the rest.
#[test]
fn a_database_file_restored_from_a_backup_is_left_as_it_is() {
    for seed in seeds(20) {
        let mut case = Case::new(seed, 512);
        case.work_until_cut(".edb", some_write(seed));
        let config = case.config.clone();
        case.recover(config).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let backup = case.run(|_, directory| async move { read_file(&directory, DATABASE).await });
        case.work_until_cut(".edb", 300);
        let config = case.config.clone();
        let pages_at = 2 * config.page_size.bytes();
        let (opened, before, after) = case.run(move |world, directory| async move {
            let file = directory.open(DATABASE).await.expect("it exists");
            let (start, before) = (ByteOffset(0), Arc::new(Buffer::copy_of(&backup)));
            let copied = file.write(start, vec![Arc::clone(&before)], Stability::Stable).await;
            copied.expect("the backup can be put back");
            let opened = open(&world, &directory, config).await.map(|instance| instance.recovery());
            let after = file.read(start, vec![Buffer::zeroed(before.len())]).await.expect("readable");
            (opened, before, after)
        });
        match opened {
            Ok(summary) => assert_eq!(summary.pages_restored, 0, "seed {seed}"),
            // Before redo wrote anything: the file is the restored one.
            Err(error) => {
                assert!(is_noticed(&error), "seed {seed}: {error}");
                assert!(before[pages_at..] == after[0][pages_at..], "seed {seed}: pages were put over it");
            }
        }
    }
}

#[test]
fn a_device_that_writes_whole_pages_needs_no_journal() {
    for (seed, needs_journal) in [(0, false), (1, true)] {
        let mut case = Case::new(seed, 4096);
        let config = case.config.clone();
        let names = case.run(|world, directory| async move {
            let instance = open(&world, &directory, config).await?;
            instance.close().await?;
            Ok::<_, Error>(directory.list().await?)
        });
        let has_journal = names.expect("opened").iter().any(|entry| entry.name == JOURNAL);
        assert_eq!(has_journal, needs_journal, "pages of {} bytes", case.config.page_size.bytes());
    }
}

//! `spindle verify` on what a power cut in the middle of page writes leaves: torn pages are no damage as long as the flush
//! journal holds them, and the engine's own recovery is the judge of that.

use crate::{
    model::{self, Rows},
    simulated::{DATABASE, SimulatedDrive, open, read_file},
    spindle::{Bench, is_full_run, json_of},
    tearing::{Power, TearingDirectory},
};
use maildb::{Durability, Error, InstanceConfig, PageSize, TableDefinition};
use serde_json::Value;
use std::{fs, rc::Rc};
use world::{ByteCount, Directory, Random, World, sim::DriveOptions};

const JOURNAL: &str = "E00.fj";
const SECTOR: u32 = 512;

fn config() -> InstanceConfig {
    let page_bytes = PageSize::Kib8.bytes() as u64;
    InstanceConfig {
        coalesce: ByteCount(4 * page_bytes),
        checkpoint_depth: ByteCount::kib(256),
        log_file: ByteCount::kib(256),
        ..model::config(PageSize::Kib8, ByteCount(64 * page_bytes))
    }
}

/// Changes rows in durable transactions until the power goes.
async fn work(world: &World, directory: &Rc<dyn Directory>, seed: u64) -> Result<(), Error> {
    let instance = open(world, directory, config()).await?;
    let database = instance.databases().remove(0);
    let primary_key = vec![model::MAILBOX, model::MESSAGE];
    let definition = TableDefinition { name: "Mail".to_owned(), columns: model::columns(), primary_key };
    let table = database.create_table(definition).await?;
    let mut session = instance.session();
    let (mut rows, mut random) = (Rows::new(), Random::new(seed, "rows"));
    loop {
        let key = (random.below(20) as i32, random.below(40) as i64);
        let row = model::random_row(&mut random, 1300);
        let values = model::row_values(key, &row);
        match rows.insert(key, row) {
            Some(_) => drop(session.replace(&table, &model::key_values(key), &values).await?),
            None => session.insert(&table, &values).await?,
        }
        session.commit(Durability::Stable).await?;
    }
}

/// A group on a drive that lost its power in the middle of writing pages.
fn cut(seed: u64) -> SimulatedDrive {
    let atomic_unit = ByteCount(SECTOR.into());
    let options = DriveOptions { sector: SECTOR, atomic_unit, ..DriveOptions::new(ByteCount::mib(256)) };
    let mut disk = SimulatedDrive::formatted(seed, options);
    let power = Power::fails_at(".edb", 60 + 7 * seed, disk.simulation.random("tears"));
    disk.run(move |world, inner| async move {
        let directory: Rc<dyn Directory> = Rc::new(TearingDirectory { inner, power: Rc::clone(&power) });
        let worked = work(&world, &directory, seed).await;
        assert!(power.is_off(), "seed {seed}: it ended without a cut: {worked:?}");
        power.completed().await;
    });
    disk
}

/// The files of the drive, in a folder of the bench.
fn lay_out(disk: &mut SimulatedDrive, bench: &Bench, folder: &str) {
    let files = disk.run(|_, directory| async move {
        let mut files = Vec::new();
        for entry in directory.list().await.expect("listed") {
            files.push((entry.name.clone(), read_file(&directory, &entry.name).await));
        }
        files
    });
    fs::create_dir_all(bench.path(folder)).expect("a folder");
    for (name, bytes) in files {
        fs::write(bench.path(folder).join(name), bytes).expect("written");
    }
}

/// The exit code, and the entry of the database.
#[track_caller]
fn checked(bench: &Bench, arguments: &[&str]) -> (Option<i32>, Value) {
    let said = bench.run(&[&["verify", "--json"], arguments].concat());
    let shown = json_of(&said.stdout);
    let is_database = |file: &&Value| file["path"].as_str().is_some_and(|path| path.ends_with(DATABASE));
    let file = shown["files"].as_array().expect("files").iter().find(is_database).cloned();
    (said.code, file.unwrap_or_else(|| panic!("no database in {shown}")))
}

#[test]
fn torn_pages_that_recovery_restores_are_no_damage_and_without_the_journal_they_are() {
    if !is_full_run("torn pages of a killed run") {
        return;
    }
    let (mut torn_all, mut cases) = (0, 0);
    for seed in 0..12 {
        let mut disk = cut(seed);
        let bench = Bench::new();
        lay_out(&mut disk, &bench, "mail");
        let (code, file) = checked(&bench, &["mail", "--deep"]);
        let torn = file["checked"]["torn"].as_u64().expect("a number");
        let counts = (&file["damage"], &file["checked"]["damaged"]);
        assert_eq!(code, Some(0), "seed {seed}: {file}");
        assert_eq!(counts, (&Value::from(0), &Value::from(0)), "seed {seed}: {file}");
        if torn > 0 {
            (torn_all, cases) = (torn_all + torn, cases + 1);
            // // Named alone, and with its logs elsewhere, it gives the same result.
            assert_eq!(checked(&bench, &["mail/priv1.edb"]).1["checked"]["torn"], torn, "seed {seed}");
            let said = bench.run(&["verify", "mail"]).stdout;
            let words =
                format!("{torn} of its pages do not verify, and are no damage: its recovery restores them");
            assert!(said.contains(&words) && said.contains("mail/E00.fj"), "seed {seed}: {said}");
            check_without_journal(&bench, seed, torn);
        }
        let restored = recovered(&mut disk);
        assert!(restored >= torn, "seed {seed}: {torn} pages said to be torn, {restored} restored");
        lay_out(&mut disk, &bench, "after");
        let (code, file) = checked(&bench, &["after", "--deep"]);
        let said = (code, file["result"].as_str(), &file["checked"]["torn"]);
        assert_eq!(said, (Some(0), Some("clean"), &Value::from(0)), "seed {seed}: {file}");
    }
    assert!(cases >= 6, "the cuts tear pages: {torn_all} in {cases} of 12 cases");
}

/// The same files, but for a journal that holds no page: gone, with another's slots, or without its head.
#[track_caller]
fn check_without_journal(bench: &Bench, seed: u64, torn: u64) {
    let journal = bench.path("mail").join(JOURNAL);
    let whole = fs::read(&journal).expect("a journal");
    let slots = |fill: u8| [&whole[..4096], &vec![fill; whole.len() - 4096]].concat();
    let headless = [&[0; 4096], &whole[4096..]].concat();
    for (what, bytes) in [("gone", None), ("garbled", Some(slots(0x5A))), ("headless", Some(headless))] {
        match bytes {
            Some(bytes) => fs::write(&journal, bytes).expect("written"),
            None => fs::remove_file(&journal).expect("removed"),
        }
        let (code, file) = checked(bench, &["mail", "--deep"]);
        let said = (code, &file["damage"], &file["checked"]["torn"]);
        assert_eq!(said, (Some(1), &Value::from(torn), &Value::from(0)), "seed {seed}, {what}: {file}");
        if what == "headless" {
            let said = file["findings"].to_string();
            assert!(said.contains("the pages that recovery restores are unknown"), "{said}");
        }
    }
    fs::write(&journal, whole).expect("written");
}

/// Opens the group and shuts it down; how many pages were restored.
fn recovered(disk: &mut SimulatedDrive) -> u64 {
    disk.run(|world, directory| async move {
        let instance = open(&world, &directory, config()).await.expect("it opens");
        let restored = instance.recovery().pages_restored;
        instance.close().await.expect("it closes");
        restored
    })
}

//! A crash in the middle of a large rollback: changes undone before it are not undone again.

use crate::{
    model::{self, Rows},
    simulated::{DATABASE, SimulatedDrive, open, read_all},
};
use maildb::{
    Durability, Error, InstanceConfig, PageSize, Session, Table, TableDefinition,
    log::{COMPENSATES, LogFiles, LogReader, LogRecord},
};
use std::{cell::Cell, rc::Rc};
use verify::in_world::verify_trees;
use world::{ByteCount, Directory, World, sim::DriveOptions};

/// The number of changes of each of three kinds in the transaction that is rolled back.
const CHANGES: i64 = 120;
/// Rows committed before it: on four times as many pages as the cache holds.
const ROWS: i64 = 800;

fn config() -> InstanceConfig {
    model::config(PageSize::Kib4, ByteCount(64 * 4096))
}

fn row(key: (i32, i64), body: u8) -> (String, Vec<u8>) {
    (format!("subject {}", key.1), vec![body; 900])
}

async fn make_table(instance: &maildb::Instance) -> Result<Table, Error> {
    let primary_key = vec![model::MAILBOX, model::MESSAGE];
    let definition = TableDefinition { name: "Mail".to_owned(), columns: model::columns(), primary_key };
    instance.databases()[0].create_table(definition).await
}

async fn insert(session: &mut Session, table: &Table, rows: &mut Rows, key: (i32, i64)) -> Result<(), Error> {
    let row = row(key, 7);
    session.insert(table, &model::row_values(key, &row)).await?;
    rows.insert(key, row);
    Ok(())
}

/// Deletes, inserts and replaces in one transaction. Deleting a deleted row, or inserting an existing one,
/// fails.
async fn change_much(session: &mut Session, table: &Table) -> Result<(), Error> {
    for number in 0..CHANGES {
        session.delete(table, &model::key_values((1, 6 * number))).await?;
        let key = (1, 6 * number + 1);
        session.replace(table, &model::key_values(key), &model::row_values(key, &row(key, 9))).await?;
        let key = (2, number);
        session.insert(table, &model::row_values(key, &row(key, 9))).await?;
    }
    Ok(())
}

/// A group whose process ended after `commits` commits beside a running rollback, and its expected rows.
fn crash_beside_rollback(seed: u64, commits: i64) -> (SimulatedDrive, Rows) {
    let mut disk = SimulatedDrive::formatted(seed, DriveOptions::new(ByteCount::mib(128)));
    let worked = disk.run(move |world, directory| async move {
        let instance = open(&world, &directory, config()).await?;
        let table = make_table(&instance).await?;
        let (mut session, mut rows) = (instance.session(), Rows::new());
        for number in 0..ROWS {
            insert(&mut session, &table, &mut rows, (1, number)).await?;
        }
        session.commit(Durability::Stable).await?;
        let mut loser = instance.session();
        change_much(&mut loser, &table).await?;
        let is_over = Rc::new(Cell::new(false));
        let over = Rc::clone(&is_over);
        drop(world.spawn("taking back", async move {
            let rolled_back = loser.rollback().await;
            over.set(true);
            rolled_back
        }));
        for number in 0..commits {
            // Each commit makes the undo steps so far stable.
            insert(&mut session, &table, &mut rows, (3, number)).await?;
            session.commit(Durability::Stable).await?;
        }
        assert!(!is_over.get(), "seed {seed}: all was taken back before the crash");
        std::mem::forget((session, instance));
        Ok::<_, Error>(rows)
    });
    (disk, worked.unwrap_or_else(|error| panic!("seed {seed}: {error}")))
}

/// The undo steps in the log.
async fn compensations(directory: &Rc<dyn Directory>) -> Result<i64, Error> {
    let mut reader = LogReader::from_oldest(LogFiles::scan(directory, "E00").await?)?;
    let mut count = 0;
    while let Some(entry) = reader.next().await? {
        match entry.record {
            LogRecord::Insert { operation, .. }
            | LogRecord::Replace { operation, .. }
            | LogRecord::Delete { operation, .. } => {
                count += i64::from(operation.flags & COMPENSATES != 0);
            }
            _ => {}
        }
    }
    Ok(count)
}

/// Opens the group, and checks its rows and its trees.
async fn recover(world: World, directory: Rc<dyn Directory>, rows: Rows, seed: u64) -> Result<(), Error> {
    let instance = open(&world, &directory, config()).await?;
    assert_eq!(instance.recovery().transactions_undone, 1, "seed {seed}: its end was not in the log");
    assert!(read_all(&instance.databases()[0]).await? == rows, "seed {seed}: other rows than were committed");
    instance.close().await?;
    let deep = verify_trees(directory.open(DATABASE).await?, DATABASE).await?;
    assert!(deep.findings.is_empty(), "seed {seed}: {:?}", deep.findings);
    Ok(())
}

#[test]
fn changes_undone_before_a_crash_are_not_undone_again() {
    let mut steps = Vec::new();
    for (seed, commits) in (0..).zip([1, 2, 4, 6, 8]) {
        let (mut disk, rows) = crash_beside_rollback(seed, commits);
        let done = disk.run(|_, directory| async move { compensations(&directory).await });
        let done = done.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!((1..3 * CHANGES).contains(&done), "seed {seed}: {done} steps of {} in the log", 3 * CHANGES);
        steps.push(done);
        let recovered = disk.run(move |world, directory| recover(world, directory, rows, seed));
        recovered.unwrap_or_else(|error| panic!("seed {seed}, {done} steps taken back before: {error}"));
    }
    println!("note: of {} steps the log had {steps:?} when the process ended", 3 * CHANGES);
}

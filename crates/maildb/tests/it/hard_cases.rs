//! Regression tests: cases that once failed, or that a review found risky.

use crate::{
    hostile::{Faults, HostileDirectory},
    model::{self, BODY, MAILBOX, MESSAGE, SUBJECT},
};
use maildb::{
    ColumnId, ColumnType, DatabaseLocation, Durability, Error, Instance, InstanceConfig, PageSize, Session,
    Table, TableDefinition, Value,
    format::record::{CodePage, TableSchema},
};
use std::{cell::Cell, path::Path, rc::Rc, time::Duration};
use world::{ByteCount, Random, World, real};

fn run(work: impl AsyncFnOnce(World)) {
    real::run(1, real::RealOptions::default(), work);
}

fn config(cache_pages: u64) -> InstanceConfig {
    model::config(PageSize::Kib4, ByteCount(cache_pages * 4096))
}

async fn table_of(instance: &Instance) -> Table {
    model::mail_table(&instance.databases()[0]).await
}

fn row(key: (i32, i64), body_bytes: usize) -> Vec<(ColumnId, Value)> {
    model::row_values(key, &("s".to_owned(), vec![7; body_bytes]))
}

/// Inserts rows of one mailbox: each in a lazy transaction of its own, or all in one durable one.
async fn insert_rows(
    session: &mut Session,
    table: &Table,
    mailbox: i32,
    numbers: impl Iterator<Item = i64>,
    body_bytes: usize,
    lazily: bool,
) {
    for number in numbers {
        session.insert(table, &row((mailbox, number), body_bytes)).await.expect("inserted");
        if lazily {
            session.commit(Durability::Lazy).await.expect("committed");
        }
    }
    session.commit(Durability::Stable).await.expect("committed");
}

/// Like a crash: nothing is closed, rolled back or waited for.
fn abandon<T>(what: T) {
    std::mem::forget(what);
}

async fn check(path: &Path) {
    model::check_whole(path, &model::file_name(0), PageSize::Kib4).await;
}

/// Recovery once grew the file from nothing and truncated it to 256 pages.
#[test]
fn undoing_a_loser_may_allocate_space_and_never_truncates_the_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    run(async |world| {
        let instance = model::open(&world, path, 1, config(8192)).await;
        let table = table_of(&instance).await;
        let mut session = instance.session();
        insert_rows(&mut session, &table, 1, (0..3000).map(|number| number * 2), 900, false).await;
        let mut loser = instance.session();
        for number in 0..3000 {
            let key = (1, number * 2);
            loser.replace(&table, &model::key_values(key), &row(key, 1)).await.expect("replaced");
        }
        insert_rows(&mut session, &table, 1, (0..3000).map(|number| number * 2 + 1), 900, false).await;
        abandon((loser, session, instance));
    });
    run(async |world| {
        let instance = model::open(&world, path, 1, config(8192)).await;
        assert_eq!(instance.recovery().transactions_undone, 1);
        let table = table_of(&instance).await;
        let rows = model::read_all(&instance.databases()[0], &table).await;
        assert_eq!(rows.len(), 6000);
        assert!(rows.values().all(|(_, body)| body.len() == 900));
        instance.close().await.expect("closed");
        check(path).await;
    });
}

/// Waits until every page is written, and takes a checkpoint.
async fn checkpoint_all(world: &World, instance: &Instance) {
    while instance.statistics().dirty_pages > 0 {
        world.sleep(Duration::from_millis(100)).await;
    }
    // The last writes may still be waiting for the log record of their stamps.
    world.sleep(Duration::from_millis(500)).await;
    instance.checkpoint().await.expect("a checkpoint");
}

/// Recovery needs the Begin record of every running transaction to undo it.
#[test]
fn a_checkpoint_does_not_pass_a_running_transaction() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    let config = || InstanceConfig { checkpoint_depth: ByteCount(0), ..config(1024) };
    run(async |world| {
        let instance = model::open(&world, path, 1, config()).await;
        let table = table_of(&instance).await;
        let mut session = instance.session();
        insert_rows(&mut session, &table, 1, 0..300, 100, false).await;
        let mut loser = instance.session();
        loser.insert(&table, &row((2, 0), 100)).await.expect("inserted");
        insert_rows(&mut session, &table, 3, 0..300, 100, false).await;
        checkpoint_all(&world, &instance).await;
        abandon((loser, session, instance));
    });
    run(async |world| {
        let instance = model::open(&world, path, 1, config()).await;
        let table = table_of(&instance).await;
        let rows = model::read_all(&instance.databases()[0], &table).await;
        assert!(!rows.contains_key(&(2, 0)), "a row that was never committed exists");
        assert_eq!((rows.len(), instance.recovery().transactions_undone), (600, 1));
        instance.close().await.expect("closed");
        check(path).await;
    });
}

/// A checkpoint within one log generation once left the header's time behind that of pages on disk.
#[test]
fn time_never_goes_back_across_a_crash() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    let config = || InstanceConfig { checkpoint_depth: ByteCount(0), ..config(1024) };
    run(async |world| {
        let instance = model::open(&world, path, 1, config()).await;
        let table = table_of(&instance).await;
        let mut session = instance.session();
        insert_rows(&mut session, &table, 1, 0..300, 100, false).await;
        checkpoint_all(&world, &instance).await;
        abandon((session, instance));
    });
    run(async |world| {
        let instance = model::open(&world, path, 1, config()).await;
        assert_eq!(instance.recovery().pages_changed, 0, "everything had reached the database");
        let table = table_of(&instance).await;
        let mut session = instance.session();
        session.insert(&table, &row((1, 1000), 100)).await.expect("inserted");
        session.commit(Durability::Stable).await.expect("committed");
        drop(session);
        instance.close().await.expect("closed");
        check(path).await;
    });
}

/// Many commits to one page once kept it from being written, and the checkpoint from advancing.
#[test]
fn a_page_changed_all_the_time_is_written_and_the_checkpoint_advances() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    run(async |world| {
        let config = InstanceConfig { checkpoint_depth: ByteCount::kib(64), ..config(1024) };
        let instance = model::open(&world, path, 1, config).await;
        let table = table_of(&instance).await;
        let mut session = instance.session();
        insert_rows(&mut session, &table, 1, 0..16, 50, false).await;
        let stop = Rc::new(Cell::new(false));
        let mut writers = Vec::new();
        for number in 0..16 {
            let (mut session, table, stop) = (instance.session(), table.clone(), Rc::clone(&stop));
            writers.push(world.spawn("writer", async move {
                while !stop.get() {
                    let key = (1, number);
                    session.replace(&table, &model::key_values(key), &row(key, 50)).await.expect("replaced");
                    session.commit(Durability::Stable).await.expect("committed");
                }
            }));
        }
        let before = instance.statistics().checkpoints;
        let mut waits = 0;
        while instance.statistics().checkpoints < before + 3 {
            waits += 1;
            assert!(waits < 300, "three checkpoints within 30 s: {:?}", instance.statistics());
            world.sleep(Duration::from_millis(100)).await;
        }
        stop.set(true);
        for writer in writers {
            writer.await;
        }
    });
}

/// A flush in progress once made closing panic.
#[test]
fn closing_waits_for_a_checkpoint_that_is_flushing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    run(async |world| {
        for offset_ms in [0, 150, 300, 450] {
            let faults = Rc::new(Faults::default());
            *faults.slow_flushes.borrow_mut() = Some((world.clone(), Duration::from_millis(250)));
            let directory = Rc::new(HostileDirectory { inner: model::folder(path), faults });
            let location = DatabaseLocation { directory: directory.clone(), file_name: model::file_name(0) };
            let config = InstanceConfig { checkpoint_depth: ByteCount::kib(16), ..config(1024) };
            let instance = Instance::open(&world, directory, vec![location], config).await.expect("opened");
            let table = table_of(&instance).await;
            let mut session = instance.session();
            let (from, mut number) = (world.now(), 0);
            while world.now().since(from) < Duration::from_millis(1000 + offset_ms) {
                let key = (offset_ms as i32, number);
                session.insert(&table, &row(key, 500)).await.expect("inserted");
                session.commit(Durability::Stable).await.expect("committed");
                number += 1;
            }
            drop(session);
            instance.close().await.expect("closed");
        }
        check(path).await;
    });
}

/// The database's free space may consist of extents smaller than a new table needs.
#[test]
fn tables_can_be_created_from_small_free_extents() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    run(async |world| {
        let instance = model::open(&world, path, 1, config(16384)).await;
        let database = &instance.databases()[0];
        let table = table_of(&instance).await;
        let mut session = instance.session();
        for number in 0..12_000 {
            session.insert(&table, &row((1, number), 1500)).await.expect("inserted");
            session.commit(Durability::Lazy).await.expect("committed");
            if number % 601 != 0 {
                continue;
            }
            let (before, mut made) = (database.page_count(), 0);
            while database.page_count() == before {
                made += 1;
                let name = format!("T{number}_{made}");
                let primary_key = vec![MAILBOX, MESSAGE];
                let definition = TableDefinition { name, columns: model::columns(), primary_key };
                database.create_table(definition).await.expect("a table can be made");
            }
        }
        drop(session);
        instance.close().await.expect("closed");
        check(path).await;
    });
}

/// A branch page compressed by a long prefix once had no room for half of its own separators without it.
#[test]
fn a_branch_whose_keys_share_a_long_prefix_can_be_split() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    run(async |world| {
        let instance = model::open(&world, path, 1, config(16384)).await;
        let schema = TableSchema::from_kinds([("Name", ColumnType::Text, CodePage::Western)]).expect("sound");
        let (columns, id) = (schema.columns().to_vec(), schema.columns()[0].id);
        let definition = TableDefinition { name: "Names".to_owned(), columns, primary_key: vec![id] };
        let table = instance.databases()[0].create_table(definition).await.expect("made");
        let (mut session, mut random) = (instance.session(), Random::new(3, "names"));
        for number in 0..20_000 {
            let key = match number {
                600..800 => format!("z{number:06}{}", "y".repeat(190)),
                _ => format!("{}{:06}", "a".repeat(200), random.below(1_000_000)),
            };
            match session.insert(&table, &[(id, Value::Text(key))]).await {
                Ok(()) | Err(Error::DuplicateKey) => {}
                Err(error) => panic!("{number}: {error}"),
            }
            session.commit(Durability::Lazy).await.expect("committed");
        }
        drop(session);
        instance.close().await.expect("closed");
        check(path).await;
    });
}

/// Readers that each pinned pages while waiting for another's once deadlocked.
#[test]
fn more_readers_than_cache_pages_do_not_deadlock() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    run(async |world| {
        let instance = model::open(&world, path, 1, config(16384)).await;
        let table = table_of(&instance).await;
        let mut session = instance.session();
        insert_rows(&mut session, &table, 1, 0..20_000, 1800, true).await;
        drop(session);
        instance.close().await.expect("closed");

        let instance = model::open(&world, path, 1, config(64)).await;
        let table = table_of(&instance).await;
        let readers: Vec<_> = (0..400)
            .map(|number| {
                let (session, table) = (instance.session(), table.clone());
                world.spawn("reader", async move {
                    session
                        .read(&table, &model::key_values((1, number * 50)))
                        .await
                        .expect("readable")
                        .is_some()
                })
            })
            .collect();
        for reader in readers {
            assert!(reader.await);
        }
        instance.close().await.expect("closed");
    });
}

/// A rolled-back bulk insert must not leave a run of empty leaves to scan.
#[test]
fn a_rollback_of_many_inserts_leaves_no_empty_leaves() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    run(async |world| {
        let instance = model::open(&world, path, 1, config(256)).await;
        let database = &instance.databases()[0];
        let table = table_of(&instance).await;
        let mut session = instance.session();
        insert_rows(&mut session, &table, 1, 0..20, 900, false).await;
        for number in 0..3000 {
            session.insert(&table, &row((2, number), 900)).await.expect("inserted");
        }
        session.rollback().await.expect("rolled back");
        assert_eq!(model::read_all(database, &table).await.len(), 20);
        let last = database.last_row(&table).await.expect("readable").expect("there are rows");
        assert_eq!(model::from_values(last).0, (1, 19));
        drop(session);
        instance.close().await.expect("closed");
        let deep = model::check_whole(path, &model::file_name(0), PageSize::Kib4).await;
        assert!(deep.pages_in_use < 60, "{deep:?}");
    });
}

/// A scan returns records as last committed: including those a running transaction deleted, without those it
/// inserted.
#[test]
fn a_scan_returns_committed_records() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    run(async |world| {
        let instance = model::open(&world, path, 1, config(256)).await;
        let database = &instance.databases()[0];
        let table = table_of(&instance).await;
        let mut session = instance.session();
        insert_rows(&mut session, &table, 1, 0..10, 100, false).await;
        session.delete(&table, &model::key_values((1, 3))).await.expect("deleted");
        session.insert(&table, &row((1, 50), 100)).await.expect("inserted");
        session.replace(&table, &model::key_values((1, 4)), &row((1, 4), 200)).await.expect("replaced");
        let seen = model::read_all(database, &table).await;
        assert_eq!(seen.keys().map(|key| key.1).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
        assert_eq!(seen[&(1, 4)].1.len(), 100);
        let other = instance.session();
        let read = other.read(&table, &model::key_values((1, 4))).await.expect("readable").expect("there");
        assert_eq!(model::from_values(read).1.1.len(), 100);
        let mut rival = instance.session();
        let refused = rival.delete(&table, &model::key_values((1, 4))).await;
        assert!(matches!(refused, Err(Error::WriteConflict)), "{refused:?}");
        rival.rollback().await.expect("nothing to roll back");
        session.rollback().await.expect("rolled back");
        assert_eq!(model::read_all(database, &table).await.len(), 10);
        drop((session, rival));
        instance.close().await.expect("closed");
    });
}

/// A volume that is not mounted must not lead to an empty database without an error.
#[test]
fn a_missing_database_is_refused_and_not_created_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    run(async |world| {
        let instance = model::open(&world, path, 2, config(256)).await;
        instance.close().await.expect("closed");
        let file = path.join(model::file_name(1));
        let aside = path.join("aside");
        std::fs::rename(&file, &aside).expect("moved");
        let error = model::try_open(&world, path, 2, config(256)).await.err().expect("refused");
        assert_eq!(
            error.to_string(),
            "priv2.edb: it is missing, although its storage group has used it; is its volume mounted?"
        );
        assert!(!file.exists());
        let error = model::try_open(&world, path, 1, config(256)).await.err().expect("refused");
        assert!(error.to_string().contains("has 2 databases; list all of them"), "{error}");
        std::fs::rename(&aside, &file).expect("moved back");
        model::open(&world, path, 2, config(256)).await.close().await.expect("closed");
    });
}

/// Records of the largest size always fit, whatever prefix a page was left with.
#[test]
fn records_of_the_largest_size_fit_and_larger_ones_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    run(async |world| {
        let instance = model::open(&world, path, 1, config(512)).await;
        let table = table_of(&instance).await;
        let (mut session, mut random) = (instance.session(), Random::new(8, "sizes"));
        let mut largest = 0;
        for number in 0..2000 {
            let body_bytes = 1 + random.below(2200) as usize;
            let values = [
                (MAILBOX, Value::I32(number % 7)),
                (MESSAGE, Value::I64(random.below(1 << 40) as i64)),
                (SUBJECT, Value::Text("s".to_owned())),
                (BODY, Value::LongBinary(vec![1; body_bytes])),
            ];
            match session.insert(&table, &values).await {
                Ok(()) => largest = largest.max(body_bytes),
                Err(Error::RecordTooLarge { bytes, bytes_max }) => assert!(bytes > bytes_max),
                Err(other) => panic!("{other}"),
            }
            session.commit(Durability::Lazy).await.expect("committed");
        }
        assert!(largest > 1700, "records of {largest} bytes fit a page of 4 KiB");
        drop(session);
        instance.close().await.expect("closed");
        check(path).await;
    });
}

//! Storage that fails, fills up, forgets or lies: every error says what failed and where, no wrong row is
//! ever read, and nothing acknowledged is lost.

use crate::{
    hostile::{Faults, HostileDirectory},
    model::{self, Mix, Rows},
};
use maildb::{
    DatabaseLocation, Durability, Error, Instance, InstanceConfig, PageSize, PageStampMode, Session, Table,
};
use std::{
    path::{Path, PathBuf},
    rc::Rc,
};
use world::{ByteCount, IoErrorKind, Random, World, real};

const PAGE_SIZE: PageSize = PageSize::Kib8;
const MIX: Mix = Mix { body_bytes_max: 1000, mailboxes: 20, delete_percent: 10.0 };

fn config() -> InstanceConfig {
    model::config(PAGE_SIZE, ByteCount(128 * PAGE_SIZE.bytes() as u64))
}

async fn open_hostile(world: &World, path: &Path, faults: &Rc<Faults>) -> Instance {
    let directory = Rc::new(HostileDirectory { inner: model::folder(path), faults: Rc::clone(faults) });
    let location = DatabaseLocation { directory: directory.clone(), file_name: model::file_name(0) };
    Instance::open(world, directory, vec![location], config()).await.expect("the group opens")
}

/// Runs `test` in a fresh folder.
fn in_folder(test: impl AsyncFnOnce(World, PathBuf)) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().to_owned();
    real::run(5, real::RealOptions::default(), async |world| test(world, path).await);
}

/// A closed group with some rows.
async fn make_rows(world: &World, path: &Path, changes: usize) -> Rows {
    let instance = model::open(world, path, 1, config()).await;
    let table = model::mail_table(&instance.databases()[0]).await;
    let (mut rows, mut random) = (Rows::new(), Random::new(9, "faults"));
    let mut session = instance.session();
    model::change_at_random(&mut session, &table, &mut rows, &mut random, changes, MIX).await;
    drop(session);
    instance.close().await.expect("the group closes");
    rows
}

async fn expect_rows(world: &World, path: &Path, rows: &Rows) {
    let instance = model::open(world, path, 1, config()).await;
    let database = &instance.databases()[0];
    let table = model::mail_table(database).await;
    assert!(model::read_all(database, &table).await == *rows, "the rows are those committed");
    instance.close().await.expect("the group closes");
    model::check_whole(path, &model::file_name(0), PAGE_SIZE).await;
}

/// Inserts rows, each durably, until something fails; keeps those acknowledged in `rows`.
async fn insert_until_failure(
    session: &mut Session,
    table: &Table,
    rows: &mut Rows,
    random: &mut Random,
) -> Error {
    loop {
        let key = (1000, random.next_u64() as i64);
        let row = model::random_row(random, 1000);
        let inserted = session.insert(table, &model::row_values(key, &row)).await;
        let outcome = match inserted {
            Ok(()) => session.commit(Durability::Stable).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => drop(rows.insert(key, row)),
            Err(error) => return error,
        }
    }
}

#[test]
fn a_failing_log_stops_the_group_and_loses_nothing_acknowledged() {
    in_folder(async |world, path| {
        let mut rows = make_rows(&world, &path, 500).await;
        let faults = Rc::new(Faults::default());
        let instance = open_hostile(&world, &path, &faults).await;
        let table = model::mail_table(&instance.databases()[0]).await;
        let mut session = instance.session();
        let mut random = Random::new(2, "after");
        for number in 0..20 {
            let (key, row) = ((1000, number), model::random_row(&mut random, 500));
            session.insert(&table, &model::row_values(key, &row)).await.expect("inserting succeeds");
            session.commit(Durability::Stable).await.expect("committing succeeds");
            rows.insert(key, row);
        }
        *faults.writes.borrow_mut() = Some(".log");
        let mut unacknowledged = Rows::new();
        let error = insert_until_failure(&mut session, &table, &mut unacknowledged, &mut random).await;
        assert!(matches!(error, Error::Log(_)), "{error:?}");
        assert!(unacknowledged.is_empty(), "nothing is acknowledged once the log fails");
        drop((session, instance));
        expect_rows(&world, &path, &rows).await;
    });
}

#[test]
fn a_failing_database_write_stops_the_group_and_loses_nothing_acknowledged() {
    in_folder(async |world, path| {
        let mut rows = make_rows(&world, &path, 500).await;
        let faults = Rc::new(Faults::default());
        let instance = open_hostile(&world, &path, &faults).await;
        let table = model::mail_table(&instance.databases()[0]).await;
        *faults.writes.borrow_mut() = Some(".edb");
        let mut session = instance.session();
        let error = insert_until_failure(&mut session, &table, &mut rows, &mut Random::new(3, "after")).await;
        assert!(error.to_string().contains("the test's drive has failed"), "{error:?}");
        let again = session.insert(&table, &model::row_values((1, 1), &("s".to_owned(), vec![1]))).await;
        assert!(matches!(again, Err(Error::Stopped(_))), "{again:?}");
        let closed = instance.checkpoint().await;
        assert!(closed.is_err(), "a stopped group takes no checkpoint");
        drop((session, instance));
        expect_rows(&world, &path, &rows).await;
    });
}

#[test]
fn a_failing_flush_stops_the_group_and_loses_nothing_acknowledged() {
    in_folder(async |world, path| {
        let mut rows = make_rows(&world, &path, 500).await;
        let faults = Rc::new(Faults::default());
        let instance = open_hostile(&world, &path, &faults).await;
        let table = model::mail_table(&instance.databases()[0]).await;
        faults.flushes.set(true);
        let mut session = instance.session();
        let error = insert_until_failure(&mut session, &table, &mut rows, &mut Random::new(4, "after")).await;
        assert!(error.to_string().contains("the test's drive has failed"), "{error:?}");
        drop((session, instance));
        expect_rows(&world, &path, &rows).await;
    });
}

#[test]
fn a_full_volume_fails_inserts_cleanly_and_work_continues_once_there_is_space() {
    in_folder(async |world, path| {
        let mut rows = make_rows(&world, &path, 500).await;
        let faults = Rc::new(Faults::default());
        let instance = open_hostile(&world, &path, &faults).await;
        let table = model::mail_table(&instance.databases()[0]).await;
        let mut session = instance.session();
        let mut random = Random::new(5, "after");
        faults.growth.set(true);
        let error = insert_until_failure(&mut session, &table, &mut rows, &mut random).await;
        let Error::Storage(cause) = &error else { panic!("{error:?}") };
        assert_eq!(cause.kind(), IoErrorKind::NoSpace);
        session.rollback().await.expect("rolling back succeeds on a full volume");
        let victims: Vec<_> = rows.keys().copied().take(20).collect();
        for key in victims {
            session
                .delete(&table, &model::key_values(key))
                .await
                .expect("deleting succeeds on a full volume");
            rows.remove(&key);
        }
        session.commit(Durability::Stable).await.expect("committing succeeds on a full volume");
        faults.growth.set(false);
        model::change_at_random(&mut session, &table, &mut rows, &mut random, 1000, MIX).await;
        drop(session);
        instance.close().await.expect("the group closes");
        expect_rows(&world, &path, &rows).await;
    });
}

/// Changes bytes of a page of the closed database, like a decaying disk.
fn rot(path: &Path, page: u32, byte: usize) {
    let file = path.join(model::file_name(0));
    let mut bytes = std::fs::read(&file).expect("the database can be read");
    bytes[(page as usize + 1) * PAGE_SIZE.bytes() + byte] ^= 0x10;
    std::fs::write(&file, bytes).expect("and written");
}

#[test]
fn a_damaged_page_is_named_and_the_others_stay_readable() {
    in_folder(async |world, path| {
        let rows = make_rows(&world, &path, 2000).await;
        let rotten = 100;
        rot(&path, rotten, 1234);
        let file = model::folder(&path).open(&model::file_name(0)).await.expect("the file exists");
        let verdict =
            verify::in_world::verify_database(file, "priv1.edb", &mut |_, _| {}).await.expect("readable");
        let damaged: Vec<u32> = verdict.damaged.iter().map(|damage| damage.page.0).collect();
        assert_eq!(damaged, [rotten]);
        assert!(
            verdict.damaged[0].problem.contains("bit 4 of byte 1234 is flipped"),
            "{:?}",
            verdict.damaged
        );

        let instance = model::open(&world, &path, 1, config()).await;
        let table = model::mail_table(&instance.databases()[0]).await;
        let session = instance.session();
        let (mut good, mut bad) = (0, 0);
        for (key, row) in &rows {
            match session.read(&table, &model::key_values(*key)).await {
                Ok(found) => {
                    assert_eq!(model::from_values(found.expect("the row exists")), (*key, row.clone()));
                    good += 1;
                }
                Err(Error::PageDamaged { page, .. }) => {
                    assert_eq!(page.0, rotten);
                    bad += 1;
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        assert!(good > 0 && bad > 0 && bad < good / 10, "{good} rows read, {bad} on the rotten page");
    });
}

#[test]
fn a_lost_write_is_detected_during_replay() {
    in_folder(async |world, path| {
        make_rows(&world, &path, 2000).await;
        let before = std::fs::read(path.join(model::file_name(0))).expect("readable");
        let faults = Rc::new(Faults::default());
        let instance = open_hostile(&world, &path, &faults).await;
        let table = model::mail_table(&instance.databases()[0]).await;
        let mut rows = Rows::new();
        let mut session = instance.session();
        // A first change reaches the disk and its log is no longer needed; a second is only in the log.
        insert_some(&mut session, &table, &mut rows, 300).await;
        instance.checkpoint().await.expect("a checkpoint can be taken");
        drop(session);
        instance.close().await.expect("the group closes");
        let instance = model::open(&world, &path, 1, config()).await;
        let mut session = instance.session();
        insert_some(&mut session, &table_of(&instance).await, &mut rows, 300).await;
        drop((session, instance));
        // The disk loses the first.
        let file = path.join(model::file_name(0));
        let mut after = std::fs::read(&file).expect("readable");
        let pages =
            after.chunks_exact_mut(PAGE_SIZE.bytes()).zip(before.chunks_exact(PAGE_SIZE.bytes())).skip(2);
        for (after, before) in pages.filter(|(_, before)| before.iter().any(|&byte| byte != 0)) {
            after.copy_from_slice(before);
        }
        std::fs::write(&file, after).expect("writable");
        let error = model::try_open(&world, &path, 1, config()).await.err().expect("the loss is noticed");
        assert!(matches!(error, Error::NotAsWritten { .. }), "by its stamp: {error:?}");
        let without = InstanceConfig { page_stamps: PageStampMode::Off, ..config() };
        let error = model::try_open(&world, &path, 1, without).await.err().expect("the loss is noticed");
        assert!(matches!(error, Error::LostWrite { .. }), "by the log: {error:?}");
    });
}

async fn table_of(instance: &Instance) -> Table {
    model::mail_table(&instance.databases()[0]).await
}

async fn insert_some(session: &mut Session, table: &Table, rows: &mut Rows, count: i64) {
    let base = rows.len() as i64;
    for number in base..base + count {
        let (key, row) = ((number as i32 % 20, number << 30), ("subject".to_owned(), vec![7; 300]));
        session.insert(table, &model::row_values(key, &row)).await.expect("inserting succeeds");
        session.commit(Durability::Stable).await.expect("committing succeeds");
        rows.insert(key, row);
    }
}

#[test]
fn one_bad_header_copy_is_survived_and_two_are_refused() {
    in_folder(async |world, path| {
        let rows = make_rows(&world, &path, 300).await;
        let file = path.join(model::file_name(0));
        let whole = std::fs::read(&file).expect("readable");
        let mut bytes = whole.clone();
        bytes[100] ^= 1;
        std::fs::write(&file, &bytes).expect("writable");
        expect_rows(&world, &path, &rows).await;
        let mut bytes = std::fs::read(&file).expect("readable");
        bytes[100] ^= 1;
        bytes[PAGE_SIZE.bytes() + 100] ^= 1;
        std::fs::write(&file, &bytes).expect("writable");
        let error = model::try_open(&world, &path, 1, config()).await.err().expect("refused");
        assert!(matches!(error, Error::DatabaseDamaged { .. }), "{error:?}");
    });
}

#[test]
fn a_group_is_not_opened_with_the_wrong_log_page_size_or_order() {
    in_folder(async |world, path| {
        make_rows(&world, &path, 100).await;
        let config_4 = model::config(PageSize::Kib4, ByteCount::mib(1));
        let error = model::try_open(&world, &path, 1, config_4).await.err().expect("refused");
        assert!(error.to_string().contains("has pages of 8192 bytes, not 4096"), "{error}");

        let other = tempfile::tempdir().expect("a temporary folder");
        make_rows(&world, other.path(), 100).await;
        std::fs::copy(other.path().join("priv1.edb"), path.join("priv1.edb")).expect("copied");
        let error = model::try_open(&world, &path, 1, config()).await.err().expect("refused");
        assert!(error.to_string().contains("belongs to another storage group's log"), "{error}");

        for entry in std::fs::read_dir(other.path()).expect("readable") {
            let path = entry.expect("readable").path();
            if path.extension().is_some_and(|extension| extension == "log") {
                std::fs::remove_file(path).expect("removable");
            }
        }
        let error = model::try_open(&world, other.path(), 1, config()).await.err().expect("refused");
        assert!(error.to_string().contains("the log of its storage group is missing"), "{error}");
    });
}

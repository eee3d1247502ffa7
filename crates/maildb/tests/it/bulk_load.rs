use crate::model::{self, Mix, Rows};
use maildb::{BulkLoadSettings, BulkLoader, Durability, Error, PageSize, PageStampMode};
use std::{cell::Cell, path::Path, rc::Rc};
use world::{ByteCount, Random, World, real};

const SIZES: [PageSize; 3] = [PageSize::Kib4, PageSize::Kib8, PageSize::Kib32];

/// Sparse pages and small batches: many levels and many links in little space.
fn settings(page_size: PageSize, fill_percent: u8, batch_pages: u64) -> BulkLoadSettings {
    BulkLoadSettings {
        fill_percent,
        batch: ByteCount(batch_pages * page_size.bytes() as u64),
        ..BulkLoadSettings::default()
    }
}

fn config(page_size: PageSize, stamps: bool) -> maildb::InstanceConfig {
    let mut config = model::config(page_size, ByteCount(128 * page_size.bytes() as u64));
    config.page_stamps = if stamps { PageStampMode::Durable } else { PageStampMode::Off };
    config.extension_pages = 64;
    config.coalesce = ByteCount(8 * page_size.bytes() as u64);
    config
}

/// Pushes `count` random rows of mailbox `mailbox`.
async fn push(loader: &mut BulkLoader, rows: &mut Rows, random: &mut Random, mailbox: i32, count: i64) {
    for message in 0..count {
        let key = (mailbox + (message / 100) as i32, message % 100);
        let row = model::random_row(random, 700);
        loader.push(&model::row_values(key, &row)).await.expect("the next row is taken");
        rows.insert(key, row);
    }
}

/// Loads, changes at random, loads again behind that, and compares with the model after each step.
async fn load_change_load(world: &World, path: &Path, page_size: PageSize, fill_percent: u8, stamps: bool) {
    let instance = model::open(world, path, 1, config(page_size, stamps)).await;
    let database = instance.databases().remove(0);
    let table = model::mail_table(&database).await;
    let mut rows = Rows::new();
    let mut random = Random::new(u64::from(fill_percent), "bulk load");
    let load = async |rows: &mut Rows, random: &mut Random, mailbox, count| {
        let settings = settings(page_size, fill_percent, 40);
        let mut loader = database.bulk_load(&table, settings).await.expect("a load can begin");
        let linked = Rc::new(Cell::new(0));
        let told = Rc::clone(&linked);
        loader.on_link(move |rows| told.set(told.get() + rows));
        push(&mut loader, rows, random, mailbox, count).await;
        loader.finish(Durability::Lazy).await.expect("a load ends");
        assert_eq!(linked.get(), count as u64, "every row is reported once");
    };
    let mix = Mix { body_bytes_max: 700, mailboxes: 60, delete_percent: 25.0 };
    for (mailbox, count) in [(0, 3000), (1000, 1), (2000, 40), (3000, 700), (4000, 0)] {
        load(&mut rows, &mut random, mailbox, count).await;
        assert!(
            model::read_all(&database, &table).await == rows,
            "{page_size:?}, {fill_percent} %: {mailbox}"
        );
        let mut session = instance.session();
        model::change_at_random(&mut session, &table, &mut rows, &mut random, 400, mix).await;
        drop(session);
    }
    instance.close().await.expect("the group closes");
    model::check_whole(path, "priv1.edb", page_size).await;
    let instance = model::open(world, path, 1, config(page_size, stamps)).await;
    let database = instance.databases().remove(0);
    let table = model::mail_table(&database).await;
    assert!(instance.recovery().clean && model::read_all(&database, &table).await == rows);
    instance.close().await.expect("the group closes");
}

fn in_folder<T>(test: impl AsyncFnOnce(World, &Path) -> T) -> T {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    real::run(3, real::RealOptions::default(), async |world| test(world, path).await)
}

#[test]
fn loads_and_changes_in_turns_keep_every_row_and_a_whole_tree() {
    for (page_size, fill_percent) in SIZES.into_iter().zip([100, 30, 70]) {
        for stamps in [false, true] {
            in_folder(async |world, path| {
                load_change_load(&world, path, page_size, fill_percent, stamps).await;
            });
        }
    }
}

#[test]
fn a_load_of_sparse_pages_grows_four_levels_from_nothing() {
    in_folder(async |world, path| {
        let page_size = PageSize::Kib4;
        let instance = model::open(&world, path, 1, config(page_size, false)).await;
        let database = instance.databases().remove(0);
        let table = model::mail_table(&database).await;
        let (mut rows, mut random) = (Rows::new(), Random::new(1, "bulk load"));
        let mut loader = database.bulk_load(&table, settings(page_size, 1, 1)).await.expect("begins");
        push(&mut loader, &mut rows, &mut random, 0, 6000).await;
        loader.finish(Durability::Stable).await.expect("ends");
        assert!(model::read_all(&database, &table).await == rows);
        assert_eq!(instance.statistics().log_record_stalls, 0);
        instance.close().await.expect("closes");
        assert_eq!(model::check_whole(path, "priv1.edb", page_size).await.levels_max, 4);
    });
}

#[test]
fn rows_out_of_order_and_tables_in_use_are_refused_and_nothing_is_changed() {
    in_folder(async |world, path| {
        let instance = model::open(&world, path, 1, config(PageSize::Kib4, true)).await;
        let database = instance.databases().remove(0);
        let table = model::mail_table(&database).await;
        let mut session = instance.session();
        let row = |message: i64| model::row_values((5, message), &("a".to_owned(), vec![1; 10]));
        session.insert(&table, &row(7)).await.expect("inserted");
        let begin = || database.bulk_load(&table, BulkLoadSettings::default());
        let refused = |outcome: Result<_, Error>| {
            let Err(Error::Table(problem)) = outcome else { panic!("not refused") };
            problem
        };
        assert!(refused(begin().await.map(drop)).contains("a transaction is changing"));
        session.commit(Durability::Lazy).await.expect("committed");

        let mut loader = begin().await.expect("the table is free again");
        assert!(refused(begin().await.map(drop)).contains("is being bulk loaded"));
        assert!(refused(session.insert(&table, &row(9)).await).contains("is being bulk loaded"));
        session.commit(Durability::Lazy).await.expect("nothing was begun but the transaction");
        for message in [7, 3] {
            assert!(refused(loader.push(&row(message)).await).contains("requires ascending keys"));
        }
        let large = model::row_values((6, 0), &("a".to_owned(), vec![1; 3000]));
        assert!(matches!(loader.push(&large).await, Err(Error::RecordTooLarge { .. })));
        loader.push(&row(8)).await.expect("a refused row leaves the load as it was");
        let seen = session.read(&table, &model::key_values((5, 8))).await.expect("readable");
        assert_eq!(seen, None, "not linked yet");
        loader.commit(Durability::Lazy).await.expect("linked");
        let seen = session.read(&table, &model::key_values((5, 8))).await.expect("readable");
        assert!(seen.is_some());
        loader.push(&row(10)).await.expect("goes on");
        drop(loader);
        while session.insert(&table, &row(9)).await.is_err() {
            world.sleep(std::time::Duration::from_millis(1)).await;
        }
        session.commit(Durability::Lazy).await.expect("committed");
        let found: Vec<i64> = model::read_all(&database, &table).await.into_keys().map(|key| key.1).collect();
        assert_eq!(found, [7, 8, 9], "unlinked rows are discarded");
        drop(session);
        instance.close().await.expect("closes");
        model::check_whole(path, "priv1.edb", PageSize::Kib4).await;
    });
}

#[test]
fn a_table_of_another_database_or_another_group_is_refused() {
    in_folder(async |world, path| {
        let page_size = PageSize::Kib4;
        let (here, elsewhere) = (path.join("here"), path.join("elsewhere"));
        for folder in [&here, &elsewhere] {
            std::fs::create_dir(folder).expect("a folder");
        }
        let instance = model::open(&world, &here, 2, config(page_size, false)).await;
        let other_group = model::open(&world, &elsewhere, 1, config(page_size, false)).await;
        let databases = instance.databases();
        let own = model::mail_table(&databases[0]).await;
        // Also a table of the same name, and one of another group with the same number and root.
        let strangers =
            [model::mail_table(&databases[1]).await, model::mail_table(&other_group.databases()[0]).await];
        for stranger in &strangers {
            let outcome = databases[0].bulk_load(stranger, BulkLoadSettings::default()).await.map(drop);
            let Err(Error::Table(problem)) = outcome else { panic!("not refused") };
            assert!(problem.contains("does not belong to priv1.edb"), "{problem}");
        }
        let loader =
            databases[0].bulk_load(&own, BulkLoadSettings::default()).await.expect("nothing is held");
        loader.finish(Durability::Lazy).await.expect("ends");
        instance.close().await.expect("closes");
        other_group.close().await.expect("closes");
    });
}

#[test]
fn a_group_does_not_close_under_a_load_and_a_load_may_be_dropped_at_any_time() {
    for (rows_pushed, closes) in [(0, true), (10, false), (2000, true), (2500, false)] {
        in_folder(async |world, path| {
            let instance = model::open(&world, path, 1, config(PageSize::Kib4, true)).await;
            let database = instance.databases().remove(0);
            let table = model::mail_table(&database).await;
            let (mut rows, mut random) = (Rows::new(), Random::new(1, "bulk load"));
            let mut loader =
                database.bulk_load(&table, settings(PageSize::Kib4, 50, 30)).await.expect("begins");
            push(&mut loader, &mut rows, &mut random, 0, rows_pushed).await;
            if closes {
                let closed = instance.close().await;
                assert!(matches!(closed, Err(Error::Configuration(_))), "{closed:?}");
                return;
            }
            drop(loader);
            instance.close().await.expect("it waits for what the load left");
            model::check_whole(path, "priv1.edb", PageSize::Kib4).await;
            let instance = model::open(&world, path, 1, config(PageSize::Kib4, true)).await;
            let database = instance.databases().remove(0);
            let table = model::mail_table(&database).await;
            let found = model::read_all(&database, &table).await;
            assert!(found.iter().eq(rows.iter().take(found.len())), "a prefix exists");
            instance.close().await.expect("closes");
        });
    }
}

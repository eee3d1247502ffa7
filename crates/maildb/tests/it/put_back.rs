//! One database of a group put back from an earlier copy beside a log that went on: it comes up to the minute, and the other
//! database is as it was.

use crate::model::{self, Mix, Rows};
use maildb::{
    DatabaseLocation, DatabasePlace, Durability, Instance, InstanceConfig, LogRetention, PageSize,
    PageStampMode,
    log::{JoinEnd, JoinedLog, LogFiles, LogFolder, LogNames},
    put_back,
};
use std::time::Duration;
use world::{
    ByteCount, Random, World,
    sim::{SimFolder, SimLimits, Simulation},
};

const CHANGES: Mix = Mix { body_bytes_max: 400, mailboxes: 10, delete_percent: 30.0 };
const NAMES: [&str; 2] = ["priv1.edb", "priv2.edb"];

fn location(world: &World, folder: &SimFolder, index: usize) -> DatabaseLocation {
    DatabaseLocation { directory: folder.directory(world), file_name: NAMES[index].to_owned() }
}

async fn open(world: &World, folder: &SimFolder, config: &InstanceConfig) -> maildb::Result<Instance> {
    let locations = (0..NAMES.len()).map(|index| location(world, folder, index)).collect();
    Instance::open(world, folder.directory(world), locations, config.clone()).await
}

async fn rows_of(world: &World, folder: &SimFolder, config: &InstanceConfig) -> Vec<Rows> {
    let instance = open(world, folder, config).await.expect("the group opens");
    let mut rows = Vec::new();
    for database in instance.databases() {
        let table = model::mail_table(&database).await;
        rows.push(model::read_all(&database, &table).await);
    }
    instance.close().await.expect("it closes");
    rows
}

async fn change(instance: &Instance, rows: &mut [Rows], random: &mut Random, changes: usize) {
    for (database, rows) in instance.databases().into_iter().zip(rows) {
        let table = model::mail_table(&database).await;
        let mut session = instance.session();
        model::change_at_random(&mut session, &table, rows, random, changes, CHANGES).await;
        session.commit(Durability::Stable).await.expect("committed");
    }
}

/// The loss of a database: its file is gone, or overwritten.
async fn lose(world: &World, folder: &SimFolder, name: &str, is_deleted: bool) {
    match is_deleted {
        true => folder.directory(world).remove(name).await.expect("it is there"),
        false => folder.edit(name, |bytes| bytes.fill(0x5A)),
    }
}

fn put_back_after(seed: u64, is_closed: bool) {
    let story = move |world: World| async move {
        let mut random = Random::new(seed, "put back");
        let mut config = model::config(PageSize::Kib4, ByteCount::kib(256 << random.below(2)));
        config.log_file = ByteCount::kib(64);
        config.checkpoint_depth = ByteCount::kib(64 << random.below(3));
        config.extension_pages = 16;
        config.log_retention = LogRetention::UntilReleased;
        config.page_stamps = [PageStampMode::Durable, PageStampMode::WhileOpen][random.below(2) as usize];
        let live = SimFolder::default();
        let instance = open(&world, &live, &config).await.expect("a new group opens");
        let mut rows = vec![Rows::new(); NAMES.len()];
        change(&instance, &mut rows, &mut random, 200).await;
        instance.checkpoint().await.expect("a checkpoint");
        let backup = live.copy();
        change(&instance, &mut rows, &mut random, 300).await;
        world.sleep(Duration::from_millis(50)).await;
        let later = live.copy();
        // The later copy has what is released: the live log alone would not do.
        let files = LogFiles::scan(&later.directory(&world), "E00").await.expect("readable");
        change(&instance, &mut rows, &mut random, 200).await;
        instance.checkpoint().await.expect("a checkpoint");
        instance.release_logs(files.newest().expect("there is a log")).await.expect("released");
        change(&instance, &mut rows, &mut random, 100).await;
        match is_closed {
            true => instance.close().await.expect("it closes"),
            false => drop(instance),
        }
        let lost = match random.below(3) {
            2 => vec![1, 0],
            one => vec![one as usize],
        };
        for &index in &lost {
            lose(&world, &live, NAMES[index], random.below(2) == 0).await;
        }
        assert!(open(&world, &live.copy(), &config).await.is_err(), "it is lost");

        let folder =
            |of: &SimFolder, name: &str| LogFolder { directory: of.directory(&world), name: name.to_owned() };
        let later = vec![folder(&live, "live"), folder(&later, "later")];
        let joined = JoinedLog::prove("E00", folder(&backup, "backup"), later, JoinEnd::Newest).await;
        let joined = joined.expect("one log");
        joined.complete(&folder(&live, "live")).await.expect("all of it");
        for &index in &lost {
            let place = |of: &SimFolder| DatabasePlace {
                log: of.directory(&world),
                database: location(&world, of, index),
                index,
            };
            put_back("E00", &place(&backup), &place(&live)).await.expect("put back");
        }
        assert!(rows_of(&world, &live, &config).await == rows, "up to the minute, and the other as it was");
        // The group goes on.
        let instance = open(&world, &live, &config).await.expect("it opens again");
        change(&instance, &mut rows, &mut random, 50).await;
        drop(instance);
        assert!(rows_of(&world, &live, &config).await == rows, "after a crash");
    };
    Simulation::new(seed).run(SimLimits::generous(), story).completed();
}

#[test]
fn lost_databases_come_back_up_to_the_minute_and_others_are_as_they_were() {
    for seed in 0..24 {
        put_back_after(seed, seed % 2 == 0);
    }
}

#[test]
fn a_database_without_the_log_since_its_copy_is_refused() {
    let story = move |world: World| async move {
        let mut random = Random::new(3, "gap");
        let mut config = model::config(PageSize::Kib4, ByteCount::kib(256));
        config.log_file = ByteCount::kib(64);
        config.checkpoint_depth = ByteCount::kib(64);
        config.extension_pages = 16;
        config.log_retention = LogRetention::UntilReleased;
        let live = SimFolder::default();
        let instance = open(&world, &live, &config).await.expect("a new group opens");
        let mut rows = vec![Rows::new(); NAMES.len()];
        change(&instance, &mut rows, &mut random, 100).await;
        instance.checkpoint().await.expect("a checkpoint");
        let backup = live.copy();
        change(&instance, &mut rows, &mut random, 600).await;
        instance.close().await.expect("it closes");
        let names: Vec<String> = live.names();
        let log = LogNames::new("E00");
        let missing = (1..).find(|&generation| {
            !backup.names().contains(&log.archived(generation)) && names.contains(&log.archived(generation))
        });
        let missing = missing.expect("there are later generations") + 1;
        live.directory(&world).remove(&log.archived(missing)).await.expect("removed");
        let place = |of: &SimFolder| DatabasePlace {
            log: of.directory(&world),
            database: location(&world, of, 0),
            index: 0,
        };
        put_back("E00", &place(&backup), &place(&live)).await.expect("the file alone");
        let refused = open(&world, &live, &config).await.err().expect("refused");
        assert!(refused.to_string().contains("generation"), "{refused}");
    };
    Simulation::new(3).run(SimLimits::generous(), story).completed();
}

//! Several databases in one storage group, with their log on a volume of its own.

use crate::model::{self, Mix, Rows};
use maildb::{DatabaseLocation, Instance, InstanceConfig, PageSize};
use std::{path::Path, rc::Rc};
use world::{ByteCount, Random, World, real};

const DATABASES: usize = 4;
const PAGE_SIZE: PageSize = PageSize::Kib8;
const MIX: Mix = Mix { body_bytes_max: 1500, mailboxes: 20, delete_percent: 20.0 };

/// Databases on two volumes, the log on a third.
async fn open(world: &World, path: &Path) -> Instance {
    let volumes = ["one", "two", "logs"].map(|name| {
        let volume = path.join(name);
        std::fs::create_dir_all(&volume).expect("a folder can be made");
        model::folder(&volume)
    });
    let locations = (0..DATABASES)
        .map(|index| DatabaseLocation {
            directory: Rc::clone(&volumes[index % 2]),
            file_name: model::file_name(index),
        })
        .collect();
    let cache = ByteCount(300 * PAGE_SIZE.bytes() as u64);
    let config = InstanceConfig { checkpoint_depth: ByteCount::mib(1), ..model::config(PAGE_SIZE, cache) };
    Instance::open(world, Rc::clone(&volumes[2]), locations, config).await.expect("the group opens")
}

/// Four sessions change four databases concurrently; every second round ends without a shutdown.
#[test]
fn databases_of_one_group_share_its_log_and_are_recovered_together() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    let mut rows = vec![Rows::new(); DATABASES];
    for round in 0..4 {
        let before = std::mem::take(&mut rows);
        rows = real::run(round, real::RealOptions::default(), async |world| {
            let instance = open(&world, path).await;
            let clean = instance.recovery().clean;
            assert_eq!(clean, round % 2 == 0, "round {round}: {:?}", instance.recovery());
            let mut users = Vec::new();
            for (index, (database, mut rows)) in instance.databases().into_iter().zip(before).enumerate() {
                let table = model::mail_table(&database).await;
                assert!(model::read_all(&database, &table).await == rows, "round {round}, database {index}");
                let mut session = instance.session();
                users.push(world.spawn("user", async move {
                    let mut random = Random::new(round, &format!("database {index}"));
                    model::change_at_random(&mut session, &table, &mut rows, &mut random, 600, MIX).await;
                    // Everything before a durable commit is durable, lazy or not, in every database.
                    session.commit(maildb::Durability::Stable).await.expect("committing succeeds");
                    rows
                }));
            }
            let mut after = Vec::new();
            for user in users {
                after.push(user.await);
            }
            instance.checkpoint().await.expect("a checkpoint can be taken");
            if round % 2 == 1 {
                instance.close().await.expect("the group closes");
                for index in 0..DATABASES {
                    let volume = path.join(["one", "two"][index % 2]);
                    model::check_whole(&volume, &model::file_name(index), PAGE_SIZE).await;
                }
            }
            after
        });
    }
    let in_folder = |name: &str| std::fs::read_dir(path.join(name)).expect("readable").count();
    let counts = (in_folder("one"), in_folder("two"));
    assert_eq!(counts, (4, 4), "databases with their stamps, and logs, lie where they were put");
}

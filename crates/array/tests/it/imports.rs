//! Imports: what a volume that still reads from a source elsewhere refuses, and how it ends.

use crate::{
    clones::{bytes_of, discard, features, fill, used_at_rest},
    scene::{MIB, Scene, make_volume, read, small, write},
};
use array::{
    error::Error,
    format::{GroupId, SnapshotId, VolumeId, features::INCOMPATIBLE_IMPORTS},
    pool::{
        ImportStatus, ImportTerms, NewClone, NewGroup, NewImport, OpenSetting, Pool, VolumeSetting, open,
        open_read_only,
    },
    volume::VolumeDevice,
};
use std::rc::Rc;
use world::{
    BlockDevice, ByteCount, Job, World,
    sim::{DriveOptions, SimDrive},
};

const BLOCK: u64 = 4096;

/// A drive that is the source: its first 100 blocks are 7.
fn source(scene: &mut Scene) -> Rc<SimDrive> {
    let drive = scene.simulation.add_drive(DriveOptions::new(ByteCount(2 * MIB)));
    drive.poke(0, &[7; 100 * BLOCK as usize]);
    drive
}

fn new(name: &str) -> NewImport {
    NewImport {
        name: name.to_owned(),
        volume: VolumeId([5; 16]),
        setting: VolumeSetting::default(),
        source: b"elsewhere".to_vec(),
    }
}

fn status(pool: &Pool) -> Option<ImportStatus> {
    pool.volumes().into_iter().find(|info| info.name == "store").expect("it is listed").importing
}

async fn import(world: &World, pool: &Pool) -> array::pool::ImportedVolume {
    pool.import("store", ImportTerms::default(), &Job::new(world)).await.expect("it is imported")
}

fn contents(host: u8) -> Vec<u8> {
    [vec![host; 2], vec![7; 3], vec![0; 5], vec![7; 90], vec![0; 412]].concat()
}

#[test]
fn a_volume_reads_through_to_its_source_and_is_complete_once_it_was_imported() {
    let mut scene = Scene::new(190, 3);
    let drive = source(&mut scene);
    let again = Rc::clone(&drive);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        pool.begin_import(&new("store"), drive).await.expect("it begins");
        let store = VolumeDevice(pool.volume("store").expect("it can be used at once"));
        assert_eq!(store.geometry().size, ByteCount(2 * MIB));
        assert_eq!(bytes_of(&store, 512).await, [vec![7; 100], vec![0; 412]].concat());
        fill(&store, 0, 2, 9).await;
        discard(&store, 5, 5).await;
        write(&store, 200 * BLOCK + 512, 3, 512).await;
        assert_eq!(bytes_of(&store, 10).await, contents(9)[..10]);
        pool.checkpoint().await.expect("it is made");
        assert_eq!(bytes_of(&store, 10).await, contents(9)[..10], "the discard stays");
        let holes = store.0.extents(world::ByteOffset(0), ByteCount(2 * MIB)).await.expect("they are known");
        let holes: u64 = holes.iter().filter(|extent| extent.is_hole).map(|extent| extent.length.0).sum();
        assert_eq!(holes, 5 * BLOCK, "what the source has may be data");
    });
    assert!(features(&scene) & INCOMPATIBLE_IMPORTS != 0, "an older program would show zeroes");
    scene.simulation.cut_power();
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        assert!(matches!(pool.volume("store"), Err(Error::SourceNotAttached(_))));
        assert!(!status(&pool).expect("it is imported").is_attached);
        pool.attach_source("store", again).expect("it is the same");
        let imported = import(&world, &pool).await;
        assert_eq!((imported.size_bytes, imported.copied_bytes), (2 * MIB, 93 * BLOCK));
        assert_eq!((imported.host_bytes, imported.compared_bytes), (8 * BLOCK, 504 * BLOCK));
        assert_eq!(status(&pool), None);
        let store = VolumeDevice(pool.volume("store").expect("it is there"));
        assert_eq!(read(&store, 200 * BLOCK + 512, 512).await, [3; 512]);
        assert_eq!(used_at_rest(&pool).await, 96 * BLOCK);
        pool.close().await.expect("it closes");
    });
    assert_eq!(features(&scene) & INCOMPATIBLE_IMPORTS, 0, "programs of before may open it again");
}

#[test]
fn nothing_that_needs_the_whole_volume_is_done_while_it_is_imported() {
    let mut scene = Scene::new(191, 3);
    let drive = source(&mut scene);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        pool.begin_import(&new("store"), drive).await.expect("it begins");
        let id = SnapshotId([1; 16]);
        let refused = [
            pool.snapshot(&["store"], "monday", id).await,
            pool.resize_volume("store", 4 * MIB).await,
            pool.cancel_filling("store").await,
            pool.clone_volume(
                "store",
                None,
                &NewClone { name: "try".to_owned(), volume: VolumeId([6; 16]), is_independent: false },
            )
            .await,
            pool.create_group(
                &NewGroup { name: "mail".to_owned(), group: GroupId([2; 16]), pools: Vec::new() },
                &["store"],
            )
            .await,
        ];
        for refused in refused {
            assert!(matches!(refused, Err(Error::Importing(_))), "{refused:?}");
        }
        pool.rename_volume("store", "mail").await.expect("its name does not matter");
        pool.rename_volume("mail", "store").await.expect("its name does not matter");
        import(&world, &pool).await;
        pool.snapshot(&["store"], "monday", id).await.expect("it is as any other volume");
    });
}

#[test]
fn a_salvage_does_not_take_what_is_not_copied_for_zeroes() {
    let mut scene = Scene::new(192, 3);
    let drive = source(&mut scene);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        pool.begin_import(&new("store"), drive).await.expect("it begins");
        pool.close().await.expect("it closes");
        let found = Rc::new(open_read_only(&devices, 1 << 20).await.expect("it can be read"));
        assert!(matches!(found.volume("store"), Err(Error::SourceNotAttached(_))));
    });
}

#[test]
fn an_import_is_given_up_unless_hosts_have_written() {
    let mut scene = Scene::new(193, 3);
    let drive = source(&mut scene);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        make_volume(&pool, "other", MIB).await.expect("it is made");
        pool.begin_import(&new("store"), Rc::clone(&drive) as Rc<dyn BlockDevice>).await.expect("it begins");
        pool.give_up_import("store", false).await.expect("the source has it all");
        assert!(matches!(pool.volume("store"), Err(Error::NoVolume(_))));
        pool.begin_import(&new("store"), drive).await.expect("the name is free");
        let store = VolumeDevice(pool.volume("store").expect("it is there"));
        fill(&store, 3, 2, 9).await;
        let refused = pool.give_up_import("store", false).await;
        assert!(matches!(refused, Err(Error::ImportWritten { host_bytes: 8192, .. })), "{refused:?}");
        pool.give_up_import("store", true).await.expect("by order");
        assert!(matches!(pool.give_up_import("other", true).await, Err(Error::NotImporting(_))));
        assert_eq!(used_at_rest(&pool).await, 0);
    });
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        assert_eq!(pool.volumes().len(), 1);
    });
}

#[test]
fn a_source_that_is_read_once_is_read_again_only_where_nothing_was_copied() {
    let reads_of = |reads_once: bool, data_blocks: u64| {
        let mut scene = Scene::new(194, 3);
        let drive = source(&mut scene);
        drive.poke(0, &vec![7; (data_blocks * BLOCK) as usize]);
        let read = Rc::clone(&drive);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            pool.begin_import(&new("store"), drive).await.expect("it begins");
            let store = VolumeDevice(pool.volume("store").expect("it is there"));
            fill(&store, 40, 2, 9).await;
            let terms = ImportTerms { reads_once, ..ImportTerms::default() };
            let imported = pool.import("store", terms, &Job::new(&world)).await.expect("it is imported");
            let copied = (data_blocks - 2) * BLOCK;
            let (read_back, compared) =
                if reads_once { (copied, 510 * BLOCK - copied) } else { (0, 510 * BLOCK) };
            assert_eq!((imported.read_back_bytes, imported.compared_bytes), (read_back, compared));
            assert_eq!((imported.copied_bytes, imported.host_bytes), (copied, 2 * BLOCK));
            assert_eq!(bytes_of(&store, 43).await, [vec![7; 40], vec![9; 2], vec![7]].concat());
        });
        read.statistics().reads
    };
    let (twice, once) = (reads_of(false, 512), reads_of(true, 512));
    assert_eq!(twice, once + 2, "both parts of 1 MiB are read again");
    assert_eq!(reads_of(true, 256), once + 1, "the part that has zeroes alone is read again");
}

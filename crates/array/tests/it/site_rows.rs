//! The document of the site that serves a pool: whole at each moment, and no obstacle if it is damaged.

use crate::{
    clones::features,
    scene::{Scene, small},
};
use array::{
    error::Error,
    format::{
        RowKey, SiteId, WallNanoseconds,
        features::INCOMPATIBLE_SITE,
        row::{SITE_BYTES_MAX, SiteDocument},
    },
    pool::{OpenSetting, Pool, open, open_read_only},
};
use proptest::prelude::*;
use std::{cell::Cell, collections::BTreeMap, rc::Rc};
use world::{
    BlockDevice, World,
    sim::{SimLimits, SimOutcome},
};

const SITE: SiteId = SiteId([7; 16]);

/// A document that takes more than one record.
fn text(generation: u64) -> Vec<u8> {
    let length = 150_000 + 1_000 * generation as usize;
    (0..length).map(|index| (index as u8).wrapping_mul(31).wrapping_add(generation as u8)).collect()
}

async fn opened(world: &World, devices: &[Rc<dyn BlockDevice>]) -> Rc<Pool> {
    open(world, devices, small()).await.expect("it opens")
}

async fn put(pool: &Rc<Pool>, generation: u64) {
    pool.put_site_document(SITE, generation, text(generation)).await.expect("it is written");
}

/// The generation of the pool's document, which must be whole.
fn generation(document: Result<Option<SiteDocument>, Error>) -> u64 {
    let Some(document) = document.expect("it is whole") else { return 0 };
    assert_eq!((document.site, &document.bytes), (SITE, &text(document.generation)));
    document.generation
}

#[test]
fn a_document_comes_back_from_the_log_and_from_the_catalogue_until_it_is_removed() {
    let mut scene = Scene::new(190, 3);
    scene.run(|world, devices| async move {
        let pool = opened(&world, &devices).await;
        assert_eq!(pool.site_document().expect("nothing is damaged"), None);
        put(&pool, 1).await;
        put(&pool, 2).await;
        let large = pool.put_site_document(SITE, 3, vec![1; SITE_BYTES_MAX + 1]).await;
        assert!(matches!(large, Err(Error::SiteTooLarge { .. })), "{large:?}");
        assert_eq!(generation(pool.site_document()), 2);
    });
    assert!(features(&scene) & INCOMPATIBLE_SITE != 0, "an older program does not know the table");
    scene.simulation.cut_power();
    scene.run(|world, devices| async move {
        let read = open_read_only(&devices, 1 << 20).await.expect("it can be read");
        assert_eq!(generation(read.site_document()), 2, "from the log");
        let pool = opened(&world, &devices).await;
        assert_eq!(generation(pool.site_document()), 2);
        pool.close().await.expect("it closes");
    });
    assert!(features(&scene) & INCOMPATIBLE_SITE != 0);
    scene.run(|world, devices| async move {
        let read = open_read_only(&devices, 1 << 20).await.expect("it can be read");
        assert_eq!(generation(read.site_document()), 2, "from the catalogue");
        let pool = opened(&world, &devices).await;
        assert_eq!(generation(pool.site_document()), 2);
        pool.remove_site_document().await.expect("it is removed");
        assert_eq!(generation(pool.site_document()), 0);
        pool.close().await.expect("it closes");
    });
    assert!(features(&scene) & INCOMPATIBLE_SITE == 0, "programs of before may open it again");
}

#[test]
fn the_largest_document_is_kept() {
    let mut scene = Scene::new(191, 2);
    scene.run(|world, devices| async move {
        let pool = opened(&world, &devices).await;
        let bytes = vec![9; SITE_BYTES_MAX];
        pool.put_site_document(SITE, 1, bytes.clone()).await.expect("it has room");
        pool.close().await.expect("it closes");
        let pool = opened(&world, &devices).await;
        assert!(pool.site_document().expect("it is whole").expect("it is there").bytes == bytes);
    });
}

#[test]
fn after_a_crash_at_any_moment_one_document_is_whole() {
    let (mut before, mut behind) = (0, 0);
    for polls in 1.. {
        let mut scene = Scene::new(195, 3);
        scene.run(|world, devices| async move {
            let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
            put(&pool, 1).await;
            pool.close().await.expect("it closes");
        });
        let devices: Vec<_> =
            scene.drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect();
        let begun = Rc::new(Cell::new(false));
        let (begins, limits) = (Rc::clone(&begun), SimLimits { polls: Some(polls), ..SimLimits::generous() });
        let outcome = scene.simulation.run(limits, |world| async move {
            let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
            begins.set(true);
            put(&pool, 2).await;
            pool.checkpoint().await.expect("it is made");
        });
        scene.simulation.cut_power();
        if !begun.get() {
            continue;
        }
        let found = Rc::new(Cell::new(0));
        let finds = Rc::clone(&found);
        scene.run(move |world, devices| async move {
            let read = open_read_only(&devices, 1 << 20).await.expect("it can be read").site_document();
            let pool = opened(&world, &devices).await;
            finds.set(generation(pool.site_document()));
            assert_eq!(generation(read), finds.get(), "after {polls} polls");
            // What an interrupted one left goes with the next one.
            put(&pool, 3).await;
            pool.remove_site_document().await.expect("it is removed");
            pool.close().await.expect("it closes");
        });
        assert!(features(&scene) & INCOMPATIBLE_SITE == 0, "no row is left");
        *(if found.get() == 2 { &mut behind } else { &mut before }) += 1;
        assert!(matches!(found.get(), 1 | 2), "{}", found.get());
        if outcome != SimOutcome::Crashed {
            assert_eq!(found.get(), 2, "it was answered");
            break;
        }
    }
    println!("note: {before} crashes before the new document, {behind} behind it");
    assert!(before > 3 && behind > 3, "{before} {behind}");
}

fn document() -> impl Strategy<Value = SiteDocument> {
    (prop::collection::vec(any::<u8>(), 1..5_000), 1..9u64).prop_map(|(bytes, generation)| SiteDocument {
        site: SITE,
        generation,
        written_at: WallNanoseconds(5),
        bytes,
    })
}

fn read(rows: &BTreeMap<RowKey, Vec<u8>>) -> Result<Option<SiteDocument>, String> {
    let rows = rows.iter().map(|(key, bytes)| (*key, bytes.as_slice()));
    SiteDocument::of_rows(rows).map_err(|refusal| refusal.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Bits flipped, rows cut short or missing: another document is never taken for this one.
    #[test]
    fn a_damaged_document_is_refused_in_one_line(
        document in document(),
        set in 1..4u64,
        row in any::<prop::sample::Index>(),
        damage in 0..3,
        place in any::<prop::sample::Index>(),
        bit in 0..8u32,
    ) {
        let mut rows: BTreeMap<RowKey, Vec<u8>> = document.rows(set).into_iter().collect();
        prop_assert_eq!(read(&rows), Ok(Some(document.clone())));
        let key = *rows.keys().nth(row.index(rows.len())).unwrap();
        let bytes = rows.get_mut(&key).unwrap();
        let at = place.index(bytes.len());
        match damage {
            0 => bytes[at] ^= 1 << bit,
            1 => bytes.truncate(at),
            _ => drop(rows.remove(&key)),
        }
        match read(&rows) {
            Err(refusal) => prop_assert!(!refusal.contains('\n')),
            // Site, generation and time are in no checksum but the node's.
            Ok(Some(found)) => prop_assert!(key == RowKey::SITE_HEAD && found.bytes == document.bytes),
            Ok(None) => prop_assert!(key == RowKey::SITE_HEAD && damage == 2),
        }
    }
}

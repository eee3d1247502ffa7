//! Damage: found, named by volume and range, and never restored as if it were whole.

use crate::volumes::{MemoryVolume, SMALL, access, difference, order, source};
use std::rc::Rc;
use vault::{
    VaultError,
    blob_id::BlobId,
    checking::check,
    contents::{CopiedVolume, copied_backups},
    copying::copy,
    repository::Repository,
    restoring::{VaultRestoreTarget, VolumeRestoreOutcome, restore},
    sealing::SealingKey,
    store::{SimVaultStore, VaultFileKind},
};
use world::{Job, Random, World, sim};

struct Scene {
    world: World,
    store: SimVaultStore,
    key: SealingKey,
    content: Vec<u8>,
    snapshot: BlobId,
}

impl Scene {
    /// A vault with one copy of a volume.
    async fn begin(world: World) -> Self {
        let store = SimVaultStore::default();
        let key = SealingKey::draw(&world);
        let access = access(&world, store.in_world(&world), 7);
        let repository = Rc::new(Repository::make_with_key(&access, key.clone()).await.unwrap());
        let mut content = vec![0; 24 * 4096];
        Random::new(1, "content").fill(&mut content[..20 * 4096]);
        let device = MemoryVolume::new(&world, content.clone());
        let order = order(1, vec![source(&device, "store", 1, SMALL)]);
        let snapshot = copy(&repository, order, &Job::under_way(&world)).await.unwrap().snapshot;
        Self { world, store, key, content, snapshot }
    }

    async fn open(&self) -> Rc<Repository> {
        let access = access(&self.world, self.store.in_world(&self.world), 7);
        Rc::new(Repository::open_with_key(&access, self.key.clone()).await.unwrap())
    }

    async fn findings(&self, reads_data: bool) -> Vec<String> {
        let job = Job::under_way(&self.world);
        check(&self.open().await, reads_data, None, &job).await.unwrap().findings
    }

    async fn restore(&self, target: &MemoryVolume) -> Result<VolumeRestoreOutcome, VaultError> {
        let repository = self.open().await;
        let copies = copied_backups(&repository).await?;
        let volume = CopiedVolume::open(&repository, &copies[0], &copies[0].record.volumes[0]).await?;
        let target = VaultRestoreTarget {
            name: "target".into(),
            device: Rc::new(target.clone()),
            holes: Some(Rc::new(target.clone())),
        };
        restore(&repository, &volume, &target, None, &Job::under_way(&self.world)).await
    }

    fn target(&self, bytes: Vec<u8>) -> MemoryVolume {
        MemoryVolume::new(&self.world, bytes)
    }
}

#[test]
fn each_flipped_bit_of_a_pack_is_found_and_named_by_volume_and_range() {
    sim::run(1, |world| async move {
        let scene = Scene::begin(world).await;
        assert_eq!(scene.findings(true).await, Vec::<String>::new());
        let whole = scene.store.copy();
        let mut named = 0;
        for pack in whole.names(VaultFileKind::Pack) {
            for part in 0..16 {
                scene.store.edit(VaultFileKind::Pack, &pack, |bytes| {
                    let at = bytes.len() * part / 16;
                    bytes[at] ^= 4;
                });
                let findings = scene.findings(true).await;
                assert!(!findings.is_empty(), "{pack} {part}");
                let target = scene.target(vec![0; scene.content.len()]);
                match scene.restore(&target).await {
                    // A header, which a restore does not need.
                    Ok(_) => assert!(target.bytes() == scene.content),
                    Err(VaultError::Damaged { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
                named += usize::from(findings.iter().any(|line| {
                    line.starts_with("backup 1 of post, mail/store: bytes ") && line.contains(" are lost (")
                }));
                scene.store.edit(VaultFileKind::Pack, &pack, |bytes| {
                    let at = bytes.len() * part / 16;
                    bytes[at] ^= 4;
                });
            }
        }
        assert!(named > 40, "{named}");
        assert_eq!(scene.findings(true).await, Vec::<String>::new());
    });
}

#[test]
fn lost_and_shortened_files_are_found_without_reading_data() {
    sim::run(2, |world| async move {
        let scene = Scene::begin(world).await;
        for kind in [VaultFileKind::Pack, VaultFileKind::Snapshot, VaultFileKind::Index] {
            for name in scene.store.names(kind) {
                let bytes = std::cell::RefCell::new(Vec::new());
                scene.store.edit(kind, &name, |file| {
                    bytes.replace(file.clone());
                    file.pop();
                });
                // The index is read when the vault is opened.
                if kind == VaultFileKind::Index {
                    let access = access(&scene.world, scene.store.in_world(&scene.world), 7);
                    let opened = Repository::open_with_key(&access, scene.key.clone()).await;
                    assert!(matches!(opened, Err(VaultError::Damaged { .. })));
                } else {
                    assert!(!scene.findings(false).await.is_empty(), "{kind:?} {name}");
                }
                scene.store.edit(kind, &name, |file| *file = bytes.take());
            }
        }
        let lost = scene.store.names(VaultFileKind::Pack)[0].clone();
        scene.store.lose(VaultFileKind::Pack, &lost);
        let findings = scene.findings(false).await;
        assert!(findings[0].contains("is missing"), "{findings:?}");
        let target = scene.target(vec![0; scene.content.len()]);
        assert!(scene.restore(&target).await.is_err());
    });
}

#[test]
fn a_copy_into_a_vault_that_lacks_packs_reads_everything_and_is_whole() {
    sim::run(3, |world| async move {
        let scene = Scene::begin(world).await;
        let lost = scene.store.names(VaultFileKind::Pack)[0].clone();
        scene.store.lose(VaultFileKind::Pack, &lost);
        let device = scene.target(scene.content.clone());
        let mut again = source(&device, "store", 2, SMALL);
        again.since = Some(difference(scene.snapshot, &scene.content, &scene.content));
        let outcome = copy(&scene.open().await, order(2, vec![again]), &Job::under_way(&scene.world)).await;
        match outcome {
            Ok(outcome) => assert_eq!(outcome.read_bytes, 20 * 4096),
            // The lost pack was the one with the trees.
            Err(error) => assert!(matches!(error, VaultError::Io(_) | VaultError::Missing(_)), "{error}"),
        }
    });
}

#[test]
fn a_restore_writes_over_nothing_and_goes_on_after_an_early_end() {
    sim::run(4, |world| async move {
        let scene = Scene::begin(world).await;
        // A block that holds something else.
        for at in [0, 5 * 4096 + 512, 23 * 4096] {
            let mut bytes = vec![0; scene.content.len()];
            bytes[at] = 1 ^ scene.content[at];
            let target = scene.target(bytes.clone());
            let refused = scene.restore(&target).await;
            let block = at as u64 / 4096 * 4096;
            assert!(matches!(refused, Err(VaultError::Occupied { at, .. }) if at == block), "{refused:?}");
            assert!(target.bytes() == bytes);
        }
        let larger = scene.target([&scene.content[..], &[0; 4096], &[3; 512]].concat());
        assert!(matches!(scene.restore(&larger).await, Err(VaultError::Occupied { .. })));
        assert!(matches!(scene.restore(&scene.target(vec![0; 4096])).await, Err(VaultError::Mismatch(_))));
        let target = scene.target(vec![0; scene.content.len()]);
        let mut ended_early = 0;
        let outcome = loop {
            target.fail_after(1);
            match scene.restore(&target).await {
                Err(VaultError::Io(_)) => ended_early += 1,
                restored => break restored.unwrap(),
            }
        };
        assert!(target.bytes() == scene.content && outcome.found_bytes > 0, "{outcome:?}");
        assert!(ended_early >= 2, "{ended_early}");
        assert_eq!(scene.restore(&target).await.unwrap().written_bytes, 0);
    });
}

//! Histories of copies in simulated time: the store fills up, goes out of reach before or after any call, and comes back.
//! Whatever happens, each copy that was said to be done has the bytes of its backup, and the next one succeeds.

use crate::volumes::{BLOCK, MemoryVolume, SMALL, access, difference, order, source};
use std::rc::Rc;
use vault::{
    VaultError,
    checking::check,
    contents::{CopiedVolume, copied_backups},
    copying::copy,
    forgetting::forget,
    planted::{VaultBug, with_vault_bug},
    pruning::{PruneOutcome, prune},
    repository::Repository,
    restoring::{VaultRestoreTarget, restore},
    sealing::SealingKey,
    store::{SimVaultStore, VaultFileKind, VaultStoreFaults},
};
use world::{Job, Random, World, sim};

const VOLUMES: [&str; 2] = ["store", "log"];
const STEPS: u64 = 5;

/// A backup as the model has it.
struct Backup {
    number: u64,
    contents: Vec<Vec<u8>>,
    /// Snapshot files of its copies.
    copies: Vec<vault::blob_id::BlobId>,
    /// Of the clock.
    is_scheduled: bool,
}

struct History {
    world: World,
    store: SimVaultStore,
    key: SealingKey,
    random: Random,
    contents: Vec<Vec<u8>>,
    backups: Vec<Backup>,
    pid: u32,
}

impl History {
    fn change(&mut self) {
        for content in &mut self.contents {
            for _ in 0..self.random.below(4) {
                let blocks = (content.len() / BLOCK) as u64;
                let start = self.random.below(blocks);
                let count = (1 + self.random.below(6)).min(blocks - start);
                let range = start as usize * BLOCK..(start + count) as usize * BLOCK;
                match self.random.below(4) {
                    0 => content[range].fill(0),
                    // Bytes that other chunks have, too.
                    1 => content[range].fill(self.random.below(3) as u8),
                    _ => self.random.fill(&mut content[range]),
                }
            }
            match self.random.below(6) {
                0 => content.resize(content.len() + BLOCK * self.random.below(12) as usize, 0),
                1 => content.truncate((content.len() / 2).next_multiple_of(BLOCK).max(BLOCK)),
                _ => {}
            }
        }
    }

    async fn open(&mut self) -> Result<Rc<Repository>, VaultError> {
        self.pid += 1;
        let access = access(&self.world, self.store.in_world(&self.world), self.pid);
        Ok(Rc::new(Repository::open_with_key(&access, self.key.clone()).await?))
    }

    /// Copies the newest backup, by the difference to any earlier one that was copied, or without.
    async fn copy(&mut self) -> Result<(), VaultError> {
        let repository = self.open().await?;
        let (newest, earlier) = self.backups.split_last().expect("there is one");
        let copied: Vec<&Backup> = earlier.iter().filter(|backup| !backup.copies.is_empty()).collect();
        let base = match copied.len() as u64 {
            0 => None,
            count => Some(copied[self.random.below(count) as usize]).filter(|_| !self.random.percent(15.0)),
        };
        let mut sources = Vec::new();
        for (index, name) in VOLUMES.iter().enumerate() {
            let device = MemoryVolume::new(&self.world, newest.contents[index].clone());
            let mut source = source(&device, name, newest.number, SMALL);
            source.since =
                base.map(|base| difference(base.copies[0], &base.contents[index], &newest.contents[index]));
            if self.random.percent(30.0) {
                source.holes = None;
            }
            sources.push(source);
        }
        let mut order = order(newest.number, sources);
        order.record.is_scheduled = newest.is_scheduled;
        let outcome = copy(&repository, order, &Job::under_way(&self.world)).await?;
        self.backups.last_mut().expect("there is one").copies.push(outcome.snapshot);
        Ok(())
    }

    /// Compares each copy with its backup.
    async fn compare(&mut self) -> Result<(), String> {
        let repository = self.open().await.map_err(|error| error.to_string())?;
        let copies = copied_backups(&repository).await.map_err(|error| format!("the list: {error}"))?;
        for backup in &self.backups {
            for id in &backup.copies {
                let copy = copies.iter().find(|copy| copy.id == *id);
                let copy = copy.ok_or_else(|| format!("the copy of {} is gone", backup.number))?;
                for (index, record) in copy.record.volumes.iter().enumerate() {
                    let expected = &backup.contents[index];
                    let target = MemoryVolume::new(&self.world, vec![0; expected.len()]);
                    let restored = async {
                        let volume = CopiedVolume::open(&repository, copy, record).await?;
                        let target = VaultRestoreTarget {
                            name: "target".into(),
                            device: Rc::new(target.clone()),
                            holes: Some(Rc::new(target.clone())),
                        };
                        restore(&repository, &volume, &target, None, &Job::under_way(&self.world)).await
                    };
                    restored.await.map_err(|error| format!("{}: {error}", backup.number))?;
                    if target.bytes() != *expected {
                        return Err(format!("{} of backup {} differs", VOLUMES[index], backup.number));
                    }
                }
            }
        }
        let known = self.backups.iter().map(|backup| backup.copies.len()).sum::<usize>();
        // A copy whose last call was done and not answered is there, too.
        if copies.len() < known {
            return Err("copies are missing".to_owned());
        }
        let job = Job::under_way(&self.world);
        let found =
            check(&repository, true, None, &job).await.map_err(|error| format!("the check: {error}"))?;
        if found.findings.is_empty() { Ok(()) } else { Err(found.findings.join("; ")) }
    }

    /// Removes old copies of the clock, and what nothing needs any more, under faults and then without.
    async fn remove_old(&mut self, number: u64) -> Result<(), String> {
        let stay = 1 + self.random.below(2) as usize;
        let faults = self.draw_faults();
        self.store.set_faults(faults);
        let first = self.forget_and_prune(stay).await;
        self.store.set_faults(VaultStoreFaults::default());
        let of_clock = self.backups.iter_mut().filter(|one| one.is_scheduled && !one.copies.is_empty());
        let mut of_clock: Vec<&mut Backup> = of_clock.collect();
        let surplus = of_clock.len().saturating_sub(stay);
        of_clock.iter_mut().take(surplus).for_each(|backup| backup.copies.clear());
        self.compare()
            .await
            .map_err(|why| format!("after old ones went in step {number}, {first:?}: {why}"))?;
        let outcome = self.forget_and_prune(stay).await.map_err(|error| format!("a prune: {error}"))?;
        self.compare().await.map_err(|why| format!("after the prune of step {number}: {why}"))?;
        let repository = self.open().await.map_err(|error| error.to_string())?;
        let census = repository.census().await.map_err(|error| error.to_string())?;
        let (stored, unused) = (census.stored.values().sum::<u64>(), outcome.unused_bytes);
        if outcome.snapshots != copied_backups(&repository).await.map_err(|error| error.to_string())?.len() {
            return Err(format!("it looked at {} snapshots", outcome.snapshots));
        }
        if unused * 20 > stored { Err(format!("{unused} of {stored} are without use")) } else { Ok(()) }
    }

    async fn forget_and_prune(&mut self, stay: usize) -> Result<PruneOutcome, VaultError> {
        let repository = self.open().await?;
        forget(&repository, "0123456789abcdef", stay).await?;
        prune(&repository, &Job::under_way(&self.world)).await
    }

    fn draw_faults(&mut self) -> VaultStoreFaults {
        match self.random.below(4) {
            0 => VaultStoreFaults { bytes_left: Some(self.random.below(60_000)), ..Default::default() },
            1 | 2 => VaultStoreFaults {
                calls_left: Some(1 + self.random.below(40)),
                is_last_change_done: self.random.percent(50.0),
                ..Default::default()
            },
            _ => VaultStoreFaults::default(),
        }
    }

    async fn run(mut self) -> Result<(), String> {
        let access = access(&self.world, self.store.in_world(&self.world), 1);
        let made = Repository::make_with_key(&access, self.key.clone());
        made.await.map_err(|error| error.to_string())?;
        for number in 1..=STEPS {
            self.change();
            let is_scheduled = self.random.percent(60.0);
            self.backups.push(Backup {
                number,
                contents: self.contents.clone(),
                copies: Vec::new(),
                is_scheduled,
            });
            let faults = self.draw_faults();
            self.store.set_faults(faults);
            let first = self.copy().await;
            self.store.set_faults(VaultStoreFaults::default());
            self.compare().await.map_err(|why| format!("after step {number} with {faults:?}: {why}"))?;
            if first.is_err() {
                self.copy().await.map_err(|error| format!("step {number} again: {error}"))?;
                self.compare().await.map_err(|why| format!("after step {number} again: {why}"))?;
            }
            if self.random.percent(50.0) {
                self.remove_old(number).await?;
            }
        }
        Ok(())
    }
}

fn judge(seed: u64) -> Result<(), String> {
    let run = move |world: World| {
        let mut random = Random::new(seed, "history");
        let contents = VOLUMES.map(|_| {
            let mut content = vec![0; BLOCK * (8 + random.below(80)) as usize];
            let half = content.len() / 2;
            random.fill(&mut content[..half]);
            content
        });
        let history = History {
            key: SealingKey::draw(&world),
            store: SimVaultStore::default(),
            contents: contents.to_vec(),
            backups: Vec::new(),
            pid: 1,
            world,
            random,
        };
        history.run()
    };
    sim::run(seed, run).0
}

/// The seeds that the environment names (`cargo xtask sim protect`), or `few`.
fn seeds(few: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    match number("SPINDLE_SEED") {
        Some(first) => first..first + number("SPINDLE_SEEDS").unwrap_or(1),
        None => 0..few,
    }
}

#[test]
fn every_copy_has_the_bytes_of_its_backup_whatever_happens_to_the_store() {
    for seed in seeds(40) {
        println!("SPINDLE_SEED={seed}");
        judge(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[test]
fn every_planted_bug_of_copies_is_noticed() {
    for bug in VaultBug::OF_COPIES.into_iter().chain(VaultBug::OF_REMOVALS) {
        let noticed = (0..60).find_map(|seed| with_vault_bug(bug, || judge(seed)).err());
        assert!(noticed.is_some(), "{bug:?}");
    }
}

#[test]
fn only_what_changed_is_read_and_stored() {
    sim::run(3, |world| async move {
        let store = SimVaultStore::default();
        let access = access(&world, store.in_world(&world), 7);
        let repository = Rc::new(Repository::make_with_key(&access, SealingKey::draw(&world)).await.unwrap());
        let mut content = vec![0; 64 * 4096];
        Random::new(1, "content").fill(&mut content[..32 * 4096]);
        let device = MemoryVolume::new(&world, content.clone());
        let job = Job::under_way(&world);
        let first =
            copy(&repository, order(1, vec![source(&device, "store", 1, SMALL)]), &job).await.unwrap();
        // Holes are not read.
        assert_eq!((device.read_bytes(), first.read_bytes, first.whole.len()), (32 * 4096, 32 * 4096, 1));
        let mut changed = content.clone();
        changed[5 * 4096 + 512..5 * 4096 + 1024].fill(9);
        let device = MemoryVolume::new(&world, changed.clone());
        let mut second = source(&device, "store", 2, SMALL);
        second.since = Some(difference(first.snapshot, &content, &changed));
        let packs = store.names(VaultFileKind::Pack).len();
        let second = copy(&repository, order(2, vec![second]), &job).await.unwrap();
        assert_eq!((device.read_bytes(), second.read_bytes, second.whole.len()), (4096, 4096, 0));
        // One pack of data and one of trees.
        assert_eq!(store.names(VaultFileKind::Pack).len(), packs + 2);
        let stored = second.stored_bytes;
        assert!((4096..8192).contains(&stored), "{stored}");
        assert_eq!(job.progress().bytes(), Some((33 * 4096, 33 * 4096)));
    });
}

#[test]
fn a_copy_goes_on_from_the_packs_of_one_that_ended_early() {
    sim::run(4, |world| async move {
        let store = SimVaultStore::default();
        let key = SealingKey::draw(&world);
        let first = access(&world, store.in_world(&world), 7);
        Repository::make_with_key(&first, key.clone()).await.unwrap();
        let mut content = vec![0; 64 * 4096];
        Random::new(1, "content").fill(&mut content);
        let device = MemoryVolume::new(&world, content);
        for (pid, calls_left) in [(7, Some(16)), (8, None)] {
            let access = access(&world, store.in_world(&world), pid);
            let repository = Rc::new(Repository::open_with_key(&access, key.clone()).await.unwrap());
            let before: u64 = pack_bytes(&store);
            store.set_faults(VaultStoreFaults { calls_left, ..Default::default() });
            let job = Job::under_way(&world);
            let copied = copy(&repository, order(1, vec![source(&device, "store", 1, SMALL)]), &job).await;
            store.set_faults(VaultStoreFaults::default());
            match calls_left {
                Some(_) => assert!(matches!(copied, Err(VaultError::Io(_))), "{copied:?}"),
                None => {
                    let outcome = copied.unwrap();
                    assert!(before > 100_000 && outcome.resumed_packs >= 6, "{before} {outcome:?}");
                    assert!(pack_bytes(&store) < before + 200_000, "they were stored again");
                    assert!(pack_bytes(&store) < 64 * 4096 + 20_000, "{}", pack_bytes(&store));
                    // The lock of the first is gone: its process has ended.
                    assert_eq!(store.names(VaultFileKind::Lock), Vec::<String>::new());
                }
            }
        }
    });
}

#[test]
fn the_last_folder_of_a_volume_that_shrank_is_shorter_although_nothing_in_it_changed() {
    sim::run(5, |world| async move {
        let store = SimVaultStore::default();
        let access = access(&world, store.in_world(&world), 7);
        let repository = Rc::new(Repository::make_with_key(&access, SealingKey::draw(&world)).await.unwrap());
        let mut content = vec![0; 8 * 4096];
        Random::new(1, "content").fill(&mut content);
        let job = Job::under_way(&world);
        let device = MemoryVolume::new(&world, content.clone());
        let first =
            copy(&repository, order(1, vec![source(&device, "store", 1, SMALL)]), &job).await.unwrap();
        // Three of the four chunks of its second folder are left.
        let shrunk = content[..7 * 4096].to_vec();
        let device = MemoryVolume::new(&world, shrunk.clone());
        let mut second = source(&device, "store", 2, SMALL);
        second.since = Some(difference(first.snapshot, &content, &shrunk));
        let second = copy(&repository, order(2, vec![second]), &job).await.unwrap();
        assert_eq!(second.read_bytes, 0);
        let copies = copied_backups(&repository).await.unwrap();
        let copy = copies.iter().find(|copy| copy.id == second.snapshot).unwrap();
        let volume = CopiedVolume::open(&repository, copy, &copy.record.volumes[0]).await.unwrap();
        let chunks = volume.chunks(&repository, 1).await.unwrap();
        assert_eq!(chunks.len(), 3);
    });
}

fn pack_bytes(store: &SimVaultStore) -> u64 {
    store.writes().iter().filter(|(kind, _)| *kind == VaultFileKind::Pack).map(|(_, bytes)| bytes).sum()
}

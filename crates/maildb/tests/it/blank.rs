//! Pages of a closed database that became zeros: lost, discarded, or never provisioned by a thin volume.

use crate::model::{self, Mix, Rows};
use maildb::{Durability, InstanceConfig, PageNumber, PageSize, format::page::PageView};
use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};
use verify::in_world::{DatabaseReport, verify_database, verify_trees};
use world::{ByteCount, Random, World, real};

const PAGE_SIZE: PageSize = PageSize::Kib4;
const MIX: Mix = Mix { body_bytes_max: 900, mailboxes: 10, delete_percent: 30.0 };

fn config() -> InstanceConfig {
    InstanceConfig {
        extension_pages: 64,
        ..model::config(PAGE_SIZE, ByteCount(128 * PAGE_SIZE.bytes() as u64))
    }
}

/// Runs `test` on a database after `changes` changes, shut down cleanly if `closes`.
fn beside_database(changes: usize, closes: bool, test: impl AsyncFnOnce(World, PathBuf, Rows)) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().to_owned();
    real::run(5, real::RealOptions::default(), async |world| {
        let instance = model::open(&world, &path, 1, config()).await;
        let table = model::mail_table(&instance.databases()[0]).await;
        let (mut rows, mut random) = (Rows::new(), Random::new(4, "blank"));
        let mut session = instance.session();
        model::change_at_random(&mut session, &table, &mut rows, &mut random, changes, MIX).await;
        // Merges leave free pages that keep their old contents.
        let of_mailbox: Vec<_> = rows.range((3, 0)..(6, 0)).map(|(&key, _)| key).collect();
        for key in of_mailbox {
            session.delete(&table, &model::key_values(key)).await.expect("deleted");
            rows.remove(&key);
        }
        session.commit(Durability::Stable).await.expect("committed");
        drop(session);
        if closes {
            instance.close().await.expect("closed")
        } else {
            drop(instance)
        }
        test(world, path, rows).await;
    });
}

/// The file itself, changed while no group has it open.
struct Spoiler(File);

impl Spoiler {
    fn of(path: &Path) -> Self {
        let file = File::options().read(true).write(true).open(path.join(model::file_name(0)));
        Self(file.expect("the database opens"))
    }

    fn pages(&self) -> u32 {
        let bytes = self.0.metadata().expect("a length").len();
        (bytes / PAGE_SIZE.bytes() as u64) as u32 - 2
    }

    fn page(&self, page: u32) -> Vec<u8> {
        let mut bytes = vec![0; PAGE_SIZE.bytes()];
        self.0.read_exact_at(&mut bytes, PageNumber(page).file_offset(PAGE_SIZE)).expect("readable");
        bytes
    }

    fn put(&self, page: u32, bytes: &[u8]) {
        self.0.write_all_at(bytes, PageNumber(page).file_offset(PAGE_SIZE)).expect("writable");
    }

    fn blank(&self, page: u32) {
        self.put(page, &[0; PAGE_SIZE.bytes()]);
    }

    /// The first leaves of the table created last.
    fn leaves(&self, count: usize) -> Vec<u32> {
        let is_branch_root = |&page: &u32| {
            let bytes = self.page(page);
            let view = PageView::new(&bytes);
            bytes.iter().any(|&byte| byte != 0) && view.is_root() && !view.is_leaf()
        };
        let root = (1..=self.pages()).rev().find(is_branch_root).expect("a table has a root");
        let mut leaf = PageView::new(&self.page(root)).child(0);
        let mut leaves = vec![leaf.0];
        while leaves.len() < count {
            leaf = PageView::new(&self.page(leaf.0)).next().expect("there are more leaves");
            leaves.push(leaf.0);
        }
        leaves
    }
}

async fn verify(path: &Path) -> DatabaseReport {
    let file = model::folder(path).open(&model::file_name(0)).await.expect("there");
    verify_database(file, "priv1.edb", &mut |_, _| {}).await.expect("readable")
}

fn damage(verdict: &DatabaseReport) -> Vec<(u32, &str)> {
    verdict.damaged.iter().map(|damage| (damage.page.0, damage.problem.as_str())).collect()
}

const IN_USE: &str = "it is in use, and blank: what was written there is gone";

#[test]
fn a_blank_page_is_damage_exactly_if_it_is_in_use() {
    beside_database(2500, true, async |world, path, rows| {
        let spoiler = Spoiler::of(&path);
        let (mut missed, mut free_with_old_content) = (0, Vec::new());
        let whole = verify(&path).await;
        assert!(whole.is_clean() && whole.pages_empty > 0, "{:?}", whole.damaged);
        for page in 1..=spoiler.pages() {
            let before = spoiler.page(page);
            if before.iter().all(|&byte| byte == 0) {
                continue;
            }
            spoiler.blank(page);
            let verdict = verify(&path).await;
            assert_eq!(verdict.pages_good, whole.pages_good - 1);
            match damage(&verdict)[..] {
                [] => {
                    assert_eq!(verdict.pages_empty, whole.pages_empty + 1);
                    free_with_old_content.push(page);
                }
                [(found, problem)] => {
                    assert!(found == page && problem.starts_with(IN_USE), "page {page}: {found}: {problem}");
                    assert_eq!(verdict.pages_empty, whole.pages_empty);
                    missed += 1;
                }
                ref more => panic!("page {page}: {more:?}"),
            }
            spoiler.put(page, &before);
        }
        let file = model::folder(&path).open(&model::file_name(0)).await.expect("there");
        let deep = verify_trees(file, &model::file_name(0)).await.expect("walked");
        assert_eq!((missed, deep.findings.len()), (deep.pages_in_use, 0));
        assert!(missed > 50 && free_with_old_content.len() > 5, "{missed}, {free_with_old_content:?}");
        // All of these at once go unnoticed.
        free_with_old_content.iter().for_each(|&page| spoiler.blank(page));
        assert!(verify(&path).await.is_clean());
        let instance = model::open(&world, &path, 1, config()).await;
        let database = &instance.databases()[0];
        let table = model::mail_table(database).await;
        assert!(model::read_all(database, &table).await == rows, "the rows are those committed");
        instance.close().await.expect("closed");
    });
}

#[test]
fn several_blank_pages_are_reported_one_by_one_beside_other_damage() {
    beside_database(600, true, async |_, path, _| {
        let spoiler = Spoiler::of(&path);
        let mut used = spoiler.leaves(8);
        used.sort_unstable();
        let (rotten, lost) = used.split_first().expect("some leaves");
        lost.iter().for_each(|&page| spoiler.blank(page));
        let mut bytes = spoiler.page(*rotten);
        bytes[300] ^= 1;
        spoiler.put(*rotten, &bytes);
        let verdict = verify(&path).await;
        let found = damage(&verdict);
        assert_eq!(found.iter().map(|&(page, _)| page).collect::<Vec<_>>(), used);
        assert!(found[0].1.contains("bit 0 of byte 300 is flipped"), "{}", found[0].1);
        assert!(found[1..].iter().all(|&(_, problem)| problem == IN_USE), "{found:?}");
    });
}

#[test]
fn unreadable_space_trees_are_damage_and_leave_blank_pages_unreported() {
    beside_database(300, true, async |_, path, _| {
        let spoiler = Spoiler::of(&path);
        let empty = verify(&path).await.pages_empty;
        // Root of the database: first zero, then corrupted.
        let root = spoiler.page(1);
        spoiler.blank(1);
        let untold = |count: u32| format!("; so it cannot be told which of {count} blank pages are in use");
        assert_eq!(damage(&verify(&path).await), [(1, &*(IN_USE.to_owned() + &untold(empty + 1)))]);
        let mut bytes = root.clone();
        bytes[300] ^= 1;
        spoiler.put(1, &bytes);
        let verdict = verify(&path).await;
        let [(1, problem)] = damage(&verdict)[..] else { panic!("{:?}", verdict.damaged) };
        assert!(problem.contains("is flipped") && problem.ends_with(&untold(empty)), "{problem}");
        spoiler.put(1, &root);
        assert!(verify(&path).await.is_clean());
    });
}

#[test]
fn blank_pages_of_a_dirty_database_are_left_to_recovery() {
    beside_database(600, false, async |_, path, _| {
        let verdict = verify(&path).await;
        assert!(verdict.is_clean() && verdict.pages_empty > 0, "{:?}", verdict.damaged);
    });
}

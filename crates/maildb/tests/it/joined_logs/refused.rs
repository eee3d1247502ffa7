//! Folders that are no one log: every refusal has its reason and its folder, and changes nothing.

use super::story::{self, CHANGES, Story};
use crate::{
    model::{self, Rows},
    simulated::{open, read_all},
};
use maildb::{
    BulkLoadSettings, Durability,
    log::{JoinEnd, LogJoinError, LogNames},
};
use std::collections::BTreeMap;
use world::{Random, World, sim::SimFolder};

/// All files of a folder.
fn contents(folder: &SimFolder) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for name in folder.names() {
        folder.edit(&name, |bytes| drop(files.insert(name.clone(), bytes.to_vec())));
    }
    files
}

/// The refusal of a chain, which changed no folder.
async fn refusal(world: &World, base: &SimFolder, later: &[&SimFolder], end: JoinEnd) -> LogJoinError {
    let all = || [base].into_iter().chain(later.iter().copied()).map(contents).collect::<Vec<_>>();
    let before = all();
    let refused = story::proof(world, base, later, end).await.err().expect("refused");
    assert!(all() == before, "nothing was changed");
    refused
}

pub fn all(seed: u64) {
    story::in_world(seed, async move |world| {
        let story = Story::new(&world, seed).await;
        gaps(&world, &story).await;
        forks(&world, &story, seed).await;
        ends(&world, &story).await;
        damage(&world, &story).await;
    });
}

async fn gaps(world: &World, story: &Story) {
    let [base, first, .., newest] = &story.cuts[..] else { unreachable!("there are several cuts") };
    let problem = refusal(world, &base.folder, &[&newest.folder], JoinEnd::Newest).await;
    let LogJoinError::Gap { first: from, last } = problem else { panic!("{problem}") };
    assert!((base.generation..=newest.generation).contains(&from) && from <= last, "{from} to {last}");

    let incomplete = first.folder.copy();
    let missing = first.generation - 1;
    assert!(missing > base.generation, "{missing}");
    world_remove(world, &incomplete, &LogNames::new("E00").archived(missing)).await;
    let problem = refusal(world, &base.folder, &[&incomplete], JoinEnd::Newest).await;
    assert!(
        matches!(problem, LogJoinError::Gap { first, last } if first == missing && last == missing),
        "{problem}"
    );
    // Before the gap.
    story::proof(world, &base.folder, &[&incomplete], JoinEnd::Generation(missing - 1))
        .await
        .expect("proven");

    let empty = SimFolder::default();
    let problem = refusal(world, &base.folder, &[&empty], JoinEnd::Newest).await;
    assert!(matches!(&problem, LogJoinError::NoLog { folder } if folder == "folder 1"), "{problem}");
}

async fn world_remove(world: &World, folder: &SimFolder, name: &str) {
    folder.directory(world).remove(name).await.expect("it is there");
}

/// A backup is opened and works on, beside the group.
async fn forks(world: &World, story: &Story, seed: u64) {
    let [base, .., newest] = &story.cuts[..] else { unreachable!("there are several cuts") };
    let restored = base.folder.copy();
    let mut config = story.config.clone();
    config.log_retention = maildb::LogRetention::UntilReleased;
    let instance = open(world, &restored.directory(world), config).await.expect("it opens");
    let database = instance.databases().remove(0);
    let mut rows = read_all(&database).await.expect("readable");
    let table = model::mail_table(&database).await;
    let mut random = Random::new(seed, "the other line");
    let mut session = instance.session();
    model::change_at_random(&mut session, &table, &mut rows, &mut random, 400, CHANGES).await;
    let other = story::cut(world, &instance, &restored, rows, false).await;
    drop((session, instance));

    let live: Vec<&SimFolder> = story.cuts[1..].iter().map(|cut| &cut.folder).collect();
    // Each line goes on from the backup.
    let (rows, _) =
        story.recovered(world, base, &[&other.folder], JoinEnd::Newest).await.expect("its own line");
    assert!(rows == other.rows);
    let (rows, _) = story.recovered(world, base, &live, JoinEnd::Newest).await.expect("the live line");
    assert!(rows == newest.rows);
    // And neither from the other.
    let named = |problem: LogJoinError| match problem {
        LogJoinError::OtherLine { folder, generation } => (folder, generation),
        other => panic!("{other}"),
    };
    let (_, generation) = named(refusal(world, &other.folder, &live, JoinEnd::Newest).await);
    assert!(generation >= base.generation, "{generation}");
    let mixed: Vec<&SimFolder> = live.iter().copied().chain([&other.folder]).collect();
    let (folder, _) = named(refusal(world, &base.folder, &mixed, JoinEnd::Newest).await);
    assert_eq!(folder, format!("folder {}", mixed.len()));
    let mixed: Vec<&SimFolder> = [&other.folder].into_iter().chain(live).collect();
    named(refusal(world, &base.folder, &mixed, JoinEnd::Newest).await);

    let stranger = Story::new(world, seed + 1000).await;
    let problem = refusal(world, &base.folder, &[&stranger.cuts[1].folder], JoinEnd::Newest).await;
    assert!(matches!(&problem, LogJoinError::OtherLog { folder } if folder == "folder 1"), "{problem}");
}

async fn ends(world: &World, story: &Story) {
    let [base, first, second, ..] = &story.cuts[..] else { unreachable!("there are several cuts") };
    let later = [&second.folder];
    let too_early = JoinEnd::Generation(first.generation - 1);
    let problem = refusal(world, &first.folder, &later, too_early).await;
    assert!(matches!(problem, LogJoinError::BeforeBackup { .. }), "{problem}");
    let problem = refusal(world, &first.folder, &later, JoinEnd::Time(base.time)).await;
    assert!(matches!(problem, LogJoinError::BeforeBackup { .. }), "{problem}");
    let beyond = second.generation + 1;
    let problem = refusal(world, &first.folder, &later, JoinEnd::Generation(beyond)).await;
    assert!(matches!(problem, LogJoinError::BeyondEnd { wanted, .. } if wanted == beyond), "{problem}");
}

async fn damage(world: &World, story: &Story) {
    let [base, first, ..] = &story.cuts[..] else { unreachable!("there are several cuts") };
    let damaged = first.folder.copy();
    let at = first.generation - 1;
    damaged.edit(&LogNames::new("E00").archived(at), |bytes| bytes[3 * 4096 + 99] ^= 1);
    let problem = refusal(world, &base.folder, &[&damaged], JoinEnd::Newest).await;
    assert!(matches!(&problem, LogJoinError::Log { folder, .. } if folder == "folder 1"), "{problem}");
    // Neither an end before it nor another copy needs the damaged one.
    story::proof(world, &base.folder, &[&damaged], JoinEnd::Generation(at - 1)).await.expect("proven");
}

/// Pages of a bulk load are in no log.
pub fn bulk_load(seed: u64) {
    story::in_world(seed, async move |world| {
        let story = Story::new(&world, seed).await;
        let base = story.cuts.last().expect("there is a head");
        let live = base.folder.copy();
        let instance = open(&world, &live.directory(&world), story.config.clone()).await.expect("it opens");
        let database = instance.databases().remove(0);
        let table = model::mail_table(&database).await;
        let mut loader = database.bulk_load(&table, BulkLoadSettings::default()).await.expect("begun");
        let (mut random, mut rows) = (Random::new(seed, "loaded"), Rows::new());
        for message in 0..50 {
            let (key, row) = ((1000, message), model::random_row(&mut random, 400));
            loader.push(&model::row_values(key, &row)).await.expect("taken");
            rows.insert(key, row);
        }
        loader.finish(Durability::Stable).await.expect("ended");
        let loaded = story::cut(&world, &instance, &live, rows, true).await;
        let problem = refusal(&world, &base.folder, &[&loaded.folder], JoinEnd::Newest).await;
        assert!(matches!(problem, LogJoinError::BulkLoad { .. }), "{problem}");
        let before = JoinEnd::Generation(base.generation);
        story::proof(&world, &base.folder, &[&loaded.folder], before).await.expect("proven");
        // After it, all is well.
        drop(instance);
        let later = live.copy();
        story::proof(&world, &loaded.folder, &[&later], JoinEnd::Newest).await.expect("proven");
    });
}

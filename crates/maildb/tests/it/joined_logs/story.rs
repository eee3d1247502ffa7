//! A group that works while it is copied again and again, and its copies.

use crate::{
    model::{self, Mix, Rows},
    simulated::{DATABASE, open, read_all},
};
use maildb::{
    Instance, InstanceConfig, LogRetention, PageSize, PageStampMode,
    format::header::LogTime,
    log::{JoinEnd, JoinSummary, JoinedLog, LogFiles, LogFolder, LogJoinError},
};
use std::time::Duration;
use verify::in_world::{verify_database, verify_trees};
use world::{
    ByteCount, Random, World,
    sim::{SimFolder, SimLimits, Simulation},
};

pub const CHANGES: Mix = Mix { body_bytes_max: 400, mailboxes: 10, delete_percent: 30.0 };
const CUTS: usize = 3;

/// A copy of a group's files, and what is in it.
pub struct Cut {
    pub folder: SimFolder,
    pub rows: Rows,
    /// The newest log generation; it holds no record if the group was frozen.
    pub generation: u32,
    pub time: LogTime,
    pub is_frozen: bool,
}

pub struct Story {
    pub config: InstanceConfig,
    /// Oldest first; the last one is of the running group.
    pub cuts: Vec<Cut>,
}

pub fn in_world(seed: u64, work: impl AsyncFnOnce(World) + 'static) {
    Simulation::new(seed).run(SimLimits::generous(), |world| async move { work(world).await }).completed();
}

impl Story {
    /// A group that is copied a few times while it works; a copy lets go of the logs that the one before has.
    pub async fn new(world: &World, seed: u64) -> Self {
        let mut random = Random::new(seed, "story");
        let mut config = model::config(PageSize::Kib4, ByteCount::kib(256 << random.below(2)));
        config.log_file = ByteCount::kib(64);
        config.checkpoint_depth = ByteCount::kib(64 << random.below(3));
        config.extension_pages = 16;
        config.log_retention = LogRetention::UntilReleased;
        config.page_stamps = [PageStampMode::Durable, PageStampMode::WhileOpen][random.below(2) as usize];
        let live = SimFolder::default();
        let instance = open(world, &live.directory(world), config.clone()).await.expect("a new group opens");
        let table = model::mail_table(&instance.databases()[0]).await;
        let (mut session, mut rows) = (instance.session(), Rows::new());
        let mut cuts: Vec<Cut> = Vec::new();
        for index in 0..=CUTS {
            model::change_at_random(&mut session, &table, &mut rows, &mut random, 300, CHANGES).await;
            world.sleep(Duration::from_millis(1 + random.below(2500))).await;
            model::change_at_random(&mut session, &table, &mut rows, &mut random, 100, CHANGES).await;
            let is_frozen = index < CUTS && random.percent(70.0);
            cuts.push(cut(world, &instance, &live, rows.clone(), is_frozen).await);
            if index > 0 {
                instance.release_logs(cuts[index - 1].generation).await.expect("released");
            }
            world.sleep(Duration::from_millis(5)).await;
        }
        drop(instance);
        Self { config, cuts }
    }

    /// Contents of a backup that was brought forward, and of nothing else.
    pub async fn recovered(
        &self,
        world: &World,
        base: &Cut,
        later: &[&SimFolder],
        end: JoinEnd,
    ) -> Result<(Rows, JoinSummary), LogJoinError> {
        let folder = base.folder.copy();
        let joined = proof(world, &folder, later, end).await?;
        joined.join().await?;
        Ok((self.open_and_read(world, &folder).await, joined.summary().clone()))
    }

    /// All rows of a group, whose files are sound after it was closed.
    pub async fn open_and_read(&self, world: &World, folder: &SimFolder) -> Rows {
        let directory = folder.directory(world);
        let instance = open(world, &directory, self.config.clone()).await.expect("it opens");
        let rows = read_all(&instance.databases()[0]).await.expect("it can be read");
        instance.close().await.expect("it closes");
        let file = directory.open(DATABASE).await.expect("there");
        let pages = verify_database(file, DATABASE, &mut |_, _| {}).await.expect("readable");
        assert!(pages.is_clean(), "{:?}", pages.damaged);
        let file = directory.open(DATABASE).await.expect("there");
        let trees = verify_trees(file, DATABASE).await.expect("readable");
        assert!(trees.findings.is_empty(), "{:?}", trees.findings);
        rows
    }
}

/// Copies the files of a group, with everything that was committed.
pub async fn cut(world: &World, instance: &Instance, live: &SimFolder, rows: Rows, is_frozen: bool) -> Cut {
    let (folder, generation) = if is_frozen {
        let frozen = instance.freeze(world.now() + Duration::from_secs(10)).await.expect("frozen");
        let folder = live.copy();
        let generation = frozen.generation();
        assert!(frozen.thaw());
        (folder, generation)
    } else {
        // Lazy commits become stable.
        instance.checkpoint().await.expect("a checkpoint");
        let folder = live.copy();
        let files = LogFiles::scan(&folder.directory(world), "E00").await.expect("readable");
        (folder, files.newest().expect("there is a log"))
    };
    let wall = world.wall();
    let time = LogTime::from_unix_ms(wall.seconds as u64 * 1000 + u64::from(wall.nanos / 1_000_000));
    world.sleep(Duration::from_millis(5)).await;
    Cut { folder, rows, generation, time, is_frozen }
}

/// The proof of a chain; folders are named by their place.
pub async fn proof(
    world: &World,
    base: &SimFolder,
    later: &[&SimFolder],
    end: JoinEnd,
) -> Result<JoinedLog, LogJoinError> {
    let folder = |(index, folder): (usize, &SimFolder)| LogFolder {
        directory: folder.directory(world),
        name: format!("folder {index}"),
    };
    let later = later.iter().enumerate().map(|(index, &later)| folder((index + 1, later))).collect();
    JoinedLog::prove("E00", folder((0, base)), later, end).await
}

//! From opening a group to its end, unless a crash comes first.
//!
//! 1. Open: recovery.
//! 2. Check: all rows found are checked against the history and become its base.
//! 3. Perhaps close, verify the files independently, and open again.
//! 4. Work: sessions, with concurrent bulk loads, background scans and requested checkpoints.
//! 5. Perhaps close and verify again; otherwise end as in a crash.

use super::{
    bulk_load::BulkLoadWorker,
    canary::{BugState, BuggyDirectory, Canary},
    history::History,
    mail::{self, Rows},
    plan::GroupRunPlan,
    session::Worker,
    short_log::drop_last_record,
    violation::{GroupRunError, GroupViolation},
};
use maildb::{Database, DatabaseLocation, Instance, LogRetention, PageNumber, Table};
use std::{cell::RefCell, rc::Rc, time::Duration};
use verify::{
    FindingSeverity,
    in_world::{DatabaseReport, verify_database_with_stamps, verify_logs, verify_trees},
};
use world::{
    BlockDevice, Directory, ExtentDirectory, Random, World,
    sim::{SimDrive, SimFault},
};

/// Time within which a drive completes an operation, if it ever does.
const ANSWERED_MAX: Duration = Duration::from_secs(60);

/// Counters and events of a run, for its report and for failure reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupTally {
    pub openings: u64,
    /// Openings that redid or undid something.
    pub recoveries: u64,
    /// Page changes redone.
    pub pages_redone: u64,
    /// Transactions undone at opening.
    pub transactions_undone: u64,
    /// Commits that survived, over all checks.
    pub commits_survived: u64,
    /// Commits begun before all checks.
    pub commits_begun: u64,
    /// Clean shutdowns whose files were verified.
    pub judged: u64,
    /// Files truncated to the size of their database at opening.
    pub tails_cut: u64,
    /// Bulk loads completed, and abandoned.
    pub loads: [u64; 2],
    pub splits: u64,
    pub merges: u64,
    pub log_generations: u64,
    /// Events, in order.
    pub story: Vec<String>,
}

/// The context of an incarnation. Cheap to clone.
#[derive(Clone)]
pub struct GroupFixture {
    pub database_drive: Rc<SimDrive>,
    pub log_drive: Rc<SimDrive>,
    pub plan: Rc<GroupRunPlan>,
    pub history: Rc<RefCell<History>>,
    pub tally: Rc<RefCell<GroupTally>>,
}

/// The scenario of an incarnation.
#[derive(Clone, Copy, Debug)]
pub struct GroupScenario {
    /// Closes, verifies and reopens before the work.
    pub judge_first: bool,
    /// Closes and verifies at the end.
    pub judge_last: bool,
    /// Runs sessions and loads.
    pub works: bool,
}

struct OpenGroup {
    instance: Instance,
    databases: Vec<(Database, Table)>,
    /// Databases with their bulk-loaded tables; empty if no table is loaded.
    loaded: Vec<(Database, Table)>,
    bug_state: BugState,
}

impl GroupFixture {
    /// Creates empty directories on the drives.
    pub async fn format(self) -> Result<(), GroupRunError> {
        ExtentDirectory::format(Rc::clone(&self.database_drive) as Rc<dyn BlockDevice>).await?;
        if !Rc::ptr_eq(&self.database_drive, &self.log_drive) {
            ExtentDirectory::format(Rc::clone(&self.log_drive) as Rc<dyn BlockDevice>).await?;
        }
        Ok(())
    }

    /// Runs one incarnation.
    pub async fn live(self, world: World, scenario: GroupScenario) -> Result<(), GroupRunError> {
        let mut open = self.open(&world).await?;
        self.check(&open).await?;
        if scenario.judge_first {
            self.close_and_judge(&world, open).await?;
            open = self.open(&world).await?;
            let recovery = open.instance.recovery();
            if !recovery.clean {
                return Err(GroupViolation::NotClean { summary: format!("{recovery:?}") }.into());
            }
            self.check(&open).await?;
        }
        if scenario.works {
            self.work(&world, &open).await?;
        }
        let statistics = open.instance.statistics();
        {
            let mut tally = self.tally.borrow_mut();
            tally.splits += statistics.splits;
            tally.merges += statistics.merges;
            tally.log_generations += statistics.log_generations;
        }
        if scenario.judge_last {
            self.close_and_judge(&world, open).await?;
        }
        Ok(())
    }

    /// The directories of databases and log, with the planted bug if there is one.
    async fn directories(
        &self,
        bug_state: &BugState,
    ) -> Result<(Rc<dyn Directory>, Rc<dyn Directory>), GroupRunError> {
        let databases = self.directory(bug_state, &self.database_drive).await?;
        if Rc::ptr_eq(&self.database_drive, &self.log_drive) {
            return Ok((Rc::clone(&databases), databases));
        }
        Ok((databases, self.directory(bug_state, &self.log_drive).await?))
    }

    async fn directory(
        &self,
        bug_state: &BugState,
        drive: &Rc<SimDrive>,
    ) -> Result<Rc<dyn Directory>, GroupRunError> {
        let carved = ExtentDirectory::open(Rc::clone(drive) as Rc<dyn BlockDevice>).await?;
        Ok(match self.plan.canary {
            Some(canary) => {
                let page_size = self.plan.config.page_size;
                Rc::new(BuggyDirectory::new(Rc::new(carved), canary, page_size, bug_state.clone()))
            }
            None => Rc::new(carved),
        })
    }

    async fn open(&self, world: &World) -> Result<OpenGroup, GroupRunError> {
        let bug_state = BugState::new(world);
        let (database_directory, log_directory) = self.directories(&bug_state).await?;
        if self.plan.canary == Some(Canary::ReplayTooLittle) {
            drop_last_record(&log_directory, &self.plan.config.base_name).await?;
        }
        let locations = (0..self.plan.databases)
            .map(|index| DatabaseLocation {
                directory: Rc::clone(&database_directory),
                file_name: file_name(index),
            })
            .collect();
        let instance = Instance::open(world, log_directory, locations, self.plan.config.clone()).await?;
        let recovery = instance.recovery();
        {
            let mut tally = self.tally.borrow_mut();
            tally.openings += 1;
            tally.recoveries += u64::from(!recovery.clean);
            tally.pages_redone += recovery.pages_changed;
            tally.tails_cut += u64::from(recovery.tails_cut);
            tally.transactions_undone += u64::from(recovery.transactions_undone);
            tally.story.push(format!("opened: {recovery:?}"));
        }
        let (mut databases, mut loaded) = (Vec::new(), Vec::new());
        for (index, database) in instance.databases().into_iter().enumerate() {
            databases.push((database.clone(), self.table(&database, index, mail::TABLE, &bug_state).await?));
            if self.plan.loads > 0 {
                let table = self.table(&database, index, mail::LOADED_TABLE, &bug_state).await?;
                loaded.push((database, table));
            }
        }
        Ok(OpenGroup { instance, databases, loaded, bug_state })
    }

    /// A table of a database, created if missing.
    async fn table(
        &self,
        database: &Database,
        index: usize,
        name: &'static str,
        bug_state: &BugState,
    ) -> Result<Table, GroupRunError> {
        let table = match database.table(name) {
            Some(table) => table,
            None => {
                if !self.may_lose_log() {
                    self.history.borrow().check_missing_table(index, name)?;
                }
                let table = database.create_table(mail::definition(name)).await?;
                bug_state.late_log.flush().await?;
                table
            }
        };
        self.history.borrow_mut().note_table(index, name);
        Ok(table)
    }

    async fn check(&self, open: &OpenGroup) -> Result<(), GroupRunError> {
        open.bug_state.late_log.flush().await?;
        let mut found = Rows::new();
        for tables in [&open.databases, &open.loaded] {
            for (index, (database, table)) in tables.iter().enumerate() {
                found.extend(mail::scan((index, database, table), &[], |_| true).await?);
            }
        }
        let mut history = self.history.borrow_mut();
        let (required, begun, rows) = (history.required(), history.begun(), found.len());
        let survived =
            if self.may_lose_log() { history.check_older(found)? } else { history.check(found)? };
        let mut tally = self.tally.borrow_mut();
        tally.commits_survived += survived as u64;
        tally.commits_begun += begun as u64;
        tally.story.push(format!("checked: {survived} of {required}..={begun} commits, {rows} rows"));
        Ok(())
    }

    /// True if the log's drive had faults that may lose the end of a log, or return an earlier one.
    pub fn may_lose_log(&self) -> bool {
        let takes_away = |fault: &SimFault| {
            matches!(
                fault,
                SimFault::LostWrite
                    | SimFault::MisdirectedWrite
                    | SimFault::StaleRead
                    | SimFault::LyingFlush
                    | SimFault::FailedFlush
            )
        };
        self.log_drive.statistics().faults.keys().any(takes_away)
    }

    async fn work(&self, world: &World, open: &OpenGroup) -> Result<(), GroupRunError> {
        let mut sessions = Vec::new();
        for number in 0..self.plan.sessions {
            let random = Random::new(world.random("work").next_u64(), &format!("session {number}"));
            let worker = Worker {
                number,
                databases: open.databases.clone(),
                history: Rc::clone(&self.history),
                plan: Rc::clone(&self.plan),
                late_log: Rc::clone(&open.bug_state.late_log),
                random,
            };
            let session = open.instance.session();
            sessions.push(world.spawn("session", worker.work(world.clone(), session)));
        }
        if self.plan.loads > 0 {
            let loading = BulkLoadWorker {
                databases: open.loaded.clone(),
                history: Rc::clone(&self.history),
                tally: Rc::clone(&self.tally),
                plan: Rc::clone(&self.plan),
                late_log: Rc::clone(&open.bug_state.late_log),
                random: Random::new(world.random("work").next_u64(), "loading"),
            };
            let session = open.instance.session();
            sessions.push(world.spawn("loading", loading.work(world.clone(), session)));
        }
        let mut random = world.random("upkeep");
        while !sessions.iter().all(world::JoinHandle::is_finished) {
            world.sleep(Duration::from_micros(1 + random.below(500_000))).await;
            match random.below(4) {
                0 => open.instance.checkpoint().await?,
                1 => self.scan_in_background(open, &mut random).await?,
                // All that recovery does not need.
                2 if self.plan.config.log_retention == LogRetention::UntilReleased => {
                    open.instance.release_logs(u32::MAX).await?;
                }
                _ => {}
            }
        }
        for session in sessions {
            session.await?;
        }
        Ok(())
    }

    /// Verifies checksums of a few pages on the drive while they are in use.
    async fn scan_in_background(&self, open: &OpenGroup, random: &mut Random) -> Result<(), GroupRunError> {
        let database = &open.databases[random.below(open.databases.len() as u64) as usize].0;
        let first = PageNumber(1 + random.below(u64::from(database.page_count())) as u32);
        let outcome = database.scan(first, 1 + random.below(64) as u32).await?;
        match outcome.damaged.first() {
            Some((page, problem)) if self.plan.faults.is_within_promises() => {
                let finding = format!("page {}: {problem}", page.0);
                Err(GroupViolation::Damaged { file: database.name(), finding }.into())
            }
            _ => Ok(()),
        }
    }

    /// Shuts down cleanly: from now on every commit must survive.
    async fn close(&self, world: &World, mut open: OpenGroup) -> Result<(), GroupRunError> {
        if self.plan.canary == Some(Canary::CloseForgetsLazyCommits) {
            // Ends like a crash, then recovers and closes: consistent, but without what no log has.
            open.bug_state.is_over.set(true);
            drop(open);
            world.sleep(ANSWERED_MAX).await;
            open = self.open(world).await?;
        }
        drop((open.databases, open.loaded));
        open.instance.close().await?;
        open.bug_state.late_log.flush().await?;
        self.history.borrow_mut().acknowledge_all();
        Ok(())
    }

    /// Shuts down cleanly, then verifies the files independently.
    async fn close_and_judge(&self, world: &World, open: OpenGroup) -> Result<(), GroupRunError> {
        self.close(world, open).await?;
        let (databases, log) = self.directories(&BugState::new(world)).await?;
        let damaged = |file: &str, count: usize, finding: String| {
            let finding = format!("{count} findings, the first: {finding}");
            GroupRunError::GroupViolation(GroupViolation::Damaged { file: file.to_owned(), finding })
        };
        for index in 0..self.plan.databases {
            let name = file_name(index);
            let file = databases.open(&name).await?;
            let verdict = verify_database_with_stamps(&databases, &name, &mut |_, _| {}).await?;
            if !verdict.is_clean() {
                let DatabaseReport { damaged: pages, header_copies_good, stamps, .. } = &verdict;
                let finding = format!("{:?}, {header_copies_good} good headers, {stamps:?}", pages.first());
                return Err(damaged(&name, pages.len(), finding));
            }
            let walked = verify_trees(file, &name).await?;
            let mut findings =
                walked.findings.iter().filter(|finding| finding.severity > FindingSeverity::Note);
            if let Some(finding) = findings.next() {
                return Err(damaged(&name, 1 + findings.count(), format!("{finding:?}")));
            }
        }
        let verdict = verify_logs(&log, &self.plan.config.base_name, &mut |_, _| {}).await?;
        if let Some(broken) = verdict.broken {
            return Err(damaged("the log", 1, format!("{broken:?}")));
        }
        let mut tally = self.tally.borrow_mut();
        tally.judged += 1;
        tally.story.push("closed and judged".to_owned());
        Ok(())
    }
}

fn file_name(index: usize) -> String {
    format!("priv{}.edb", index + 1)
}

//! From opening a group to its end, unless a crash comes first.
//!
//! 1. Open: recovery.
//! 2. Check: everything found is held against the history, and is its base from here on.
//! 3. Perhaps close, judge the files as a stranger would, and open again.
//! 4. Work: sessions, and beside them bulk loads, background scans and checkpoints asked for.
//! 5. Perhaps close and judge again; otherwise just go, as a crash would have it.

use super::{
    canary::{Canary, Spoiling, SpoiltDirectory},
    history::History,
    loading::Loading,
    mail::{self, Rows},
    plan::RunPlan,
    session::Worker,
    short_log::drop_last_record,
    trouble::{Trouble, Violation},
};
use maildb::{Database, DatabaseLocation, Instance, PageNumber, Table};
use std::{cell::RefCell, rc::Rc, time::Duration};
use verify::{
    Severity,
    in_world::{DatabaseReport, verify_database_with_stamps, verify_trees},
};
use world::{
    BlockDevice, Directory, ExtentDirectory, Random, World,
    sim::{Fault, SimDrive},
};

/// By then a drive has answered what it was asked, if it ever does.
const ANSWERED_MAX: Duration = Duration::from_secs(60);

/// What a run has seen, for its report and for the story of a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Groups opened.
    pub openings: u64,
    /// Openings that found something to repeat or take back.
    pub recoveries: u64,
    /// Page changes repeated.
    pub pages_redone: u64,
    /// Transactions taken back at opening.
    pub transactions_undone: u64,
    /// Commits found, and begun, over all checks.
    pub commits_survived: u64,
    /// Commits begun before all checks.
    pub commits_begun: u64,
    /// Clean shutdowns whose files were judged.
    pub judged: u64,
    /// Files that were cut to the size of their database at opening.
    pub tails_cut: u64,
    /// Bulk loads ended by their worker, and given up by it.
    pub loads: [u64; 2],
    /// Page splits.
    pub splits: u64,
    /// Page merges.
    pub merges: u64,
    /// Log generations filled.
    pub log_generations: u64,
    /// What happened, in order.
    pub story: Vec<String>,
}

/// What an incarnation needs. Cheap to clone.
#[derive(Clone)]
pub struct Ground {
    /// Where the databases lie.
    pub database_drive: Rc<SimDrive>,
    /// Where the log lies.
    pub log_drive: Rc<SimDrive>,
    /// Settings.
    pub plan: Rc<RunPlan>,
    /// The model.
    pub history: Rc<RefCell<History>>,
    /// Counters.
    pub tally: Rc<RefCell<Tally>>,
}

/// How an incarnation is to go.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    /// Whether to close, judge and open again before the work.
    pub judge_first: bool,
    /// Whether to close and judge in the end.
    pub judge_last: bool,
    /// Whether to do any work.
    pub works: bool,
}

struct Open {
    instance: Instance,
    databases: Vec<(Database, Table)>,
    /// The same with the tables that are bulk loaded; none if no table is.
    loaded: Vec<(Database, Table)>,
    spoiling: Spoiling,
}

impl Ground {
    /// Makes empty directories on the drives.
    pub async fn format(self) -> Result<(), Trouble> {
        ExtentDirectory::format(Rc::clone(&self.database_drive) as Rc<dyn BlockDevice>).await?;
        if !Rc::ptr_eq(&self.database_drive, &self.log_drive) {
            ExtentDirectory::format(Rc::clone(&self.log_drive) as Rc<dyn BlockDevice>).await?;
        }
        Ok(())
    }

    /// One whole incarnation.
    pub async fn live(self, world: World, course: Course) -> Result<(), Trouble> {
        let mut open = self.open(&world).await?;
        self.check(&open).await?;
        if course.judge_first {
            self.close_and_judge(&world, open).await?;
            open = self.open(&world).await?;
            let recovery = open.instance.recovery();
            if !recovery.clean {
                return Err(Violation::NotClean { summary: format!("{recovery:?}") }.into());
            }
            self.check(&open).await?;
        }
        if course.works {
            self.work(&world, &open).await?;
        }
        let statistics = open.instance.statistics();
        {
            let mut tally = self.tally.borrow_mut();
            tally.splits += statistics.splits;
            tally.merges += statistics.merges;
            tally.log_generations += statistics.log_generations;
        }
        if course.judge_last {
            self.close_and_judge(&world, open).await?;
        }
        Ok(())
    }

    /// The directories of databases and log, spoilt if a bug is planted.
    async fn directories(
        &self,
        spoiling: &Spoiling,
    ) -> Result<(Rc<dyn Directory>, Rc<dyn Directory>), Trouble> {
        let databases = self.directory(spoiling, &self.database_drive).await?;
        if Rc::ptr_eq(&self.database_drive, &self.log_drive) {
            return Ok((Rc::clone(&databases), databases));
        }
        Ok((databases, self.directory(spoiling, &self.log_drive).await?))
    }

    async fn directory(
        &self,
        spoiling: &Spoiling,
        drive: &Rc<SimDrive>,
    ) -> Result<Rc<dyn Directory>, Trouble> {
        let carved = ExtentDirectory::open(Rc::clone(drive) as Rc<dyn BlockDevice>).await?;
        Ok(match self.plan.canary {
            Some(canary) => {
                let page_size = self.plan.config.page_size;
                Rc::new(SpoiltDirectory::new(Rc::new(carved), canary, page_size, spoiling.clone()))
            }
            None => Rc::new(carved),
        })
    }

    async fn open(&self, world: &World) -> Result<Open, Trouble> {
        let spoiling = Spoiling::new(world);
        let (database_directory, log_directory) = self.directories(&spoiling).await?;
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
            databases.push((database.clone(), self.table(&database, index, mail::TABLE, &spoiling).await?));
            if self.plan.loads > 0 {
                let table = self.table(&database, index, mail::LOADED_TABLE, &spoiling).await?;
                loaded.push((database, table));
            }
        }
        Ok(Open { instance, databases, loaded, spoiling })
    }

    /// A table of a database, made now if it is not there.
    async fn table(
        &self,
        database: &Database,
        index: usize,
        name: &'static str,
        spoiling: &Spoiling,
    ) -> Result<Table, Trouble> {
        let table = match database.table(name) {
            Some(table) => table,
            None => {
                if !self.may_lose_log() {
                    self.history.borrow().check_missing_table(index, name)?;
                }
                let table = database.create_table(mail::definition(name)).await?;
                spoiling.late_log.settle().await?;
                table
            }
        };
        self.history.borrow_mut().note_table(index, name);
        Ok(table)
    }

    async fn check(&self, open: &Open) -> Result<(), Trouble> {
        open.spoiling.late_log.settle().await?;
        let mut found = Rows::new();
        for tables in [&open.databases, &open.loaded] {
            for (index, (database, table)) in tables.iter().enumerate() {
                found.extend(mail::scan((index, database, table), &[], |_| true).await?);
            }
        }
        let mut history = self.history.borrow_mut();
        let (required, begun, rows) = (history.required(), history.begun(), found.len());
        let survived = match self.may_lose_log() {
            true => history.check_older(found)?,
            false => history.check(found)?,
        };
        let mut tally = self.tally.borrow_mut();
        tally.commits_survived += survived as u64;
        tally.commits_begun += begun as u64;
        tally.story.push(format!("checked: {survived} of {required}..={begun} commits, {rows} rows"));
        Ok(())
    }

    /// Whether the log's drive has done what may take away the end of a log, or show an earlier one.
    pub fn may_lose_log(&self) -> bool {
        let takes_away = |fault: &Fault| {
            matches!(
                fault,
                Fault::LostWrite
                    | Fault::MisdirectedWrite
                    | Fault::StaleRead
                    | Fault::LyingFlush
                    | Fault::FailedFlush
            )
        };
        self.log_drive.statistics().faults.keys().any(takes_away)
    }

    async fn work(&self, world: &World, open: &Open) -> Result<(), Trouble> {
        let mut sessions = Vec::new();
        for number in 0..self.plan.sessions {
            let random = Random::new(world.random("work").next_u64(), &format!("session {number}"));
            let worker = Worker {
                number,
                databases: open.databases.clone(),
                history: Rc::clone(&self.history),
                plan: Rc::clone(&self.plan),
                late_log: Rc::clone(&open.spoiling.late_log),
                random,
            };
            let session = open.instance.session();
            sessions.push(world.spawn("session", worker.work(world.clone(), session)));
        }
        if self.plan.loads > 0 {
            let loading = Loading {
                databases: open.loaded.clone(),
                history: Rc::clone(&self.history),
                tally: Rc::clone(&self.tally),
                plan: Rc::clone(&self.plan),
                late_log: Rc::clone(&open.spoiling.late_log),
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
                _ => {}
            }
        }
        for session in sessions {
            session.await?;
        }
        Ok(())
    }

    /// Checks the checksums of a few pages on the drive while they are in use.
    async fn scan_in_background(&self, open: &Open, random: &mut Random) -> Result<(), Trouble> {
        let database = &open.databases[random.below(open.databases.len() as u64) as usize].0;
        let first = PageNumber(1 + random.below(u64::from(database.page_count())) as u32);
        let outcome = database.scan(first, 1 + random.below(64) as u32).await?;
        match outcome.damaged.first() {
            Some((page, problem)) if self.plan.faults.is_within_promises() => {
                let finding = format!("page {}: {problem}", page.0);
                Err(Violation::Damaged { file: database.name(), finding }.into())
            }
            _ => Ok(()),
        }
    }

    /// Shuts down cleanly: from now on every commit must be there.
    async fn close(&self, world: &World, mut open: Open) -> Result<(), Trouble> {
        if self.plan.canary == Some(Canary::CloseForgetsLazyCommits) {
            // Ends as a crash would, and closes what recovery makes of it: whole, but for what no log has.
            open.spoiling.is_over.set(true);
            drop(open);
            world.sleep(ANSWERED_MAX).await;
            open = self.open(world).await?;
        }
        drop((open.databases, open.loaded));
        open.instance.close().await?;
        open.spoiling.late_log.settle().await?;
        self.history.borrow_mut().acknowledge_all();
        Ok(())
    }

    /// Shuts down cleanly, then reads the files as a stranger would.
    async fn close_and_judge(&self, world: &World, open: Open) -> Result<(), Trouble> {
        self.close(world, open).await?;
        let (databases, log) = self.directories(&Spoiling::new(world)).await?;
        let damaged = |file: &str, count: usize, finding: String| {
            let finding = format!("{count} findings, the first: {finding}");
            Trouble::Violation(Violation::Damaged { file: file.to_owned(), finding })
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
            let mut findings = walked.findings.iter().filter(|finding| finding.severity > Severity::Note);
            if let Some(finding) = findings.next() {
                return Err(damaged(&name, 1 + findings.count(), format!("{finding:?}")));
            }
        }
        let verdict = maildb::log::verify_logs(&log, &self.plan.config.base_name, &mut |_, _| {}).await?;
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

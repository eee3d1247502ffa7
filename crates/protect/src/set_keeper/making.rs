//! One round: a backup from *begun* to *cut* or *failed*, and the deletions that it allows.

use super::{BackupPools, SetKeeper, SetProblem, SetVolume, WantedCut};
use crate::{
    UnixSecond,
    backup::{
        BackupCutter, BackupLabel, BackupOutcome, BackupSet, Consistency, StepError, StepResult,
        hooks::{HookEnd, HookRun},
        start_backup,
    },
    backup_schedule::{BackupKind, DueSlot, FreezeLimit, SchedulePeriod, SlotOccasion, backup_name},
    catalogue::{
        BackupCut, BackupStart, CatalogueEntry, CatalogueFileError, CutPoint, EvidenceLine, FailedBackup,
        FilledSlotLine, FoundPoint, HookRunLine, LabelWord, MissedRange, PointNote, SetId,
    },
    planted_keeping::{self, KeepingBug},
    retention::RoundOutcome,
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};
use world::{LocalFuture, Moment, World};

/// Pause between looks whether a cut that was abandoned has ended.
const ENDED_EVERY: Duration = Duration::from_millis(20);

/// A backup to make.
pub(super) struct BackupOrder {
    /// `schedule`, or the person who ordered it.
    pub by: String,
    pub holds: Vec<String>,
    pub due: Vec<DueSlot>,
}

/// The end of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeBackup {
    pub number: u64,
    pub name: String,
    /// `None` if there is no backup: see the problems.
    pub label: Option<LabelWord>,
    /// Steps that failed, in their order.
    pub problems: Vec<String>,
}

impl BackupOrder {
    pub fn of_schedule(due: Vec<DueSlot>) -> Self {
        Self { by: "schedule".to_owned(), holds: Vec::new(), due }
    }

    fn periods(&self) -> Vec<SchedulePeriod> {
        self.due.iter().map(|one| one.slot.period).collect()
    }
}

impl SetKeeper {
    /// Makes a backup. None may have begun and not ended.
    pub(super) async fn make(&mut self, order: BackupOrder) -> Result<MadeBackup, CatalogueFileError> {
        self.note_missed(&order.due)?;
        let start = self.start_of(&order);
        let freeze = match start.kind {
            BackupKind::Full => self.freezing.round(&start.name),
            BackupKind::InterimLogs | BackupKind::InterimCrash => super::RoundFreeze::nothing(),
        };
        let worth = freeze.things.iter().map(|thing| thing.consistency()).min();
        let cutter = Rc::new(SetCutter {
            world: self.world.clone(),
            pools: Rc::clone(&self.pools),
            set: self.catalogue().header().id.clone(),
            number: start.backup,
            note: self.note(&start, worth).encode(),
            volumes: self.settings.volumes_of(start.kind),
            under_way: Rc::default(),
            points: Rc::default(),
            is_cleared: Rc::new(Cell::new(true)),
        });
        if !planted_keeping::is(KeepingBug::CutBeforeBegun) {
            self.append(CatalogueEntry::Begun(start.clone()))?;
        }
        let set = BackupSet { things: freeze.things, cutter: Rc::clone(&cutter) as Rc<dyn BackupCutter> };
        let has_things = !set.things.is_empty();
        let outcome = start_backup(&self.world, set, self.settings.policy, &start.name).await;
        if planted_keeping::is(KeepingBug::CutBeforeBegun) {
            self.append(CatalogueEntry::Begun(start.clone()))?;
        }
        if has_things {
            self.last_freeze = outcome.freeze_began.or(self.last_freeze);
        }
        for run in (freeze.hook_runs)() {
            self.append(CatalogueEntry::Hook(hook_line(start.backup, &run)))?;
        }
        self.end(&start, &order, &outcome, &cutter).await
    }

    async fn end(
        &mut self,
        start: &BackupStart,
        order: &BackupOrder,
        outcome: &BackupOutcome,
        cutter: &SetCutter,
    ) -> Result<MadeBackup, CatalogueFileError> {
        let (number, name) = (start.backup, start.name.clone());
        let problems = outcome.problems.clone();
        let label = match &outcome.label {
            Some(label) => {
                let cut = self.cut_of(start, outcome, label, cutter.points.borrow().clone());
                let word = cut.label;
                self.append(CatalogueEntry::Cut(cut))?;
                // Those between two full ones come by the minute: the catalogue has them.
                if start.kind.is_full() || !problems.is_empty() {
                    self.said.note(made_text(start, label, &problems));
                }
                self.said.set(SetProblem::Failing, None);
                Some(word)
            }
            None => {
                let why = problems.join("; ");
                if cutter.is_cleared.get() {
                    let failed = FailedBackup { backup: number, problems: problems.clone() };
                    self.append(CatalogueEntry::Failed(failed))?;
                }
                self.said.set(SetProblem::Failing, Some(format!("{name} was not made: {why}")));
                None
            }
        };
        self.note_round(&order.periods(), label.is_some());
        // Whatever people did meanwhile, and what is in use: the deletions below look at it.
        self.settle().await?;
        let round = if label.is_some() { RoundOutcome::Succeeded } else { RoundOutcome::Failed };
        self.retain(round).await?;
        Ok(MadeBackup { number, name, label, problems })
    }

    fn start_of(&self, order: &BackupOrder) -> BackupStart {
        let number = self.catalogue().next_sequence();
        let newest_full = self.catalogue().live().rev().find(|(_, row)| row.start.kind.is_full());
        let newest_full = newest_full.map(|(number, _)| number);
        let limit = self.settings.freeze_limit;
        let limit = FreezeLimit { has_logs: limit.has_logs && newest_full.is_some(), ..limit };
        let kind = limit.kind_of(&order.periods(), self.since_freeze());
        let volumes = self.settings.volumes_of(kind);
        BackupStart {
            backup: number,
            name: backup_name(&self.settings.name, UnixSecond(self.world.wall().seconds), number),
            kind,
            slots: order.due.iter().map(|one| FilledSlotLine::from(one.slot)).collect(),
            volumes: volumes.iter().map(ToString::to_string).collect(),
            by: order.by.clone(),
            holds: order.holds.clone(),
            lock_s: self.settings.keep.lock_s(),
            needs: newest_full.filter(|_| kind == BackupKind::InterimLogs),
        }
    }

    fn note(&self, start: &BackupStart, worth: Option<Consistency>) -> PointNote {
        PointNote {
            set: self.catalogue().header().id.clone(),
            sequence: start.backup,
            points: start.volumes.len() as u32,
            kind: start.kind,
            label: worth.map_or(LabelWord::Crash, LabelWord::from),
            is_confirmed: worth.is_none(),
            needs: start.needs,
            lock_s: start.lock_s,
            slots: start.slots.iter().map(Into::into).collect(),
        }
    }

    /// Time since the last freeze, as far as it is known.
    fn since_freeze(&self) -> Option<Duration> {
        let age_s = self.age_s();
        let frozen = self.catalogue().live().filter(|(_, row)| !row.evidence.is_empty());
        let of_backups = frozen.map(|(_, row)| row.age_s_at(age_s)).min();
        let of_backups = of_backups.map(|age_s| Duration::from_secs(age_s.unsigned_abs()));
        let of_rounds = self.last_freeze.map(|last| self.world.now().since(last));
        of_backups.into_iter().chain(of_rounds).min()
    }

    /// Writes down the slots that were missed, once.
    fn note_missed(&mut self, due: &[DueSlot]) -> Result<(), CatalogueFileError> {
        for one in due {
            let SlotOccasion::Next { missed: Some(missed) } = one.occasion else { continue };
            let period = one.slot.period;
            if self.missed_until.get(&period).is_some_and(|until| *until >= missed.last) {
                continue;
            }
            self.missed_until.insert(period, missed.last);
            let why = match self.said.lasting().get(&SetProblem::Failing) {
                Some(problem) => problem.clone(),
                None => "nobody kept the set then".to_owned(),
            };
            let count = missed.count;
            let backups = if count == 1 { "one backup".to_owned() } else { format!("{count} backups") };
            let first = report::calendar::utc_time(missed.first.0);
            self.said
                .warn(format!("{backups} of the schedule of {period} were missed from {first} on: {why}"));
            let (first_s, last_s) = (missed.first.0, missed.last.0);
            self.append(CatalogueEntry::Missed(MissedRange { of: period, first_s, last_s, count, why }))?;
        }
        Ok(())
    }

    fn cut_of(
        &self,
        start: &BackupStart,
        outcome: &BackupOutcome,
        label: &BackupLabel,
        points: Vec<CutPoint>,
    ) -> BackupCut {
        let window = outcome.freeze_began.zip(outcome.thawed).map(|(began, thawed)| thawed.since(began));
        let (word, reason) = LabelWord::of(label);
        BackupCut {
            backup: start.backup,
            label: word,
            reason: match reason {
                Some(_) if self.settings.freeze_limit.has_freeze && !start.kind.is_full() => {
                    Some("between two freezes".to_owned())
                }
                reason => reason,
            },
            evidence: outcome.evidence.iter().map(EvidenceLine::from).collect(),
            window_ms: window
                .filter(|_| !outcome.evidence.is_empty())
                .map(|window| window.as_millis() as u64),
            points,
        }
    }
}

fn made_text(start: &BackupStart, label: &BackupLabel, problems: &[String]) -> String {
    let besides = if problems.is_empty() { String::new() } else { format!("; {}", problems.join("; ")) };
    format!("{} was made: {label}{besides}", start.name)
}

fn hook_line(backup: u64, run: &HookRun) -> HookRunLine {
    HookRunLine {
        backup,
        phase: run.phase.to_string(),
        command: run.program.clone(),
        result: match &run.end {
            HookEnd::Done(_) => "done".to_owned(),
            HookEnd::NotFrozen => "no longer frozen".to_owned(),
            HookEnd::Failed(reason) => reason.clone(),
        },
        output: run.output.clone(),
    }
}

/// Cuts the volumes of one backup. A cut that was abandoned is waited for before anything of it is removed: a point that
/// appears later would be nobody's.
struct SetCutter {
    world: World,
    pools: Rc<dyn BackupPools>,
    set: SetId,
    number: u64,
    note: String,
    volumes: Vec<SetVolume>,
    under_way: Rc<Cell<bool>>,
    points: Rc<RefCell<Vec<CutPoint>>>,
    /// No point of this backup exists, unless it was made.
    is_cleared: Rc<Cell<bool>>,
}

impl BackupCutter for SetCutter {
    /// Pools hold answers themselves while they cut.
    fn hold(&self, _deadline: Moment) -> LocalFuture<StepResult> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn cut(&self, name: &str, deadline: Moment) -> LocalFuture<StepResult> {
        let wanted =
            WantedCut { name: name.to_owned(), note: self.note.clone(), volumes: self.volumes.clone() };
        self.is_cleared.set(false);
        self.under_way.set(true);
        let (cut, points) = (self.pools.cut(wanted, deadline), Rc::clone(&self.points));
        let under_way = Rc::clone(&self.under_way);
        let ended = self.world.spawn("cut of a set", async move {
            let result = cut.await.map(|cut| drop(points.replace(cut)));
            under_way.set(false);
            result
        });
        Box::pin(ended)
    }

    fn release(&self) -> LocalFuture<StepResult> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn remove(&self, _name: &str) -> LocalFuture<StepResult> {
        let (world, pools, set) = (self.world.clone(), Rc::clone(&self.pools), self.set.clone());
        let (under_way, is_cleared) = (Rc::clone(&self.under_way), Rc::clone(&self.is_cleared));
        let (number, volumes) = (self.number, self.volumes.clone());
        Box::pin(async move {
            while under_way.get() {
                world.sleep(ENDED_EVERY).await;
            }
            let answer = pools.points(&set).await;
            if let Some(silent) = volumes.iter().find(|volume| !answer.asked.contains(&volume.pool)) {
                return Err(StepError(format!("pool {} does not answer", silent.pool)));
            }
            let is_of = |found: &&FoundPoint| matches!(PointNote::decode(&found.note), Ok(Some(note)) if note.sequence == number);
            let points = answer.found.iter().filter(is_of).map(|found| found.point.clone()).collect();
            pools.remove(points).await?;
            is_cleared.set(true);
            Ok(())
        })
    }
}

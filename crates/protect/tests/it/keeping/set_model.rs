//! A set in a small world: two pools, a catalogue on a simulated disk, a runner that follows the documented order and dies
//! anywhere, and clocks that jump. The model remembers what really happened.

use protect::{
    TakingPace, UnixSecond,
    backup::UncoveredCut,
    backup_schedule::{
        ClockReading, DueSlot, FilledSlot, FreezeLimit, SchedulePeriod, ScheduleProgress, ScheduleSet,
        SlotOccasion, backup_name,
    },
    catalogue::{
        BackupCut, BackupDeletion, BackupHold, BackupStart, BackupVerification, CatalogueEntry,
        CatalogueFile, CatalogueFileError, CatalogueRepair, CutPoint, FailedBackup, FilledSlotLine,
        FoundPoint, LabelWord, LostBackup, MachineTime, MissedRange, PointNote, PointUse, SetId, reconcile,
    },
    retention::{
        BackupProof, DeletionRule, KeepPolicy, KeepSettings, RetentionOutcome, RoundOutcome, decide, thin_out,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use world::{
    Random,
    sim::{SimStateFile, StateFileFaults},
};

const VOLUMES: [(&str, &str); 2] = [("east", "store"), ("west", "log")];

/// The runner died. What it did until then stays.
#[derive(Debug)]
pub struct RunnerDeath;

type Step = Result<(), RunnerDeath>;

struct Runner {
    file: CatalogueFile,
    paces: BTreeMap<SchedulePeriod, TakingPace>,
    /// Moments at which it filled slots, by the clock that never jumps.
    fills: BTreeMap<SchedulePeriod, Vec<u64>>,
    started_s: u64,
}

pub struct SetModel {
    pub random: Random,
    pub set: ScheduleSet,
    policy: KeepPolicy,
    uncovered: UncoveredCut,
    disk: SimStateFile,
    points: Vec<FoundPoint>,
    next_point: u64,
    runner: Option<Runner>,
    /// True time since the beginning.
    pub elapsed_s: u64,
    /// Civil time is this plus the true time.
    pub civil_offset_s: i64,
    boot: u64,
    boot_s: u64,
    /// Every step may be the runner's last, in percent.
    pub death_percent: f64,
    pub failure_percent: f64,
    silent: Option<&'static str>,
    /// Lines that were acknowledged.
    lines: u64,
    /// Slots by the backup that filled them.
    filled: BTreeMap<FilledSlot, u64>,
    made: BTreeSet<u64>,
    ordered_deletions: BTreeSet<u64>,
    removed_by_people: BTreeSet<u64>,
    held: BTreeSet<u64>,
    /// True time of the last backup, or of the last trouble since.
    pub quiet_since_s: u64,
}

impl SetModel {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, "set");
        let texts =
            [&["5x1min", "4x1h", "3x1d@02:30"][..], &["4x1h"], &["3x1d@02:30", "2x1w"], &["6x15min", "2x1d"]];
        let texts = texts[random.below(4) as usize];
        let zone = ["UTC", "Europe/Berlin"][random.below(2) as usize];
        // A Saturday in November, or the evening before clocks are set back, or forward.
        let starts = [1_795_860_000, 1_792_879_200, 1_774_738_800];
        let is_verified = random.percent(50.0);
        let settings = KeepSettings {
            at_least: Some(1 + random.below(3) as u32),
            not_before: random.percent(30.0).then(|| "3h".to_owned()),
            only_after: is_verified.then(|| "verified".to_owned()),
            ..KeepSettings::default()
        };
        Self {
            set: ScheduleSet::parse(texts, zone).expect("a set"),
            policy: KeepPolicy::new(&settings).expect("rules"),
            uncovered: if random.percent(50.0) { UncoveredCut::KeepAsCrash } else { UncoveredCut::Remove },
            disk: SimStateFile::new("mail.catalogue", seed),
            points: Vec::new(),
            next_point: 0,
            runner: None,
            elapsed_s: 1_000,
            civil_offset_s: starts[random.below(3) as usize],
            boot: 0,
            boot_s: 0,
            death_percent: 0.0,
            failure_percent: 0.0,
            silent: None,
            lines: 0,
            filled: BTreeMap::new(),
            made: BTreeSet::new(),
            ordered_deletions: BTreeSet::new(),
            removed_by_people: BTreeSet::new(),
            held: BTreeSet::new(),
            quiet_since_s: 1_000,
            random,
        }
    }

    fn now(&self) -> MachineTime {
        MachineTime {
            machine: "mailhost".to_owned(),
            boot: self.boot.to_string(),
            up_s: self.elapsed_s - self.boot_s,
            civil: self.civil(),
        }
    }

    fn civil(&self) -> UnixSecond {
        UnixSecond(self.civil_offset_s + self.elapsed_s as i64)
    }

    fn runner(&mut self) -> &mut Runner {
        self.runner.as_mut().expect("it runs")
    }

    fn file(&self) -> &CatalogueFile {
        &self.runner.as_ref().expect("it runs").file
    }

    /// The power fails, or the process alone.
    pub fn kill(&mut self) {
        self.runner = None;
        if self.random.percent(50.0) {
            self.disk.cut_power();
            (self.boot, self.boot_s) = (self.boot + 1, self.elapsed_s);
        }
        self.quiet_since_s = self.elapsed_s;
    }

    fn may_die(&mut self) -> Step {
        if self.random.percent(self.death_percent) { Err(RunnerDeath) } else { Ok(()) }
    }

    /// Writes a line; the power may fail at any of its operations.
    fn append(&mut self, entry: CatalogueEntry) -> Step {
        self.may_die()?;
        if self.random.percent(self.death_percent) {
            let power_cut = Some(self.random.below(3));
            self.disk.set_faults(StateFileFaults { power_cut, ..StateFileFaults::default() });
        }
        let now = self.now();
        let appended = self.runner().file.append(entry, &now);
        match appended {
            Ok(()) => {
                self.disk.set_faults(StateFileFaults::default());
                self.lines = self.file().lines();
                self.register_live();
                self.may_die()
            }
            Err(CatalogueFileError::Io(_)) => {
                self.runner = None;
                self.disk.cut_power();
                (self.boot, self.boot_s) = (self.boot + 1, self.elapsed_s);
                Err(RunnerDeath)
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// A slot is filled once, a number is given once.
    fn register_live(&mut self) {
        let file = &self.runner.as_ref().expect("it runs").file;
        for (sequence, row) in file.catalogue().live() {
            if !self.made.insert(sequence) {
                continue;
            }
            for slot in &row.start.slots {
                let before = self.filled.insert(slot.into(), sequence);
                assert_eq!(before, None, "a slot is filled twice: {slot:?} by {sequence}");
            }
        }
    }

    /// Starts the runner, which makes catalogue and pools agree.
    pub fn start(&mut self) -> Step {
        self.silent = self.random.percent(15.0).then_some(VOLUMES[self.random.below(2) as usize].0);
        let now = self.now();
        let opened = CatalogueFile::open(
            Box::new(self.disk.open()),
            "mail",
            SetId::new(7),
            "spindle test",
            "runner",
            &now,
        );
        let file = opened.unwrap_or_else(|error| panic!("a crash made the catalogue unreadable: {error}"));
        assert!(file.lines() >= self.lines, "lines were lost: {} of {}", file.lines(), self.lines);
        self.lines = file.lines();
        let started_s = self.elapsed_s;
        self.runner = Some(Runner { file, paces: BTreeMap::new(), fills: BTreeMap::new(), started_s });
        self.register_live();
        self.reconcile()
    }

    fn repairs(&self) -> Vec<CatalogueRepair> {
        let is_heard = |pool: &str| self.silent != Some(pool);
        let found: Vec<FoundPoint> =
            self.points.iter().filter(|found| is_heard(&found.point.pool)).cloned().collect();
        let asked =
            VOLUMES.iter().map(|(pool, _)| (*pool).to_owned()).filter(|pool| is_heard(pool)).collect();
        reconcile(self.file().catalogue(), &found, &asked, self.uncovered)
    }

    fn reconcile(&mut self) -> Step {
        for _ in 0..2 {
            for repair in self.repairs() {
                self.repair(repair)?;
            }
        }
        let is_open = |repair: &CatalogueRepair| match repair {
            CatalogueRepair::Stray { .. } | CatalogueRepair::Wait { .. } => false,
            CatalogueRepair::DeleteAgain { silent, .. } => silent.is_empty(),
            _ => true,
        };
        let left: Vec<_> = self.repairs().into_iter().filter(is_open).collect();
        assert!(left.is_empty(), "still to be repaired: {left:?}");
        self.expect_agreement();
        Ok(())
    }

    fn repair(&mut self, repair: CatalogueRepair) -> Step {
        match repair {
            CatalogueRepair::Adopt(found) => {
                assert!(!self.ordered_deletions.contains(&found.backup), "a deleted one is adopted");
                self.append(CatalogueEntry::Found(found))
            }
            CatalogueRepair::Remove { points, failed } => {
                assert!(!self.made.contains(&failed.backup), "one that was made is removed");
                self.remove(&points)?;
                self.append(CatalogueEntry::Failed(failed))
            }
            CatalogueRepair::DeleteAgain { deletion, points, silent } => {
                assert!(self.ordered_deletions.contains(&deletion.backup), "nobody ordered {deletion:?}");
                self.remove(&points)?;
                if silent.is_empty() { self.append(CatalogueEntry::Deleted(deletion)) } else { Ok(()) }
            }
            CatalogueRepair::NoteLost { lost, left } => {
                assert!(self.removed_by_people.contains(&lost.backup), "not lost: {lost:?}");
                self.held.remove(&lost.backup);
                self.append(CatalogueEntry::Lost(LostBackup { ..lost }))?;
                self.remove(&left)
            }
            CatalogueRepair::Stray { points, .. } => {
                assert!(
                    points.iter().all(|point| self.silent.is_some_and(|silent| silent != point.pool))
                        || self.silent.is_some()
                        || self.is_of_people(&points)
                );
                Ok(())
            }
            CatalogueRepair::Wait { .. } => Ok(()),
        }
    }

    fn is_of_people(&self, points: &[CutPoint]) -> bool {
        let of = self.points.iter().filter(|found| points.contains(&found.point));
        of.map(sequence_of).all(|sequence| self.removed_by_people.contains(&sequence))
    }

    /// Every backup that was made is there, or was deleted by name, or a person took its points.
    fn expect_agreement(&self) {
        let catalogue = self.file().catalogue();
        let live: BTreeSet<u64> = catalogue.live().map(|(sequence, _)| sequence).collect();
        for sequence in &self.made {
            let is_known = live.contains(sequence)
                || self.ordered_deletions.contains(sequence)
                || self.removed_by_people.contains(sequence);
            assert!(is_known, "backup {sequence} is gone, and nobody deleted it");
        }
        if self.silent.is_none() {
            let there: BTreeSet<u64> = self.points.iter().map(sequence_of).collect();
            let of_people = |sequence: &&u64| !self.removed_by_people.contains(sequence);
            let there: BTreeSet<&u64> = there.iter().filter(of_people).collect();
            let live: BTreeSet<&u64> = live.iter().filter(of_people).collect();
            assert_eq!(there, live, "points, and backups of the catalogue");
        }
        assert_eq!(self.held.iter().filter(|held| !live.contains(held)).count(), 0, "held ones stay");
    }

    fn remove(&mut self, points: &[CutPoint]) -> Step {
        for point in points {
            self.may_die()?;
            self.points.retain(|found| found.point != *point);
        }
        Ok(())
    }

    /// The runner looks at its schedules once.
    pub fn look(&mut self) -> Step {
        let is_waiting = self.file().catalogue().begun().is_some();
        if self.silent.is_some() || is_waiting {
            self.quiet_since_s = self.elapsed_s;
            self.silent = None;
            return self.reconcile();
        }
        let due = self.due();
        if due.is_empty() {
            return Ok(());
        }
        let before = self.proven();
        let has_succeeded = self.round(&due)?;
        if !has_succeeded {
            assert_eq!(self.proven(), before, "a failed round leaves as many proven ones");
        }
        self.expect_agreement();
        Ok(())
    }

    fn due(&mut self) -> Vec<DueSlot> {
        let (civil, elapsed_s) = (self.civil(), self.elapsed_s);
        let runner = self.runner.as_ref().expect("it runs");
        let progress = |(period, filled): (&SchedulePeriod, &protect::backup_schedule::FilledSlots)| {
            let pace = runner.paces.get(period).copied().unwrap_or_default();
            (*period, ScheduleProgress { filled: filled.clone(), pace })
        };
        let progress = runner.file.catalogue().filled().iter().map(progress).collect();
        let reading = ClockReading { civil, elapsed: Duration::from_secs(elapsed_s - runner.started_s) };
        self.set.due(&progress, reading)
    }

    fn last_proven(&self) -> Option<u64> {
        let mut live = self.file().catalogue().live().rev();
        live.find(|(_, row)| row.proof() == BackupProof::Proven).map(|(sequence, _)| sequence)
    }

    fn proven(&self) -> usize {
        self.file().catalogue().live().filter(|(_, row)| row.proof() == BackupProof::Proven).count()
    }

    /// One backup for all that is due. True if it succeeded.
    fn round(&mut self, due: &[DueSlot]) -> Result<bool, RunnerDeath> {
        let start = self.begin(due);
        let (sequence, name) = (start.backup, start.name.clone());
        let note = PointNote {
            set: SetId::new(7),
            sequence,
            points: VOLUMES.len() as u32,
            kind: start.kind,
            label: LabelWord::Application,
            is_confirmed: false,
            needs: None,
            lock_s: None,
            slots: due.iter().map(|one| one.slot).collect(),
        };
        for one in due {
            if let SlotOccasion::Next { missed: Some(missed) } = one.occasion {
                let (first_s, last_s, count) = (missed.first.0, missed.last.0, missed.count);
                let why = "the runner was down".to_owned();
                self.append(CatalogueEntry::Missed(MissedRange {
                    of: one.slot.period,
                    first_s,
                    last_s,
                    count,
                    why,
                }))?;
            }
        }
        self.append(CatalogueEntry::Begun(start))?;
        let is_failing = self.random.percent(self.failure_percent);
        let mut points = Vec::new();
        for (pool, volume) in VOLUMES {
            self.may_die()?;
            self.next_point += 1;
            let id = self.next_point.to_string();
            let point = CutPoint { pool: pool.to_owned(), volume: volume.to_owned(), id };
            self.points.push(FoundPoint {
                point: point.clone(),
                name: name.clone(),
                note: note.encode().into_bytes(),
            });
            points.push(point);
            if is_failing && self.random.percent(50.0) {
                break;
            }
        }
        if is_failing {
            self.quiet_since_s = self.elapsed_s;
            self.remove(&points)?;
            let problems = vec!["the freeze did not hold".to_owned()];
            self.append(CatalogueEntry::Failed(FailedBackup { backup: sequence, problems }))?;
            self.retain(RoundOutcome::Failed)?;
            return Ok(false);
        }
        let (label, evidence) = (LabelWord::Application, Vec::new());
        let cut = BackupCut { backup: sequence, label, reason: None, evidence, window_ms: Some(12), points };
        self.append(CatalogueEntry::Cut(cut))?;
        self.note_fills(due);
        self.quiet_since_s = self.elapsed_s;
        self.use_backups(sequence)?;
        self.retain(RoundOutcome::Succeeded)?;
        Ok(true)
    }

    fn begin(&mut self, due: &[DueSlot]) -> BackupStart {
        let sequence = self.file().catalogue().next_sequence();
        assert!(!self.made.contains(&sequence), "number {sequence} is given again");
        let periods: Vec<SchedulePeriod> = due.iter().map(|one| one.slot.period).collect();
        let kind = FreezeLimit { has_freeze: true, ..FreezeLimit::default() }.kind_of(&periods, None);
        BackupStart {
            backup: sequence,
            name: backup_name("mail", self.civil(), sequence),
            kind,
            slots: due.iter().map(|one| FilledSlotLine::from(one.slot)).collect(),
            volumes: VOLUMES.iter().map(|(pool, volume)| format!("{pool}/{volume}")).collect(),
            by: "schedule".to_owned(),
            holds: Vec::new(),
            lock_s: None,
            needs: None,
        }
    }

    /// Three backups of a schedule never come within nine tenths of an interval.
    fn note_fills(&mut self, due: &[DueSlot]) {
        let elapsed_s = self.elapsed_s;
        let runner = self.runner();
        for one in due {
            let period = one.slot.period;
            let elapsed = Duration::from_secs(elapsed_s - runner.started_s);
            runner.paces.entry(period).or_default().note_taken(elapsed);
            let fills = runner.fills.entry(period).or_default();
            fills.push(elapsed_s);
            if let [.., first, _, third] = fills[..] {
                let least_s = period.shortest_s() as u64 * 9 / 10;
                assert!(third - first >= least_s, "a burst of {period}: {fills:?}");
            }
        }
    }

    /// Verifications, holds, and people.
    fn use_backups(&mut self, newest: u64) -> Step {
        if self.random.percent(60.0) {
            let is_good = self.random.percent(85.0);
            let verified = BackupVerification {
                backup: newest,
                level: "pages".to_owned(),
                by: "mailhost".to_owned(),
                version: "0.1.0".to_owned(),
                is_good,
                findings: Vec::new(),
            };
            self.append(CatalogueEntry::Verified(verified))?;
        }
        if self.random.percent(5.0) {
            let hold = BackupHold { backup: newest, hold: "upgrade".to_owned(), by: "anna".to_owned() };
            self.append(CatalogueEntry::Held(hold))?;
            self.held.insert(newest);
        }
        Ok(())
    }

    fn retain(&mut self, round: RoundOutcome) -> Step {
        let age_s = self.file().catalogue().clock().age_at(&self.now());
        let uses: BTreeMap<u64, PointUse> = BTreeMap::new();
        let retained = self.file().catalogue().retained(age_s, &uses);
        let decisions = decide(&retained, self.set.schedules(), &self.policy, round);
        for decision in decisions {
            if let RetentionOutcome::Goes(rule) = decision.outcome {
                self.expect_enough(decision.sequence);
                self.delete(decision.sequence, rule)?;
            }
        }
        if round == RoundOutcome::Succeeded && self.random.percent(3.0) {
            let retained = self.file().catalogue().retained(age_s, &uses);
            if let Some(step) = thin_out(&retained, &self.policy) {
                self.delete(step.sequence, DeletionRule::ThinnedOut)?;
            }
        }
        Ok(())
    }

    /// A backup goes for its schedules only if newer ones of them exist.
    fn expect_enough(&self, sequence: u64) {
        let catalogue = self.file().catalogue();
        for slot in &catalogue.row(sequence).expect("it exists").start.slots {
            let schedule = self.set.schedules().iter().find(|schedule| schedule.period() == slot.of);
            let newer = catalogue.live().filter(|(newer, row)| {
                *newer > sequence && row.start.slots.iter().any(|other| other.of == slot.of)
            });
            let wanted = schedule.expect("schedules stay as they are").count() as usize;
            assert!(newer.count() >= wanted, "{sequence} goes, and {slot:?} has too few");
        }
    }

    fn delete(&mut self, sequence: u64, rule: DeletionRule) -> Step {
        assert!(!self.held.contains(&sequence), "backup {sequence} is held");
        let row = self.file().catalogue().row(sequence).expect("it exists");
        let points = row.points.clone();
        assert_ne!(self.last_proven(), Some(sequence), "the last proven one goes");
        let deletion = BackupDeletion { backup: sequence, rule, by: "schedule".to_owned() };
        self.ordered_deletions.insert(sequence);
        self.append(CatalogueEntry::Deleting(deletion.clone()))?;
        self.remove(&points)?;
        self.append(CatalogueEntry::Deleted(deletion))
    }

    /// A person deletes a point past the set.
    pub fn remove_by_person(&mut self) {
        let free = self.points.iter().filter(|found| !self.held.contains(&sequence_of(found)));
        let free: Vec<FoundPoint> = free.cloned().collect();
        if !free.is_empty() {
            let found = &free[self.random.below(free.len() as u64) as usize];
            self.removed_by_people.insert(sequence_of(found));
            self.points.retain(|other| other.point != found.point);
        }
    }

    pub fn is_running(&self) -> bool {
        self.runner.is_some()
    }

    /// The shortest period of its schedules, in seconds.
    pub fn shortest_s(&self) -> u64 {
        let shortest = self.set.schedules().iter().map(|schedule| schedule.period().shortest_s()).min();
        shortest.expect("a set has a schedule").unsigned_abs()
    }

    /// The catalogue's bytes as processes read them.
    pub fn bytes(&self) -> Vec<u8> {
        self.disk.contents()
    }

    pub fn found_points(&self) -> &[FoundPoint] {
        &self.points
    }
}

fn sequence_of(found: &FoundPoint) -> u64 {
    PointNote::decode(&found.note).expect("a note").expect("of a backup").sequence
}

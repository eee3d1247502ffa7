//! Compaction: random histories that are summed up again and again, beside the same history that never is. Power cuts, failed
//! syncs, full disks, and deaths at any await of it.

use super::{
    catalogue_bytes::{TEN_S, check, compact, compacted_example, read},
    seeds,
};
use protect::{
    UnixSecond,
    backup_schedule::{BackupKind, backup_name},
    catalogue::{
        BackupCopy, BackupCut, BackupDeletion, BackupDrill, BackupHold, BackupLock, BackupRestore,
        BackupStage, BackupStart, BackupVerification, CatalogueDetail, CatalogueEntry, CatalogueFile,
        CatalogueFileError, CatalogueLine, CatalogueScope, CompactionError, CutPoint, FailedBackup,
        FilledSlotLine, FoundBackup, HookRunLine, LabelWord, LostBackup, MachineTime, MissedRange, SetId,
        SummedDay,
    },
    planted_keeping::{KeepingBug, with_keeping_bug},
    retention::DeletionRule,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
};
use world::{
    Random, StateFile,
    sim::{SimStateFile, StateFileFaults},
};

const DAY_S: u64 = 86_400;
const VAULT: &str = "s3://mail-vault";

/// A history on two disks: of the first one old lines are summed up.
struct Scribe {
    random: Random,
    disk: SimStateFile,
    file: Option<CatalogueFile>,
    whole_disk: SimStateFile,
    whole: CatalogueFile,
    elapsed_s: u64,
    civil_offset_s: i64,
    boot: (u64, u64),
    vault: BTreeSet<u64>,
}

fn open(disk: &SimStateFile, now: &MachineTime) -> CatalogueFile {
    let file = Box::new(disk.open());
    CatalogueFile::open(file, "mail", SetId::new(7), "spindle test", "runner", now)
        .unwrap_or_else(|error| panic!("a crash made the catalogue unreadable: {error}"))
}

impl Scribe {
    fn new(seed: u64) -> Self {
        let (disk, whole_disk) =
            (SimStateFile::new("mail.catalogue", seed), SimStateFile::new("whole", seed));
        let now = MachineTime {
            machine: "mailhost".to_owned(),
            boot: "0".to_owned(),
            up_s: 0,
            civil: UnixSecond(TEN_S),
        };
        Self {
            random: Random::new(seed, "scribe"),
            file: Some(open(&disk, &now)),
            whole: open(&whole_disk, &now),
            disk,
            whole_disk,
            elapsed_s: 0,
            civil_offset_s: TEN_S,
            boot: (0, 0),
            vault: BTreeSet::new(),
        }
    }

    fn now(&self) -> MachineTime {
        MachineTime {
            machine: "mailhost".to_owned(),
            boot: self.boot.0.to_string(),
            up_s: self.elapsed_s - self.boot.1,
            civil: UnixSecond(self.civil_offset_s + self.elapsed_s as i64),
        }
    }

    fn file(&mut self) -> &mut CatalogueFile {
        let now = self.now();
        self.file.get_or_insert_with(|| open(&self.disk, &now))
    }

    /// Writes an entry into both, or into neither if it cannot be true. Returns whether it could.
    fn write(&mut self, entry: CatalogueEntry) -> bool {
        let now = self.now();
        let whole = self.whole.append(entry.clone(), &now);
        let kept = self.file().append(entry, &now);
        match (kept, whole) {
            (Ok(()), Ok(())) => true,
            (
                Err(CatalogueFileError::Contradiction { source: kept, .. }),
                Err(CatalogueFileError::Contradiction { source: whole, .. }),
            ) => {
                assert_eq!(kept, whole);
                false
            }
            (kept, whole) => panic!("{kept:?} and {whole:?}"),
        }
    }

    fn live(&mut self) -> Option<u64> {
        let live: Vec<u64> = self.whole.catalogue().live().map(|(number, _)| number).collect();
        (!live.is_empty()).then(|| live[self.random.below(live.len() as u64) as usize])
    }

    fn slots(&mut self) -> Vec<FilledSlotLine> {
        let civil_s = self.now().civil.0;
        let slot = |period: &str, span_s: i64| FilledSlotLine {
            of: period.parse().unwrap(),
            start_s: civil_s - civil_s.rem_euclid(span_s),
        };
        let mut slots = vec![slot("1h", 3_600)];
        if self.random.percent(30.0) {
            slots.push(slot("1d", 86_400));
        }
        slots
    }

    fn round(&mut self) {
        let backup = self.whole.catalogue().next_sequence();
        let is_ordered = self.random.percent(10.0);
        let start = BackupStart {
            backup,
            name: backup_name("mail", self.now().civil, backup),
            kind: BackupKind::Full,
            slots: if is_ordered { Vec::new() } else { self.slots() },
            volumes: vec!["dbs/store".to_owned()],
            by: if is_ordered { "anna" } else { "schedule" }.to_owned(),
            holds: if self.random.percent(3.0) { vec!["upgrade".to_owned()] } else { Vec::new() },
            lock_s: self.random.percent(20.0).then_some(3 * 86_400),
            needs: None,
        };
        assert!(self.write(CatalogueEntry::Begun(start)));
        if self.random.percent(30.0) {
            let texts = ["freeze", "/etc/mail/quiet", "done", "mail is quiet"].map(str::to_owned);
            let [phase, command, result, output] = texts;
            self.write(CatalogueEntry::Hook(HookRunLine { backup, phase, command, result, output }));
        }
        if self.random.percent(15.0) {
            let problems = vec![format!("the pool dbs is full, {backup}")];
            assert!(self.write(CatalogueEntry::Failed(FailedBackup { backup, problems })));
            return;
        }
        let label =
            [LabelWord::Application, LabelWord::Filesystem, LabelWord::Crash][self.random.below(3) as usize];
        let window_ms = Some(self.random.below(100));
        let points = vec![self.point(backup)];
        let (reason, evidence) = (None, Vec::new());
        let cut = BackupCut { backup, label, reason, evidence, window_ms, points };
        assert!(self.write(CatalogueEntry::Cut(cut)));
    }

    fn point(&self, backup: u64) -> CutPoint {
        CutPoint { pool: "dbs".to_owned(), volume: "store".to_owned(), id: backup.to_string() }
    }

    fn delete(&mut self, backup: u64) {
        let rules = [DeletionRule::Surplus, DeletionRule::Surplus, DeletionRule::ThinnedOut];
        let rule = match self.random.percent(3.0) {
            true => DeletionRule::Person,
            false => rules[self.random.below(3) as usize],
        };
        let deletion = BackupDeletion { backup, rule, by: "schedule".to_owned() };
        if self.write(CatalogueEntry::Deleting(deletion.clone())) {
            self.vault.remove(&backup);
            assert!(self.write(CatalogueEntry::Deleted(deletion)));
        }
    }

    fn copy(&mut self, backup: u64) {
        if self.vault.last().is_some_and(|last| *last >= backup) {
            return;
        }
        self.vault.insert(backup);
        let removed = if self.vault.len() > 2 { self.vault.pop_first() } else { None };
        self.write(CatalogueEntry::Copied(BackupCopy {
            backup,
            to: VAULT.to_owned(),
            id: "c0ffee".to_owned(),
            bytes: 1 + backup,
            removed: removed.into_iter().collect(),
        }));
    }

    /// A rare act on a backup that exists.
    fn remark(&mut self, backup: u64) {
        let by = "anna".to_owned();
        let hold = BackupHold { backup, hold: "legal".to_owned(), by: by.clone() };
        let entry = match self.random.below(7) {
            0 => CatalogueEntry::Held(hold),
            1 => {
                let holds = &self.whole.catalogue().row(backup).expect("it exists").holds;
                let hold = BackupHold { hold: holds.first().cloned().unwrap_or_default(), ..hold };
                CatalogueEntry::Released(hold)
            }
            2 => CatalogueEntry::Locked(BackupLock { backup, for_s: 20 * 86_400, by }),
            3 => CatalogueEntry::Lost(LostBackup { backup, why: "its points are gone".to_owned() }),
            4 => CatalogueEntry::Restored(BackupRestore {
                backup,
                what: "the set".to_owned(),
                to: "in place".to_owned(),
                logs: "all".to_owned(),
                by,
                is_good: true,
                problems: Vec::new(),
            }),
            5 => CatalogueEntry::Drilled(BackupDrill {
                backup,
                by,
                is_good: self.random.percent(80.0),
                rto_s: 60,
                rpo_s: 10,
                findings: Vec::new(),
            }),
            _ => self.verdict(backup, false),
        };
        let is_lost = matches!(entry, CatalogueEntry::Lost(_));
        if self.write(entry) && is_lost {
            self.vault.remove(&backup);
        }
    }

    fn verdict(&self, backup: u64, is_good: bool) -> CatalogueEntry {
        CatalogueEntry::Verified(BackupVerification {
            backup,
            level: "recover".to_owned(),
            by: "mailhost".to_owned(),
            version: "0.1.0".to_owned(),
            is_good,
            findings: Vec::new(),
        })
    }

    fn find(&mut self) {
        let backup = match self.random.percent(50.0) {
            true => self.whole.catalogue().next_sequence() + self.random.below(3),
            // One that has ended: its points were somewhere, after all.
            false => 1 + self.random.below(self.whole.catalogue().next_sequence()),
        };
        let slots = self.slots();
        let points = vec![self.point(backup)];
        self.write(CatalogueEntry::Found(FoundBackup {
            backup,
            name: backup_name("mail", self.now().civil, backup),
            kind: BackupKind::Full,
            label: LabelWord::Crash,
            reason: "the catalogue did not have it".to_owned(),
            slots,
            points,
            lock_s: None,
            needs: None,
        }));
    }

    fn act(&mut self) {
        self.elapsed_s += self.random.below(DAY_S / 2);
        match self.random.below(20) {
            0 => {
                // The machine starts again; sometimes with another time.
                self.boot = (self.boot.0 + 1, self.elapsed_s);
                if self.random.percent(30.0) {
                    self.civil_offset_s += self.random.below(4 * DAY_S) as i64 - 2 * DAY_S as i64;
                }
            }
            1 => {
                let start_s = self.now().civil.0 - 7_200;
                let (of, why) = ("1h".parse().unwrap(), "the runner was down".to_owned());
                let count = 1 + self.random.below(2);
                let range = MissedRange { of, first_s: start_s, last_s: start_s + 3_600, count, why };
                assert!(self.write(CatalogueEntry::Missed(range)));
            }
            2 if self.random.percent(30.0) => self.find(),
            3 if self.random.percent(30.0) => drop(self.live().map(|backup| self.remark(backup))),
            4..8 => {
                if let Some(backup) = self.live() {
                    let verdict = self.verdict(backup, true);
                    self.write(verdict);
                }
            }
            8..11 => drop(self.live().map(|backup| self.copy(backup))),
            _ => {
                self.round();
                while self.whole.catalogue().live().count() > 6 && self.random.percent(90.0) {
                    if let Some(backup) = self.live() {
                        self.delete(backup);
                    }
                }
            }
        }
    }

    /// Sums old lines up, and may fail or die. Returns whether it came to its end.
    fn sum_up(&mut self) -> bool {
        let detail = CatalogueDetail {
            kept_s: (1 + self.random.below(30)) * DAY_S,
            least_bytes: 1,
            least_part: 1 << 40,
        };
        let now = self.now();
        let Some(horizon) = self.file().compaction_due(&detail, &now) else { return false };
        let at = self.random.below(8);
        let none = StateFileFaults::default();
        self.disk.set_faults(match self.random.below(6) {
            0 => StateFileFaults { power_cut: Some(at), ..none },
            1 => StateFileFaults { no_space: at..at + 1, ..none },
            2 => StateFileFaults { failed_syncs: at..at + 1, ..none },
            _ => none,
        });
        let polls = self.random.percent(20.0).then(|| self.random.below(8));
        let file = self.file.take().expect("it is open");
        let bytes_before = self.disk.contents().len() as u64;
        let is_done = match compact(file, self.random.below(1 << 40), horizon, polls) {
            Some((file, Ok(result))) => {
                assert_eq!(result.bytes_before, bytes_before);
                assert_eq!(result.bytes, self.disk.contents().len() as u64);
                self.file = Some(file);
                true
            }
            Some((file, Err(CompactionError::Io(_)))) => {
                self.file = Some(file).filter(|file| !file.is_broken());
                false
            }
            Some((_, Err(error))) => panic!("{error}"),
            None => false,
        };
        let has_power = self.disk.open().size().is_ok();
        if !has_power || self.random.percent(20.0) {
            self.file = None;
            self.disk.cut_power();
        }
        self.disk.set_faults(StateFileFaults::default());
        is_done
    }

    /// Both files say the same of all that exists, and of all that happened.
    fn compare(&mut self) {
        let (bytes, whole) = (self.disk.contents(), self.whole_disk.contents());
        assert!(check(&bytes), "it is a catalogue");
        let states = [&bytes, &whole].map(|bytes| {
            let read = read(bytes, CatalogueScope::All, 1 << 20).unwrap().unwrap();
            assert_eq!(read.dropped_bytes, 0);
            read.catalogue
        });
        let [kept, all] = &states;
        assert_eq!(kept.next_sequence(), all.next_sequence(), "numbers");
        assert_eq!(kept.filled(), all.filled(), "slots");
        assert_eq!(kept.clock(), all.clock());
        assert_eq!(kept.began(), all.began());
        assert_eq!(
            kept.newest_copied(VAULT).map(|(number, _)| number),
            all.newest_copied(VAULT).map(|(number, _)| number)
        );
        assert_eq!(kept.last_verified_age_s(), all.last_verified_age_s());
        assert_eq!(kept.last_drill(), all.last_drill());
        assert_eq!(kept.last_good_drill_age_s(), all.last_good_drill_age_s());
        assert_eq!((kept.restores(), kept.drills()), (all.restores(), all.drills()));
        let asked_for = noteworthy(&whole);
        for (number, row) in all.rows() {
            match kept.row(number) {
                Some(kept) => {
                    let changed_s = row.changed_s;
                    assert_eq!(protect::catalogue::BackupRow { changed_s, ..kept.clone() }, row.clone());
                }
                None => assert!(
                    !row.stage.is_open() && !asked_for.contains(&number) && row.stage != BackupStage::Lost,
                    "backup {number}, which is {:?}, was summed up",
                    row.stage
                ),
            }
        }
        assert_eq!(counts(&bytes), counts(&whole), "each line is there, or in the sum of its day");
    }
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = CatalogueLine> {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    lines.map(|line| CatalogueLine::decode(&line[..line.len() - 1]).expect("an intact line"))
}

/// Backups of which an auditor may ask by name, whatever their age.
fn noteworthy(whole: &[u8]) -> BTreeSet<u64> {
    let is_noteworthy = |entry: &CatalogueEntry| match entry {
        CatalogueEntry::Begun(start) => !start.holds.is_empty(),
        CatalogueEntry::Verified(verified) => !verified.is_good,
        CatalogueEntry::Deleted(deletion) => deletion.rule == DeletionRule::Person,
        CatalogueEntry::Held(_)
        | CatalogueEntry::Released(_)
        | CatalogueEntry::Locked(_)
        | CatalogueEntry::Restored(_)
        | CatalogueEntry::Drilled(_) => true,
        _ => false,
    };
    lines(whole).filter(|line| is_noteworthy(&line.entry)).filter_map(|line| line.entry.backup()).collect()
}

/// Of each day, what its lines say, whether they are there or summed up: how often slots were made, failed and missed; backups
/// by label, failed, found, ordered; proofs; deletions by rule.
fn counts(bytes: &[u8]) -> BTreeMap<(i64, String), u64> {
    let mut counts = BTreeMap::new();
    let mut starts: BTreeMap<u64, BackupStart> = BTreeMap::new();
    for line in lines(bytes) {
        let day_s = line.at_s - line.at_s.rem_euclid(DAY_S as i64);
        let mut add = |day_s: i64, what: String, count: u64| {
            if count > 0 {
                *counts.entry((day_s, what)).or_default() += count;
            }
        };
        match &line.entry {
            CatalogueEntry::Begun(start) => drop(starts.insert(start.backup, start.clone())),
            CatalogueEntry::Cut(cut) => {
                let start = &starts[&cut.backup];
                add(day_s, cut.label.word().to_owned(), 1);
                add(day_s, "ordered".to_owned(), u64::from(start.by != "schedule"));
                start.slots.iter().for_each(|slot| add(day_s, format!("made {}", slot.of), 1));
            }
            CatalogueEntry::Failed(failed) => {
                add(day_s, "failed".to_owned(), 1);
                let slots = &starts[&failed.backup].slots;
                slots.iter().for_each(|slot| add(day_s, format!("failed {}", slot.of), 1));
            }
            CatalogueEntry::Found(found) => {
                add(day_s, found.label.word().to_owned(), 1);
                add(day_s, "found".to_owned(), 1);
                found.slots.iter().for_each(|slot| add(day_s, format!("made {}", slot.of), 1));
            }
            CatalogueEntry::Missed(missed) => add(day_s, format!("missed {}", missed.of), missed.count),
            CatalogueEntry::Verified(verified) => {
                add(day_s, "proven".to_owned(), u64::from(verified.is_good))
            }
            CatalogueEntry::Deleted(deletion) => add(day_s, deletion.rule.word().to_owned(), 1),
            CatalogueEntry::Summed(day) => {
                assert!(*day != SummedDay { day_s: day.day_s, ..SummedDay::default() }, "a day of nothing");
                let day_s = day.day_s;
                for slots in &day.slots {
                    add(day_s, format!("made {}", slots.of), slots.made);
                    add(day_s, format!("failed {}", slots.of), slots.failed);
                    add(day_s, format!("missed {}", slots.of), slots.missed);
                }
                for (what, count) in [
                    ("application", day.application),
                    ("filesystem", day.filesystem),
                    ("crash", day.crash),
                    ("ordered", day.ordered),
                    ("found", day.found),
                    ("failed", day.failed),
                    ("proven", day.proven),
                ] {
                    add(day_s, what.to_owned(), count);
                }
                day.deleted.iter().for_each(|one| add(day_s, one.rule.word().to_owned(), one.count));
            }
            _ => {}
        }
    }
    counts
}

/// One history; the times that old lines were summed up in it.
pub fn check_seed(seed: u64) -> u64 {
    let mut scribe = Scribe::new(seed);
    let mut summed = 0;
    for _ in 0..2 + scribe.random.below(5) {
        for _ in 0..10 + scribe.random.below(60) {
            scribe.act();
        }
        let is_done = scribe.sum_up();
        summed += u64::from(is_done);
        // Of lines that were written since, none is lost.
        for _ in 0..scribe.random.below(4) {
            scribe.act();
        }
        if scribe.random.percent(50.0) {
            scribe.file = None;
            scribe.disk.cut_power();
        }
        scribe.compare();
    }
    // Lines that are old enough for all rules: it always comes to its end.
    for _ in 0..10 {
        scribe.act();
    }
    check_clock_ahead(&mut scribe);
    scribe.elapsed_s += 40 * DAY_S;
    let compactions = |scribe: &mut Scribe| scribe.file().catalogue().header().compactions;
    let before = compactions(&mut scribe);
    // One whose name could not be synced has come to its end, too.
    let is_summed_up = (0..60).any(|_| scribe.sum_up() || compactions(&mut scribe) > before);
    assert!(is_summed_up, "nothing was summed up");
    scribe.compare();
    summed
}

/// A clock that is ten years ahead makes no line old.
fn check_clock_ahead(scribe: &mut Scribe) {
    let mut ahead = scribe.now();
    ahead.civil.0 += 3_650 * DAY_S as i64;
    let detail = CatalogueDetail { kept_s: 3_000 * DAY_S, least_bytes: 1, least_part: 1 << 40 };
    assert_eq!(scribe.file().compaction_due(&detail, &ahead), None);
}

#[test]
fn a_catalogue_that_is_summed_up_says_the_same() {
    let summed: u64 = seeds(20).map(check_seed).sum();
    assert!(summed > 20, "{summed} compactions");
}

/// Keeps a day's backups, `keep` of which exist, with a proof and a copy a day and a drill a week. Returns the bytes of the file at
/// the end of each year, and the size of the largest one.
fn keep_for_years(years: u64, a_day: u64, keep: u64, detail: Option<CatalogueDetail>) -> (Vec<u64>, u64) {
    let mut scribe = Scribe::new(27);
    let disk = scribe.disk.clone();
    let mut file = scribe.file.take().expect("it is open");
    let (mut sizes, mut largest) = (Vec::new(), 0);
    for day in 0..years * 365 {
        for slot in 0..a_day {
            scribe.elapsed_s = day * DAY_S + slot * (DAY_S / a_day);
            let (now, backup) = (scribe.now(), 1 + day * a_day + slot);
            let slot_line = |of: &str| FilledSlotLine { of: of.parse().unwrap(), start_s: now.civil.0 };
            let mut slots = vec![slot_line("15min")];
            slots.extend((slot == 0).then(|| slot_line("1d")));
            let start = BackupStart {
                backup,
                name: backup_name("mail", now.civil, backup),
                kind: BackupKind::Full,
                slots,
                volumes: vec!["dbs/store".to_owned(), "logs/log".to_owned()],
                by: "schedule".to_owned(),
                holds: Vec::new(),
                lock_s: None,
                needs: None,
            };
            let point = |pool: &str, volume: &str| CutPoint {
                pool: pool.to_owned(),
                volume: volume.to_owned(),
                id: format!("{:016x}", backup * 2),
            };
            let cut = BackupCut {
                backup,
                label: LabelWord::Application,
                reason: None,
                evidence: vec![protect::catalogue::EvidenceLine {
                    what: "databases of /run/mail.sock".to_owned(),
                    worth: LabelWord::Application,
                    broken: None,
                }],
                window_ms: Some(43),
                points: vec![point("dbs", "store"), point("logs", "log")],
            };
            let mut entries = vec![CatalogueEntry::Begun(start), CatalogueEntry::Cut(cut)];
            if slot == 0 {
                entries.push(scribe.verdict(backup, true));
                let removed = (day >= 14).then(|| backup - 14 * a_day).into_iter().collect();
                let (to, id) = (VAULT.to_owned(), "c0ffee".to_owned());
                entries.push(CatalogueEntry::Copied(BackupCopy { backup, to, id, bytes: 1 << 30, removed }));
            }
            // A drill a week of 96 backups a day.
            if slot == 0 && day % (if a_day > 1 { 7 } else { 35 }) == 0 {
                entries.push(CatalogueEntry::Drilled(BackupDrill {
                    backup,
                    by: "schedule".to_owned(),
                    is_good: true,
                    rto_s: 312,
                    rpo_s: 61,
                    findings: Vec::new(),
                }));
            }
            if backup > keep {
                let backup = backup - keep;
                let deletion =
                    BackupDeletion { backup, rule: DeletionRule::Surplus, by: "schedule".to_owned() };
                entries.push(CatalogueEntry::Deleting(deletion.clone()));
                entries.push(CatalogueEntry::Deleted(deletion));
            }
            for entry in entries {
                file.append(entry, &now).expect("it is consistent");
            }
        }
        let due = detail.and_then(|detail| file.compaction_due(&detail, &scribe.now()));
        if let Some(horizon) = due {
            let (compacted, result) = compact(file, day, horizon, None).expect("it is not stopped");
            file = compacted;
            result.expect("nothing fails");
        }
        let bytes = file.size();
        largest = largest.max(bytes);
        if (day + 1) % 365 == 0 {
            sizes.push(bytes);
        }
    }
    assert_eq!(disk.contents().len() as u64, file.size());
    let read = read(&disk.contents(), CatalogueScope::Live, 1 << 20).unwrap().unwrap();
    println!(
        "note: {years} years of {a_day} backups a day: {sizes:?} bytes at the end of each, {largest} at most, {} rows",
        read.catalogue.rows().count()
    );
    assert_eq!(read.catalogue.live().count() as u64, keep);
    (sizes, largest)
}

#[test]
fn a_catalogue_of_years_grows_by_a_line_a_day_alone() {
    let is_full = crate::is_full_run("a backup every 15 minutes is of");
    let (years, a_day) = if is_full { (3, 96) } else { (5, 1) };
    let (whole, _) = keep_for_years(1, a_day, 12, None);
    let bytes_a_day = whole[0] / 365;
    let (sizes, largest) = keep_for_years(years, a_day, 12, Some(CatalogueDetail::default()));
    // The days that are kept whole, an eighth, and what is too little to be worth it; of all others a line, and drills.
    let detail_bytes = (400 * bytes_a_day * 8 / 7).max(400 * bytes_a_day + (64 << 10));
    for (year, bytes) in (1..).zip(&sizes) {
        let most = detail_bytes + year * 365 * 600;
        assert!(*bytes <= most, "{bytes} bytes after {year} years, instead of {most}");
    }
    assert!(largest < detail_bytes * 11 / 10 + years * 365 * 600, "{largest} bytes at most");
    assert!(sizes.last().unwrap() * 2 < whole[0] * years, "{sizes:?} of {whole:?}");
}

#[test]
fn a_compacted_catalogue_that_was_cut_or_changed_is_damaged() {
    let bytes = compacted_example();
    let ends: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] == b'\n').map(|at| at + 1).collect();
    let head = lines(&bytes).position(|line| matches!(line.entry, CatalogueEntry::Compacted(_))).unwrap();
    for end in 0..=bytes.len() {
        assert_eq!(check(&bytes[..end]), end >= ends[head], "cut at {end}");
    }
    for index in 0..ends[head] {
        let mut changed = bytes.clone();
        changed[index] ^= 1;
        assert!(!check(&changed), "byte {index} changed");
    }
    // Lines that do not belong there, with right checksums.
    let with = |from: &str, to: &str| {
        let text = str::from_utf8(&bytes).unwrap();
        assert!(text.contains(from), "{from}");
        let objects = text.lines().map(|line| format!("{{{}", line[18..].replace(from, to)));
        let bytes: Vec<u8> = objects.flat_map(|object| world::checked_line(object.as_bytes())).collect();
        check(&bytes);
        read(&bytes, CatalogueScope::Live, 1 << 20).expect_err("refused").to_string()
    };
    for (from, to, refusal) in [
        (",\"compactions\":1", "", "a catalogue of version 2 that was compacted 0 times"),
        ("\"version\":2", "\"version\":1", "a catalogue of version 1 that was compacted 1 times"),
        (
            "\"version\":2",
            "\"version\":3",
            "version 3, and this program knows version 2; use a newer program",
        ),
        ("\"last_backup\":6", "\"last_backup\":5", "ends with backup 5, and has backup 6"),
        (
            "\"s3://mail-vault\":1",
            "\"s3://mail-vault\":2",
            "whose copy is the newest of s3://mail-vault, does not exist",
        ),
        ("{\"day_s\":1796", "{\"day_s\":1797", "is summed up out of order"),
    ] {
        let found = with(from, to);
        assert!(found.contains(refusal), "{found}");
    }
}

/// Of compaction alone; others are looked for in all of this module.
const BUGS: [KeepingBug; 5] = [
    KeepingBug::NameNotSynced,
    KeepingBug::SuccessorNotSynced,
    KeepingBug::HeldSummedUp,
    KeepingBug::SummedSlotsForgotten,
    KeepingBug::SummedUpByCivilClock,
];

#[test]
fn planted_bugs_of_compaction_are_noticed() {
    for bug in BUGS {
        let fails = |seed: &u64| {
            with_keeping_bug(bug, || catch_unwind(AssertUnwindSafe(|| check_seed(*seed))).is_err())
        };
        let seed = (0..200).find(fails);
        println!("note: {bug:?} was noticed by seed {seed:?}");
        assert!(seed.is_some(), "nothing noticed {bug:?}");
    }
}

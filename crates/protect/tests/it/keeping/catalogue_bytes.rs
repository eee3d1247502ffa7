//! An example catalogue with every entry, and the rule for any bytes. The fuzz target applies it, too.

use protect::{
    UnixSecond,
    backup_schedule::BackupKind,
    catalogue::{
        BackupCatalogue, BackupCopy, BackupCut, BackupDeletion, BackupDrill, BackupHold, BackupLock,
        BackupRestore, BackupStart, BackupVerification, CatalogueDetail, CatalogueEntry, CatalogueFile,
        CatalogueReadError, CatalogueReader, CatalogueScope, CompactionError, CompactionResult, CutPoint,
        EvidenceLine, FailedBackup, FilledSlotLine, FoundBackup, HookRunLine, LabelWord, LostBackup,
        MachineTime, MissedRange, PointNote, ReadCatalogue, SetId,
    },
    retention::DeletionRule,
};
use world::{
    checked_line,
    sim::{SimLimits, SimOutcome, SimStateFile, Simulation},
};

/// 2026-11-28, 10:00 UTC.
pub const TEN_S: i64 = 1_795_860_000;

/// A minute of the example, by all clocks.
pub fn minute(minute: u64) -> MachineTime {
    MachineTime {
        machine: "6f1c".to_owned(),
        boot: "b00t-1".to_owned(),
        up_s: 86_400 + minute * 60,
        civil: UnixSecond(TEN_S + minute as i64 * 60),
    }
}

pub fn start(backup: u64, minute: u64, kind: BackupKind, periods: &[&str]) -> BackupStart {
    let start_s = TEN_S + minute as i64 * 60;
    BackupStart {
        backup,
        name: protect::backup_schedule::backup_name("mail", UnixSecond(start_s), backup),
        kind,
        slots: periods.iter().map(|period| FilledSlotLine { of: period.parse().unwrap(), start_s }).collect(),
        volumes: vec!["dbs/store".to_owned(), "logs/log".to_owned()],
        by: "schedule".to_owned(),
        holds: Vec::new(),
        lock_s: None,
        needs: None,
    }
}

pub fn points(backup: u64) -> Vec<CutPoint> {
    let point = |pool: &str, volume: &str, id: u64| CutPoint {
        pool: pool.to_owned(),
        volume: volume.to_owned(),
        id: id.to_string(),
    };
    vec![point("dbs", "store", 40 + backup), point("logs", "log", 70 + backup)]
}

fn cut(backup: u64, label: LabelWord, reason: Option<&str>) -> CatalogueEntry {
    let evidence = EvidenceLine {
        what: "storage group 1".to_owned(),
        worth: LabelWord::Application,
        broken: reason.map(str::to_owned),
    };
    CatalogueEntry::Cut(BackupCut {
        backup,
        label,
        reason: reason.map(str::to_owned),
        evidence: vec![evidence],
        window_ms: Some(43),
        points: points(backup),
    })
}

fn deletion(backup: u64, rule: DeletionRule) -> BackupDeletion {
    BackupDeletion { backup, rule, by: "schedule".to_owned() }
}

/// Every entry at least once, in an order that can be.
pub fn entries() -> Vec<(u64, CatalogueEntry)> {
    let text = str::to_owned;
    let hold = |hold: &str| BackupHold { backup: 1, hold: text(hold), by: text("anna") };
    let first =
        BackupStart { lock_s: Some(14 * 86_400), ..start(1, 0, BackupKind::Full, &["1min", "1h", "1d"]) };
    let logs = BackupStart {
        needs: Some(1),
        volumes: vec![text("logs/log")],
        ..start(2, 1, BackupKind::InterimLogs, &["1min"])
    };
    let ordered =
        BackupStart { by: text("anna"), holds: vec![text("upgrade")], ..start(4, 5, BackupKind::Full, &[]) };
    let hook = HookRunLine {
        backup: 1,
        phase: text("freeze"),
        command: text("/etc/mail/quiet"),
        result: text("done"),
        output: text("mail is quiet\n"),
    };
    let verified = |backup, is_good| BackupVerification {
        backup,
        level: text("recover"),
        by: text("mailhost"),
        version: text("0.1.0"),
        is_good,
        findings: if is_good { Vec::new() } else { vec![text("page 7 of priv1.edb: wrong checksum")] },
    };
    let found = FoundBackup {
        backup: 6,
        name: text("mail-2026-11-28-1007-6"),
        kind: BackupKind::Full,
        label: LabelWord::Crash,
        reason: text("the catalogue did not have it"),
        slots: vec![FilledSlotLine { of: "1min".parse().unwrap(), start_s: TEN_S + 420 }],
        points: points(6),
        lock_s: None,
        needs: None,
    };
    vec![
        (0, CatalogueEntry::Begun(first)),
        (0, CatalogueEntry::Hook(hook)),
        (0, cut(1, LabelWord::Application, None)),
        (1, CatalogueEntry::Begun(logs)),
        (1, cut(2, LabelWord::Crash, Some("nothing was to be frozen"))),
        (2, CatalogueEntry::Verified(verified(1, true))),
        (2, CatalogueEntry::Begun(start(3, 2, BackupKind::InterimCrash, &["1min"]))),
        (2, CatalogueEntry::Failed(FailedBackup { backup: 3, problems: vec![text("the pool dbs is full")] })),
        (3, CatalogueEntry::Held(hold("legal 7/26"))),
        (3, CatalogueEntry::Released(hold("legal 7/26"))),
        (3, CatalogueEntry::Locked(BackupLock { backup: 1, for_s: 30 * 86_400, by: text("anna") })),
        (
            3,
            CatalogueEntry::Copied(BackupCopy {
                backup: 1,
                to: text("s3://mail-vault"),
                id: text("c0ffee"),
                bytes: 9,
                removed: Vec::new(),
            }),
        ),
        (4, CatalogueEntry::Deleting(deletion(2, DeletionRule::Surplus))),
        (4, CatalogueEntry::Deleted(deletion(2, DeletionRule::Surplus))),
        (5, CatalogueEntry::Begun(ordered)),
        (5, cut(4, LabelWord::Filesystem, None)),
        (6, CatalogueEntry::Verified(verified(4, false))),
        (
            7,
            CatalogueEntry::Missed(MissedRange {
                of: "1min".parse().unwrap(),
                first_s: TEN_S + 180,
                last_s: TEN_S + 360,
                count: 4,
                why: text("the runner was down"),
            }),
        ),
        (7, CatalogueEntry::Begun(start(5, 7, BackupKind::Full, &["1h"]))),
        (7, cut(5, LabelWord::Application, None)),
        (8, CatalogueEntry::Lost(LostBackup { backup: 5, why: text("its points are gone: dbs/store") })),
        (8, CatalogueEntry::Found(found)),
        (
            9,
            CatalogueEntry::Restored(BackupRestore {
                backup: 1,
                what: text("priv1"),
                to: text("restored-1"),
                logs: text("all"),
                by: text("anna"),
                is_good: true,
                problems: Vec::new(),
            }),
        ),
        (
            9,
            CatalogueEntry::Drilled(BackupDrill {
                backup: 1,
                by: text("schedule"),
                is_good: true,
                rto_s: 312,
                rpo_s: 61,
                findings: Vec::new(),
            }),
        ),
        (9, CatalogueEntry::Deleting(deletion(6, DeletionRule::ThinnedOut))),
    ]
}

/// The bytes of the example.
pub fn example() -> Vec<u8> {
    written_example(minute).0.contents()
}

/// The example with days instead of minutes, of which all but a week was summed up, and a hold since then.
pub fn compacted_example() -> Vec<u8> {
    let day = |days| minute(days * 24 * 60);
    let (disk, mut file) = written_example(day);
    let hold = BackupHold { backup: 4, hold: "legal 8/26".to_owned(), by: "anna".to_owned() };
    file.append(CatalogueEntry::Held(hold), &day(12)).expect("it is consistent");
    let detail = CatalogueDetail { kept_s: 3 * 86_400 - 60, least_bytes: 1, least_part: 1 << 40 };
    let horizon = file.compaction_due(&detail, &day(15)).expect("old lines");
    let (mut file, compacted) = compact(file, 1, horizon, None).expect("it is not stopped");
    compacted.expect("nothing fails");
    let lost = LostBackup { backup: 4, why: "its points are gone: logs/log".to_owned() };
    file.append(CatalogueEntry::Lost(lost), &day(16)).expect("it is consistent");
    disk.contents()
}

/// Sums old lines up, in a simulation that may be stopped at a poll: then nothing is returned.
pub fn compact(
    file: CatalogueFile,
    seed: u64,
    horizon: u64,
    polls: Option<u64>,
) -> Option<(CatalogueFile, Result<CompactionResult, CompactionError>)> {
    let limits = SimLimits { polls, ..SimLimits::generous() };
    let outcome = Simulation::new(seed).run(limits, |world| async move {
        let mut file = file;
        let result = file.compact(&world, horizon).await;
        (file, result)
    });
    match outcome {
        SimOutcome::Crashed => None,
        outcome => Some(outcome.completed()),
    }
}

fn written_example(time: impl Fn(u64) -> MachineTime) -> (SimStateFile, CatalogueFile) {
    let disk = SimStateFile::new("mail.catalogue", 1);
    let id = SetId::new(0x0123_4567_89ab_cdef);
    let file = Box::new(disk.open());
    let mut file =
        CatalogueFile::open(file, "mail", id, "spindle 0.1.0", "spindle protect run, process 7", &time(0))
            .expect("an empty disk");
    for (at, entry) in entries() {
        file.append(entry, &time(at)).expect("the example is consistent");
    }
    (disk, file)
}

/// Reads bytes, in parts of that size.
pub fn read(
    bytes: &[u8],
    scope: CatalogueScope,
    part_bytes: usize,
) -> Result<Option<ReadCatalogue>, CatalogueReadError> {
    let mut reader = CatalogueReader::new(scope);
    for part in bytes.chunks(part_bytes) {
        reader.receive(part)?;
    }
    reader.finish()
}

/// The state that a runner must know, whether or not it remembers ended backups.
fn live(catalogue: &BackupCatalogue) -> Vec<String> {
    let rows = catalogue.rows().filter(|(_, row)| row.stage.is_open()).map(|(_, row)| format!("{row:?}"));
    let filled = catalogue.filled().iter().map(|(period, filled)| format!("{period} {filled:?}"));
    let next = format!("{} {:?} {:?}", catalogue.next_sequence(), catalogue.begun(), catalogue.clock());
    rows.chain(filled).chain([next]).collect()
}

/// Checks the rule for some bytes: nothing panics; both scopes read alike; what was intact reads to the same state again.
/// Returns true if they are a catalogue.
pub fn check(bytes: &[u8]) -> bool {
    let (all, some) = (read(bytes, CatalogueScope::All, 100), read(bytes, CatalogueScope::Live, 1 << 20));
    let (all, some) = match (all, some) {
        (Ok(Some(all)), Ok(Some(some))) => (all, some),
        (all, some) => {
            assert_eq!(all.err(), some.err());
            return false;
        }
    };
    assert_eq!(live(&all.catalogue), live(&some.catalogue));
    assert_eq!((all.intact_bytes, all.lines), (some.intact_bytes, some.lines));
    assert_eq!(all.intact_bytes + all.dropped_bytes, bytes.len() as u64);
    let intact = &bytes[..all.intact_bytes as usize];
    let again = read(intact, CatalogueScope::All, 1 << 20).expect("intact").expect("not empty");
    assert_eq!(again, ReadCatalogue { dropped_bytes: 0, ..all });
    true
}

/// Bytes for [`check`]: the first one says whether each line is given a right checksum.
pub fn check_input(input: &[u8]) -> bool {
    match input {
        [first, text @ ..] if first % 2 == 1 => {
            let objects = text.split(|byte| *byte == b'\n').filter(|line| line.first() == Some(&b'{'));
            check(&objects.flat_map(checked_line).collect::<Vec<u8>>())
        }
        [_, bytes @ ..] => check(bytes),
        [] => false,
    }
}

/// The example as an input whose lines lack checksums.
pub fn input() -> Vec<u8> {
    input_of(&example())
}

/// Lines of a catalogue as an input that lacks their checksums.
pub fn input_of(lines: &[u8]) -> Vec<u8> {
    let objects = lines.split_inclusive(|byte| *byte == b'\n').flat_map(|line| [b"{", &line[18..]].concat());
    [1].into_iter().chain(objects).collect()
}

/// The note of a full backup's points.
pub fn note(sequence: u64, periods: &[&str]) -> PointNote {
    PointNote {
        set: SetId::new(0x0123_4567_89ab_cdef),
        sequence,
        points: 2,
        kind: BackupKind::Full,
        label: LabelWord::Application,
        is_confirmed: false,
        needs: None,
        lock_s: None,
        slots: start(sequence, 0, BackupKind::Full, periods).slots.iter().map(Into::into).collect(),
    }
}

/// Notes of points: as short as can be, usual, and of many schedules.
pub fn notes() -> Vec<(&'static str, PointNote)> {
    let locked = PointNote { lock_s: Some(14 * 86_400), is_confirmed: true, ..note(17, &["1h", "1d"]) };
    let logs = PointNote { kind: BackupKind::InterimLogs, needs: Some(17), ..note(18, &["1min"]) };
    let many = note(1 << 40, &["1min", "15min", "1h", "6h", "1d", "1w", "1month", "1y"]);
    vec![("ordered", note(1, &[])), ("locked", locked), ("logs", logs), ("many", many)]
}

/// Checks the rule for the bytes of a note: what decodes encodes to the same bytes. Returns true if they decoded.
pub fn check_note(bytes: &[u8]) -> bool {
    let Ok(Some(note)) = PointNote::decode(bytes) else { return false };
    assert_eq!(note.encode().as_bytes(), bytes, "{note:?} encodes to other bytes");
    true
}

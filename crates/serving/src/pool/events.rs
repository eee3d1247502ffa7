//! Events of a pool as text: one line for people, one JSON object for programs.

use super::{
    snapshot_room::{SnapshotRoomStatus, room_to_make},
    sparing::level_name,
};
use array::{
    format::{DriveId, Sparing},
    pool::{
        PoolSpace,
        events::{DriveName, EventKind, LevellingOutcome, PoolEvent, RedundancyStatus},
    },
};
use report::{Severity, calendar::utc_time};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use world::ByteCount;

/// Folder of a pool and names of its drives, for the text of events.
#[derive(Clone, Debug)]
pub struct PoolContext {
    /// `None` for a pool of a test run, which no verb can open.
    pub folder: Option<PathBuf>,
    /// Name of the pool in front of an event.
    pub name: String,
    pub drives: Vec<KnownDrive>,
}

#[derive(Clone, Debug)]
pub struct KnownDrive {
    /// `None` if it was not looked up.
    pub drive: Option<DriveId>,
    /// Index among the devices the pool was opened with, if there is no UUID.
    pub given: Option<usize>,
    pub name: String,
    /// Current or last path.
    pub path: PathBuf,
}

/// An event as printed and as kept in the published status (docs/pools.md, "Events").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventReport {
    pub event: String,
    pub severity: Severity,
    /// In UTC.
    pub time: String,
    pub pool: String,
    pub text: String,
    /// May be empty.
    pub next_step: String,
    /// Figures and names; they differ by kind of event.
    #[serde(flatten)]
    pub details: Map<String, Value>,
}

/// Names of all kinds of events; `control::kinds` says more of each.
pub const EVENT_NAMES: [&str; 29] = [
    "drive_lost",
    "drive_stale",
    "drive_out_of_space",
    "drive_back",
    "drive_added",
    "drive_leaving",
    "drive_left",
    "drive_kept",
    "drive_forgotten",
    "format_raised",
    "redundancy_lost",
    "sparing_changed",
    "domains_shared",
    "domains_apart",
    "sets_spanned",
    "sets_kept",
    "sets_changed",
    "levelling_started",
    "levelling_ended",
    "redundancy_whole",
    "alarm",
    "writes_refused",
    "writes_admitted",
    "log_pin_lost",
    "scrub_findings",
    "volume_imported",
    "task_failed",
    "pool_stopped",
    "events_missed",
];

/// Next step for a pool that a test run made for itself.
const NEXT_STEP_OF_RUN: &str = "the run goes on while it can, and its report says what it cost; \
                                'spindle prove --pool --fresh' makes new pools and databases";

/// True if the next step names a verb of `spindle pool`, or a repair that a test run does not need.
fn is_for_verbs(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::DriveLoss { .. }
            | EventKind::StaleDrive { .. }
            | EventKind::RedundancyLoss(_)
            | EventKind::SparingChange { .. }
            | EventKind::DomainsShared { .. }
            | EventKind::SetsSpanned { .. }
            | EventKind::Alarm { .. }
            | EventKind::WriteRefusal { .. }
            | EventKind::ScrubFindings { .. }
            | EventKind::Overflow { .. }
            | EventKind::Stop { .. }
    )
}

impl EventReport {
    pub fn new(event: &PoolEvent, context: &PoolContext) -> Self {
        let EventWords { event: kind, severity, text, next_step, details } = words(&event.kind, context);
        debug_assert!(EVENT_NAMES.contains(&kind), "{kind} is missing among the names");
        let is_of_run = context.folder.is_none() && is_for_verbs(&event.kind) && !next_step.is_empty();
        let next_step = if is_of_run { NEXT_STEP_OF_RUN.to_owned() } else { next_step };
        let details = match details {
            Value::Object(details) => details,
            _ => Map::new(),
        };
        Self {
            event: kind.to_owned(),
            severity,
            time: utc_time(event.time.seconds),
            pool: context.name.clone(),
            text,
            next_step,
            details,
        }
    }

    /// The line for people, without the time.
    pub fn line(&self) -> String {
        match self.next_step.as_str() {
            "" => format!("{}: {}", self.pool, self.text),
            next_step => format!("{}: {}; {next_step}", self.pool, self.text),
        }
    }
}

struct EventWords {
    event: &'static str,
    severity: Severity,
    text: String,
    next_step: String,
    details: Value,
}

fn words(kind: &EventKind, context: &PoolContext) -> EventWords {
    let say = |event, severity, text: String, next_step: String, details| EventWords {
        event,
        severity,
        text,
        next_step,
        details,
    };
    let named = |drive: &DriveName| context.drive(drive);
    match kind {
        EventKind::DriveLoss { drive, error } => say(
            "drive_lost",
            Severity::Error,
            format!("drive {} lost: {error}", named(drive)),
            format!(
                "keep it as it is until nothing lacks a copy ({}); {}",
                context.verb("show"),
                context.adding("give the pool another")
            ),
            json!({ "drive": drive_json(drive, context), "reason": error.to_string() }),
        ),
        EventKind::StaleDrive { drive } => say(
            "drive_stale",
            Severity::Warning,
            format!("drive {} is out of date and not used: the pool was written without it", named(drive)),
            format!(
                "do not erase it; '{} DRIVE' compares it and copies what changed",
                context.verb("readmit")
            ),
            json!({ "drive": drive_json(drive, context) }),
        ),
        EventKind::DriveOutOfSpace { drive, error } => say(
            "drive_out_of_space",
            Severity::Error,
            format!("drive {} is out of space: {error}", named(drive)),
            "make room where it lies; the pool tries it again".to_owned(),
            json!({ "drive": drive_json(drive, context), "reason": error.to_string() }),
        ),
        EventKind::DriveReturn { drive } => say(
            "drive_back",
            Severity::Note,
            format!("drive {} takes writes again", named(drive)),
            String::new(),
            json!({ "drive": drive_json(drive, context) }),
        ),
        EventKind::DriveAddition { drive } => say(
            "drive_added",
            Severity::Note,
            format!("drive {} added", named(drive)),
            String::new(),
            json!({ "drive": drive_json(drive, context) }),
        ),
        EventKind::DriveLeaving { drive } => say(
            "drive_leaving",
            Severity::Note,
            format!("drive {} leaves: what lies on it is copied to the others", named(drive)),
            String::new(),
            json!({ "drive": drive_json(drive, context) }),
        ),
        EventKind::DriveLeft { drive } => say(
            "drive_left",
            Severity::Note,
            format!("drive {} has left: nothing lies on it, and it can be taken out", named(drive)),
            String::new(),
            json!({ "drive": drive_json(drive, context) }),
        ),
        EventKind::DriveKept { drive } => say(
            "drive_kept",
            Severity::Note,
            format!("drive {} is kept", named(drive)),
            String::new(),
            json!({ "drive": drive_json(drive, context) }),
        ),
        EventKind::DriveForgotten { drive } => say(
            "drive_forgotten",
            Severity::Note,
            format!("drive {} is forgotten: nothing that the pool needs lies on it", named(drive)),
            String::new(),
            json!({ "drive": drive_json(drive, context) }),
        ),
        EventKind::FormatRaised { from, to } => say(
            "format_raised",
            Severity::Note,
            format!("the format level is {to} now, and was {from}"),
            "programs from before cannot open the pool once it uses what is new".to_owned(),
            json!({ "from": from.0, "to": to.0 }),
        ),
        EventKind::RedundancyLoss(lost) => redundancy_lost(lost, context),
        EventKind::SparingChange { sparing } => sparing_changed(*sparing, context),
        EventKind::DomainsShared { segments, bytes } => say(
            "domains_shared",
            Severity::Warning,
            format!("{segments} segments ({}) lie in one failure domain with all copies", ByteCount(*bytes)),
            context.adding("they are moved apart as soon as another domain has room"),
            json!({ "segments": segments, "bytes": bytes }),
        ),
        EventKind::DomainsApart => say(
            "domains_apart",
            Severity::Note,
            "copies lie in different failure domains".to_owned(),
            String::new(),
            json!({}),
        ),
        EventKind::SetsSpanned { segments, bytes } => say(
            "sets_spanned",
            Severity::Warning,
            format!("{segments} segments ({}) lie across failure sets", ByteCount(*bytes)),
            context.adding("they are moved into one set each as far as there is room"),
            json!({ "segments": segments, "bytes": bytes }),
        ),
        EventKind::SetsKept => say(
            "sets_kept",
            Severity::Note,
            "all copies of each segment lie in one failure set".to_owned(),
            String::new(),
            json!({}),
        ),
        EventKind::SetChange { sets } => say(
            "sets_changed",
            Severity::Note,
            match sets {
                0 => "drives are in no failure sets any more".to_owned(),
                sets => format!("drives are in {sets} failure sets"),
            },
            String::new(),
            json!({ "sets": sets }),
        ),
        EventKind::LevellingStart { bytes } => say(
            "levelling_started",
            Severity::Note,
            format!("drives are being levelled: {} to be moved", ByteCount(*bytes)),
            String::new(),
            json!({ "bytes": bytes }),
        ),
        EventKind::LevellingEnd { outcome, moved_bytes } => {
            let (word, why) = match outcome {
                LevellingOutcome::Level => ("level", "drives are level"),
                LevellingOutcome::NoMoveHelps => ("no_move_helps", "levelling ended: no more moves help"),
                LevellingOutcome::Postponed => {
                    ("postponed", "levelling waits for missing copies, or for a drive that leaves")
                }
                LevellingOutcome::Cancelled => ("cancelled", "levelling was interrupted"),
            };
            say(
                "levelling_ended",
                Severity::Note,
                format!("{why}: {} moved", ByteCount(*moved_bytes)),
                String::new(),
                json!({ "outcome": word, "moved_bytes": moved_bytes }),
            )
        }
        EventKind::FullRedundancy(whole) => say(
            "redundancy_whole",
            Severity::Note,
            format!("redundancy whole: {} of everything on {} drives", copies(whole.copies), whole.drives),
            String::new(),
            redundancy_json(whole),
        ),
        EventKind::Alarm { before, now, space } => {
            let percent = |alarm: &Option<array::pool::Alarm>| alarm.map_or(0, |alarm| alarm as u8);
            let (before, now) = (percent(before), percent(now));
            let is_rising = now > before;
            let room = room(space);
            let (severity, text) = match (is_rising, now) {
                (true, 95..) => (Severity::Error, format!("{now} % full: {room}")),
                (true, _) => (Severity::Warning, format!("{now} % full: {room}")),
                (false, 0) => (Severity::Note, format!("less than 80 % full: {room}")),
                (false, _) => (Severity::Note, format!("less than {before} % full: {room}")),
            };
            let next_step = if is_rising { context.making_room() } else { String::new() };
            let mut details = space_json(space);
            details["percent"] = now.into();
            details["percent_before"] = before.into();
            say("alarm", severity, text, next_step, details)
        }
        EventKind::WriteRefusal { space, snapshots } => {
            let mut details = space_json(space);
            if let Some(snapshots) = snapshots {
                details["snapshot_room"] =
                    snapshots.iter().map(|room| json!(SnapshotRoomStatus::of(room))).collect();
            }
            let shown: Option<Vec<_>> =
                snapshots.as_ref().map(|snapshots| snapshots.iter().map(SnapshotRoomStatus::of).collect());
            say(
                "writes_refused",
                Severity::Error,
                format!("writes are refused for want of room: {}", room(space)),
                match shown {
                    Some(snapshots) => {
                        let drive = context.adding("give the pool another drive");
                        format!("{}, or {drive}", room_to_make(&snapshots))
                    }
                    None => context.making_room(),
                },
                details,
            )
        }
        EventKind::WriteAdmission { space } => say(
            "writes_admitted",
            Severity::Note,
            format!("writes are no longer refused: {}", room(space)),
            String::new(),
            space_json(space),
        ),
        EventKind::LogPinLoss { bytes } => say(
            "log_pin_lost",
            Severity::Warning,
            format!(
                "hosts ran short of space: {} of log are no longer kept for a replica",
                ByteCount(*bytes)
            ),
            "the replica catches up by comparing snapshots".to_owned(),
            json!({ "bytes": bytes }),
        ),
        EventKind::ScrubFindings { repaired, lost_places } => {
            let is_lost = *lost_places > 0;
            say(
                "scrub_findings",
                if is_lost { Severity::Error } else { Severity::Warning },
                format!(
                    "scrub: {repaired} wrong copies were rewritten; {lost_places} places have no right copy"
                ),
                if is_lost {
                    format!("'{}' names them once this process has ended", context.verb("scrub"))
                } else {
                    "look at the drives' own health".to_owned()
                },
                json!({ "mended": repaired, "lost_places": lost_places }),
            )
        }
        EventKind::VolumeImported { volume, compared_bytes, read_back_bytes, host_bytes, given_up_bytes } => {
            say(
                "volume_imported",
                if *given_up_bytes > 0 { Severity::Warning } else { Severity::Note },
                format!(
                    "volume {volume} is imported, and its source is let go: {} compared{}, {} written by hosts meanwhile{}",
                    ByteCount(*compared_bytes),
                    match read_back_bytes {
                        0 => String::new(),
                        bytes => format!(", {} read back alone", ByteCount(*bytes)),
                    },
                    ByteCount(*host_bytes),
                    match given_up_bytes {
                        0 => String::new(),
                        bytes => format!(", {} given up", ByteCount(*bytes)),
                    }
                ),
                String::new(),
                json!({
                    "volume": volume, "compared_bytes": compared_bytes,
                    "read_back_bytes": read_back_bytes, "host_bytes": host_bytes, "given_up_bytes": given_up_bytes,
                }),
            )
        }
        EventKind::TaskFailure { task, error, is_retried } => say(
            "task_failed",
            if *is_retried { Severity::Warning } else { Severity::Error },
            format!("{task} ended on an error: {error}"),
            if *is_retried {
                "it is tried again".to_owned()
            } else {
                "it runs again when the pool is opened again".to_owned()
            },
            json!({ "task": task.to_string(), "reason": error.to_string(), "is_retried": is_retried }),
        ),
        EventKind::Stop { error } => say(
            "pool_stopped",
            Severity::Error,
            format!("the pool stopped: {error}; nothing is written any more"),
            "check the drives, then end this process and begin it again; erase nothing".to_owned(),
            json!({ "reason": error.to_string() }),
        ),
        EventKind::Overflow { events } => say(
            "events_missed",
            Severity::Warning,
            format!("{events} events came faster than they could be printed, and were dropped"),
            format!("'{}' has the present state", context.verb("show")),
            json!({ "events": events }),
        ),
    }
}

fn redundancy_lost(lost: &RedundancyStatus, context: &PoolContext) -> EventWords {
    let mut parts = Vec::new();
    if lost.segments > 0 {
        let (bytes, single) = (ByteCount(lost.bytes), ByteCount(lost.single_copy_bytes));
        parts.push(format!(
            "{} segments ({bytes}) have fewer than {}, {single} of it one copy",
            lost.segments,
            copies(lost.copies)
        ));
    }
    if lost.lost_raid0_segments > 0 {
        parts.push(format!("{} segments of raid0 volumes went with their drive", lost.lost_raid0_segments));
    }
    let next_step = if lost.drives >= usize::from(lost.copies) {
        let when = match lost.copies_wait.as_secs() {
            0 => String::new(),
            seconds => format!(" in {seconds} s, if no drive that is away comes back before,"),
        };
        format!(
            "missing copies are made{when} on the other drives while there is room; {}",
            context.adding("give the pool another drive")
        )
    } else {
        context.adding("the next loss takes data; give the pool another drive")
    };
    EventWords {
        event: "redundancy_lost",
        severity: Severity::Error,
        text: format!("redundancy lost: {}", parts.join("; ")),
        next_step,
        details: redundancy_json(lost),
    }
}

fn sparing_changed(sparing: Sparing, context: &PoolContext) -> EventWords {
    let (kept, wanted) = (sparing.kept_drives, sparing.level.drives());
    let (severity, next_step) = if sparing.is_spent() {
        (Severity::Warning, context.adding("the next drive that is added gives it back"))
    } else {
        (Severity::Note, String::new())
    };
    EventWords {
        event: "sparing_changed",
        severity,
        text: format!("room is kept for {kept} lost drives of {wanted}"),
        next_step,
        details: json!({ "level": level_name(sparing.level), "kept_drives": kept }),
    }
}

fn copies(count: u8) -> String {
    if count == 1 { "1 copy".to_owned() } else { format!("{count} copies") }
}

fn room(space: &PoolSpace) -> String {
    format!("{} used of {}", ByteCount(space.used_bytes), ByteCount(space.usable_bytes))
}

fn space_json(space: &PoolSpace) -> Value {
    json!({ "used_bytes": space.used_bytes, "usable_bytes": space.usable_bytes })
}

fn redundancy_json(redundancy: &RedundancyStatus) -> Value {
    json!({
        "copies": redundancy.copies,
        "drives_in_use": redundancy.drives,
        "segments": redundancy.segments,
        "bytes": redundancy.bytes,
        "single_copy_bytes": redundancy.single_copy_bytes,
        "lost_raid0_segments": redundancy.lost_raid0_segments,
        "copies_wait_s": redundancy.copies_wait.as_secs(),
    })
}

fn drive_json(drive: &DriveName, context: &PoolContext) -> Value {
    json!({
        "name": context.drive(drive),
        "path": context.known(drive).map(|known| &known.path),
        "serial": drive.serial,
        "uuid": drive.drive.to_string(),
    })
}

impl PoolContext {
    fn known(&self, drive: &DriveName) -> Option<&KnownDrive> {
        self.drives.iter().find(|known| match known.drive {
            Some(id) => id == drive.drive,
            None => known.given.is_some() && drive.given == known.given,
        })
    }

    /// The name of a drive if it is known, else its serial.
    fn drive(&self, drive: &DriveName) -> String {
        match self.known(drive) {
            Some(known) => known.name.clone(),
            None if drive.serial.is_empty() => drive.drive.to_string(),
            None => drive.serial.clone(),
        }
    }

    /// A verb of pools as a command.
    fn verb(&self, verb: &str) -> String {
        format!("spindle pool {verb} {}", self.pool())
    }

    fn pool(&self) -> String {
        self.folder.as_ref().map_or("POOL".to_owned(), |folder| folder.display().to_string())
    }

    /// Advice to add a drive, with the command.
    fn adding(&self, why: &str) -> String {
        let pool = self.pool();
        if self.is_of_files() {
            format!("{why}: spindle pool add-drive {pool} --size SIZE")
        } else {
            format!("{why}: spindle pool add-drive {pool} --device DEVICE")
        }
    }

    /// True if its drives are files in its folder.
    fn is_of_files(&self) -> bool {
        let is_file = |folder: &PathBuf| self.drives.iter().all(|drive| drive.path.starts_with(folder));
        !self.drives.is_empty() && self.folder.as_ref().is_some_and(is_file)
    }

    fn making_room(&self) -> String {
        format!("delete snapshots or data, or {}", self.adding("give the pool another drive"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use array::format::MemberIndex;
    use world::{IoError, IoErrorKind, WallTime};

    fn context() -> PoolContext {
        PoolContext {
            folder: Some("mail".into()),
            name: "mail".to_owned(),
            drives: vec![known(Some(DriveId([1; 16])), None, "a"), known(None, Some(0), "b")],
        }
    }

    fn known(drive: Option<DriveId>, given: Option<usize>, file: &str) -> KnownDrive {
        let path = PathBuf::from(format!("mail/{file}"));
        KnownDrive { drive, given, name: path.display().to_string(), path }
    }

    fn lost(drive: u8, given: Option<usize>) -> EventReport {
        let (member, drive) = (MemberIndex(0), DriveId([drive; 16]));
        let drive = DriveName { member, drive, serial: "Z1Z0".to_owned(), given };
        let error = IoError::new(IoErrorKind::Medium, "flushing it: Input/output error");
        let kind = EventKind::DriveLoss { drive, error };
        let time = WallTime { seconds: 1_795_298_700, nanos: 0 };
        EventReport::new(&PoolEvent { number: 0, time, kind }, &context())
    }

    #[test]
    fn a_lost_drive_is_named_with_its_reason_and_the_next_step() {
        let report = lost(1, Some(3));
        assert_eq!(
            report.line(),
            "mail: drive mail/a lost: flushing it: Input/output error; keep it as it is until nothing \
             lacks a copy (spindle pool show mail); give the pool another: spindle pool add-drive mail --size SIZE"
        );
        assert_eq!(report.time, "2026-11-21T22:05:00Z");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((&json["event"], &json["severity"]), (&"drive_lost".into(), &"error".into()));
        assert_eq!(json["drive"]["uuid"], "01010101-0101-0101-0101-010101010101");
        assert_eq!(json["reason"], "flushing it: Input/output error");
    }

    #[test]
    fn a_drive_is_known_by_its_uuid_else_by_its_place_else_by_its_serial() {
        assert!(lost(2, Some(0)).text.starts_with("drive mail/b lost: "));
        assert!(lost(2, None).text.starts_with("drive Z1Z0 lost: "));
    }
}

//! Kinds of the events that pools report themselves (`serving::pool::events`).

use super::{
    Haste::{self, Morning, NoStep, Now},
    ReportedKind, occurrence,
};
use report::Severity::{self, Error, Note, Warning};

const NOTHING: &str = "Nothing changes.";
const STAYS: &str = "It stays so.";

const fn told(
    name: &'static str,
    severity: Severity,
    when: &'static str,
    [for_mail, spindle, until]: [&'static str; 3],
    next_step: &'static str,
    haste: Haste,
) -> ReportedKind {
    occurrence(name, severity, when, [for_mail, spindle, until, next_step], haste)
}

const fn noted(name: &'static str, when: &'static str, spindle: &'static str) -> ReportedKind {
    told(name, Note, when, [NOTHING, spindle, STAYS], "Nothing.", NoStep)
}

const fn covered(topic: &'static str, kind: ReportedKind) -> ReportedKind {
    ReportedKind { covered_by: Some(topic), ..kind }
}

/// In the order of `serving::pool::events::EVENT_NAMES`.
pub(super) const POOL_KINDS: &[ReportedKind] = &[
    covered(
        "drive",
        told(
            "drive_lost",
            Error,
            "A drive failed while it was used, or was missing when the pool was opened.",
            [
                "Mail goes on from the other copies, and may be slower. Volumes of raid0 on that drive have lost data.",
                "It makes the missing copies on the other drives while there is room.",
                "Until nothing lacks a copy.",
            ],
            "Keep the drive as it is; give the pool another: 'spindle pool add-drive POOL'.",
            Morning,
        ),
    ),
    covered(
        "drive",
        told(
            "drive_stale",
            Warning,
            "A drive is connected, and the pool was written without it.",
            ["Mail goes on from the other copies.", "It does not use the drive.", "Until it is readmitted."],
            "Do not erase it: 'spindle pool readmit POOL DRIVE' copies what changed.",
            Morning,
        ),
    ),
    told(
        "drive_out_of_space",
        Error,
        "A drive in a file, or a thin one, has no room for what the pool writes to it.",
        [
            "Mail goes on while the other drives have room; then writes wait and fail.",
            "It reads from the drive, writes elsewhere, and tries again.",
            "Until there is room where the drive lies.",
        ],
        "Make room where it lies.",
        Now,
    ),
    noted("drive_back", "A drive that was out of space takes writes again.", "It uses the drive."),
    noted("drive_added", "A drive was added.", "It uses the drive."),
    noted(
        "drive_leaving",
        "A drive is to leave the pool.",
        "It copies what lies on the drive to the others.",
    ),
    told(
        "drive_left",
        Note,
        "A drive has left the pool.",
        [NOTHING, "It does not use the drive any more.", STAYS],
        "Take the drive out when it suits you.",
        Morning,
    ),
    noted(
        "format_raised",
        "A pool was upgraded to a newer format.",
        "It can use what the new format brings.",
    ),
    noted("drive_kept", "A drive that was to leave is kept.", "It uses the drive."),
    noted("drive_forgotten", "A lost drive is no member any more.", "It needs nothing that lies there."),
    covered(
        "redundancy",
        told(
            "redundancy_lost",
            Error,
            "Data has fewer copies than it should have.",
            [
                "Mail goes on. Another drive that fails now may take data with it.",
                "It makes the missing copies on the other drives while there is room.",
                "Until all copies are there.",
            ],
            "Touch no drive of the pool until then.",
            Morning,
        ),
    ),
    told(
        "sparing_changed",
        Warning,
        "Room for lost drives is kept, was spent by a loss, or is given up.",
        [
            NOTHING,
            "It keeps as much room as the pool has.",
            "Until another drive is added, if room was spent.",
        ],
        "Add a drive if room was spent: 'spindle pool add-drive POOL'.",
        Morning,
    ),
    told(
        "domains_shared",
        Warning,
        "All copies of some data lie in one failure domain.",
        [
            "Mail goes on. If that domain fails, this data is lost.",
            "It moves the copies apart when another domain has room.",
            "Until they are apart.",
        ],
        "Give another domain a drive: 'spindle pool add-drive POOL --domain NAME'.",
        Morning,
    ),
    noted("domains_apart", "All copies lie in different failure domains again.", "It is done."),
    told(
        "sets_spanned",
        Warning,
        "Copies of some data lie across failure sets.",
        [
            "Mail goes on. Two drives of different sets that fail together may take data.",
            "It moves the copies into one set as far as there is room.",
            "Until each lies in one set.",
        ],
        "Add a drive if it has no room.",
        Morning,
    ),
    noted("sets_kept", "All copies of each segment lie in one failure set again.", "It is done."),
    noted("sets_changed", "Drives are divided into another number of failure sets.", "It moves copies."),
    noted("levelling_started", "Drives are being levelled.", "It moves data, and lets hosts go first."),
    noted("levelling_ended", "Levelling has ended for now.", "It is done, or waits."),
    covered("redundancy", noted("redundancy_whole", "All data has all of its copies again.", "It is done.")),
    covered(
        "space",
        told(
            "alarm",
            Warning,
            "A pool's use crosses 80, 90, 95 or 100 %, upwards or downwards.",
            [
                "Nothing changes below 95 %. At 100 % writes are refused.",
                "It frees the space of deleted snapshots.",
                "Until the use falls.",
            ],
            "Delete snapshots or data, or add a drive.",
            Morning,
        ),
    ),
    told(
        "writes_refused",
        Error,
        "Writes of hosts are refused for want of room.",
        [
            "Mail on this pool stands still: databases stop when a write fails.",
            "It refuses writes, and serves reads.",
            "Until there is room.",
        ],
        "Delete snapshots now, the oldest first, or add a drive; then mount the databases again.",
        Now,
    ),
    told(
        "writes_admitted",
        Note,
        "Writes are no longer refused.",
        ["Databases can be mounted again.", "It serves writes.", STAYS],
        "See that the mail servers have mounted their databases.",
        Now,
    ),
    told(
        "log_pin_lost",
        Warning,
        "Hosts ran short of space, so the log is no longer kept for a replica.",
        [NOTHING, "The replica catches up by comparing snapshots.", "Until it has caught up."],
        "Nothing, if it happens once; more room if it happens again.",
        Morning,
    ),
    told(
        "scrub_findings",
        Warning,
        "A scrub found wrong copies, or places without a right copy (then it is an error).",
        [
            "Nothing changes if all were rewritten. A place without a right copy cannot be read.",
            "It rewrote each wrong copy from a right one.",
            STAYS,
        ],
        "Look at the drives' own health (smartctl). If places are lost, 'spindle pool scrub POOL' names them, once the server has ended: restore those databases.",
        Morning,
    ),
    noted(
        "volume_imported",
        "An import has ended; with blocks that were given up it is a warning.",
        "It needs the source no more.",
    ),
    told(
        "task_failed",
        Warning,
        "A background task of a pool ended on an error.",
        ["Nothing changes now.", "It tries again, unless the event says otherwise.", "Until it succeeds."],
        "Do what the reason asks for.",
        Morning,
    ),
    covered(
        "pool",
        told(
            "pool_stopped",
            Error,
            "A pool has stopped on an error.",
            [
                "Mail on this pool stands still.",
                "It writes nothing any more; every acknowledged write is stable.",
                "Until the server is started again.",
            ],
            "Check the drives, then restart the server; erase nothing.",
            Now,
        ),
    ),
    told(
        "events_missed",
        Warning,
        "Events of a pool came faster than they could be recorded.",
        [NOTHING, "It counted what it could not record.", STAYS],
        "'spindle pool show POOL' has the present state.",
        Morning,
    ),
];

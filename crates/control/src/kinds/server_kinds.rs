//! Kinds of the server's own events, and all conditions.

use super::{
    Haste::{self, Morning, NoStep, Now},
    KindCourse, ReportedKind,
};
use report::Severity::{self, Error, Note, Warning};

const NOTHING: &str = "Nothing changes.";
const GOES_ON: &str = "It goes on as before.";

const fn condition(
    name: &'static str,
    topic: &'static str,
    severity: Severity,
    when: &'static str,
    [for_mail, spindle, until, next_step]: [&'static str; 4],
    haste: Haste,
) -> ReportedKind {
    let course = KindCourse::Condition(topic);
    ReportedKind {
        name,
        severity,
        course,
        when,
        for_mail,
        spindle,
        until,
        next_step,
        haste,
        covered_by: None,
    }
}

const fn occurrence(
    name: &'static str,
    severity: Severity,
    when: &'static str,
    [for_mail, spindle, until, next_step]: [&'static str; 4],
    haste: Haste,
) -> ReportedKind {
    let course = KindCourse::Occurrence;
    ReportedKind {
        name,
        severity,
        course,
        when,
        for_mail,
        spindle,
        until,
        next_step,
        haste,
        covered_by: None,
    }
}

/// Conditions, then occurrences.
pub(super) const SERVER_KINDS: &[ReportedKind] = &[
    condition(
        "space_80",
        "space",
        Warning,
        "A pool is 80 % full; it ends below 78 %.",
        [
            "Nothing changes yet. At 100 % writes are refused, and mail databases on the pool stop.",
            "It frees the space of deleted snapshots, and goes on taking those of schedules.",
            "Until the pool is below 78 % full, or 90 %, which is reported again.",
            "Delete snapshots or data, or add a drive: 'spindle pool add-drive POOL'.",
        ],
        Morning,
    ),
    condition(
        "space_90",
        "space",
        Warning,
        "A pool is 90 % full.",
        [
            "Nothing changes yet, but cleaning works harder and writes may become slower. At 100 % writes are refused, and mail databases on the pool stop.",
            "It frees the space of deleted snapshots, and goes on taking those of schedules.",
            "Until the pool is below 88 % full, or 95 %, which is reported again.",
            "Delete snapshots or data today, or add a drive: 'spindle pool add-drive POOL'.",
        ],
        Morning,
    ),
    condition(
        "space_95",
        "space",
        Error,
        "A pool is 95 % full.",
        [
            "Writes are slower. At 100 % they are refused, and mail databases on the pool stop: that may be hours away.",
            "It delays writes near its reserve, so that cleaning keeps up.",
            "Until the pool is below 93 % full.",
            "Delete snapshots now, the oldest first: 'spindle volume list POOL', 'spindle volume delete POOL/VOLUME@SNAPSHOT'; or add a drive.",
        ],
        Now,
    ),
    condition(
        "drive_failed",
        "drive",
        Error,
        "A drive of a pool is missing, failed, or out of date.",
        [
            "Mail goes on from the other copies, and may be slower. Volumes of raid0 on that drive have lost data.",
            "It makes the missing copies on the other drives while there is room.",
            "Until the drive is back, replaced or forgotten.",
            "Keep the drive as it is; see 'spindle pool show POOL'. Then 'spindle pool readmit POOL DRIVE' if it is well, or 'spindle pool replace POOL DRIVE'.",
        ],
        Morning,
    ),
    condition(
        "drive_slow",
        "slow",
        Warning,
        "A drive takes 4 times as long as the median drive of its pool, and 20 ms at least, for two minutes.",
        [
            "Reads wait for the other copy where there is one; writes wait for the slow drive.",
            "It reads from other copies when a drive takes longer than 250 ms.",
            "Until the drive is below twice the median for two minutes.",
            "Look at the drive's own health (smartctl), and take it out in advance: 'spindle pool retire POOL DRIVE'.",
        ],
        Morning,
    ),
    condition(
        "drive_warned",
        "warned",
        Warning,
        "'spindle drive warn' said so, as smartd does.",
        [
            "Nothing changes while the drive works.",
            "It uses the drive as before.",
            "Until the drive has left the pool.",
            "Take it out in advance: 'spindle pool retire POOL DRIVE', after 'spindle pool add-drive POOL' if there is no room.",
        ],
        Morning,
    ),
    condition(
        "redundancy_reduced",
        "redundancy",
        Error,
        "Data in a pool has fewer copies than it should have.",
        [
            "Mail goes on. Another drive that fails now may take data with it.",
            "It makes the missing copies on the other drives while there is room.",
            "Until all copies are there: 'spindle pool show POOL' has the time left.",
            "Touch no drive of the pool until then; give the pool another drive if it has no room.",
        ],
        Morning,
    ),
    condition(
        "data_missing",
        "data",
        Error,
        "Segments of raid0 volumes lie on drives that are not there.",
        [
            "Reads of those parts of raid0 volumes fail; mail databases on them are damaged.",
            "It serves the rest.",
            "Until the drive is back, or the volume is deleted.",
            "Connect the drive again; else restore the volume's database from a copy or a backup.",
        ],
        Now,
    ),
    condition(
        "rebuild",
        "rebuild",
        Note,
        "Missing copies are being made.",
        [
            "Mail may be slower.",
            "It copies what has lost a copy, and lets hosts go first.",
            "Until nothing lacks a copy: 'spindle pool show POOL' has the time left.",
            "Nothing.",
        ],
        NoStep,
    ),
    condition(
        "pool_failed",
        "pool",
        Error,
        "A pool that was served has stopped.",
        [
            "Mail on this pool stands still: its volumes cannot be read or written.",
            "It serves the other pools. Every write that it acknowledged is stable.",
            "Until the server is started again.",
            "Check the pool's drives, then restart the server ('systemctl restart spindle'); erase nothing.",
        ],
        Now,
    ),
    condition(
        "pool_not_open",
        "pool",
        Error,
        "A pool of the site file did not open, or is not as the file says.",
        [
            "Mail on this pool stands still: its volumes are not there for their hosts.",
            "It serves the other pools.",
            "Until the pool can be opened; a reload (SIGHUP) or a start tries it again.",
            "Do what the reason asks for: usually a drive or a file system is missing. Then 'spindle apply SITE', or restart the server.",
        ],
        Now,
    ),
    condition(
        "schedule_missed",
        "schedule",
        Warning,
        "Snapshots of a schedule are not taken, or not pruned.",
        [
            "Nothing changes for mail; there are fewer snapshots to go back to.",
            "It tries again every minute, and makes up one missed snapshot.",
            "Until a snapshot was taken again.",
            "Do what the reason asks for: room in the pool, or the volume that the schedule names.",
        ],
        Morning,
    ),
    condition(
        "logins_failing",
        "logins",
        Warning,
        "Ten logins or tokens of one source failed within a minute.",
        [
            "Hosts that are logged in go on. A mail server whose secret is wrong has no disks.",
            "It refuses them; wrong tokens wait a minute.",
            "Until none has failed for ten minutes.",
            "Find out who it is: 'spindle event' has the addresses. Correct the secret of that host, or block the address.",
        ],
        Morning,
    ),
    condition(
        "certificate_expiring",
        "certificate",
        Warning,
        "A certificate of the site file expires within 30 days.",
        [
            "Nothing changes until then; after that, clients over TLS are refused, with what lies on their exports.",
            "It serves with the certificate that it has.",
            "Until the server is started with a newer one.",
            "Put a new certificate in its place, and restart the server at a quiet time.",
        ],
        Morning,
    ),
    condition(
        "certificate_expired",
        "certificate",
        Error,
        "A certificate of the site file has expired.",
        [
            "Clients over TLS refuse this server when they connect: mail on those exports stands still after the next break.",
            "It serves those that are connected.",
            "Until the server is started with a newer one.",
            "Put a new certificate in its place, and restart the server.",
        ],
        Now,
    ),
    condition(
        "on_battery",
        "power",
        Warning,
        "'spindle power on-battery' said so.",
        [
            "Mail goes on, and writes are slower: write caches are off.",
            "It answers writes only when they are stable, and flushes what was not.",
            "Until 'spindle power on-line'.",
            "Find out how long the battery lasts.",
        ],
        Now,
    ),
    condition(
        "battery_low",
        "power",
        Error,
        "'spindle power low' said so.",
        [
            "Mail stands still: no host is served.",
            "It has logged hosts out, and everything acknowledged is stable.",
            "Until 'spindle power on-line'.",
            "Shut the machine down, or bring the power back.",
        ],
        Now,
    ),
    condition(
        "site_file_broken",
        "site_file",
        Warning,
        "A reload (SIGHUP) found an error in the site file.",
        [
            NOTHING,
            "It serves the site as it was applied last. A restart would not start with this file.",
            "Until the file is applied without an error.",
            "Correct the file: 'spindle apply FILE --dry-run' shows the line.",
        ],
        Morning,
    ),
    condition(
        "notifier_failing",
        "notifier",
        Warning,
        "A notifier could not deliver for a minute.",
        [
            "Nothing changes for mail, but nobody may hear of what happens.",
            "It tries again and again, at most 5 minutes apart, and keeps what is not delivered, in order; the second channel takes over after its time.",
            "Until a message was delivered.",
            "Do what the reason asks for; 'spindle event test NOTIFIER' tries it.",
        ],
        Morning,
    ),
    condition(
        "events_not_kept",
        "journal",
        Warning,
        "Events cannot be written to the journal.",
        [
            "Nothing changes for mail.",
            "It keeps events in memory, and notifiers go on. A crash would lose these events, and may deliver some twice.",
            "Until they can be written.",
            "Make room where the server's state folder lies.",
        ],
        Morning,
    ),
    occurrence(
        "server_started",
        Note,
        "The server has started, and hosts are accepted.",
        ["Hosts find their disks.", "It serves.", "It stays so.", "Nothing."],
        NoStep,
    ),
    occurrence(
        "server_stopped",
        Note,
        "The server ends because it was told to.",
        [
            "Mail on its volumes stands still.",
            "It has logged hosts out; all acknowledged writes are stable.",
            "Until it is started.",
            "Start it when it is wanted.",
        ],
        NoStep,
    ),
    occurrence(
        "server_killed",
        Warning,
        "The server starts, and had not ended in order before: killed, crashed, or a power cut.",
        [
            "Mail stood still while it was down. Nothing that was acknowledged is lost.",
            "It has recovered its pools.",
            "It stays so.",
            "Find out why: 'journalctl -u spindle', and the power.",
        ],
        Morning,
    ),
    ReportedKind {
        covered_by: Some("logins"),
        ..occurrence(
            "login_failed",
            Note,
            "A login of an initiator or a client, or a token, was refused.",
            [
                "A host with a wrong secret has no disks.",
                "It refuses it, and says so once more if it happens often.",
                "It stays so.",
                "If it is one of your hosts, correct its name, secret or rights.",
            ],
            Morning,
        )
    },
    occurrence(
        "notices_lost",
        Warning,
        "More happened than could be recorded.",
        [
            NOTHING,
            "It counted what it could not record.",
            "It stays so.",
            "'spindle pool show POOL' and 'spindle event conditions' have the present state.",
        ],
        Morning,
    ),
    occurrence(
        "test",
        Note,
        "'spindle event test' was called.",
        [NOTHING, "It sent this to see whether it arrives.", "It stays so.", "Nothing."],
        NoStep,
    ),
    occurrence(
        "warning",
        Warning,
        "A line of one of the server's threads, without a kind of its own.",
        ["See the line.", GOES_ON, "It stays so.", "Read the line."],
        Morning,
    ),
    occurrence(
        "note",
        Note,
        "A line of one of the server's threads, without a kind of its own.",
        [NOTHING, GOES_ON, "It stays so.", "Nothing."],
        NoStep,
    ),
];

//! Labels of files, states and findings, for people and for JSON.

use crate::{
    FileFinding, FileKind, FilePart, SpindleKind,
    database::{ChecksumForm, DatabaseFacts, HeaderCopyState, PageTally},
    log::{LogFacts, LogFormat},
    running::{Completion, Coverage, FileOutcome},
    set::{FileContents, Recoverability},
};
use maildb::{
    PageSize,
    format::header::{DatabaseState, LogPosition},
    verify::StampsVerdict,
};
use report::prose::{counted, number};

/// A kind of file, for people.
pub fn kind(file: &FileOutcome) -> &'static str {
    match file.kind {
        FileKind::Database => "database",
        FileKind::TemporaryDatabase => "temporary database",
        FileKind::Log => "log",
        FileKind::Blank => "prepared log",
        FileKind::Checkpoint => "checkpoint",
        FileKind::FlushMap => "flush map",
        FileKind::RevertSnapshot => "revert snapshot",
        FileKind::Spindle(SpindleKind::PageStamps) => "page stamps",
        FileKind::Spindle(SpindleKind::FlushJournal) => "flush journal",
        FileKind::Unknown => "not known",
    }
}

/// A kind of file, for programs.
pub fn kind_id(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Database => "database",
        FileKind::TemporaryDatabase => "temporary_database",
        FileKind::Log => "log",
        FileKind::Blank => "blank",
        FileKind::Checkpoint => "checkpoint",
        FileKind::FlushMap => "flush_map",
        FileKind::RevertSnapshot => "revert_snapshot",
        FileKind::Spindle(SpindleKind::PageStamps) => "page_stamps",
        FileKind::Spindle(SpindleKind::FlushJournal) => "flush_journal",
        FileKind::Unknown => "unknown",
    }
}

/// A part of a file, for programs: what it is, and its number.
pub fn part_id(part: FilePart) -> (&'static str, Option<u64>) {
    match part {
        FilePart::File => ("file", None),
        FilePart::HeaderCopy(copy) => ("header", Some(copy.into())),
        FilePart::Page(page) => ("page", Some(page.0.into())),
        FilePart::MapPage(page) => ("map_page", Some(page.into())),
        FilePart::Segment(segment) => ("segment", Some(segment.into())),
        FilePart::Sector(sector) => ("sector", Some(sector.into())),
        FilePart::Bytes => ("bytes", None),
    }
}

/// Amount checked, in a line.
pub fn looked_at(file: &FileOutcome) -> String {
    match &file.coverage {
        Coverage::Database(check) => {
            let mut parts = vec![pages(&check.pages)];
            if let StampsVerdict::Checked { pages_known } = check.stamps {
                parts.push(format!("{} held against their stamps", counted(pages_known.into(), "page")));
            }
            if let Some(walked) = &check.walked {
                let trees = counted(walked.trees, "tree");
                parts.push(format!("{trees} of {} walked", counted(walked.records, "record")));
            }
            parts.join("; ")
        }
        Coverage::Log(tally) => {
            let of = match &file.facts {
                Some(FileContents::Log(LogFacts { format: LogFormat::Sectors, .. })) => "sector",
                _ => "segment",
            };
            let written = tally.good + tally.repairable + tally.damaged;
            let mut text =
                format!("{} in use, {} empty", counted(written, of), number(tally.empty as f64, 0));
            if tally.stale > 0 {
                text += &format!(", {} of an earlier use", number(tally.stale as f64, 0));
            }
            if tally.records > 0 {
                text += &format!("; {}", counted(tally.records, "record"));
            }
            text
        }
        Coverage::FlushMap(tally) => counted(tally.good + tally.blank + tally.damaged, "page"),
        Coverage::Header => "its header".to_owned(),
        Coverage::Blank => "all zero".to_owned(),
        Coverage::Nothing => String::new(),
    }
}

fn pages(tally: &PageTally) -> String {
    let mut text = counted(tally.pages(), "page");
    let mut of = Vec::new();
    for (count, what) in
        [(tally.blank, "blank"), (tally.slack, "behind its end"), (tally.torn, "torn, to be restored")]
    {
        if count > 0 {
            of.push(format!("{} {what}", number(count as f64, 0)));
        }
    }
    if !of.is_empty() {
        text += &format!(" ({})", of.join(", "));
    }
    text
}

/// Format and state of a file in a line; may be empty.
pub fn facts(facts: Option<&FileContents>) -> String {
    match facts {
        Some(FileContents::Database(database)) => database_facts(database),
        Some(FileContents::Log(log)) => {
            let circular = if log.is_circular { ", circular logging" } else { "" };
            format!("generation {:#x}, format {}{circular}", log.generation, log.version)
        }
        Some(FileContents::Checkpoint(checkpoint)) => {
            format!("recovery begins at {}", position(checkpoint.position))
        }
        _ => String::new(),
    }
}

/// Log position as the engine writes it: generation, segment, byte.
pub fn position(position: LogPosition) -> String {
    format!("{:X},{:X},{:X}", position.generation, position.segment, position.offset)
}

fn database_facts(database: &DatabaseFacts) -> String {
    let state = match database.state {
        Some(state) => state_word(state).to_owned(),
        None => format!("state {}", database.state_number),
    };
    let repaired = if database.repairs > 0 { ", repaired before" } else { "" };
    format!("{state}, pages of {}, format {}{repaired}", page_size(database.page_size), database.version)
}

/// A page size: `32 KiB`.
pub fn page_size(size: PageSize) -> String {
    format!("{} KiB", size.bytes() / 1024)
}

/// The state of a database in the words of its engine.
pub fn state_word(state: DatabaseState) -> &'static str {
    match state {
        DatabaseState::JustCreated => "just created",
        DatabaseState::DirtyShutdown => "dirty shutdown",
        DatabaseState::CleanShutdown => "clean shutdown",
        DatabaseState::BeingConverted => "being converted",
        DatabaseState::ForceDetached => "detached by force",
        DatabaseState::IncrementalReseed => "being reseeded page by page",
        DatabaseState::DirtyAndPatched => "dirty, with pages patched in",
        DatabaseState::Reverting => "being reverted to a snapshot",
    }
}

/// Result of a file, for JSON.
pub fn result_id(file: &FileOutcome) -> &'static str {
    use crate::FindingSeverity;
    match &file.completion {
        _ if file.is_damaged() => "damaged",
        Completion::Failed(_) => "failed",
        Completion::Stopped(_) => "stopped",
        Completion::Whole if file.skip_reason().is_some() => "passed_over",
        Completion::Whole if file.findings.count(FindingSeverity::Warning) > 0 => "warned",
        Completion::Whole => "clean",
    }
}

/// Forms of checksums that pages were found with.
pub fn forms(tally: &PageTally) -> impl Iterator<Item = (ChecksumForm, u64)> {
    let forms = [ChecksumForm::Xor, ChecksumForm::Ecc, ChecksumForm::FourPart];
    forms.into_iter().zip(tally.good).filter(|(_, count)| *count > 0)
}

/// A copy of a header, for programs.
pub fn copy_id(copy: HeaderCopyState) -> &'static str {
    match copy {
        HeaderCopyState::Good => "good",
        HeaderCopyState::Bad => "bad",
        HeaderCopyState::Absent => "absent",
    }
}

/// Recoverability of a database, for people.
pub fn recovery(recovery: &Recoverability) -> String {
    match recovery {
        Recoverability::NotNeeded => "it was shut down cleanly, and needs no log".to_owned(),
        Recoverability::Possible { required: (first, last) } if first == last => {
            format!("it can be recovered: the log it needs, {first:X}, is there and whole")
        }
        Recoverability::Possible { required: (first, last) } => {
            format!("it can be recovered: the logs it needs, {first:X} to {last:X}, are there and whole")
        }
        Recoverability::Impossible { missing, why } if missing.is_empty() => {
            format!("it cannot be recovered: {why}")
        }
        Recoverability::Impossible { missing, why } => {
            format!("it cannot be recovered: {why}; missing: {}", shortened(missing))
        }
    }
}

/// The first few of many names.
pub fn shortened(names: &[String]) -> String {
    const SHOWN: usize = 8;
    match names.len() {
        0..=SHOWN => names.join(", "),
        all => format!("{} and {} more", names[..SHOWN].join(", "), all - SHOWN),
    }
}

/// A finding with the file it is in, for people.
pub fn finding(file: &str, finding: &FileFinding) -> String {
    match finding.place.part {
        FilePart::File => format!("{file}: {}", finding.what),
        part => {
            let bit = finding.fix.map(|fix| format!("; bit {} of byte {} is flipped", fix.bit, fix.byte.0));
            let at = finding.place.offset.0;
            format!("{file}, {part} (byte {at}): {}{}", finding.what, bit.unwrap_or_default())
        }
    }
}

//! Tables of a verification: recovery, files, pages outside files, tables of databases.

use super::{document::shown, labels};
use crate::{
    FileKind, FindingSeverity,
    running::{Completion, Coverage, FileOutcome, ScanOutcome, VerifyOutcome},
    set::{FileContents, Recoverability},
};
use report::{
    Cell, Column, Mark, Section, Table, Unit,
    prose::{counted, number},
};
use std::path::PathBuf;

/// Tables shown of one database.
const TABLES_SHOWN: usize = 20;
/// Clean logs in a row that are shown as one.
const LOGS_IN_A_ROW_MIN: usize = 4;
/// Runs of pages without a header that are shown; JSON has more.
const PIECES_SHOWN: usize = 30;

/// Pages without a header before them.
pub(super) fn pieces(scanned: &ScanOutcome) -> Section {
    let columns = [
        Column::number("At byte", Unit::One),
        Column::text("Page size"),
        Column::text("Pages"),
        Column::number("Found", Unit::One),
    ];
    let mut table = Table::new("", columns);
    for piece in scanned.placements.iter().take(PIECES_SHOWN) {
        let (first, last) = piece.pages;
        table.push([
            Cell::count(piece.at.0),
            Cell::text(labels::page_size(piece.page_size)),
            Cell::text(format!("{first} to {last}")),
            Cell::count(piece.count),
        ]);
    }
    let pages: u64 = scanned.placements.iter().map(|piece| piece.count).sum();
    let mut intro = format!(
        "{} in {} have no header before them: they belong to files that were fragmented or deleted.",
        counted(pages, "page"),
        counted(scanned.placements.len() as u64, "run"),
    );
    if scanned.lone_segments > 0 {
        intro += &format!(" So do {} of logs.", counted(scanned.lone_segments, "segment"));
    }
    let hidden = scanned.placements.len().saturating_sub(PIECES_SHOWN) as u64 + scanned.more;
    if hidden > 0 {
        intro += &format!(" The first {PIECES_SHOWN} runs are shown, {} are not.", number(hidden as f64, 0));
    }
    let section = Section::new("Pages without a header", intro);
    if table.rows().is_empty() { section } else { section.block(table) }
}

pub(super) fn recovery(outcome: &VerifyOutcome, paths: &[PathBuf]) -> Option<Section> {
    let mut table =
        Table::new("", [Column::text(""), Column::text("Database"), Column::text("Can it be brought up?")]);
    for set in &outcome.sets {
        for database in &set.verdict.databases {
            let mark = match database.recovery {
                Recoverability::Impossible { .. } => Mark::Fail,
                _ => Mark::Pass,
            };
            let mut text = labels::recovery(&database.recovery);
            if let Some(logs_in) = &set.logs_in {
                text += &format!(" (its logs are in {})", logs_in.display());
            }
            let name = shown(&set.path_of(&database.name), paths);
            table.push([Cell::mark(mark), Cell::text(name), Cell::text(text)]);
        }
    }
    let is_dirty =
        |file: &FileOutcome| matches!(&file.facts, Some(FileContents::Database(facts)) if facts.is_dirty());
    let intro = if outcome.files.iter().any(is_dirty) {
        "A database that was not shut down cleanly is normal in a snapshot: its server brings it up from its logs."
    } else {
        ""
    };
    (!table.rows().is_empty()).then(|| Section::new("Recovery", intro).block(table))
}

pub(super) fn files(outcome: &VerifyOutcome, paths: &[PathBuf]) -> Section {
    let columns = [
        Column::text(""),
        Column::text("File"),
        Column::text("Kind"),
        Column::number("Size", Unit::One),
        Column::text("What it is"),
        Column::text("Looked at"),
    ];
    let mut table = Table::new("", columns);
    let mut at = 0;
    while at < outcome.files.len() {
        let run = match clean_logs(&outcome.files[at..]) {
            few @ ..LOGS_IN_A_ROW_MIN => few.min(1),
            many => many,
        };
        let file = &outcome.files[at];
        let last = &outcome.files[at + run.saturating_sub(1)];
        let name = shown(&file.path, paths);
        let (name, what) = match run {
            0 | 1 => (name, labels::facts(file.facts.as_ref())),
            _ => {
                let last_name = last.path.file_name().unwrap_or_default().to_string_lossy();
                (
                    format!("{name} to {last_name}"),
                    format!("{} one after the other", counted(run as u64, "file")),
                )
            }
        };
        let size: u64 = outcome.files[at..at + run.max(1)].iter().map(|file| file.size.0).sum();
        let looked_at = if run > 1 { "all of them".to_owned() } else { labels::looked_at(file) };
        table.push([
            Cell::mark(mark(file)),
            Cell::text(name),
            Cell::text(labels::kind(file)),
            Cell::bytes(size),
            Cell::text(what),
            Cell::text(looked_at),
        ]);
        at += run.max(1);
    }
    Section::new("Files", "").block(table)
}

/// Number of leading `files` that are clean logs of one folder, and share a row.
fn clean_logs(files: &[FileOutcome]) -> usize {
    let Some(folder) = files.first().map(|file| file.path.parent()) else { return 0 };
    let is_one = |file: &&FileOutcome| {
        let is_clean = file.findings.kept().is_empty() && file.completion == Completion::Whole;
        file.kind == FileKind::Log && is_clean && file.path.parent() == folder
    };
    files.iter().take_while(is_one).count()
}

fn mark(file: &FileOutcome) -> Mark {
    match (&file.completion, file.is_damaged()) {
        (_, true) => Mark::Fail,
        (Completion::Whole, false) if file.findings.count(FindingSeverity::Warning) > 0 => Mark::Warning,
        (Completion::Whole, false) if file.coverage == Coverage::Nothing => Mark::NotJudged,
        (Completion::Whole, false) => Mark::Pass,
        (_, false) => Mark::NotJudged,
    }
}

/// The tables of the databases that were walked.
pub(super) fn tables(outcome: &VerifyOutcome, paths: &[PathBuf]) -> Vec<Section> {
    let mut sections = Vec::new();
    for file in &outcome.files {
        let Coverage::Database(check) = &file.coverage else { continue };
        let Some(walked) = &check.walked else { continue };
        let mut largest: Vec<_> = walked.tables.iter().collect();
        largest.sort_by(|one, other| other.pages.cmp(&one.pages).then(one.name.cmp(&other.name)));
        let columns =
            [Column::text("Table"), Column::number("Pages", Unit::One), Column::number("Records", Unit::One)];
        let mut table = Table::new("", columns);
        for one in largest.iter().take(TABLES_SHOWN) {
            table.push([Cell::text(&one.name), Cell::count(one.pages), Cell::count(one.rows)]);
        }
        let title = format!("Tables of {}", shown(&file.path, paths));
        let rest = match largest.len().saturating_sub(TABLES_SHOWN) {
            0 => String::new(),
            more => format!(" The {TABLES_SHOWN} largest are shown; {more} more are in the JSON."),
        };
        let intro = format!(
            "{} in use, {} free, {} levels at most.{rest}",
            counted(walked.pages_in_use, "page"),
            number(walked.pages_free as f64, 0),
            walked.levels_max
        );
        sections.push(Section::new(title, intro).block(table));
    }
    sections
}

//! The JSON form. Fields may be added, and none is removed while the format keeps its name.

use super::{VerifyReport, document::unproven_sentences, labels, recoveries};
use crate::{
    FileFinding, FindingSeverity,
    database::{OwnedPages, PageTally},
    running::{
        Completion, Coverage, DatabaseCheck, FileOutcome, RunVerdict, ScanOutcome, SetOutcome, VerifyLevel,
    },
    set::{FileContents, Recoverability},
};
use maildb::verify::StampsVerdict;
use serde::Serialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use world::real::host::process_use;

/// The name of what is printed.
const FORMAT: &str = "spindle-verify-1";

/// All of it.
#[derive(Serialize)]
pub struct VerifyJson<'a> {
    format: &'static str,
    answer: &'static str,
    /// Version of the verifier.
    version: &'static str,
    source: &'a [PathBuf],
    level: &'static str,
    deep: bool,
    stopped: bool,
    seconds: f64,
    processor_seconds: f64,
    bytes_read: u64,
    files: Vec<JsonFile<'a>>,
    sets: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    recoveries: Vec<Value>,
    /// All damage and everything that could not be checked, a line each: for records.
    findings: Vec<String>,
    passed_over: Vec<&'a Path>,
    failures: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
    unproven: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    put_right: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pieces: Option<Value>,
}

#[derive(Serialize)]
struct JsonFile<'a> {
    path: &'a Path,
    bytes: u64,
    kind: &'static str,
    result: &'static str,
    why: Option<&'a str>,
    damage: u64,
    warnings: u64,
    notes: u64,
    facts: Option<Value>,
    checked: Option<Value>,
    findings: Vec<Value>,
    findings_more: u64,
}

pub fn json_report<'a>(report: &'a VerifyReport<'_>) -> VerifyJson<'a> {
    let outcome = &report.outcome;
    VerifyJson {
        format: FORMAT,
        answer: match outcome.verdict() {
            RunVerdict::Clean => "clean",
            RunVerdict::Damaged => "damaged",
            RunVerdict::Unfinished => "unfinished",
        },
        version: env!("CARGO_PKG_VERSION"),
        source: report.paths,
        level: report.level.name(),
        deep: report.level >= VerifyLevel::Deep,
        stopped: outcome.is_stopped,
        seconds: report.took.as_secs_f64(),
        processor_seconds: process_use().cpu().as_secs_f64(),
        bytes_read: report.read.0,
        files: outcome.files.iter().map(file).collect(),
        sets: outcome.sets.iter().map(set).collect(),
        recoveries: outcome.recoveries.iter().map(recoveries::to_json).collect(),
        findings: finding_lines(report),
        passed_over: outcome.strangers.iter().map(AsRef::as_ref).collect(),
        failures: &outcome.failures,
        warnings: &outcome.warnings,
        unproven: unproven_sentences(report),
        put_right: report.mended.as_ref().map(|mended| mended.fixed.iter().map(finding).collect()),
        pieces: report.scanned.as_ref().map(pieces),
    }
}

/// Lines of findings in JSON at most: a record keeps them.
const LINES_MAX: usize = 100;

/// Damage and what could not be checked, a line each.
pub fn finding_lines(report: &VerifyReport<'_>) -> Vec<String> {
    let outcome = &report.outcome;
    let is_damage = |finding: &FileFinding| finding.severity == FindingSeverity::Damage;
    let mut lines = Vec::new();
    for file in &outcome.files {
        let name = file.path.display().to_string();
        if let Completion::Failed(why) = &file.completion {
            lines.push(format!("{name}: it could not be read to its end: {why}"));
        }
        let damage = file.findings.kept().iter().filter(|finding| is_damage(finding));
        lines.extend(damage.map(|finding| labels::finding(&name, finding)));
    }
    for set in &outcome.sets {
        for database in &set.verdict.databases {
            if let Recoverability::Impossible { .. } = database.recovery {
                let name = set.path_of(&database.name);
                lines.push(format!("{}: {}", name.display(), labels::recovery(&database.recovery)));
            }
        }
        let damage = set.verdict.findings.iter().filter(|(_, finding)| is_damage(finding));
        lines.extend(
            damage.map(|(name, finding)| labels::finding(&set.path_of(name).display().to_string(), finding)),
        );
    }
    let failed = recoveries::findings(&outcome.recoveries).filter(|(_, finding)| is_damage(finding));
    lines.extend(failed.map(|(path, finding)| labels::finding(&path.display().to_string(), finding)));
    lines.extend(recoveries::obstacles(&outcome.recoveries));
    lines.extend(outcome.failures.iter().cloned());
    if outcome.is_stopped {
        lines.push("the run was ended early".to_owned());
    }
    let more = lines.len().saturating_sub(LINES_MAX);
    if more > 0 {
        lines.truncate(LINES_MAX);
        lines.push(format!("and {more} more"));
    }
    lines
}

fn pieces(scanned: &ScanOutcome) -> Value {
    let runs = scanned.placements.iter().map(|piece| {
        json!({
            "offset": piece.at.0,
            "page_bytes": piece.page_size.bytes(),
            "first": piece.pages.0,
            "last": piece.pages.1,
            "pages": piece.count,
        })
    });
    json!({
        "runs": runs.collect::<Vec<_>>(),
        "lone_segments": scanned.lone_segments,
        "more": scanned.more,
    })
}

fn file(file: &FileOutcome) -> JsonFile<'_> {
    JsonFile {
        path: &file.path,
        bytes: file.size.0,
        kind: labels::kind_id(file.kind),
        result: labels::result_id(file),
        why: match &file.completion {
            Completion::Failed(why) => Some(why),
            _ => file.skip_reason(),
        },
        damage: file.findings.count(FindingSeverity::Damage),
        warnings: file.findings.count(FindingSeverity::Warning),
        notes: file.findings.count(FindingSeverity::Note),
        facts: file.facts.as_ref().and_then(facts),
        checked: checked(&file.coverage),
        findings: file.findings.kept().iter().map(finding).collect(),
        findings_more: file.findings.more(),
    }
}

fn facts(facts: &FileContents) -> Option<Value> {
    match facts {
        FileContents::Database(database) => Some(json!({
            "page_bytes": database.page_size.bytes(),
            "headers": database.copies.map(labels::copy_id),
            "version": database.version.to_string(),
            "state": database.state_number,
            "dirty": database.is_dirty(),
            "required": database.required.map(|(first, last)| [first, last]),
            "committed": database.committed,
            "repairs": database.repairs,
        })),
        FileContents::Log(log) => Some(json!({
            "generation": log.generation,
            "version": log.version.to_string(),
            "circular": log.is_circular,
        })),
        FileContents::Checkpoint(checkpoint) => {
            Some(json!({ "position": labels::position(checkpoint.position) }))
        }
        FileContents::PreparedLog | FileContents::FlushMap(_) | FileContents::Headless => None,
    }
}

fn checked(checked: &Coverage) -> Option<Value> {
    match checked {
        Coverage::Database(check) => Some(database(check)),
        Coverage::Log(tally) => Some(json!({
            "good": tally.good,
            "shadow": tally.shadow,
            "empty": tally.empty,
            "stale": tally.stale,
            "repairable": tally.repairable,
            "damaged": tally.damaged,
            "records": tally.records,
        })),
        Coverage::FlushMap(tally) => {
            Some(json!({ "good": tally.good, "blank": tally.blank, "damaged": tally.damaged }))
        }
        Coverage::Header | Coverage::Blank | Coverage::Nothing => None,
    }
}

fn database(check: &DatabaseCheck) -> Value {
    let PageTally { good, blank, slack, trailers, unchecked, torn, damaged, correctable, .. } = &check.pages;
    let stamped = match check.stamps {
        StampsVerdict::Checked { pages_known } => Some(pages_known),
        _ => None,
    };
    let owned_pages = match &check.owned {
        OwnedPages::Extents(extents) => {
            Some(extents.iter().map(|extent| u64::from(extent.pages)).sum::<u64>())
        }
        OwnedPages::Unknown(_) => None,
    };
    let walked = check.walked.as_ref().map(|walked| {
        let tables = walked.tables.iter();
        let tables = tables.map(|one| json!({ "name": one.name, "pages": one.pages, "records": one.rows }));
        json!({
            "trees": walked.trees,
            "levels": walked.levels_max,
            "records": walked.records,
            "pages_in_use": walked.pages_in_use,
            "pages_free": walked.pages_free,
            "tables": tables.collect::<Vec<_>>(),
        })
    });
    json!({
        "pages": check.pages.pages(),
        "good": { "xor": good[0], "ecc": good[1], "four_part": good[2] },
        "blank": blank,
        "slack": slack,
        "trailers": trailers,
        "unchecked": unchecked,
        "torn": torn,
        "damaged": damaged,
        "correctable": correctable,
        "unreadable": check.unreadable,
        "owned": owned_pages,
        "stamped": stamped,
        "walked": walked,
    })
}

pub(super) fn finding(finding: &FileFinding) -> Value {
    let (part, number) = labels::part_id(finding.place.part);
    json!({
        "severity": match finding.severity {
            FindingSeverity::Damage => "damage",
            FindingSeverity::Warning => "warning",
            FindingSeverity::Note => "note",
        },
        "part": part,
        "number": number,
        "offset": finding.place.offset.0,
        "what": finding.what,
        "bit": finding.fix.map(|fix| json!({ "byte": fix.byte.0, "bit": fix.bit })),
    })
}

fn set(set: &SetOutcome) -> Value {
    let databases = set.verdict.databases.iter().map(|database| {
        let (recovery, required, missing, why) = match &database.recovery {
            Recoverability::NotNeeded => ("not_needed", None, Vec::new(), None),
            Recoverability::Possible { required } => {
                ("possible", Some([required.0, required.1]), Vec::new(), None)
            }
            Recoverability::Impossible { missing, why } => ("impossible", None, missing.clone(), Some(why)),
        };
        let name = &database.name;
        json!({ "name": name, "recovery": recovery, "required": required, "missing": missing, "why": why })
    });
    let findings = set.verdict.findings.iter().map(|(name, one)| {
        let mut value = finding(one);
        value["file"] = json!(name);
        value
    });
    json!({
        "folder": set.folder,
        "logs_in": set.logs_in,
        "databases": databases.collect::<Vec<_>>(),
        "findings": findings.collect::<Vec<_>>(),
    })
}

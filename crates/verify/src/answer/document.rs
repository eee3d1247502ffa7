//! The document of a verification: the answer, what is wrong and what to do, what can be recovered, every file.

use super::{
    VerifyReport, labels, recoveries,
    sections::{files, pieces, recovery, tables},
    speed,
};
use crate::{
    FileKind, FindingSeverity,
    database::ChecksumForm,
    log::LogFormat,
    running::{
        Completion, Coverage, FileOutcome, FixedCopy, RecoveryTrial, RunVerdict, SetOutcome, VerifyLevel,
        VerifyOutcome,
    },
    set::{FileContents, Recoverability},
};
use maildb::PageSize;
use report::{
    Cell, Document, Meta, Section, Severity as Gravity, Verdict, VerdictOutcome as Word,
    prose::{counted, number},
};
use std::path::{Path, PathBuf};
use world::ByteCount;

/// Findings shown of one file; JSON has more.
const SHOWN_OF_A_FILE: usize = 20;

pub fn document(report: &VerifyReport<'_>, meta: Meta) -> Document {
    let (paths, outcome) = (report.paths, &report.outcome);
    let named: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let mut document = Document::new("Verification", named.join(", "), meta);
    document.verdict = Some(verdict(report));
    highlights(report, &mut document);
    if let Some(mended) = &report.mended {
        findings_of_mending(mended, paths, &mut document);
    }
    for file in &outcome.files {
        findings_of(file, paths, &mut document);
    }
    for set in &outcome.sets {
        findings_of_set(set, paths, &mut document);
    }
    for (place, finding) in recoveries::findings(&outcome.recoveries) {
        document.finding(gravity(finding.severity), labels::finding(&shown(place, paths), finding), "");
    }
    for warning in &outcome.warnings {
        document.finding(Gravity::Warning, warning.clone(), "");
    }
    for failure in &outcome.failures {
        document.finding(Gravity::Error, format!("not everything could be checked: {failure}"), "");
    }
    if let Some(section) = what_to_do(report) {
        document.section(section);
    }
    if let Some(section) = recovery(outcome, paths) {
        document.section(section);
    }
    if let Some(section) = recoveries::section(&outcome.recoveries, paths) {
        document.section(section);
    }
    document.section(files(outcome, paths));
    if let Some(scanned) = &report.scanned {
        document.section(pieces(scanned));
    }
    for section in tables(outcome, paths) {
        document.section(section);
    }
    document.section(unproven(report));
    document
}

/// A path as it is shown: below the folder or on the device that was named, if just one was.
pub fn shown(path: &Path, paths: &[PathBuf]) -> String {
    match paths {
        [folder] => match path.strip_prefix(folder) {
            Ok(below) if !below.as_os_str().is_empty() => below.display().to_string(),
            _ => {
                let (path, device) = (path.display().to_string(), format!("{}:", folder.display()));
                path.strip_prefix(&device).map(str::to_owned).unwrap_or(path)
            }
        },
        _ => path.display().to_string(),
    }
}

fn verdict(report: &VerifyReport<'_>) -> Verdict {
    let outcome = &report.outcome;
    let damaged = outcome.files.iter().filter(|file| file.is_damaged()).count() as u64;
    let lost = beyond_recovery(outcome).count() as u64;
    let passed = outcome.files.iter().filter(|file| file.skip_reason().is_some()).count() as u64;
    let files = counted(outcome.files.len() as u64 - passed, "file");
    let unfinished = "not everything was checked";
    let answer = outcome.verdict();
    let nothing = report.scanned.as_ref().is_some_and(|scanned| scanned.placements.is_empty());
    let headline = match answer {
        _ if nothing && outcome.files.is_empty() => "nothing of a mail database was found".to_owned(),
        RunVerdict::Clean if passed > 0 => {
            let passed = number(passed as f64, 0);
            format!("{files} checked, {passed} skipped, nothing is damaged{}", recoverable(outcome))
        }
        RunVerdict::Clean => format!("{files} checked, nothing is damaged{}", recoverable(outcome)),
        RunVerdict::Unfinished if outcome.is_nothing_verified() => {
            format!("nothing was verified: {} skipped", counted(passed, "file"))
        }
        RunVerdict::Unfinished => format!("no damage was found so far; {unfinished}"),
        RunVerdict::Damaged => {
            let mut parts = Vec::new();
            match outcome.files.iter().find(|file| file.is_damaged()) {
                Some(file) if damaged == 1 => {
                    let name = shown(&file.path, report.paths);
                    parts.push(format!("{name} is damaged, 1 of {files}"));
                }
                Some(_) => parts.push(format!("{} of {files} are damaged", number(damaged as f64, 0))),
                None => {}
            }
            if lost > 0 {
                parts.push(format!("{} cannot be recovered", counted(lost, "database")));
            }
            let failed = outcome.recoveries.iter().filter(|trial| trial.is_failed()).count() as u64;
            if failed > 0 {
                parts.push(format!("{} could not be brought up whole", counted(failed, "storage group")));
            }
            if parts.is_empty() {
                parts.push("the files do not go together".to_owned());
            }
            if is_cut_short(outcome) {
                parts.push(unfinished.to_owned());
            }
            parts.join("; ")
        }
    };
    let class = match report.level {
        _ if report.scanned.is_some() => "signatures alone; no trees, no sets of files",
        _ if report.mended.is_some() => "a copy without single flipped bits, read again",
        VerifyLevel::Chain => "headers, logs, which files go together; no pages (--level pages)",
        VerifyLevel::Pages => "headers, checksums, logs; no trees (--deep)",
        VerifyLevel::Deep => "headers, checksums, logs and their records, trees",
        VerifyLevel::Recover => "headers, checksums, logs, trees; a recovery on trial, every record read",
    };
    let outcome = match answer {
        RunVerdict::Clean => Word::Pass,
        RunVerdict::Damaged => Word::Fail,
        RunVerdict::Unfinished => Word::Incomplete,
    };
    Verdict { outcome, class: class.to_owned(), headline }
}

fn recoverable(outcome: &VerifyOutcome) -> &'static str {
    let mut databases = outcome.sets.iter().flat_map(|set| &set.verdict.databases).peekable();
    match databases.peek() {
        _ if recoveries::is_each_recovered(&outcome.recoveries) => ", and every database was brought up",
        Some(_) => ", and every database can be recovered",
        None => "",
    }
}

fn is_cut_short(outcome: &VerifyOutcome) -> bool {
    let is_whole = |file: &FileOutcome| file.completion == Completion::Whole;
    let is_open = outcome.recoveries.iter().any(RecoveryTrial::is_open);
    outcome.is_stopped || is_open || !outcome.failures.is_empty() || !outcome.files.iter().all(is_whole)
}

fn beyond_recovery(outcome: &VerifyOutcome) -> impl Iterator<Item = &Recoverability> {
    let databases = outcome.sets.iter().flat_map(|set| &set.verdict.databases);
    databases
        .map(|database| &database.recovery)
        .filter(|one| matches!(one, Recoverability::Impossible { .. }))
}

fn highlights(report: &VerifyReport<'_>, document: &mut Document) {
    let of = |kind: FileKind| report.outcome.files.iter().filter(|file| file.kind == kind).count() as u64;
    let bytes: u64 = report.outcome.files.iter().map(|file| file.size.0).sum();
    let what = format!(
        "{}, {}, {}",
        counted(of(FileKind::Database), "database"),
        counted(of(FileKind::Log), "log"),
        counted(report.outcome.files.len() as u64 - of(FileKind::Database) - of(FileKind::Log), "other"),
    );
    document.highlight("Files", Cell::text(what), ByteCount(bytes).to_string());
    document.highlight("Looked at", Cell::text(speed(report.read, report.took)), "");
    let strangers = report.outcome.strangers.len() as u64;
    if strangers > 0 {
        document.highlight("Skipped", Cell::text(counted(strangers, "file")), "of no mail database");
    }
}

fn findings_of(file: &FileOutcome, paths: &[PathBuf], document: &mut Document) {
    let name = shown(&file.path, paths);
    if let Completion::Failed(why) = &file.completion {
        document.finding(Gravity::Error, format!("{name}: it could not be read to its end: {why}"), "");
    }
    for finding in file.findings.kept().iter().take(SHOWN_OF_A_FILE) {
        document.finding(gravity(finding.severity), labels::finding(&name, finding), "");
    }
    let kept = file.findings.kept().len();
    let more = kept.saturating_sub(SHOWN_OF_A_FILE) as u64 + file.findings.more();
    if more > 0 {
        let damage = file.findings.count(FindingSeverity::Damage);
        let text = format!(
            "{name}: and {}, {} of damage in all",
            counted(more, "finding"),
            number(damage as f64, 0)
        );
        let gravity = if damage > 0 { Gravity::Error } else { Gravity::Note };
        document.finding(gravity, text, "--json has the first thousand");
    }
}

/// Findings about the fixes in the copy.
fn findings_of_mending(mended: &FixedCopy, paths: &[PathBuf], document: &mut Document) {
    let from = paths.first().map(|path| path.display().to_string()).unwrap_or_default();
    if mended.fixed.is_empty() {
        let text = format!("{from}: no bit could be fixed: the copy is identical");
        document.finding(Gravity::Note, text, "");
    }
    for finding in mended.fixed.iter().take(SHOWN_OF_A_FILE) {
        document.finding(
            Gravity::Note,
            format!("fixed in the copy: {}", labels::finding(&from, finding)),
            "",
        );
    }
    if mended.fixed.len() > SHOWN_OF_A_FILE {
        let all = counted(mended.fixed.len() as u64, "bit");
        document.finding(Gravity::Note, format!("fixed in the copy: {all} in all"), "");
    }
}

fn findings_of_set(set: &SetOutcome, paths: &[PathBuf], document: &mut Document) {
    for database in &set.verdict.databases {
        if let Recoverability::Impossible { .. } = database.recovery {
            let name = shown(&set.path_of(&database.name), paths);
            document.finding(Gravity::Error, format!("{name}: {}", labels::recovery(&database.recovery)), "");
        }
    }
    for (name, finding) in &set.verdict.findings {
        let name = shown(&set.path_of(name), paths);
        document.finding(gravity(finding.severity), labels::finding(&name, finding), "");
    }
}

fn gravity(severity: FindingSeverity) -> Gravity {
    match severity {
        FindingSeverity::Damage => Gravity::Error,
        FindingSeverity::Warning => Gravity::Warning,
        FindingSeverity::Note => Gravity::Note,
    }
}

/// Instructions for an administrator.
fn what_to_do(report: &VerifyReport<'_>) -> Option<Section> {
    let outcome = &report.outcome;
    let mut section = Section::new("What to do", "");
    if outcome.is_stopped {
        let how = match report.resume {
            Some(path) => {
                format!("The run was ended early. The same command continues it from {}.", path.display())
            }
            None => {
                "The run was ended early, and would start over: with --resume FILE it continues.".to_owned()
            }
        };
        section = section.paragraph(how);
    }
    if outcome.files.iter().any(FileOutcome::is_damaged) {
        section = section.paragraph(
            "Do not repair in place, and keep what is there: a damaged copy may be the only one of its other pages. \
             Look at the storage first (kernel log, SMART, cables, memory): what damaged one page damages others. \
             Then verify another copy or the last backup the same way, and go back to one that is clean, with its logs.",
        );
        let correctable: u64 = outcome.files.iter().map(correctable).sum();
        if correctable > 0 {
            let flips = counted(correctable, "page");
            section = section.paragraph(format!(
                "{flips} with one flipped bit and nothing else can be put right in a copy: \
                 spindle verify FILE --fix-ecc OUT. A flipped bit is a sign of bad memory, here or in a controller."
            ));
        }
    }
    if beyond_recovery(outcome).next().is_some() {
        section = section.paragraph(
            "A database that needs logs which are not there or are damaged can be brought up only with them: look in \
             the folder of the logs, in the backup, and at the other copies of the database.",
        );
    }
    (!section.blocks.is_empty()).then_some(section)
}

fn correctable(file: &FileOutcome) -> u64 {
    match &file.coverage {
        Coverage::Database(check) => check.pages.correctable,
        _ => 0,
    }
}

fn unproven(report: &VerifyReport<'_>) -> Section {
    let mut section = Section::new("What this does not prove", "");
    for sentence in unproven_sentences(report) {
        section = section.paragraph(sentence);
    }
    section
}

/// Limits of a clean answer, by the files that were checked.
pub fn unproven_sentences(report: &VerifyReport<'_>) -> Vec<String> {
    let files = &report.outcome.files;
    let mut sentences = Vec::new();
    let checks = || {
        files.iter().filter_map(|file| match &file.coverage {
            Coverage::Database(check) => Some((check, file.facts.as_ref())),
            _ => None,
        })
    };
    for file in files {
        if let Some(why) = file.skip_reason() {
            sentences.push(format!("{} was {why}.", shown(&file.path, report.paths)));
        }
    }
    let unstamped = checks().any(|(check, _)| check.stamps == maildb::verify::StampsVerdict::NotKept);
    if unstamped {
        sentences.push(
            "A page that was never overwritten when it should have been (a lost write) has a right checksum, and so \
             have some pages whose halves are of two days: no reader of one file can see that. eseutil /k sees no more."
                .to_owned(),
        );
    }
    let is_any_database = files
        .iter()
        .any(|file| matches!(&file.facts, Some(FileContents::Database(facts)) if !facts.is_temporary));
    if report.level == VerifyLevel::Chain && is_any_database {
        sentences
            .push("No page of a database was read: --level pages checks the checksum of each.".to_owned());
    }
    if report.level < VerifyLevel::Recover && report.scanned.is_none() && is_any_database {
        sentences.push(
            "That the databases come up was not tried: --level recover replays the logs in memory, and reads every \
             record.".to_owned(),
        );
    }
    sentences.extend(recoveries::unproven(&report.outcome.recoveries, report.paths));
    if report.level < VerifyLevel::Deep && checks().next().is_some() {
        sentences.push(
            "Right checksums do not say that the pages go together: --deep walks trees, space and log records.".to_owned(),
        );
    }
    if checks().any(|(check, _)| labels::forms(&check.pages).any(|(form, _)| form == ChecksumForm::Xor)) {
        sentences.push(
            "Pages with the old checksum (Exchange 2003 and before) are judged by the published source; one real page \
             of that form has been seen.".to_owned(),
        );
    }
    let is_small = |facts: Option<&FileContents>| matches!(facts, Some(FileContents::Database(database)) if database.page_size == PageSize::Kib2);
    if checks().any(|(_, facts)| is_small(facts)) {
        sentences.push(
            "Pages of 2 KiB are judged by the published source: no real file with them has been seen."
                .to_owned(),
        );
    }
    let is_old_log = |file: &FileOutcome| matches!(&file.facts, Some(FileContents::Log(log)) if log.format == LogFormat::Sectors);
    if files.iter().any(is_old_log) {
        sentences.push(
            "Logs in sectors of 512 bytes (Exchange 2010 and before) are judged by the published source: no real one \
             has been seen.".to_owned(),
        );
    }
    sentences.push(
        "The judges have been held against real files of Windows; a file that an Exchange server made has not been \
         among them. Its format is the same by all that is published.".to_owned(),
    );
    sentences
}

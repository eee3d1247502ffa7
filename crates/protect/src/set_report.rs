//! The report of a set for an auditor, made from its catalogue: slots that were due, backups and their worth, deletions,
//! restores and drills.

use crate::{
    UnixSecond,
    backup_schedule::SchedulePeriod,
    catalogue::{BackupCatalogue, BackupRow, BackupStage, SlotAccount, SlotFate, SummedDay, slot_accounts},
    retention::{BackupProof, policy::KeepSpan},
};
use report::{Cell, Column, Document, Mark, Meta, Section, Severity, Table, calendar::utc_time};
use serde::Serialize;
use std::collections::BTreeMap;

/// Everything that a catalogue says since a time. As JSON it is for programs; times are UTC.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CatalogueReport {
    pub set: String,
    /// Identity of the catalogue.
    pub catalogue: String,
    /// The catalogue was made again from notes of points: what it had before is not in it.
    pub is_rebuilt: bool,
    pub since: String,
    /// Time of the catalogue's first line: what was before it is not known.
    pub began: String,
    /// Time of the catalogue's last line.
    pub until: String,
    /// Records of before are summed up, but for backups to which something happened that is asked for by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summed_until: Option<String>,
    /// Sums of days, which are in none of the other lists.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub summed: Vec<SummedLine>,
    pub slots: Vec<SlotLine>,
    pub backups: Vec<BackupLine>,
    pub restores: Vec<RestoreLine>,
    pub drills: Vec<DrillLine>,
}

/// A slot of a schedule, or slots in a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlotLine {
    pub schedule: String,
    pub start: String,
    /// `made`, `failed` or `missed`.
    pub fate: &'static str,
    /// Of a slot that was filled, or tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<u64>,
    /// Of those that were missed: the start of the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_start: Option<String>,
    pub count: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// Everything that was summed up of one day.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SummedLine {
    pub day: String,
    /// Lowest and highest number of its backups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backups: Option<(u64, u64)>,
    /// Slots of all schedules.
    pub made: u64,
    pub missed: u64,
    pub failed: u64,
    /// Backups by their labels.
    pub application: u64,
    pub filesystem: u64,
    pub crash: u64,
    pub ordered: u64,
    pub found: u64,
    pub proven: u64,
    pub copied: u64,
    pub deleted: BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_ms_max: Option<u64>,
    /// Reasons of the first that failed, and of the first that were missed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BackupLine {
    pub number: u64,
    pub name: String,
    pub at: String,
    pub kind: &'static str,
    pub by: String,
    /// `there`, `failed`, `deleted`, `lost`, or that it is being made or deleted.
    pub state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<&'static str>,
    /// Things that were frozen to the end, and why the label is not better.
    pub evidence: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_ms: Option<u64>,
    /// `proven`, `unproven` or `damaged`.
    pub proof: &'static str,
    pub verifications: Vec<VerificationLine>,
    /// Vaults and sites that have a copy.
    pub copies: Vec<String>,
    pub holds: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locked_for: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion: Option<DeletionLine>,
    /// Logs that went because it has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub log_releases: Vec<LogReleaseLine>,
}

/// Logs of an application that went because a proven backup has them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogReleaseLine {
    pub at: String,
    /// The socket of the application.
    pub of: String,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerificationLine {
    pub at: String,
    pub level: String,
    pub by: String,
    pub version: String,
    pub is_good: bool,
    pub findings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeletionLine {
    pub at: String,
    /// `surplus`, `at_most`, `on_full` or `person`.
    pub rule: &'static str,
    pub by: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RestoreLine {
    pub at: String,
    pub backup: u64,
    pub what: String,
    pub to: String,
    pub by: String,
    pub is_good: bool,
    pub problems: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DrillLine {
    pub at: String,
    pub backup: u64,
    pub by: String,
    pub is_good: bool,
    pub rto_s: u64,
    pub rpo_s: u64,
    pub findings: Vec<String>,
}

impl CatalogueReport {
    /// The report since a time, of a catalogue that was read with [`CatalogueScope::All`](crate::catalogue::CatalogueScope).
    /// Backups of before are in it if they exist, or if something happened to them since.
    pub fn of(catalogue: &BackupCatalogue, since: UnixSecond) -> Self {
        let header = catalogue.header();
        let is_wanted = |row: &BackupRow| row.changed_s >= since.0 || row.stage.is_open();
        Self {
            set: header.set.clone(),
            catalogue: header.id.to_string(),
            is_rebuilt: header.is_rebuilt,
            since: utc_time(since.0),
            began: utc_time(catalogue.began().0),
            until: utc_time(catalogue.clock().at().0),
            summed_until: catalogue.summed_until().map(|until| utc_time(until.0)),
            summed: catalogue
                .summed()
                .iter()
                .filter(|day| day.day_s >= since.0)
                .map(SummedLine::of)
                .collect(),
            slots: slot_accounts(catalogue, since).iter().map(SlotLine::of).collect(),
            backups: catalogue
                .rows()
                .filter(|(_, row)| is_wanted(row))
                .map(|(number, row)| BackupLine::of(number, row))
                .collect(),
            restores: catalogue
                .restores()
                .iter()
                .filter(|(at_s, _)| *at_s >= since.0)
                .map(|(at_s, restore)| RestoreLine {
                    at: utc_time(*at_s),
                    backup: restore.backup,
                    what: restore.what.clone(),
                    to: restore.to.clone(),
                    by: restore.by.clone(),
                    is_good: restore.is_good,
                    problems: restore.problems.clone(),
                })
                .collect(),
            drills: catalogue
                .drills()
                .iter()
                .filter(|(at_s, _)| *at_s >= since.0)
                .map(|(at_s, drill)| DrillLine {
                    at: utc_time(*at_s),
                    backup: drill.backup,
                    by: drill.by.clone(),
                    is_good: drill.is_good,
                    rto_s: drill.rto_s,
                    rpo_s: drill.rpo_s,
                    findings: drill.findings.clone(),
                })
                .collect(),
        }
    }

    /// The report for people. Slots of one schedule in a row that were made are one line.
    pub fn document(&self, meta: Meta) -> Document {
        let subtitle = format!("{} to {}", self.since, self.until);
        let mut document = Document::new(format!("Backups of {}", self.set), subtitle, meta);
        self.highlights(&mut document);
        self.findings(&mut document);
        document.section(self.slot_section());
        document.section(self.backup_section());
        document.section(self.verification_section());
        document.section(self.deletion_section());
        document.section(self.restore_section());
        document.section(self.drill_section());
        if !self.summed.is_empty() {
            document.section(self.summed_section());
        }
        let summed = match &self.summed_until {
            Some(until) => format!(
                " Single records before {until}, which are summed up, a line a day; those of backups that exist, were held, locked, \
                 restored, drilled, damaged or lost, or deleted by a person, are shown whole."
            ),
            None => String::new(),
        };
        document.section(Section::new("Not shown by this", "").paragraph(format!(
            "The catalogue {} at {} and ends at {}: a slot that is due since then is not in it. Whether a volume has everything \
             that its application needs; what nobody verified; copies that were deleted elsewhere.{summed}",
            if self.is_rebuilt { "was made again from notes of snapshots" } else { "begins" },
            self.began,
            self.until,
        )));
        document
    }

    fn slots_with(&self, fate: &str) -> u64 {
        let summed = |day: &SummedLine| match fate {
            "made" => day.made,
            "missed" => day.missed,
            _ => day.failed,
        };
        let single: u64 = self.slots.iter().filter(|slot| slot.fate == fate).map(|slot| slot.count).sum();
        self.summed.iter().map(summed).fold(single, u64::saturating_add)
    }

    fn summed_section(&self) -> Section {
        let columns = [
            Column::text("Day"),
            Column::text("Backups"),
            Column::number("Made", "slots"),
            Column::number("Missed", "slots"),
            Column::number("Failed", "slots"),
            Column::text("Labels"),
            Column::number("Proven", ""),
            Column::number("Copied", ""),
            Column::text("Deleted"),
            Column::text("Reasons"),
        ];
        let mut table = Table::new("", columns);
        for day in &self.summed {
            let labels =
                [("application", day.application), ("filesystem", day.filesystem), ("crash", day.crash)];
            let counts = |counts: &[(&str, u64)]| {
                let counts = counts.iter().filter(|(_, count)| *count > 0);
                counts.map(|(word, count)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
            };
            let deleted: Vec<(&str, u64)> = day.deleted.iter().map(|(rule, count)| (*rule, *count)).collect();
            table.push([
                Cell::text(&day.day),
                Cell::text(day.backups.map(|(first, last)| format!("{first} to {last}")).unwrap_or_default()),
                Cell::count(day.made),
                Cell::count(day.missed),
                Cell::count(day.failed),
                Cell::text(counts(&labels)),
                Cell::count(day.proven),
                Cell::count(day.copied),
                Cell::text(counts(&deleted)),
                Cell::text(day.reasons.join("; ")),
            ]);
        }
        let intro = "Older records: a line for each day of UTC. None of these backups exists.";
        Section::new("Days that were summed up", intro).block(table)
    }

    fn highlights(&self, document: &mut Document) {
        let there = || self.backups.iter().filter(|backup| backup.state == "there");
        let proven = there().filter(|backup| backup.proof == "proven").count();
        document.highlight("Slots made", Cell::count(self.slots_with("made")), "");
        document.highlight("Missed", Cell::count(self.slots_with("missed")), "");
        document.highlight("Rounds that failed", Cell::count(self.slots_with("failed")), "");
        document.highlight("Backups there", Cell::count(there().count() as u64), "");
        document.highlight("Proven", Cell::count(proven as u64), "of those");
    }

    fn findings(&self, document: &mut Document) {
        for backup in &self.backups {
            if backup.state == "lost" {
                let why = backup.evidence.join("; ");
                document.finding(Severity::Error, format!("{} is lost: {why}", backup.name), "");
            }
            if backup.proof == "damaged" && backup.state == "there" {
                document.finding(Severity::Error, format!("{} is damaged", backup.name), "");
            }
        }
        let good = self.drills.iter().rev().find(|drill| drill.is_good);
        match good {
            Some(drill) => document.finding(
                Severity::Note,
                format!("the last good drill was at {}, with backup {}", drill.at, drill.backup),
                "",
            ),
            None => document.finding(Severity::Warning, "no good drill since then", ""),
        }
        if self.slots_with("missed") > 0 {
            let text = format!("{} slots were missed", self.slots_with("missed"));
            document.finding(Severity::Warning, text, "");
        }
    }

    fn slot_section(&self) -> Section {
        let columns = [
            Column::text("Schedule"),
            Column::text("Slot"),
            Column::text("To"),
            Column::number("Slots", ""),
            Column::text("Result"),
            Column::text("Backup or reason"),
        ];
        let mut table = Table::new("", columns);
        for line in runs_of(&self.slots) {
            let mark = if line.fate == "made" { Mark::Pass } else { Mark::Fail };
            table.push([
                Cell::text(&line.schedule),
                Cell::text(&line.start),
                Cell::text(line.last_start.clone().unwrap_or_default()),
                Cell::count(line.count),
                if mark == Mark::Pass { Cell::text("made") } else { Cell::text(line.fate) },
                Cell::text(match (line.backup, line.why.is_empty()) {
                    (Some(backup), true) => backup.to_string(),
                    (Some(backup), false) => format!("{backup}: {}", line.why),
                    (None, _) => line.why.clone(),
                }),
            ]);
        }
        let intro = "Every slot of every schedule that the catalogue accounts for; neighbours that were made are one line.";
        with_rows(Section::new("Slots that were due", intro), table)
    }

    fn backup_section(&self) -> Section {
        let columns = [
            Column::number("Backup", ""),
            Column::text("Cut"),
            Column::text("Kind"),
            Column::text("Label"),
            Column::text("Evidence"),
            Column::text("Proof"),
            Column::text("Now"),
            Column::text("Kept by"),
            Column::text("Copies"),
        ];
        let mut table = Table::new("", columns);
        for backup in &self.backups {
            let mut kept = backup.holds.clone();
            kept.extend(backup.locked_for.as_ref().map(|span| format!("locked for {span}")));
            table.push([
                Cell::count(backup.number),
                Cell::text(&backup.at),
                Cell::text(backup.kind),
                Cell::text(backup.label.unwrap_or("")),
                Cell::text(backup.evidence.join("; ")),
                Cell::text(backup.proof),
                Cell::text(backup.state),
                Cell::text(kept.join(", ")),
                Cell::text(backup.copies.join(", ")),
            ]);
        }
        Section::new("Backups", "Those that exist, and those to which something happened since then.")
            .block(table)
    }

    fn verification_section(&self) -> Section {
        let columns = ["Backup", "Time", "Level", "By", "Version", "Result"].map(Column::text);
        let mut table = Table::new("", columns);
        for backup in &self.backups {
            for one in &backup.verifications {
                let result = match one.is_good {
                    true => "proven".to_owned(),
                    false => format!("damaged: {}", one.findings.join("; ")),
                };
                let texts = [&backup.name, &one.at, &one.level, &one.by, &one.version, &result];
                table.push(texts.map(|text| Cell::text(text.as_str())));
            }
        }
        with_rows(Section::new("Verifications", ""), table)
    }

    fn deletion_section(&self) -> Section {
        let columns = ["Backup", "Time", "By", "Rule"].map(Column::text);
        let mut table = Table::new("", columns);
        for backup in &self.backups {
            if let Some(DeletionLine { at, rule, by }) = &backup.deletion {
                table.push([&*backup.name, at, by, rule].map(Cell::text));
            }
            for LogReleaseLine { at, of, text } in &backup.log_releases {
                table.push([&*backup.name, at, of, text].map(Cell::text));
            }
        }
        let intro = "Of backups, and of logs that went because a proven backup has them.";
        with_rows(Section::new("Deletions", intro), table)
    }

    fn restore_section(&self) -> Section {
        let columns = ["Time", "Backup", "What", "To", "By", "Result"].map(Column::text);
        let mut table = Table::new("", columns);
        for one in &self.restores {
            let result = if one.is_good { "done".to_owned() } else { one.problems.join("; ") };
            let backup = one.backup.to_string();
            table.push(
                [&one.at, &backup, &one.what, &one.to, &one.by, &result]
                    .map(|text| Cell::text(text.as_str())),
            );
        }
        with_rows(Section::new("Restores", ""), table)
    }

    fn drill_section(&self) -> Section {
        let columns = [
            Column::text("Time"),
            Column::text("Backup"),
            Column::text("By"),
            Column::number("To the proof", ""),
            Column::number("Work that would be lost", ""),
            Column::text("Result"),
        ];
        let mut table = Table::new("", columns);
        for one in &self.drills {
            let result = if one.is_good { "good".to_owned() } else { one.findings.join("; ") };
            table.push([
                Cell::text(&one.at),
                Cell::text(one.backup.to_string()),
                Cell::text(&one.by),
                Cell::seconds(one.rto_s as f64),
                Cell::seconds(one.rpo_s as f64),
                Cell::text(result),
            ]);
        }
        with_rows(
            Section::new("Drills", "A backup restored beside the live volumes, proven, and dropped."),
            table,
        )
    }
}

/// A section with its table, or with the word that there is nothing.
fn with_rows(section: Section, table: Table) -> Section {
    if table.rows().is_empty() { section.paragraph("None.") } else { section.block(table) }
}

/// Slots of one schedule in a row that were made, as one line.
fn runs_of(slots: &[SlotLine]) -> Vec<SlotLine> {
    let mut lines: Vec<SlotLine> = Vec::new();
    for slot in slots {
        match lines.last_mut() {
            Some(last) if last.fate == "made" && slot.fate == "made" && last.schedule == slot.schedule => {
                last.count += slot.count;
                last.last_start = Some(slot.start.clone());
                last.why = match (last.backup, slot.backup) {
                    (Some(_), Some(newest)) => format!("to {newest}"),
                    _ => String::new(),
                };
            }
            _ => lines.push(slot.clone()),
        }
    }
    lines
}

impl SummedLine {
    fn of(day: &SummedDay) -> Self {
        let sum = |count: fn(&crate::catalogue::SummedSlots) -> u64| {
            day.slots.iter().map(count).fold(0, u64::saturating_add)
        };
        let reasons = [&day.failure, &day.missed_why].into_iter().filter(|reason| !reason.is_empty());
        Self {
            day: utc_time(day.day_s)[..10].to_owned(),
            backups: day.backups,
            made: sum(|slots| slots.made),
            missed: sum(|slots| slots.missed),
            failed: sum(|slots| slots.failed),
            application: day.application,
            filesystem: day.filesystem,
            crash: day.crash,
            ordered: day.ordered,
            found: day.found,
            proven: day.proven,
            copied: day.copied,
            deleted: day.deleted.iter().map(|one| (one.rule.word(), one.count)).collect(),
            window_ms_max: day.window_ms_max,
            reasons: reasons.cloned().collect(),
        }
    }
}

impl SlotLine {
    fn of(account: &SlotAccount) -> Self {
        let schedule: SchedulePeriod = account.slot.period;
        let line = Self {
            schedule: schedule.to_string(),
            start: utc_time(account.slot.start.0),
            fate: "made",
            backup: None,
            last_start: None,
            count: 1,
            why: String::new(),
        };
        match &account.fate {
            SlotFate::Made { backup } => Self { backup: Some(*backup), ..line },
            SlotFate::Failed { backup, problems } => {
                Self { fate: "failed", backup: Some(*backup), why: problems.join("; "), ..line }
            }
            SlotFate::Missed { last, count, why } => {
                let last_start = (*count > 1).then(|| utc_time(last.0));
                Self { fate: "missed", last_start, count: *count, why: why.clone(), ..line }
            }
        }
    }
}

impl BackupLine {
    fn of(number: u64, row: &BackupRow) -> Self {
        let frozen = row.evidence.iter().map(|line| match &line.broken {
            None => format!("{}: frozen to the end ({})", line.what, line.worth.word()),
            Some(why) => format!("{}: not to the end, {why}", line.what),
        });
        let deletion = row.deletion.as_ref().map(|deletion| DeletionLine {
            at: utc_time(row.changed_s),
            rule: deletion.rule.word(),
            by: deletion.by.clone(),
        });
        Self {
            number,
            name: row.start.name.clone(),
            at: utc_time(row.at_s),
            kind: row.start.kind.word(),
            by: row.start.by.clone(),
            state: match row.stage {
                BackupStage::Begun => "begun",
                BackupStage::Cut => "there",
                BackupStage::Failed => "failed",
                BackupStage::Deleting => "being deleted",
                BackupStage::Deleted => "deleted",
                BackupStage::Lost => "lost",
            },
            label: row.label.map(|label| label.word()),
            evidence: frozen.chain(row.reasons.iter().cloned()).collect(),
            window_ms: row.window_ms,
            proof: match row.proof() {
                BackupProof::Proven => "proven",
                BackupProof::Unproven => "unproven",
                BackupProof::Damaged => "damaged",
            },
            verifications: row
                .verifications
                .iter()
                .map(|(at_s, one)| VerificationLine {
                    at: utc_time(*at_s),
                    level: one.level.clone(),
                    by: one.by.clone(),
                    version: one.version.clone(),
                    is_good: one.is_good,
                    findings: one.findings.clone(),
                })
                .collect(),
            copies: row.copies.iter().cloned().collect(),
            holds: row.holds.iter().cloned().collect(),
            locked_for: row.locked_s.map(|span| KeepSpan(span).to_string()),
            deletion,
            log_releases: row
                .log_releases
                .iter()
                .map(|(at_s, line)| LogReleaseLine {
                    at: utc_time(*at_s),
                    of: line.command.clone(),
                    text: line.output.clone(),
                })
                .collect(),
        }
    }
}

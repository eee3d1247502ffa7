//! The backups that were taken while the load was measured.

use crate::database::results::{RunResults, backups::BackupResults};
use report::{
    Cell, Column, Document, Section, Severity, Table, Unit,
    prose::{counted, number},
};

/// Label of a backup that holds exactly what was answered.
const APPLICATION: &str = "application";

/// Adds findings about backups that are not there, or worth less than they could be.
pub fn add_findings(document: &mut Document, results: &RunResults) {
    for backup in &results.backups {
        let is_whole = backup.label.as_deref() == Some(APPLICATION);
        if !is_whole || !backup.problems.is_empty() {
            let what = match &backup.label {
                Some(label) => format!("is labelled {label}"),
                None => "was not taken".to_owned(),
            };
            let why = backup.problems.join("; ");
            document.finding(Severity::Warning, format!("{} {what}: {why}.", backup.name), "");
        }
    }
}

pub fn section(results: &RunResults) -> Section {
    let backups = &results.backups;
    let mut windows: Vec<f64> = backups.iter().filter_map(|backup| backup.window_ms).collect();
    windows.sort_by(f64::total_cmp);
    let longest = match windows.last() {
        Some(longest) => format!(" The longest freeze window is {} ms.", number(*longest, 1)),
        None => String::new(),
    };
    let application = backups.iter().filter(|backup| backup.label.as_deref() == Some(APPLICATION)).count();
    let intro = format!(
        "{}, {application} of them labelled application: while its group was frozen, nothing was written and no commit \
         answered, and all volumes of the group were cut at one moment. The freeze window is the time from the last \
         commit answered before the freeze to the first one after it, as the sessions saw it.{longest}",
        counted(backups.len() as u64, "backup")
    );
    Section::new("Backups", intro).block(table(results))
}

fn table(results: &RunResults) -> Table {
    let columns = [
        Column::text("Backup"),
        Column::number("At", Unit::Seconds),
        Column::text("Label"),
        Column::number("Freeze window", Unit::Milliseconds),
        Column::number("Frozen", Unit::Milliseconds),
        Column::number("Kept", Unit::One),
        Column::text("Deleted"),
    ];
    let mut table = Table::new("Backups while the load was measured", columns);
    for backup in &results.backups {
        let BackupResults { name, at_s, label, window_ms, freeze_ms, kept, deleted, .. } = backup;
        table.push([
            Cell::text(name.clone()),
            Cell::number(Some(*at_s), Unit::Seconds, 1),
            Cell::text(label.clone().unwrap_or_else(|| "not taken".to_owned())),
            Cell::number(*window_ms, Unit::Milliseconds, 1),
            Cell::number(*freeze_ms, Unit::Milliseconds, 1),
            Cell::number(Some(f64::from(*kept)), Unit::One, 0),
            Cell::text(if deleted.is_empty() { "–".to_owned() } else { deleted.join(", ") }),
        ]);
    }
    table
}

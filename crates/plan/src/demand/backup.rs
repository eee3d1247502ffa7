//! Backups: their capacity, and the time to back up, restore and reseed a copy.

use super::{Mode, PlanInput};
use crate::derivation::{Sheet, Step};

pub(super) fn derive(sheet: &mut Sheet, input: &PlanInput<'_>) {
    sheet.begin("Backup, restore, reseed");
    let (formula, why) = match input.mode {
        Mode::Copies => ("DBS * backup_fulls_copies", "copies are what is restored from"),
        Mode::StandAlone | Mode::BackupWindow => (
            "DBS * backup_fulls + LPD * log_file / 1024 * log_retained_days",
            "full backups, and the logs since",
        ),
    };
    sheet.derive(Step::plain("BKC", "Backups on disk", "GB", formula, why));
    sheet.derive(Step::plain(
        "BKT",
        "Time of a full backup of all databases",
        "h",
        "DBS * 1024 / (backup_rate * backup_streams) / 3600",
        "all databases, one server's streams",
    ));
    sheet.derive(Step::plain(
        "BKW",
        "Of the backup window",
        "%",
        "BKT / backup_window",
        "more than 100 % is too much",
    ));
    sheet.derive(Step::plain(
        "RST",
        "Time to restore one database",
        "h",
        "(IDBS * 1024 / restore_rate + TLC / log_file * log_replay) / 3600",
        "the last full backup, then a day's logs are replayed",
    ));
    sheet.derive(Step::plain(
        "RSD",
        "Time to reseed one copy",
        "h",
        "IDBS * 1024 / reseed_rate / 3600",
        "at the rate of a reseed",
    ));
}

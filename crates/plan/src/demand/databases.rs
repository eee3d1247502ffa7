//! Number and size of databases and their volumes: Dell 2010, section 3.3.3.

use super::{DemandError, Mode, PlanInput};
use crate::{
    derivation::{Sheet, Step},
    figure::{Confidence, GIVEN},
    units::Gib,
};

pub(super) fn derive(sheet: &mut Sheet, input: &PlanInput<'_>) -> Result<(), DemandError> {
    sheet.begin("Databases");
    largest(sheet, input);
    refuse_mailboxes_beyond_a_database(sheet)?;
    let by_users = sheet.rules().value("users_per_database") > 0.0;
    let formula = match by_users {
        true => "max(ceil(DBS / MAXDB), ceil(NUT / users_per_database))",
        false => "max(ceil(DBS / MAXDB), 1)",
    };
    sheet.derive(Step::seed(
        "DBC",
        "Databases",
        "",
        formula,
        "Dell 2010, table 18: all of them by the largest one",
    ));
    sheet.derive(Step::seed("IDBS", "One database", "GB", "DBS / DBC", "Dell 2010, table 14, step 6"));
    sheet.derive(Step::seed(
        "NDB",
        "Mailboxes of the fullest database",
        "users",
        "ceil(NUT / DBC)",
        "Dell 2010, table 15, step 4; mailboxes are whole",
    ));
    sheet.derive(Step::plain(
        "SGC",
        "Storage groups, each with a log",
        "",
        "ceil(DBC / databases_per_log)",
        "as many logs as groups of databases that share one",
    ));
    sheet.derive(Step::plain(
        "SRV",
        "Mailbox servers, at least",
        "",
        "max(ceil(DBC * COPIES / databases_per_server), COPIES)",
        "copies of one database are on different servers",
    ));
    sheet.derive(Step::seed(
        "DVS",
        "Volume of one database",
        "GB",
        "IDBS * (1 + content_index) * (1 + volume_free)",
        "Dell 2010, table 14, step 7",
    ));
    sheet.derive(Step::plain(
        "DVW",
        "The same in whole GB",
        "GB",
        "ceil(DVS)",
        "volumes are made in whole GB",
    ));
    sheet.derive(Step::seed("DCAP", "All database volumes", "GB", "DBC * DVS", "Dell 2010, section 3.4.2"));
    restoring(sheet);
    Ok(())
}

/// Adds the largest allowed database, by mode.
fn largest(sheet: &mut Sheet, input: &PlanInput<'_>) {
    let title = "Largest database allowed";
    if let Some(size) = input.profile.database_max {
        let step =
            Step { id: "MAXDB", title, unit: "GB", formula: "", source: "", confidence: Confidence::Given };
        sheet.give(None, step, size.get(), GIVEN);
        return;
    }
    let (formula, source) = match input.mode {
        Mode::Copies => ("database_max_copies", "by mode: databases with copies"),
        Mode::StandAlone => ("database_max_stand_alone", "by mode: databases without copies"),
        Mode::BackupWindow => (
            "min(database_max_stand_alone, backup_rate * backup_streams * backup_window * 3600 / 1024)",
            "Dell 2010, section 3.3.3: by backup throughput and the time there is for one; never beyond stand-alone",
        ),
    };
    sheet.derive(Step::seed("MAXDB", title, "GB", formula, source));
}

fn refuse_mailboxes_beyond_a_database(sheet: &Sheet) -> Result<(), DemandError> {
    let mailboxes = sheet.all().iter().filter(|one| one.id == "MBU").map(|one| one.value / 1024.0);
    let mailbox = mailboxes.fold(0.0, f64::max);
    let database = sheet.get("MAXDB");
    match mailbox > database {
        true => Err(DemandError::MailboxLargerThanDatabase {
            mailbox: Gib::new(mailbox).to_string(),
            database: Gib::new(database).to_string(),
        }),
        false => Ok(()),
    }
}

/// Room to maintain and to recover databases, sized for one as large as it may become.
fn restoring(sheet: &mut Sheet) {
    sheet.derive(Step::plain(
        "DVX",
        "Volume of a database as large as it may become",
        "GB",
        "min(DBS, MAXDB) * (1 + content_index) * (1 + volume_free)",
        "as DVS",
    ));
    sheet.derive(Step::seed(
        "OMS",
        "Room for offline maintenance",
        "GB",
        "DVX * offline_maintenance * offline_maintenance_databases",
        "Dell 2010, table 14: another 110 % of the volume",
    ));
    sheet.derive(Step::seed(
        "RDB",
        "Room for recovery databases",
        "GB",
        "DVX * recovery_databases",
        "Dell 2010, table 14: by how many are to be recovered",
    ));
    sheet.derive(Step::plain("RCAP", "Room to maintain and recover", "GB", "OMS + RDB", "a sum"));
}

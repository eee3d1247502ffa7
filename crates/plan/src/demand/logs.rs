//! Room for transaction logs: Dell 2010, table 15.

use crate::derivation::{Sheet, Step};

pub(super) fn derive(sheet: &mut Sheet) {
    sheet.begin("Log capacity");
    sheet.derive_each(Step::seed(
        "NL",
        "Log files a mailbox leaves a day",
        "",
        "MSR * logs_per_message",
        "Dell 2010, table 15, step 2",
    ));
    sheet.derive_each(Step::seed(
        "MSF",
        "Message size factor",
        "x",
        "log_size_factor(AMS)",
        "Dell 2010, table 15, step 3",
    ));
    sheet.derive(Step::seed(
        "LPD",
        "Log files of all mailboxes a day",
        "",
        "total(NU * NL * MSF)",
        "Dell 2010, table 15, step 5, for all",
    ));
    sheet.derive(Step::seed(
        "TLC",
        "Logs of the fullest database a day",
        "MB",
        "NDB * LPD / NUT * log_file",
        "Dell 2010, table 15, step 5",
    ));
    sheet.derive(Step::seed(
        "LVS",
        "Volume of one database's log",
        "GB",
        "TLC * (1 + moved_mailboxes) * (log_retained_days + replay_lag_days) * (1 + log_overhead) / 1024",
        "Dell 2010, table 15, step 6, with the moved mailboxes of table 19",
    ));
    sheet.derive(Step::plain(
        "LVW",
        "The same in whole GB",
        "GB",
        "ceil(LVS)",
        "volumes are made in whole GB",
    ));
    sheet.derive(Step::seed(
        "LCAP",
        "All log volumes",
        "GB",
        "LPD * log_file * (1 + moved_mailboxes) * (log_retained_days + replay_lag_days) * (1 + log_overhead) / 1024",
        "Dell 2010, table 15, step 6, for all",
    ));
    sheet.derive(Step::seed(
        "CAP",
        "Databases and logs, one copy",
        "GB",
        "DCAP + LCAP",
        "Dell 2010, section 3.4.2: total capacity needed for all volumes",
    ));
    sheet.derive(Step::seed(
        "PROV",
        "Databases and logs, one copy, in volumes of whole GB",
        "GB",
        "DBC * (DVW + LVW)",
        "Dell 2010, section 3.4.2: its 15780 are such volumes",
    ));
}

//! Size of mailboxes and of all databases: Dell 2010, table 14, steps 2 to 5.

use crate::derivation::{Sheet, Step};

pub(super) fn derive(sheet: &mut Sheet) {
    sheet.begin("Database capacity");
    sheet.derive_each(Step::seed(
        "WSU",
        "White space a mailbox",
        "MB",
        "MSR * AMS / 1024 * white_space_days",
        "Dell 2010, table 14, step 2",
    ));
    sheet.derive_each(Step::seed(
        "DSU",
        "Deleted and earlier items a mailbox (dumpster)",
        "MB",
        "MSR * AMS / 1024 * retained_days + single_item_recovery * MQ + version_logging * MQ",
        "Dell 2010, table 14, step 3",
    ));
    sheet.derive_each(Step::seed(
        "MBU",
        "Mailbox on disk",
        "MB",
        "MQ + WSU + DSU",
        "Dell 2010, table 14, step 4",
    ));
    sheet.derive(Step::seed(
        "DBS",
        "All databases",
        "GB",
        "total(NU * MBU) * (1 + database_overhead) / 1024",
        "Dell 2010, table 14, step 5; its example in table 18 forgets the overhead",
    ));
}

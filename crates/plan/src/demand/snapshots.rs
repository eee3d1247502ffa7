//! Room kept free for snapshots: AMI 2008 and IBM 2008.

use crate::derivation::{Sheet, Step};

pub(super) fn derive(sheet: &mut Sheet) {
    sheet.begin("Snapshots");
    sheet.derive(Step::plain(
        "SNC",
        "Changed a day",
        "GB",
        "LPD * log_file / 1024 * snapshot_change",
        "what is changed is logged",
    ));
    sheet.derive(Step::plain(
        "SNS",
        "Held by the snapshots of the schedule",
        "GB",
        "SNC * snapshot_hours * snapshots_kept / 24",
        "the changes of the time they reach back",
    ));
    sheet.derive(Step::seed(
        "SNR",
        "Snapshot reserve",
        "GB",
        "max(PROV * snapshot_reserve / (1 - snapshot_reserve), SNS)",
        "AMI 2008, note on schedules: 20 % of all is left free, or what the schedule holds",
    ));
}

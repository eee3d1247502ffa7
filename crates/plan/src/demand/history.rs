//! Write history kept during an outage of the link, and the time to merge it: HP Continuous Access, write history logging.

use super::{Mode, PlanInput};
use crate::derivation::{Sheet, Step};

pub(super) fn derive(sheet: &mut Sheet, input: &PlanInput<'_>) {
    sheet.begin("Write history");
    let (formula, source) = match input.mode {
        Mode::Copies => {
            ("0", "servers ship their logs, which wait on their own volumes: nothing is written beside them")
        }
        Mode::StandAlone | Mode::BackupWindow => (
            "WRB * 3600 * outage_hours / 1024 * min(remote_copies, 1)",
            "HP Continuous Access, write history log: 13 GB of one group in two hours; planned for peak hours",
        ),
    };
    sheet.derive(Step::seed("WHL", "Write history of an outage", "GB", formula, source));
    sheet.derive(Step::plain("WHD", "The same of one database", "GB", "WHL / DBC", "all alike"));
    sheet.derive(Step::seed(
        "WHM",
        "Time to merge it, all databases at once",
        "min",
        "WHD * 1024 / merge_rate",
        "HP Continuous Access: 13 GB at 260 MB a minute took 50 minutes",
    ));
}

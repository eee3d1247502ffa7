//! Memory of servers: Dell 2010, section 3.3.2, and what it refers to.

use super::{Mode, PlanInput};
use crate::{
    derivation::{Sheet, Step},
    figure::Confidence,
};

pub(super) fn derive(sheet: &mut Sheet, input: &PlanInput<'_>) {
    sheet.begin("Memory");
    sheet.derive(Step::seed(
        "CACHE",
        "Database cache of all mailboxes",
        "GB",
        "total(NU * cache_per_mailbox(MSR)) / 1024",
        "Dell 2010, section 3.3.2: cache a mailbox by its messages",
    ));
    // With copies, the others carry what a lost server had.
    let formula = if input.mode == Mode::Copies { "CACHE / max(SRV - 1, 1)" } else { "CACHE / SRV" };
    sheet.derive(Step::plain("CSRV", "The same of one server", "GB", formula, "one of several may be lost"));
    sheet.derive(Step {
        id: "RAM",
        title: "Memory of one server, at least",
        unit: "GB",
        formula: "max(ram_for_cache(CSRV), ram_for_databases(DBC * COPIES / SRV))",
        source: "second-hand of ee832791: by cache and by databases",
        confidence: Confidence::Secondary,
    });
}

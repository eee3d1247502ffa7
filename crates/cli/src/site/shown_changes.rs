//! The changes to a site, as they are shown.

use crate::console::Console;
use control::site::{SiteChange, SiteChanges, SiteStep, planning::PlannedSite};
use report::Refusal;
use serde::Serialize;

/// The changes as JSON.
#[derive(Serialize)]
struct ShownChanges<'a> {
    changes: Vec<SiteChange>,
    /// Pools and volumes that the file lacks, which stay.
    kept: &'a [String],
    /// Parts of the file that are not served, and dangers.
    notes: &'a [String],
}

/// Prints what is to change, what stays though the file lacks it, and what the file says in vain.
pub fn show(plan: &PlannedSite, file: &str, console: &Console) -> Result<(), Refusal> {
    let SiteChanges { kept, .. } = &plan.changes;
    let changes = plan.changes.shown();
    if console.is_for_programs() {
        console.json_of(&ShownChanges { changes: changes.clone(), kept, notes: plan.notes() })?;
    }
    match changes.len() {
        0 => console.say(&format!("{file}: nothing to change")),
        1 => console.say(&format!("{file}: 1 change")),
        many => console.say(&format!("{file}: {many} changes")),
    }
    changes.iter().for_each(|change| console.say(&format!("  {change}")));
    kept.iter().for_each(|kept| console.say(&format!("  not in the file: {kept}")));
    plan.notes().iter().for_each(|note| console.warn(note));
    Ok(())
}

/// Prints a step that is begun, if it takes a while.
pub fn show_step(step: &SiteStep, console: &Console) {
    if let SiteStep::MakePool(pool) = step {
        console.say_progress(&format!("making the pool {}", pool.name));
    }
}

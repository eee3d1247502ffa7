//! The changes to a site, as they are shown.

use crate::console::Console;
use control::{
    site::{SiteStep, planning::PlannedSite},
    web::rows::SitePlan,
};
use report::Refusal;

/// A plan as it is shown, and as JSON.
pub fn shown(plan: &PlannedSite) -> SitePlan {
    SitePlan {
        changes: plan.changes.shown(),
        kept: plan.changes.kept.clone(),
        notes: plan.notes().to_vec(),
        apply_under_way: None,
    }
}

/// Prints what is to change, what stays though the file lacks it, and what the file says in vain.
pub fn show(plan: &SitePlan, file: &str, console: &Console) -> Result<(), Refusal> {
    let SitePlan { changes, kept, notes, apply_under_way } = plan;
    if console.is_for_programs() {
        console.json_of(plan)?;
    }
    match changes.len() {
        0 => console.say(&format!("{file}: nothing to change")),
        1 => console.say(&format!("{file}: 1 change")),
        many => console.say(&format!("{file}: {many} changes")),
    }
    changes.iter().for_each(|change| console.say(&format!("  {change}")));
    kept.iter().for_each(|kept| console.say(&format!("  not in the file: {kept}")));
    notes.iter().for_each(|note| console.warn(note));
    if let Some(progress) = apply_under_way {
        console.warn(&format!("{progress}; these changes are the difference as it is now"));
    }
    Ok(())
}

/// Prints a step that is begun, if it takes a while.
pub fn show_step(step: &SiteStep, console: &Console) {
    if let SiteStep::MakePool(pool) = step {
        console.say_progress(&format!("making the pool {}", pool.name));
    }
}

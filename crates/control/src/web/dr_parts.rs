//! DR groups with volumes in several pools: each part is a group of its own in its pool, and what is asked of one is done with
//! all.
//!
//! Invariants:
//!
//! 1. Parts are made, moved and promoted in their order, so that a verb that was cut short is ended by the same verb.
//! 2. Hosts are served nowhere while the parts are primary at two sites. A pool may notice that up to a second after the hand over
//!    of the first part, to which nobody writes by then.

use super::{ApiState, caller::Caller, dr_groups::change, dr_sites::link_of, problem::ApiProblem};
use crate::{
    dr::group_view::{DrGroupView, DrRole},
    site::handle::PoolHandle,
};
use report::Refusal;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

/// Pause before the rest of a group is moved once more.
const MOVE_AGAIN: Duration = Duration::from_millis(500);
/// Attempts to move a part once others have moved.
const MOVES: u32 = 20;

/// A part of a group with volumes in several pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrPartRow {
    /// UUID of the whole group, at both sites.
    pub whole: String,
    /// Counted from 1.
    pub part: usize,
    pub parts: usize,
    /// Of a primary: the other site would show what it has of all parts. Of a secondary: its volumes fit to the other parts; if
    /// not, it would show the last state in which they did.
    pub is_together: bool,
    /// Parts whose pools are not open here.
    pub missing: Vec<usize>,
    /// Parts without a connection: the others send nothing without them.
    pub waited_for: Vec<usize>,
}

impl DrPartRow {
    pub(super) fn of(group: &DrGroupView) -> Option<Self> {
        let joint = group.joint.as_ref()?;
        Some(Self {
            whole: joint.part.whole.to_string(),
            part: usize::from(joint.part.index) + 1,
            parts: joint.part.parts.into(),
            is_together: joint.is_together,
            missing: joint.missing.clone(),
            waited_for: joint.waited_for.clone(),
        })
    }

    /// The reason for which the parts are apart, and the next step.
    pub(super) fn problem(&self, name: &str) -> Option<String> {
        let numbers = |parts: &[usize]| parts.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        let of = self.parts;
        if !self.missing.is_empty() {
            return Some(format!(
                "part {} of {of} is not here: its pool is not open, or the group was not made whole; nothing is sent, and it cannot \
                 take over. Open the pool, or say 'spindle dr remove {name}' at both sites and make it again",
                numbers(&self.missing)
            ));
        }
        (!self.waited_for.is_empty()).then(|| {
            format!(
                "part {} of {of} has no connection: the other parts wait for it, as they go to the other site together or not at all",
                numbers(&self.waited_for)
            )
        })
    }
}

/// All parts of a group that are here, in their order; a group of one pool alone.
pub(super) fn parts_of(
    api: &ApiState,
    caller: &Caller,
    (pool, view): (PoolHandle, DrGroupView),
) -> Vec<(PoolHandle, DrGroupView)> {
    let Some(joint) = view.joint.clone() else { return vec![(pool, view)] };
    let site = api.site.look();
    let mut parts = Vec::new();
    for pool in site.pools.values().filter(|pool| caller.sees(&pool.name)) {
        let groups = pool.last_view().dr.groups.clone().into_iter();
        let of_whole = groups
            .filter(|group| group.joint.as_ref().is_some_and(|known| known.part.whole == joint.part.whole));
        parts.extend(of_whole.map(|group| (pool.clone(), group)));
    }
    parts.sort_by_key(|(_, group)| group.joint.as_ref().map(|joint| joint.part.index));
    parts
}

/// Refuses what needs all parts while some are not here.
pub(super) fn check_whole(parts: &[(PoolHandle, DrGroupView)]) -> Result<(), ApiProblem> {
    let Some((_, first)) = parts.first() else { return Ok(()) };
    let Some(row) = DrPartRow::of(first) else { return Ok(()) };
    if parts.len() == row.parts {
        return Ok(());
    }
    let problem = format!("{}: {} of its {} parts are here", first.name, parts.len(), row.parts);
    let next = "open the pools of the others, and do not hide them from this caller; see 'spindle dr status'";
    Err(ApiProblem::refused(&Refusal::new(problem, next)))
}

/// Moves all parts to the other site, or to this one.
pub(super) async fn move_parts(
    api: &ApiState,
    parts: &[(PoolHandle, DrGroupView)],
) -> Result<(), ApiProblem> {
    // Parts that are at two sites come to this one.
    let goes_away = parts.iter().all(|(_, group)| group.role == DrRole::Primary);
    let moving = parts.iter().filter(|(_, group)| goes_away || group.role == DrRole::Secondary);
    for (moved, (pool, group)) in moving.enumerate() {
        let mut tries = 0;
        while let Err(problem) = move_part(api, (pool, group), goes_away).await {
            // With a witness the other site takes what was left behind; without one the part may be primary at neither.
            if moved > 0 && group.witness.is_some() && has_moved((pool, group), goes_away) {
                break;
            }
            tries += 1;
            if moved == 0 {
                return Err(problem);
            }
            if tries >= MOVES {
                let refusal = Refusal::new(
                    format!(
                        "{}: {moved} of {} parts have moved, and the next one did not: {}; hosts are served nowhere",
                        group.name,
                        parts.len(),
                        problem.detail
                    ),
                    next_of(&problem),
                );
                return Err(ApiProblem::refused(&refusal));
            }
            api.world.sleep(MOVE_AGAIN).await;
        }
    }
    Ok(())
}

/// A part is where it was to be moved.
fn has_moved((pool, group): (&PoolHandle, &DrGroupView), goes_away: bool) -> bool {
    let wanted = if goes_away { DrRole::Secondary } else { DrRole::Primary };
    let groups = &pool.last_view().dr.groups;
    groups.iter().any(|known| known.group == group.group && known.role == wanted)
}

/// The next step after a part did not move and others have.
fn next_of(problem: &ApiProblem) -> &str {
    let of_part = problem.next.as_deref().filter(|next| next.contains("unplanned"));
    of_part.unwrap_or("say 'spindle failover' at the site that is to have all of them; nothing is lost")
}

async fn move_part(
    api: &ApiState,
    (pool, group): (&PoolHandle, &DrGroupView),
    goes_away: bool,
) -> Result<(), ApiProblem> {
    let id = group.group;
    match goes_away {
        true => {
            change(pool, "hand DR group over", move |dr| Box::pin(async move { dr.hand_over(id).await }))
                .await
        }
        false => Ok(link_of(api)?.request_hand_over(group.peer, id).await?),
    }
}

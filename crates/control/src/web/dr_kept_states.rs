//! States of DR groups that are kept here, as of which a group is promoted or rehearsed.

use super::{ApiState, dr_groups::change, problem::ApiProblem};
use crate::{dr::group_view::DrGroupView, site::handle::PoolHandle};
use replication::secondary::KeptState;
use report::Refusal;

/// The newest state that a rehearsal has proven.
const LAST_PROVEN: &str = "last-proven";
/// Names of states in a refusal.
const NAMES_SHOWN: usize = 6;

/// The state of a name, or the newest one that was proven: as each part has it, in the order given.
///
/// # Errors
///
/// There is none that all parts have.
pub(super) async fn kept_state(
    api: &ApiState,
    parts: &[(PoolHandle, DrGroupView)],
    meant: &str,
) -> Result<Vec<KeptState>, ApiProblem> {
    let (_, first) = &parts[0];
    let (id, name) = (first.group, &first.name);
    let mut of_parts: Vec<Vec<KeptState>> = Vec::new();
    for (pool, part) in parts {
        let id = part.group;
        let looked =
            change(pool, "look at kept states", move |dr| Box::pin(async move { dr.kept_states(id) }));
        of_parts.push(looked.await?);
    }
    // A snapshot that was taken in all pools at one moment has one identity; names may come twice.
    let is_in =
        |one: &KeptState, states: &[KeptState]| states.iter().any(|other| other.snapshot == one.snapshot);
    let states = of_parts[0].iter().filter(|one| of_parts.iter().all(|states| is_in(one, states)));
    let states: Vec<KeptState> = states.cloned().collect();
    let kept = names_of(&states);
    let (found, problem) = match meant {
        LAST_PROVEN => {
            let past = api.journal.rehearsals()?.remove(&id.to_string());
            let proven = past.map(|past| past.proven).unwrap_or_default();
            let is_proven = |state: &KeptState| {
                let snapshot = state.snapshot.to_string();
                proven.iter().any(|known| known.snapshot == snapshot)
            };
            (
                states.into_iter().find(is_proven),
                format!("no state of {name} that is kept here was proven by a rehearsal"),
            )
        }
        meant => (
            states.into_iter().find(|state| state.name == meant),
            format!("there is no state {meant:?} of all volumes of {name} here"),
        ),
    };
    let as_parts_have_it = |found: KeptState| -> Vec<KeptState> {
        let of_part =
            |states: &Vec<KeptState>| states.iter().find(|one| one.snapshot == found.snapshot).cloned();
        of_parts.iter().filter_map(of_part).collect()
    };
    found.map(as_parts_have_it).ok_or_else(|| {
        let prove = format!("'spindle failover {name} ⟨rehearse⟩ ⟨at⟩ STATE' proves one");
        let next = match kept.is_empty() {
            true => "none is kept: snapshots of all its volumes are states, and so is what passes of a periodic group left".to_owned(),
            false if meant == LAST_PROVEN => format!("{prove}, or name one yourself; kept are {kept}"),
            false => format!("kept are {kept}"),
        };
        ApiProblem::refused(&Refusal::new(problem, next))
    })
}

/// Names of states, the newest first.
fn names_of(states: &[KeptState]) -> String {
    let names: Vec<&str> = states.iter().take(NAMES_SHOWN).map(|state| state.name.as_str()).collect();
    let others = states.len().saturating_sub(NAMES_SHOWN);
    let more = if others > 0 { format!(" and {others} others") } else { String::new() };
    format!("{}{more}", names.join(", "))
}

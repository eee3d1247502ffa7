//! A set whose catalogue was lost: its backups as the pools have them.

use super::BackupPools;
use crate::catalogue::{RebuildError, RebuiltSet, SetId, rebuild};
use std::collections::BTreeMap;
use thiserror::Error;
use world::World;

#[derive(Debug, Error)]
pub enum CollectingError {
    #[error("pool {pool} does not answer ({why}), and what it has would count as missing")]
    Silent { pool: String, why: String },
    #[error("no pool has a backup of {0} that is not in its catalogue")]
    NoPoint(String),
    #[error("several catalogues of {set} are lost: {}", said(.ids))]
    SeveralIds { set: String, ids: BTreeMap<String, usize> },
    #[error(transparent)]
    Rebuild(#[from] RebuildError),
}

fn said(ids: &BTreeMap<String, usize>) -> String {
    let texts: Vec<String> = ids.iter().map(|(id, points)| format!("{id} with {points} points")).collect();
    texts.join(", ")
}

/// Collects the backups of the catalogue `id` from the notes of their points; without it, of the only catalogue of the set that
/// is not `present`.
///
/// # Errors
///
/// A pool does not answer, or there is no such catalogue, or several.
pub async fn collect_backups(
    world: &World,
    set: &str,
    pools: &dyn BackupPools,
    (id, present): (Option<SetId>, Option<&SetId>),
) -> Result<RebuiltSet, CollectingError> {
    let id = match id {
        Some(id) => id,
        None => {
            let nobodys = || {
                let mut id = [0; 8];
                world.fill_secret(&mut id);
                SetId::new(u64::from_le_bytes(id))
            };
            let answer = pools.points(&present.cloned().unwrap_or_else(nobodys)).await;
            check_silence(&answer.silent)?;
            let ids = answer.of_others;
            match (ids.len(), ids.keys().next().map(|id| SetId::try_from(id.clone()))) {
                (1, Some(Ok(id))) => id,
                (0, _) => return Err(CollectingError::NoPoint(set.to_owned())),
                _ => return Err(CollectingError::SeveralIds { set: set.to_owned(), ids }),
            }
        }
    };
    let answer = pools.points(&id).await;
    check_silence(&answer.silent)?;
    Ok(rebuild(&answer.found, set, Some(&id))?)
}

fn check_silence(silent: &BTreeMap<String, String>) -> Result<(), CollectingError> {
    match silent.iter().next() {
        None => Ok(()),
        Some((pool, why)) => Err(CollectingError::Silent { pool: pool.clone(), why: why.clone() }),
    }
}

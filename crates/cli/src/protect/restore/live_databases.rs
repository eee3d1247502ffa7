//! The databases of a set's live volumes, read on clones of these: a volume that was exported counts as used for a while.

use super::{
    super::log_chain::{ChainedLogs, live_clone_name},
    volumes::RestoredVolume,
};
use crate::protect::{
    backup_exports::{begin_export_of, delete_export},
    mailboxes::MailDatabases,
    temporary_clones::{delete_clone, make_clone},
};
use report::Refusal;
use std::collections::BTreeMap;

/// Lets `read` look into the databases of the volumes that are not done, or at the reason why they cannot be brought up. The
/// clones are gone when it has ended.
pub(super) async fn with_live<T>(
    chained: &ChainedLogs<'_>,
    volumes: &[RestoredVolume],
    read: impl AsyncFnOnce(Result<&MailDatabases, Refusal>) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let ChainedLogs { world, server, place, console, base, .. } = *chained;
    let name = |index: usize| live_clone_name(world, base, &volumes[index].point);
    let names: BTreeMap<usize, String> = (0..volumes.len())
        .filter(|&index| !volumes[index].is_done)
        .map(|index| (index, name(index)))
        .collect();
    let looking = async {
        let mut named = Vec::new();
        for (&index, clone) in &names {
            let volume = &volumes[index].volume;
            make_clone(server, &volume.id, (None, clone)).await?;
            let exported = (&**clone, format!("{}/{clone}", volume.pool), true);
            let uri = begin_export_of(world, server, exported, place).await?;
            named.push((uri, volumes[index].path()));
        }
        match Box::pin(MailDatabases::bring_up(world, named, console)).await {
            Ok(live) => {
                let outcome = Box::pin(read(Ok(&live))).await;
                live.close().await;
                outcome
            }
            Err(refusal) => read(Err(refusal)).await,
        }
    };
    let looked = Box::pin(looking).await;
    for (&index, clone) in &names {
        delete_export(server, clone).await?;
        delete_clone(server, &volumes[index].volume.pool, clone).await?;
    }
    looked
}

//! Copies in a vault, for a catalogue that was made again: no note of a snapshot tells of them.

use super::{
    copying::{has_all, note_copy},
    opening::OpenVault,
};
use crate::server::connection::ServerConnection;
use control::web::client::{BackupCopyBody, RebuiltRow, SetRow, in_uri};
use report::Refusal;
use serde::Serialize;
use std::collections::BTreeMap;
use vault::contents::{CopiedBackup, copied_backups};

/// The copies of a rebuilt catalogue's backups.
#[derive(Debug, Serialize)]
pub struct VaultCopies {
    vault: String,
    /// Names of backups of which the catalogue has the copy now.
    pub noted: Vec<String>,
    /// Names of those that the vault alone has.
    pub in_vault_alone: Vec<String>,
}

/// Notes the copies that a vault has, in the catalogue of a set that the server keeps.
///
/// # Errors
///
/// The vault cannot be read, or the server refuses.
pub async fn note_copies(
    server: &ServerConnection,
    (set, rebuilt): (&str, &RebuiltRow),
    vault: &OpenVault,
) -> Result<VaultCopies, Refusal> {
    let there = copied_backups(&vault.repository).await.map_err(|error| vault.refused(&error))?;
    let of_catalogue = there.into_iter().filter(|copy| copy.record.catalogue == rebuilt.catalogue);
    // Of a backup that was copied by the clock and by hand, one is enough.
    let by_number: BTreeMap<u64, CopiedBackup> =
        of_catalogue.map(|copy| (copy.record.backup, copy)).collect();
    let row: SetRow = server.get(&format!("/v1/sets/{}", in_uri(set))).await?;
    let mut copies = VaultCopies { vault: vault.place(), noted: Vec::new(), in_vault_alone: Vec::new() };
    for (number, CopiedBackup { id, record, .. }) in &by_number {
        let known = row.backups.iter().find(|known| known.number == *number);
        let is_it = known.is_some_and(|known| {
            has_all(record, known.points.iter().map(|point| point.snapshot_id.as_str()))
        });
        if !is_it {
            copies.in_vault_alone.push(record.name.clone());
            continue;
        }
        let body = BackupCopyBody {
            to: vault.noted_place(),
            id: id.to_string(),
            bytes: 0,
            copies: Some(by_number.keys().copied().collect()),
            problem: None,
        };
        note_copy(server, (set, *number), &body).await?;
        copies.noted.push(record.name.clone());
    }
    Ok(copies)
}

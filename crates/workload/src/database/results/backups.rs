//! Backups of a run: plain values.

use serde::{Deserialize, Serialize};

/// One backup of one storage group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackupResults {
    /// Storage group, from 1.
    pub group: u32,
    /// Name of the snapshots of all its volumes.
    pub name: String,
    /// Seconds after the load began to be measured.
    pub at_s: f64,
    /// `application`, `filesystem` or `crash`; `None` if there is no backup.
    pub label: Option<String>,
    /// Why it is not worth more, or is not there.
    pub problems: Vec<String>,
    /// From the last commit answered before the freeze to the first one after it, in milliseconds; `None` if
    /// none was answered afterwards.
    pub window_ms: Option<f64>,
    /// From the beginning of the freeze to the thaw, in milliseconds.
    pub freeze_ms: Option<f64>,
    /// Backups that were there afterwards.
    pub kept: u32,
    /// Backups that were removed because of it.
    pub deleted: Vec<String>,
}

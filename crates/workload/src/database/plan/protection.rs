//! Backups that are taken while a run measures.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Most backups that are kept. A volume of the array can have more snapshots; a run has no use for them.
pub const KEEP_MAX: u32 = 1000;
/// Longest interval, in seconds: a day.
pub const EVERY_S_MAX: u64 = 86_400;

/// The interval of backups, the number of those that are kept, and whether logs reach from each to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtectionPlan {
    /// Seconds from the beginning of one to that of the next.
    pub every_s: u64,
    /// The oldest is removed once there are more.
    pub keep: u32,
    /// Log generations stay until a backup has them. Otherwise they go with the checkpoint.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_logs: bool,
}

impl ProtectionPlan {
    pub fn every(&self) -> Duration {
        Duration::from_secs(self.every_s)
    }
}

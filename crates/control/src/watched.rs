//! Parts of the served site that the thread of events needs: notifiers, certificates with their ends, schedules, sets.

use crate::notifying::WantedNotifier;
use std::path::PathBuf;

/// A certificate that is served with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedCertificate {
    pub file: PathBuf,
    /// Seconds since 1970, UTC.
    pub ends_unix_s: i64,
}

/// Notifiers, certificates, schedules and sets of the site file that was applied last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchedSite {
    pub notifiers: Vec<WantedNotifier>,
    pub certificates: Vec<WatchedCertificate>,
    /// Pools, and the names of schedules of snapshots in them.
    pub schedules: Vec<(String, String)>,
    /// Names of the sets that this server keeps.
    pub sets: Vec<String>,
}

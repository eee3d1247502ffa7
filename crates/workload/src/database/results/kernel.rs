//! Kernel log messages about the devices under test, as results keep them.

use serde::{Deserialize, Serialize};

/// Maximum number of messages in results.
pub const KEPT: usize = 100;

/// One message about a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelEvent {
    /// Seconds since 1970, UTC.
    pub unix_s: i64,
    /// As the kernel calls it.
    pub device: String,
    /// Category, in a word or two.
    pub what: String,
    /// The kernel source file or subsystem.
    pub source: String,
    pub text: String,
}

/// Kernel messages of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelResults {
    pub count: u64,
    /// The first messages.
    pub events: Vec<KernelEvent>,
    /// True if messages were overwritten before they were read.
    pub lost: bool,
    /// Reason the log could not be read, or not to the end.
    pub unreadable: Option<String>,
}

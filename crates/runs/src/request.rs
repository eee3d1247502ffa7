//! Settings of a run as its caller gives them. Open ones are filled in from a site or a published test, then by defaults.

use crate::{layout::LayoutKind, remote::RemoteResolver, sweep::SweepSpec};
use std::{path::PathBuf, sync::Arc, time::Duration};
use workload::{database::plan::protection::ProtectionPlan, verdict::judged_part::JudgedPart};
use world::ByteCount;

/// Storage groups in one run: their log prefixes are E00 to E3F.
pub const GROUPS_MAX: u32 = 64;
/// Databases in one group, the limit of the engine.
pub const DATABASES_MAX: u32 = 10;
/// Simulated threads in one group: far beyond any tuning advice (published tests use 1 to 40).
pub const THREADS_MAX: u32 = 1_024;

/// Settings of a run, of all runs of a sweep, or of cleaning. Passive data.
#[derive(Clone, Debug, Default)]
pub struct RunRequest {
    /// Folders, raw devices or URIs for databases; empty for `./spindle-data`.
    pub paths: Vec<PathBuf>,
    /// The same for transaction logs; empty for beside the databases.
    pub logs: Vec<PathBuf>,
    /// Reaches devices behind URIs; without it a URI is a path.
    pub remotes: Option<Arc<dyn RemoteResolver>>,
    /// Name or file of a published test.
    pub setup: Option<String>,
    /// File of a site.
    pub site: Option<String>,
    pub groups: Option<u32>,
    /// Databases in each group.
    pub databases: Option<u32>,
    /// Threads in each group.
    pub threads: Option<Threads>,
    /// Mailboxes of the whole run.
    pub mailboxes: Option<u32>,
    /// IOPS of one mailbox.
    pub iops: Option<f64>,
    /// Search for the highest rate within limits.
    pub max: bool,
    /// Time each load of a search is measured.
    pub probe: Option<Duration>,
    /// Time measured.
    pub duration: Option<Duration>,
    pub judge: Option<JudgedPart>,
    /// All databases together.
    pub size: Option<ByteCount>,
    /// Cache of each group.
    pub cache: Option<ByteCount>,
    /// Name or file of a profile.
    pub profile: Option<String>,
    /// Name of a limit set.
    pub limits: Option<String>,
    /// Changed figures of the profile.
    pub set: Vec<(String, String)>,
    /// Facts of the storage, for the report.
    pub note: Vec<(String, String)>,
    /// Prefix of the report's files.
    pub report: Option<PathBuf>,
    pub sweep: Option<SweepSpec>,
    /// Run on Spindle's own array as well.
    pub pool: bool,
    /// Take backups of the databases on the array while the load is measured.
    pub protect: Option<ProtectionPlan>,
    /// Socket at which others freeze the databases while the load is on; one a group.
    pub control: Option<PathBuf>,
    /// Logs stay until those who freeze the databases say that a backup with them is proven.
    pub keeps_logs: bool,
    pub layout: Option<LayoutKind>,
    /// The first so many database paths are used; a sweep sets it.
    pub volumes: Option<u32>,
    /// Cache of the arrays under test, if the site names it.
    pub storage_cache: Option<ByteCount>,
    pub seed: Option<u64>,
    /// Use existing databases; refuse to make new ones.
    pub attach: bool,
    /// Replace existing databases.
    pub fresh: bool,
    /// Keep a copy of the new databases.
    pub keep_pristine: bool,
    /// Begin from that copy.
    pub restore: bool,
    /// Bytes that may be written; 1 TB if `None`.
    pub allow_writes: Option<ByteCount>,
    /// Serial numbers of devices that may be overwritten although they have a signature.
    pub unlock_signature: Vec<String>,
}

/// Simulated threads of each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    Count(u32),
    /// As many as do most within limits.
    Auto,
}

//! Jobs that somebody asked for, as values: they go between threads, and the journal keeps them over restarts.

use array::{mover::JobKind, pool::ImportTerms};
use serde::{Deserialize, Serialize};
use serving::{
    pool::{
        add_drive::CopiesAnswer, copying::TransferAnswer, levelling::LevelAnswer, scrub::ScrubAnswer,
        volume_import::VolumeImportAnswer,
    },
    remote::RemoteSettings,
};
use std::collections::BTreeSet;
use utoipa::ToSchema;
use world::WallTime;

/// A job that was asked for: under way, or the last one of its kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRequest {
    /// UUID of the first request for it.
    pub id: String,
    pub job: RequestedJob,
    /// Seconds since 1970, UTC.
    pub asked_unix_s: i64,
    /// UUIDs of drives that are forgotten once the copies are made.
    #[serde(default)]
    pub forgets: BTreeSet<String>,
    /// Of a copy, a refresh, a move or an import.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer: Option<TransferRequest>,
    /// Its copy or refresh is to end early, also after a restart. A move goes on then.
    #[serde(default)]
    pub is_cancelled: bool,
    /// `None` while it is under way.
    pub end: Option<JobEnd>,
}

/// A kind of job that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestedJob {
    /// Makes copies that are missing, without waiting for drives that are away.
    Rebuild,
    Level,
    Scrub,
    /// Copies a snapshot of another pool into a new volume.
    Copy,
    /// Brings a copy up to another snapshot of its source in another pool.
    Refresh,
    /// Moves a volume of another pool here.
    Move,
    /// Copies a device elsewhere into a volume that hosts use meanwhile.
    Import,
}

/// The source of a copy, a refresh or a move, in another pool; and the volume in this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferRequest {
    /// UUIDs of the pool, of the volume, and of its snapshot unless it moves.
    pub pool: String,
    pub volume: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// `POOL/VOLUME` or `POOL/VOLUME@SNAPSHOT` when it was asked for.
    pub from: String,
    /// Name of the volume in this pool.
    pub name: String,
    /// Of an import, which has no pool as its source: `from` is a URI or a path, and `volume` the new volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import: Option<ImportOrder>,
}

/// Orders of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportOrder {
    /// Names and options that the server of the source asks for.
    pub access: RemoteSettings,
    /// It ends although blocks cannot be read, or have changed.
    pub keeps_findings: bool,
    /// The source is not read again for the comparison.
    #[serde(default)]
    pub reads_once: bool,
}

impl ImportOrder {
    pub fn terms(&self) -> ImportTerms {
        ImportTerms { keeps_findings: self.keeps_findings, reads_once: self.reads_once }
    }
}

/// The end of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobEnd {
    /// Seconds since 1970, UTC.
    pub ended_unix_s: i64,
    pub outcome: JobOutcome,
    pub answer: Option<JobAnswer>,
    /// The reason if it has failed.
    pub problem: Option<String>,
}

/// End of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = JobOutcomeName)]
#[serde(rename_all = "snake_case")]
pub enum JobOutcome {
    Done,
    Cancelled,
    Failed,
}

/// The result of a job, as the verbs of `pool` print it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum JobAnswer {
    Import(VolumeImportAnswer),
    Scrub(ScrubAnswer),
    Level(LevelAnswer),
    Copies(CopiesAnswer),
    Transfer(TransferAnswer),
}

impl RequestedJob {
    pub fn kind(self) -> JobKind {
        match self {
            Self::Rebuild => JobKind::Rebuild,
            Self::Level => JobKind::Level,
            Self::Scrub => JobKind::Scrub,
            Self::Copy => JobKind::Copy,
            Self::Refresh => JobKind::Refresh,
            Self::Move => JobKind::Move,
            Self::Import => JobKind::Import,
        }
    }

    /// True if it has a source outside of the pool.
    pub fn is_transfer(self) -> bool {
        matches!(self, Self::Copy | Self::Refresh | Self::Move | Self::Import)
    }
}

impl JobRequest {
    /// A job that begins now.
    pub fn new(id: String, job: RequestedJob, now: WallTime) -> Self {
        let (asked_unix_s, forgets) = (now.seconds, BTreeSet::new());
        Self { id, job, asked_unix_s, forgets, transfer: None, is_cancelled: false, end: None }
    }

    pub fn is_open(&self) -> bool {
        self.end.is_none()
    }
}

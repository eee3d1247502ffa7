//! Changes of volumes in front of a person: in a pool that the command opens, or in one that a server has open.

use super::{backup_locks::check_unlocked, online_pool::OnlinePool, pool_place::PoolPlace, reporter};
use crate::{console::Console, server::place::ServerAddress};
use report::Refusal;
use serving::{
    export::WithheldClients,
    pool::{
        folder::OpenPool,
        limits::LimitStatus,
        volume_change::{RolledBackVolume, VolumeChange, VolumeDone, VolumeOutcome, VolumeRef, perform},
        withholding::ReadmissionAnswer,
    },
};
use std::path::Path;
use world::{ByteCount, World};

/// The options that all verbs of pools and volumes have.
#[derive(Clone, Copy)]
pub struct VerbOptions<'a> {
    pub json: bool,
    pub server: &'a ServerAddress,
}

/// A pool whose volumes can be changed.
pub enum VolumeAccess {
    Stopped(Box<OpenPool>),
    Served(Box<OnlinePool>),
}

/// A volume that was changed.
pub struct ChangedVolume {
    /// Afterwards, as size and limits; of a deleted volume, before.
    pub name: String,
    pub size: ByteCount,
    pub limits: LimitStatus,
    pub facts: ChangeFacts,
}

/// Facts of a volume, for those who are about to destroy some of it.
pub struct EndangeredVolume {
    pub size: ByteCount,
    /// It has snapshots, is in a group, or is served: it is not deleted.
    pub is_needed: bool,
    /// Its services and clients, behind a comma.
    pub uses: String,
}

/// Facts of a change, for those kinds that have some.
pub enum ChangeFacts {
    None,
    RolledBack { left_name: String, size_before: ByteCount, withheld: WithheldClients },
    Readmitted(ReadmissionAnswer),
}

impl VolumeAccess {
    /// The pool that is given as a folder or a name. One that nobody has open is opened.
    ///
    /// # Errors
    ///
    /// There is no such pool, or it does not open.
    pub async fn open(
        world: &World,
        pool: &Path,
        server: &ServerAddress,
        console: &Console,
    ) -> Result<Self, Refusal> {
        Self::of(world, PoolPlace::of(world, pool, server).await?, pool, console).await
    }

    /// The pool of a place that was found.
    ///
    /// # Errors
    ///
    /// It does not open.
    pub async fn of(
        world: &World,
        place: PoolPlace,
        pool: &Path,
        console: &Console,
    ) -> Result<Self, Refusal> {
        match place {
            PoolPlace::Served(served) => Ok(Self::Served(served)),
            PoolPlace::Folder => Ok(Self::Stopped(Box::new(reporter::open(world, pool, console).await?))),
        }
    }

    /// Makes a change.
    ///
    /// # Errors
    ///
    /// It is refused.
    pub async fn perform(&self, change: &VolumeChange) -> Result<ChangedVolume, Refusal> {
        match self {
            Self::Stopped(open) => {
                if let VolumeChange::DeleteSnapshot { volume, snapshot } = change {
                    check_unlocked(open.world(), open, (volume, snapshot))?;
                }
                perform(change, &open.changeable()).await.map(ChangedVolume::from)
            }
            Self::Served(served) => served.perform(change).await,
        }
    }

    /// Facts of a volume; `None` if there is none, or not the snapshot of it.
    ///
    /// # Errors
    ///
    /// The server does not answer, or has no such volume.
    pub async fn facts(
        &self,
        volume: &VolumeRef,
        snapshot: Option<&str>,
    ) -> Result<Option<EndangeredVolume>, Refusal> {
        match self {
            Self::Stopped(open) => {
                let Some(info) = open.pool.volumes().into_iter().find(|info| volume.is(info)) else {
                    return Ok(None);
                };
                let snapshots = open.pool.snapshots(info.volume).unwrap_or_default();
                let is_there = |name: &str| snapshots.iter().any(|known| known.name == name);
                let facts = EndangeredVolume {
                    size: ByteCount(info.size_bytes),
                    is_needed: info.snapshots > 0 || info.group.is_some(),
                    uses: String::new(),
                };
                Ok(snapshot.is_none_or(is_there).then_some(facts))
            }
            Self::Served(served) => served.facts(volume, snapshot).await,
        }
    }

    /// Makes a change, and closes the pool.
    ///
    /// # Errors
    ///
    /// It is refused, or the pool did not close well.
    pub async fn perform_and_close(self, change: &VolumeChange) -> Result<ChangedVolume, Refusal> {
        let done = self.perform(change).await;
        let closed = self.close().await;
        let done = done?;
        closed?;
        Ok(done)
    }

    /// Closes a pool that was opened.
    ///
    /// # Errors
    ///
    /// Some writes may not be stable.
    pub async fn close(self) -> Result<(), Refusal> {
        match self {
            Self::Stopped(open) => open.close().await,
            Self::Served(_) => Ok(()),
        }
    }
}

impl From<VolumeDone> for ChangedVolume {
    fn from(done: VolumeDone) -> Self {
        let facts = match done.outcome {
            VolumeOutcome::RolledBack(RolledBackVolume { left_name, bytes_before, withheld, .. }) => {
                ChangeFacts::RolledBack { left_name, size_before: ByteCount(bytes_before), withheld }
            }
            VolumeOutcome::Readmitted(answer) => ChangeFacts::Readmitted(answer),
            _ => ChangeFacts::None,
        };
        Self {
            size: ByteCount(done.volume.size_bytes),
            limits: LimitStatus::of(&done.volume.setting),
            name: done.volume.name,
            facts,
        }
    }
}

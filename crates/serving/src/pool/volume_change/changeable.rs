//! An open pool in front of the changes of its volumes: stopped pools that a command has opened, and served ones.

use super::VolumeRef;
use crate::{
    export::{IdentityOrigin, PoolExports, SharedDevice},
    pool::{drive_search::DriveSearch, folder::cause_of},
    uuid::random_uuid,
};
use array::{
    error::Error,
    pool::{Pool, Snapshot, VolumeInfo},
};
use report::{Refusal, RefusalCause};
use std::{
    path::{Path, PathBuf},
    rc::Rc,
};
use world::World;

/// Remedy of refusals that explain themselves.
pub(in crate::pool) const HELP: &str = "see 'spindle volume --help'";

/// A pool that this thread has open.
#[derive(Clone, Copy)]
pub struct ChangeablePool<'a> {
    pub(in crate::pool) world: &'a World,
    pub(in crate::pool) pool: &'a Rc<Pool>,
    /// The pool in messages: its folder, or its name.
    pub(in crate::pool) place: &'a Path,
    drives: Option<&'a DriveSearch>,
    pub(in crate::pool) exports: Option<&'a PoolExports>,
    /// Of what a change makes; random if `None`.
    identity: Option<[u8; 16]>,
}

impl<'a> ChangeablePool<'a> {
    /// A pool that a command has opened, whose messages name its drives.
    pub(in crate::pool) fn stopped(
        world: &'a World,
        pool: &'a Rc<Pool>,
        place: &'a Path,
        drives: &'a DriveSearch,
    ) -> Self {
        Self { world, pool, place, drives: Some(drives), exports: None, identity: None }
    }

    /// The same, giving this UUID to what one change makes: done again, the change can be recognised.
    pub fn with_identity(self, uuid: [u8; 16]) -> Self {
        Self { identity: Some(uuid), ..self }
    }

    /// The UUID of what is made.
    pub(in crate::pool) fn new_uuid(&self) -> [u8; 16] {
        self.identity.unwrap_or_else(|| random_uuid(self.world))
    }

    /// A pool that is served, whose exports may have some of its volumes in use.
    pub(crate) fn served(
        (world, pool, place): (&'a World, &'a Rc<Pool>, &'a Path),
        exports: &'a PoolExports,
    ) -> Self {
        Self { world, pool, place, drives: None, exports: Some(exports), identity: None }
    }

    /// The pool in messages.
    pub fn place(&self) -> &Path {
        self.place
    }

    /// A pool's error.
    pub fn refusal(&self, error: &Error, remedy: &str) -> Refusal {
        let cause = cause_of(error);
        // The words of a verb's help do not help then.
        let remedy =
            if cause == RefusalCause::Request { remedy } else { "see 'spindle pool show', and its drives" };
        let problem = self.drives.map_or_else(|| error.to_string(), |drives| drives.in_words(error));
        Refusal::new(format!("{}: {problem}", self.place.display()), remedy).caused_by(cause)
    }

    /// A volume in messages.
    pub(in crate::pool) fn path(&self, volume: &str) -> PathBuf {
        self.place.join(volume)
    }

    pub(in crate::pool) fn find(&self, volume: &VolumeRef) -> Option<VolumeInfo> {
        self.pool.volumes().into_iter().find(|info| volume.is(info))
    }

    /// As [`Self::find`].
    ///
    /// # Errors
    ///
    /// No such volume.
    pub(in crate::pool) fn info(&self, volume: &VolumeRef) -> Result<VolumeInfo, Refusal> {
        self.find(volume).ok_or_else(|| self.refusal(&Error::NoVolume(volume.key().to_string()), HELP))
    }

    /// A volume and its snapshots.
    ///
    /// # Errors
    ///
    /// No such volume; or a copy or a move has it under another name, as the refusal says.
    pub(in crate::pool) fn with_snapshots(
        &self,
        volume: &VolumeRef,
    ) -> Result<(VolumeInfo, Vec<Snapshot>), Refusal> {
        let snapshots = self.pool.snapshots(volume.key()).map_err(|error| self.refusal(&error, HELP))?;
        Ok((self.info(volume)?, snapshots))
    }

    /// The device by which a volume is served, if it is.
    pub(in crate::pool) fn device(&self, volume: &VolumeInfo) -> Option<Rc<SharedDevice>> {
        self.exports?.served(&IdentityOrigin::Volume(volume.volume))
    }

    /// Refuses to take away a volume or snapshot that is held or served; `name` is shown.
    ///
    /// # Errors
    ///
    /// It is.
    pub(in crate::pool) fn check_unserved(&self, origin: &IdentityOrigin, name: &str) -> Result<(), Refusal> {
        let held = match *origin {
            IdentityOrigin::Volume(volume) => Some((volume, None)),
            IdentityOrigin::Snapshot(volume, snapshot) => Some((volume, Some(snapshot))),
            _ => None,
        };
        if let (Some(exports), Some((volume, snapshot))) = (self.exports, held) {
            exports.check_not_held(volume, snapshot)?;
        }
        self.check_unserved_or(origin, name, "take it out of the site file and apply that first")
    }

    /// The same with another remedy.
    ///
    /// # Errors
    ///
    /// It is served.
    pub(in crate::pool) fn check_unserved_or(
        &self,
        origin: &IdentityOrigin,
        name: &str,
        remedy: &str,
    ) -> Result<(), Refusal> {
        let Some(exports) = self.exports else { return Ok(()) };
        if exports.served(origin).is_none() {
            return Ok(());
        }
        let problem =
            format!("{} is served as {}", self.path(name).display(), exports.services_of(origin).join(", "));
        Err(Refusal::new(problem, remedy))
    }
}

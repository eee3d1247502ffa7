//! A mounted filesystem as a thing to freeze: the cut holds whole files as the system had them.

use super::{Consistency, Freezable, StepError, StepResult};
use crate::planted::{self, BackupBug};
use std::{future::ready, rc::Rc};
use world::{FreezableMount, LocalFuture, Moment, MountThaw, World};

/// A filesystem that is frozen around a cut. It may serve any number of rounds, one after another.
pub struct FilesystemFreeze {
    world: World,
    mount: Rc<dyn FreezableMount>,
}

impl FilesystemFreeze {
    pub fn new(world: &World, mount: Rc<dyn FreezableMount>) -> Self {
        Self { world: world.clone(), mount }
    }
}

impl Freezable for FilesystemFreeze {
    fn describe(&self) -> String {
        format!("the filesystem at {}", self.mount.mount_point())
    }

    fn consistency(&self) -> Consistency {
        Consistency::Filesystem
    }

    fn prepare(&self) -> LocalFuture<StepResult> {
        let prepared = self.mount.prepare();
        Box::pin(async move { prepared.await.map_err(|error| StepError(error.to_string())) })
    }

    fn freeze(&self, deadline: Moment) -> LocalFuture<StepResult> {
        let frozen = self.mount.freeze(deadline.since(self.world.now()));
        Box::pin(async move { frozen.await.map_err(|error| StepError(error.to_string())) })
    }

    fn thaw(&self) -> LocalFuture<Result<bool, StepError>> {
        let thawed = self.mount.thaw();
        Box::pin(async move {
            let thaw = thawed.await.map_err(|error| StepError(error.to_string()))?;
            Ok(thaw == MountThaw::First || planted::is(BackupBug::AnyThawCounts))
        })
    }

    fn after(&self) -> LocalFuture<StepResult> {
        Box::pin(ready(Ok(())))
    }
}

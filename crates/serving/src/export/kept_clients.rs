//! Clients from which a volume is withheld, as its pool keeps them: forgotten there once they have let go here.
//!
//! Invariants:
//!
//! 1. The pool forgets a client only after it has let go, or was readmitted by a person.
//! 2. Nothing waits for that: after a crash in between, the client has to let go once more.

use super::{exported_volume::ExportedVolume, withholding::ServedClients};
use array::{
    error::Error,
    format::{VolumeId, row::WithheldClient},
};
use std::rc::Rc;
use tokio::sync::{Notify, oneshot};
use world::{World, with_deadline};

pub(super) struct KeptClients {
    volume: Rc<ExportedVolume>,
    id: VolumeId,
    /// Notified when a client may have let go.
    pub readmissions: Rc<Notify>,
    /// Ends the task that waits for readmissions, when it is dropped.
    _task: oneshot::Sender<()>,
}

impl KeptClients {
    /// Lets the pool of a volume forget clients whenever they have let go.
    pub fn keep(
        world: &World,
        (volume, id): (&Rc<ExportedVolume>, VolumeId),
        served: &Rc<ServedClients>,
    ) -> Self {
        let readmissions = Rc::new(Notify::new());
        let (task, mut ended) = oneshot::channel();
        let (volume_of_task, served, notified) =
            (Rc::clone(volume), Rc::clone(served), Rc::clone(&readmissions));
        world.spawn("readmissions", async move {
            while with_deadline(async { drop((&mut ended).await) }, notified.notified()).await.is_some() {
                forget_those_that_let_go(&volume_of_task, id, &served).await;
            }
        });
        Self { volume: Rc::clone(volume), id, readmissions, _task: task }
    }

    /// The clients that the pool of a volume names.
    pub fn named(volume: &ExportedVolume, id: VolumeId) -> Vec<WithheldClient> {
        // A volume that was deleted is withheld from nobody.
        let rows = volume.pool().withheld_from(id).unwrap_or_default();
        rows.into_iter().map(|row| row.client).collect()
    }

    pub fn clients(&self) -> Vec<WithheldClient> {
        Self::named(&self.volume, self.id)
    }

    /// Lets the pool forget clients. False if it names none of them.
    ///
    /// # Errors
    ///
    /// The pool cannot write.
    pub async fn forget(&self, is_readmitted: impl Fn(&WithheldClient) -> bool) -> Result<bool, Error> {
        let forgotten = self.volume.pool().readmit(self.id, is_readmitted).await;
        forgotten.map(|clients| !clients.is_empty())
    }

    /// Lets the pool forget those that have let go.
    pub async fn settle(&self, served: &ServedClients) {
        forget_those_that_let_go(&self.volume, self.id, served).await;
    }
}

async fn forget_those_that_let_go(volume: &ExportedVolume, id: VolumeId, served: &ServedClients) {
    // A pool that cannot write keeps them: they have to let go once more after its next opening.
    let _ = volume.pool().readmit(id, |client| served.has_let_go(client)).await;
}

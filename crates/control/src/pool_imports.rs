//! Imports of devices elsewhere into a served pool: its job `import`.
//!
//! Invariants:
//!
//! 1. The volume has the UUID of its request: one that goes on after a restart finds it, whatever its name is by then.
//! 2. A request for a name that is being imported from the same source goes on with that import.

use crate::{
    job_request::{RequestedJob, TransferRequest},
    pool_transfers::PoolTransfers,
};
use array::{error::Error, format::VolumeId};
use report::Refusal;
use serving::{
    pool::volume_import::{self, ImportOrigin, VolumeImportAnswer},
    uuid::parse_uuid,
};
use std::{cell::Cell, path::Path};

impl PoolTransfers {
    /// Does an import to its end, or goes on with it.
    pub(crate) async fn import(
        &self,
        request: &TransferRequest,
        is_wanted: &Cell<bool>,
    ) -> Result<VolumeImportAnswer, String> {
        let transfer = self.start(RequestedJob::Import);
        let done = match is_wanted.get() {
            true => self.import_under(request, &transfer.job).await.map_err(|refusal| refusal.to_string()),
            false => Err(Error::ImportStopped.to_string()),
        };
        transfer.is_over.set(true);
        done
    }

    async fn import_under(
        &self,
        request: &TransferRequest,
        job: &world::Job,
    ) -> Result<VolumeImportAnswer, Refusal> {
        let order = request.import.clone().unwrap_or_default();
        let source = ImportOrigin::of(Path::new(&request.from), &order.access);
        let volume = self.importing_volume(request, source.as_ref().ok())?;
        match self.pool.volumes().into_iter().find(|info| info.volume == volume) {
            Some(info) if info.importing.is_none() => return Ok(VolumeImportAnswer::ended(info.size_bytes)),
            Some(_) => {}
            None => volume_import::begin(&self.world, &self.pool, (&request.name, volume), &source?).await?,
        }
        let done = volume_import::run(&self.pool, volume, order.terms(), job).await;
        done.map_err(|error| Refusal::new(error.to_string(), volume_import::remedy(&error)))
    }

    /// The volume that a request means: one that is being imported from the same source under its name, or its own.
    fn importing_volume(
        &self,
        request: &TransferRequest,
        source: Option<&ImportOrigin>,
    ) -> Result<VolumeId, Refusal> {
        let own = parse_uuid(&request.volume).map_err(|problem| Refusal::new(problem, ""))?;
        let all = self.pool.volumes();
        let named = all.iter().find(|info| info.name == request.name && info.volume != VolumeId(own));
        let Some(status) = named.and_then(|info| info.importing.as_ref()) else { return Ok(VolumeId(own)) };
        let known = ImportOrigin::decode(&status.source);
        match known {
            Some(known) if source.is_some_and(|source| source.from == known.from) => {
                Ok(named.expect("it has the status").volume)
            }
            known => {
                let from =
                    known.map_or("another source".to_owned(), |known| known.from.display().to_string());
                let problem = format!("volume {} is being imported from {from}", request.name);
                Err(Refusal::new(problem, "name that source to go on, or choose another name"))
            }
        }
    }

    /// The reason why an import of the pool does not go on at present.
    pub(crate) fn import_problem(&self) -> Option<String> {
        self.pool.volumes().into_iter().find_map(|info| info.importing?.problem)
    }
}

//! The arguments of `spindle prove` as the settings of a run.

use crate::{
    arguments::ProveArguments,
    remote::{Remote, RemoteArguments},
};
use report::Refusal;
use runs::{
    remote::{OpenRemoteDevice, RemoteDevice, RemoteResolver},
    request::RunRequest,
};
use std::{fmt, path::Path, sync::Arc};
use world::{IoResult, LocalFuture, World};

/// The settings that `arguments` give.
pub fn request_of(arguments: &ProveArguments) -> RunRequest {
    let a = arguments.clone();
    RunRequest {
        paths: a.paths,
        logs: a.logs,
        remotes: Some(Arc::new(Remotes(a.remote))),
        setup: a.setup,
        site: a.site,
        groups: a.groups,
        databases: a.databases,
        threads: a.threads,
        mailboxes: a.mailboxes,
        iops: a.iops,
        max: a.max,
        probe: a.probe,
        duration: a.duration,
        judge: a.judge,
        size: a.size,
        cache: a.cache,
        profile: a.profile,
        limits: a.limits,
        set: a.set,
        note: a.note,
        report: a.report,
        sweep: a.sweep,
        pool: a.pool,
        layout: a.layout,
        volumes: None,
        storage_cache: None,
        seed: a.seed,
        attach: a.attach,
        fresh: a.fresh,
        keep_pristine: a.keep_pristine,
        restore: a.restore,
        allow_writes: a.allow_writes,
        unlock_signature: a.unlock_signature,
    }
}

/// Reaches iSCSI units and NBD exports with the credentials of the command line.
#[derive(Debug)]
struct Remotes(RemoteArguments);

impl RemoteResolver for Remotes {
    fn resolve(&self, path: &Path) -> Result<Option<Arc<dyn RemoteDevice>>, Refusal> {
        let remote = Remote::of(path, &self.0)?;
        Ok(remote.map(|remote| Arc::new(RemoteDisk(remote)) as Arc<dyn RemoteDevice>))
    }
}

#[derive(Debug)]
struct RemoteDisk(Remote);

impl fmt::Display for RemoteDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl RemoteDevice for RemoteDisk {
    fn open(&self, world: &World) -> LocalFuture<IoResult<OpenRemoteDevice>> {
        let (remote, world) = (self.0.clone(), world.clone());
        Box::pin(async move {
            let open = remote.open(&world).await?;
            Ok(OpenRemoteDevice {
                device: open.device,
                is_read_only: open.is_read_only,
                model: open.model,
                serial: open.serial,
            })
        })
    }

    fn transport(&self) -> &'static str {
        self.0.reach()
    }
}

//! Arguments for remote devices, and the devices as a run sees them.

use clap::Args;
use report::Refusal;
use runs::remote::{OpenRemoteDevice, RemoteDevice, RemoteResolver};
use serving::remote::{Remote, RemoteSettings};
use std::{
    env, fmt,
    path::{Path, PathBuf},
    sync::Arc,
};
use world::{IoResult, LocalFuture, World};

/// Credentials and options for remote devices.
#[derive(Clone, Debug, Default, Args)]
pub struct RemoteArguments {
    /// CHAP name of the initiator; its secret comes from --chap-secret-file or from the environment variable
    /// SPINDLE_CHAP_SECRET
    #[arg(long, value_name = "NAME")]
    pub chap_name: Option<String>,

    /// File with the initiator's CHAP secret: one line of 12 to 255 characters
    #[arg(long, value_name = "FILE", requires = "chap_name")]
    pub chap_secret_file: Option<PathBuf>,

    /// CHAP name that the target must authenticate with (mutual CHAP)
    #[arg(long, value_name = "NAME", requires = "chap_name")]
    pub chap_target_name: Option<String>,

    /// File with the target's CHAP secret [default: from SPINDLE_CHAP_TARGET_SECRET]
    #[arg(long, value_name = "FILE", requires = "chap_target_name")]
    pub chap_target_secret_file: Option<PathBuf>,

    /// Use iSCSI header and data digests (CRC-32C) if the target supports them
    #[arg(long)]
    pub digests: bool,
}

impl RemoteArguments {
    pub fn settings(&self) -> RemoteSettings {
        let arguments = self.clone();
        RemoteSettings {
            chap_name: arguments.chap_name,
            chap_secret_file: arguments.chap_secret_file,
            chap_target_name: arguments.chap_target_name,
            chap_target_secret_file: arguments.chap_target_secret_file,
            digests: arguments.digests,
        }
    }
}

impl RemoteResolver for RemoteArguments {
    fn resolve(&self, path: &Path) -> Result<Option<Arc<dyn RemoteDevice>>, Refusal> {
        let remote = Remote::of(path, &self.settings(), &|variable| env::var(variable).ok())?;
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
            let open = remote.open(&world, None).await?;
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

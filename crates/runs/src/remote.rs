//! Devices of other machines: this crate knows none of their protocols, its caller reaches them.

use report::Refusal;
use std::{fmt, path::Path, rc::Rc, sync::Arc};
use world::{BlockDevice, IoResult, LocalFuture, World};

/// Finds devices behind URIs.
pub trait RemoteResolver: fmt::Debug + Send + Sync {
    /// The device that `path` names; `None` if it is a path in the filesystem.
    ///
    /// # Errors
    ///
    /// The URI, or a credential it needs, cannot be used.
    fn resolve(&self, path: &Path) -> Result<Option<Arc<dyn RemoteDevice>>, Refusal>;
}

/// A device behind a URI, which `Display` shows without credentials. Equal URIs are one device.
pub trait RemoteDevice: fmt::Debug + fmt::Display + Send + Sync {
    /// Connects, on the thread of the caller.
    fn open(&self, world: &World) -> LocalFuture<IoResult<OpenRemoteDevice>>;

    /// The transport, for a report.
    fn transport(&self) -> &'static str;
}

/// An open device behind a URI, with what it reports of itself.
pub struct OpenRemoteDevice {
    pub device: Rc<dyn BlockDevice>,
    pub is_read_only: bool,
    /// Vendor, product and revision.
    pub model: Option<String>,
    pub serial: Option<String>,
}

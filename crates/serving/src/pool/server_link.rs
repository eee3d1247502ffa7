//! The file in a pool's folder that names the server which has the pool open, so that commands find it.
//!
//! Invariants:
//!
//! 1. The file alone proves nothing: a killed server leaves it. It counts while the folder is locked, and the server at the
//!    socket says that it has the pool of this folder.

use report::Refusal;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use world::real::host_files;

const LINK_NAME: &str = "spindle-server.json";
/// A path, and its JSON.
const LINK_BYTES_MAX: u64 = 64 << 10;

/// The server of an open pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerLink {
    /// Unix socket of its API.
    pub socket: PathBuf,
}

impl ServerLink {
    /// The server that is named in a folder; `None` if there is none, or the file cannot be read.
    pub fn read(folder: &Path) -> Option<Self> {
        let bytes = host_files::read_at_most(&folder.join(LINK_NAME), LINK_BYTES_MAX).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Names the server in the folder of a pool that this process has open.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), Refusal> {
        let bytes = serde_json::to_vec(self).map_err(|error| Refusal::new(error.to_string(), ""))?;
        let written = host_files::write_atomically_unflushed(&folder.join(LINK_NAME), &bytes);
        written.map_err(|error| Refusal::new(error.to_string(), "check the folder"))
    }

    /// Removes the file, before the pool is closed.
    pub fn remove(folder: &Path) {
        // One that stays is not believed.
        let _ = host_files::remove_file(&folder.join(LINK_NAME));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_read_as_it_was_written_and_anything_else_is_none() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(ServerLink::read(folder.path()), None);
        let link = ServerLink { socket: "/run/spindle/spindle.sock".into() };
        link.write(folder.path()).unwrap();
        assert_eq!(ServerLink::read(folder.path()), Some(link));
        host_files::write_atomically(&folder.path().join(LINK_NAME), b"{\"socket\"").unwrap();
        assert_eq!(ServerLink::read(folder.path()), None);
        ServerLink::remove(folder.path());
        assert_eq!(ServerLink::read(folder.path()), None);
    }
}

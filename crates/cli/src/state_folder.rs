//! The folder in which a server keeps what belongs to no pool.

use std::{env, path::PathBuf};

/// The usual one: that which systemd gives a service, else that of root or of the user.
pub fn state_folder() -> PathBuf {
    let folder = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(given) = folder("STATE_DIRECTORY") {
        return given;
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/spindle");
    }
    let own = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
    own.unwrap_or_else(|| PathBuf::from("/var/lib")).join("spindle")
}

//! The folder of open backups, names of backups, and times.

use crate::server::place::{ServerAddress, ServerPlace};
use recovery::opening::{OpeningFolder, OpeningServer};
use report::Refusal;
use std::{
    env,
    path::{Path, PathBuf},
};
use world::{IoError, real::host_files};

/// The folder of the files: that which systemd gives a service, else that of root or of the user.
pub(super) fn opening_folder() -> Result<OpeningFolder, Refusal> {
    let folder = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let user = rustix::process::geteuid();
    let run = match folder("RUNTIME_DIRECTORY") {
        Some(given) => given,
        None if user.is_root() => PathBuf::from("/run/spindle"),
        None => folder("XDG_RUNTIME_DIR")
            .map(|run| run.join("spindle"))
            .map_or_else(|| own_temporary(user.as_raw()), Ok)?,
    };
    OpeningFolder::new(run.join("open")).map_err(refused)
}

/// A folder of this user where the machine has none for users.
fn own_temporary(user: u32) -> Result<PathBuf, Refusal> {
    let path = PathBuf::from(format!("/tmp/spindle-{user}"));
    host_files::create_private_dir_all(&path).map_err(refused)?;
    // Anyone may make things in /tmp.
    match rustix::fs::lstat(&path) {
        Ok(found) if found.st_uid == user && found.st_mode & 0o077 == 0 => Ok(path),
        _ => Err(Refusal::new(
            format!("{}: others have access to it", path.display()),
            "remove it, or set XDG_RUNTIME_DIR",
        )),
    }
}

/// `root (process 123)`, or the number of another user.
pub(super) fn who() -> String {
    let user = rustix::process::getuid();
    let user = match user.is_root() {
        // By sudo, the person behind it.
        true => env::var("SUDO_USER").ok().map_or("root".to_owned(), |name| format!("root for {name}")),
        false => env::var("USER").unwrap_or_else(|_| format!("user {}", user.as_raw())),
    };
    format!("{user} (process {})", std::process::id())
}

/// A server as a file remembers it, with paths that hold from any folder.
pub(super) fn server_words(place: &ServerPlace) -> Result<OpeningServer, Refusal> {
    let whole = |path: &Option<PathBuf>| -> Result<Option<PathBuf>, Refusal> {
        path.as_deref().map(|path| host_files::canonical(path).map_err(refused)).transpose()
    };
    let state = match (&place.state, &place.address.server) {
        // The usual folder of this user, which another command may not have.
        (None, None) => Some(crate::state_folder::state_folder()),
        (state, _) => whole(state)?,
    };
    Ok(OpeningServer {
        state,
        address: place.address.server.clone(),
        token_file: whole(&place.address.token_file)?,
        tls_folder: whole(&place.address.server_tls)?,
    })
}

pub(super) fn place_of(server: &OpeningServer) -> ServerPlace {
    let OpeningServer { state, address, token_file, tls_folder } = server.clone();
    ServerPlace { state, address: ServerAddress { server: address, token_file, server_tls: tls_folder } }
}

/// A path from the root, whether it exists or not.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, Refusal> {
    std::path::absolute(path).map_err(|error| Refusal::new(format!("{}: {error}", path.display()), ""))
}

pub(super) fn refused(error: IoError) -> Refusal {
    Refusal::new(error.to_string(), "")
}

//! The sockets at which others freeze the groups of a run.

use crate::request::RunRequest;
use report::Refusal;
use std::path::{Path, PathBuf};
use world::real::host_files::{self, PathKind};

/// Sockets at which groups can be frozen.
#[derive(Clone, Debug, Default)]
pub struct ControlSockets {
    /// One for each group; empty if none can be frozen.
    sockets: Vec<PathBuf>,
    /// Logs stay until a proven backup has them.
    keeps_logs: bool,
}

impl ControlSockets {
    /// Those that a request wants for so many groups.
    ///
    /// # Errors
    ///
    /// Something else is there, or the folder is not.
    pub fn of(request: &RunRequest, groups: u32) -> Result<Self, Refusal> {
        let sockets = request.control.as_deref().map(|socket| sockets_of(socket, groups)).transpose()?;
        Ok(Self { sockets: sockets.unwrap_or_default(), keeps_logs: request.keeps_logs })
    }

    /// True if logs stay until a proven backup has them.
    pub fn keeps_logs(&self) -> bool {
        self.keeps_logs
    }

    /// The socket of a group, and whether its logs stay.
    pub fn place(&self, group: u32) -> Option<(PathBuf, bool)> {
        self.sockets.get(group as usize).map(|socket| (socket.clone(), self.keeps_logs))
    }
}

/// The sockets of all groups: that of a single one has the given name, those of several have `-1`, `-2` … behind it.
fn sockets_of(socket: &Path, groups: u32) -> Result<Vec<PathBuf>, Refusal> {
    let path = |group: u32| match groups {
        1 => socket.to_owned(),
        _ => PathBuf::from(format!("{}-{}", socket.display(), group + 1)),
    };
    let all: Vec<PathBuf> = (0..groups).map(path).collect();
    for path in &all {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let is_folder = matches!(host_files::kind(folder), Ok(PathKind::Folder));
        // A killed run leaves its socket, in whose place the next one comes.
        let is_free = matches!(host_files::kind(path), Ok(PathKind::Missing | PathKind::Other));
        if !is_folder || !is_free {
            let problem =
                format!("{} cannot be a socket: something is there, or its folder is not", path.display());
            return Err(Refusal::new(problem, "give ⟨control⟩ a new name in a folder that is there"));
        }
    }
    Ok(all)
}

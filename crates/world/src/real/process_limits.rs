//! What the kernel lets this process have: file handles, and files of any size.

use rustix::{
    io::{Errno, dup},
    process::{Resource, getrlimit, setrlimit},
};
use std::{fs::File, io};

/// Handles a world of one thread takes at most before its storage is opened: epoll, timer, ring, wake-ups, signals.
const HANDLES_A_WORLD: usize = 24;

/// Takes all the handles this process is allowed (the soft limit becomes the hard one). An error that says what to do
/// if they are too few to begin with.
pub fn prepare_process() -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // Not allowed in some sandboxes: what there is may well do.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    check_handles()
}

/// Whether there are handles for one more world. Its parts are made by libraries that panic when there are none.
pub(super) fn check_handles() -> io::Result<()> {
    match take_and_give_back(HANDLES_A_WORLD) {
        Ok(()) => Ok(()),
        Err(Errno::MFILE) => {
            let most = getrlimit(Resource::Nofile).current.map_or("all".to_owned(), |most| most.to_string());
            Err(io::Error::other(format!(
                "out of file handles: this process may have {most}; allow it more (ulimit -n 65536, or LimitNOFILE= of \
                 its service)"
            )))
        }
        Err(error) => Err(error.into()),
    }
}

fn take_and_give_back(count: usize) -> Result<(), Errno> {
    let first = File::open("/dev/null").map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let taken: Result<Vec<_>, Errno> = (1..count).map(|_| dup(&first)).collect();
    taken.map(drop)
}

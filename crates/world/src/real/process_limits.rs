//! Process limits: file handles, file sizes, sizes of memory pages.

use rustix::{
    io::{Errno, dup},
    process::{Resource, getrlimit, setrlimit},
    thread::disable_transparent_huge_pages,
};
use std::{fs::File, io};

/// Handles that a single-threaded world needs before it opens storage: epoll, timer, ring, wake-ups, signals.
const HANDLES_A_WORLD: usize = 24;

/// Raises the soft limit of file handles to the hard limit. The error names the remedy if there are too few
/// to start.
pub fn prepare_process() -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // Some sandboxes forbid it; the current limit may suffice.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    check_handles()
}

/// From here on each page of memory is one of 4 KiB. The allocator gives each thread a place of its own, and asks for huge
/// pages: an idle server with a dozen threads has 34 MB resident with them, and 10 without.
pub fn use_small_pages() {
    // Some sandboxes forbid it; then the process is larger.
    let _ = disable_transparent_huge_pages(true);
}

/// Checks that one more world gets its handles: the libraries it is made of panic without them.
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

//! Freezing of mounted filesystems of this machine: FIFREEZE and FITHAW.
//!
//! A process that is killed between the two would leave the filesystem frozen, and all who write to it in the
//! state D. So both are made by a *helper process*, which thaws at the deadline and when its socket closes.
//!
//! Invariants:
//!
//! 1. The helper makes every FIFREEZE, hence nothing is frozen that it does not know of.
//! 2. It thaws exactly once what it froze, and nothing that someone else froze: after EBUSY it makes no FITHAW.
//! 3. From its first freeze on it opens, allocates and writes nothing, and its pages are locked in memory: its own
//!    program may lie on the frozen filesystem, or on a device whose answers are held.
//! 4. If the helper dies, this process thaws; if it does not answer, 1 s after the deadline.
//!
//! The helper is this program, started again with the argument [`HELPER_ARGUMENT`]: `main` calls
//! [`serve_if_helper`] before anything else.
//!
//! Reading order: [`mount`] (what may be frozen, and what is refused), `message` (what the two say to each
//! other), [`helper_process`], `supervisor` (this process's side).

pub mod helper_process;
pub mod mount;

mod message;
mod supervisor;

pub use helper_process::{HELPER_ARGUMENT, serve_if_helper};
pub use mount::{HelperProgram, RealMount, WritablePlace, check_order, check_privilege};

use rustix::{
    io::Errno,
    ioctl::{NoArg, Opcode, ioctl, opcode},
    time::{ClockId, clock_gettime},
};
use std::os::fd::AsFd;

/// linux/fs.h. The argument is not used.
const FIFREEZE: Opcode = opcode::read_write::<i32>(b'X', 119);
const FITHAW: Opcode = opcode::read_write::<i32>(b'X', 120);

/// Freezes the filesystem of an open folder. Returns when all that was written is stable, which nothing can
/// interrupt; writers wait from the beginning on. `BUSY`: it is frozen already.
fn freeze_filesystem(folder: impl AsFd) -> Result<(), Errno> {
    // SAFETY: FIFREEZE takes no argument, hence touches no memory of this process.
    #[allow(unsafe_code)]
    unsafe {
        ioctl(folder, NoArg::<FIFREEZE>::new())
    }
}

/// Thaws the filesystem of an open folder. `INVAL`: it is not frozen.
fn thaw_filesystem(folder: impl AsFd) -> Result<(), Errno> {
    // SAFETY: FITHAW takes no argument, hence touches no memory of this process.
    #[allow(unsafe_code)]
    unsafe {
        ioctl(folder, NoArg::<FITHAW>::new())
    }
}

/// Nanoseconds of the clock that all processes share.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

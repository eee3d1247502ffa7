//! Passes: what changed between two cuts, in the order of blocks.
//!
//! ```text
//! sender                                              receiver
//!        ◀── changed ranges: if it has changes of its own (a tail, a fork)
//!        ◀── snapshots that it has; again after the end
//!        ◀── blocks that passes which were not finished brought
//! cut of its volumes
//! begin ──▶                                           cut at which it is shown until the end
//! snapshots of a volume ──▶                           deletes those that the sender has no more
//!   of each snapshot that is new, and of the cut:
//! point: its stamp and size ──▶                       resizes the volume
//! mapped ranges ──▶                                   discards what the sender does not have
//! blocks born since, and those the receiver named ──▶ writes them, with the stamp of the point
//! snapshot ──▶                                        takes it, unless the point is the cut
//! end ──▶                                             everything up to the cut is there
//!        ◀── confirmation
//! ```
//!
//! Invariants:
//!
//! 1. All that a pass sends is of one cut of the sender, and comes under the right (fence) that the receiver knows.
//! 2. Until a pass has ended, the receiver counts as being where it began, and can go back there.

mod block_ranges;
mod brought;
mod gathered;
mod inbox;
mod pace;
mod receive;
mod send;
mod steps;

pub(crate) use block_ranges::BlockRanges;
pub(crate) use brought::{BroughtBlocks, blocks_with_stamp};
pub(crate) use inbox::PassInbox;
pub(crate) use pace::PassPace;
pub(crate) use receive::{PassFault, changed_by_pass, changed_ranges};
pub(crate) use send::{PassEnd, PassGoal, SentPass, count_born_since, send, take_cut, take_cut_to_return};
pub(crate) use steps::kept_snapshots;

use array::format::Stamp;
use receive::{PassReceiver, changed_ranges_of};
use steps::{PassStep, UndoneBlocks};

/// The last stamp before a command, which may be in doubt: a pass that begins there brings the command, too.
pub(crate) fn before(command: Stamp) -> Stamp {
    Stamp(command.0.saturating_sub(1))
}

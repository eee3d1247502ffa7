//! Passes: what changed between two cuts, in the order of blocks.
//!
//! ```text
//! sender                                              receiver
//!        ◀── changed ranges: if it has changes of its own (a tail, a fork)
//! cut of its volumes
//! begin ──▶                                           cut at which it is shown until the end
//! mapped ranges of a volume ──▶                       discards what the sender does not have
//! blocks born since, and those the receiver named ──▶ writes them, with the stamp of the cut
//! end ──▶                                             everything up to the cut is there
//!        ◀── confirmation
//! ```
//!
//! Invariants:
//!
//! 1. All that a pass sends is of one cut of the sender, and comes under the right (fence) that the receiver knows.
//! 2. Until a pass has ended, the receiver counts as being where it began, and can go back there.

mod block_ranges;
mod inbox;
mod pace;
mod receive;
mod send;

pub(crate) use block_ranges::BlockRanges;
pub(crate) use inbox::PassInbox;
pub(crate) use pace::PassPace;
pub(crate) use receive::{PassFault, changed_ranges};
pub(crate) use send::{PassEnd, PassGoal, SentPass, count_born_since, send, take_cut};

use array::format::Stamp;
use receive::PassReceiver;

/// The last stamp before a command, which may be in doubt: a pass that begins there brings the command, too.
pub(crate) fn before(command: Stamp) -> Stamp {
    Stamp(command.0.saturating_sub(1))
}

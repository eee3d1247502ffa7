//! A process that lets others freeze what it has, over a socket: the databases of a run, while an agent cuts their volumes.
//!
//! Lines of text. The service greets with `spindle-freeze 1 DESCRIPTION`. Then each line of the client is an order, answered by
//! a line, `ok` or `failed REASON`:
//!
//! | order | done |
//! |---|---|
//! | `prepare` | while work goes on |
//! | `freeze MILLISECONDS NAME` | for a cut of that name, at most for that time from now on |
//! | `thaw` | answered `ok first` if it was frozen until now, `ok late` if not |
//! | `after` | what `prepare` did is undone |
//! | `release NAME` | the backup of that name is proven: the logs before its cut go, if logs are kept for it; answered
//!   `ok released GENERATION`, the oldest that is left, or `ok nothing REASON` |
//! | `deliver BYTES DATABASE` | the message of so many bytes that follows the line goes into that database; answered
//!   `ok delivered`, and `added`, `same`, `other` (a message with its key is there) or `elsewhere` (the database is not) |
//! | `keep` | what was delivered is stable |
//!
//! Invariants:
//!
//! 1. A connection that ends, in whatever way, thaws what it froze, undoes what it prepared, and takes back what it delivered and
//!    did not keep. So does one that orders nothing for a minute.
//! 2. One connection is served at a time; the next one waits.
//! 3. A freeze ends at its deadline, as any freeze does; the thaw says so.
//! 4. Logs are released for the name of a cut whose freeze was held until its thaw, and for no other: what is not known for
//!    certain releases nothing.

mod client;
mod kept_logs;
mod live_mailboxes;
mod service;

pub use client::SocketFreeze;
pub use kept_logs::{KeptLogs, LogRelease, release_logs};
pub use live_mailboxes::{Delivery, DeliveryConnection, LiveMailboxes, MessageDelivery};
pub use service::{FreezeService, ServedFreeze, ServedThing};

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// First word and version of the greeting.
const GREETING: &str = "spindle-freeze 1";
/// Most bytes of a line: a name of a backup and a few words.
const LINE_BYTES_MAX: u64 = 1024;

const OK: &str = "ok";
const FIRST: &str = "ok first";
const LATE: &str = "ok late";
const RELEASED: &str = "ok released ";
const NOTHING: &str = "ok nothing ";
const DELIVERED: &str = "ok delivered ";
const FAILED: &str = "failed ";

/// Reads a line, without its end; `None` at the end of the connection, and for one that is too long or no text.
async fn read_line(reader: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
    let mut line = Vec::new();
    let read = reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await.ok()?;
    let whole = line.strip_suffix(b"\n").filter(|_| read > 0)?;
    String::from_utf8(whole.to_vec()).ok()
}

/// A text as a part of a line.
fn in_a_line(text: &str) -> String {
    let mut kept = text.replace(|letter: char| letter.is_control(), " ");
    kept.truncate(
        (0..=kept.len().min(LINE_BYTES_MAX as usize / 2))
            .rev()
            .find(|&at| kept.is_char_boundary(at))
            .unwrap_or(0),
    );
    kept
}

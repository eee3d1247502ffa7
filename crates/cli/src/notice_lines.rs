//! Notices of the daemon's threads, printed as lines.

use crate::console::Console;
use control::notice::{Notice, NoticeReader};
use std::future::{Future, pending};
use world::with_deadline;

/// Prints notices until `work` is done.
pub async fn with_notices<T>(
    reader: &mut NoticeReader,
    console: &Console,
    work: impl Future<Output = T>,
) -> T {
    let printing = async {
        while let Some(notice) = reader.next().await {
            print(console, &notice);
        }
        pending::<()>().await;
    };
    with_deadline(printing, work).await.expect("printing does not end")
}

/// Prints one notice.
pub fn print(console: &Console, Notice { thread, is_warning, text }: &Notice) {
    let text = format!("{thread}: {text}");
    if *is_warning { console.warn(&text) } else { console.say_progress(&text) }
}

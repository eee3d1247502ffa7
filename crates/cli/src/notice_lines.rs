//! Notices of the daemon's threads, printed as lines.

use crate::{console::Console, exit_status::ExitStatus};
use control::{
    kinds,
    notice::{Notice, NoticeReader},
};
use report::Refusal;
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

/// Waits for the threads to end, prints their last notices and the outcome. `stopping` gives those that had panicked.
pub async fn say_end(
    reader: &mut NoticeReader,
    console: &Console,
    stopping: impl Future<Output = Vec<(String, String)>>,
) -> Result<ExitStatus, Refusal> {
    let panicked = with_notices(reader, console, stopping).await;
    while let Some(notice) = reader.try_next() {
        print(console, &notice);
    }
    if let Some((pool, _)) = panicked.first() {
        console.warn(&format!("{pool} had stopped before; all writes that it acknowledged are stable"));
        return console.finish(ExitStatus::Fail);
    }
    console.say("ended; all acknowledged writes are stable");
    console.finish(ExitStatus::Pass)
}

/// Prints one notice.
fn print(console: &Console, Notice { thread, is_warning, text, event, .. }: &Notice) {
    if let Some(event) = event {
        if !kinds::was_shown(event) {
            console.event(event.severity, &event.time, text);
        }
        if console.is_for_programs() {
            // The reader may be gone; the pools go on, and so do the lines.
            let _ = console.json_of(event);
        }
        return;
    }
    let text = format!("{thread}: {text}");
    if *is_warning { console.warn(&text) } else { console.say_progress(&text) }
}

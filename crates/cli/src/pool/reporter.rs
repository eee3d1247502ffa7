//! Prints the events of an open pool as they happen: never so that the pool waits for it.

use super::events::{EventReport, PoolPlace};
use crate::console::Console;
use array::pool::events::EventReader;
use std::time::Duration;
use world::World;

/// How long to wait before asking again whether a line would be taken.
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// Prints each event on standard error and, `as_json`, on standard output: one JSON object a line. Ends when the pool is
/// closed. While nobody takes what is printed events wait in the pool's log, which says how many it dropped.
pub async fn report_events(
    world: World,
    mut reader: EventReader,
    place: PoolPlace,
    console: Console,
    as_json: bool,
) {
    let mut is_heard = true;
    while let Some(event) = reader.next().await {
        let report = EventReport::new(&event, &place);
        while !console.takes_lines(as_json) {
            world.sleep(TRY_AGAIN).await;
        }
        console.event(report.severity, &report.time, &report.line());
        if as_json && is_heard {
            let text = serde_json::to_string(&report).expect("plain fields");
            // Whoever read it may be gone; the pool goes on, and so do the lines.
            is_heard = console.json(&text).is_ok();
        }
    }
}

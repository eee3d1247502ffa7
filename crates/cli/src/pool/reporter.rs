//! Prints the events of an open pool as they happen: never so that the pool waits for it.

use super::events::{EventReport, PoolPlace};
use crate::console::Console;
use array::pool::events::EventReader;
use std::time::Duration;
use world::World;

/// Where events of a pool go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOutput {
    /// Lines on standard error.
    Lines,
    /// The same, and a JSON object for each on standard output.
    LinesAndJson,
    /// A JSON object for each on standard error: standard output is for the answer alone.
    JsonAside,
}

/// How long to wait before asking again whether a line would be taken.
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// Prints each event, one line each. Ends when the pool is closed. While nobody takes what is printed events wait in the pool's log, which says how many it dropped.
pub async fn report_events(
    world: World,
    mut reader: EventReader,
    place: PoolPlace,
    console: Console,
    output: EventOutput,
) {
    let mut is_heard = true;
    while let Some(event) = reader.next().await {
        let report = EventReport::new(&event, &place);
        while !console.takes_lines(output == EventOutput::LinesAndJson) {
            world.sleep(TRY_AGAIN).await;
        }
        let text = serde_json::to_string(&report).expect("plain fields");
        if output == EventOutput::JsonAside {
            console.json_aside(&text);
            continue;
        }
        console.event(report.severity, &report.time, &report.line());
        if output == EventOutput::LinesAndJson && is_heard {
            // Whoever read it may be gone; the pool goes on, and so do the lines.
            is_heard = console.json(&text).is_ok();
        }
    }
}

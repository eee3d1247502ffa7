//! Prints the events of an open pool as they happen: never so that the pool waits for it.

use crate::console::{Console, StderrNotices};
use array::pool::events::PoolEventReader;
use report::Refusal;
use serving::pool::{
    events::{EventReport, PoolContext},
    folder::{OpenPool, is_held},
    server_link::ServerLink,
};
use std::{path::Path, time::Duration};
use world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOutput {
    /// Lines on standard error.
    Lines,
    /// The same, and a JSON object for each on standard output.
    LinesAndJson,
    /// A JSON object for each on standard error: standard output is for the answer alone.
    JsonAside,
}

/// Interval of checks whether output can be written.
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// Prints each event on a line until the pool is closed. While output would block, events wait in the pool's log, which counts those it drops.
pub async fn report_events(
    world: World,
    mut reader: PoolEventReader,
    context: PoolContext,
    console: Console,
    output: EventOutput,
) {
    let mut is_heard = true;
    while let Some(event) = reader.next().await {
        let report = EventReport::new(&event, &context);
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
            // The reader may be gone; the pool goes on, and so do the lines.
            is_heard = console.json(&text).is_ok();
        }
    }
}

/// Opens a pool for a verb, whose notices and events are printed until it is closed.
pub async fn open(world: &World, folder: &Path, console: &Console) -> Result<OpenPool, Refusal> {
    let opened = OpenPool::open(world, folder, &StderrNotices::shared()).await;
    let mut open = opened.map_err(|refusal| naming_server(refusal, folder))?;
    report_events_of(&mut open, world, console, false);
    Ok(open)
}

/// A refusal of a pool that a server has open, with that server.
fn naming_server(refusal: Refusal, folder: &Path) -> Refusal {
    match ServerLink::read(folder).filter(|_| is_held(folder)) {
        Some(ServerLink { socket }) => Refusal::new(
            refusal.problem(),
            format!(
                "it is the server with the socket {}, and this verb takes the pool for itself: end the server first",
                socket.display()
            ),
        ),
        None => refusal,
    }
}

/// Opens pools, all or none.
pub async fn open_all(world: &World, folders: &[&Path], console: &Console) -> Result<Vec<OpenPool>, Refusal> {
    let mut opened = Vec::new();
    for folder in folders {
        match open(world, folder, console).await {
            Ok(open) => opened.push(open),
            Err(refusal) => {
                close_all(opened).await?;
                return Err(refusal);
            }
        }
    }
    Ok(opened)
}

/// Closes all pools; the first error of those counts.
pub async fn close_all(opened: Vec<OpenPool>) -> Result<(), Refusal> {
    let mut closed = Ok(());
    for open in opened {
        let result = open.close().await;
        closed = closed.and(result);
    }
    closed
}

/// Prints the events of an open pool until it is closed; `as_json` also on standard output.
pub fn report_events_of(open: &mut OpenPool, world: &World, console: &Console, as_json: bool) {
    let output = if as_json { EventOutput::LinesAndJson } else { EventOutput::Lines };
    let (world, console) = (world.clone(), console.clone());
    open.follow_events(|events, context| Box::pin(report_events(world, events, context, console, output)));
}

//! The queue of run events from the measuring threads to the writing one.

use crate::database::record::{LatencyReadings, RunEvent};
use std::{
    future::poll_fn,
    task::{Context, Poll},
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Sending end. Cheap to clone; sending never waits.
#[derive(Clone)]
pub struct Recorder {
    news: UnboundedSender<RunEvent>,
}

/// Receiving end; events come in the order they were sent.
pub struct RunEvents {
    news: UnboundedReceiver<RunEvent>,
}

/// A connected recorder and receiver.
pub fn channel() -> (Recorder, RunEvents) {
    let (sender, receiver) = unbounded_channel();
    (Recorder { news: sender }, RunEvents { news: receiver })
}

impl Recorder {
    /// Sends an event. It is lost if the receiver is gone.
    pub fn tell(&self, news: RunEvent) {
        let _ = self.news.send(news);
    }
}

impl RunEvents {
    /// The next event; pending if there is none yet, None once all recorders are gone.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<RunEvent>> {
        self.news.poll_recv(context)
    }

    /// The next event; None once all recorders are gone.
    pub async fn next(&mut self) -> Option<RunEvent> {
        poll_fn(|context| self.poll(context)).await
    }
}

impl LatencyReadings {
    /// Number of histograms of a group with `meters` meters.
    pub fn count_of(meters: usize) -> usize {
        2 * meters + crate::database::load::operation::Operation::ALL.len() + 1
    }
}

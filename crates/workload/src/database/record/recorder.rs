//! From the threads that measure to the one that writes: a queue of news.

use super::{News, Readings};
use std::{
    future::poll_fn,
    task::{Context, Poll},
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Where news go. Cheap to clone; telling never waits.
#[derive(Clone)]
pub struct Recorder {
    news: UnboundedSender<News>,
}

/// Where they come out, in the order they were told.
pub struct NewsStream {
    news: UnboundedReceiver<News>,
}

/// A recorder and its other end.
pub fn channel() -> (Recorder, NewsStream) {
    let (sender, receiver) = unbounded_channel();
    (Recorder { news: sender }, NewsStream { news: receiver })
}

impl Recorder {
    /// Tells a piece of news. If nobody listens any more, it is lost.
    pub fn tell(&self, news: News) {
        let _ = self.news.send(news);
    }
}

impl NewsStream {
    /// What was told and not yet taken: some news, or none for now, or the end: all recorders are gone.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<News>> {
        self.news.poll_recv(context)
    }

    /// The next piece of news; none once all recorders are gone.
    pub async fn next(&mut self) -> Option<News> {
        poll_fn(|context| self.poll(context)).await
    }
}

impl Readings {
    /// How many histograms a group with `meters` meters tells.
    pub fn count_of(meters: usize) -> usize {
        2 * meters + super::super::operation::Operation::ALL.len() + 1
    }
}

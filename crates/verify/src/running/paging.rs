//! Pages for a judge that follows pointers: it works on a thread of its own and asks for them, the thread with the
//! devices answers.

use super::{pace::Pace, source::Source};
use crate::database::{PageSource, SourceError};
use maildb::{PageNumber, PageSize};
use std::collections::VecDeque;
use tokio::sync::{mpsc, oneshot};
use world::{Buffer, ByteOffset, real::Workers};

/// Read at once around a page that is asked for: trees lie in runs.
const CLUSTER_BYTES: u64 = 512 * 1024;
/// Clusters kept, the last used ones.
const CLUSTERS_MAX: usize = 32;

/// What is asked for: a part of the file.
struct Ask {
    at: ByteOffset,
    length: usize,
    answer: oneshot::Sender<Result<Buffer, SourceError>>,
}

/// The judge's end.
struct Pages {
    ask: mpsc::UnboundedSender<Ask>,
    page_size: PageSize,
    /// Bytes of whole pages.
    end: u64,
    /// Clusters with their place in the file, the last used last.
    clusters: VecDeque<(u64, Buffer)>,
}

impl PageSource for Pages {
    fn page(&mut self, page: PageNumber) -> Result<&[u8], SourceError> {
        let page_bytes = self.page_size.bytes() as u64;
        let at = (u64::from(page.0) + 1) * page_bytes;
        if page.0 == 0 || at + page_bytes > self.end {
            return Err(SourceError::Beyond);
        }
        let cluster_at = at - at % CLUSTER_BYTES;
        let holds =
            |(place, bytes): &(u64, Buffer)| *place <= at && at + page_bytes <= place + bytes.len() as u64;
        match self.clusters.iter().rposition(holds) {
            Some(last) if last + 1 == self.clusters.len() => {}
            Some(index) => {
                let used = self.clusters.remove(index).expect("it was just found");
                self.clusters.push_back(used);
            }
            None => {
                let cluster = self.fetch(cluster_at, at)?;
                if self.clusters.len() == CLUSTERS_MAX {
                    self.clusters.pop_front();
                }
                self.clusters.push_back(cluster);
            }
        }
        let (place, bytes) = self.clusters.back().expect("it was just put there");
        let from = (at - place) as usize;
        Ok(&bytes[from..from + page_bytes as usize])
    }
}

impl Pages {
    /// The cluster that begins at `cluster_at`; or the page alone, if the cluster cannot be read.
    fn fetch(&self, cluster_at: u64, at: u64) -> Result<(u64, Buffer), SourceError> {
        let length = CLUSTER_BYTES.min(self.end - cluster_at) as usize;
        match self.asked(cluster_at, length) {
            Ok(buffer) => Ok((cluster_at, buffer)),
            Err(SourceError::Unreadable(_)) => Ok((at, self.asked(at, self.page_size.bytes())?)),
            Err(other) => Err(other),
        }
    }

    fn asked(&self, at: u64, length: usize) -> Result<Buffer, SourceError> {
        let (answer, answered) = oneshot::channel();
        let ask = Ask { at: ByteOffset(at), length, answer };
        // Nobody there to answer: the run ends.
        self.ask.send(ask).map_err(|_| SourceError::Stopped)?;
        answered.blocking_recv().unwrap_or(Err(SourceError::Stopped))
    }
}

/// Does `work` on a worker, with the pages of `source` at hand, and gives its answer.
pub async fn with_pages<T: Send + 'static>(
    source: &Source,
    page_size: PageSize,
    workers: &Workers,
    pace: &Pace,
    work: impl FnOnce(&mut dyn PageSource) -> T + Send + 'static,
) -> T {
    let (ask, mut asked) = mpsc::unbounded_channel();
    let size = source.size().0;
    let end = size - size % page_size.bytes() as u64;
    let work = workers.run(move || work(&mut Pages { ask, page_size, end, clusters: VecDeque::new() }));
    // Ends when the judge drops its end of the channel.
    while let Some(Ask { at, length, answer }) = asked.recv().await {
        pace.wait().await;
        let given = match pace.is_stopped() {
            true => Err(SourceError::Stopped),
            false => {
                pace.slow(length as u64);
                let read = source.read(at, length, None).await;
                read.map_err(|error| SourceError::Unreadable(error.to_string()))
            }
        };
        // A judge that does not wait any more has ended.
        let _ = answer.send(given);
    }
    work.await
}

//! Page access for a tree walk, which runs on a worker thread: the thread that owns the devices serves its
//! requests.

use super::{rate_limiter::RateLimiter, source::Source};
use crate::database::{PageSource, SourceError};
use maildb::{PageNumber, PageSize};
use std::collections::VecDeque;
use tokio::sync::{mpsc, oneshot};
use world::{Buffer, ByteOffset, real::Workers};

/// Bytes read around a requested page: trees lie in runs.
const CLUSTER_BYTES: u64 = 512 * 1024;
/// Clusters kept in LRU order.
const CLUSTERS_MAX: usize = 32;

/// A request for a range of the file.
struct PageRequest {
    at: ByteOffset,
    length: usize,
    answer: oneshot::Sender<Result<Buffer, SourceError>>,
}

/// The requesting end, on the worker thread.
struct RemotePages {
    ask: mpsc::UnboundedSender<PageRequest>,
    page_size: PageSize,
    /// Bytes of whole pages in the file.
    end: u64,
    /// Clusters with their file offsets, most recently used last.
    clusters: VecDeque<(u64, Buffer)>,
}

impl PageSource for RemotePages {
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

impl RemotePages {
    /// Reads the cluster at `cluster_at`, or only the page if the cluster is unreadable.
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
        let ask = PageRequest { at: ByteOffset(at), length, answer };
        // The serving end is gone: the run ends.
        self.ask.send(ask).map_err(|_| SourceError::Stopped)?;
        answered.blocking_recv().unwrap_or(Err(SourceError::Stopped))
    }
}

/// Runs `work` on a worker with access to the pages of `source`, and returns its result.
pub async fn with_pages<T: Send + 'static>(
    source: &Source,
    page_size: PageSize,
    workers: &Workers,
    limiter: &RateLimiter,
    work: impl FnOnce(&mut dyn PageSource) -> T + Send + 'static,
) -> T {
    let (ask, mut asked) = mpsc::unbounded_channel();
    let size = source.size().0;
    let end = size - size % page_size.bytes() as u64;
    let work = workers.run(move || work(&mut RemotePages { ask, page_size, end, clusters: VecDeque::new() }));
    // Ends when the worker drops its end of the channel.
    while let Some(PageRequest { at, length, answer }) = asked.recv().await {
        limiter.wait().await;
        let given = if limiter.is_stopped() {
            Err(SourceError::Stopped)
        } else {
            limiter.slow(length as u64);
            let read = source.read(at, length, None).await;
            read.map_err(|error| SourceError::Unreadable(error.to_string()))
        };
        // A worker that no longer waits has ended.
        let _ = answer.send(given);
    }
    work.await
}

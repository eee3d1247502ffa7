//! The way to the pool of a source, which may be on another thread: bounded, with one answer for each request.
//!
//! Only values that may be sent go through it. Requests of one flow run on the source's thread in their order, and
//! several reads at the same time. The flows of copies, refreshes and moves know this way alone, so they are the same for
//! two pools of one thread and of two.
//!
//! Invariant: a link that is dropped, with its thread or by a panic there, ends the session: what it held is released.

use super::{
    super::{DifferenceRange, Pool, Snapshot},
    SourceHosts, SourceSession, is_moved,
};
use crate::{
    error::{Error, Result},
    format::{
        PoolId, SnapshotId, VolumeId,
        row::{PointRow, VolumeRow},
    },
};
use futures_util::{
    StreamExt,
    future::{join, select},
    stream::FuturesUnordered,
};
use std::{future::poll_fn, pin::pin, task::Poll};
use tokio::sync::{mpsc, oneshot};
use world::{BoxedFuture, Buffer, ByteCount, ByteOffset, Extent};

/// Requests that wait, at most.
const REQUESTS_MAX: usize = 16;

type SourceWork = Box<dyn for<'s> FnOnce(&'s SourceSession<'s>) -> BoxedFuture<'s, ()> + Send>;

/// The flow's end.
pub struct SourceLink(mpsc::Sender<SourceWork>);

/// The requests of a flow, to be served where the source's pool is open ([`serve_source`]).
pub struct SourceRequests(mpsc::Receiver<SourceWork>);

/// Both ends of a way to a source.
pub fn source_link() -> (SourceLink, SourceRequests) {
    let (give, take) = mpsc::channel(REQUESTS_MAX);
    (SourceLink(give), SourceRequests(take))
}

/// Serves the requests of a flow until it has ended.
///
/// # Errors
///
/// A hold of the flow in the pool could not be released.
pub async fn serve_source(pool: &Pool, hosts: SourceHosts<'_>, requests: SourceRequests) -> Result<()> {
    let session = SourceSession::new(pool, hosts);
    serve(&session, requests).await;
    session.release().await
}

async fn serve<'s>(session: &'s SourceSession<'s>, SourceRequests(mut requests): SourceRequests) {
    let mut under_way = FuturesUnordered::<BoxedFuture<'s, ()>>::new();
    let mut has_ended = false;
    let serving = poll_fn(|context| {
        while !has_ended {
            match requests.poll_recv(context) {
                Poll::Ready(Some(work)) => under_way.push(work(session)),
                Poll::Ready(None) => has_ended = true,
                Poll::Pending => break,
            }
        }
        while let Poll::Ready(Some(())) = under_way.poll_next_unpin(context) {}
        if has_ended && under_way.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    });
    select(pin!(serving), pin!(session.limit_holds())).await;
}

/// Runs a flow beside the source's pool, both on this thread.
pub(super) async fn beside<T>(
    pool: &Pool,
    hosts: SourceHosts<'_>,
    flow: impl AsyncFnOnce(SourceLink) -> Result<T>,
) -> Result<T> {
    let (link, requests) = source_link();
    let (served, done) = join(serve_source(pool, hosts, requests), flow(link)).await;
    let done = done?;
    served.map(|()| done)
}

impl SourceLink {
    async fn ask<T: Send + 'static>(
        &self,
        work: impl for<'s> FnOnce(&'s SourceSession<'s>) -> BoxedFuture<'s, T> + Send + 'static,
    ) -> Result<T> {
        let (tell, answer) = oneshot::channel();
        let work: SourceWork = Box::new(move |session| {
            let work = work(session);
            // The flow may be gone.
            Box::pin(async move { drop(tell.send(work.await)) })
        });
        self.0.send(work).await.map_err(|_| Error::SourceGone)?;
        answer.await.map_err(|_| Error::SourceGone)
    }

    pub(super) async fn pool(&self) -> Result<PoolId> {
        self.ask(|session| Box::pin(async { session.pool().id() })).await
    }

    pub(super) async fn row(&self, volume: VolumeId) -> Result<VolumeRow> {
        self.ask(move |session| Box::pin(async move { session.row(volume) })).await?
    }

    /// True if the volume is complete in another pool.
    pub(super) async fn is_moved(&self, volume: VolumeId) -> Result<bool> {
        Ok(is_moved(&self.row(volume).await?.name))
    }

    pub(super) async fn snapshot_row(&self, volume: VolumeId, snapshot: SnapshotId) -> Result<PointRow> {
        self.ask(move |session| Box::pin(async move { session.snapshot_row(volume, snapshot) })).await?
    }

    pub(super) async fn snapshots(&self, volume: VolumeId) -> Result<Vec<Snapshot>> {
        self.ask(move |session| Box::pin(async move { session.snapshots(volume) })).await?
    }

    pub(super) async fn snapshot_rows(&self, volume: VolumeId) -> Result<Vec<PointRow>> {
        self.ask(move |session| Box::pin(async move { session.snapshot_rows(volume) })).await?
    }

    pub(super) async fn hold(&self, volume: VolumeId, snapshot: SnapshotId) -> Result<()> {
        self.ask(move |session| Box::pin(session.hold(volume, snapshot))).await?
    }

    pub(super) async fn compare(&self, volume: VolumeId, points: [SnapshotId; 2]) -> Result<[u64; 2]> {
        self.ask(move |session| Box::pin(session.compare(volume, points))).await?
    }

    pub(super) async fn next_ranges(&self) -> Result<Option<Vec<DifferenceRange>>> {
        self.ask(|session| Box::pin(session.next_ranges())).await?
    }

    pub(super) async fn release(&self) -> Result<()> {
        self.ask(|session| Box::pin(session.release())).await?
    }

    pub(super) async fn extents(&self, at: ByteOffset, length: ByteCount) -> Result<Vec<Extent>> {
        let extents = self.ask(move |session| Box::pin(session.extents(at, length))).await?;
        extents.map_err(Error::Copy)
    }

    pub(super) async fn read(&self, at: ByteOffset, length: ByteCount) -> Result<Vec<Buffer>> {
        self.ask(move |session| Box::pin(session.read(at, length))).await?.map_err(Error::Copy)
    }

    pub(super) async fn check_movable(&self, volume: VolumeId) -> Result<()> {
        self.ask(move |session| Box::pin(async move { session.check_movable(volume) })).await?
    }

    pub(super) async fn take_pass_snapshot(&self, volume: VolumeId) -> Result<PointRow> {
        self.ask(move |session| Box::pin(session.take_pass_snapshot(volume))).await?
    }

    pub(super) async fn delete_pass_snapshots(
        &self,
        volume: VolumeId,
        but: Option<SnapshotId>,
    ) -> Result<()> {
        self.ask(move |session| Box::pin(session.delete_pass_snapshots(volume, but))).await?
    }

    pub(super) async fn hold_hosts(&self, volume: VolumeId) -> Result<()> {
        self.ask(move |session| Box::pin(session.hold_hosts(volume))).await?
    }

    pub(super) async fn hand_over(
        &self,
        volume: VolumeId,
        snapshots: Vec<SnapshotId>,
    ) -> Result<Option<VolumeRow>> {
        self.ask(move |session| Box::pin(session.hand_over(volume, snapshots))).await?
    }

    pub(super) async fn go_on(&self) -> Result<()> {
        self.ask(|session| Box::pin(async { session.go_on() })).await?
    }

    pub(super) async fn delete_moved(&self, volume: VolumeId) -> Result<()> {
        self.ask(move |session| Box::pin(session.delete_moved(volume))).await?
    }
}

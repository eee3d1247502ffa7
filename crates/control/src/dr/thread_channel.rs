//! The channel of a group between the thread of its pool and the thread of the link.
//!
//! Invariant: each end knows why the other one has gone, and frames that were given before arrive.

use futures_util::future::{Either, select};
use replication::{
    channel::{ChannelEnd, FrameChannel},
    frame::{FrameBody, RefusalCode, RefusalFrame},
    link::{ChannelError, LinkChannel},
};
use std::{
    cell::Cell,
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Mutex, Notify, mpsc};

/// Frames on their way between both threads, in each direction. A frame has at most 2 MiB.
const FRAMES_MAX: usize = 4;

/// The end at the pool.
pub(crate) struct ThreadChannel {
    out: mpsc::Sender<FrameBody>,
    arrivals: Mutex<mpsc::Receiver<FrameBody>>,
    end: Arc<OnceLock<ChannelEnd>>,
    is_cut: Cell<bool>,
    cut: Notify,
    version: u16,
    round_trip: Arc<LineRoundTrip>,
}

/// The shortest round trip of a session's line, which the link measures, for the threads of pools.
#[derive(Default)]
pub(crate) struct LineRoundTrip(AtomicU64);

impl LineRoundTrip {
    pub fn set(&self, round_trip: Duration) {
        self.0.store(u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// `None` before the first one.
    fn get(&self) -> Option<Duration> {
        Some(self.0.load(Ordering::Relaxed)).filter(|nanos| *nanos > 0).map(Duration::from_nanos)
    }
}

/// The end at the link.
pub(crate) struct LinkSide {
    from_pool: mpsc::Receiver<FrameBody>,
    to_pool: mpsc::Sender<FrameBody>,
    end: Arc<OnceLock<ChannelEnd>>,
}

/// Both ends of a new channel of a session that uses a version of the protocol, over this line.
pub(crate) fn thread_channel(version: u16, round_trip: &Arc<LineRoundTrip>) -> (ThreadChannel, LinkSide) {
    let ((out, from_pool), (to_pool, arrivals)) = (mpsc::channel(FRAMES_MAX), mpsc::channel(FRAMES_MAX));
    let end = Arc::<OnceLock<ChannelEnd>>::default();
    let side = LinkSide { from_pool, to_pool, end: Arc::clone(&end) };
    let (arrivals, is_cut, cut) = (Mutex::new(arrivals), Cell::new(false), Notify::new());
    let round_trip = Arc::clone(round_trip);
    (ThreadChannel { out, arrivals, end, is_cut, cut, version, round_trip }, side)
}

fn lost(reason: &str) -> ChannelEnd {
    ChannelEnd::Lost(reason.to_owned())
}

impl ThreadChannel {
    /// Ends it at this end: what waits for it hears of that at its next step.
    pub fn cut(&self) {
        self.is_cut.set(true);
        self.cut.notify_waiters();
    }

    /// The reason for which the other end has gone.
    fn why(&self) -> ChannelEnd {
        self.end.get().cloned().unwrap_or_else(|| lost("the link has ended"))
    }

    /// Does something with the channel, unless it is cut before.
    async fn unless_cut<T>(
        &self,
        work: impl Future<Output = Result<T, ChannelEnd>>,
    ) -> Result<T, ChannelEnd> {
        let cut = self.cut.notified();
        if self.is_cut.get() {
            return Err(lost("this side has cut it"));
        }
        match select(pin!(work), pin!(cut)).await {
            Either::Left((done, _)) => done,
            Either::Right(_) => Err(lost("this side has cut it")),
        }
    }
}

impl FrameChannel for ThreadChannel {
    fn version(&self) -> u16 {
        self.version
    }

    fn round_trip(&self) -> Option<Duration> {
        self.round_trip.get()
    }

    async fn send(&self, body: FrameBody) -> Result<(), ChannelEnd> {
        self.unless_cut(async { self.out.send(body).await.map_err(|_| self.why()) }).await
    }

    async fn receive(&self) -> Result<FrameBody, ChannelEnd> {
        self.unless_cut(async { self.arrivals.lock().await.recv().await.ok_or_else(|| self.why()) }).await
    }
}

/// Carries frames between a channel of the link and a pool, until one of both has ended. Returns the code of the refusal if
/// that was the end.
pub(crate) async fn carry(channel: LinkChannel, side: LinkSide) -> Option<RefusalCode> {
    let LinkSide { mut from_pool, to_pool, end } = side;
    let sent = async {
        loop {
            match from_pool.recv().await {
                None => break Err(None),
                Some(FrameBody::Refusal(refusal)) => break Err(Some(refusal)),
                Some(body) => {
                    if let Err(error) = channel.send(body).await {
                        break Ok(error);
                    }
                }
            }
        }
    };
    let received = async {
        loop {
            match channel.receive().await {
                Ok(body) => {
                    if to_pool.send(body).await.is_err() {
                        break Err(None);
                    }
                }
                Err(error) => break Ok(error),
            }
        }
    };
    let ended = match select(pin!(sent), pin!(received)).await {
        Either::Left((ended, _)) | Either::Right((ended, _)) => ended,
    };
    match ended {
        Ok(ChannelError::Refused(refusal)) => {
            let code = refusal.code;
            let _ = end.set(ChannelEnd::Refused(refusal));
            Some(code)
        }
        Ok(ChannelError::Session(error)) => {
            let _ = end.set(ChannelEnd::Lost(error.to_string()));
            None
        }
        Err(refusal) => {
            let ended =
                || RefusalFrame { code: RefusalCode::Closing, text: "the group's flow has ended".to_owned() };
            let code = refusal.as_ref().map(|refusal| refusal.code);
            channel.refuse(refusal.unwrap_or_else(ended));
            code
        }
    }
}

//! Outstanding requests and their replies.
//!
//! Invariants:
//!
//! 1. The cookie of a request is never used again by its client.
//! 2. A request is outstanding until it is answered or expires; it is sent again over each new connection.
//! 3. A flush claims no more than [`FlushTracker`] allows.

use crate::wire::transmission::{ErrorCode, Request, RequestType, command_flag};
use std::collections::{BTreeMap, VecDeque};
use tokio::sync::oneshot;
use world::{Buffer, IoError, IoErrorKind, IoResult, Moment, flush_tracker::FlushTracker, payload::Payload};

/// Payload of a reply.
#[derive(Debug, Default)]
pub struct ReplyContent {
    /// Data of a read.
    pub data: Option<Buffer>,
    /// Extents of a block status: length and flags.
    pub extents: Vec<(u32, u32)>,
}

pub struct PendingRequest {
    pub request: Request,
    pub payload: Payload,
    /// Received so far.
    pub answer: ReplyContent,
    refused: Option<(ErrorCode, String)>,
    deadline: Moment,
    /// Writes answered before this request was added.
    answered_before: u64,
    tell: oneshot::Sender<IoResult<ReplyContent>>,
}

/// The outstanding requests of a client.
#[derive(Default)]
pub struct PendingRequests {
    pending: BTreeMap<u64, PendingRequest>,
    /// Cookies of requests to be sent, in order.
    to_send: VecDeque<u64>,
    cookie_next: u64,
    unflushed: FlushTracker,
}

impl PendingRequests {
    /// Adds a request; it is sent once there is a connection.
    pub fn add(
        &mut self,
        mut request: Request,
        payload: Payload,
        deadline: Moment,
    ) -> oneshot::Receiver<IoResult<ReplyContent>> {
        request.cookie = self.cookie_next;
        self.cookie_next += 1;
        let (tell, told) = oneshot::channel();
        let pending = PendingRequest {
            request,
            payload,
            answer: ReplyContent::default(),
            refused: None,
            deadline,
            answered_before: self.unflushed.answered(),
            tell,
        };
        self.pending.insert(request.cookie, pending);
        self.to_send.push_back(request.cookie);
        told
    }

    pub fn next_to_send(&mut self) -> Option<(Request, Payload)> {
        loop {
            let cookie = self.to_send.pop_front()?;
            if let Some(pending) = self.pending.get(&cookie) {
                return Some((pending.request, pending.payload.clone()));
            }
        }
    }

    pub fn of(&mut self, cookie: u64) -> Option<&mut PendingRequest> {
        self.pending.get_mut(&cookie)
    }

    /// Records an error; more chunks of the reply may follow.
    pub fn refused(&mut self, cookie: u64, code: ErrorCode, story: String) {
        if let Some(pending) = self.of(cookie) {
            pending.refused.get_or_insert((code, story));
        }
    }

    /// Completes a request whose reply has ended.
    pub fn done(&mut self, cookie: u64) {
        let Some(pending) = self.pending.remove(&cookie) else { return };
        let PendingRequest { request, answer, refused, answered_before, tell, .. } = pending;
        let answered = match refused {
            None => {
                self.note_stability(&request, answered_before);
                Ok(answer)
            }
            Some((code, story)) => Err(error_of(&request, code, &story)),
        };
        // The caller may have dropped its future.
        let _ = tell.send(answered);
    }

    fn note_stability(&mut self, request: &Request, answered_before: u64) {
        match request.command {
            RequestType::Write | RequestType::WriteZeroes | RequestType::Trim
                if request.flags & command_flag::FUA == 0 =>
            {
                self.unflushed.wrote();
            }
            // Writes answered while the flush was outstanding are not covered by it.
            RequestType::Flush => self.unflushed.flushed(answered_before),
            _ => {}
        }
    }

    /// After a lost connection: sends every request again, except flushes that can no longer keep their
    /// promise; those fail.
    pub fn begin_again(&mut self) {
        let is_flush = |pending: &PendingRequest| pending.request.command == RequestType::Flush;
        let flushes: Vec<u64> =
            self.pending.iter().filter(|(_, pending)| is_flush(pending)).map(|(cookie, _)| *cookie).collect();
        if self.unflushed.broke(!flushes.is_empty()) {
            for cookie in &flushes {
                let pending = self.pending.remove(cookie).expect("it was found just now");
                let _ = pending.tell.send(Err(lost_cache()));
            }
        }
        for pending in self.pending.values_mut() {
            (pending.answer, pending.refused) = (ReplyContent::default(), None);
        }
        self.to_send = self.pending.keys().copied().collect();
    }

    /// Drops all requests: the client was closed.
    pub fn close(&mut self) {
        self.pending.clear();
    }

    /// Checks that a flush that starts now can promise durability; call it once for each flush.
    ///
    /// # Errors
    ///
    /// Acknowledged writes may be lost. Writes from now on are not affected.
    pub fn check_flush(&mut self) -> IoResult<()> {
        if self.unflushed.take_loss() { Err(lost_cache()) } else { Ok(()) }
    }

    /// Fails requests past their deadline; true if there were any.
    pub fn give_up(&mut self, now: Moment, why: &str) -> bool {
        let late: Vec<u64> = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.deadline <= now)
            .map(|(cookie, _)| *cookie)
            .collect();
        for cookie in &late {
            let pending = self.pending.remove(cookie).expect("it was found just now");
            let story = format!("{}: {why}", describe(&pending.request));
            let _ = pending.tell.send(Err(IoError::new(IoErrorKind::Disconnected, story)));
        }
        !late.is_empty()
    }
}

fn lost_cache() -> IoError {
    let story = "flush: the connection broke, and acknowledged writes may be lost";
    IoError::new(IoErrorKind::CacheLost, story)
}

fn describe(request: &Request) -> String {
    format!("{:?} of {} bytes at {}", request.command, request.length, request.offset)
}

fn error_of(request: &Request, code: ErrorCode, story: &str) -> IoError {
    let kind = match code {
        ErrorCode::Permission => IoErrorKind::ReadOnly,
        ErrorCode::NoSpace => IoErrorKind::NoSpace,
        ErrorCode::Invalid | ErrorCode::Overflow => IoErrorKind::OutOfRange,
        ErrorCode::Unsupported => IoErrorKind::Unsupported,
        ErrorCode::Shutdown => IoErrorKind::Disconnected,
        _ => IoErrorKind::Medium,
    };
    let story = if story.is_empty() { format!("{code:?}") } else { story.to_owned() };
    IoError::new(kind, format!("{}: the server says: {story}", describe(request)))
}

//! Requests on their way, and what came back of them.
//!
//! Invariants:
//!
//! 1. A request is known by its cookie, which no other one of this client ever has.
//! 2. It is here until it is answered, or its time is up; what was sent over a connection that broke is sent again.
//! 3. A flush says no more than [`Unflushed`] allows.

use crate::wire::transmission::{Command, Refusal, Request, flag};
use std::collections::{BTreeMap, VecDeque};
use tokio::sync::oneshot;
use world::{Buffer, IoError, IoErrorKind, IoResult, Moment, pieces::Payload, unflushed::Unflushed};

/// What comes back.
#[derive(Debug, Default)]
pub struct Answer {
    /// What was read.
    pub data: Option<Buffer>,
    /// Extents, each its length and flags.
    pub extents: Vec<(u32, u32)>,
}

/// A request that is not answered yet.
pub struct Pending {
    /// As it is sent.
    pub request: Request,
    /// What it carries.
    pub payload: Payload,
    /// What has come of its answer.
    pub answer: Answer,
    refused: Option<(Refusal, String)>,
    deadline: Moment,
    /// Writes that were answered before this was asked.
    answered_before: u64,
    tell: oneshot::Sender<IoResult<Answer>>,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Requests {
    pending: BTreeMap<u64, Pending>,
    /// Cookies of those that are to be sent, in order.
    to_send: VecDeque<u64>,
    cookie_next: u64,
    unflushed: Unflushed,
}

impl Requests {
    /// Takes a request in; it is sent as soon as there is a connection.
    pub fn add(
        &mut self,
        mut request: Request,
        payload: Payload,
        deadline: Moment,
    ) -> oneshot::Receiver<IoResult<Answer>> {
        request.cookie = self.cookie_next;
        self.cookie_next += 1;
        let (tell, told) = oneshot::channel();
        let pending = Pending {
            request,
            payload,
            answer: Answer::default(),
            refused: None,
            deadline,
            answered_before: self.unflushed.answered(),
            tell,
        };
        self.pending.insert(request.cookie, pending);
        self.to_send.push_back(request.cookie);
        told
    }

    /// The next one to be sent: its bytes and what it carries.
    pub fn next_to_send(&mut self) -> Option<(Request, Payload)> {
        loop {
            let cookie = self.to_send.pop_front()?;
            if let Some(pending) = self.pending.get(&cookie) {
                return Some((pending.request, pending.payload.clone()));
            }
        }
    }

    /// The one that is answered.
    pub fn of(&mut self, cookie: u64) -> Option<&mut Pending> {
        self.pending.get_mut(&cookie)
    }

    /// It was refused, or failed; more of its answer may follow.
    pub fn refused(&mut self, cookie: u64, refusal: Refusal, story: String) {
        if let Some(pending) = self.of(cookie) {
            pending.refused.get_or_insert((refusal, story));
        }
    }

    /// Its answer is complete.
    pub fn done(&mut self, cookie: u64) {
        let Some(pending) = self.pending.remove(&cookie) else { return };
        let Pending { request, answer, refused, answered_before, tell, .. } = pending;
        let answered = match refused {
            None => {
                self.note_stability(&request, answered_before);
                Ok(answer)
            }
            Some((refusal, story)) => Err(error_of(&request, refusal, &story)),
        };
        // Nobody may be waiting any more.
        let _ = tell.send(answered);
    }

    fn note_stability(&mut self, request: &Request, answered_before: u64) {
        match request.command {
            Command::Write | Command::WriteZeroes | Command::Trim if request.flags & flag::FUA == 0 => {
                self.unflushed.wrote();
            }
            // What was answered while it was under way is not in it.
            Command::Flush => self.unflushed.flushed(answered_before),
            _ => {}
        }
    }

    /// The connection broke: everything is to be sent again, but for flushes that could not mean what they say.
    pub fn begin_again(&mut self) {
        let is_flush = |pending: &Pending| pending.request.command == Command::Flush;
        let flushes: Vec<u64> =
            self.pending.iter().filter(|(_, pending)| is_flush(pending)).map(|(cookie, _)| *cookie).collect();
        if self.unflushed.broke(!flushes.is_empty()) {
            for cookie in &flushes {
                let pending = self.pending.remove(cookie).expect("it was found just now");
                let _ = pending.tell.send(Err(lost_cache()));
            }
        }
        for pending in self.pending.values_mut() {
            (pending.answer, pending.refused) = (Answer::default(), None);
        }
        self.to_send = self.pending.keys().copied().collect();
    }

    /// Whether a flush that begins now can say that all is stable. Asked once for each.
    ///
    /// # Errors
    ///
    /// Writes may be lost. What is written from now on is not concerned.
    pub fn check_flush(&mut self) -> IoResult<()> {
        if self.unflushed.take_loss() { Err(lost_cache()) } else { Ok(()) }
    }

    /// Gives up those whose time is up; whether there were any.
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
    let story = "flush: the connection broke, and writes that were answered before may be lost";
    IoError::new(IoErrorKind::Medium, story)
}

fn describe(request: &Request) -> String {
    format!("{:?} of {} bytes at {}", request.command, request.length, request.offset)
}

fn error_of(request: &Request, refusal: Refusal, story: &str) -> IoError {
    let kind = match refusal {
        Refusal::Permission => IoErrorKind::ReadOnly,
        Refusal::NoSpace => IoErrorKind::NoSpace,
        Refusal::Invalid | Refusal::Overflow => IoErrorKind::OutOfRange,
        Refusal::Unsupported => IoErrorKind::Unsupported,
        Refusal::Shutdown => IoErrorKind::Disconnected,
        _ => IoErrorKind::Medium,
    };
    let story = if story.is_empty() { format!("{refusal:?}") } else { story.to_owned() };
    IoError::new(kind, format!("{}: the server says: {story}", describe(request)))
}

//! A connection in the transmission phase: requests are executed concurrently and answered as they complete.
//!
//! Invariants:
//!
//! 1. Each request except DISC is answered once, in any order; or never, and the connection ends.
//! 2. Outstanding requests and their bytes are bounded for each connection; the reader waits for room.
//! 3. After DISC, outstanding requests complete before the connection is closed.

use super::{
    ConnectionEnd, ServerOptions,
    client_slots::{ClientSlot, ClientSlots},
    haggling::{NegotiatedExport, WITHHELD},
    handshake::{Handshake, HandshakeEnd, HandshakePolicy, skip},
    requests::{ReplyData, RequestError, perform},
};
use crate::{
    export::Exports,
    export_gate::GatePass,
    wire::{
        PAYLOAD_BYTES_MAX,
        transmission::{ErrorCode, ReplyHead, Request, RequestType, chunk},
    },
};
use std::{cell::RefCell, collections::VecDeque, io::IoSlice, rc::Rc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split},
    sync::{Notify, Semaphore},
};
use world::{
    Buffer, Moment, SampledLatencies, Stream, World,
    network::{receiver::Receiver, write_slices},
    with_deadline,
};

/// Time for a client that is cut off to read its last replies.
const FAREWELL_MAX: Duration = Duration::from_secs(5);
/// Replies written in one system call at most.
const REPLIES_AT_ONCE: usize = 32;

/// Serves one connection to its end.
pub async fn run(
    world: &World,
    stream: Stream,
    exports: &Exports,
    (options, slots): (ServerOptions, &Rc<ClientSlots>),
    connected: impl FnOnce(&str, bool),
) -> Result<(), ConnectionEnd> {
    let negotiated = {
        let agreeing = async {
            let policy = HandshakePolicy { exports, tls: &options.tls, slots: Some(slots) };
            Handshake::begin(stream, &options.tls).await?.go_on(world, policy, None).await
        };
        match with_deadline(world.sleep(options.greeting_max), agreeing).await {
            Some(negotiated) => negotiated?,
            None => return Err(ConnectionEnd::Slow),
        }
    };
    match negotiated {
        HandshakeEnd::Closed => Ok(()),
        HandshakeEnd::HandOver(..) => unreachable!("all exports are on this thread"),
        HandshakeEnd::Transmission(negotiated, stream, slot) => {
            connected(&negotiated.export.name, negotiated.is_encrypted);
            transmit(world, (negotiated, stream, slot), &options, &Notify::new()).await
        }
    }
}

/// The transmission phase of a connection, to its end; `ends` brings that about.
pub async fn transmit(
    world: &World,
    (negotiated, stream, slot): (NegotiatedExport, Stream, ClientSlot),
    options: &ServerOptions,
    ends: &Notify,
) -> Result<(), ConnectionEnd> {
    let (reader, writer) = split(stream);
    let session = Rc::new(Session {
        world: world.clone(),
        pass: negotiated.pass,
        timer: negotiated.export.device.replies(),
        negotiated,
        slot,
        requests: Semaphore::new(options.requests_max),
        bytes: Semaphore::new(options.bytes_max),
        replies: ReplyQueue::default(),
        outdated: Notify::new(),
        options: options.clone(),
    });
    let writing = world.spawn("nbd answers", Rc::clone(&session).write_answers(writer));
    let reading = Rc::clone(&session).read_requests(reader);
    let reading = async {
        with_deadline(session.outdated.notified(), reading).await.unwrap_or(Err(ConnectionEnd::ExportChanged))
    };
    let ended = with_deadline(ends.notified(), reading).await.unwrap_or(Err(ConnectionEnd::EndedByOperator));
    let is_cut = matches!(ended, Err(ConnectionEnd::EndedByOperator | ConnectionEnd::ExportChanged));
    // Outstanding requests complete and are answered if the client still reads.
    let everyone = session.requests.acquire_many(session.options.requests_max as u32).await;
    session.replies.close();
    drop(everyone);
    if is_cut {
        // It may not read its last replies.
        with_deadline(world.sleep(FAREWELL_MAX), writing).await;
        return ended;
    }
    let written = writing.await;
    ended.and(written)
}

struct Session {
    world: World,
    pass: GatePass,
    /// Times replies.
    timer: Option<Rc<SampledLatencies>>,
    negotiated: NegotiatedExport,
    slot: ClientSlot,
    options: ServerOptions,
    requests: Semaphore,
    bytes: Semaphore,
    replies: ReplyQueue,
    /// Notified when a request came too late for the export as it was.
    outdated: Notify,
}

/// Room for an outstanding request, released on drop.
struct RequestPermit {
    session: Rc<Session>,
    bytes: u32,
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        self.session.bytes.add_permits(self.bytes as usize);
        self.session.requests.add_permits(1);
    }
}

impl Session {
    /// Reads requests and spawns their execution until the client disconnects.
    async fn read_requests(self: Rc<Self>, reader: impl AsyncRead + Unpin) -> Result<(), ConnectionEnd> {
        let mut reader = Receiver::new(reader);
        let mut has_requested = false;
        loop {
            let mut head = [0; Request::BYTES];
            let reading = reader.read_exact(&mut head);
            let read = if has_requested {
                Some(reading.await)
            } else {
                with_deadline(self.slot.taken(), reading).await
            };
            match read.ok_or(ConnectionEnd::Idle(self.options.idle_max))? {
                // Closed between requests: no disconnect request, but nothing is lost.
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
                read => read?,
            };
            if !has_requested {
                has_requested = true;
                self.slot.keep();
            }
            let request = Request::read(&head).ok_or(ConnectionEnd::Protocol("bad request magic"))?;
            if !self.negotiated.export.gate.admits(self.pass) {
                return Err(match self.negotiated.export.gate.is_withheld() {
                    true => ConnectionEnd::Withheld,
                    false => ConnectionEnd::ExportChanged,
                });
            }
            if request.command == RequestType::Disconnect {
                return Ok(());
            }
            let held = Rc::clone(&self).hold(&request).await;
            let data = match request.command {
                RequestType::Write => self.read_data(&mut reader, &request).await?,
                _ => None,
            };
            let session = Rc::clone(&self);
            self.world.spawn("nbd request", async move {
                session.answer(request, data).await;
                drop(held);
            });
        }
    }

    /// Waits for room for a request.
    async fn hold(self: Rc<Self>, request: &Request) -> RequestPermit {
        let has_data = matches!(request.command, RequestType::Read | RequestType::Write);
        let bytes = if has_data { request.length.min(PAYLOAD_BYTES_MAX) } else { 0 };
        assert!(bytes as usize <= self.options.bytes_max, "one request of any size has room");
        let never_closed = "it is never closed";
        let request = self.requests.acquire().await.expect(never_closed);
        let room = self.bytes.acquire_many(bytes).await.expect(never_closed);
        // Not before both are there: a reader that is ended meanwhile releases the first one.
        request.forget();
        room.forget();
        RequestPermit { session: self, bytes }
    }

    /// The payload of a write; `None` if the request will be rejected.
    async fn read_data(
        &self,
        reader: &mut (impl AsyncRead + Unpin),
        request: &Request,
    ) -> Result<Option<Buffer>, ConnectionEnd> {
        if request.length == 0 {
            return Ok(None);
        }
        if request.length > PAYLOAD_BYTES_MAX {
            skip(reader, request.length.into()).await?;
            return Ok(None);
        }
        let mut data = Buffer::zeroed(request.length as usize);
        reader.read_exact(&mut data).await?;
        Ok(Some(data))
    }

    async fn answer(&self, request: Request, data: Option<Buffer>) {
        let is_too_long = request.command == RequestType::Write && request.length > PAYLOAD_BYTES_MAX;
        let gate = &self.negotiated.export.gate;
        let Some(_executing) = gate.enter(self.pass) else {
            if !gate.is_withheld() {
                // Without an answer the client sends it again over its next connection; an error would be its host's.
                return self.outdated.notify_one();
            }
            let withheld = RequestError::new(ErrorCode::Shutdown, WITHHELD);
            return self.replies.put(self.answer_of(request, Err(withheld)));
        };
        let done = if is_too_long {
            Err(RequestError::new(ErrorCode::Overflow, "write of more than 32 MiB"))
        } else {
            perform(&self.negotiated, request, data).await
        };
        if done.as_ref().is_err_and(|error| error.is_moved) {
            return self.outdated.notify_one();
        }
        let timed = self.timer.as_ref().and_then(|timer| timer.begin());
        self.replies.put(Reply { timed, ..self.answer_of(request, done) });
    }

    fn answer_of(&self, request: Request, done: Result<ReplyData, RequestError>) -> Reply {
        let cookie = request.cookie;
        if !self.negotiated.is_structured {
            let mut head = Vec::with_capacity(ReplyHead::SIMPLE_BYTES);
            let result = done.as_ref().map(drop).map_err(|error| error.code);
            ReplyHead::Simple { cookie, result }.write(&mut head);
            let data = if let Ok(ReplyData::Data(_, data)) = done { Some(data) } else { None };
            return Reply { head, data, timed: None };
        }
        let mut head = Vec::with_capacity(ReplyHead::CHUNK_BYTES);
        let (kind, own, data) = match done {
            Ok(ReplyData::Nothing) => (chunk::NONE, Vec::new(), None),
            Ok(ReplyData::Data(offset, data)) => {
                (chunk::OFFSET_DATA, offset.to_be_bytes().to_vec(), Some(data))
            }
            Ok(ReplyData::Status(mut contexts)) => {
                let last = contexts.pop().expect("a context was selected");
                for extents in contexts {
                    let (kind, length) = (chunk::BLOCK_STATUS, extents.len() as u32);
                    ReplyHead::Chunk { cookie, is_done: false, kind, length }.write(&mut head);
                    head.extend(extents);
                }
                (chunk::BLOCK_STATUS, last, None)
            }
            Err(RequestError { code, message, .. }) => {
                let message = &message.as_bytes()[..message.floor_char_boundary(1024)];
                let mut own = code.number().to_be_bytes().to_vec();
                own.extend((message.len() as u16).to_be_bytes());
                own.extend(message);
                (chunk::ERROR, own, None)
            }
        };
        let length = (own.len() + data.as_ref().map_or(0, |data| data.len())) as u32;
        ReplyHead::Chunk { cookie, is_done: true, kind, length }.write(&mut head);
        head.extend(own);
        Reply { head, data, timed: None }
    }

    async fn write_answers(self: Rc<Self>, mut writer: impl AsyncWrite + Unpin) -> Result<(), ConnectionEnd> {
        while let Some(answers) = self.replies.take().await {
            let pieces = answers.iter().flat_map(|answer| [Some(&answer.head[..]), answer.data.as_deref()]);
            let mut slices: Vec<IoSlice<'_>> = pieces.flatten().map(IoSlice::new).collect();
            if let Err(error) = write_slices(&mut writer, &mut slices).await {
                // Nobody reads the remaining replies; wait for their requests to complete.
                while self.replies.take().await.is_some() {}
                return Err(error.into());
            }
            if let Some(timer) = &self.timer {
                answers.iter().filter_map(|answer| answer.timed).for_each(|timed| timer.end(timed));
            }
        }
        Ok(writer.shutdown().await?)
    }
}

struct Reply {
    head: Vec<u8>,
    data: Option<Buffer>,
    /// Moment at which the export's device answered, if the reply is timed.
    timed: Option<Moment>,
}

#[derive(Default)]
struct ReplyQueue {
    answers: RefCell<VecDeque<Reply>>,
    is_closed: std::cell::Cell<bool>,
    changed: Notify,
}

impl ReplyQueue {
    fn put(&self, answer: Reply) {
        assert!(!self.is_closed.get(), "all that is under way is answered before");
        self.answers.borrow_mut().push_back(answer);
        self.changed.notify_one();
    }

    fn close(&self) {
        self.is_closed.set(true);
        self.changed.notify_one();
    }

    /// The next replies; `None` once closed and empty.
    async fn take(&self) -> Option<Vec<Reply>> {
        loop {
            {
                let mut answers = self.answers.borrow_mut();
                if !answers.is_empty() {
                    let count = answers.len().min(REPLIES_AT_ONCE);
                    return Some(answers.drain(..count).collect());
                }
            }
            if self.is_closed.get() {
                return None;
            }
            self.changed.notified().await;
        }
    }
}

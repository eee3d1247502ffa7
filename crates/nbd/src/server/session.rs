//! A connection: requests are read one after the other and done at once, many at a time; answers go out as they come.
//!
//! Invariants:
//!
//! 1. Each request is answered once; Disconnect is not. Answers may come in any order.
//! 2. What is under way of one connection is bounded, in requests and in bytes: who asks for more waits.
//! 3. When the client disconnects, what was begun is done before the connection is closed.

use super::{
    Ended, ServerOptions,
    client_slots::{ClientSlot, ClientSlots},
    greeting::{agree, skip},
    haggling::Agreed,
    requests::{Done, NotDone, perform},
};
use crate::{
    export::Exports,
    wire::{
        PAYLOAD_BYTES_MAX,
        transmission::{Command, ReplyHead, Request, chunk},
    },
};
use std::{cell::RefCell, collections::VecDeque, io::IoSlice, rc::Rc};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, split},
    sync::{Notify, Semaphore},
};
use world::{Buffer, Stream, World, network::write_slices, with_deadline};

/// Answers that go out in one call at most.
const ANSWERS_AT_ONCE: usize = 32;
const READ_AHEAD_BYTES: usize = 64 * 1024;

/// Serves one connection to its end.
pub async fn run(
    world: &World,
    stream: Stream,
    exports: &Exports,
    (options, slots): (ServerOptions, &Rc<ClientSlots>),
    connected: impl FnOnce(&str, bool),
) -> Result<(), Ended> {
    let agreed = {
        let agreeing = agree(world, stream, exports, &options.tls, slots);
        match with_deadline(world.sleep(options.greeting_max), agreeing).await {
            Some(agreed) => agreed?,
            None => return Err(Ended::Slow),
        }
    };
    let Some((agreed, stream, slot)) = agreed else { return Ok(()) };
    connected(&agreed.export.name, agreed.is_encrypted);
    let (reader, writer) = split(stream);
    let session = Rc::new(Session {
        world: world.clone(),
        agreed,
        slot,
        requests: Semaphore::new(options.requests_max),
        bytes: Semaphore::new(options.bytes_max),
        outbox: Outbox::default(),
        options,
    });
    let writing = world.spawn("nbd answers", Rc::clone(&session).write_answers(writer));
    let ended = Rc::clone(&session).read_requests(reader).await;
    // Those under way are answered, if anybody listens still.
    let everyone = session.requests.acquire_many(session.options.requests_max as u32).await;
    session.outbox.close();
    drop(everyone);
    let written = writing.await;
    ended.and(written)
}

struct Session {
    world: World,
    agreed: Agreed,
    slot: ClientSlot,
    options: ServerOptions,
    requests: Semaphore,
    bytes: Semaphore,
    outbox: Outbox,
}

/// Room for a request that is under way.
struct Held {
    session: Rc<Session>,
    bytes: u32,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.session.bytes.add_permits(self.bytes as usize);
        self.session.requests.add_permits(1);
    }
}

impl Session {
    /// Reads requests until the client ends, and has each of them done.
    async fn read_requests(self: Rc<Self>, reader: impl AsyncRead + Unpin) -> Result<(), Ended> {
        let mut reader = BufReader::with_capacity(READ_AHEAD_BYTES, reader);
        let mut has_requested = false;
        loop {
            let mut head = [0; Request::BYTES];
            let reading = reader.read_exact(&mut head);
            let read = match has_requested {
                true => Some(reading.await),
                false => with_deadline(self.slot.taken(), reading).await,
            };
            match read.ok_or(Ended::Idle(self.options.idle_max))? {
                // Closed between requests: not the polite way, but nothing is lost.
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
                read => read?,
            };
            if !has_requested {
                has_requested = true;
                self.slot.keep();
            }
            let request =
                Request::read(&head).ok_or(Ended::Protocol("a request does not begin as it must"))?;
            if request.command == Command::Disconnect {
                return Ok(());
            }
            let held = Rc::clone(&self).hold(&request).await;
            let data = match request.command {
                Command::Write => self.read_data(&mut reader, &request).await?,
                _ => None,
            };
            let session = Rc::clone(&self);
            self.world.spawn("nbd request", async move {
                session.answer(request, data).await;
                drop(held);
            });
        }
    }

    /// Waits until there is room for a request.
    async fn hold(self: Rc<Self>, request: &Request) -> Held {
        let has_data = matches!(request.command, Command::Read | Command::Write);
        let bytes = if has_data { request.length.min(PAYLOAD_BYTES_MAX) } else { 0 };
        assert!(bytes as usize <= self.options.bytes_max, "one request of any size has room");
        let never_closed = "it is never closed";
        self.requests.acquire().await.expect(never_closed).forget();
        self.bytes.acquire_many(bytes).await.expect(never_closed).forget();
        Held { session: self, bytes }
    }

    /// What a write came with; none if that is not to be written.
    async fn read_data(
        &self,
        reader: &mut (impl AsyncRead + Unpin),
        request: &Request,
    ) -> Result<Option<Buffer>, Ended> {
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
        let is_too_long = request.command == Command::Write && request.length > PAYLOAD_BYTES_MAX;
        let done = match is_too_long {
            true => Err(NotDone {
                refusal: crate::wire::transmission::Refusal::Overflow,
                story: "it writes more than 32 MiB".to_owned(),
            }),
            false => perform(&self.agreed, request, data).await,
        };
        self.outbox.put(self.answer_of(request, done));
    }

    fn answer_of(&self, request: Request, done: Result<Done, NotDone>) -> Answer {
        let cookie = request.cookie;
        if !self.agreed.is_structured {
            let mut head = Vec::with_capacity(ReplyHead::SIMPLE_BYTES);
            let result = done.as_ref().map(drop).map_err(|error| error.refusal);
            ReplyHead::Simple { cookie, result }.write(&mut head);
            let data = if let Ok(Done::Data(_, data)) = done { Some(data) } else { None };
            return Answer { head, data };
        }
        let (kind, own, data) = match done {
            Ok(Done::Nothing) => (chunk::NONE, Vec::new(), None),
            Ok(Done::Data(offset, data)) => (chunk::OFFSET_DATA, offset.to_be_bytes().to_vec(), Some(data)),
            Ok(Done::Status(extents)) => (chunk::BLOCK_STATUS, extents, None),
            Err(NotDone { refusal, story }) => {
                let story = &story.as_bytes()[..story.floor_char_boundary(1024)];
                let mut own = refusal.number().to_be_bytes().to_vec();
                own.extend((story.len() as u16).to_be_bytes());
                own.extend(story);
                (chunk::ERROR, own, None)
            }
        };
        let length = (own.len() + data.as_ref().map_or(0, |data| data.len())) as u32;
        let mut head = Vec::with_capacity(ReplyHead::CHUNK_BYTES + own.len());
        ReplyHead::Chunk { cookie, is_done: true, kind, length }.write(&mut head);
        head.extend(own);
        Answer { head, data }
    }

    /// Sends answers as they come, until there will be no more.
    async fn write_answers(self: Rc<Self>, mut writer: impl AsyncWrite + Unpin) -> Result<(), Ended> {
        while let Some(answers) = self.outbox.take().await {
            let pieces = answers.iter().flat_map(|answer| [Some(&answer.head[..]), answer.data.as_deref()]);
            let mut slices: Vec<IoSlice<'_>> = pieces.flatten().map(IoSlice::new).collect();
            if let Err(error) = write_slices(&mut writer, &mut slices).await {
                // The others are done, and nobody hears of it.
                while self.outbox.take().await.is_some() {}
                return Err(error.into());
            }
        }
        Ok(writer.shutdown().await?)
    }
}

/// An answer on its way.
struct Answer {
    head: Vec<u8>,
    data: Option<Buffer>,
}

/// Answers that wait to be sent.
#[derive(Default)]
struct Outbox {
    answers: RefCell<VecDeque<Answer>>,
    is_closed: std::cell::Cell<bool>,
    changed: Notify,
}

impl Outbox {
    fn put(&self, answer: Answer) {
        assert!(!self.is_closed.get(), "all that is under way is answered before");
        self.answers.borrow_mut().push_back(answer);
        self.changed.notify_one();
    }

    /// No more will come.
    fn close(&self) {
        self.is_closed.set(true);
        self.changed.notify_one();
    }

    /// The next answers; none at the end.
    async fn take(&self) -> Option<Vec<Answer>> {
        loop {
            {
                let mut answers = self.answers.borrow_mut();
                if !answers.is_empty() {
                    let count = answers.len().min(ANSWERS_AT_ONCE);
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

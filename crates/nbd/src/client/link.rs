//! The connection of a client, kept up: made, used, and made again when it breaks.

use super::{
    ClientOptions, Uri,
    greeting::{Disagreement, Facts, agree},
    pending::{Answer, Requests},
};
use crate::wire::{
    PAYLOAD_BYTES_MAX, Taking,
    transmission::{Command, Refusal, ReplyHead, Request, chunk},
};
use std::{
    cell::{Cell, RefCell},
    io::{self, IoSlice},
    rc::{Rc, Weak},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, split},
    sync::Notify,
};
use world::{
    Buffer, IoError, IoErrorKind, IoResult, Network, Stream, World, network::write_slices, pieces::Payload,
    with_deadline,
};

/// How often it is looked whether a request's time is up.
const LOOK: Duration = Duration::from_millis(500);
/// Before a connection is tried again, at least and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// Requests sent in one call at most.
const REQUESTS_AT_ONCE: usize = 32;

/// See the module's documentation.
pub struct Link {
    world: World,
    network: Rc<dyn Network>,
    uri: Uri,
    options: ClientOptions,
    /// As they were when it was connected first; a server that comes back with others is not used.
    facts: Facts,
    requests: RefCell<Requests>,
    /// Somebody asks something. Who waits for it keeps it, never the link: the link ends when its user drops it.
    wanted: Rc<Notify>,
    /// The connection is of no use, or of no use any more; the same holds of it.
    broken: Rc<Notify>,
    is_up: Cell<bool>,
    /// Why it is not up.
    trouble: RefCell<String>,
    breaks: Cell<u64>,
}

impl Link {
    /// Connects; from then on the connection is kept up until the link is dropped.
    pub async fn connect(
        world: &World,
        network: Rc<dyn Network>,
        uri: Uri,
        options: ClientOptions,
    ) -> IoResult<Rc<Self>> {
        let (stream, facts) = connect(world, &network, &uri, &options).await?;
        let link = Rc::new(Self {
            world: world.clone(),
            network,
            uri,
            options,
            facts,
            requests: RefCell::default(),
            wanted: Rc::default(),
            broken: Rc::default(),
            is_up: Cell::new(true),
            trouble: RefCell::default(),
            breaks: Cell::new(0),
        });
        world.spawn("nbd link", keep_up(Rc::downgrade(&link), stream));
        world.spawn("nbd deadlines", give_up_late(world.clone(), Rc::downgrade(&link)));
        Ok(link)
    }

    /// What is served.
    pub fn facts(&self) -> Facts {
        self.facts
    }

    /// Times the connection broke so far.
    pub fn breaks(&self) -> u64 {
        self.breaks.get()
    }

    /// What is asked, done by the server; it goes on when nobody waits for it.
    pub fn ask(
        &self,
        (flags, command, offset, length): (u16, Command, u64, u32),
        payload: Payload,
    ) -> impl Future<Output = IoResult<Answer>> + 'static {
        let request = Request { flags, command, cookie: 0, offset, length };
        let deadline = self.world.now() + self.options.answer_max;
        let told = self.requests.borrow_mut().add(request, payload, deadline);
        self.wanted.notify_one();
        async move {
            let closed = || IoError::new(IoErrorKind::Disconnected, "the client was closed");
            told.await.unwrap_or_else(|_| Err(closed()))
        }
    }

    /// See [`Requests::check_flush`].
    pub fn check_flush(&self) -> IoResult<()> {
        self.requests.borrow_mut().check_flush()
    }
}

async fn connect(
    world: &World,
    network: &Rc<dyn Network>,
    uri: &Uri,
    options: &ClientOptions,
) -> IoResult<(Stream, Facts)> {
    let tls = options.tls.as_ref().filter(|_| uri.tls.is_some());
    if uri.tls.is_some() && tls.is_none() {
        let story = format!("{uri}: whom to believe is not said: no authority's certificate");
        return Err(IoError::new(IoErrorKind::PermissionDenied, story));
    }
    let connecting = async {
        let stream = network.connect(&uri.address).await?;
        let (facts, stream) = agree(world, stream, &uri.export, tls).await.map_err(|disagreement| {
            let kind = match disagreement {
                Disagreement::Broken(_) => IoErrorKind::Disconnected,
                Disagreement::Tls(_) => IoErrorKind::PermissionDenied,
                Disagreement::Protocol(_) => IoErrorKind::WrongType,
                Disagreement::Refused(_) => IoErrorKind::NotFound,
            };
            IoError::new(kind, format!("{uri}: {disagreement}"))
        })?;
        Ok((stream, facts))
    };
    let connected = with_deadline(world.sleep(options.connect_max), connecting).await;
    connected.unwrap_or_else(|| {
        let story = format!("{uri}: no answer within {} s", options.connect_max.as_secs());
        Err(IoError::new(IoErrorKind::Disconnected, story))
    })
}

/// Uses `stream` until it breaks, then another one, and so on, as long as there is a link.
async fn keep_up(link: Weak<Link>, mut stream: Stream) {
    loop {
        if let Err(error) = use_stream(&link, stream).await
            && let Some(link) = link.upgrade()
        {
            *link.trouble.borrow_mut() = error.to_string();
        }
        let Some(next) = reconnect(&link).await else { return };
        stream = next;
    }
}

/// The next connection; none when the link is gone.
async fn reconnect(link: &Weak<Link>) -> Option<Stream> {
    let mut pause = PAUSES.0;
    {
        let link = link.upgrade()?;
        link.is_up.set(false);
        link.breaks.set(link.breaks.get() + 1);
        link.requests.borrow_mut().begin_again();
    }
    loop {
        let (world, network, uri, options, facts) = {
            let link = link.upgrade()?;
            (link.world.clone(), Rc::clone(&link.network), link.uri.clone(), link.options.clone(), link.facts)
        };
        let problem = match connect(&world, &network, &uri, &options).await {
            Ok((stream, same)) if same == facts => {
                link.upgrade()?.is_up.set(true);
                return Some(stream);
            }
            Ok(_) => format!("{uri}: it is another export now"),
            Err(error) => error.to_string(),
        };
        *link.upgrade()?.trouble.borrow_mut() = problem;
        world.sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Sends and receives until the connection breaks, or the link is gone.
async fn use_stream(link: &Weak<Link>, stream: Stream) -> io::Result<()> {
    let (reader, writer) = split(stream);
    let (world, wanted, broken) = match link.upgrade() {
        Some(link) => (link.world.clone(), Rc::clone(&link.wanted), Rc::clone(&link.broken)),
        None => return Ok(()),
    };
    let is_over = Rc::new(Cell::new(false));
    let sending = world.spawn("nbd requests", send(link.clone(), writer, Rc::clone(&is_over)));
    let received = with_deadline(broken.notified(), receive(link, reader)).await;
    is_over.set(true);
    wanted.notify_one();
    let sent = sending.await;
    received.unwrap_or(Ok(())).and(sent)
}

async fn send(
    link: Weak<Link>,
    mut writer: impl AsyncWrite + Unpin,
    is_over: Rc<Cell<bool>>,
) -> io::Result<()> {
    loop {
        let Some(held) = link.upgrade() else {
            let bye = Request { flags: 0, command: Command::Disconnect, cookie: 0, offset: 0, length: 0 };
            writer.write_all(&bye.write()).await?;
            return writer.shutdown().await;
        };
        if is_over.get() {
            return Ok(());
        }
        let batch: Vec<(Request, Payload)> = {
            let mut requests = held.requests.borrow_mut();
            std::iter::from_fn(|| requests.next_to_send()).take(REQUESTS_AT_ONCE).collect()
        };
        let wanted = Rc::clone(&held.wanted);
        drop(held);
        if batch.is_empty() {
            wanted.notified().await;
            continue;
        }
        let heads: Vec<_> = batch.iter().map(|(request, _)| request.write()).collect();
        let mut slices = Vec::with_capacity(2 * batch.len());
        for (head, (_, payload)) in heads.iter().zip(&batch) {
            slices.push(IoSlice::new(head));
            slices.extend(payload.iter().map(|(buffer, range)| IoSlice::new(&buffer[range.clone()])));
        }
        write_slices(&mut writer, &mut slices).await?;
    }
}

async fn receive(link: &Weak<Link>, reader: impl AsyncRead + Unpin) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(64 * 1024, reader);
    let nonsense = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    loop {
        let mut bytes = [0; ReplyHead::CHUNK_BYTES];
        reader.read_exact(&mut bytes[..4]).await?;
        let magic = u32::from_be_bytes(bytes[..4].try_into().expect("four bytes"));
        let length =
            ReplyHead::bytes_of(magic).ok_or_else(|| nonsense("a reply does not begin as it must"))?;
        reader.read_exact(&mut bytes[4..length]).await?;
        let head = ReplyHead::read(&bytes[..length]).expect("it begins as it must, and is as long");
        let Some(link) = link.upgrade() else { return Ok(()) };
        match head {
            ReplyHead::Simple { cookie, result } => {
                let reads = request_of(&link, cookie).filter(|request| request.command == Command::Read);
                match (result, reads) {
                    (Err(refusal), _) => link.requests.borrow_mut().refused(cookie, refusal, String::new()),
                    (Ok(()), Some(request)) => {
                        take_data(&link, &mut reader, cookie, (0, request.length)).await?;
                    }
                    (Ok(()), None) => {}
                }
                link.requests.borrow_mut().done(cookie);
            }
            ReplyHead::Chunk { cookie, is_done, kind, length } => {
                if length > PAYLOAD_BYTES_MAX + 4096 {
                    return Err(nonsense("a chunk is longer than anything that was asked for"));
                }
                take_chunk(&link, &mut reader, (cookie, kind, length)).await?;
                if is_done {
                    link.requests.borrow_mut().done(cookie);
                }
            }
        }
    }
}

fn request_of(link: &Link, cookie: u64) -> Option<Request> {
    link.requests.borrow_mut().of(cookie).map(|pending| pending.request)
}

async fn take_chunk(
    link: &Link,
    reader: &mut (impl AsyncRead + Unpin),
    (cookie, kind, length): (u64, u16, u32),
) -> io::Result<()> {
    let nonsense = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidData, what.to_owned()));
    if kind == chunk::OFFSET_DATA {
        if length < 8 {
            return nonsense("data lie nowhere");
        }
        let offset = reader.read_u64().await?;
        let start = request_of(link, cookie).map(|request| offset.wrapping_sub(request.offset));
        return take_data(link, reader, cookie, (start.unwrap_or(0), length - 8)).await;
    }
    let mut data = vec![0; length as usize];
    reader.read_exact(&mut data).await?;
    let mut taking = Taking(&data);
    let mut requests = link.requests.borrow_mut();
    match kind {
        kind if kind & chunk::IS_ERROR != 0 => {
            let refusal = taking.u32().map_or(Refusal::Io, Refusal::of);
            let length = taking.u16().unwrap_or(0);
            let story = taking.bytes(length.into()).map(String::from_utf8_lossy).unwrap_or_default();
            requests.refused(cookie, refusal, story.into_owned());
        }
        chunk::BLOCK_STATUS => {
            let _context = taking.u32();
            if let Some(pending) = requests.of(cookie) {
                let next = || Some((taking.u32()?, taking.u32()?));
                pending.answer.extents.extend(std::iter::from_fn(next));
            }
        }
        chunk::OFFSET_HOLE => {
            // What no chunk has data for is zero already.
            if let Some(pending) = requests.of(cookie) {
                let length = pending.request.length as usize;
                pending.answer.data.get_or_insert_with(|| Buffer::zeroed(length));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Data of a read, from byte `start` of what was asked for on.
async fn take_data(
    link: &Link,
    reader: &mut (impl AsyncRead + Unpin),
    cookie: u64,
    (start, length): (u64, u32),
) -> io::Result<()> {
    let taken = link.requests.borrow_mut().of(cookie).map(|pending| {
        let length = pending.request.length as usize;
        pending.answer.data.take().unwrap_or_else(|| Buffer::zeroed(length))
    });
    let Some(mut data) = taken else {
        // Its time was up.
        tokio::io::copy(&mut reader.take(length.into()), &mut tokio::io::sink()).await?;
        return Ok(());
    };
    let end = start.checked_add(length.into()).filter(|&end| end <= data.len() as u64);
    let Some(end) = end else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "data lie where none were asked for"));
    };
    reader.read_exact(&mut data[start as usize..end as usize]).await?;
    if let Some(pending) = link.requests.borrow_mut().of(cookie) {
        pending.answer.data = Some(data);
    }
    Ok(())
}

/// Requests that take too long are given up, and the connection with them.
async fn give_up_late(world: World, link: Weak<Link>) {
    loop {
        world.sleep(LOOK).await;
        let Some(link) = link.upgrade() else { return };
        let trouble = match link.is_up.get() {
            true => "the server does not answer".to_owned(),
            false => link.trouble.borrow().clone(),
        };
        let why = format!("no answer within {} s: {trouble}", link.options.answer_max.as_secs());
        let has_late = link.requests.borrow_mut().give_up(world.now(), &why);
        if has_late && link.is_up.get() {
            link.broken.notify_one();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Who sends says goodbye, and who receives waits no longer.
        self.wanted.notify_one();
        self.broken.notify_one();
    }
}

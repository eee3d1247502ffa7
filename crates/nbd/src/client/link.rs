//! The connection of a client, kept up: made, used, and made again when it breaks.

use super::{
    ClientOptions, NbdUri,
    handshake::{ExportInfo, HandshakeError, agree},
    pending::{PendingRequests, ReplyContent},
};
use crate::wire::{
    ByteReader, PAYLOAD_BYTES_MAX,
    transmission::{ErrorCode, ReplyHead, Request, RequestType, chunk},
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

/// Interval of the checks for expired requests.
const LOOK: Duration = Duration::from_millis(500);
/// Shortest and longest delay before the next connection attempt.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// Requests sent in one system call at most.
const REQUESTS_AT_ONCE: usize = 32;

/// A connection to a server that is made again when it breaks.
pub struct Link {
    world: World,
    network: Rc<dyn Network>,
    uri: NbdUri,
    options: ClientOptions,
    /// The export as first negotiated; a connection to a different export is refused.
    info: ExportInfo,
    requests: RefCell<PendingRequests>,
    /// Signals the sender task. Tasks hold this `Notify`, never the `Link`, so that it can be dropped.
    wanted: Rc<Notify>,
    /// Signals that the connection is unusable; held like `wanted`.
    broken: Rc<Notify>,
    is_up: Cell<bool>,
    /// The last reason for the connection being down.
    trouble: RefCell<String>,
    breaks: Cell<u64>,
}

impl Link {
    /// Connects. The connection is then maintained until the `Link` is dropped.
    pub async fn connect(
        world: &World,
        network: Rc<dyn Network>,
        uri: NbdUri,
        options: ClientOptions,
    ) -> IoResult<Rc<Self>> {
        let (stream, info) = connect(world, &network, &uri, &options).await?;
        let link = Rc::new(Self {
            world: world.clone(),
            network,
            uri,
            options,
            info,
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

    pub fn info(&self) -> ExportInfo {
        self.info
    }

    pub fn breaks(&self) -> u64 {
        self.breaks.get()
    }

    /// Sends a request. It runs to its end even if the future is dropped.
    pub fn ask(
        &self,
        (flags, command, offset, length): (u16, RequestType, u64, u32),
        payload: Payload,
    ) -> impl Future<Output = IoResult<ReplyContent>> + 'static {
        let request = Request { flags, command, cookie: 0, offset, length };
        let deadline = self.world.now() + self.options.answer_max;
        let told = self.requests.borrow_mut().add(request, payload, deadline);
        self.wanted.notify_one();
        async move {
            let closed = || IoError::new(IoErrorKind::Disconnected, "the client was closed");
            told.await.unwrap_or_else(|_| Err(closed()))
        }
    }

    pub fn check_flush(&self) -> IoResult<()> {
        self.requests.borrow_mut().check_flush()
    }
}

async fn connect(
    world: &World,
    network: &Rc<dyn Network>,
    uri: &NbdUri,
    options: &ClientOptions,
) -> IoResult<(Stream, ExportInfo)> {
    let tls = options.tls.as_ref().filter(|_| uri.tls.is_some());
    if uri.tls.is_some() && tls.is_none() {
        let story = format!("{uri}: no authority's certificate given");
        return Err(IoError::new(IoErrorKind::PermissionDenied, story));
    }
    let connecting = async {
        let stream = network.connect(&uri.address).await?;
        let (info, stream) = agree(world, stream, &uri.export, tls).await.map_err(|error| {
            let kind = match error {
                HandshakeError::Broken(_) => IoErrorKind::Disconnected,
                HandshakeError::Tls(_) => IoErrorKind::PermissionDenied,
                HandshakeError::Protocol(_) => IoErrorKind::WrongType,
                HandshakeError::Refused(_) => IoErrorKind::NotFound,
            };
            IoError::new(kind, format!("{uri}: {error}"))
        })?;
        Ok((stream, info))
    };
    let connected = with_deadline(world.sleep(options.connect_max), connecting).await;
    connected.unwrap_or_else(|| {
        let story = format!("{uri}: no answer within {} s", options.connect_max.as_secs());
        Err(IoError::new(IoErrorKind::Disconnected, story))
    })
}

/// Uses `stream` until it breaks, then a new one, until the `Link` is dropped.
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

/// The next connection; `None` once the `Link` is dropped.
async fn reconnect(link: &Weak<Link>) -> Option<Stream> {
    let mut pause = PAUSES.0;
    {
        let link = link.upgrade()?;
        link.is_up.set(false);
        link.breaks.set(link.breaks.get() + 1);
        link.requests.borrow_mut().begin_again();
    }
    loop {
        let (world, network, uri, options, info) = {
            let link = link.upgrade()?;
            (link.world.clone(), Rc::clone(&link.network), link.uri.clone(), link.options.clone(), link.info)
        };
        let problem = match connect(&world, &network, &uri, &options).await {
            Ok((stream, same)) if same == info => {
                link.upgrade()?.is_up.set(true);
                return Some(stream);
            }
            Ok(_) => format!("{uri}: the export has changed"),
            Err(error) => error.to_string(),
        };
        *link.upgrade()?.trouble.borrow_mut() = problem;
        world.sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

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
            let bye = Request { flags: 0, command: RequestType::Disconnect, cookie: 0, offset: 0, length: 0 };
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
        let length = ReplyHead::bytes_of(magic).ok_or_else(|| nonsense("bad reply magic"))?;
        reader.read_exact(&mut bytes[4..length]).await?;
        let head = ReplyHead::read(&bytes[..length]).expect("magic and length were checked");
        let Some(link) = link.upgrade() else { return Ok(()) };
        match head {
            ReplyHead::Simple { cookie, result } => {
                let reads = request_of(&link, cookie).filter(|request| request.command == RequestType::Read);
                match (result, reads) {
                    (Err(code), _) => link.requests.borrow_mut().refused(cookie, code, String::new()),
                    (Ok(()), Some(request)) => {
                        take_data(&link, &mut reader, cookie, (0, request.length)).await?;
                    }
                    (Ok(()), None) => {}
                }
                link.requests.borrow_mut().done(cookie);
            }
            ReplyHead::Chunk { cookie, is_done, kind, length } => {
                if length > PAYLOAD_BYTES_MAX + 4096 {
                    return Err(nonsense("chunk too long"));
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
            return nonsense("data chunk without an offset");
        }
        let offset = reader.read_u64().await?;
        let start = request_of(link, cookie).map(|request| offset.wrapping_sub(request.offset));
        return take_data(link, reader, cookie, (start.unwrap_or(0), length - 8)).await;
    }
    let mut data = vec![0; length as usize];
    reader.read_exact(&mut data).await?;
    let mut reader = ByteReader(&data);
    let mut requests = link.requests.borrow_mut();
    match kind {
        kind if kind & chunk::IS_ERROR != 0 => {
            let code = reader.u32().map_or(ErrorCode::Io, ErrorCode::of);
            let length = reader.u16().unwrap_or(0);
            let story = reader.bytes(length.into()).map(String::from_utf8_lossy).unwrap_or_default();
            requests.refused(cookie, code, story.into_owned());
        }
        chunk::BLOCK_STATUS => {
            let _context = reader.u32();
            if let Some(pending) = requests.of(cookie) {
                let next = || Some((reader.u32()?, reader.u32()?));
                pending.answer.extents.extend(std::iter::from_fn(next));
            }
        }
        chunk::OFFSET_HOLE => {
            // Ranges without a data chunk are zero already.
            if let Some(pending) = requests.of(cookie) {
                let length = pending.request.length as usize;
                pending.answer.data.get_or_insert_with(|| Buffer::zeroed(length));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Receives `length` bytes of a read, from byte `start` of the request.
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
        // The request has expired.
        tokio::io::copy(&mut reader.take(length.into()), &mut tokio::io::sink()).await?;
        return Ok(());
    };
    let end = start.checked_add(length.into()).filter(|&end| end <= data.len() as u64);
    let Some(end) = end else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "data chunk outside the request"));
    };
    reader.read_exact(&mut data[start as usize..end as usize]).await?;
    if let Some(pending) = link.requests.borrow_mut().of(cookie) {
        pending.answer.data = Some(data);
    }
    Ok(())
}

/// Fails requests that have expired and drops the connection.
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
        // The sender task disconnects; the receiver stops waiting.
        self.wanted.notify_one();
        self.broken.notify_one();
    }
}

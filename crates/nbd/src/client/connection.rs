//! A client's session with a server: requests over a [`Reconnecting`] connection.

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
    cell::{OnceCell, RefCell},
    io::{self, IoSlice},
    rc::Rc,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Notify,
};
use world::{
    Address, Buffer, IoError, IoErrorKind, IoResult, Moment, Network, Stream, World,
    network::{
        address_ring::AddressRing,
        reconnecting::{ConnectFailure, Protocol, Reader, Reconnecting, Writer},
        write_slices,
    },
    payload::Payload,
};

/// Requests sent in one system call at most.
const REQUESTS_AT_ONCE: usize = 32;

/// The requests of a client and its sessions with one export.
pub struct ExportSession {
    world: World,
    network: Rc<dyn Network>,
    uri: NbdUri,
    addresses: AddressRing,
    options: ClientOptions,
    /// The export as first negotiated; a connection to a different export is refused.
    info: OnceCell<ExportInfo>,
    requests: RefCell<PendingRequests>,
    wake: Notify,
}

impl ExportSession {
    /// Connects and negotiates the export.
    pub async fn connect(
        world: &World,
        network: Rc<dyn Network>,
        uri: NbdUri,
        options: ClientOptions,
    ) -> IoResult<Reconnecting<Self>> {
        let session = Self {
            world: world.clone(),
            network,
            addresses: AddressRing::new(&uri.address, &uri.others),
            uri,
            options,
            info: OnceCell::new(),
            requests: RefCell::default(),
            wake: Notify::new(),
        };
        Reconnecting::connect(world, session).await
    }

    pub fn info(&self) -> ExportInfo {
        *self.info.get().expect("the export is negotiated before connect returns")
    }

    /// Sends a request. It runs to its end even if the future is dropped.
    pub fn send_request(
        &self,
        (flags, command, offset, length): (u16, RequestType, u64, u32),
        payload: Payload,
    ) -> impl Future<Output = IoResult<ReplyContent>> + 'static {
        let request = Request { flags, command, cookie: 0, offset, length };
        let deadline = self.world.now() + self.options.answer_max;
        let told = self.requests.borrow_mut().add(request, payload, deadline);
        self.wake.notify_one();
        async move {
            let closed = || IoError::new(IoErrorKind::Disconnected, "the client was closed");
            told.await.unwrap_or_else(|_| Err(closed()))
        }
    }

    pub fn check_flush(&self) -> IoResult<()> {
        self.requests.borrow_mut().check_flush()
    }

    async fn negotiate(&self, address: &Address) -> IoResult<(Stream, ExportInfo)> {
        let Self { world, network, uri, options, .. } = self;
        let tls = options.tls.as_ref().filter(|_| uri.tls.is_some());
        if uri.tls.is_some() && tls.is_none() {
            let story = format!("{uri}: no authority's certificate given");
            return Err(IoError::new(IoErrorKind::PermissionDenied, story));
        }
        let stream = network.connect(address).await?;
        let (info, stream) = agree(world, stream, &uri.export, tls).await.map_err(|error| {
            let kind = match error {
                HandshakeError::Broken(_) => IoErrorKind::Disconnected,
                HandshakeError::Tls(_) => IoErrorKind::PermissionDenied,
                HandshakeError::Protocol(_) => IoErrorKind::WrongType,
                HandshakeError::Refused(_) => IoErrorKind::NotFound,
            };
            IoError::new(kind, format!("{uri}: {error}"))
        })?;
        if *self.info.get_or_init(|| info) != info {
            return Err(IoError::new(IoErrorKind::NotFound, format!("{uri}: the export has changed")));
        }
        Ok((stream, info))
    }

    fn request_of(&self, cookie: u64) -> Option<Request> {
        self.requests.borrow_mut().of(cookie).map(|pending| pending.request)
    }

    /// Receives one reply, or one chunk of a structured reply.
    async fn receive_reply(&self, reader: &mut Reader) -> io::Result<()> {
        let mut bytes = [0; ReplyHead::CHUNK_BYTES];
        reader.read_exact(&mut bytes[..4]).await?;
        let magic = u32::from_be_bytes(bytes[..4].try_into().expect("four bytes"));
        let length = ReplyHead::bytes_of(magic).ok_or_else(|| malformed("bad reply magic"))?;
        reader.read_exact(&mut bytes[4..length]).await?;
        match ReplyHead::read(&bytes[..length]).expect("magic and length were checked") {
            ReplyHead::Simple { cookie, result } => {
                let reads = self.request_of(cookie).filter(|request| request.command == RequestType::Read);
                match (result, reads) {
                    (Err(code), _) => self.requests.borrow_mut().refused(cookie, code, String::new()),
                    (Ok(()), Some(request)) => {
                        self.receive_data(reader, cookie, 0, request.length).await?;
                    }
                    (Ok(()), None) => {}
                }
                self.requests.borrow_mut().done(cookie);
            }
            ReplyHead::Chunk { cookie, is_done, kind, length } => {
                if length > PAYLOAD_BYTES_MAX + 4096 {
                    return Err(malformed("chunk too long"));
                }
                self.receive_chunk(reader, cookie, kind, length).await?;
                if is_done {
                    self.requests.borrow_mut().done(cookie);
                }
            }
        }
        Ok(())
    }

    async fn receive_chunk(
        &self,
        reader: &mut Reader,
        cookie: u64,
        kind: u16,
        length: u32,
    ) -> io::Result<()> {
        if kind == chunk::OFFSET_DATA {
            if length < 8 {
                return Err(malformed("data chunk without an offset"));
            }
            let offset = reader.read_u64().await?;
            let start = self.request_of(cookie).map(|request| offset.wrapping_sub(request.offset));
            return self.receive_data(reader, cookie, start.unwrap_or(0), length - 8).await;
        }
        let mut data = vec![0; length as usize];
        reader.read_exact(&mut data).await?;
        let mut fields = ByteReader(&data);
        let mut requests = self.requests.borrow_mut();
        match kind {
            kind if kind & chunk::IS_ERROR != 0 => {
                let code = fields.u32().map_or(ErrorCode::Io, ErrorCode::of);
                let length = fields.u16().unwrap_or(0);
                let message = fields.bytes(length.into()).map(String::from_utf8_lossy).unwrap_or_default();
                requests.refused(cookie, code, message.into_owned());
            }
            chunk::BLOCK_STATUS => {
                let _context = fields.u32();
                if let Some(pending) = requests.of(cookie) {
                    let next = || Some((fields.u32()?, fields.u32()?));
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
    async fn receive_data(
        &self,
        reader: &mut Reader,
        cookie: u64,
        start: u64,
        length: u32,
    ) -> io::Result<()> {
        let taken = self.requests.borrow_mut().of(cookie).map(|pending| {
            let length = pending.request.length as usize;
            pending.answer.data.take().unwrap_or_else(|| Buffer::zeroed(length))
        });
        let Some(mut data) = taken else {
            // The request has expired.
            tokio::io::copy(&mut reader.take(length.into()), &mut tokio::io::sink()).await?;
            return Ok(());
        };
        let end = start.checked_add(length.into()).filter(|&end| end <= data.len() as u64);
        let end = end.ok_or_else(|| malformed("data chunk outside the request"))?;
        reader.read_exact(&mut data[start as usize..end as usize]).await?;
        if let Some(pending) = self.requests.borrow_mut().of(cookie) {
            pending.answer.data = Some(data);
        }
        Ok(())
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

impl Protocol for ExportSession {
    type Terms = ExportInfo;
    const PEER: &'static str = "the server";
    const CHECK_INTERVAL: Duration = Duration::from_millis(500);
    const FIRST_DELAY: Duration = Duration::ZERO;

    fn name(&self) -> String {
        self.uri.to_string()
    }

    fn connect_max(&self) -> Duration {
        self.options.connect_max
    }

    fn answer_max(&self) -> Duration {
        self.options.answer_max
    }

    async fn connect(&self) -> Result<(Stream, ExportInfo), ConnectFailure> {
        let negotiate = async |address: &Address| {
            let negotiated = self.negotiate(address).await;
            negotiated.map_err(|error| ConnectFailure { error, is_retryable: false })
        };
        self.addresses.connect(&self.world, self.options.connect_max, negotiate).await
    }

    fn begin(&self, _: &ExportInfo) {}

    /// The handshake has verified the export.
    async fn open(&self) -> IoResult<()> {
        self.addresses.opened();
        Ok(())
    }

    fn wake(&self) -> &Notify {
        &self.wake
    }

    async fn send(&self, writer: &mut Writer, _: &ExportInfo) -> io::Result<bool> {
        let batch: Vec<(Request, Payload)> = {
            let mut requests = self.requests.borrow_mut();
            std::iter::from_fn(|| requests.next_to_send()).take(REQUESTS_AT_ONCE).collect()
        };
        if batch.is_empty() {
            return Ok(false);
        }
        let heads: Vec<_> = batch.iter().map(|(request, _)| request.write()).collect();
        let mut slices = Vec::with_capacity(2 * batch.len());
        for (head, (_, payload)) in heads.iter().zip(&batch) {
            slices.push(IoSlice::new(head));
            slices.extend(payload.iter().map(|(buffer, range)| IoSlice::new(&buffer[range.clone()])));
        }
        write_slices(writer, &mut slices).await?;
        Ok(true)
    }

    async fn receive(&self, reader: &mut Reader, _: &ExportInfo) -> Result<(), String> {
        self.receive_reply(reader).await.map_err(|error| error.to_string())
    }

    async fn say_goodbye(&self, writer: &mut Writer, _: &ExportInfo) -> io::Result<()> {
        let goodbye = Request { flags: 0, command: RequestType::Disconnect, cookie: 0, offset: 0, length: 0 };
        writer.write_all(&goodbye.write()).await?;
        writer.shutdown().await
    }

    fn lost(&self) {
        self.requests.borrow_mut().begin_again();
    }

    fn check(&self, now: Moment, reason: &str) -> bool {
        self.requests.borrow_mut().give_up(now, reason)
    }

    fn close(&self) {
        self.requests.borrow_mut().close();
    }
}

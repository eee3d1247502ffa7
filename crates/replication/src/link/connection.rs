//! One connection of a session: frames in and out, and its watch.

use super::{
    ConnectionNumber, LineBytes,
    alive_watch::{AliveWatch, RoundTrips},
    packing::{BlockPacker, LineFrame, PACKED_HEAD_BYTES, PACKED_VERSION, packed_bytes, unpack},
    session::SessionCore,
};
use crate::frame::{EncodedFrame, Frame, FrameBody, FrameError, FrameFault, FrameHeader, HEADER_BYTES};
use array::format::BLOCK_BYTES;
use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    io::{self, IoSlice},
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    task::Poll,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split},
    sync::Notify,
};
use world::{Buffer, Stream, network::receiver::Receiver};

/// Time for the other side to read why a session ended.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

pub(super) type LinkReader = Receiver<ReadHalf<Stream>>;
pub(super) type LinkWriter = WriteHalf<Stream>;

/// Both halves of a stream.
pub(super) fn halves(stream: Stream) -> (LinkReader, LinkWriter) {
    let (reader, writer) = split(stream);
    (Receiver::new(reader), writer)
}

/// A connection that *hello* has opened.
pub(super) struct ActiveConnection {
    pub number: ConnectionNumber,
    /// Among the connections of its session.
    pub index: u16,
    pub address: String,
    pub watch: RefCell<AliveWatch>,
    /// Frames that were sent.
    pub sent: Cell<LineBytes>,
    /// There may be something to send.
    pub wake: Notify,
    /// Another connection has taken its place.
    pub replaced: Notify,
}

impl ActiveConnection {
    pub fn round_trips(&self) -> RoundTrips {
        self.watch.borrow().round_trips()
    }

    fn count(&self, plain: usize, on_line: usize) {
        let mut sent = self.sent.get();
        sent.plain += plain as u64;
        sent.on_line += on_line as u64;
        self.sent.set(sent);
    }
}

/// Reason for which nothing more can be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadFailure {
    #[error("the other side closed the connection")]
    Closed,
    #[error("{0}")]
    Broken(io::Error),
    #[error("a frame of it breaks a rule: {0}")]
    Frame(#[from] FrameError),
}

/// Fills `into`. `moved` is called whenever bytes have arrived.
async fn fill(
    reader: &mut (impl AsyncRead + Unpin),
    into: &mut [u8],
    moved: &impl Fn(),
) -> Result<(), ReadFailure> {
    let mut filled = 0;
    while filled < into.len() {
        match reader.read(&mut into[filled..]).await {
            Ok(0) => return Err(ReadFailure::Closed),
            Ok(count) => filled += count,
            Err(error) => return Err(ReadFailure::Broken(error)),
        }
        moved();
    }
    Ok(())
}

/// A frame that has arrived.
pub(super) struct ArrivedFrame {
    pub frame: Frame,
    /// Bytes of it, of which the line brings fewer if blocks were packed.
    pub bytes: usize,
    pub is_packed: bool,
}

/// The next frame, which has not more than `bytes_max` bytes.
pub(super) async fn read_frame(
    reader: &mut (impl AsyncRead + Unpin),
    bytes_max: usize,
    moved: &impl Fn(),
) -> Result<ArrivedFrame, ReadFailure> {
    let mut head = [0; HEADER_BYTES];
    fill(reader, &mut head, moved).await?;
    let header = FrameHeader::decode(&head)?;
    let bytes = HEADER_BYTES + header.body_bytes + header.blocks * BLOCK_BYTES;
    if bytes > bytes_max {
        return Err(FrameError { at: 20, fault: FrameFault::TooLong }.into());
    }
    let mut body = vec![0; header.body_bytes];
    fill(reader, &mut body, moved).await?;
    let blocks = match header.is_packed {
        true => read_packed(reader, header.blocks, moved).await?,
        false => read_blocks(reader, header.blocks, moved).await?,
    };
    let frame = Frame::decode(&header, &body, blocks)?;
    Ok(ArrivedFrame { frame, bytes, is_packed: header.is_packed })
}

async fn read_blocks(
    reader: &mut (impl AsyncRead + Unpin),
    count: usize,
    moved: &impl Fn(),
) -> Result<Vec<Arc<Buffer>>, ReadFailure> {
    let mut blocks = Vec::with_capacity(count);
    for _ in 0..count {
        let mut block = Buffer::zeroed(BLOCK_BYTES);
        fill(reader, &mut block, moved).await?;
        blocks.push(Arc::new(block));
    }
    Ok(blocks)
}

async fn read_packed(
    reader: &mut (impl AsyncRead + Unpin),
    count: usize,
    moved: &impl Fn(),
) -> Result<Vec<Arc<Buffer>>, ReadFailure> {
    let mut head = [0; PACKED_HEAD_BYTES];
    fill(reader, &mut head, moved).await?;
    let mut packed = vec![0; packed_bytes(head, count)?];
    fill(reader, &mut packed, moved).await?;
    Ok(unpack(&packed, count)?)
}

/// Writes a frame as it is. `moved` is called when a write goes on that the other side had held up.
pub(super) async fn write_frame(
    writer: &mut (impl AsyncWrite + Unpin),
    frame: &EncodedFrame,
    moved: &impl Fn(),
) -> io::Result<()> {
    write_line_frame(writer, &LineFrame::Plain(frame), moved).await
}

async fn write_line_frame(
    writer: &mut (impl AsyncWrite + Unpin),
    frame: &LineFrame<'_>,
    moved: &impl Fn(),
) -> io::Result<()> {
    let mut all = match frame {
        LineFrame::Plain(EncodedFrame { head, blocks }) => {
            let blocks = blocks.iter().map(|block| IoSlice::new(block));
            [IoSlice::new(head)].into_iter().chain(blocks).collect()
        }
        LineFrame::Packed { head, packed } => vec![IoSlice::new(head), IoSlice::new(packed)],
    };
    let mut slices = &mut all[..];
    while !slices.is_empty() {
        let mut was_blocked = false;
        let count = poll_fn(|context| {
            let written = Pin::new(&mut *writer).poll_write_vectored(context, slices);
            was_blocked |= written.is_pending();
            written
        });
        let count = count.await?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        if was_blocked {
            moved();
        }
        IoSlice::advance_slices(&mut slices, count);
    }
    Ok(())
}

/// Serves a connection until it is lost, or its session has ended. Returns the reason.
pub(super) async fn serve(
    core: &Rc<SessionCore>,
    connection: &Rc<ActiveConnection>,
    (mut reader, mut writer): (LinkReader, LinkWriter),
) -> String {
    let reading = pin!(read_all(core, connection, &mut reader));
    let writing = pin!(write_all(core, connection, &mut writer));
    let watching = pin!(watch(core, connection));
    let replaced = pin!(async {
        connection.replaced.notified().await;
        "another connection has taken its place".to_owned()
    });
    first_of([reading, writing, watching, replaced]).await
}

/// The result of the future that completes first.
async fn first_of<T>(mut futures: [Pin<&mut dyn Future<Output = T>>; 4]) -> T {
    poll_fn(|context| {
        let mut ready = futures.iter_mut().filter_map(|future| match future.as_mut().poll(context) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        });
        ready.next().map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

async fn read_all(core: &Rc<SessionCore>, connection: &ActiveConnection, reader: &mut LinkReader) -> String {
    let moved = || connection.watch.borrow_mut().moved(core.world.now());
    loop {
        let ArrivedFrame { frame, bytes, is_packed } = match read_frame(reader, usize::MAX, &moved).await {
            Ok(read) => read,
            Err(failure) => return failure.to_string(),
        };
        if is_packed && core.version < PACKED_VERSION {
            let fault = FrameError { at: 6, fault: FrameFault::Packed };
            return ReadFailure::Frame(fault).to_string();
        }
        if let FrameBody::Alive(alive) = frame.body {
            connection.watch.borrow_mut().receive(alive, core.world.now());
            connection.wake.notify_one();
        } else {
            core.receive(frame, bytes);
        }
    }
}

async fn write_all(core: &Rc<SessionCore>, connection: &ActiveConnection, writer: &mut LinkWriter) -> String {
    let written = write_frames(core, connection, writer).await;
    written.err().map_or_else(|| "the session has ended".to_owned(), |error| error.to_string())
}

/// Ends well once the session has ended and the other side was sent the reason.
async fn write_frames(
    core: &Rc<SessionCore>,
    connection: &ActiveConnection,
    writer: &mut LinkWriter,
) -> io::Result<()> {
    let moved = || connection.watch.borrow_mut().moved(core.world.now());
    let mut packer = BlockPacker::new(core.version);
    let mut is_idle = true;
    loop {
        if core.has_ended() {
            if let Some(refusal) = core.farewell() {
                let frame = Frame { channel: 0, sequence: 0, body: FrameBody::Refusal(refusal) };
                write_frame(writer, &frame.encode(), &moved).await?;
            }
            return writer.shutdown().await;
        }
        let alive = connection.watch.borrow_mut().next(core.world.now(), is_idle);
        is_idle = false;
        if let Some(alive) = alive {
            let frame = Frame { channel: 0, sequence: 0, body: FrameBody::Alive(alive) };
            write_frame(writer, &frame.encode(), &moved).await?;
            continue;
        }
        let next = core.table.borrow_mut().next(connection.number);
        match next {
            Some(frame) => {
                let line_frame = packer.pack(&frame);
                let begun = core.world.now();
                write_line_frame(writer, &line_frame, &moved).await?;
                packer.sent(line_frame.bytes(), core.world.now().since(begun));
                connection.count(frame.bytes(), line_frame.bytes());
            }
            None => {
                writer.flush().await?;
                connection.wake.notified().await;
                is_idle = true;
            }
        }
    }
}

/// Ends when the connection is silent for too long.
async fn watch(core: &Rc<SessionCore>, connection: &ActiveConnection) -> String {
    let interval = core.settings.alive_interval.min(core.settings.silence_max / 4);
    loop {
        core.world.sleep(interval).await;
        if core.has_ended() {
            core.world.sleep(FAREWELL_MAX).await;
            return "the session has ended".to_owned();
        }
        if let Some(silence) = connection.watch.borrow().silence(core.world.now()) {
            return format!("no answer for {:.1} s", silence.as_secs_f64());
        }
        connection.wake.notify_one();
    }
}

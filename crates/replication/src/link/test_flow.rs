//! Data of a test of the line: sent as fast as the connection takes it, and counted as it arrives.

use super::connection::{LinkReader, LinkWriter, read_frame, write_frame};
use crate::frame::{
    Frame, FrameBody, HEADER_BYTES, TEST_DATA_BYTES_MAX, TestCountFrame, TestDataFrame, TestOrderFrame,
};
use futures_util::future::{Either, select};
use std::{
    cell::Cell,
    io,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use world::{World, with_deadline};

/// Bytes that one connection of a test sends at most: half a minute at 17 Gb/s.
const BYTES_MAX: u64 = 64 << 30;
/// Bytes of a frame in a test, at most: data with its header and its length.
pub(super) const TEST_FRAME_BYTES_MAX: usize = HEADER_BYTES + 4 + TEST_DATA_BYTES_MAX;
/// The first data of a step arrive within this time, or the step has failed.
const FIRST_WITHIN: Duration = Duration::from_secs(10);

/// Counts what is read.
struct CountingReader<'r> {
    inner: &'r mut LinkReader,
    arrived: &'r Cell<u64>,
}

impl AsyncRead for CountingReader<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut *self.inner).poll_read(context, into);
        self.arrived.set(self.arrived.get() + (into.filled().len() - before) as u64);
        read
    }
}

/// Sends data for a time, or until the connection breaks: the receiver closes it when it has counted.
pub(super) async fn send_data(world: &World, writer: &mut LinkWriter, time: Duration) {
    let mut bytes = vec![0; TEST_DATA_BYTES_MAX];
    world.random("link test").fill(&mut bytes);
    let body = FrameBody::TestData(TestDataFrame { bytes });
    let frame = Frame { channel: 0, sequence: 0, body }.encode();
    let sending = async {
        let mut sent = 0;
        while sent < BYTES_MAX && write_frame(writer, &frame, &|| ()).await.is_ok() {
            sent += frame.bytes() as u64;
            // A fast line is never full, and others are on this thread.
            world.yield_now().await;
        }
        // The last ones may wait in a buffer.
        let _ = writer.flush().await;
    };
    with_deadline(world.sleep(time), sending).await;
}

/// Counts the data of a step, from the first that arrive on. The error is the reason for which the step has no count.
pub(super) async fn count_data(
    world: &World,
    reader: &mut LinkReader,
    order: &TestOrderFrame,
) -> Result<TestCountFrame, String> {
    let arrived = Cell::new(0);
    let mut reader = CountingReader { inner: reader, arrived: &arrived };
    let first = with_deadline(world.sleep(FIRST_WITHIN), next_data(&mut reader)).await;
    first.unwrap_or_else(|| Err("no data came".to_owned()))?;
    let begun = world.now();
    let (skipped, ends) = order.counted();
    let timing = async {
        world.sleep_until(begun + skipped).await;
        let (from, before) = (world.now(), arrived.get());
        world.sleep_until(begun + ends).await;
        let nanoseconds = world.now().since(from).as_nanos() as u64;
        TestCountFrame { bytes: arrived.get() - before, nanoseconds }
    };
    let reading = async {
        loop {
            if let Err(reason) = next_data(&mut reader).await {
                return reason;
            }
            // The time has to be looked at, also if data are always there.
            world.yield_now().await;
        }
    };
    match select(pin!(timing), pin!(reading)).await {
        Either::Left((count, _)) => Ok(count),
        Either::Right((reason, _)) => Err(reason),
    }
}

async fn next_data(reader: &mut CountingReader<'_>) -> Result<(), String> {
    let arrived = read_frame(reader, TEST_FRAME_BYTES_MAX, &|| ()).await;
    match arrived.map_err(|failure| failure.to_string())?.frame.body {
        FrameBody::TestData(_) => Ok(()),
        FrameBody::Refusal(refused) => Err(refused.text),
        other => Err(format!("a frame {:?} came among data", other.kind())),
    }
}

//! The side that accepts a test of the line. Invariants:
//!
//! 1. One test is under way at a time, with at most so many connections, and it ends within its time.
//! 2. A test is of no session: it has no channel, and no frame of a session is read on its connections.

use super::{
    connection::{LinkReader, LinkWriter, ReadFailure, read_frame},
    hello, refusal,
    test_flow::{TEST_FRAME_BYTES_MAX, count_data, send_data},
};
use crate::frame::{AliveFrame, FrameBody, LinkTestFrame, RefusalCode, RefusalFrame, TestOrderFrame};
use array::format::SiteId;
use std::{cell::Cell, rc::Rc, time::Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{Moment, World, with_deadline};

/// A test ends within this time, from its first connection on.
pub(super) const TEST_TIME_MAX: Duration = Duration::from_secs(180);
/// Time for which data are sent beyond the end of the count, which begins when the first of them arrive.
const COUNT_LATER_MAX: Duration = Duration::from_secs(12);
/// Time for the other side to read the count. What it still sends is thrown away meanwhile.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// The test that is under way.
#[derive(Clone, Copy)]
struct RunningTest {
    site: SiteId,
    number: u64,
    connections: usize,
    until: Moment,
}

/// The place for one test.
#[derive(Default)]
pub(super) struct TestSlot(Rc<Cell<Option<RunningTest>>>);

/// A connection of the test that is under way.
pub(super) struct TestPlace {
    running: Rc<Cell<Option<RunningTest>>>,
    until: Moment,
}

impl TestSlot {
    /// Lets a connection into its test, which begins with the first one.
    pub fn enter(&self, said: &LinkTestFrame, now: Moment) -> Result<TestPlace, RefusalFrame> {
        let begun =
            RunningTest { site: said.site, number: said.test, connections: 0, until: now + TEST_TIME_MAX };
        let mut running = self.0.get().unwrap_or(begun);
        if (running.site, running.number) != (said.site, said.test) {
            return Err(refusal(RefusalCode::Busy, "another test of a line is under way"));
        }
        // Those of one step may still be there when those of the next one come; and one measures round trips.
        let connections_max = 2 * usize::from(said.connections) + 2;
        if running.connections >= connections_max {
            return Err(refusal(RefusalCode::Busy, "the test has too many connections"));
        }
        running.connections += 1;
        self.0.set(Some(running));
        Ok(TestPlace { running: Rc::clone(&self.0), until: running.until })
    }
}

impl Drop for TestPlace {
    fn drop(&mut self) {
        let left = self.running.get().map(|test| RunningTest { connections: test.connections - 1, ..test });
        self.running.set(left.filter(|test| test.connections > 0));
    }
}

/// A connection of a test, after its first frames.
pub(super) struct TestConnection {
    pub place: TestPlace,
    pub halves: (LinkReader, LinkWriter),
}

impl TestConnection {
    /// Serves it to its end. The error is a rule that the other side has broken.
    pub async fn serve(self, world: &World) -> Result<(), String> {
        let Self { place, halves: (mut reader, mut writer) } = self;
        let until = place.until;
        let served = async {
            match reply_until_order(&mut reader, &mut writer).await? {
                None => Ok(()),
                Some(order) => run(world, place, &order, (&mut reader, &mut writer)).await,
            }
        };
        with_deadline(world.sleep_until(until), served).await.unwrap_or(Ok(()))
    }
}

/// Replies to *alive* until the order of a step comes; `None` if the connection ends before.
async fn reply_until_order(
    reader: &mut LinkReader,
    writer: &mut LinkWriter,
) -> Result<Option<TestOrderFrame>, String> {
    loop {
        match read_frame(reader, TEST_FRAME_BYTES_MAX, &|| ()).await {
            Ok(arrived) => match arrived.frame.body {
                FrameBody::Alive(AliveFrame { number, is_reply: false }) => {
                    let reply = FrameBody::Alive(AliveFrame { number, is_reply: true });
                    if hello::send(writer, reply).await.is_err() {
                        return Ok(None);
                    }
                }
                FrameBody::TestOrder(order) => return Ok(Some(order)),
                body => return Err(format!("a frame {:?} does not belong into a test", body.kind())),
            },
            Err(ReadFailure::Closed | ReadFailure::Broken(_)) => return Ok(None),
            Err(failure) => return Err(failure.to_string()),
        }
    }
}

/// Does one step.
async fn run(
    world: &World,
    place: TestPlace,
    order: &TestOrderFrame,
    (reader, writer): (&mut LinkReader, &mut LinkWriter),
) -> Result<(), String> {
    if order.is_download {
        send_data(world, writer, order.counted().1 + COUNT_LATER_MAX).await;
        return Ok(());
    }
    let count = count_data(world, reader, order).await?;
    drop(place);
    if hello::send(writer, FrameBody::TestCount(count)).await.is_ok() {
        // A socket that is closed with data in it takes back what was sent last.
        let drained = async {
            let mut bytes = vec![0; TEST_FRAME_BYTES_MAX];
            while reader.read(&mut bytes).await.is_ok_and(|count| count > 0) {
                world.yield_now().await;
            }
        };
        with_deadline(world.sleep(FAREWELL_MAX), drained).await;
    }
    let _ = writer.shutdown().await;
    Ok(())
}

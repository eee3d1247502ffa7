//! The side that tests the line: round trips idle and under load, rates each way, for each address of the peer alone.
//!
//! A path is one address. Its steps go one after the other, each over connections of its own, while one more connection
//! measures round trips. Replication goes on beside, and both share the line.

use super::{
    LinkError, LinkPeer, LinkSettings,
    connection::{LinkReader, LinkWriter},
    dialer::open,
    hello::{self, HelloFailure},
    test_flow::{count_data, send_data},
};
use crate::frame::{
    AliveFrame, CONNECTIONS_MAX, FrameBody, LINK_TEST_VERSION, LinkTestFrame, RefusalCode, TEST_STEP_MAX,
    TestCountFrame, TestOrderFrame,
};
use futures_util::future::{Either, join_all, select, try_join};
use std::{cell::Cell, pin::pin, rc::Rc, time::Duration};
use world::{Address, Moment, Network, World, with_deadline};

/// Pause between two round trips.
const PROBE_PAUSE: Duration = Duration::from_millis(4);
/// A reply that takes longer is not waited for.
const REPLY_MAX: Duration = Duration::from_secs(5);
/// After a step the line is left alone until its queues are empty, at most for this time.
const SETTLE_MAX: Duration = Duration::from_secs(2);
const SETTLED_ROUND_TRIPS: u32 = 4;
/// A test that has ended a moment ago may not be known to have ended.
const BUSY_RETRIES: u32 = 8;
const BUSY_PAUSE: Duration = Duration::from_millis(250);
/// Share of a step that is not counted, in percent.
const SKIPPED_PERCENT: u32 = 30;
/// The shortest step, and the shortest measurement of idle round trips.
const STEP_MIN: Duration = Duration::from_millis(200);

/// Size of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTestSize {
    /// Time of all measurements together, about.
    pub span: Duration,
    /// Connections of the steps with several: 1 to 16.
    pub connections: u16,
}

/// Round trips of small frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTripFigures {
    pub median: Duration,
    /// 99 of 100 took at most this time.
    pub percentile_99: Duration,
    pub count: usize,
}

impl RoundTripFigures {
    /// `None` of none.
    fn of(mut times: Vec<Duration>) -> Option<Self> {
        times.sort_unstable();
        let last = times.len().checked_sub(1)?;
        let at = |percent: usize| times[(times.len() * percent).div_ceil(100).saturating_sub(1).min(last)];
        Some(Self { median: at(50), percentile_99: at(99), count: times.len() })
    }
}

/// Rates in one direction, in bytes a second, TLS and framing included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateFigures {
    /// Of one connection alone.
    pub of_one: u64,
    /// Of all connections together.
    pub of_all: u64,
}

/// Figures of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkPathFigures {
    pub idle: RoundTripFigures,
    /// While all connections send, and while all receive; `None` if no reply came meanwhile.
    pub loaded_sending: Option<RoundTripFigures>,
    pub loaded_receiving: Option<RoundTripFigures>,
    /// To the other site.
    pub sent: RateFigures,
    /// From the other site.
    pub received: RateFigures,
}

/// One address of the other site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathMeasurement {
    pub address: String,
    /// The error is the reason for which it was not measured.
    pub figures: Result<LinkPathFigures, String>,
}

/// Tests the line to a peer, each of its addresses alone.
///
/// # Errors
///
/// The peer refuses: it is not paired, or tests another line.
///
/// # Panics
///
/// If the number of connections is not from 1 to 16, or the peer has no address.
pub async fn test_link(
    world: &World,
    network: Rc<dyn Network>,
    peer: LinkPeer,
    settings: &LinkSettings,
    size: LinkTestSize,
) -> Result<Vec<PathMeasurement>, LinkError> {
    assert!((1..=CONNECTIONS_MAX).contains(&size.connections), "1 to 16 connections");
    assert!(!peer.addresses.is_empty(), "a peer has an address");
    let mut number = [0; 8];
    world.fill_secret(&mut number);
    let first = LinkTestFrame {
        version: LINK_TEST_VERSION,
        site: settings.site,
        test: u64::from_le_bytes(number),
        connections: size.connections,
    };
    let tester = LinkTester { world: world.clone(), network, peer, settings: settings.clone(), first };
    let span = size.span / tester.peer.addresses.len() as u32;
    let mut paths = Vec::new();
    for address in &tester.peer.addresses {
        let figures = match tester.measure(address, span).await {
            Ok(figures) => Ok(figures),
            Err(HelloFailure::Connection(reason)) => Err(reason),
            Err(refused) => return Err(refused.into()),
        };
        paths.push(PathMeasurement { address: address.to_string(), figures });
    }
    Ok(paths)
}

type Halves = (LinkReader, LinkWriter);

struct LinkTester {
    world: World,
    network: Rc<dyn Network>,
    peer: LinkPeer,
    settings: LinkSettings,
    /// The first frame of each connection.
    first: LinkTestFrame,
}

fn failed(reason: impl Into<String>) -> HelloFailure {
    HelloFailure::Connection(reason.into())
}

impl LinkTester {
    /// A connection that is let into the test.
    async fn connect(&self, address: &Address) -> Result<Halves, HelloFailure> {
        let limit = self.world.sleep(self.settings.handshake_max);
        let connected = with_deadline(limit, async {
            let secured = open(&self.world, &self.network, address, &self.settings.security).await?;
            let (mut halves, peer) = (secured.halves, secured.peer);
            let security = &self.settings.security;
            security.check_certificate(peer.as_ref(), self.peer.site).map_err(HelloFailure::Refused)?;
            hello::send(&mut halves.1, FrameBody::LinkTest(self.first)).await?;
            let FrameBody::LinkTest(answer) = hello::receive(&mut halves.0).await? else {
                return Err(failed("the answer to a test is another frame"));
            };
            security.check(peer.as_ref(), answer.site).map_err(HelloFailure::Refused)?;
            if answer.test != self.first.test || self.peer.site.is_some_and(|site| site != answer.site) {
                return Err(failed("the answer to a test is for another one"));
            }
            Ok(halves)
        });
        connected.await.unwrap_or_else(|| Err(failed("no connection in time")))
    }

    /// The first connection of a path.
    async fn begin(&self, address: &Address) -> Result<Halves, HelloFailure> {
        for _ in 0..BUSY_RETRIES {
            match self.connect(address).await {
                Err(HelloFailure::Refused(refused)) if refused.code == RefusalCode::Busy => {
                    self.world.sleep(BUSY_PAUSE).await;
                }
                connected => return connected,
            }
        }
        self.connect(address).await
    }

    async fn measure(&self, address: &Address, span: Duration) -> Result<LinkPathFigures, HelloFailure> {
        let mut prober = Prober { world: self.world.clone(), halves: self.begin(address).await?, number: 0 };
        let all = self.first.connections;
        let steps = if all == 1 { 2 } else { 4 };
        let idle_span = (span / 8).max(STEP_MIN);
        let step = (span.saturating_sub(idle_span) / steps).clamp(STEP_MIN, TEST_STEP_MAX);
        let idle = prober.probe_for(idle_span).await.map_err(failed)?;
        let idle = RoundTripFigures::of(idle).ok_or_else(|| failed("no round trip was measured"))?;
        let mut rates = Vec::new();
        let mut loaded = Vec::new();
        for is_download in [false, true] {
            for connections in [1, all] {
                if connections == 1 && all == 1 && rates.len() % 2 == 1 {
                    // One connection is all of them: the step was done.
                    rates.push(*rates.last().expect("one was pushed"));
                    continue;
                }
                let (rate, round_trips) =
                    self.step(address, (connections, is_download, step), &mut prober).await?;
                rates.push(rate);
                loaded.push((is_download, connections, round_trips));
                prober.settle(idle.median).await.map_err(failed)?;
            }
        }
        let mut loaded_by = |is_download: bool| {
            let is_meant = |(down, connections, _): &&mut (bool, u16, Vec<Duration>)| {
                (*down, *connections) == (is_download, all)
            };
            let found = loaded.iter_mut().find(is_meant);
            found.and_then(|(_, _, times)| RoundTripFigures::of(std::mem::take(times)))
        };
        Ok(LinkPathFigures {
            idle,
            loaded_sending: loaded_by(false),
            loaded_receiving: loaded_by(true),
            sent: RateFigures { of_one: rates[0], of_all: rates[1] },
            received: RateFigures { of_one: rates[2], of_all: rates[3] },
        })
    }

    /// One step: bytes a second of all its connections together, and round trips meanwhile.
    async fn step(
        &self,
        address: &Address,
        (connections, is_download, time): (u16, bool, Duration),
        prober: &mut Prober,
    ) -> Result<(u64, Vec<Duration>), HelloFailure> {
        let opened = join_all((0..connections).map(|_| self.connect(address))).await;
        let opened: Vec<Halves> = opened.into_iter().collect::<Result<_, _>>()?;
        let ends_ms = time.as_millis() as u32;
        let order = TestOrderFrame { is_download, skipped_ms: ends_ms * SKIPPED_PERCENT / 100, ends_ms };
        let is_over = Cell::new(false);
        let moving = async {
            let counts = join_all(opened.into_iter().map(|halves| self.move_data(halves, &order))).await;
            is_over.set(true);
            Ok(counts)
        };
        // The first connections are still finding their rate.
        let counted_from = self.world.now() + order.counted().0;
        let probing = prober.probe_until(&is_over, counted_from);
        let (counts, probed) = try_join(moving, probing).await.map_err(failed)?;
        let mut rate = 0;
        for count in counts {
            let TestCountFrame { bytes, nanoseconds } = count.map_err(failed)?;
            rate += u128::from(bytes) * 1_000_000_000 / u128::from(nanoseconds.max(1));
        }
        Ok((u64::try_from(rate).unwrap_or(u64::MAX), probed))
    }

    /// Sends or receives over one connection until its receiver has counted.
    async fn move_data(
        &self,
        (mut reader, mut writer): Halves,
        order: &TestOrderFrame,
    ) -> Result<TestCountFrame, String> {
        let ordered = hello::send(&mut writer, FrameBody::TestOrder(*order)).await;
        ordered.map_err(|failure| failure.to_string())?;
        if order.is_download {
            return count_data(&self.world, &mut reader, order).await;
        }
        let counted = async {
            match hello::receive(&mut reader).await {
                Ok(FrameBody::TestCount(count)) => Ok(count),
                Ok(body) => Err(format!("a frame {:?} is no count", body.kind())),
                Err(failure) => Err(failure.to_string()),
            }
        };
        let late = order.counted().1 + 2 * REPLY_MAX;
        let sending = async {
            send_data(&self.world, &mut writer, late).await;
            // It has broken, and the other side may have said why.
            self.world.sleep(REPLY_MAX).await;
        };
        match select(pin!(counted), pin!(sending)).await {
            Either::Left((counted, _)) => counted,
            Either::Right(_) => Err("the other side did not count in time".to_owned()),
        }
    }
}

/// Measures round trips, over a connection that does nothing else.
struct Prober {
    world: World,
    halves: Halves,
    number: u64,
}

impl Prober {
    async fn probe(&mut self) -> Result<Duration, String> {
        self.number += 1;
        let (reader, writer) = &mut self.halves;
        let begun = self.world.now();
        let alive = AliveFrame { number: self.number, is_reply: false };
        let answered = async {
            hello::send(writer, FrameBody::Alive(alive)).await?;
            hello::receive(reader).await
        };
        match with_deadline(self.world.sleep(REPLY_MAX), answered).await {
            Some(Ok(FrameBody::Alive(reply))) if reply == (AliveFrame { is_reply: true, ..alive }) => {
                Ok(self.world.now().since(begun))
            }
            Some(Ok(_)) => Err("a small frame was answered by another one".to_owned()),
            Some(Err(failure)) => Err(failure.to_string()),
            None => Err(format!("a small frame had no answer for {} s", REPLY_MAX.as_secs())),
        }
    }

    async fn probe_for(&mut self, span: Duration) -> Result<Vec<Duration>, String> {
        let until = self.world.now() + span;
        let mut times = Vec::new();
        while times.is_empty() || self.world.now() < until {
            times.push(self.probe().await?);
            self.world.sleep(PROBE_PAUSE).await;
        }
        Ok(times)
    }

    /// Probes until a step is over. Those that began before `from` are not among the results.
    async fn probe_until(&mut self, is_over: &Cell<bool>, from: Moment) -> Result<Vec<Duration>, String> {
        let mut times = Vec::new();
        while !is_over.get() {
            let is_counted = self.world.now() >= from;
            let took = self.probe().await?;
            if is_counted {
                times.push(took);
            }
            self.world.sleep(PROBE_PAUSE).await;
        }
        Ok(times)
    }

    /// Waits until round trips are about as short as on the idle line, several in a row: a queue that drains lets some pass.
    async fn settle(&mut self, idle: Duration) -> Result<(), String> {
        let until = self.world.now() + SETTLE_MAX;
        let mut short = 0;
        while short < SETTLED_ROUND_TRIPS && self.world.now() < until {
            let is_short = self.probe().await? <= idle * 3 / 2 + Duration::from_millis(2);
            short = if is_short { short + 1 } else { 0 };
            self.world.sleep(PROBE_PAUSE).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let of = |ms: &[u64]| RoundTripFigures::of(ms.iter().copied().map(Duration::from_millis).collect());
        assert_eq!(of(&[]), None);
        let one = of(&[7]).unwrap();
        assert_eq!((one.median.as_millis(), one.percentile_99.as_millis(), one.count), (7, 7, 1));
        let all: Vec<u64> = (1..=200).rev().collect();
        let all = of(&all).unwrap();
        assert_eq!((all.median.as_millis(), all.percentile_99.as_millis()), (100, 198));
    }
}

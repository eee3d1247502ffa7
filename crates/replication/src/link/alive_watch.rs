//! Watching of one connection by *alive* frames: round trips, and silence. Invariants:
//!
//! 1. At most one *alive* of ours is unanswered.
//! 2. A connection on which bytes still move is not silent, however long a frame takes.

use super::LinkSettings;
use crate::frame::AliveFrame;
use std::time::Duration;
use world::Moment;

/// Replies that wait to be sent at most: a peer that asks faster than it reads gets fewer.
const REPLIES_MAX: usize = 4;

/// An *alive* that was not answered yet.
#[derive(Clone, Copy)]
struct Unanswered {
    number: u64,
    sent_at: Moment,
    /// Nothing else was being sent when it left.
    was_idle: bool,
}

/// Round trips of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTrips {
    /// The shortest of an *alive* that left while nothing else was sent.
    pub idle: Option<Duration>,
    /// Average in which each new one counts an eighth (RFC 6298).
    pub smoothed: Option<Duration>,
}

pub(super) struct AliveWatch {
    interval: Duration,
    silence_max: Duration,
    number_next: u64,
    due_at: Moment,
    unanswered: Option<Unanswered>,
    /// The last moment at which bytes arrived, or at which a blocked write went on.
    moved_at: Moment,
    round_trips: RoundTrips,
    replies: Vec<u64>,
}

impl AliveWatch {
    pub fn new(settings: &LinkSettings, now: Moment) -> Self {
        Self {
            interval: settings.alive_interval,
            silence_max: settings.silence_max,
            number_next: 1,
            due_at: now,
            unanswered: None,
            moved_at: now,
            round_trips: RoundTrips::default(),
            replies: Vec::new(),
        }
    }

    /// Bytes have arrived, or left after they could not.
    pub fn moved(&mut self, now: Moment) {
        self.moved_at = now;
    }

    /// The frame to send next, if one is due.
    pub fn next(&mut self, now: Moment, is_idle: bool) -> Option<AliveFrame> {
        if let Some(number) = self.replies.pop() {
            return Some(AliveFrame { number, is_reply: true });
        }
        if self.unanswered.is_some() || now < self.due_at {
            return None;
        }
        let number = self.number_next;
        self.number_next += 1;
        self.due_at = now + self.interval;
        self.unanswered = Some(Unanswered { number, sent_at: now, was_idle: is_idle });
        Some(AliveFrame { number, is_reply: false })
    }

    pub fn receive(&mut self, alive: AliveFrame, now: Moment) {
        if !alive.is_reply {
            if self.replies.len() < REPLIES_MAX {
                self.replies.push(alive.number);
            }
            return;
        }
        let answered = self.unanswered.take_if(|unanswered| unanswered.number == alive.number);
        if let Some(answered) = answered {
            let round_trip = now.since(answered.sent_at);
            let RoundTrips { idle, smoothed } = &mut self.round_trips;
            if answered.was_idle {
                *idle = Some(idle.map_or(round_trip, |least| least.min(round_trip)));
            }
            *smoothed = Some(smoothed.map_or(round_trip, |before| (before * 7 + round_trip) / 8));
        }
    }

    /// Time for which the connection has been silent, if that is too long.
    pub fn silence(&self, now: Moment) -> Option<Duration> {
        let since = self.unanswered?.sent_at.max(self.moved_at);
        Some(now.since(since)).filter(|silence| *silence >= self.silence_max)
    }

    pub fn round_trips(&self) -> RoundTrips {
        self.round_trips
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkSecurity;
    use array::format::SiteId;

    #[test]
    fn round_trips_are_measured_and_silence_is_noticed() {
        let at = |ms: u64| Moment(ms * 1_000_000);
        let ms = Duration::from_millis;
        let mut watch =
            AliveWatch::new(&LinkSettings::new(SiteId([1; 16]), "test", LinkSecurity::Plain), at(0));
        assert_eq!(watch.next(at(0), true), Some(AliveFrame { number: 1, is_reply: false }));
        assert_eq!(watch.next(at(4000), true), None, "one at a time");
        assert_eq!(watch.silence(at(4999)), None);
        assert_eq!(watch.silence(at(5000)), Some(ms(5000)));
        watch.receive(AliveFrame { number: 7, is_reply: true }, at(5000));
        assert_eq!(watch.round_trips(), RoundTrips::default(), "that was never sent");
        watch.receive(AliveFrame { number: 1, is_reply: true }, at(8));
        assert_eq!(watch.round_trips(), RoundTrips { idle: Some(ms(8)), smoothed: Some(ms(8)) });
        assert_eq!(watch.silence(at(60_000)), None, "nothing is unanswered");
        assert!(watch.next(at(1000), false).is_some());
        watch.receive(AliveFrame { number: 2, is_reply: true }, at(1088));
        assert_eq!(watch.round_trips(), RoundTrips { idle: Some(ms(8)), smoothed: Some(ms(18)) });
        assert!(watch.next(at(2000), false).is_some());
        watch.moved(at(6000));
        assert_eq!(watch.silence(at(10_999)), None, "bytes moved");
        assert_eq!(watch.silence(at(11_000)), Some(ms(5000)));
    }

    #[test]
    fn a_flood_of_alives_gets_few_replies() {
        let mut watch =
            AliveWatch::new(&LinkSettings::new(SiteId([1; 16]), "test", LinkSecurity::Plain), Moment(0));
        (0..1000).for_each(|number| watch.receive(AliveFrame { number, is_reply: false }, Moment(0)));
        let replies = std::iter::from_fn(|| watch.next(Moment(0), true)).filter(|alive| alive.is_reply);
        assert_eq!(replies.count(), REPLIES_MAX);
    }
}

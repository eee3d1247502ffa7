//! Leases: how long a holder may answer, by its own clock.
//!
//! Each party measures a lease by its own monotonic clock. The witness counts from the moment at which it
//! decides. The holder counts from the moment before, at which it sent its request, and stops earlier by the
//! drift allowance: while one clock counts 50 seconds, the other one counts at least 49.
//!
//! ```text
//! holder   sent ─────────── may answer, 49/50 of the lease ──────┤
//! witness        decided ──────────── held, the whole lease ─────────┤ another site may be granted
//! ```
//!
//! Invariants of a [`LeaseGuard`]:
//!
//! 1. It permits an answer only within 49/50 of a lease that the witness granted, counted from the sending of
//!    the request that it granted. Without a grant it permits nothing.
//! 2. A grant of a lower fence than the one before changes nothing.
//! 3. After [`LeaseGuard::give_up`] it permits nothing until a grant of a higher fence: a release that was
//!    not answered may still arrive, and only the next acquisition ends its fence.

use std::{fmt, time::Duration};
use world::Moment;

/// The part of a lease by which its holder stops early: 1/50. Oscillators differ by less than 1/5000; the
/// rest is for clocks that NTP slews.
pub const DRIFT_DIVISOR: u32 = 50;

/// A number that rises with each change of a group's holder. No group has had a holder at 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseFence(pub u64);

impl fmt::Display for LeaseFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Length of a lease in milliseconds: from 500 to 60,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseSpan(u32);

impl LeaseSpan {
    /// 3 s: failover within 5 s, and room for two renewals that are lost.
    pub const DEFAULT: Self = Self(3_000);
    pub const MIN_MS: u32 = 500;
    pub const MAX_MS: u32 = 60_000;

    /// None outside the bounds.
    pub fn from_ms(ms: u32) -> Option<Self> {
        (Self::MIN_MS..=Self::MAX_MS).contains(&ms).then_some(Self(ms))
    }

    pub fn ms(self) -> u32 {
        self.0
    }

    /// The whole lease, as the witness counts it.
    pub fn at_witness(self) -> Duration {
        Duration::from_millis(self.0.into())
    }

    /// The part in which the holder may answer, from the sending of its request.
    pub fn at_holder(self) -> Duration {
        self.at_witness() - self.at_witness() / DRIFT_DIVISOR
    }
}

/// The holder's side of a lease. A process that was paused asks it with the present moment before it answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeaseGuard {
    fence: LeaseFence,
    /// Answers are permitted before this moment.
    until: Option<Moment>,
    /// Grants of the fence count for nothing.
    is_given_up: bool,
}

impl LeaseGuard {
    /// Takes a grant. `sent` was read from the holder's clock before the request was sent.
    pub fn grant(&mut self, sent: Moment, fence: LeaseFence, span: LeaseSpan) {
        if fence < self.fence || (self.is_given_up && fence == self.fence) {
            return;
        }
        (self.fence, self.is_given_up) = (fence, false);
        // An answer that was overtaken by a later one does not shorten the lease.
        self.until = self.until.max(Some(sent + span.at_holder()));
    }

    /// True if the holder may answer its hosts at `now`. Read the clock directly before, not earlier.
    pub fn may_answer(&self, now: Moment) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// The lease that is left at `now`.
    pub fn left(&self, now: Moment) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.since(now))
    }

    /// The highest fence that was granted or given up here; 0 if none was.
    pub fn fence(&self) -> LeaseFence {
        self.fence
    }

    /// Ends the lease here, before a release that names `fence` is sent, or when the witness says that
    /// `fence` is not this site's. A grant of it, or of a lower one, may still be on its way and counts for
    /// nothing.
    pub fn give_up(&mut self, fence: LeaseFence) {
        (self.until, self.is_given_up) = (None, true);
        self.fence = self.fence.max(fence);
    }
}

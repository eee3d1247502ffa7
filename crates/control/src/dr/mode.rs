//! The mode of a DR group, as messages and bodies of the API have it.

use replication::session::{BoundPolicy, ReplicationMode};
use report::Refusal;
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};
use utoipa::ToSchema;
use world::ByteCount;

/// Default of the time for which hosts wait for a lost peer: under Linux's 30 s.
pub const HOLD_MS: u64 = 15_000;
/// Defaults of the bounds of what the peer of an asynchronous group may lack.
pub const BEHIND_MS: u64 = 30_000;
pub const BEHIND_BYTES: u64 = 256 << 20;
/// Default of the interval of passes.
pub const EVERY_MS: u64 = 15 * 60_000;
/// Default of the states that a secondary of a periodic group keeps.
pub const KEEP: u16 = 4;
/// States that it may keep.
const KEEP_MAX: u16 = 64;
/// Bounds of the interval of passes.
const EVERY_MS_BOUNDS: std::ops::RangeInclusive<u64> = 1_000..=7 * 24 * 3_600_000;
/// The longest hold: hosts give up after it.
const HOLD_MS_MAX: u64 = 25_000;

/// The rule for answers to hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum DrMode {
    /// Hosts are answered once both sites have a write.
    Sync {
        /// Time for which hosts wait for a lost peer, in milliseconds.
        #[serde(default = "default_hold_ms")]
        #[schema(minimum = 1, maximum = 25000)]
        hold_ms: u64,
        /// Then writes are refused; otherwise the group goes on alone.
        #[serde(default)]
        failsafe: bool,
    },
    /// Hosts are answered at once; the other site is behind within bounds.
    Async {
        #[schema(minimum = 1)]
        behind_ms: u64,
        #[schema(minimum = 1)]
        behind_bytes: u64,
        /// Hosts wait while a bound is passed; otherwise the group says that it is behind.
        #[serde(default)]
        push_back: bool,
    },
    /// Hosts are answered at once; the other site gets what changed by the clock, and keeps the last states.
    Periodic {
        /// Interval of the passes.
        #[schema(minimum = 1000)]
        every_ms: u64,
        /// States that the other site keeps, as snapshots.
        #[serde(default = "default_keep")]
        #[schema(minimum = 1, maximum = 64)]
        keep: u16,
    },
}

fn default_keep() -> u16 {
    KEEP
}

fn default_hold_ms() -> u64 {
    HOLD_MS
}

impl DrMode {
    /// The mode, if its numbers make sense.
    ///
    /// # Errors
    ///
    /// A bound is 0, or the hold is longer than hosts wait.
    pub fn checked(&self) -> Result<ReplicationMode, Refusal> {
        match *self {
            Self::Sync { hold_ms, failsafe } if (1..=HOLD_MS_MAX).contains(&hold_ms) => {
                Ok(ReplicationMode::Sync { hold: Duration::from_millis(hold_ms), is_failsafe: failsafe })
            }
            Self::Sync { .. } => {
                let problem =
                    format!("⟨hold⟩ is from 1 to {HOLD_MS_MAX} ms: Linux gives a disk up after 30 s");
                Err(Refusal::new(problem, ""))
            }
            Self::Async { behind_ms, behind_bytes, push_back } if behind_ms > 0 && behind_bytes > 0 => {
                Ok(ReplicationMode::Async {
                    behind_max: Duration::from_millis(behind_ms),
                    behind_bytes_max: behind_bytes,
                    over: if push_back { BoundPolicy::PushBack } else { BoundPolicy::Behind },
                })
            }
            Self::Async { .. } => {
                Err(Refusal::new("⟨behind⟩ has a time and a size above 0", "as 30s,256MiB"))
            }
            Self::Periodic { every_ms, .. } if !EVERY_MS_BOUNDS.contains(&every_ms) => {
                Err(Refusal::new("⟨every⟩ is from 1 s to 7 d", "as 15min"))
            }
            Self::Periodic { keep, .. } if !(1..=KEEP_MAX).contains(&keep) => {
                Err(Refusal::new(format!("⟨keep⟩ is from 1 to {KEEP_MAX}"), ""))
            }
            Self::Periodic { every_ms, keep } => {
                Ok(ReplicationMode::Periodic { every: Duration::from_millis(every_ms), kept: keep })
            }
        }
    }

    /// As the other side, and people, get it.
    pub fn of(mode: ReplicationMode) -> Self {
        match mode {
            ReplicationMode::Sync { hold, is_failsafe } => {
                Self::Sync { hold_ms: hold.as_millis() as u64, failsafe: is_failsafe }
            }
            ReplicationMode::Async { behind_max, behind_bytes_max, over } => Self::Async {
                behind_ms: behind_max.as_millis() as u64,
                behind_bytes: behind_bytes_max,
                push_back: over == BoundPolicy::PushBack,
            },
            ReplicationMode::Periodic { every, kept } => {
                Self::Periodic { every_ms: every.as_millis() as u64, keep: kept }
            }
        }
    }
}

impl fmt::Display for DrMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Sync { hold_ms, failsafe } => {
                let end = if failsafe { ", failsafe" } else { "" };
                write!(f, "synchronous, hold {}{end}", time_text(hold_ms))
            }
            Self::Async { behind_ms, behind_bytes, push_back } => {
                let end = if push_back { ", push back" } else { "" };
                let (time, size) = (time_text(behind_ms), ByteCount(behind_bytes));
                write!(f, "asynchronous, at most {time} and {size} behind{end}")
            }
            Self::Periodic { every_ms, keep } => {
                write!(f, "periodic, every {}, {keep} states kept", time_text(every_ms))
            }
        }
    }
}

fn time_text(ms: u64) -> String {
    match ms.is_multiple_of(60_000) {
        true => format!("{} min", ms / 60_000),
        false => format!("{} s", ms as f64 / 1_000.0),
    }
}

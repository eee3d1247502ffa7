//! The mode of a DR group, as messages and bodies of the API have it.

use replication::session::{BoundPolicy, ReplicationMode};
use report::Refusal;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

/// Default of the time for which hosts wait for a lost peer: under Linux's 30 s.
const HOLD_MS: u64 = 15_000;
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
            ReplicationMode::Periodic { .. } => unreachable!("no group is made with it"),
        }
    }
}

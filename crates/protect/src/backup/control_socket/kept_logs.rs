//! Log generations that stay until a proven backup has them.

use super::{FAILED, NOTHING, RELEASED, client::Connection, in_a_line};
use crate::{
    backup::StepError,
    planted::{self, BackupBug},
};
use std::{cell::RefCell, collections::VecDeque, time::Duration};
use world::{
    LocalFuture, World,
    network::{Address, Network},
    with_deadline,
};

/// Cuts whose generations a service knows: those of months, with one an hour.
const CUTS_MAX: usize = 4_096;
/// Longest wait for an answer: one connection is served at a time, and a checkpoint is taken before logs go.
const ANSWERED_WITHIN: Duration = Duration::from_secs(45);

/// The log of a thing that is frozen, if its generations stay until they are released.
pub trait KeptLogs {
    /// The generation that began with the last freeze, if it succeeded: a cut made under it has all before.
    fn frozen_at(&self) -> Option<u32>;

    /// Removes the generations before `generation`, but none that the thing itself needs; the oldest that is left. `name` is that of
    /// the backup that has them.
    fn release(&self, generation: u32, name: &str) -> LocalFuture<Result<u32, StepError>>;
}

/// The answer to an order to release logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogRelease {
    Released {
        /// Number of the oldest generation that is left.
        oldest: u32,
    },
    /// Nothing had to go, with the reason.
    Nothing(String),
}

/// The generations that began with cuts, as a service remembers them. It forgets them when its process ends: their logs then go
/// with those of the next cut.
#[derive(Default)]
pub(super) struct CutGenerations(RefCell<VecDeque<(String, u32)>>);

impl CutGenerations {
    /// Remembers a cut. Of two with one name the earlier counts: it needs more logs.
    pub fn note(&self, name: &str, generation: u32) {
        let mut cuts = self.0.borrow_mut();
        if cuts.iter().any(|(known, _)| known == name) {
            return;
        }
        if cuts.len() == CUTS_MAX {
            cuts.pop_front();
        }
        cuts.push_back((name.to_owned(), generation));
    }

    pub fn of(&self, name: &str) -> Option<u32> {
        let cuts = self.0.borrow();
        if planted::is(BackupBug::UnknownCutReleases) {
            return cuts.back().map(|(_, generation)| *generation);
        }
        cuts.iter().find(|(known, _)| known == name).map(|(_, generation)| *generation)
    }
}

/// Says at a socket that the backup `name` is proven: the logs before its cut may go.
///
/// # Errors
///
/// Nobody serves the socket, answers in time, or could remove them.
pub async fn release_logs(
    world: &World,
    network: &dyn Network,
    at: &Address,
    name: &str,
) -> Result<LogRelease, StepError> {
    let asked = async {
        let mut connection = Connection::open(network, at).await?;
        let answer = connection.ask(&format!("release {}", in_a_line(name))).await;
        answer.ok_or_else(|| StepError(format!("{at}: the connection ended")))
    };
    let answer = with_deadline(world.sleep(ANSWERED_WITHIN), asked).await;
    let answer = answer
        .unwrap_or_else(|| Err(StepError(format!("{at}: no answer in {} s", ANSWERED_WITHIN.as_secs()))))?;
    let released = answer.strip_prefix(RELEASED).and_then(|generation| generation.parse().ok());
    match (released, answer.strip_prefix(NOTHING), answer.strip_prefix(FAILED)) {
        (Some(oldest), ..) => Ok(LogRelease::Released { oldest }),
        (None, Some(reason), _) => Ok(LogRelease::Nothing(reason.to_owned())),
        (None, None, Some(reason)) => Err(StepError(format!("{at}: {reason}"))),
        (None, None, None) => Err(StepError(format!("{at}: {:?} is no answer", in_a_line(&answer)))),
    }
}

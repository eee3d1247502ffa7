//! What the kernel said of the devices under test while a run went on.
//!
//! A retry hides a failed command from whoever waits for it, and a mirror hides a failed drive; the
//! kernel says so in its log all the same. Invariant: every message is counted, the first [`KEPT`] are
//! kept in words.

use super::{progress::Shared, record::News};
use serde::{Deserialize, Serialize};
use world::{
    IoResult, World,
    real::host::{KernelDeviceError, KernelLogUpdate},
};

/// Messages that results keep.
pub const KEPT: usize = 100;
/// Messages that the test log keeps: a failing drive makes thousands.
const LINES_MAX: u64 = 20;

/// Takes what the kernel has said since the last call, without waiting.
pub type LookAtKernel = Box<dyn FnMut() -> IoResult<KernelLogUpdate>>;

/// One message of trouble.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelEvent {
    /// When it was seen, in seconds since 1970, UTC.
    pub unix_s: i64,
    /// The device, by the name the kernel used.
    pub device: String,
    /// What it tells, in a word or two.
    pub what: String,
    /// Part of the kernel that says so.
    pub source: String,
    /// The message.
    pub text: String,
}

/// All of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelResults {
    /// How many messages told of trouble with the devices under test.
    pub count: u64,
    /// The first of them.
    pub events: Vec<KernelEvent>,
    /// Messages were overwritten before they could be read.
    pub lost: bool,
    /// Why the log could not be read, or not to the end.
    pub unreadable: Option<String>,
}

/// Looks at the kernel log as a run goes on.
pub(super) struct KernelWatch {
    look: Option<LookAtKernel>,
    results: KernelResults,
    /// What was recorded of them last; none before the first look.
    told: Option<KernelResults>,
}

impl KernelWatch {
    /// A watch over a log that can be read, or cannot for a reason.
    pub fn new(log: Result<LookAtKernel, String>) -> Self {
        match log {
            Ok(look) => Self { look: Some(look), results: KernelResults::default(), told: None },
            Err(why) => Self {
                look: None,
                results: KernelResults { unreadable: Some(why), ..KernelResults::default() },
                told: None,
            },
        }
    }

    /// Takes what has come, and adds it to the test log.
    pub fn look(&mut self, world: &World, shared: &Shared) {
        match self.look.as_mut().map(|look| look()) {
            None => {}
            Some(Ok(news)) => {
                self.results.lost |= news.lost;
                news.errors.into_iter().for_each(|trouble| self.note(trouble, world, shared));
            }
            Some(Err(error)) => {
                self.results.unreadable = Some(error.to_string());
                self.look = None;
            }
        }
        if self.told.as_ref() != Some(&self.results) {
            let events_told = self.told.as_ref().map_or(0, |told| told.events.len());
            let events = self.results.events[events_told..].to_vec();
            shared.record(|| News::Kernel(KernelResults { events, ..self.results.clone() }));
            self.told = Some(self.results.clone());
        }
    }

    fn note(&mut self, trouble: KernelDeviceError, world: &World, shared: &Shared) {
        let wall = world.wall();
        self.results.count += 1;
        match self.results.count {
            ..=LINES_MAX => shared.line(wall, format!("kernel: {}: {}", trouble.what, trouble.text)),
            count if count == LINES_MAX + 1 => {
                shared.line(wall, "kernel: more messages are counted from now on, and no longer told");
            }
            _ => {}
        }
        if self.results.events.len() < KEPT {
            self.results.events.push(KernelEvent {
                unix_s: wall.seconds,
                device: trouble.device,
                what: trouble.what.to_owned(),
                source: trouble.source.to_owned(),
                text: trouble.text,
            });
        }
    }

    /// What it found.
    pub fn into_results(self) -> KernelResults {
        self.results
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use world::{
        IoError, IoErrorKind,
        sim::{SimLimits, Simulation},
    };

    fn watch(looks: Vec<IoResult<KernelLogUpdate>>) -> (KernelResults, usize) {
        let mut looks = looks.into_iter();
        let mut watch = KernelWatch::new(Ok(Box::new(move || looks.next().unwrap())));
        let main = |world: World| async move {
            let shared = Shared::new(1, Arc::default(), None);
            for _ in 0..2 {
                watch.look(&world, &shared);
            }
            (watch.into_results(), shared.lines_from(0).len())
        };
        Simulation::new(1).run(SimLimits::generous(), main).completed()
    }

    #[test]
    fn a_storm_of_messages_is_counted_and_told_in_a_few_lines() {
        let trouble = KernelDeviceError {
            device: "sda".to_owned(),
            what: "I/O error",
            source: "block/blk-mq.c",
            text: "I/O error, dev sda, sector 8".to_owned(),
            at_us: 1,
        };
        let storm = KernelLogUpdate { errors: vec![trouble; 3_000], lost: true };
        let (results, lines) = watch(vec![Ok(storm), Ok(KernelLogUpdate::default())]);
        assert_eq!((results.count, results.events.len(), results.lost, lines), (3_000, KEPT, true, 21));
    }

    #[test]
    fn a_log_that_can_no_longer_be_read_is_asked_no_more() {
        let (results, lines) = watch(vec![Err(IoError::new(IoErrorKind::PermissionDenied, "reading it"))]);
        assert_eq!((results.count, lines), (0, 0));
        assert_eq!(results.unreadable.as_deref(), Some("reading it"));
    }
}

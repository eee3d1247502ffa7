//! Kernel log messages about the devices under test.
//!
//! A retry hides a failed command from the waiting program, and a mirror hides a failed drive; the kernel log
//! shows both. Invariant: every message is counted, and the first [`KEPT`] are kept with their text.

use crate::database::results::kernel::{KEPT, KernelEvent, KernelResults};
use crate::database::{record::RunEvent, run::progress::RunState};
use world::{
    IoResult, World,
    real::host::{KernelDeviceError, KernelLogUpdate},
};

/// Maximum number of messages in the test log: a failing drive causes thousands.
const LINES_MAX: u64 = 20;

/// Reads the kernel messages since the last call, without waiting.
pub type KernelLogReader = Box<dyn FnMut() -> IoResult<KernelLogUpdate>>;

/// Reads the kernel log during a run.
pub(super) struct KernelMonitor {
    look: Option<KernelLogReader>,
    results: KernelResults,
    /// The last recorded state.
    told: Option<KernelResults>,
}

impl KernelMonitor {
    /// A monitor of a readable log, or of one that is unreadable for a reason.
    pub fn new(log: Result<KernelLogReader, String>) -> Self {
        match log {
            Ok(look) => Self { look: Some(look), results: KernelResults::default(), told: None },
            Err(why) => Self {
                look: None,
                results: KernelResults { unreadable: Some(why), ..KernelResults::default() },
                told: None,
            },
        }
    }

    /// Reads new messages and adds them to the test log.
    pub fn look(&mut self, world: &World, shared: &RunState) {
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
            shared.record(|| RunEvent::Kernel(KernelResults { events, ..self.results.clone() }));
            self.told = Some(self.results.clone());
        }
    }

    fn note(&mut self, trouble: KernelDeviceError, world: &World, shared: &RunState) {
        let wall = world.wall();
        self.results.count += 1;
        match self.results.count {
            ..=LINES_MAX => shared.line(wall, format!("kernel: {}: {}", trouble.what, trouble.text)),
            count if count == LINES_MAX + 1 => {
                shared.line(wall, "kernel: further messages are counted, not listed");
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

    pub fn into_results(self) -> KernelResults {
        self.results
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::{
        Cancellation, IoError, IoErrorKind,
        sim::{SimLimits, Simulation},
    };

    fn watch(looks: Vec<IoResult<KernelLogUpdate>>) -> (KernelResults, usize) {
        let mut looks = looks.into_iter();
        let mut watch = KernelMonitor::new(Ok(Box::new(move || looks.next().unwrap())));
        let main = |world: World| async move {
            let shared = RunState::new(1, Cancellation::default(), None);
            for _ in 0..2 {
                watch.look(&world, &shared);
            }
            (watch.into_results(), shared.lines_from(0).len())
        };
        Simulation::new(1).run(SimLimits::generous(), main).completed()
    }

    #[test]
    fn many_messages_are_counted_but_few_are_logged() {
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
    fn an_unreadable_log_is_not_read_again() {
        let (results, lines) = watch(vec![Err(IoError::new(IoErrorKind::PermissionDenied, "reading it"))]);
        assert_eq!((results.count, lines), (0, 0));
        assert_eq!(results.unreadable.as_deref(), Some("reading it"));
    }
}

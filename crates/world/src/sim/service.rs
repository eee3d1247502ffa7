//! Service times of a simulated drive.

use crate::{ByteCount, ByteOffset, Random};
use std::time::Duration;

/// The kind of an operation, as far as its service goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceKind {
    Read,
    /// A stable write also makes all earlier ones stable.
    Write {
        is_stable: bool,
    },
    Flush,
    Discard,
}

/// An operation that enters service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceRequest {
    pub kind: ServiceKind,
    /// 0 for a flush.
    pub at: ByteOffset,
    /// 0 for a flush.
    pub length: ByteCount,
}

impl ServiceRequest {
    pub(super) fn new(kind: ServiceKind, at: u64, length: u64) -> Self {
        Self { kind, at: ByteOffset(at), length: ByteCount(length) }
    }
}

/// The queue of a drive when an operation enters service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceQueue {
    /// Operations in service, this one included.
    pub in_service: usize,
    /// Operations that wait for a slot.
    pub waiting: usize,
}

/// Decides how long a drive serves an operation.
pub trait ServiceModel {
    /// Called once for each operation when it enters service. `random` is the drive's stream of service times.
    fn service_time(
        &mut self,
        request: &ServiceRequest,
        queue: ServiceQueue,
        random: &mut Random,
    ) -> Duration;
}

/// Service time of an operation: `least` + exponential with mean `mean_above` + `per_mib` by length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceTime {
    /// Minimum of every operation.
    pub least: Duration,
    /// Mean of the random addition.
    pub mean_above: Duration,
    /// Addition for each MiB moved.
    pub per_mib: Duration,
}

impl ServiceTime {
    fn draw(self, length: u64, random: &mut Random) -> Duration {
        let above = -(1.0 - random.unit()).ln() * self.mean_above.as_nanos() as f64;
        let moved = self.per_mib.as_nanos() as u64 * length / (1 << 20);
        self.least + Duration::from_nanos(above as u64 + moved)
    }
}

/// Random service times that depend on kind and length alone: the model of every drive unless it gets another.
#[derive(Clone, Copy, Debug)]
pub struct RandomService {
    pub read: ServiceTime,
    /// Service time of writes and discards; stable writes pay for a flush as well.
    pub write: ServiceTime,
    pub flush: ServiceTime,
}

impl ServiceModel for RandomService {
    fn service_time(&mut self, request: &ServiceRequest, _: ServiceQueue, random: &mut Random) -> Duration {
        let length = request.length.0;
        match request.kind {
            ServiceKind::Read => self.read.draw(length, random),
            ServiceKind::Write { is_stable: false } => self.write.draw(length, random),
            ServiceKind::Write { is_stable: true } => {
                self.write.draw(length, random) + self.flush.draw(0, random)
            }
            ServiceKind::Flush => self.flush.draw(0, random),
            ServiceKind::Discard => self.write.draw(0, random),
        }
    }
}

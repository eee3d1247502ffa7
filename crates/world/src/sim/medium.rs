//! The contents of a drive and the effects of operations on them.
//!
//! Invariants:
//!
//! 1. `visible` is what a read returns: every completed write in order of completion.
//! 2. `durable` with all of `unsynced` applied in order is `visible`, faults apart.
//! 3. `unsynced` holds completed writes in order of completion. A stable one in it waits only for older
//!    volatile ones and survives a power cut whole.
//! 4. While a write is under way, a read of the same sectors may find any mixture of old and new.

use super::{
    drive::{Operation, PendingOperation},
    drive_options::{DriveOptions, DriveStatistics},
    faults::{Access, SimFault},
    filesystem::SimFilesystem,
    image::{BLOCK_BYTES, Image},
    service::{RandomService, ServiceKind, ServiceModel, ServiceQueue, ServiceRequest},
};
use crate::{Buffer, IoErrorKind, Moment, Random, Stability};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

/// A completed write that a power cut may still touch.
pub(super) struct UnsyncedWrite {
    pub sequence: u64,
    pub at: u64,
    pub from: Vec<Arc<Buffer>>,
    pub is_stable: bool,
}

pub(super) struct DriveState {
    pub options: DriveOptions,
    /// The filesystem its blocks come from, if it shares space with others.
    pub filesystem: Option<SimFilesystem>,
    pub visible: Image,
    pub durable: Image,
    /// The contents before the last write, kept only for stale reads.
    previous: Image,
    pub unsynced: VecDeque<UnsyncedWrite>,
    pub completed_writes: u64,
    /// Operations started and not completed, by number.
    pub under_way: BTreeMap<u64, PendingOperation>,
    /// Operations that wait for a slot.
    pub waiting: VecDeque<u64>,
    pub in_service: usize,
    pub operation_last: u64,
    pub service: Box<dyn ServiceModel>,
    /// The connection to it is broken until then.
    pub broken_until: Moment,
    /// The next flush fails: the connection broke after volatile writes were acknowledged.
    owes_failed_flush: bool,
    unreadable: BTreeSet<u64>,
    times: Random,
    faults: Random,
    pub losses: Random,
    pub statistics: DriveStatistics,
}

fn length_of(buffers: &[Arc<Buffer>]) -> u64 {
    buffers.iter().map(|buffer| buffer.len() as u64).sum()
}

impl DriveState {
    pub fn new(options: DriveOptions, seed: u64, number: u64) -> Self {
        let stream = |what: &str| Random::new(seed, &format!("{what} of drive {number}"));
        let service =
            Box::new(RandomService { read: options.read, write: options.write, flush: options.flush });
        Self {
            options,
            filesystem: None,
            visible: Image::new(),
            durable: Image::new(),
            previous: Image::new(),
            unsynced: VecDeque::new(),
            completed_writes: 0,
            under_way: BTreeMap::new(),
            waiting: VecDeque::new(),
            in_service: 0,
            operation_last: 0,
            service,
            broken_until: Moment(0),
            owes_failed_flush: false,
            unreadable: BTreeSet::new(),
            times: stream("service times"),
            faults: stream("faults"),
            losses: stream("losses"),
            statistics: DriveStatistics::default(),
        }
    }

    pub fn count(&mut self, fault: SimFault) {
        *self.statistics.faults.entry(fault).or_default() += 1;
    }

    /// Draws the fault of an operation and its service time.
    pub fn draw_service(&mut self, number: u64) -> (Option<SimFault>, Duration) {
        let request = match &self.under_way[&number].operation {
            Operation::Read { at, into } => {
                let length = into.iter().map(|buffer| buffer.len() as u64).sum();
                ServiceRequest::new(ServiceKind::Read, *at, length)
            }
            Operation::Write { at, from, stability } => {
                let is_stable = *stability == Stability::Stable;
                ServiceRequest::new(ServiceKind::Write { is_stable }, *at, length_of(from))
            }
            Operation::Flush { .. } => ServiceRequest::new(ServiceKind::Flush, 0, 0),
            Operation::Discard { at, length } => ServiceRequest::new(ServiceKind::Discard, *at, *length),
        };
        let access = match request.kind {
            ServiceKind::Read => Access::Read,
            ServiceKind::Write { .. } | ServiceKind::Discard => Access::Write,
            ServiceKind::Flush => Access::Flush,
        };
        let faults = &self.options.faults;
        let fault = faults.draw(access, &mut self.faults);
        let queue = ServiceQueue { in_service: self.in_service, waiting: self.waiting.len() };
        let mut span = self.service.service_time(&request, queue, &mut self.times);
        if fault == Some(SimFault::Slow) {
            span += faults.slow_span;
        }
        (fault, span)
    }

    pub fn read(
        &mut self,
        at: u64,
        mut into: Vec<Buffer>,
        fault: Option<SimFault>,
    ) -> Result<Vec<Buffer>, IoErrorKind> {
        self.statistics.reads += 1;
        let length: u64 = into.iter().map(|buffer| buffer.len() as u64).sum();
        let sector = u64::from(self.options.sector);
        let mut source = at;
        if let Some(fault) = fault {
            self.count(fault);
            match fault {
                SimFault::BitRot => {
                    let byte_at = at + self.faults.below(length);
                    let mut byte = [0];
                    self.visible.read(byte_at, &mut byte);
                    byte[0] ^= 1 << self.faults.below(8);
                    self.visible.write(byte_at, &byte);
                    self.durable.write(byte_at, &byte);
                }
                SimFault::Unreadable => {
                    self.unreadable.insert(at / sector + self.faults.below(length / sector));
                }
                SimFault::MisdirectedRead => source = self.elsewhere(length),
                _ => {}
            }
        }
        let sectors = source / sector..(source + length) / sector;
        if self.unreadable.range(sectors).next().is_some() {
            return Err(IoErrorKind::Medium);
        }
        for buffer in &mut into {
            match fault {
                Some(SimFault::StaleRead) => self.previous.read(source, buffer),
                _ => self.visible.read(source, buffer),
            }
            self.mix_with_writes_under_way(source, buffer);
            source += buffer.len() as u64;
        }
        Ok(into)
    }

    /// Applies invariant 4 to a read.
    fn mix_with_writes_under_way(&mut self, at: u64, into: &mut [u8]) {
        let sector = self.options.sector as usize;
        let end = at + into.len() as u64;
        for started in self.under_way.values() {
            let Operation::Write { at: from_at, from, .. } = &started.operation else { continue };
            let mut from_at = *from_at;
            if from_at >= end || from_at + length_of(from) <= at {
                continue;
            }
            for bytes in from.iter().flat_map(|buffer| buffer.chunks_exact(sector)) {
                if (at..end).contains(&from_at) && self.losses.percent(50.0) {
                    let within = (from_at - at) as usize;
                    into[within..within + sector].copy_from_slice(bytes);
                }
                from_at += sector as u64;
            }
        }
    }

    /// A written block, at random, with `length` bytes behind it; it may be the right one.
    fn elsewhere(&mut self, length: u64) -> u64 {
        let faults = &mut self.faults;
        let block = self.visible.written_block(|count| faults.below(count as u64) as usize).unwrap_or(0);
        (block * BLOCK_BYTES as u64).min(self.options.size.0 - length)
    }

    pub fn write(
        &mut self,
        at: u64,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
        fault: Option<SimFault>,
    ) -> Result<(), IoErrorKind> {
        self.statistics.writes += 1;
        let length = length_of(&from);
        if let Some(space) = self.options.faults.space {
            let missing = self.visible.blocks_missing(at, length);
            let blocks = self.visible.blocks_written() + missing;
            if missing > 0 && (blocks * BLOCK_BYTES) as u64 > space.0 {
                self.count(SimFault::NoSpace);
                return Err(IoErrorKind::NoSpace);
            }
        }
        if let Some(filesystem) = &self.filesystem
            && !filesystem.take(self.visible.blocks_missing(at, length) as u64)
        {
            self.count(SimFault::NoSpace);
            return Err(IoErrorKind::NoSpace);
        }
        if let Some(fault) = fault {
            self.count(fault);
        }
        match fault {
            Some(SimFault::NoSpace) => {
                self.accept_in_part(at, &from, 50.0);
                return Err(IoErrorKind::NoSpace);
            }
            Some(SimFault::LostWrite) => {}
            Some(SimFault::MisdirectedWrite) => {
                let elsewhere = self.elsewhere(length);
                self.accept(elsewhere, from, stability == Stability::Stable);
            }
            Some(SimFault::FailedWrite) => {
                self.accept_in_part(at, &from, 50.0);
                return Err(IoErrorKind::Medium);
            }
            _ => self.accept(at, from, stability == Stability::Stable),
        }
        Ok(())
    }

    /// Accepts a write into the cache, and makes it durable if that can be decided already.
    pub fn accept(&mut self, at: u64, from: Vec<Arc<Buffer>>, is_stable: bool) {
        let sector = u64::from(self.options.sector);
        let keeps_previous = self.options.faults.stale_read_percent > 0.0;
        let mut place = at;
        for buffer in &from {
            if keeps_previous {
                let mut before = vec![0; buffer.len()];
                self.visible.read(place, &mut before);
                self.previous.write(place, &before);
            }
            self.visible.write(place, buffer);
            place += buffer.len() as u64;
        }
        if !self.unreadable.is_empty() {
            self.unreadable.retain(|unreadable| !(at / sector..place / sector).contains(unreadable));
        }
        self.completed_writes += 1;
        self.unsynced.push_back(UnsyncedWrite { sequence: self.completed_writes, at, from, is_stable });
        self.retire_stable();
    }

    /// Applies invariant 3: a stable write behind no volatile one is durable.
    fn retire_stable(&mut self) {
        while let Some(oldest) = self.unsynced.pop_front_if(|oldest| oldest.is_stable) {
            self.make_durable(&oldest);
        }
    }

    fn make_durable(&mut self, write: &UnsyncedWrite) {
        let mut at = write.at;
        for buffer in &write.from {
            self.durable.write(at, buffer);
            at += buffer.len() as u64;
        }
    }

    /// The connection is broken until a moment. Another server may answer then, and the cache be lost.
    pub fn break_connection(&mut self, until: Moment) {
        self.broken_until = self.broken_until.max(until);
        self.owes_failed_flush |= self.unsynced.iter().any(|write| !write.is_stable);
    }

    pub fn flush(&mut self, upto: u64, fault: Option<SimFault>) -> Result<(), IoErrorKind> {
        self.statistics.flushes += 1;
        let owes_failure = std::mem::take(&mut self.owes_failed_flush);
        let fault = if owes_failure { Some(SimFault::FailedFlush) } else { fault };
        if let Some(fault) = fault {
            self.count(fault);
        }
        match fault {
            Some(SimFault::LyingFlush) => return Ok(()),
            Some(SimFault::FailedFlush) => {
                let losses = &mut self.losses;
                self.unsynced
                    .retain(|write| write.is_stable || write.sequence > upto || losses.percent(50.0));
                return Err(if owes_failure { IoErrorKind::CacheLost } else { IoErrorKind::Medium });
            }
            _ => {}
        }
        while let Some(oldest) = self.unsynced.pop_front_if(|oldest| oldest.sequence <= upto) {
            self.make_durable(&oldest);
        }
        self.retire_stable();
        Ok(())
    }

    /// Discarded bytes read as anything: here as a pattern that no one writes.
    pub fn discard(&mut self, at: u64, length: u64) {
        if length > 0 {
            let mut pattern = Buffer::zeroed(length as usize);
            self.losses.fill(&mut pattern);
            self.accept(at, vec![Arc::new(pattern)], false);
        }
    }

    /// Removes and returns every started operation, oldest first; its callers are abandoned.
    pub fn take_under_way(&mut self) -> Vec<Operation> {
        self.broken_until = Moment(0);
        self.owes_failed_flush = false;
        self.waiting.clear();
        self.in_service = 0;
        std::mem::take(&mut self.under_way).into_values().map(|started| started.operation).collect()
    }
}

//! The model: volumes, snapshots, and the allowed contents of each of their sectors.
//!
//! The model knows the start and acknowledgement of operations, and nothing of how the pool works. At most
//! one catalogue change is in flight per volume, so each volume has two possible states after a crash, and
//! the pool must show one of them completely.
//!
//! Invariants:
//!
//! 1. Logical times ascend and are unique.
//! 2. A volume that is `busy` has one catalogue change in flight, or one that returned an error.
//! 3. A snapshot is in `cuts` until it is known to be gone.

mod branching;
mod groups;

pub use branching::EarlierState;
pub use groups::{GroupModel, GroupModelKey};

use super::{
    content::{OperationNumber, SECTOR_BYTES, SectorContent, VolumeKey},
    frozen::FrozenRegister,
    register::{Interval, LogicalTime, PowerCut, Register},
};
use array::{
    format::{VolumeId, row::WithheldClient},
    volume::{Bounds, Rates},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// Number of a snapshot of one or more volumes, unique in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CutKey(pub u32);

/// The existence of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Creation requested, not acknowledged.
    Making,
    There,
    /// Deletion requested, not acknowledged.
    Deleting,
    Gone,
}

impl Presence {
    /// (true, _) if a newly opened pool may have it; (_, true) if it must.
    pub fn may_and_must_be(self) -> (bool, bool) {
        match self {
            Self::Making | Self::Deleting => (true, false),
            Self::There => (true, true),
            Self::Gone => (false, false),
        }
    }
}

/// A size change in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingResize {
    /// The new size.
    pub sectors: u64,
    /// The operation that zeroes the sectors behind a new end.
    pub operation: OperationNumber,
}

/// Number of a branch, unique in a run: what a volume had before a rollback is another line than what it has
/// since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LineKey(pub u32);

/// A rollback in flight: the volume's state if it has happened.
#[derive(Clone, Debug)]
pub struct PendingRollback {
    /// The volume that keeps the state of before.
    pub left: VolumeKey,
    /// The volume that ends: what an earlier rollback left.
    pub ends: Option<VolumeKey>,
    pub sectors: u64,
    pub line: LineKey,
    pub register: Register,
    /// Clients from which it withholds the volume.
    pub withheld: BTreeSet<WithheldClient>,
}

/// A volume's caps, limit and reserve.
pub type VolumeTerms = (Rates, Bounds);

#[derive(Clone, Debug)]
pub struct VolumeModel {
    pub presence: Presence,
    pub name: String,
    /// Its name if the rename in flight has happened.
    pub new_name: Option<String>,
    pub sectors: u64,
    /// Its size if the change in flight has happened.
    pub resizing: Option<PendingResize>,
    /// Number of size changes begun.
    pub resizes: u64,
    /// Time of its last shrink.
    pub cleared_at: LogicalTime,
    /// True if it has, or may have, a write cache.
    pub is_cached: bool,
    /// Number of cache switches begun.
    pub switches: u64,
    pub terms: VolumeTerms,
    /// Its terms if the change in flight has happened.
    pub new_terms: Option<VolumeTerms>,
    /// A snapshot was begun: it may keep blocks that admitted writes in flight replace.
    pub was_cut: bool,
    /// The largest limit it may have had, in bytes; `None` if it may have had none.
    pub limit_most: Option<u64>,
    /// A catalogue change is in flight for it.
    pub is_busy: bool,
    /// Volumes whose writes it may show: itself, and those it was cloned from.
    pub writers: BTreeSet<VolumeKey>,
    /// The branch that it has.
    pub line: LineKey,
    /// The volume whose rollback left it: it is never written.
    pub left_by: Option<VolumeKey>,
    /// It is a clone in the making: of this volume as it is now, requested at this time.
    pub forking: Option<(VolumeKey, LogicalTime)>,
    pub rolling: Option<PendingRollback>,
    /// Clients from which it is withheld.
    pub withheld: BTreeSet<WithheldClient>,
    /// Those of them whose readmission is in flight.
    pub readmitting: BTreeSet<WithheldClient>,
    /// Commands of hosts in flight.
    pub commands: u64,
    /// Hosts begin no commands, so that a rollback meets none.
    pub is_held: bool,
    /// Start sectors of the windows of `window_sectors` that hosts write to.
    pub windows: Vec<u64>,
    /// The allowed contents of its sectors.
    pub register: Register,
}

/// A snapshot of one or more volumes.
#[derive(Clone, Debug)]
pub struct Cut {
    pub name: String,
    /// Kept with the snapshot of each volume.
    pub note: Vec<u8>,
    /// Time of the request.
    pub begun: LogicalTime,
    /// The snapshots of single volumes.
    pub parts: BTreeMap<VolumeKey, CutPart>,
    /// It was verified to be consistent.
    pub is_checked: bool,
    /// The group that it is a snapshot of.
    pub group: Option<GroupModelKey>,
}

#[derive(Clone, Debug)]
pub struct CutPart {
    pub presence: Presence,
    /// The branch that it is a point of.
    pub line: LineKey,
    /// The volume's size at the cut.
    pub sectors: u64,
    /// The allowed contents; `None` until the cut is acknowledged, or its incarnation has ended.
    pub register: Option<FrozenRegister>,
}

/// The operations begun and acknowledged in one run.
#[derive(Default)]
pub struct Model {
    now: LogicalTime,
    operation_last: u32,
    volume_last: u32,
    cut_last: u32,
    line_last: u32,
    group_last: u32,
    /// Groups that may exist.
    pub groups: BTreeMap<GroupModelKey, GroupModel>,
    /// Volumes that operations on groups in flight make: all of each, or none.
    pub made_together: Vec<Vec<VolumeKey>>,
    /// Identities of volumes that operations on groups make.
    derived: BTreeMap<VolumeKey, VolumeId>,
    /// All volumes ever created.
    pub volumes: BTreeMap<VolumeKey, VolumeModel>,
    /// All snapshots that may exist.
    pub cuts: BTreeMap<CutKey, Cut>,
    /// Start times of reads and cuts in flight.
    looking: BTreeSet<LogicalTime>,
    /// The target of each operation, by number from 1 on.
    written: Vec<(VolumeKey, Range<u64>)>,
    /// A volume had, or was to have, a limit or a reserve: writes may be refused for it.
    pub is_bounded: bool,
    /// The last power cut, and whether the pool was opened since.
    power_cut: Option<(PowerCut, bool)>,
}

impl Model {
    /// Advances the logical clock.
    pub fn tick(&mut self) -> LogicalTime {
        self.now += 1;
        self.now
    }

    /// The interval of a read outside the run: it does not advance the clock.
    pub fn look_from_outside(&self) -> Interval {
        Interval { begun: self.now + 1, ended: self.now + 2 }
    }

    /// Starts a read or cut.
    pub fn begin_look(&mut self) -> LogicalTime {
        let begun = self.tick();
        self.looking.insert(begun);
        begun
    }

    /// Ends a read or cut. Returns its interval, and whether no other is in flight.
    pub fn end_look(&mut self, begun: LogicalTime) -> (Interval, bool) {
        assert!(self.looking.remove(&begun), "who ends has begun");
        (Interval { begun, ended: self.tick() }, self.looking.is_empty())
    }

    /// Numbers a new operation on a range of a volume.
    pub fn next_operation(&mut self, volume: VolumeKey, sectors: Range<u64>) -> OperationNumber {
        self.operation_last += 1;
        self.written.push((volume, sectors));
        OperationNumber(self.operation_last)
    }

    /// True if the operation was to write this sector of a volume, or of one it was cloned from.
    pub fn has_written(&self, operation: OperationNumber, volume: VolumeKey, sector: u64) -> bool {
        let place = self.written.get(operation.0 as usize - 1);
        let writers = &self.volumes[&volume].writers;
        place.is_some_and(|(written, sectors)| writers.contains(written) && sectors.contains(&sector))
    }

    /// Numbers a branch.
    fn next_line(&mut self) -> LineKey {
        self.line_last += 1;
        LineKey(self.line_last)
    }

    /// Adds a volume about to be created.
    pub fn add_volume(&mut self, key: VolumeKey, mut volume: VolumeModel) {
        volume.line = self.next_line();
        volume.writers.insert(key);
        self.volumes.insert(key, volume);
    }

    /// Volumes that hosts may read.
    pub fn usable(&self) -> Vec<VolumeKey> {
        let there = self.volumes.iter().filter(|(_, volume)| volume.presence == Presence::There);
        there.map(|(&key, _)| key).collect()
    }

    /// Volumes that hosts may write, without a change in flight.
    pub fn idle(&self) -> Vec<VolumeKey> {
        self.writable().into_iter().filter(|key| !self.volumes[key].is_busy).collect()
    }

    /// Snapshots of volumes that may be read.
    pub fn readable_cuts(&self) -> Vec<(CutKey, VolumeKey)> {
        let usable = self.usable();
        let parts = self.cuts.iter().flat_map(|(&cut, model)| {
            let there = model.parts.iter().filter(|(_, part)| part.presence == Presence::There);
            there.map(move |(&volume, _)| (cut, volume))
        });
        parts.filter(|(_, volume)| usable.contains(volume)).collect()
    }

    /// True if a snapshot of the volume is there, or may be.
    pub fn has_cuts(&self, volume: VolumeKey) -> bool {
        let parts = self.cuts.values().filter_map(|cut| cut.parts.get(&volume));
        parts.into_iter().any(|part| part.presence != Presence::Gone)
    }

    /// Starts a write.
    pub fn begin_write(&mut self, volume: VolumeKey, sectors: Range<u64>) -> OperationNumber {
        let operation = self.next_operation(volume, sectors.clone());
        let now = self.tick();
        let horizon = self.looking.first().copied().unwrap_or(now);
        self.volume(volume).register.begin_write(sectors, operation, now, horizon);
        operation
    }

    /// Starts a discard; `sectors` are whole blocks.
    pub fn begin_discard(&mut self, volume: VolumeKey, sectors: Range<u64>) -> OperationNumber {
        let operation = self.next_operation(volume, sectors.clone());
        let now = self.tick();
        self.volume(volume).register.begin_zeroes(sectors, operation, now);
        operation
    }

    /// Acknowledges a write or discard.
    pub fn acknowledge(
        &mut self,
        key: VolumeKey,
        sectors: Range<u64>,
        operation: OperationNumber,
        is_stable: bool,
    ) {
        let now = self.tick();
        let volume = self.volume(key);
        let end = match volume.resizing {
            Some(resizing) => volume.sectors.max(resizing.sectors),
            None => volume.sectors,
        };
        let inside = sectors.start..sectors.end.min(end);
        if inside.end > inside.start {
            volume.register.acknowledge(inside, operation, now, is_stable);
        }
        // The range is gone: it was written before the volume shrank.
        let beyond = sectors.start.max(end)..sectors.end;
        if beyond.end > beyond.start {
            volume.register.acknowledge(beyond, operation, volume.cleared_at - 1, is_stable);
        }
    }

    /// Marks everything completed before `begun` as stable.
    pub fn is_stable_until(&mut self, begun: LogicalTime) {
        for volume in self.volumes.values_mut() {
            volume.register.is_stable_until(begun);
        }
    }

    pub fn lose_power(&mut self) {
        let at = self.tick();
        let was_opened_since = self.power_cut.is_none_or(|(_, was_opened)| was_opened);
        for volume in self.volumes.values_mut() {
            volume.register.lose_power(was_opened_since);
        }
        if was_opened_since {
            self.power_cut = Some((PowerCut::new(at), false));
        }
    }

    /// Records what a read shows about the last power cut: only the end of the log is lost.
    pub fn learn(
        &mut self,
        volume: VolumeKey,
        sector: u64,
        found: SectorContent,
        span: Interval,
    ) -> PowerCut {
        let Some((cut, _)) = &mut self.power_cut else { return PowerCut::new(0) };
        let volume = self.volumes.get(&volume).expect("volumes of the model stay");
        volume.register.learn(sector, found, span, cut);
        *cut
    }

    /// Starts a cut of these volumes, with a note or without.
    pub fn begin_cut(&mut self, volumes: &[VolumeKey], has_note: bool) -> CutKey {
        let begun = self.begin_look();
        self.cut_last += 1;
        let key = CutKey(self.cut_last);
        let parts = volumes.iter().map(|&volume| {
            let model = self.volumes.get_mut(&volume).expect("it is there");
            (model.is_busy, model.was_cut) = (true, true);
            let (sectors, line) = (model.sectors, model.line);
            (volume, CutPart { presence: Presence::Making, line, sectors, register: None })
        });
        let (name, parts) = (format!("cut {}", key.0), parts.collect());
        let note = if has_note { note_of(key) } else { Vec::new() };
        let cut = Cut { name, note, begun, parts, is_checked: false, group: None };
        self.cuts.insert(key, cut);
        key
    }

    /// Ends a cut, with or without success: it may show operations begun by now.
    pub fn end_cut(&mut self, key: CutKey, is_there: bool) {
        let cut = self.cuts.get_mut(&key).expect("a cut that ends was begun");
        let begun = cut.begun;
        self.looking.remove(&begun);
        self.now += 1;
        let span = Interval { begun: cut.begun, ended: self.now };
        for (volume, part) in &mut cut.parts {
            let volume = self.volumes.get_mut(volume).expect("volumes of the model stay");
            part.register = Some(volume.register.freeze(part.sectors, span));
            if is_there {
                part.presence = Presence::There;
                volume.is_busy = false;
            }
        }
        if is_there {
            self.is_stable_until(begun);
        }
    }

    /// Drops all operations in flight: their callers are gone.
    pub fn end_incarnation(&mut self) {
        let unanswered: Vec<CutKey> = self
            .cuts
            .iter()
            .filter(|(_, cut)| cut.parts.values().any(|part| part.register.is_none()))
            .map(|(&key, _)| key)
            .collect();
        unanswered.into_iter().for_each(|key| self.end_cut(key, false));
        let forking = self.volumes.iter().filter_map(|(&key, volume)| Some((key, volume.forking?.0)));
        let forking: Vec<_> = forking.collect();
        forking.into_iter().for_each(|(key, source)| self.end_clone(key, source, Presence::Making));
        for volume in self.volumes.values_mut() {
            (volume.commands, volume.is_held) = (0, false);
        }
        self.looking.clear();
    }

    /// The pool was opened again: unresolved operations are decided now.
    pub fn settle(&mut self) {
        let now = self.tick();
        for volume in self.volumes.values_mut() {
            volume.register.settle(now);
            // The contents found are in the trees, or in a log that was made stable.
            volume.register.is_stable_until(now);
        }
        if let Some((_, was_opened)) = &mut self.power_cut {
            *was_opened = true;
        }
    }
}

/// The note of a cut: up to 768 bytes of any value.
fn note_of(cut: CutKey) -> Vec<u8> {
    let length = [1, 40, 767, 768][cut.0 as usize % 4];
    (0..length).map(|index| (cut.0 + index) as u8).collect()
}

impl VolumeModel {
    /// A volume about to be created.
    pub fn new(name: String, sectors: u64, windows: Vec<u64>) -> Self {
        Self {
            presence: Presence::Making,
            name,
            new_name: None,
            sectors,
            resizing: None,
            resizes: 0,
            cleared_at: 0,
            is_cached: false,
            switches: 0,
            terms: VolumeTerms::default(),
            new_terms: None,
            was_cut: false,
            limit_most: None,
            is_busy: true,
            writers: BTreeSet::new(),
            line: LineKey(0),
            left_by: None,
            forking: None,
            rolling: None,
            withheld: BTreeSet::new(),
            readmitting: BTreeSet::new(),
            commands: 0,
            is_held: false,
            windows,
            register: Register::default(),
        }
    }

    /// Sets the terms it is created with.
    pub fn with_terms(self, terms: VolumeTerms) -> Self {
        let limit = terms.1.limit_bytes;
        Self { terms, limit_most: (limit > 0).then_some(limit), ..self }
    }

    /// Starts a change of terms.
    pub fn begin_terms(&mut self, terms: VolumeTerms) {
        self.new_terms = Some(terms);
        self.limit_most = match (self.limit_most, terms.1.limit_bytes) {
            (Some(most), limit) if limit > 0 => Some(most.max(limit)),
            _ => None,
        };
    }

    /// Completes a change of size.
    pub fn has_size(&mut self, resizing: PendingResize, now: LogicalTime) {
        self.resizing = None;
        if resizing.sectors < self.sectors {
            self.register.acknowledge(resizing.sectors..self.sectors, resizing.operation, now, true);
            self.register.clear_from(resizing.sectors, now);
            self.cleared_at = now;
        }
        self.sectors = resizing.sectors;
    }

    /// Cancels a change of size that did not happen.
    pub fn keeps_size(&mut self) {
        if let Some(resizing) = self.resizing.take() {
            self.register.withdraw(resizing.sectors..self.sectors.max(resizing.sectors), resizing.operation);
        }
    }

    /// Its size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.sectors * SECTOR_BYTES as u64
    }
}

//! What callers were told: volumes, snapshots, and what each sector of them may hold.
//!
//! The model knows beginnings and answers, and nothing of how the pool works. At most one change of the catalogue is
//! under way for a volume; so of each volume two states are possible after a crash, and the pool must show one of them
//! whole.
//!
//! Invariants:
//!
//! 1. Numbers of events ascend; no two events have one.
//! 2. A volume that is `busy` has one change of the catalogue under way, or one whose answer was an error.
//! 3. A snapshot is in `cuts` until it is known to be gone.

use super::{
    content::{Content, OperationNumber, SECTOR_BYTES, VolumeKey},
    frozen::FrozenRegister,
    register::{Event, PowerCut, Register, Span},
};
use array::volume::{Bounds, Rates};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// A snapshot over a whole run, of one or more volumes; never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CutKey(pub u32);

/// Whether something is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Asked for, and not answered.
    Making,
    /// It is there.
    There,
    /// Its deletion was asked for, and not answered.
    Deleting,
    /// It is gone.
    Gone,
}

impl Presence {
    /// Whether a pool that was just opened may, and whether it must have it.
    pub fn may_and_must_be(self) -> (bool, bool) {
        match self {
            Self::Making | Self::Deleting => (true, false),
            Self::There => (true, true),
            Self::Gone => (false, false),
        }
    }
}

/// A change of size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resizing {
    /// To so many sectors.
    pub sectors: u64,
    /// Under this number zeroes come behind the end.
    pub operation: OperationNumber,
}

/// What a volume may have in a second, take of the pool, and always take of it.
pub type Terms = (Rates, Bounds);

/// A volume.
#[derive(Clone, Debug)]
pub struct VolumeModel {
    /// Whether it is there.
    pub presence: Presence,
    /// Its name.
    pub name: String,
    /// Its name if a change that is under way has happened.
    pub new_name: Option<String>,
    /// Its size.
    pub sectors: u64,
    /// Its size if a change that is under way has happened.
    pub resizing: Option<Resizing>,
    /// Changes of size that were begun.
    pub resizes: u64,
    /// When it last became smaller.
    pub cleared_at: Event,
    /// It has a write cache, as far as is known: perhaps it has.
    pub is_cached: bool,
    /// Changes of that which were begun.
    pub switches: u64,
    /// What it may have and take.
    pub terms: Terms,
    /// The same if a change that is under way has happened.
    pub new_terms: Option<Terms>,
    /// A snapshot was begun: it may keep what writes that are under way were let in to replace.
    pub was_cut: bool,
    /// The largest limit it may ever have had, in bytes; none: it may have had none.
    pub limit_most: Option<u64>,
    /// A change of the catalogue is under way for it.
    pub is_busy: bool,
    /// Where hosts write, first sectors of spans of `window_sectors`.
    pub windows: Vec<u64>,
    /// What its sectors may hold.
    pub register: Register,
}

/// A snapshot of several volumes.
#[derive(Clone, Debug)]
pub struct Cut {
    /// Its name.
    pub name: String,
    /// When it was asked for.
    pub begun: Event,
    /// The snapshots of single volumes.
    pub parts: BTreeMap<VolumeKey, CutPart>,
    /// It is known to lie at one moment.
    pub is_checked: bool,
}

/// A snapshot of one volume.
#[derive(Clone, Debug)]
pub struct CutPart {
    /// Whether it is there.
    pub presence: Presence,
    /// What the volume had.
    pub sectors: u64,
    /// What it may show; none until the cut is answered, or its incarnation over.
    pub register: Option<FrozenRegister>,
}

/// What was begun and answered in one run.
#[derive(Default)]
pub struct Model {
    now: Event,
    operation_last: u32,
    volume_last: u32,
    cut_last: u32,
    /// All volumes there ever were.
    pub volumes: BTreeMap<VolumeKey, VolumeModel>,
    /// All snapshots that may be there.
    pub cuts: BTreeMap<CutKey, Cut>,
    /// Beginnings of reads and cuts that are under way.
    looking: BTreeSet<Event>,
    /// Where operations wrote, by number from 1 on.
    written: Vec<(VolumeKey, Range<u64>)>,
    /// Some volume had a limit or a reserve, or was to have one: writes may be refused for it.
    pub is_bounded: bool,
    /// The last power cut, and whether the pool was opened since.
    power_cut: Option<(PowerCut, bool)>,
}

impl Model {
    /// Something happens now.
    pub fn tick(&mut self) -> Event {
        self.now += 1;
        self.now
    }

    /// A look that nobody in the run sees: it moves no event.
    pub fn look_from_outside(&self) -> Span {
        Span { begun: self.now + 1, ended: self.now + 2 }
    }

    /// Someone begins to look.
    pub fn begin_look(&mut self) -> Event {
        let begun = self.tick();
        self.looking.insert(begun);
        begun
    }

    /// And is done. Whether nobody else looks now.
    pub fn end_look(&mut self, begun: Event) -> (Span, bool) {
        assert!(self.looking.remove(&begun), "who ends has begun");
        (Span { begun, ended: self.tick() }, self.looking.is_empty())
    }

    /// A new operation on a range of a volume.
    pub fn next_operation(&mut self, volume: VolumeKey, sectors: Range<u64>) -> OperationNumber {
        self.operation_last += 1;
        self.written.push((volume, sectors));
        OperationNumber(self.operation_last)
    }

    /// Whether an operation ever was to write this sector.
    pub fn has_written(&self, operation: OperationNumber, volume: VolumeKey, sector: u64) -> bool {
        let place = self.written.get(operation.0 as usize - 1);
        place.is_some_and(|(written, sectors)| *written == volume && sectors.contains(&sector))
    }

    /// A number for a volume that is about to be made.
    pub fn next_volume(&mut self) -> VolumeKey {
        self.volume_last += 1;
        VolumeKey(self.volume_last)
    }

    /// A volume that is, or was, there.
    pub fn volume(&mut self, key: VolumeKey) -> &mut VolumeModel {
        self.volumes.get_mut(&key).expect("volumes of the model stay")
    }

    /// Volumes hosts may use.
    pub fn usable(&self) -> Vec<VolumeKey> {
        let there = self.volumes.iter().filter(|(_, volume)| volume.presence == Presence::There);
        there.map(|(&key, _)| key).collect()
    }

    /// Volumes of which no change is under way.
    pub fn idle(&self) -> Vec<VolumeKey> {
        self.usable().into_iter().filter(|key| !self.volumes[key].is_busy).collect()
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

    /// Hosts begin to write.
    pub fn begin_write(&mut self, volume: VolumeKey, sectors: Range<u64>) -> OperationNumber {
        let operation = self.next_operation(volume, sectors.clone());
        let now = self.tick();
        let horizon = self.looking.first().copied().unwrap_or(now);
        self.volume(volume).register.begin_write(sectors, operation, now, horizon);
        operation
    }

    /// Hosts begin to discard; of `sectors` only whole blocks are in it.
    pub fn begin_discard(&mut self, volume: VolumeKey, sectors: Range<u64>) -> OperationNumber {
        let operation = self.next_operation(volume, sectors.clone());
        let now = self.tick();
        self.volume(volume).register.begin_zeroes(sectors, operation, now);
        operation
    }

    /// A write or discard was answered.
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
        // There is no such place any more: it was written before the volume became smaller, and is gone.
        let beyond = sectors.start.max(end)..sectors.end;
        if beyond.end > beyond.start {
            volume.register.acknowledge(beyond, operation, volume.cleared_at - 1, is_stable);
        }
    }

    /// Something that began then is stable: so is all that was over before.
    pub fn is_stable_until(&mut self, begun: Event) {
        for volume in self.volumes.values_mut() {
            volume.register.is_stable_until(begun);
        }
    }

    /// Power was cut.
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

    /// What a read shows of the last power cut: the end of the log is gone, and nothing else.
    pub fn learn(&mut self, volume: VolumeKey, sector: u64, found: Content, span: Span) -> PowerCut {
        let Some((cut, _)) = &mut self.power_cut else { return PowerCut::new(0) };
        let volume = self.volumes.get(&volume).expect("volumes of the model stay");
        volume.register.learn(sector, found, span, cut);
        *cut
    }

    /// A cut of these volumes is asked for.
    pub fn begin_cut(&mut self, volumes: &[VolumeKey]) -> CutKey {
        let begun = self.begin_look();
        self.cut_last += 1;
        let key = CutKey(self.cut_last);
        let parts = volumes.iter().map(|&volume| {
            let model = self.volumes.get_mut(&volume).expect("it is there");
            (model.is_busy, model.was_cut) = (true, true);
            (volume, CutPart { presence: Presence::Making, sectors: model.sectors, register: None })
        });
        let cut = Cut { name: format!("cut {}", key.0), begun, parts: parts.collect(), is_checked: false };
        self.cuts.insert(key, cut);
        key
    }

    /// A cut is over, however it ended: what it may show is what was begun by now.
    pub fn end_cut(&mut self, key: CutKey, is_there: bool) {
        let cut = self.cuts.get_mut(&key).expect("a cut that ends was begun");
        let begun = cut.begun;
        self.looking.remove(&begun);
        self.now += 1;
        let span = Span { begun: cut.begun, ended: self.now };
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

    /// Everybody is gone, whatever they waited for.
    pub fn end_incarnation(&mut self) {
        let unanswered: Vec<CutKey> = self
            .cuts
            .iter()
            .filter(|(_, cut)| cut.parts.values().any(|part| part.register.is_none()))
            .map(|(&key, _)| key)
            .collect();
        unanswered.into_iter().for_each(|key| self.end_cut(key, false));
        self.looking.clear();
    }

    /// The pool was opened again.
    pub fn settle(&mut self) {
        let now = self.tick();
        for volume in self.volumes.values_mut() {
            volume.register.settle(now);
            // What was found is in the trees, or in a log that was made stable.
            volume.register.is_stable_until(now);
        }
        if let Some((_, was_opened)) = &mut self.power_cut {
            *was_opened = true;
        }
    }
}

impl VolumeModel {
    /// One that is about to be made.
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
            terms: Terms::default(),
            new_terms: None,
            was_cut: false,
            limit_most: None,
            is_busy: true,
            windows,
            register: Register::default(),
        }
    }

    /// It was made, or is to be, with these.
    pub fn with_terms(self, terms: Terms) -> Self {
        let limit = terms.1.limit_bytes;
        Self { terms, limit_most: (limit > 0).then_some(limit), ..self }
    }

    /// These are asked for.
    pub fn begin_terms(&mut self, terms: Terms) {
        self.new_terms = Some(terms);
        self.limit_most = match (self.limit_most, terms.1.limit_bytes) {
            (Some(most), limit) if limit > 0 => Some(most.max(limit)),
            _ => None,
        };
    }

    /// It has so many sectors from now on.
    pub fn has_size(&mut self, resizing: Resizing, now: Event) {
        self.resizing = None;
        if resizing.sectors < self.sectors {
            self.register.acknowledge(resizing.sectors..self.sectors, resizing.operation, now, true);
            self.register.clear_from(resizing.sectors, now);
            self.cleared_at = now;
        }
        self.sectors = resizing.sectors;
    }

    /// A change of size has turned out not to have happened.
    pub fn keeps_size(&mut self) {
        if let Some(resizing) = self.resizing.take() {
            self.register.withdraw(resizing.sectors..self.sectors.max(resizing.sectors), resizing.operation);
        }
    }

    /// What it has in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.sectors * SECTOR_BYTES as u64
    }
}

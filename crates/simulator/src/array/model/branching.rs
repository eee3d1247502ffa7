//! The model of clones and rollbacks.
//!
//! A clone begins with the contents that its cut may show, and goes its own way. A rollback gives the volume
//! such a register, and the old one to the volume that it leaves; until it is acknowledged both states are
//! possible.

use super::{
    super::{
        content::VolumeKey,
        register::{Interval, Register},
    },
    CutKey, LineKey, Model, PendingRollback, Presence, VolumeModel,
};
use array::{format::row::WithheldClient, volume::Bounds};
use std::collections::BTreeSet;

/// The state that a volume is rolled back to.
#[derive(Clone, Copy, Debug)]
pub enum EarlierState {
    /// A snapshot of it.
    Cut(CutKey),
    /// The volume that an earlier rollback left.
    Left(VolumeKey),
    /// Another volume, as it is now.
    Volume(VolumeKey),
}

impl EarlierState {
    /// The volume that ends with the rollback.
    pub fn ended(self) -> Option<VolumeKey> {
        match self {
            Self::Cut(_) => None,
            Self::Left(ended) | Self::Volume(ended) => Some(ended),
        }
    }
}

impl Model {
    /// Begins a clone of a snapshot of a volume, or of the volume as it is now.
    pub fn begin_clone(&mut self, source: VolumeKey, cut: Option<CutKey>, name: String) -> VolumeKey {
        let begun = if cut.is_some() { self.tick() } else { self.begin_look() };
        let key = self.next_volume();
        let parent = self.volume(source);
        parent.is_busy = true;
        parent.was_cut |= cut.is_none();
        let rates = parent.terms.0;
        let mut clone = VolumeModel {
            is_cached: parent.is_cached,
            writers: parent.writers.clone(),
            ..VolumeModel::new(name, parent.sectors, parent.windows.clone())
        };
        clone.terms = (rates, Bounds::default());
        match cut {
            Some(cut) => {
                let part = &self.cuts[&cut].parts[&source];
                clone.sectors = part.sectors;
                clone.register = part.register.as_ref().expect("it is there").fork(begun);
            }
            None => clone.forking = Some((source, begun)),
        }
        self.add_volume(key, clone);
        key
    }

    /// Ends a clone, with or without success.
    pub fn end_clone(&mut self, key: VolumeKey, source: VolumeKey, presence: Presence) {
        if let Some((source, begun)) = self.volume(key).forking.take() {
            self.looking.remove(&begun);
            let span = Interval { begun, ended: self.tick() };
            let sectors = self.volumes[&key].sectors;
            let register = self.volumes[&source].register.freeze(sectors, span).fork(begun);
            self.volume(key).register = register;
            if presence == Presence::There {
                self.is_stable_until(begun);
            }
        }
        let clone = self.volume(key);
        (clone.presence, clone.is_busy) = (presence, presence == Presence::Making);
        self.volume(source).is_busy = presence == Presence::Making;
    }

    /// Begins a rollback of a volume without commands in flight, to a snapshot or to what an earlier one
    /// left, which withholds it from clients. Returns the key of what it leaves.
    pub fn begin_rollback(
        &mut self,
        key: VolumeKey,
        to: EarlierState,
        withheld: BTreeSet<WithheldClient>,
    ) -> VolumeKey {
        let begun = self.tick();
        let (sectors, register, line, ends) = match to {
            EarlierState::Cut(cut) => {
                let part = &self.cuts[&cut].parts[&key];
                let register = part.register.as_ref().expect("it is there").fork(begun);
                (part.sectors, register, self.next_line(), None)
            }
            EarlierState::Left(ended) | EarlierState::Volume(ended) => {
                let model = &self.volumes[&ended];
                assert_eq!(model.commands, 0, "commands would take effect before or after");
                (model.sectors, model.register.clone(), model.line, Some(ended))
            }
        };
        let left = self.next_volume();
        let writers = ends.map(|ends| self.volumes[&ends].writers.clone()).unwrap_or_default();
        let volume = self.volume(key);
        assert_eq!(volume.commands, 0, "commands would take effect before or after");
        volume.writers.extend(writers);
        volume.rolling = Some(PendingRollback { left, ends, sectors, line, register, withheld });
        let model = VolumeModel {
            presence: Presence::Making,
            left_by: Some(key),
            writers: volume.writers.clone(),
            line: volume.line,
            register: volume.register.clone(),
            was_cut: true,
            ..VolumeModel::new(String::new(), volume.sectors, volume.windows.clone())
        };
        self.volumes.insert(left, model);
        if let Some(ends) = ends {
            self.volume(ends).presence = Presence::Deleting;
        }
        left
    }

    /// Ends a rollback that has happened, or has not.
    pub fn end_rollback(&mut self, key: VolumeKey, left_name: Option<String>) {
        let now = self.tick();
        let volume = self.volume(key);
        let Some(rolling) = volume.rolling.take() else { return };
        let has_happened = left_name.is_some();
        (volume.is_busy, volume.is_held) = (false, false);
        if has_happened {
            volume.sectors = rolling.sectors;
            volume.register = rolling.register;
            volume.line = rolling.line;
            volume.resizes += 1;
            volume.cleared_at = now;
            volume.was_cut = true;
            volume.withheld.extend(rolling.withheld);
        }
        let left = self.volume(rolling.left);
        left.is_busy = false;
        left.presence = if has_happened { Presence::There } else { Presence::Gone };
        left.name = left_name.unwrap_or_default();
        if let Some(ends) = rolling.ends {
            let ends = self.volume(ends);
            ends.presence = if has_happened { Presence::Gone } else { Presence::There };
            ends.is_busy = false;
        }
    }

    /// The register of a branch, if a volume still has it.
    pub fn register_of(&mut self, line: LineKey) -> Option<&mut Register> {
        let mut volumes = self.volumes.values_mut().filter(|volume| volume.presence != Presence::Gone);
        volumes.find(|volume| volume.line == line).map(|volume| &mut volume.register)
    }

    /// Volumes that hosts may write.
    pub fn writable(&self) -> Vec<VolumeKey> {
        let mut usable = self.usable();
        usable.retain(|key| self.volumes[key].left_by.is_none());
        usable
    }

    /// Volumes left by rollbacks, without a change in flight.
    pub fn left(&self) -> Vec<VolumeKey> {
        let mut left = self.usable();
        left.retain(|key| self.volumes[key].left_by.is_some() && !self.volumes[key].is_busy);
        left
    }

    /// Numbers a volume about to be created.
    pub fn next_volume(&mut self) -> VolumeKey {
        self.volume_last += 1;
        VolumeKey(self.volume_last)
    }

    /// A volume that exists or existed.
    pub fn volume(&mut self, key: VolumeKey) -> &mut VolumeModel {
        self.volumes.get_mut(&key).expect("volumes of the model stay")
    }
}

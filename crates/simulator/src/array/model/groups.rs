//! The model of consistency groups: they have all their volumes, or are not there.

use super::{
    super::{content::VolumeKey, fixture::volume_id},
    CutKey, Model, Presence,
};
use array::format::{GroupId, VolumeId, row::IdSeed};
use std::collections::BTreeSet;

/// Number of a group, unique in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupModelKey(pub u32);

#[derive(Clone, Debug)]
pub struct GroupModel {
    pub presence: Presence,
    pub name: String,
    pub members: BTreeSet<VolumeKey>,
}

impl GroupModelKey {
    pub fn id(self) -> GroupId {
        GroupId((u128::from(self.0) | 11 << 64).to_be_bytes())
    }

    pub fn of(id: GroupId) -> Self {
        Self(u128::from_be_bytes(id.0) as u32)
    }
}

impl Model {
    /// Begins to make a group.
    pub fn begin_group(&mut self, members: &[VolumeKey]) -> GroupModelKey {
        self.group_last += 1;
        let key = GroupModelKey(self.group_last);
        let group = GroupModel {
            presence: Presence::Making,
            name: format!("group {}", key.0),
            members: members.iter().copied().collect(),
        };
        self.groups.insert(key, group);
        self.set_busy(members, true);
        key
    }

    /// Begins to delete a group.
    pub fn begin_ungrouping(&mut self, key: GroupModelKey) {
        let group = self.groups.get_mut(&key).expect("it is there");
        group.presence = Presence::Deleting;
        let members: Vec<VolumeKey> = group.members.iter().copied().collect();
        self.set_busy(&members, true);
    }

    /// A group is there now, or is not.
    pub fn end_group(&mut self, key: GroupModelKey, is_there: bool) {
        let group = self.groups.get_mut(&key).expect("it was begun");
        group.presence = if is_there { Presence::There } else { Presence::Gone };
        let members: Vec<VolumeKey> = group.members.iter().copied().collect();
        self.set_busy(&members, false);
        if !is_there {
            self.groups.remove(&key);
            self.cuts.values_mut().filter(|cut| cut.group == Some(key)).for_each(|cut| cut.group = None);
        }
    }

    pub fn set_busy(&mut self, volumes: &[VolumeKey], is_busy: bool) {
        volumes.iter().for_each(|&key| self.volume(key).is_busy = is_busy);
    }

    /// The group that a volume is in, or may be in.
    pub fn group_of(&self, volume: VolumeKey) -> Option<GroupModelKey> {
        let mut groups = self.groups.iter().filter(|(_, group)| group.members.contains(&volume));
        groups.next().map(|(&key, _)| key)
    }

    /// Groups without a change in flight for any of their volumes.
    pub fn idle_groups(&self) -> Vec<GroupModelKey> {
        let idle = self.idle();
        let groups = self.groups.iter().filter(|(_, group)| group.presence == Presence::There);
        groups
            .filter(|(_, group)| group.members.iter().all(|member| idle.contains(member)))
            .map(|(&key, _)| key)
            .collect()
    }

    /// Snapshots of groups without a change in flight.
    pub fn idle_group_cuts(&self) -> Vec<(GroupModelKey, CutKey)> {
        let idle = self.idle_groups();
        let cuts = self.cuts.iter().filter_map(|(&key, cut)| Some((cut.group?, key, cut)));
        cuts.filter(|(group, _, cut)| {
            idle.contains(group) && cut.parts.values().all(|part| part.presence == Presence::There)
        })
        .map(|(group, key, _)| (group, key))
        .collect()
    }

    /// Begins an operation on a group that makes a volume of each member: all of them, or none.
    pub fn begin_making(&mut self, seed: IdSeed, made: &[(VolumeKey, VolumeKey)]) {
        for &(made, member) in made {
            let id = seed.volume_of(self.id_of(member));
            self.derived.insert(made, id);
        }
        self.made_together.push(made.iter().map(|&(made, _)| made).collect());
    }

    /// The last operation has an answer: all of its volumes are there, or none.
    pub fn end_making(&mut self) {
        self.made_together.pop().expect("it was begun");
    }

    /// The identity of a volume.
    pub fn id_of(&self, key: VolumeKey) -> VolumeId {
        self.derived.get(&key).copied().unwrap_or_else(|| volume_id(key))
    }

    /// The volume of an identity; a number that no volume has if it is unknown.
    pub fn key_of(&self, id: VolumeId) -> VolumeKey {
        let mut all = self.volumes.keys().copied();
        all.find(|&key| self.id_of(key) == id).unwrap_or(VolumeKey(u32::MAX))
    }
}

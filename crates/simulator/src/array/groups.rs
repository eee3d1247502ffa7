//! The administrator's groups: made, deleted, cut, cloned and rolled back as one.

use super::{
    administrator::Administrator,
    content::VolumeKey,
    fixture::snapshot_id,
    model::{CutKey, EarlierState, GroupModelKey, Presence},
    violation::{PoolRefusal, PoolRunError, PoolViolation},
};
use array::{
    error::Error,
    format::row::IdSeed,
    pool::{GroupMemberChange, NewGroup, NewGroupClone, NewSnapshot},
};
use std::{collections::BTreeSet, rc::Rc, time::Duration};
use world::World;

/// Number of volumes that operations on groups may lead to, at most.
const ALL_VOLUMES_MAX: usize = 14;

impl Administrator {
    /// Makes or deletes a group, or takes, deletes, clones, or rolls back to a snapshot of one.
    pub(super) async fn change_groups(&mut self, world: &World) -> Result<(), PoolRunError> {
        let (groups, cuts) = {
            let model = self.fixture.model.borrow();
            (model.idle_groups(), model.idle_group_cuts())
        };
        let (group, cut) = (self.pick(&groups), self.pick(&cuts));
        match (self.random.below(20), group, cut) {
            (0, Some(group), _) => self.delete_group(group).await,
            (1..=2, _, Some(cut)) => self.delete_group_snapshot(cut).await,
            (3..=6, _, Some(cut)) => self.clone_group(world, cut).await,
            (7..=10, _, Some(cut)) => self.roll_back_group(world, cut).await,
            (11, _, Some(cut)) => self.break_group(cut).await,
            (12..=16, Some(group), _) => self.snapshot_group(world, group).await,
            (_, None, _) | (17..=18, ..) => self.create_group().await,
            (_, Some(group), _) => self.snapshot_group(world, group).await,
        }
    }

    fn members_of(&self, group: GroupModelKey) -> Vec<VolumeKey> {
        self.fixture.model.borrow().groups[&group].members.iter().copied().collect()
    }

    fn group_name(&self, group: GroupModelKey) -> String {
        self.fixture.model.borrow().groups[&group].name.clone()
    }

    fn cut_name(&self, cut: CutKey) -> String {
        self.fixture.model.borrow().cuts[&cut].name.clone()
    }

    async fn create_group(&mut self) -> Result<(), PoolRunError> {
        let mut members = self.fixture.model.borrow().idle();
        members.retain(|&key| self.fixture.model.borrow().group_of(key).is_none());
        let percent = [100.0, 70.0][self.random.below(2) as usize];
        let random = &mut self.random;
        members.retain(|_| random.percent(percent));
        if members.is_empty() {
            return Ok(());
        }
        let key = self.fixture.model.borrow_mut().begin_group(&members);
        let new = NewGroup { name: self.group_name(key), group: key.id(), pools: Vec::new() };
        let names: Vec<String> = members.iter().map(|&key| self.name_of(key)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let made = self.pool.create_group(&new, &names).await;
        made.map_err(|error| PoolRefusal::of_pool("making a group", &error))?;
        self.fixture.model.borrow_mut().end_group(key, true);
        self.fixture.tally.borrow_mut().groups += 1;
        Ok(())
    }

    async fn delete_group(&mut self, group: GroupModelKey) -> Result<(), PoolRunError> {
        self.fixture.model.borrow_mut().begin_ungrouping(group);
        let deleted = self.pool.delete_group(group.id()).await;
        deleted.map_err(|error| PoolRefusal::in_reserve("deleting a group", &error))?;
        self.fixture.model.borrow_mut().end_group(group, false);
        self.fixture.tally.borrow_mut().groups_deleted += 1;
        Ok(())
    }

    async fn snapshot_group(&mut self, world: &World, group: GroupModelKey) -> Result<(), PoolRunError> {
        let members = self.members_of(group);
        let has_note = self.fixture.plan.notes && self.random.percent(50.0);
        let (cut, note) = {
            let mut model = self.fixture.model.borrow_mut();
            let cut = model.begin_cut(&members, has_note);
            let model_cut = model.cuts.get_mut(&cut).expect("it was begun");
            model_cut.group = Some(group);
            (cut, model_cut.note.clone())
        };
        let (group_name, name) = (self.group_name(group), self.cut_name(cut));
        let new = NewSnapshot { name: &name, snapshot: snapshot_id(cut), note: &note };
        self.end_in_the_middle(world);
        let made = self.pool.snapshot_group(&group_name, &new).await;
        self.fixture.model.borrow_mut().end_cut(cut, made.is_ok());
        made.map_err(|error| PoolRefusal::of_pool("taking a snapshot of a group", &error))?;
        let mut tally = self.fixture.tally.borrow_mut();
        tally.snapshots += members.len() as u64;
        tally.group_snapshots += 1;
        Ok(())
    }

    async fn delete_group_snapshot(
        &mut self,
        (group, cut): (GroupModelKey, CutKey),
    ) -> Result<(), PoolRunError> {
        let members = self.members_of(group);
        {
            let mut model = self.fixture.model.borrow_mut();
            model.set_busy(&members, true);
            let parts = &mut model.cuts.get_mut(&cut).expect("it is there").parts;
            parts.values_mut().for_each(|part| part.presence = Presence::Deleting);
        }
        let (group_name, name) = (self.group_name(group), self.cut_name(cut));
        let deleted = self.pool.delete_group_snapshot(&group_name, &name).await;
        deleted.map_err(|error| PoolRefusal::in_reserve("deleting a snapshot of a group", &error))?;
        let mut model = self.fixture.model.borrow_mut();
        model.set_busy(&members, false);
        model.cuts.remove(&cut);
        self.fixture.tally.borrow_mut().group_snapshots_deleted += 1;
        Ok(())
    }

    async fn clone_group(
        &mut self,
        world: &World,
        (group, cut): (GroupModelKey, CutKey),
    ) -> Result<(), PoolRunError> {
        let members = self.members_of(group);
        if self.fixture.model.borrow().usable().len() + members.len() > ALL_VOLUMES_MAX {
            return Ok(());
        }
        let suffix = format!(" clone {:x}", self.random.next_u64());
        let seed = self.draw_seed();
        let is_independent = self.fixture.plan.fills && self.random.percent(40.0);
        let clones: Vec<(VolumeKey, VolumeKey)> = {
            let mut model = self.fixture.model.borrow_mut();
            let mut begin = |&member: &VolumeKey| {
                let name = format!("{}{suffix}", model.volume(member).name);
                let clone = model.begin_clone(member, Some(cut), name);
                (clone, member)
            };
            let clones: Vec<_> = members.iter().map(&mut begin).collect();
            model.begin_making(seed, &clones);
            clones
        };
        let (group_name, name) = (self.group_name(group), self.cut_name(cut));
        let new = NewGroupClone { suffix, seed, is_independent };
        self.end_in_the_middle(world);
        let cloned = self.pool.clone_group(&group_name, &name, &new).await;
        let presence = match &cloned {
            Ok(_) => Presence::There,
            Err(Error::TooDeep(_) | Error::BadName(_)) => Presence::Gone,
            Err(_) => Presence::Making,
        };
        let mut model = self.fixture.model.borrow_mut();
        clones.iter().for_each(|&(clone, member)| model.end_clone(clone, member, presence));
        match cloned {
            Ok(_) => self.fixture.tally.borrow_mut().group_clones += 1,
            Err(Error::TooDeep(_) | Error::BadName(_)) => {}
            Err(error) => return Err(PoolRefusal::of_pool("cloning a group", &error).into()),
        }
        model.end_making();
        Ok(())
    }

    async fn roll_back_group(
        &mut self,
        world: &World,
        (group, cut): (GroupModelKey, CutKey),
    ) -> Result<(), PoolRunError> {
        let members = self.members_of(group);
        if self.fixture.model.borrow().usable().len() + members.len() > ALL_VOLUMES_MAX {
            return Ok(());
        }
        // A command that the pool stopped waiting for may go on.
        if self.fixture.has_shortage() || !self.hold(world, &members).await {
            return Ok(());
        }
        let seed = self.draw_seed();
        {
            let mut model = self.fixture.model.borrow_mut();
            let mut begin = |&member: &VolumeKey| {
                (model.begin_rollback(member, EarlierState::Cut(cut), BTreeSet::new()), member)
            };
            let lefts: Vec<_> = members.iter().map(&mut begin).collect();
            model.begin_making(seed, &lefts);
        }
        let is_forced = self.random.percent(50.0);
        let begun = self.fixture.model.borrow_mut().tick();
        let (group_name, name) = (self.group_name(group), self.cut_name(cut));
        self.end_in_the_middle(world);
        let rolled_back = self.pool.roll_back_group(&group_name, &name, seed, is_forced).await;
        let mut model = self.fixture.model.borrow_mut();
        match rolled_back {
            Ok(changes) => {
                for &member in &members {
                    let name = model.volume(member).name.clone();
                    let is_its = |change: &&GroupMemberChange| change.volume == name;
                    let Some(change) = changes.iter().find(is_its) else {
                        let what = format!("a rollback of {group_name} without {name}");
                        return Err(PoolViolation::Catalogue(what).into());
                    };
                    model.end_rollback(member, Some(change.made.clone()));
                }
                model.is_stable_until(begun);
                self.fixture.tally.borrow_mut().group_rollbacks += 1;
            }
            Err(Error::TooDeep(_) | Error::VolumeInUse(_)) => {
                members.iter().for_each(|&member| model.end_rollback(member, None));
            }
            Err(error) => return Err(PoolRefusal::of_pool("rolling a group back", &error).into()),
        }
        model.end_making();
        Ok(())
    }

    /// Tries to take something out of a group, which is refused.
    async fn break_group(&mut self, (group, cut): (GroupModelKey, CutKey)) -> Result<(), PoolRunError> {
        let members = self.members_of(group);
        let member = members[self.random.below(members.len() as u64) as usize];
        let (volume, name) = (self.name_of(member), self.cut_name(cut));
        self.fixture.model.borrow_mut().set_busy(&members, true);
        let tried = [
            ("deleting a volume of a group", self.pool.delete_volume(&volume, true).await),
            ("deleting a part of a group's snapshot", self.pool.delete_snapshot(&volume, &name).await),
        ];
        self.fixture.model.borrow_mut().set_busy(&members, false);
        for (what, tried) in tried {
            match tried {
                Err(Error::InGroup { .. } | Error::PartOfGroupSnapshot { .. }) => {}
                Err(error) => return Err(PoolRefusal::of_pool(what, &error).into()),
                Ok(()) => return Err(PoolViolation::NotRefused(what.to_owned()).into()),
            }
        }
        Ok(())
    }

    /// Ends some incarnations soon: an operation takes a few writes, which random crashes seldom hit.
    fn end_in_the_middle(&mut self, world: &World) {
        if !self.fixture.early_end.is_allowed() || !self.random.percent(25.0) {
            return;
        }
        let after = Duration::from_micros(1 << self.random.below(15));
        let (own, early_end) = (world.clone(), Rc::clone(&self.fixture.early_end));
        world.spawn("early end", async move {
            own.sleep(after).await;
            early_end.end();
        });
    }

    fn draw_seed(&mut self) -> IdSeed {
        let (low, high) = (self.random.next_u64(), self.random.next_u64());
        IdSeed((u128::from(low) | u128::from(high) << 64).to_le_bytes())
    }
}

//! Drives that leave: which members new data is placed on, and departures.
//!
//! A leaving drive is read and written like any other, and gets new data only while too few others are there
//! ([`Drives::members_for_new_data`]). A departing one holds nothing, and gets superblocks until all know that
//! it has no vote ([`Drives::let_depart`]).

use super::Drives;
use crate::{
    format::{MemberIndex, MemberState, Superblock},
    redundancy::{FailureDomains, FailureSets},
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes},
    },
};
use std::{collections::BTreeSet, rc::Rc};
use world::BlockDevice;

impl Drives {
    /// Members that new slots may be placed on: all with space, and leaving ones only if the others are fewer
    /// than the copies of everything.
    pub fn members_for_new_data(&self) -> Vec<MemberIndex> {
        let with_space = self.members_with_space();
        let leaving = self.leaving.borrow();
        if leaving.is_empty() {
            return with_space;
        }
        let staying: Vec<_> = with_space.iter().copied().filter(|member| !leaving.contains(member)).collect();
        let are_enough = staying.len() >= self.copies_wanted_most();
        sometimes::reached_if(!are_enough, Sometimes::LeavingDriveUsed);
        if are_enough { staying } else { with_space }
    }

    /// Members whose slots count as room: as [`Self::members_for_new_data`], whether they have space or not.
    pub fn members_with_room(&self) -> Vec<MemberIndex> {
        let staying = self.staying_members();
        if staying.len() >= self.copies_wanted_most() { staying } else { self.members() }
    }

    /// Members that are present and stay.
    pub fn staying_members(&self) -> Vec<MemberIndex> {
        let leaving = self.leaving.borrow();
        self.members().into_iter().filter(|member| !leaving.contains(member)).collect()
    }

    /// Members that are present and leave.
    pub fn leaving_members(&self) -> Vec<MemberIndex> {
        self.leaving.borrow().iter().copied().collect()
    }

    /// True if a member is present and leaves.
    pub fn is_leaving(&self, member: MemberIndex) -> bool {
        self.leaving.borrow().contains(&member)
    }

    /// Adopts from a superblock which members leave, and the domains and sets of all. To be called with each superblock that
    /// is written.
    pub fn follow(&self, superblock: &Superblock) {
        let is_leaving = |member: &MemberIndex| {
            let state = superblock.members[usize::from(member.0)].state;
            state == MemberState::Leaving
                || canary::is(Canary::VoteGivenUpFirst) && state == MemberState::Missing
        };
        let leaving: BTreeSet<_> = self.members().into_iter().filter(is_leaving).collect();
        if *self.leaving.borrow() != leaving {
            *self.leaving.borrow_mut() = leaving;
            self.change();
        }
        let domains = FailureDomains::of(&superblock.members);
        if **self.domains.borrow() != domains {
            *self.domains.borrow_mut() = Rc::new(domains);
            self.change();
        }
        let sets = FailureSets::of(&superblock.members);
        if **self.sets.borrow() != sets {
            *self.sets.borrow_mut() = Rc::new(sets);
            self.change();
        }
    }

    /// Takes a leaving drive on which nothing lies from the members. It still gets superblocks, until
    /// [`Self::end_departures`].
    pub fn begin_departure(&self, member: MemberIndex) {
        let device = self.writable.borrow_mut().remove(&member).expect("a leaving drive is there");
        self.leaving.borrow_mut().remove(&member);
        self.out_of_space.borrow_mut().remove(&member);
        self.let_depart(member, device);
    }

    /// Adds a drive that has no vote any more, which others may not know.
    pub fn let_depart(&self, member: MemberIndex, device: Rc<dyn BlockDevice>) {
        assert!(!self.has(member), "member {member} is none any more");
        self.departing.borrow_mut().insert(member, device);
        self.change();
    }

    /// Members that depart.
    pub fn departing_members(&self) -> BTreeSet<MemberIndex> {
        self.departing.borrow().keys().copied().collect()
    }

    /// Lets go of the departing drives, once all superblocks say that they have no vote. Nothing is written to
    /// them from now on. Returns them.
    pub fn end_departures(&self) -> Vec<MemberIndex> {
        self.departing.take().into_keys().collect()
    }
}

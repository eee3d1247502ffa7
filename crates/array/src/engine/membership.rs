//! Superblocks of a running pool: each generation is derived from the previous one and written to every
//! present member.
//!
//! The next generation leaves out a failed drive; nothing that relied on that drive is acknowledged before
//! the generation is complete. The generation after it states that it was complete: from then on the drive
//! has no vote (`docs/format.md`, "Continuing after a loss"). If the drive may have the last copy of
//! anything, it is not left out: the pool stops, and the next opening finds everything on the drives. A drive
//! that only lacks space is never left out.

use super::{Phase, Shared, events::EventKind};
use crate::{
    drive::WriteFailures,
    election::can_go_on_as_of,
    error::{Error, Result},
    failure_sets::assign_sets,
    format::{
        Generation, GenerationMark, Member, MemberIndex, MemberState, SlotAddress, Superblock,
        row::SegmentRow,
    },
    member_table::{MemberChange, must_settle, next_generation},
    redundancy::SegmentLayout,
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes, UnderWay},
    },
    superblocks::write_generation,
};
use std::{collections::BTreeSet, time::Duration};
use world::{BoxedFuture, IoError, World};

/// Interval of checks for space.
const LOOK_FOR_SPACE: Duration = Duration::from_millis(200);

impl Shared {
    /// Handles drives that failed to write. Those that only lack space stay members, but get no new segments;
    /// the others are removed as by [`Self::lose`].
    ///
    /// # Errors
    ///
    /// As [`Self::lose`].
    pub async fn failed_to_write(&self, failures: WriteFailures) -> Result<()> {
        let failed = self.drives.set_aside_out_of_space(failures);
        self.note_drive_change();
        if failed.is_empty() { Ok(()) } else { self.lose(failed).await }
    }

    /// Removes failed drives. Returns when every remaining drive has the new superblock.
    ///
    /// # Errors
    ///
    /// Some data has copies only on those drives, or too few drives remain; the pool has stopped.
    pub fn lose(&self, failures: WriteFailures) -> BoxedFuture<'_, Result<()>> {
        Box::pin(self.remove_failed(failures))
    }

    async fn remove_failed(&self, failures: WriteFailures) -> Result<()> {
        self.check_copies_elsewhere(&failures)?;
        for (member, error) in &failures {
            sometimes::reached_if(self.drives.has(*member), Sometimes::DriveLost);
            self.lose_now(*member, error.clone());
        }
        let under_way = UnderWay::begin(Sometimes::CutWhileLosing);
        let published = self.publish(|_| ()).await;
        under_way.end();
        published
    }

    /// Treats the drive as absent; the next generation leaves it out.
    fn lose_now(&self, member: MemberIndex, error: IoError) {
        self.drives.lose(member);
        self.absences.note_loss(member, error.kind(), self.world.now());
        self.note_drive_change();
        self.events.report_loss(self.drive_name(member), error);
    }

    /// From now on, waits for drives that are not there: they may come back.
    pub(crate) fn await_missing_drives(&self) {
        let superblock = self.superblock.borrow();
        let members = superblock.members.iter().enumerate();
        let missing = members.filter(|(_, member)| member.state == MemberState::Missing);
        for member in missing.map(|(index, _)| MemberIndex(index as u16)) {
            if self.drives.was_lost(member) {
                self.absences.note_failed(member);
            } else {
                self.absences.note_missing(member, self.world.now());
            }
        }
    }

    /// Stops the pool if the failed drives have the only copies of mirrored data. Segments condemned by a
    /// checkpoint under way count: the next opening may find the checkpoint before it.
    fn check_copies_elsewhere(&self, failures: &WriteFailures) -> Result<()> {
        let has_failed = |slot: &SlotAddress| failures.iter().any(|(member, _)| *member == slot.member);
        let is_endangered = |row: &SegmentRow| {
            let segment = SegmentLayout::of(row);
            let is_left = |slot: &&SlotAddress| self.drives.has(slot.member) && !has_failed(slot);
            let (there, left) =
                (self.drives.copies_there(&row.slots), row.slots.iter().filter(is_left).count());
            segment.scheme().is_redundant() && !segment.is_lost(there) && segment.is_lost(left)
        };
        let is_endangered = self.state.borrow().segments.with_condemned().any(is_endangered);
        if !is_endangered || canary::is(Canary::FullDriveTakenForDead) {
            return Ok(());
        }
        sometimes::reached(Sometimes::NoCopyToSpare);
        let error = Error::NoCopyToSpare(failures.clone());
        self.stop(&error);
        Err(error)
    }

    /// Waits briefly for space on the drives.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfSpace`]: the pool is being opened or closed, which must not take forever. Or it has
    /// stopped.
    pub async fn wait_for_space(&self) -> Result<()> {
        sometimes::reached(Sometimes::WaitedForSpace);
        self.check_runs()?;
        if self.phase.get() != Phase::Running {
            return Err(Error::OutOfSpace(self.drives.out_of_space()));
        }
        self.space_wait.note(self.world.now());
        // Writes that wait for segments are refused, and the drives are probed.
        self.note_drive_change();
        self.world.sleep(LOOK_FOR_SPACE).await;
        Ok(())
    }

    /// Fails if too few drives have space.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfSpace`].
    pub fn check_has_space(&self) -> Result<()> {
        if self.drives.has_space_enough() {
            Ok(())
        } else {
            Err(Error::OutOfSpace(self.drives.out_of_space()))
        }
    }

    /// Writes the next generation, with `change` applied and without absent drives. Drives that fail
    /// meanwhile are left out as well.
    ///
    /// # Errors
    ///
    /// Too few drives remain; the pool has stopped.
    pub async fn publish(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let _one_at_a_time = self.publishing.lock().await;
        self.publish_alone(None, change).await
    }

    /// As [`Self::publish`], adding a drive: it first gets a row as joining, and the last generation written
    /// makes it a member. If it fails meanwhile, it is no member. `replaced` leaves from the first of these
    /// generations on; it stays if the other does not become a member.
    pub(crate) async fn publish_joining(&self, member: Member, replaced: Option<MemberIndex>) -> Result<()> {
        let _one_at_a_time = self.publishing.lock().await;
        let leave = |superblock: &mut Superblock| {
            let Some(replaced) = replaced else { return };
            MemberChange::Leave.apply(superblock, replaced);
            // The new one takes its place, unless it is lost already.
            let set = superblock.members[usize::from(replaced.0)].set;
            if let Some(joining) =
                superblock.members.last_mut().filter(|row| row.state == MemberState::Joining)
            {
                joining.set = set;
            }
        };
        self.publish_alone(Some(member), leave).await
    }

    /// As [`Self::publish`], taking the vote of a leaving drive on which nothing lies: the drive itself gets
    /// the generation that says so, and the last generation written says that all others have it. True if it
    /// has left; false if it does not leave any more, something lies on it, or too few others are there.
    pub(crate) async fn publish_departure(&self, member: MemberIndex) -> Result<bool> {
        let _one_at_a_time = self.publishing.lock().await;
        let is_empty = self.state.borrow().segments.has_nothing_on(member);
        let are_enough = self.drives.staying_members().len() >= self.drives.copies().most();
        if !self.drives.is_leaving(member) || !is_empty || !are_enough {
            return Ok(false);
        }
        let under_way = UnderWay::begin(Sometimes::CutWhileDeparting);
        self.state.borrow_mut().segments.remove_member(member);
        self.drives.begin_departure(member);
        self.note_drive_change();
        let give_up = |superblock: &mut Superblock| MemberChange::GiveUpVote.apply(superblock, member);
        self.publish_alone(None, give_up).await?;
        under_way.end();
        sometimes::reached(Sometimes::DriveLeft);
        Ok(true)
    }

    /// As [`Self::publish`], for a caller that holds the lock *publishing*.
    pub(super) async fn publish_alone(
        &self,
        mut joining: Option<Member>,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        self.check_runs()?;
        let mut change = Some(change);
        let mut settled = self.generation();
        loop {
            // Applied once: each generation is derived from the previous one, even if that was written in
            // part.
            let next = self.next_generation(settled, joining.take(), change.take());
            let left = self.drives.superblock_members();
            if !can_go_on_as_of(&self.superblock.borrow(), settled, &left) {
                sometimes::reached(Sometimes::TooFewToGoOn);
                let error = Error::TooFewDrives { present: left.len(), needed: left.len() + 1 };
                self.stop(&error);
                return Err(error);
            }
            let written = self.write_where_there_is_space(&next).await?;
            let (generation, has_successor) = (next.generation, must_settle(&next));
            // The remaining drives have this generation, even if it was written in part.
            self.drives.follow(&next);
            let spare_before = self.space().spare;
            let last = self.superblock.replace(next);
            self.note_sparing(&last, spare_before);
            self.note_set_change(&last);
            match written {
                Ok(()) if has_successor => settled = generation,
                Ok(()) => {
                    self.drives.end_departures();
                    self.drives.set_log_copies(self.superblock.borrow().geometry.log_copies);
                    return Ok(());
                }
                Err(failures) => {
                    sometimes::reached(Sometimes::DriveLostWhilePublishing);
                    self.check_copies_elsewhere(&failures)?;
                    failures.into_iter().for_each(|(member, error)| self.lose_now(member, error));
                }
            }
        }
    }

    /// Reports a change of sparing since `last`. What was kept for a lost drive is for its missing copies.
    fn note_sparing(&self, last: &Superblock, spare_before: u64) {
        let superblock = self.superblock.borrow();
        let sparing = superblock.sparing();
        if sparing == last.sparing() {
            return;
        }
        let is_lost = |index: usize| {
            let was_active = last.members.get(index).is_some_and(|row| row.state == MemberState::Active);
            was_active && superblock.members[index].state == MemberState::Missing
        };
        let lost = (0..superblock.members.len()).filter(|&index| is_lost(index));
        let state = self.state.borrow();
        let used_slots = lost.map(|index| state.segments.slots_of(MemberIndex(index as u16)).1).sum();
        drop((superblock, state));
        self.keep_room_to_rebuild(used_slots, spare_before);
        self.events.report(EventKind::SparingChange { sparing });
    }

    /// Reports another number of failure sets than in `last`.
    fn note_set_change(&self, last: &Superblock) {
        let count = |members: &[Member]| {
            let numbers = members.iter().filter_map(|member| member.set);
            numbers.collect::<BTreeSet<_>>().len()
        };
        let sets = count(&self.superblock.borrow().members);
        if sets != count(&last.members) {
            self.events.report(EventKind::SetChange { sets });
        }
    }

    /// Writes a generation. If a drive lacks the space for it, no later one is written before that drive has
    /// it: a drive two generations behind is stale. Returns drives that failed for other reasons.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfSpace`]; the pool has stopped. The drives without it have the previous generation.
    async fn write_where_there_is_space(
        &self,
        next: &Superblock,
    ) -> Result<std::result::Result<(), WriteFailures>> {
        loop {
            let Err(failures) = write_generation(&self.drives, next).await else { return Ok(Ok(())) };
            let count = failures.len();
            let failed = self.drives.set_aside_out_of_space(failures);
            if failed.len() == count {
                return Ok(Err(failed));
            }
            if let Err(error) = self.wait_for_space().await {
                self.stop(&error);
                return Err(error);
            }
        }
    }

    fn next_generation(
        &self,
        settled: Generation,
        joining: Option<Member>,
        change: Option<impl FnOnce(&mut Superblock)>,
    ) -> Superblock {
        let last = self.superblock.borrow();
        let mark = draw_mark(&self.world, Generation(last.generation.0 + 1));
        let there = self.drives.superblock_members();
        let mut next = next_generation(&last, (settled, mark), &there, joining);
        if let Some(change) = change {
            change(&mut next);
        }
        next.note_domains();
        assign_sets(&mut next);
        next
    }

    /// Removes drives that the watchdog has given up.
    ///
    /// # Errors
    ///
    /// Too few drives are left; the pool has stopped.
    pub(crate) async fn leave_stuck_drives(&self) -> Result<()> {
        for member in self.drives.members() {
            let device = self.drives.device(member);
            if let Some(error) = device.and_then(|device| self.watch.given_up(&device)) {
                self.lose(vec![(member, error)]).await?;
            }
        }
        Ok(())
    }

    /// Makes joined drives that are still present full members, which get segments from then on.
    pub(crate) fn admit_joined(&self) -> Vec<MemberIndex> {
        let joined = self.drives.join();
        if !joined.is_empty() {
            self.absences.note_addition();
        }
        for &member in &joined {
            let row = self.superblock.borrow().members[usize::from(member.0)].clone();
            assert_eq!(row.state, MemberState::Active, "the generation that is settled made it a member");
            self.state.borrow_mut().segments.add_member(member, row.slot_count);
            self.note_drive_change();
            self.events.report(EventKind::DriveAddition { drive: self.drive_name(member) });
        }
        self.spare_old_slots();
        joined
    }
}

/// Draws a mark that no other image of this generation has. The time is mixed in, since another opening of
/// the pool may have begun with the same random seed.
pub(crate) fn draw_mark(world: &World, generation: Generation) -> GenerationMark {
    let wall = world.wall();
    let name = format!("generation {generation} at {}.{:09}", wall.seconds, wall.nanos);
    GenerationMark(world.random(&name).next_u64())
}

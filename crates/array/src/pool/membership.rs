//! Superblocks of a pool that runs: each generation made from the one before, on every member that is there.
//!
//! A drive that fails is left out by the next generation; nothing that relied on it is acknowledged before that one is
//! complete. The one after it says that it was complete: then the drive has no vote any more
//! (`docs/format.md`, "Going on"). If it may have the last copy of anything, no generation leaves it out: the pool stops, and
//! whoever opens it next finds all that its drives hold. A drive that has no space is left out by none.

use super::{
    Shared,
    create::{NewDrive, member_of},
    events::EventKind,
};
use crate::{
    drive::WriteFailures,
    election::can_go_on_with,
    error::{Error, Result},
    format::{Generation, GenerationMark, Member, MemberIndex, MemberState, SlotAddress, Superblock},
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes, UnderWay},
    },
    succession::{must_settle, next_generation},
    superblocks::write_generation,
};
use std::time::Duration;
use world::{IoError, World};

/// Whoever waits for space looks again after so long.
const LOOK_FOR_SPACE: Duration = Duration::from_millis(200);

impl Shared {
    /// Drives failed to write. Those that only lack space stay members, and nothing new is placed on them; the others are
    /// given up, as [`Self::lose`] does.
    ///
    /// # Errors
    ///
    /// As [`Self::lose`].
    pub async fn failed_to_write(&self, failures: WriteFailures) -> Result<()> {
        let failed = self.drives.set_aside_out_of_space(failures);
        if failed.is_empty() { Ok(()) } else { self.lose(failed).await }
    }

    /// Drives failed. Done when every drive that is left says so.
    ///
    /// # Errors
    ///
    /// Some data has no copy but theirs, or those that are left are too few to go on; the pool has stopped.
    pub async fn lose(&self, failures: WriteFailures) -> Result<()> {
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

    /// From now on the drive is not there; the next generation says so.
    fn lose_now(&self, member: MemberIndex, error: IoError) {
        self.drives.lose(member);
        self.events.report_loss(self.drive_name(member), error);
    }

    /// Stops the pool if drives that failed have the only copies of something that is mirrored. What a checkpoint that is under way
    /// gives up counts: the one before it may be what the next opening finds.
    fn check_copies_elsewhere(&self, failures: &WriteFailures) -> Result<()> {
        let has_failed = |slot: &SlotAddress| failures.iter().any(|(member, _)| *member == slot.member);
        let is_there = |slot: &&SlotAddress| self.drives.has(slot.member);
        let is_only_there = |slots: &[SlotAddress]| {
            let mut there = slots.iter().filter(is_there).peekable();
            there.peek().is_some() && there.all(has_failed)
        };
        let is_endangered = {
            let state = self.state.borrow();
            state.segments.with_condemned().any(|row| row.shape.is_mirror() && is_only_there(&row.slots))
        };
        if !is_endangered || canary::is(Canary::FullDriveTakenForDead) {
            return Ok(());
        }
        sometimes::reached(Sometimes::NoCopyToSpare);
        let error = Error::NoCopyToSpare(failures.clone());
        self.stop(&error);
        Err(error)
    }

    /// Waits a while for somebody to make room where drives have no space.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfSpace`]: the pool is being opened or closed, which nobody should have to wait for. Or it has stopped.
    pub async fn wait_for_space(&self) -> Result<()> {
        sometimes::reached(Sometimes::WaitedForSpace);
        self.check_runs()?;
        if !self.waits_for_space.get() {
            return Err(Error::OutOfSpace(self.drives.out_of_space()));
        }
        self.space_wait.note(self.world.now());
        self.world.sleep(LOOK_FOR_SPACE).await;
        Ok(())
    }

    /// Whether enough drives have space for what is written.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfSpace`].
    pub fn check_has_space(&self) -> Result<()> {
        match self.drives.has_space_enough() {
            true => Ok(()),
            false => Err(Error::OutOfSpace(self.drives.out_of_space())),
        }
    }

    /// The row of a drive that is to become a member.
    pub(crate) fn new_member(&self, new: &NewDrive) -> Result<Member> {
        member_of(self.drives.geometry(), self.superblock.borrow().members.len(), new)
    }

    /// Writes the next generation, with `change` made, and without the drives that are not there. Drives that fail
    /// meanwhile are left out, too.
    ///
    /// # Errors
    ///
    /// The drives that are left are too few to go on; the pool has stopped.
    pub async fn publish(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        self.publish_with(None, change).await
    }

    /// As [`Self::publish`]: a drive that was let join has a row, and the last generation written makes it a member; if it
    /// fails meanwhile it has none.
    pub(crate) async fn publish_joining(&self, member: Member) -> Result<()> {
        self.publish_with(Some(member), |_| ()).await
    }

    async fn publish_with(
        &self,
        mut joining: Option<Member>,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        let _one_at_a_time = self.publishing.lock().await;
        self.check_runs()?;
        let mut change = Some(change);
        let mut settled = self.generation();
        loop {
            // Made once: each generation is made from the one before, also from one that was written in part.
            let next = self.next_generation(settled, joining.take(), change.take());
            let left = self.drives.superblock_members();
            if !can_go_on_with(&self.superblock.borrow(), &left) {
                sometimes::reached(Sometimes::TooFewToGoOn);
                let error = Error::TooFewDrives { present: left.len(), needed: left.len() + 1 };
                self.stop(&error);
                return Err(error);
            }
            let written = self.write_where_there_is_space(&next).await?;
            let (generation, has_successor) = (next.generation, must_settle(&next));
            // Also what was written in part is what the next one is made from: those that are left have it.
            *self.superblock.borrow_mut() = next;
            match written {
                Ok(()) if has_successor => settled = generation,
                Ok(()) => {
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

    /// Writes a generation; one that a drive lacks for want of space is followed by none before that drive has it: one that is two
    /// generations behind is stale. Gives the drives that failed otherwise.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfSpace`]; the pool has stopped. The drives that lack it have the one it was made from.
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
        next
    }

    /// Drives that joined are members like the others, if they are still there: they get segments from now on.
    pub(crate) fn admit_joined(&self) -> Vec<MemberIndex> {
        let joined = self.drives.join();
        for &member in &joined {
            let row = self.superblock.borrow().members[usize::from(member.0)].clone();
            assert_eq!(row.state, MemberState::Active, "the generation that is settled made it a member");
            self.state.borrow_mut().segments.add_member(member, row.slot_count);
            self.events.report(EventKind::DriveAddition { drive: self.drive_name(member) });
        }
        joined
    }
}

/// A mark that no other image of this generation has: also none that was made in another opening of the pool, whose
/// world may have begun with the same seed.
pub fn draw_mark(world: &World, generation: Generation) -> GenerationMark {
    let wall = world.wall();
    let name = format!("generation {generation} at {}.{:09}", wall.seconds, wall.nanos);
    GenerationMark(world.random(&name).next_u64())
}

//! Superblocks of a pool that runs: each generation made from the one before, on every member that is there.
//!
//! A drive that fails is left out by the next generation; nothing that relied on it is acknowledged before that one is
//! complete. The one after it says that it was complete: then the drive has no vote any more
//! (`docs/format.md`, "Going on").

use super::{
    Shared,
    create::{NewDrive, member_of},
    events::EventKind,
};
use crate::{
    election::can_go_on_with,
    error::{Error, Result},
    format::{Generation, GenerationMark, Member, MemberIndex, MemberState, Superblock},
    simulation::sometimes::{self, Sometimes, UnderWay},
    succession::{must_settle, next_generation},
    superblocks::write_generation,
};
use world::{IoError, World};

impl Shared {
    /// A drive failed to write. Done when every drive that is left says so.
    ///
    /// # Errors
    ///
    /// Those that are left are too few to go on; the pool has stopped.
    pub async fn lose(&self, member: MemberIndex, error: IoError) -> Result<()> {
        sometimes::reached_if(self.drives.has(member), Sometimes::DriveLost);
        self.lose_now(member, error);
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
            let written = write_generation(&self.drives, &next).await;
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
                    failures.into_iter().for_each(|(member, error)| self.lose_now(member, error));
                }
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

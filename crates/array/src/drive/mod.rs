//! The drives of a pool, by member: reads and writes of whole blocks in slots.
//!
//! A joining drive gets superblocks, and nothing else before all of them call it a member
//! ([`Drives::let_join`]). A drive that failed to write is lost for good ([`Drives::lose`]): its content is
//! stale from then on. A drive that failed to read may have one bad sector, and stays. So does one that had
//! no space for a write: it is read, flushed and given superblocks as before, and nothing new is placed on it
//! until there is room ([`Drives::set_out_of_space`]).

mod leaving;

use crate::{
    error::{Error, Result},
    format::{
        BLOCK_BYTES, MemberIndex, PoolGeometry, SegmentBlock, SegmentKind, SegmentShape, SlotAddress,
        SlotHeader,
    },
    redundancy::{
        Copies, FailureDomains, FailureSets, Raid1, Reconstruction, RedundancyScheme, SegmentLayout,
    },
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes},
    },
};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    rc::Rc,
    sync::Arc,
};
use world::{BlockDevice, Buffer, ByteOffset, IoError, IoErrorKind, IoResult, LocalFuture, Stability};

/// Drives that failed to write, each once, with its first error.
pub type WriteFailures = Vec<(MemberIndex, IoError)>;
/// Writes in progress, each on the drive of a member.
pub type DriveWrites = Vec<(MemberIndex, LocalFuture<IoResult<()>>)>;

/// The drives present. Clones share one state.
#[derive(Clone)]
pub struct Drives {
    geometry: Rc<Cell<PoolGeometry>>,
    writable: Rc<RefCell<BTreeMap<MemberIndex, Rc<dyn BlockDevice>>>>,
    joining: Rc<RefCell<BTreeMap<MemberIndex, Rc<dyn BlockDevice>>>>,
    /// Writable members whose row says that they leave.
    leaving: Rc<RefCell<BTreeSet<MemberIndex>>>,
    departing: Rc<RefCell<BTreeMap<MemberIndex, Rc<dyn BlockDevice>>>>,
    /// Writable members whose last allocating write failed for lack of space, with the error.
    out_of_space: Rc<RefCell<BTreeMap<MemberIndex, IoError>>>,
    /// Members that were present and failed.
    lost: Rc<RefCell<BTreeSet<MemberIndex>>>,
    /// As the superblock says.
    domains: Rc<RefCell<Rc<FailureDomains>>>,
    /// As the superblock says.
    sets: Rc<RefCell<Rc<FailureSets>>>,
    changes: Rc<Cell<u64>>,
}

impl Drives {
    /// The drives of a pool, by member index.
    pub fn new(
        geometry: PoolGeometry,
        drives: impl IntoIterator<Item = (MemberIndex, Rc<dyn BlockDevice>)>,
    ) -> Self {
        Self {
            geometry: Rc::new(Cell::new(geometry)),
            writable: Rc::new(RefCell::new(drives.into_iter().collect())),
            joining: Rc::default(),
            leaving: Rc::default(),
            departing: Rc::default(),
            out_of_space: Rc::default(),
            lost: Rc::default(),
            domains: Rc::default(),
            sets: Rc::default(),
            changes: Rc::default(),
        }
    }

    pub fn geometry(&self) -> PoolGeometry {
        self.geometry.get()
    }

    /// Changes the number of copies of everything written from now on.
    pub fn set_log_copies(&self, log_copies: u8) {
        self.geometry.set(PoolGeometry { log_copies, ..self.geometry.get() });
    }

    /// Writable members.
    pub fn members(&self) -> Vec<MemberIndex> {
        self.writable.borrow().keys().copied().collect()
    }

    /// The failure domains of all members, present or not.
    pub fn domains(&self) -> Rc<FailureDomains> {
        Rc::clone(&self.domains.borrow())
    }

    /// The failure sets of all members, present or not.
    pub fn sets(&self) -> Rc<FailureSets> {
        Rc::clone(&self.sets.borrow())
    }

    /// Number of writable members.
    pub fn count(&self) -> usize {
        self.writable.borrow().len()
    }

    /// True if a member is writable.
    pub fn has(&self, member: MemberIndex) -> bool {
        self.writable.borrow().contains_key(&member)
    }

    /// Counts changes of which members are present, which of them have space, and of their domains and sets.
    pub fn changes(&self) -> u64 {
        self.changes.get()
    }

    fn change(&self) {
        self.changes.set(self.changes.get() + 1);
    }

    /// Removes a member that failed.
    pub fn lose(&self, member: MemberIndex) {
        self.change();
        self.lost.borrow_mut().insert(member);
        self.writable.borrow_mut().remove(&member);
        self.joining.borrow_mut().remove(&member);
        self.leaving.borrow_mut().remove(&member);
        self.departing.borrow_mut().remove(&member);
        self.out_of_space.borrow_mut().remove(&member);
    }

    /// True if a member was present and failed.
    pub fn was_lost(&self, member: MemberIndex) -> bool {
        self.lost.borrow().contains(&member)
    }

    /// Stops placing new data on a drive that had no space for a write, until [`Self::set_has_space`].
    pub fn set_out_of_space(&self, member: MemberIndex, error: IoError) {
        if self.has(member) {
            sometimes::reached(Sometimes::DriveOutOfSpace);
            self.out_of_space.borrow_mut().insert(member, error);
            self.change();
        }
    }

    /// Resumes placing new data on a drive.
    pub fn set_has_space(&self, member: MemberIndex) {
        if self.out_of_space.borrow_mut().remove(&member).is_some() {
            sometimes::reached(Sometimes::SpaceFoundAgain);
            self.change();
        }
    }

    /// Drives that get no new data for lack of space, with their errors.
    pub fn out_of_space(&self) -> WriteFailures {
        self.out_of_space.borrow().iter().map(|(&member, error)| (member, error.clone())).collect()
    }

    /// Marks members that failed for lack of space. Returns the others.
    pub fn set_aside_out_of_space(&self, failures: WriteFailures) -> WriteFailures {
        let (full, failed): (Vec<_>, Vec<_>) =
            failures.into_iter().partition(|(member, error)| self.has(*member) && is_out_of_space(error));
        full.into_iter().for_each(|(member, error)| self.set_out_of_space(member, error));
        failed
    }

    /// True if the drive of a member is present and has space.
    pub fn has_space(&self, member: MemberIndex) -> bool {
        self.has(member) && !self.out_of_space.borrow().contains_key(&member)
    }

    /// Members that are present and have space.
    pub fn members_with_space(&self) -> Vec<MemberIndex> {
        self.members().into_iter().filter(|&member| self.has_space(member)).collect()
    }

    /// Number of members that are present and have space.
    pub fn count_with_space(&self) -> usize {
        self.count() - self.out_of_space.borrow().len()
    }

    /// True if data written now gets enough copies: all it should have, or those on at least half of the
    /// drives, so that the other half alone cannot open the pool. Otherwise the pool waits for space.
    pub fn has_space_enough(&self) -> bool {
        let (there, with_space) = (self.count(), self.count_with_space());
        with_space >= self.copies_wanted_most() || with_space > 0 && 2 * with_space >= there
    }

    /// True if a segment of a kind that is being written has every copy it can have now, on drives that take
    /// new data.
    pub fn has_copies_enough(&self, kind: SegmentKind, slots: &[SlotAddress]) -> bool {
        let (copies, with_space) = if self.leaving.borrow().is_empty() {
            (slots.iter().filter(|slot| self.has_space(slot.member)).count(), self.count_with_space())
        } else {
            let members = self.members_for_new_data();
            (slots.iter().filter(|slot| members.contains(&slot.member)).count(), members.len())
        };
        let wanted = self.copies_wanted(kind).min(with_space);
        copies > 0 && copies >= wanted && self.has_space_enough()
    }

    /// Adds a drive that will become a member: it gets superblocks.
    pub fn let_join(&self, member: MemberIndex, device: Rc<dyn BlockDevice>) {
        assert!(!self.has(member), "member {member} is new");
        self.joining.borrow_mut().insert(member, device);
    }

    /// Makes the joining drives members, once all superblocks say so. Returns those that did not fail
    /// meanwhile.
    pub fn join(&self) -> Vec<MemberIndex> {
        let joined = self.joining.take();
        self.change();
        let members = joined.keys().copied().collect();
        for (member, device) in joined {
            let before = self.writable.borrow_mut().insert(member, device);
            assert!(before.is_none(), "member {member} is new");
        }
        members
    }

    /// The drive of a member for superblocks, if present; includes joining and departing drives.
    pub fn superblock_device(&self, member: MemberIndex) -> Option<Rc<dyn BlockDevice>> {
        let joining = || self.joining.borrow().get(&member).cloned();
        let departing = || self.departing.borrow().get(&member).cloned();
        self.device(member).or_else(joining).or_else(departing)
    }

    /// Members that the pool goes on with: present, joining and departing ones.
    pub fn superblock_members(&self) -> BTreeSet<MemberIndex> {
        let (joining, departing) = (self.joining.borrow(), self.departing.borrow());
        self.members().into_iter().chain(joining.keys().copied()).chain(departing.keys().copied()).collect()
    }

    /// The drive of a member, if present.
    pub fn device(&self, member: MemberIndex) -> Option<Rc<dyn BlockDevice>> {
        self.writable.borrow().get(&member).cloned()
    }

    /// Starts a write of whole blocks from `block` of a slot on; none if the drive is absent.
    pub fn write(
        &self,
        slot: SlotAddress,
        block: u32,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> Option<LocalFuture<IoResult<()>>> {
        let at = self.place(slot, block, bytes_of(&from) / BLOCK_BYTES);
        self.device(slot.member).map(|device| device.write(at, from, stability))
    }

    /// Starts the writes that store `data` in a segment from block `first` on, to the slots whose drives are
    /// present.
    pub fn write_data(
        &self,
        segment: SegmentLayout<'_>,
        first: SegmentBlock,
        data: &[Arc<Buffer>],
        stability: Stability,
    ) -> DriveWrites {
        let planned = segment.plan_write(first, (bytes_of(data) / BLOCK_BYTES) as u32);
        let started = planned.into_iter().filter_map(|part| {
            let buffers = buffers_of(data, part.data).to_vec();
            Some((part.slot.member, self.write(part.slot, part.block, buffers, stability)?))
        });
        started.collect()
    }

    /// Starts to write the headers of a segment: `header` with its own index in each slot whose drive is
    /// present.
    pub fn write_headers(&self, header: &SlotHeader, stability: Stability) -> DriveWrites {
        let started = header.slots.iter().enumerate().filter_map(|(slot_index, &slot)| {
            let block = Buffer::copy_of(&SlotHeader { slot_index, ..header.clone() }.encode());
            Some((slot.member, self.write(slot, 0, vec![Arc::new(block)], stability)?))
        });
        started.collect()
    }

    /// Starts to flush those drives of `members` that are present.
    pub fn flush_all(&self, members: impl IntoIterator<Item = MemberIndex>) -> DriveWrites {
        let started = members.into_iter().filter_map(|member| Some((member, self.device(member)?.flush())));
        started.collect()
    }

    /// Number of `slots` whose drives are present.
    pub fn copies_there(&self, slots: &[SlotAddress]) -> usize {
        slots.iter().filter(|slot| self.has(slot.member)).count()
    }

    /// Shape of a mirrored segment of `copies` copies.
    pub fn mirror_shape(&self, copies: usize) -> SegmentShape {
        Raid1.shape(self.geometry().slot_blocks(), copies)
    }

    /// Layout of a mirrored segment with these slots.
    pub fn mirror<'s>(&self, slots: &'s [SlotAddress]) -> SegmentLayout<'s> {
        SegmentLayout { shape: self.mirror_shape(slots.len()), slots }
    }

    /// Copies of each kind of segment that the pool keeps, if it has enough drives.
    pub fn copies(&self) -> Copies {
        Copies::of(self.geometry())
    }

    /// Copies that segments of a kind should have: the pool's number, or one on each drive present.
    pub fn copies_wanted(&self, kind: SegmentKind) -> usize {
        self.copies().of_kind(kind).min(self.writable.borrow().len())
    }

    /// The most copies that segments of any kind should have.
    pub fn copies_wanted_most(&self) -> usize {
        self.copies().most().min(self.writable.borrow().len())
    }

    /// Reads `blocks` whole blocks from `block` of a slot on.
    ///
    /// # Errors
    ///
    /// The drive is absent, or cannot read them.
    pub async fn read(&self, slot: SlotAddress, block: u32, blocks: usize) -> Result<Buffer> {
        let at = self.place(slot, block, blocks);
        let Some(device) = self.device(slot.member) else {
            return Err(Error::TooFewDrives { present: self.members().len(), needed: 1 });
        };
        let read = device.read(at, vec![Buffer::zeroed(blocks * BLOCK_BYTES)]).await;
        let mut buffers = read.map_err(|error| Error::Drive { member: slot.member, error })?;
        Ok(buffers.pop().expect("a read gives its buffer back"))
    }

    /// Obtains `count` blocks of a slot from block `first` on, as planned. Also counts those that cannot be
    /// read: they are zero, and fail their checksum.
    pub async fn reconstruct(&self, plan: &Reconstruction, first: u32, count: u32) -> (Buffer, u32) {
        let (mut data, unreadable) = self.read_any(plan, first, count).await;
        if first == 0 {
            set_slot_index(&mut data, plan.slot_index());
        }
        (data, unreadable)
    }

    /// Reads blocks from the first of the copies that can read them, and counts those no copy can read.
    async fn read_any(&self, plan: &Reconstruction, first: u32, count: u32) -> (Buffer, u32) {
        for &slot in plan.copies_read_whole() {
            if let Ok(data) = self.read(slot, first, count as usize).await {
                return (data, 0);
            }
        }
        let mut data = Buffer::zeroed(count as usize * BLOCK_BYTES);
        let mut unreadable = 0;
        'blocks: for index in 0..count {
            for &slot in plan.copies() {
                if let Ok(block) = self.read(slot, first + index, 1).await {
                    data[index as usize * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(&block);
                    continue 'blocks;
                }
            }
            unreadable += 1;
        }
        (data, unreadable)
    }

    fn place(&self, slot: SlotAddress, block: u32, blocks: usize) -> ByteOffset {
        let end = block as usize + blocks;
        let geometry = self.geometry();
        assert!(end <= usize::from(geometry.slot_blocks()), "block {end} of a slot");
        ByteOffset(geometry.slot_start_bytes(slot.slot) + u64::from(block) * BLOCK_BYTES as u64)
    }
}

fn bytes_of(buffers: &[Arc<Buffer>]) -> usize {
    buffers.iter().map(|buffer| buffer.len()).sum()
}

/// The buffers that hold `blocks` of the content of all of them. The range must not cut a buffer.
fn buffers_of(buffers: &[Arc<Buffer>], blocks: Range<u32>) -> &[Arc<Buffer>] {
    let index_of = |block: u32| {
        let (mut index, mut left) = (0, block as usize * BLOCK_BYTES);
        while left > 0 {
            left = left.checked_sub(buffers[index].len()).expect("a part of a write has whole buffers");
            index += 1;
        }
        index
    };
    &buffers[index_of(blocks.start)..index_of(blocks.end)]
}

/// Sets the slot index in a slot's header. A block that is not a header is left unchanged.
fn set_slot_index(slot: &mut Buffer, slot_index: usize) {
    if let Ok(header) = SlotHeader::decode(&slot[..BLOCK_BYTES])
        && slot_index < header.slots.len()
    {
        let header = SlotHeader { slot_index, ..header };
        slot[..BLOCK_BYTES].copy_from_slice(&header.encode());
    }
}

/// True if a write failed for lack of space, on a drive that is healthy otherwise.
fn is_out_of_space(error: &IoError) -> bool {
    error.kind() == IoErrorKind::NoSpace && !canary::is(Canary::FullDriveTakenForDead)
}

/// Waits for writes in progress. The error lists the drives that failed.
pub async fn all_written(writes: DriveWrites) -> std::result::Result<(), WriteFailures> {
    let mut failures = WriteFailures::new();
    for (member, write) in writes {
        if let Err(error) = write.await
            && !failures.iter().any(|(failed, _)| *failed == member)
        {
            failures.push((member, error));
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}

/// The error of the first failure, for callers that need every drive.
pub fn first_of(failures: WriteFailures) -> Error {
    let (member, error) = failures.into_iter().next().expect("a write failed");
    Error::Drive { member, error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn a_drive_that_fails_several_writes_is_named_once() {
        let failing = |member, text: &str| -> (MemberIndex, LocalFuture<IoResult<()>>) {
            let error = IoError::new(world::IoErrorKind::Other, text.to_owned());
            (MemberIndex(member), Box::pin(async { Err(error) }))
        };
        let good: LocalFuture<IoResult<()>> = Box::pin(async { Ok(()) });
        let writes =
            vec![failing(2, "first"), (MemberIndex(0), good), failing(2, "second"), failing(1, "only")];
        let failures = all_written(writes).now_or_never().expect("none waits").expect_err("three fail");
        assert_eq!(failures.iter().map(|(member, _)| member.0).collect::<Vec<_>>(), [2, 1]);
        assert!(failures[0].1.to_string().contains("first"));
    }

    #[test]
    fn a_part_of_a_write_gets_the_buffers_of_its_blocks() {
        let buffers = [1, 3, 2].map(|blocks| Arc::new(Buffer::zeroed(blocks * BLOCK_BYTES)));
        let lengths = |blocks| {
            let part = buffers_of(&buffers, blocks);
            part.iter().map(|buffer| buffer.len() / BLOCK_BYTES).collect::<Vec<_>>()
        };
        assert_eq!(lengths(0..6), [1, 3, 2]);
        assert_eq!(lengths(1..4), [3]);
        assert_eq!(lengths(4..6), [2]);
        assert_eq!(lengths(4..4), [0; 0]);
    }

    #[test]
    #[should_panic(expected = "a part of a write has whole buffers")]
    fn a_part_of_a_write_does_not_cut_a_buffer() {
        buffers_of(&[Arc::new(Buffer::zeroed(2 * BLOCK_BYTES))], 0..1);
    }
}

//! The drives of a pool, by member: whole blocks at places in slots.
//!
//! A drive that joins gets superblocks, and nothing else before all of them call it a member ([`Drives::let_join`]). One
//! that failed to write is out for good ([`Drives::lose`]): what it holds from then on is stale. A drive that
//! failed to read may have one bad place, and stays. So does one that had no space for a write: it is read, flushed and given
//! superblocks as before, and nothing new is placed on it until there is room ([`Drives::set_out_of_space`]).

use crate::{
    error::{Error, Result},
    format::{BLOCK_BYTES, MemberIndex, PoolGeometry, SlotAddress, SlotHeader},
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes},
    },
};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};
use world::{BlockDevice, Buffer, ByteOffset, IoError, IoErrorKind, IoResult, LocalFuture, Stability};

/// Drives that failed to write, and what they said.
pub type WriteFailures = Vec<(MemberIndex, IoError)>;
/// Writes that were started, each on the drive of a member.
pub type Writes = Vec<(MemberIndex, LocalFuture<IoResult<()>>)>;

/// Drives that are there. Cheap to clone; clones are one.
#[derive(Clone)]
pub struct Drives {
    geometry: Rc<Cell<PoolGeometry>>,
    writable: Rc<RefCell<BTreeMap<MemberIndex, Rc<dyn BlockDevice>>>>,
    joining: Rc<RefCell<BTreeMap<MemberIndex, Rc<dyn BlockDevice>>>>,
    /// Of those that can be written, the ones that had no space for the last write that needed some, and what they said.
    out_of_space: Rc<RefCell<BTreeMap<MemberIndex, IoError>>>,
    changes: Rc<Cell<u64>>,
}

impl Drives {
    /// The drives of a pool, each under its member's index.
    pub fn new(
        geometry: PoolGeometry,
        drives: impl IntoIterator<Item = (MemberIndex, Rc<dyn BlockDevice>)>,
    ) -> Self {
        Self {
            geometry: Rc::new(Cell::new(geometry)),
            writable: Rc::new(RefCell::new(drives.into_iter().collect())),
            joining: Rc::default(),
            out_of_space: Rc::default(),
            changes: Rc::default(),
        }
    }

    /// Sizes of the pool.
    pub fn geometry(&self) -> PoolGeometry {
        self.geometry.get()
    }

    /// Everything has so many copies from now on.
    pub fn set_log_copies(&self, log_copies: u8) {
        self.geometry.set(PoolGeometry { log_copies, ..self.geometry.get() });
    }

    /// Members that can be written.
    pub fn members(&self) -> Vec<MemberIndex> {
        self.writable.borrow().keys().copied().collect()
    }

    /// How many members can be written.
    pub fn count(&self) -> usize {
        self.writable.borrow().len()
    }

    /// Whether a member can be written.
    pub fn has(&self, member: MemberIndex) -> bool {
        self.writable.borrow().contains_key(&member)
    }

    /// Counts changes of which members are there, and which of them have space.
    pub fn changes(&self) -> u64 {
        self.changes.get()
    }

    fn change(&self) {
        self.changes.set(self.changes.get() + 1);
    }

    /// From now on the member is not there.
    pub fn lose(&self, member: MemberIndex) {
        self.change();
        self.writable.borrow_mut().remove(&member);
        self.joining.borrow_mut().remove(&member);
        self.out_of_space.borrow_mut().remove(&member);
    }

    /// Nothing new is placed on a drive that had no space for a write, until [`Self::set_has_space`].
    pub fn set_out_of_space(&self, member: MemberIndex, error: IoError) {
        if self.has(member) {
            sometimes::reached(Sometimes::DriveOutOfSpace);
            self.out_of_space.borrow_mut().insert(member, error);
            self.change();
        }
    }

    /// A drive takes what is placed on it again.
    pub fn set_has_space(&self, member: MemberIndex) {
        if self.out_of_space.borrow_mut().remove(&member).is_some() {
            sometimes::reached(Sometimes::SpaceFoundAgain);
            self.change();
        }
    }

    /// Drives that nothing new is placed on for want of space, and what they said.
    pub fn out_of_space(&self) -> WriteFailures {
        self.out_of_space.borrow().iter().map(|(&member, error)| (member, error.clone())).collect()
    }

    /// Marks members that failed for want of space; gives the others.
    pub fn set_aside_out_of_space(&self, failures: WriteFailures) -> WriteFailures {
        let (full, failed): (Vec<_>, Vec<_>) =
            failures.into_iter().partition(|(member, error)| self.has(*member) && is_out_of_space(error));
        full.into_iter().for_each(|(member, error)| self.set_out_of_space(member, error));
        failed
    }

    /// Whether new segments may be placed on the drive of a member.
    pub fn has_space(&self, member: MemberIndex) -> bool {
        self.has(member) && !self.out_of_space.borrow().contains_key(&member)
    }

    /// Members that new segments may be placed on.
    pub fn members_with_space(&self) -> Vec<MemberIndex> {
        self.members().into_iter().filter(|&member| self.has_space(member)).collect()
    }

    /// How many members new segments may be placed on.
    pub fn count_with_space(&self) -> usize {
        self.count() - self.out_of_space.borrow().len()
    }

    /// Whether what is written now gets enough copies: all it should have, or those on at least half of the drives, so that
    /// the others alone are no pool. Without that the pool waits for space.
    pub fn has_space_enough(&self) -> bool {
        let (there, with_space) = (self.count(), self.count_with_space());
        with_space >= self.copies_wanted() || with_space > 0 && 2 * with_space >= there
    }

    /// Whether a segment that is written has every copy it can have now.
    pub fn has_copies_enough(&self, slots: &[SlotAddress]) -> bool {
        let copies = slots.iter().filter(|slot| self.has_space(slot.member)).count();
        let wanted = self.copies_wanted().min(self.count_with_space());
        copies > 0 && copies >= wanted && self.has_space_enough()
    }

    /// A drive is to become a member: it gets superblocks.
    pub fn let_join(&self, member: MemberIndex, device: Rc<dyn BlockDevice>) {
        assert!(!self.has(member), "member {member} is new");
        self.joining.borrow_mut().insert(member, device);
    }

    /// Those that joined, and did not fail meanwhile, are members like the others, as all superblocks say.
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

    /// The drive of a member for superblocks, if it is there: also one that joins.
    pub fn superblock_device(&self, member: MemberIndex) -> Option<Rc<dyn BlockDevice>> {
        self.device(member).or_else(|| self.joining.borrow().get(&member).cloned())
    }

    /// Members that can be given superblocks.
    pub fn superblock_members(&self) -> BTreeSet<MemberIndex> {
        self.members().into_iter().chain(self.joining.borrow().keys().copied()).collect()
    }

    /// The drive of a member, if it is there.
    pub fn device(&self, member: MemberIndex) -> Option<Rc<dyn BlockDevice>> {
        self.writable.borrow().get(&member).cloned()
    }

    /// Starts a write of whole blocks from `block` of a slot on; none if the drive is not there.
    pub fn write(
        &self,
        slot: SlotAddress,
        block: u32,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> Option<LocalFuture<IoResult<()>>> {
        let blocks = from.iter().map(|buffer| buffer.len()).sum::<usize>() / BLOCK_BYTES;
        let at = self.place(slot, block, blocks);
        self.device(slot.member).map(|device| device.write(at, from, stability))
    }

    /// Starts the same write on every one of `slots` whose drive is there: all copies are written at once.
    pub fn write_all(
        &self,
        slots: &[SlotAddress],
        block: u32,
        from: &[Arc<Buffer>],
        stability: Stability,
    ) -> Writes {
        let started = slots
            .iter()
            .filter_map(|&slot| Some((slot.member, self.write(slot, block, from.to_vec(), stability)?)));
        started.collect()
    }

    /// Starts to write the headers of a segment: `header` in each of its slots whose drive is there, with that slot's
    /// own index.
    pub fn write_headers(&self, header: &SlotHeader, stability: Stability) -> Writes {
        let started = header.slots.iter().enumerate().filter_map(|(slot_index, &slot)| {
            let block = Buffer::copy_of(&SlotHeader { slot_index, ..header.clone() }.encode());
            Some((slot.member, self.write(slot, 0, vec![Arc::new(block)], stability)?))
        });
        started.collect()
    }

    /// Starts to flush the drives of `members` that are there.
    pub fn flush_all(&self, members: impl IntoIterator<Item = MemberIndex>) -> Writes {
        let started = members.into_iter().filter_map(|member| Some((member, self.device(member)?.flush())));
        started.collect()
    }

    /// How many of `slots` lie on drives that are there.
    pub fn copies_there(&self, slots: &[SlotAddress]) -> usize {
        slots.iter().filter(|slot| self.has(slot.member)).count()
    }

    /// Copies that everything should have: as the pool has it, or one on each drive there is.
    pub fn copies_wanted(&self) -> usize {
        usize::from(self.geometry().log_copies).min(self.writable.borrow().len())
    }

    /// Reads `blocks` whole blocks from `block` of a slot on.
    ///
    /// # Errors
    ///
    /// The drive is not there, or cannot read them.
    pub async fn read(&self, slot: SlotAddress, block: u32, blocks: usize) -> Result<Buffer> {
        let at = self.place(slot, block, blocks);
        let Some(device) = self.device(slot.member) else {
            return Err(Error::TooFewDrives { present: self.members().len(), needed: 1 });
        };
        let read = device.read(at, vec![Buffer::zeroed(blocks * BLOCK_BYTES)]).await;
        let mut buffers = read.map_err(|error| Error::Drive { member: slot.member, error })?;
        Ok(buffers.pop().expect("a read gives its buffer back"))
    }

    /// Blocks of a slot as they are on the first of its copies that can read them, and how many none can: those are zero, and
    /// whoever needs them finds that their checksum is wrong.
    pub async fn read_any(&self, copies: &[SlotAddress], first: u32, count: u32) -> (Buffer, u32) {
        for &slot in copies {
            if let Ok(data) = self.read(slot, first, count as usize).await {
                return (data, 0);
            }
        }
        let mut data = Buffer::zeroed(count as usize * BLOCK_BYTES);
        let mut unreadable = 0;
        'blocks: for index in 0..count {
            for &slot in copies {
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

/// Whether a write failed for want of space, as it does on a drive that is well otherwise.
fn is_out_of_space(error: &IoError) -> bool {
    error.kind() == IoErrorKind::NoSpace && !canary::is(Canary::FullDriveTakenForDead)
}

/// Waits for writes that were started, each on the drive of a member; which failed, if any did.
pub async fn all_written(writes: Writes) -> std::result::Result<(), WriteFailures> {
    let mut failures = Vec::new();
    for (member, write) in writes {
        if let Err(error) = write.await {
            failures.push((member, error));
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}

/// What to tell of writes that failed where one drive too few is a failure: the first of them.
pub fn first_of(failures: WriteFailures) -> Error {
    let (member, error) = failures.into_iter().next().expect("a write failed");
    Error::Drive { member, error }
}

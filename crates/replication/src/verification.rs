//! Comparison of both sites of a group: each takes the same cut, and digests of its ranges are compared. Nothing is changed.
//!
//! ```text
//! primary                                        secondary
//! cut of its volumes
//! records up to the cut ──▶
//! verify cut ──▶                                 cut of its volumes, which have just these records
//!            ◀── ready
//! verify range ──▶  (64 MiB, a digest a MiB)
//!            ◀── digests                         both read their cuts meanwhile, and the stream goes on
//! verify range ──▶  (a MiB that differs, a digest a block)
//! verify end ──▶                                 both delete their cuts
//! ```
//!
//! Invariants:
//!
//! 1. Both cuts have the same commands, all of each: what differs between them was not copied as it is.
//! 2. The stream and hosts do not wait for a comparison.

use crate::{
    frame::{DIGEST_BLOCKS_MAX, RangeDigest, VerifyRangeFrame},
    member::GroupMember,
    pass::PassPace,
};
use array::{
    error::Error,
    format::{BLOCK_BYTES, SnapshotId, VolumeId},
    pool::{SnapshotKey, VolumeKey},
};
use ring::digest::{SHA256, digest};
use std::{
    cell::{Cell, RefCell},
    ops::Range,
};
use world::{BlockDevice, Buffer, ByteOffset, World};

/// Ranges that a comparison names, at most. All are counted.
pub const NAMED_RANGES_MAX: usize = 1000;

/// Blocks of a volume that differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DifferentRange {
    pub volume: VolumeId,
    pub blocks: Range<u64>,
}

/// The course of a comparison, for people.
#[derive(Debug, Default)]
pub struct ComparisonProgress {
    pub compared_bytes: Cell<u64>,
    pub total_bytes: Cell<u64>,
    /// Blocks that differ.
    pub different_blocks: Cell<u64>,
    /// Their places: the first [`NAMED_RANGES_MAX`] ranges.
    pub named: RefCell<Vec<DifferentRange>>,
}

impl ComparisonProgress {
    /// Notes a block that differs; blocks come in order.
    pub(crate) fn note_different(&self, volume: VolumeId, block: u64) {
        self.different_blocks.update(|count| count + 1);
        let mut named = self.named.borrow_mut();
        let count = named.len();
        match named.last_mut() {
            Some(last) if last.volume == volume && last.blocks.end == block => last.blocks.end += 1,
            _ if count < NAMED_RANGES_MAX => {
                named.push(DifferentRange { volume, blocks: block..block + 1 });
            }
            _ => {}
        }
    }
}

/// Reason for which a comparison has no answer.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("a comparison is under way already")]
    UnderWay,
    #[error("the group does not stream to the other side, so there is no cut that both have")]
    NotStreaming,
    #[error("the program of the other side knows no comparisons")]
    OldPeer,
    #[error("the stream ended before all was compared")]
    StreamEnded,
    #[error("the other side: {0}")]
    Peer(String),
    #[error(transparent)]
    Pool(#[from] Error),
}

/// Identity of the cut of a comparison: a group has one at most.
pub(crate) fn verify_cut(member: &GroupMember) -> SnapshotId {
    member.cut_of(b"verified cut....")
}

/// Digests of a range of the cut, in its order; `None` if the range is not within the volume.
///
/// # Errors
///
/// The cut was deleted, or a block cannot be read.
pub(crate) async fn digests_of(
    (world, member): (&World, &GroupMember),
    wanted: &VerifyRangeFrame,
    pace: &mut PassPace,
) -> Result<Option<Vec<RangeDigest>>, Error> {
    let key = (VolumeKey::Id(wanted.volume), SnapshotKey::Id(verify_cut(member)));
    let point = member.pool.snapshot_device(key.0, key.1)?;
    let (first, end) = (wanted.within.first.0, wanted.within.first.0 + wanted.within.count.0);
    if !member.volumes.contains(&wanted.volume) || end > point.geometry().size.0 / BLOCK_BYTES as u64 {
        return Ok(None);
    }
    // Whole digests, of 1 MiB at most.
    let piece = DIGEST_BLOCKS_MAX / wanted.grain * wanted.grain;
    let (mut at, mut digests) = (first, Vec::new());
    while at < end {
        let count = piece.min(end - at);
        let begun = world.now();
        let into = vec![Buffer::zeroed(count as usize * BLOCK_BYTES)];
        let read = point.read(ByteOffset(at * BLOCK_BYTES as u64), into).await.map_err(Error::Copy)?;
        for part in read[0].chunks(wanted.grain as usize * BLOCK_BYTES) {
            let hash = digest(&SHA256, part);
            digests.push(std::array::from_fn(|index| hash.as_ref()[index]));
        }
        pace.give_way(world.now().since(begun)).await;
        at += count;
    }
    Ok(Some(digests))
}

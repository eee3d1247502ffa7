//! EXTENDED COPY between units that one initiator may use, and what became of it (SPC-4, 6.4 and 6.18).

use super::{Asked, Data, Ended, Going, Reachable, Unit, be32, list_of, parameters, range::Range};
use crate::scsi::{
    commands::{Known, code},
    copy_list::{
        CopyList, CopyTarget, DESCRIPTORS_BYTES_MAX, SEGMENT_CODE, SEGMENTS_MAX, Segment, TARGET_CODE,
        TARGETS_MAX,
    },
    inquiry,
    reservations::Use,
    sense::{AdditionalSense, Sense, SenseKey},
};
use std::rc::Rc;

/// Bytes that are copied at once.
const PIECE_BYTES: u64 = 1 << 20;
/// Copies an initiator can ask about at most; identifiers are bytes.
const COPIES_MAX: u8 = 255;

/// What became of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copied {
    state: CopyState,
    segments: u16,
    bytes: u64,
}

/// Values of COPY MANAGER STATUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyState {
    UnderWay = 0,
    Done = 1,
    Aborted = 2,
}

fn aborted(additional: AdditionalSense) -> Ended {
    Sense::new(SenseKey::CopyAborted, additional).into()
}

impl Unit {
    pub(super) async fn copy(&self, asked: &Asked<'_>) -> Going<Data> {
        let length = be32(&asked.cdb[10..14]) as usize;
        if length == 0 {
            return Ok(Data::None);
        }
        let list = CopyList::read(&list_of(&asked.data, length))?;
        let name = (asked.nexus.clone(), list.identifier);
        let is_under_way = |copied: &Copied| copied.state == CopyState::UnderWay;
        if list.is_kept && self.copies.borrow().get(&name).is_some_and(is_under_way) {
            return Err(Sense::illegal(AdditionalSense::OPERATION_IN_PROGRESS).into());
        }
        let mut copied = Copied { state: CopyState::UnderWay, segments: 0, bytes: 0 };
        let keep = |copied: Copied| {
            if list.is_kept {
                self.copies.borrow_mut().insert(name.clone(), copied);
            }
        };
        keep(copied);
        for segment in &list.segments {
            match copy_segment(asked, &list.targets, segment).await {
                Ok(bytes) => (copied.segments, copied.bytes) = (copied.segments + 1, copied.bytes + bytes),
                Err(ended) => {
                    keep(Copied { state: CopyState::Aborted, ..copied });
                    return Err(ended);
                }
            }
            keep(copied);
        }
        keep(Copied { state: CopyState::Done, ..copied });
        Ok(Data::None)
    }

    pub(super) fn copy_results(&self, known: &Known, asked: &Asked<'_>) -> Going<Data> {
        let room = be32(&asked.cdb[10..14]) as usize;
        if known.service_action == Some(code::COPY_OPERATING_PARAMETERS) {
            return Ok(parameters(self.operating_parameters(), room));
        }
        let name = (asked.nexus.clone(), asked.cdb[2]);
        let copied = self.copies.borrow().get(&name).copied();
        let copied = copied.ok_or(Sense::invalid_byte(2))?;
        if copied.state != CopyState::UnderWay {
            // It is told once.
            self.copies.borrow_mut().remove(&name);
        }
        let mut data = 8_u32.to_be_bytes().to_vec();
        data.push(copied.state as u8);
        data.extend(copied.segments.to_be_bytes());
        // In KiB: no copy has more than fits then.
        data.push(1);
        data.extend(((copied.bytes / 1024) as u32).to_be_bytes());
        Ok(parameters(data, room))
    }

    fn operating_parameters(&self) -> Vec<u8> {
        let mut data = vec![0; 44];
        data[8..10].copy_from_slice(&(TARGETS_MAX as u16).to_be_bytes());
        data[10..12].copy_from_slice(&(SEGMENTS_MAX as u16).to_be_bytes());
        data[12..16].copy_from_slice(&(DESCRIPTORS_BYTES_MAX as u32).to_be_bytes());
        let segment = u32::from(u16::MAX) * self.facts.block_bytes;
        data[16..20].copy_from_slice(&segment.to_be_bytes());
        data[34..36].copy_from_slice(&u16::from(COPIES_MAX).to_be_bytes());
        data[36] = COPIES_MAX;
        data[37] = self.facts.block_bytes.ilog2() as u8;
        let codes = [SEGMENT_CODE, TARGET_CODE];
        data[43] = codes.len() as u8;
        data.extend(codes);
        let behind = data.len() as u32 - 4;
        data[..4].copy_from_slice(&behind.to_be_bytes());
        data
    }
}

/// The unit that is meant, if `asked` may use it.
fn unit_of(asked: &Asked<'_>, targets: &[CopyTarget], index: usize) -> Going<Reachable> {
    let target = targets.get(index).ok_or(aborted(AdditionalSense::COPY_TARGET_NOT_REACHABLE))?;
    let is_meant = |reached: &&Reachable| inquiry::is_named(&reached.unit.facts, &target.designator);
    let reached = asked.reach.iter().find(is_meant);
    let reached = reached.ok_or(aborted(AdditionalSense::COPY_TARGET_NOT_REACHABLE))?;
    match target.block_bytes == 0 || target.block_bytes == reached.unit.facts.block_bytes {
        true => Ok(reached.clone()),
        false => Err(aborted(AdditionalSense::INCORRECT_COPY_TARGET)),
    }
}

/// Copies a segment; how many bytes that were.
async fn copy_segment(asked: &Asked<'_>, targets: &[CopyTarget], segment: &Segment) -> Going<u64> {
    let Reachable { unit: from, .. } = unit_of(asked, targets, segment.from)?;
    let Reachable { unit: to, may_write } = unit_of(asked, targets, segment.to)?;
    from.check_medium().and(to.check_medium()).map_err(abort)?;
    from.reservations.borrow().check(asked.nexus, Use::Read)?;
    to.reservations.borrow().check(asked.nexus, Use::Write)?;
    if !may_write || to.check_writable().is_err() {
        return Err(aborted(AdditionalSense::WRITE_PROTECTED));
    }
    let sizes = (u64::from(from.facts.block_bytes), u64::from(to.facts.block_bytes));
    let bytes = u64::from(segment.blocks) * if segment.counts_destination { sizes.1 } else { sizes.0 };
    let range = |unit: &Unit, block: u64| {
        let block_bytes = u64::from(unit.facts.block_bytes);
        let is_whole = bytes.is_multiple_of(block_bytes);
        let range = Range { block, count: bytes / block_bytes };
        range.within(unit.blocks()).ok().filter(|_| is_whole).ok_or(aborted(AdditionalSense::NONE))
    };
    let (source, destination) = (range(&from, segment.from_block)?, range(&to, segment.to_block)?);
    let mut pieces: Vec<u64> = (0..bytes).step_by(PIECE_BYTES as usize).collect();
    if Rc::ptr_eq(&from, &to) && destination.block > source.block {
        // Where they overlap, nothing is overwritten before it was read.
        pieces.reverse();
    }
    for at in pieces {
        let length = PIECE_BYTES.min(bytes - at);
        let piece = |range: Range, size: u64| Range { block: range.block + at / size, count: length / size };
        let data = from.read(piece(source, sizes.0)).await.map_err(abort)?;
        to.write(piece(destination, sizes.1), data, to.stability(false)).await.map_err(abort)?;
    }
    Ok(bytes)
}

/// A copy that failed midway says so; why, it says in the words of the command that failed.
fn abort(ended: Ended) -> Ended {
    match ended {
        Ended::Check(Sense { additional, .. }) => aborted(additional),
        ended => ended,
    }
}

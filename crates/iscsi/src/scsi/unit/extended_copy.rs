//! EXTENDED COPY between units of one initiator, and RECEIVE COPY RESULTS (SPC-4, 6.4 and 6.18).

use super::{
    AccessibleUnit, CommandStatus, ExecutionGuard, LogicalUnit, ResponseData, ScsiRequest, UnitResult, be32,
    list_of, parameters, range::BlockRange,
};
use crate::scsi::{
    commands::{SupportedCommand, code},
    copy_list::{
        CopyList, CopySegment, CopyTarget, DESCRIPTORS_BYTES_MAX, SEGMENT_CODE, SEGMENTS_MAX, TARGET_CODE,
        TARGETS_MAX,
    },
    inquiry,
    reservations::CommandAccess,
    sense::{AdditionalSense, Sense, SenseKey},
};
use std::rc::Rc;

/// Bytes copied by one read and one write.
const PIECE_BYTES: u64 = 1 << 20;
/// Most copies an initiator can have: list identifiers are bytes.
const COPIES_MAX: u8 = 255;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CopyProgress {
    state: CopyState,
    segments: u16,
    bytes: u64,
}

/// COPY MANAGER STATUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyState {
    UnderWay = 0,
    Done = 1,
    Aborted = 2,
}

fn aborted(additional: AdditionalSense) -> CommandStatus {
    Sense::new(SenseKey::CopyAborted, additional).into()
}

impl LogicalUnit {
    pub(super) async fn copy(&self, request: &ScsiRequest<'_>) -> UnitResult<ResponseData> {
        let length = be32(&request.cdb[10..14]) as usize;
        if length == 0 {
            return Ok(ResponseData::None);
        }
        let list = CopyList::read(&list_of(&request.data, length))?;
        let name = (request.nexus.clone(), list.identifier);
        let is_under_way = |progress: &CopyProgress| progress.state == CopyState::UnderWay;
        if list.is_kept && self.copies.borrow().get(&name).is_some_and(is_under_way) {
            return Err(Sense::illegal(AdditionalSense::OPERATION_IN_PROGRESS).into());
        }
        let mut progress = CopyProgress { state: CopyState::UnderWay, segments: 0, bytes: 0 };
        let keep = |progress: CopyProgress| {
            if list.is_kept {
                self.copies.borrow_mut().insert(name.clone(), progress);
            }
        };
        keep(progress);
        for segment in &list.segments {
            match copy_segment(request, &list.targets, segment).await {
                Ok(bytes) => {
                    (progress.segments, progress.bytes) = (progress.segments + 1, progress.bytes + bytes)
                }
                Err(ended) => {
                    keep(CopyProgress { state: CopyState::Aborted, ..progress });
                    return Err(ended);
                }
            }
            keep(progress);
        }
        keep(CopyProgress { state: CopyState::Done, ..progress });
        Ok(ResponseData::None)
    }

    pub(super) fn copy_results(
        &self,
        known: &SupportedCommand,
        request: &ScsiRequest<'_>,
    ) -> UnitResult<ResponseData> {
        let room = be32(&request.cdb[10..14]) as usize;
        if known.service_action == Some(code::COPY_OPERATING_PARAMETERS) {
            return Ok(parameters(self.operating_parameters(), room));
        }
        let name = (request.nexus.clone(), request.cdb[2]);
        let progress = self.copies.borrow().get(&name).copied();
        let progress = progress.ok_or(Sense::invalid_byte(2))?;
        if progress.state != CopyState::UnderWay {
            // SPC-4, 6.18.4: the results are discarded once reported.
            self.copies.borrow_mut().remove(&name);
        }
        let mut data = 8_u32.to_be_bytes().to_vec();
        data.push(progress.state as u8);
        data.extend(progress.segments.to_be_bytes());
        // TRANSFER COUNT UNITS: KiB; every copy fits.
        data.push(1);
        data.extend(((progress.bytes / 1024) as u32).to_be_bytes());
        Ok(parameters(data, room))
    }

    fn operating_parameters(&self) -> Vec<u8> {
        let mut data = vec![0; 44];
        data[8..10].copy_from_slice(&(TARGETS_MAX as u16).to_be_bytes());
        data[10..12].copy_from_slice(&(SEGMENTS_MAX as u16).to_be_bytes());
        data[12..16].copy_from_slice(&(DESCRIPTORS_BYTES_MAX as u32).to_be_bytes());
        let segment = u32::from(u16::MAX) * self.properties.block_bytes;
        data[16..20].copy_from_slice(&segment.to_be_bytes());
        data[34..36].copy_from_slice(&u16::from(COPIES_MAX).to_be_bytes());
        data[36] = COPIES_MAX;
        data[37] = self.properties.block_bytes.ilog2() as u8;
        let codes = [SEGMENT_CODE, TARGET_CODE];
        data[43] = codes.len() as u8;
        data.extend(codes);
        let behind = data.len() as u32 - 4;
        data[..4].copy_from_slice(&behind.to_be_bytes());
        data
    }
}

/// The unit of target descriptor `index`, if the initiator may use it.
fn unit_of(request: &ScsiRequest<'_>, targets: &[CopyTarget], index: usize) -> UnitResult<AccessibleUnit> {
    let target = targets.get(index).ok_or(aborted(AdditionalSense::COPY_TARGET_NOT_REACHABLE))?;
    let is_meant =
        |reached: &&AccessibleUnit| inquiry::is_named(&reached.unit.properties, &target.designator);
    let reached = request.reach.iter().find(is_meant);
    let reached = reached.ok_or(aborted(AdditionalSense::COPY_TARGET_NOT_REACHABLE))?;
    if target.block_bytes == 0 || target.block_bytes == reached.unit.properties.block_bytes {
        Ok(reached.clone())
    } else {
        Err(aborted(AdditionalSense::INCORRECT_COPY_TARGET))
    }
}

/// Copies a segment and returns its length in bytes.
async fn copy_segment(
    request: &ScsiRequest<'_>,
    targets: &[CopyTarget],
    segment: &CopySegment,
) -> UnitResult<u64> {
    let AccessibleUnit { unit: from, .. } = unit_of(request, targets, segment.from)?;
    let AccessibleUnit { unit: to, may_write } = unit_of(request, targets, segment.to)?;
    let _executing = (ExecutionGuard::begin(&from), ExecutionGuard::begin(&to));
    from.check_admitted(request.nexus).and(to.check_admitted(request.nexus)).map_err(abort)?;
    from.check_medium().and(to.check_medium()).map_err(abort)?;
    from.reservations.borrow().check(request.nexus, CommandAccess::Read)?;
    to.reservations.borrow().check(request.nexus, CommandAccess::Write)?;
    if !may_write || to.check_writable().is_err() {
        return Err(aborted(AdditionalSense::WRITE_PROTECTED));
    }
    let sizes = (u64::from(from.properties.block_bytes), u64::from(to.properties.block_bytes));
    let bytes = u64::from(segment.blocks) * if segment.counts_destination { sizes.1 } else { sizes.0 };
    let range = |unit: &LogicalUnit, block: u64| {
        let block_bytes = u64::from(unit.properties.block_bytes);
        let is_whole = bytes.is_multiple_of(block_bytes);
        let range = BlockRange { block, count: bytes / block_bytes };
        range.within(unit.blocks()).ok().filter(|_| is_whole).ok_or(aborted(AdditionalSense::NONE))
    };
    let (source, destination) = (range(&from, segment.from_block)?, range(&to, segment.to_block)?);
    let mut pieces: Vec<u64> = (0..bytes).step_by(PIECE_BYTES as usize).collect();
    if Rc::ptr_eq(&from, &to) && destination.block > source.block {
        // Overlapping ranges: copy backwards.
        pieces.reverse();
    }
    for at in pieces {
        let length = PIECE_BYTES.min(bytes - at);
        let piece = |range: BlockRange, size: u64| BlockRange {
            block: range.block + at / size,
            count: length / size,
        };
        let data = from.read(piece(source, sizes.0)).await.map_err(abort)?;
        to.write(piece(destination, sizes.1), data, to.stability(false)).await.map_err(abort)?;
    }
    Ok(bytes)
}

/// COPY ABORTED with the additional sense of the read or write that failed.
fn abort(ended: CommandStatus) -> CommandStatus {
    match ended {
        CommandStatus::CheckCondition(Sense { additional, .. }) => aborted(additional),
        ended => ended,
    }
}

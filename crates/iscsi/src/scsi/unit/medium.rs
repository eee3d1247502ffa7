//! Commands that read, write or deallocate blocks.

use super::{
    CommandStatus, LogicalUnit, ResponseData, ScsiRequest, UnitResult, be16, be32, be64, buffers_of,
    bytes_of, failed, parameters, range::BlockRange,
};
use crate::scsi::{
    commands::{SupportedCommand, code},
    properties::{COMPARE_BLOCKS_MAX, UNMAP_BLOCKS_MAX, UNMAP_RANGES_MAX, WRITE_SAME_BLOCKS_MAX},
    sense::{AdditionalSense, Sense, SenseKey},
};
use std::sync::Arc;
use world::{Buffer, ByteCount, ByteOffset, IoErrorKind, Stability};

/// Bytes of one write of WRITE SAME.
const SAME_BYTES: usize = 1 << 20;
/// Most descriptors in a GET LBA STATUS answer.
const STATUS_MAX: usize = 1024;

fn illegal<T>(what: AdditionalSense) -> UnitResult<T> {
    Err(Sense::illegal(what).into())
}

fn is_fua(cdb: &[u8]) -> bool {
    // Six-byte commands have no FUA.
    cdb[0] >> 5 != 0 && cdb[1] & 0x08 != 0
}

impl LogicalUnit {
    pub(super) async fn execute_medium(
        &self,
        known: &SupportedCommand,
        request: ScsiRequest<'_>,
    ) -> UnitResult<ResponseData> {
        let cdb = request.cdb.to_vec();
        match known.code {
            code::READ_6 | code::READ_10 | code::READ_12 | code::READ_16 => {
                let range = self.transfer(&cdb)?;
                Ok(ResponseData::Blocks(self.read(range).await?))
            }
            code::WRITE_6 | code::WRITE_10 | code::WRITE_12 | code::WRITE_16 => {
                let range = self.received_blocks(self.transfer(&cdb)?, &request.data)?;
                self.write(range, request.data, self.stability(is_fua(&cdb))).await
            }
            code::WRITE_VERIFY_10 | code::WRITE_VERIFY_12 | code::WRITE_VERIFY_16 => {
                let range = self.received_blocks(self.transfer(&cdb)?, &request.data)?;
                let written = bytes_of(&request.data);
                self.write(range, buffers_of(&written), Stability::Stable).await?;
                self.compare(range, &written).await
            }
            code::VERIFY_10 | code::VERIFY_12 | code::VERIFY_16 => self.verify(&cdb, request.data).await,
            code::COMPARE_AND_WRITE => self.compare_and_write(&cdb, request.data).await,
            code::ORWRITE_16 => self.or_write(&cdb, request.data).await,
            code::WRITE_SAME_10 | code::WRITE_SAME_16 => self.write_same(&cdb, request.data).await,
            code::UNMAP => self.unmap(&cdb, bytes_of(&request.data)).await,
            code::SYNCHRONIZE_CACHE_10 | code::SYNCHRONIZE_CACHE_16 => {
                BlockRange::of(&cdb).within(self.blocks())?;
                self.flush().await
            }
            code::SERVICE_ACTION_IN_16 => self.block_status(&cdb).await,
            // PRE-FETCH is advisory.
            code::PRE_FETCH_10 | code::PRE_FETCH_16 => {
                BlockRange::of(&cdb).within(self.blocks())?;
                Ok(ResponseData::None)
            }
            code::START_STOP_UNIT => self.start_stop(&request).await,
            code::EXTENDED_COPY => self.copy(&request).await,
            _ => unreachable!("{known:?} is not a medium command"),
        }
    }

    /// The range of a command, within the maximum transfer length.
    fn transfer(&self, cdb: &[u8]) -> UnitResult<BlockRange> {
        let range = BlockRange::of(cdb).within(self.blocks())?;
        if range.count > self.properties.transfer_blocks_max().into() {
            return illegal(AdditionalSense::INVALID_FIELD_IN_CDB);
        }
        Ok(range)
    }

    /// The blocks whose data arrived. If the initiator announced fewer bytes than the CDB's transfer length,
    /// the residual count reports it (RFC 7143, 11.4.5.1) and whole blocks are written.
    fn received_blocks(&self, range: BlockRange, data: &[Buffer]) -> UnitResult<BlockRange> {
        let given: u64 = data.iter().map(|buffer| buffer.len() as u64).sum();
        let block_bytes = u64::from(self.properties.block_bytes);
        if !given.is_multiple_of(block_bytes) {
            return illegal(AdditionalSense::INVALID_FIELD_IN_INFORMATION_UNIT);
        }
        Ok(BlockRange { count: range.count.min(given / block_bytes), ..range })
    }

    pub(super) fn check_may_write(&self, request: &ScsiRequest<'_>) -> UnitResult<()> {
        if !request.may_write {
            return Err(Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED).into());
        }
        self.check_writable()
    }

    pub(super) fn check_writable(&self) -> UnitResult<()> {
        let why = match (self.properties.is_read_only, self.mode.get().is_write_protected) {
            (true, _) => AdditionalSense::WRITE_PROTECTED,
            (false, true) => AdditionalSense::SOFTWARE_WRITE_PROTECTED,
            (false, false) => return Ok(()),
        };
        Err(Sense::new(SenseKey::DataProtect, why).into())
    }

    pub(super) async fn read(&self, range: BlockRange) -> UnitResult<Vec<Buffer>> {
        let (at, length) = range.bytes(self.properties.block_bytes);
        if length.0 == 0 {
            return Ok(Vec::new());
        }
        let into = vec![Buffer::zeroed(length.0 as usize)];
        self.device.read(at, into).await.map_err(|error| failed(&error, false))
    }

    pub(super) async fn write(
        &self,
        range: BlockRange,
        data: Vec<Buffer>,
        stability: Stability,
    ) -> UnitResult<ResponseData> {
        let _others_may = self.writing.read().await;
        self.write_now(range, data, stability).await?;
        Ok(ResponseData::None)
    }

    /// The caller holds `writing`.
    async fn write_now(&self, range: BlockRange, data: Vec<Buffer>, stability: Stability) -> UnitResult<()> {
        self.check_writable()?;
        let (at, length) = range.bytes(self.properties.block_bytes);
        let given: u64 = data.iter().map(|buffer| buffer.len() as u64).sum();
        if given != length.0 {
            return illegal(AdditionalSense::INVALID_FIELD_IN_CDB);
        }
        if length.0 == 0 {
            return Ok(());
        }
        let data = data.into_iter().map(Arc::new).collect();
        self.device.write(at, data, stability).await.map_err(|error| failed(&error, true))
    }

    pub(super) async fn flush(&self) -> UnitResult<ResponseData> {
        self.device.flush().await.map_err(|error| failed(&error, true))?;
        Ok(ResponseData::None)
    }

    /// MISCOMPARE with the offset of the first byte that differs.
    async fn compare(&self, range: BlockRange, expected: &[u8]) -> UnitResult<ResponseData> {
        let found = bytes_of(&self.read(range).await?);
        match found.iter().zip(expected).position(|(found, expected)| found != expected) {
            None => Ok(ResponseData::None),
            Some(place) => Err(CommandStatus::CheckCondition(Sense {
                key: SenseKey::Miscompare,
                additional: AdditionalSense::MISCOMPARE_DURING_VERIFY,
                information: Some(place as u64),
                field: None,
            })),
        }
    }

    async fn verify(&self, cdb: &[u8], data: Vec<Buffer>) -> UnitResult<ResponseData> {
        let range = self.transfer(cdb)?;
        let mut expected = bytes_of(&data);
        let length = range.bytes(self.properties.block_bytes).1.0 as usize;
        match cdb[1] >> 1 & 3 {
            // BYTCHK 0: only read.
            0 => return self.read(range).await.map(|_| ResponseData::None),
            1 => {}
            // BYTCHK 3: one block to compare every block with.
            3 if range.count > 0 => expected = expected.repeat(range.count as usize),
            3 => {}
            _ => return illegal(AdditionalSense::INVALID_FIELD_IN_CDB),
        }
        if expected.len() != length {
            return illegal(AdditionalSense::INVALID_FIELD_IN_CDB);
        }
        self.compare(range, &expected).await
    }

    async fn compare_and_write(&self, cdb: &[u8], data: Vec<Buffer>) -> UnitResult<ResponseData> {
        let range = BlockRange { block: be64(&cdb[2..10]), count: cdb[13].into() }.within(self.blocks())?;
        assert!(range.count <= COMPARE_BLOCKS_MAX.into(), "a byte counts no more");
        let data = bytes_of(&data);
        let length = range.bytes(self.properties.block_bytes).1.0 as usize;
        if data.len() != 2 * length {
            return illegal(AdditionalSense::INVALID_FIELD_IN_CDB);
        }
        if length == 0 {
            return Ok(ResponseData::None);
        }
        let (expected, new) = data.split_at(length);
        let _alone = self.writing.write().await;
        self.compare(range, expected).await?;
        self.write_now(range, vec![Buffer::copy_of(new)], self.stability(is_fua(cdb))).await?;
        Ok(ResponseData::None)
    }

    async fn or_write(&self, cdb: &[u8], data: Vec<Buffer>) -> UnitResult<ResponseData> {
        let range = self.transfer(cdb)?;
        let mut new = bytes_of(&data);
        let _alone = self.writing.write().await;
        let found = bytes_of(&self.read(range).await?);
        if new.len() != found.len() {
            return illegal(AdditionalSense::INVALID_FIELD_IN_CDB);
        }
        if new.is_empty() {
            return Ok(ResponseData::None);
        }
        new.iter_mut().zip(found).for_each(|(new, found)| *new |= found);
        self.write_now(range, vec![Buffer::copy_of(&new)], self.stability(is_fua(cdb))).await?;
        Ok(ResponseData::None)
    }

    async fn write_same(&self, cdb: &[u8], data: Vec<Buffer>) -> UnitResult<ResponseData> {
        let range = BlockRange::of(cdb).within(self.blocks())?;
        let (unmaps, anchors, has_no_data) = (cdb[1] & 0x08 != 0, cdb[1] & 0x10 != 0, cdb[1] & 0x01 != 0);
        let can_unmap = self.properties.is_thin || !unmaps;
        // WSNZ.
        if range.count == 0 || range.count > WRITE_SAME_BLOCKS_MAX.into() || anchors || !can_unmap {
            return illegal(AdditionalSense::INVALID_FIELD_IN_CDB);
        }
        let block_bytes = self.properties.block_bytes as usize;
        let block = if has_no_data { vec![0; block_bytes] } else { bytes_of(&data) };
        if block.len() != block_bytes {
            return illegal(AdditionalSense::INVALID_FIELD_IN_CDB);
        }
        let _others_may = self.writing.read().await;
        let (at, length) = range.bytes(self.properties.block_bytes);
        if block.iter().all(|&byte| byte == 0) && self.write_zeroes(at, length, !unmaps).await? {
            return Ok(ResponseData::None);
        }
        let piece =
            Arc::new(Buffer::copy_of(&block.repeat((SAME_BYTES / block_bytes).min(range.count as usize))));
        let mut done = 0;
        while done < length.0 {
            let count = (length.0 - done).min(piece.len() as u64);
            let piece = if count == piece.len() as u64 {
                Arc::clone(&piece)
            } else {
                Arc::new(Buffer::copy_of(&piece[..count as usize]))
            };
            let written =
                self.device.write(ByteOffset(at.0 + done), vec![piece], self.stability(false)).await;
            written.map_err(|error| failed(&error, true))?;
            done += count;
        }
        Ok(ResponseData::None)
    }

    /// Writes zeroes without transferring them; false if the device cannot.
    async fn write_zeroes(&self, at: ByteOffset, length: ByteCount, keeps_space: bool) -> UnitResult<bool> {
        let Some(sparse) = &self.sparse else { return Ok(false) };
        match sparse.write_zeroes(at, length, keeps_space, self.stability(false)).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == IoErrorKind::Unsupported => Ok(false),
            Err(error) => Err(failed(&error, true)),
        }
    }

    async fn unmap(&self, cdb: &[u8], list: Vec<u8>) -> UnitResult<ResponseData> {
        let anchors = cdb[1] & 0x01 != 0;
        if !self.properties.is_thin {
            return illegal(AdditionalSense::INVALID_OPERATION_CODE);
        }
        if anchors {
            return illegal(AdditionalSense::INVALID_FIELD_IN_CDB);
        }
        let length = be16(&cdb[7..9]);
        if length == 0 {
            return Ok(ResponseData::None);
        }
        if length < 8 || list.len() < length {
            return illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
        }
        let described = be16(&list[2..4]).min(length - 8);
        let ranges: Vec<BlockRange> = list[8..8 + described]
            .chunks_exact(16)
            .map(|range| BlockRange { block: be64(range), count: be32(&range[8..12]).into() })
            .collect();
        let blocks: u64 = ranges.iter().map(|range| range.count).sum();
        if ranges.len() > UNMAP_RANGES_MAX as usize || blocks > UNMAP_BLOCKS_MAX.into() {
            return illegal(AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST);
        }
        for range in &ranges {
            range.within(self.blocks())?;
        }
        let _others_may = self.writing.read().await;
        for range in ranges.into_iter().filter(|range| range.count > 0) {
            let (at, length) = range.bytes(self.properties.block_bytes);
            if !self.write_zeroes(at, length, false).await? {
                // A device may keep blocks it cannot discard.
                self.device.discard(at, length).await.map_err(|error| failed(&error, true))?;
            }
        }
        Ok(ResponseData::None)
    }

    /// GET LBA STATUS (SBC-3, 5.5).
    async fn block_status(&self, cdb: &[u8]) -> UnitResult<ResponseData> {
        let first = be64(&cdb[2..10]);
        let room = be32(&cdb[10..14]) as usize;
        let count = self.blocks().checked_sub(first).filter(|&count| count > 0);
        let Some(count) = count else { return illegal(AdditionalSense::LBA_OUT_OF_RANGE) };
        let block_bytes = u64::from(self.properties.block_bytes);
        let mut pieces = vec![(count, false)];
        if let (Some(sparse), true) = (&self.sparse, self.properties.is_thin) {
            let (at, length) = BlockRange { block: first, count }.bytes(self.properties.block_bytes);
            let extents = sparse.extents(at, length).await.map_err(|error| failed(&error, false))?;
            pieces = extents.iter().map(|extent| (extent.length.0 / block_bytes, extent.is_hole)).collect();
        }
        let mut block = first;
        let mut body = Vec::new();
        for (count, is_hole) in pieces.into_iter().filter(|(count, _)| *count > 0).take(STATUS_MAX) {
            let count = count.min(u32::MAX.into());
            body.extend(block.to_be_bytes());
            body.extend((count as u32).to_be_bytes());
            body.extend([u8::from(is_hole), 0, 0, 0]);
            block += count;
        }
        let mut data = ((body.len() + 4) as u32).to_be_bytes().to_vec();
        data.extend([0; 4]);
        data.extend(body);
        Ok(parameters(data, room))
    }
}

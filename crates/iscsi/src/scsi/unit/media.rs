//! Commands that read and write blocks, or let them go.

use super::{
    Asked, Data, Ended, Going, Unit, be16, be32, be64, bytes_of, failed, parameters, pieces_of, range::Range,
};
use crate::scsi::{
    commands::{Known, code},
    facts::{COMPARE_BLOCKS_MAX, UNMAP_BLOCKS_MAX, UNMAP_RANGES_MAX, WRITE_SAME_BLOCKS_MAX},
    sense::{AdditionalSense, Sense, SenseKey},
};
use std::sync::Arc;
use world::{Buffer, ByteCount, ByteOffset, IoErrorKind, Stability};

/// Bytes written at once by WRITE SAME.
const SAME_BYTES: usize = 1 << 20;
/// Extents told by one GET LBA STATUS at most.
const STATUS_MAX: usize = 1024;

fn illegal<T>(what: AdditionalSense) -> Going<T> {
    Err(Sense::illegal(what).into())
}

fn is_fua(cdb: &[u8]) -> bool {
    // The six-byte commands have none.
    cdb[0] >> 5 != 0 && cdb[1] & 0x08 != 0
}

impl Unit {
    pub(super) async fn use_medium(&self, known: &Known, asked: Asked<'_>) -> Going<Data> {
        let cdb = asked.cdb.to_vec();
        match known.code {
            code::READ_6 | code::READ_10 | code::READ_12 | code::READ_16 => {
                let range = self.transfer(&cdb)?;
                Ok(Data::Blocks(self.read(range).await?))
            }
            code::WRITE_6 | code::WRITE_10 | code::WRITE_12 | code::WRITE_16 => {
                let range = self.as_far_as_it_came(self.transfer(&cdb)?, &asked.data)?;
                self.write(range, asked.data, self.stability(is_fua(&cdb))).await
            }
            code::WRITE_VERIFY_10 | code::WRITE_VERIFY_12 | code::WRITE_VERIFY_16 => {
                let range = self.as_far_as_it_came(self.transfer(&cdb)?, &asked.data)?;
                let written = bytes_of(&asked.data);
                self.write(range, pieces_of(&written), Stability::Stable).await?;
                self.compare(range, &written).await
            }
            code::VERIFY_10 | code::VERIFY_12 | code::VERIFY_16 => self.verify(&cdb, asked.data).await,
            code::COMPARE_AND_WRITE => self.compare_and_write(&cdb, asked.data).await,
            code::ORWRITE_16 => self.or_write(&cdb, asked.data).await,
            code::WRITE_SAME_10 | code::WRITE_SAME_16 => self.write_same(&cdb, asked.data).await,
            code::UNMAP => self.unmap(&cdb, bytes_of(&asked.data)).await,
            code::SYNCHRONIZE_CACHE_10 | code::SYNCHRONIZE_CACHE_16 => {
                Range::of(&cdb).within(self.blocks())?;
                self.flush().await
            }
            code::SERVICE_ACTION_IN_16 => self.block_status(&cdb).await,
            // PRE-FETCH: a hint.
            code::PRE_FETCH_10 | code::PRE_FETCH_16 => {
                Range::of(&cdb).within(self.blocks())?;
                Ok(Data::None)
            }
            code::START_STOP_UNIT => self.start_stop(&asked).await,
            code::EXTENDED_COPY => self.copy(&asked).await,
            _ => unreachable!("{known:?} is no command of media"),
        }
    }

    /// The blocks of a command that carries them.
    fn transfer(&self, cdb: &[u8]) -> Going<Range> {
        let range = Range::of(cdb).within(self.blocks())?;
        if range.count > self.facts.transfer_blocks_max().into() {
            return illegal(AdditionalSense::INVALID_FIELD_IN_CDB);
        }
        Ok(range)
    }

    /// The blocks whose data have come. An initiator that announced fewer bytes than its command takes is told of it by
    /// the residual count (RFC 7143, 11.4.5.1); what it sent is written, if it is whole blocks.
    fn as_far_as_it_came(&self, range: Range, data: &[Buffer]) -> Going<Range> {
        let given: u64 = data.iter().map(|buffer| buffer.len() as u64).sum();
        let block_bytes = u64::from(self.facts.block_bytes);
        if !given.is_multiple_of(block_bytes) {
            return illegal(AdditionalSense::INVALID_FIELD_IN_INFORMATION_UNIT);
        }
        Ok(Range { count: range.count.min(given / block_bytes), ..range })
    }

    pub(super) fn check_may_write(&self, asked: &Asked<'_>) -> Going<()> {
        if !asked.may_write {
            return Err(Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED).into());
        }
        self.check_writable()
    }

    pub(super) fn check_writable(&self) -> Going<()> {
        let why = match (self.facts.is_read_only, self.mode.get().is_write_protected) {
            (true, _) => AdditionalSense::WRITE_PROTECTED,
            (false, true) => AdditionalSense::SOFTWARE_WRITE_PROTECTED,
            (false, false) => return Ok(()),
        };
        Err(Sense::new(SenseKey::DataProtect, why).into())
    }

    pub(super) async fn read(&self, range: Range) -> Going<Vec<Buffer>> {
        let (at, length) = range.bytes(self.facts.block_bytes);
        if length.0 == 0 {
            return Ok(Vec::new());
        }
        let into = vec![Buffer::zeroed(length.0 as usize)];
        self.device.read(at, into).await.map_err(|error| failed(&error, false))
    }

    pub(super) async fn write(&self, range: Range, data: Vec<Buffer>, stability: Stability) -> Going<Data> {
        let _others_may = self.writing.read().await;
        self.write_now(range, data, stability).await?;
        Ok(Data::None)
    }

    /// To be called by who holds `writing`.
    async fn write_now(&self, range: Range, data: Vec<Buffer>, stability: Stability) -> Going<()> {
        self.check_writable()?;
        let (at, length) = range.bytes(self.facts.block_bytes);
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

    pub(super) async fn flush(&self) -> Going<Data> {
        self.device.flush().await.map_err(|error| failed(&error, true))?;
        Ok(Data::None)
    }

    /// MISCOMPARE, with the place of the first byte that differs, if one does.
    async fn compare(&self, range: Range, expected: &[u8]) -> Going<Data> {
        let found = bytes_of(&self.read(range).await?);
        match found.iter().zip(expected).position(|(found, expected)| found != expected) {
            None => Ok(Data::None),
            Some(place) => Err(Ended::Check(Sense {
                key: SenseKey::Miscompare,
                additional: AdditionalSense::MISCOMPARE_DURING_VERIFY,
                information: Some(place as u64),
                field: None,
            })),
        }
    }

    async fn verify(&self, cdb: &[u8], data: Vec<Buffer>) -> Going<Data> {
        let range = self.transfer(cdb)?;
        let mut expected = bytes_of(&data);
        let length = range.bytes(self.facts.block_bytes).1.0 as usize;
        match cdb[1] >> 1 & 3 {
            // Whether it can be read.
            0 => return self.read(range).await.map(|_| Data::None),
            1 => {}
            // One block, which all others are to be like.
            3 if range.count > 0 => expected = expected.repeat(range.count as usize),
            3 => {}
            _ => return illegal(AdditionalSense::INVALID_FIELD_IN_CDB),
        }
        if expected.len() != length {
            return illegal(AdditionalSense::INVALID_FIELD_IN_CDB);
        }
        self.compare(range, &expected).await
    }

    async fn compare_and_write(&self, cdb: &[u8], data: Vec<Buffer>) -> Going<Data> {
        let range = Range { block: be64(&cdb[2..10]), count: cdb[13].into() }.within(self.blocks())?;
        assert!(range.count <= COMPARE_BLOCKS_MAX.into(), "a byte counts no more");
        let data = bytes_of(&data);
        let length = range.bytes(self.facts.block_bytes).1.0 as usize;
        if data.len() != 2 * length {
            return illegal(AdditionalSense::INVALID_FIELD_IN_CDB);
        }
        if length == 0 {
            return Ok(Data::None);
        }
        let (expected, new) = data.split_at(length);
        let _alone = self.writing.write().await;
        self.compare(range, expected).await?;
        self.write_now(range, vec![Buffer::copy_of(new)], self.stability(is_fua(cdb))).await?;
        Ok(Data::None)
    }

    async fn or_write(&self, cdb: &[u8], data: Vec<Buffer>) -> Going<Data> {
        let range = self.transfer(cdb)?;
        let mut new = bytes_of(&data);
        let _alone = self.writing.write().await;
        let found = bytes_of(&self.read(range).await?);
        if new.len() != found.len() {
            return illegal(AdditionalSense::INVALID_FIELD_IN_CDB);
        }
        if new.is_empty() {
            return Ok(Data::None);
        }
        new.iter_mut().zip(found).for_each(|(new, found)| *new |= found);
        self.write_now(range, vec![Buffer::copy_of(&new)], self.stability(is_fua(cdb))).await?;
        Ok(Data::None)
    }

    async fn write_same(&self, cdb: &[u8], data: Vec<Buffer>) -> Going<Data> {
        let range = Range::of(cdb).within(self.blocks())?;
        let (unmaps, anchors, has_no_data) = (cdb[1] & 0x08 != 0, cdb[1] & 0x10 != 0, cdb[1] & 0x01 != 0);
        let can_unmap = self.facts.is_thin || !unmaps;
        // WSNZ: no blocks are not all of them.
        if range.count == 0 || range.count > WRITE_SAME_BLOCKS_MAX.into() || anchors || !can_unmap {
            return illegal(AdditionalSense::INVALID_FIELD_IN_CDB);
        }
        let block_bytes = self.facts.block_bytes as usize;
        let block = if has_no_data { vec![0; block_bytes] } else { bytes_of(&data) };
        if block.len() != block_bytes {
            return illegal(AdditionalSense::INVALID_FIELD_IN_CDB);
        }
        let _others_may = self.writing.read().await;
        let (at, length) = range.bytes(self.facts.block_bytes);
        if block.iter().all(|&byte| byte == 0) && self.write_zeroes(at, length, !unmaps).await? {
            return Ok(Data::None);
        }
        let piece =
            Arc::new(Buffer::copy_of(&block.repeat((SAME_BYTES / block_bytes).min(range.count as usize))));
        let mut done = 0;
        while done < length.0 {
            let count = (length.0 - done).min(piece.len() as u64);
            let piece = match count == piece.len() as u64 {
                true => Arc::clone(&piece),
                false => Arc::new(Buffer::copy_of(&piece[..count as usize])),
            };
            let written =
                self.device.write(ByteOffset(at.0 + done), vec![piece], self.stability(false)).await;
            written.map_err(|error| failed(&error, true))?;
            done += count;
        }
        Ok(Data::None)
    }

    /// Zeroes without writing them; whether that could be done.
    async fn write_zeroes(&self, at: ByteOffset, length: ByteCount, keeps_space: bool) -> Going<bool> {
        let Some(sparse) = &self.sparse else { return Ok(false) };
        match sparse.write_zeroes(at, length, keeps_space, self.stability(false)).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == IoErrorKind::Unsupported => Ok(false),
            Err(error) => Err(failed(&error, true)),
        }
    }

    async fn unmap(&self, cdb: &[u8], list: Vec<u8>) -> Going<Data> {
        let anchors = cdb[1] & 0x01 != 0;
        if !self.facts.is_thin {
            return illegal(AdditionalSense::INVALID_OPERATION_CODE);
        }
        if anchors {
            return illegal(AdditionalSense::INVALID_FIELD_IN_CDB);
        }
        let length = be16(&cdb[7..9]);
        if length == 0 {
            return Ok(Data::None);
        }
        if length < 8 || list.len() < length {
            return illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
        }
        let described = be16(&list[2..4]).min(length - 8);
        let ranges: Vec<Range> = list[8..8 + described]
            .chunks_exact(16)
            .map(|range| Range { block: be64(range), count: be32(&range[8..12]).into() })
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
            let (at, length) = range.bytes(self.facts.block_bytes);
            if !self.write_zeroes(at, length, false).await? {
                // What cannot be let go may keep what it has.
                self.device.discard(at, length).await.map_err(|error| failed(&error, true))?;
            }
        }
        Ok(Data::None)
    }

    /// GET LBA STATUS (SBC-3, 5.5).
    async fn block_status(&self, cdb: &[u8]) -> Going<Data> {
        let first = be64(&cdb[2..10]);
        let room = be32(&cdb[10..14]) as usize;
        let count = self.blocks().checked_sub(first).filter(|&count| count > 0);
        let Some(count) = count else { return illegal(AdditionalSense::LBA_OUT_OF_RANGE) };
        let block_bytes = u64::from(self.facts.block_bytes);
        let mut pieces = vec![(count, false)];
        if let (Some(sparse), true) = (&self.sparse, self.facts.is_thin) {
            let (at, length) = Range { block: first, count }.bytes(self.facts.block_bytes);
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

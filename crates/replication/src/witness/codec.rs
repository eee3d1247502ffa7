//! Bytes of groups, for the file and for messages: little-endian numbers, each value in exactly one form.
//!
//! | Bytes | A group |
//! |---|---|
//! | 16 | UUID of the group, not 0 |
//! | 16 | holder; 0: none |
//! | 16 | the site for which the lease is reserved; 0: none |
//! | 8 | fence, from 1 on |
//! | 8 | revision |
//! | 4 | span of the lease, ms |
//! | 16, 16 | last epoch, the one before |
//! | 1 | 0: in sync, 1: alone |
//! | 12 | if alone: since, civil time (8 bytes of seconds, 4 of nanoseconds) |
//! | 1 | number of sites, at most 16 |
//! | 28 each | UUID of a site, its last word as civil time; ascending |

use super::{
    group::{SITES_MAX, WitnessCondition, WitnessGroup},
    lease::{LeaseFence, LeaseSpan},
};
use array::format::{EpochId, GroupId, SiteId};
use std::collections::BTreeMap;
use world::WallTime;

/// A value that breaks a rule of the encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {at}: {field} is not valid")]
pub struct WitnessCodecError {
    /// Bytes read so far.
    pub at: usize,
    pub field: &'static str,
}

/// Reads values from their start to their end.
#[derive(Debug)]
pub(super) struct ByteReader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> ByteReader<'b> {
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub fn fault(&self, field: &'static str) -> WitnessCodecError {
        WitnessCodecError { at: self.at, field }
    }

    pub fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WitnessCodecError> {
        let found = self.bytes[self.at..].first_chunk().ok_or_else(|| self.fault(field))?;
        self.at += N;
        Ok(*found)
    }

    pub fn u8(&mut self, field: &'static str) -> Result<u8, WitnessCodecError> {
        Ok(self.array::<1>(field)?[0])
    }

    pub fn u32(&mut self, field: &'static str) -> Result<u32, WitnessCodecError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    pub fn u64(&mut self, field: &'static str) -> Result<u64, WitnessCodecError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    /// A UUID that is not 0.
    pub fn uuid(&mut self, field: &'static str) -> Result<[u8; 16], WitnessCodecError> {
        let uuid = self.array(field)?;
        if uuid == [0; 16] { Err(self.fault(field)) } else { Ok(uuid) }
    }

    fn site_or_none(&mut self, field: &'static str) -> Result<Option<SiteId>, WitnessCodecError> {
        Ok(Some(SiteId(self.array(field)?)).filter(|site| *site != SiteId::NONE))
    }

    pub fn span(&mut self) -> Result<LeaseSpan, WitnessCodecError> {
        LeaseSpan::from_ms(self.u32("the span")?).ok_or_else(|| self.fault("the span"))
    }

    fn wall(&mut self) -> Result<WallTime, WitnessCodecError> {
        let seconds = i64::from_le_bytes(self.array("a time")?);
        let nanos = self.u32("a time")?;
        if nanos < 1_000_000_000 { Ok(WallTime { seconds, nanos }) } else { Err(self.fault("a time")) }
    }

    pub fn group(&mut self) -> Result<(GroupId, WitnessGroup), WitnessCodecError> {
        let group = GroupId(self.uuid("the group")?);
        let (holder, reserved) = (self.site_or_none("the holder")?, self.site_or_none("the reserved site")?);
        let fence = LeaseFence(self.u64("the fence")?);
        // No group has both, and its numbers are far from their end.
        if (holder.is_some() && reserved.is_some()) || fence == LeaseFence(0) || fence.0 > i64::MAX as u64 {
            return Err(self.fault("the fence"));
        }
        let revision = self.u64("the revision")?;
        if revision > i64::MAX as u64 {
            return Err(self.fault("the revision"));
        }
        let span = self.span()?;
        let (head, head_before) = (EpochId(self.uuid("the epoch")?), EpochId(self.uuid("the epoch before")?));
        let condition = match self.u8("the condition")? {
            0 => WitnessCondition::InSync,
            1 => WitnessCondition::Alone { since: self.wall()? },
            _ => return Err(self.fault("the condition")),
        };
        let count = usize::from(self.u8("the number of sites")?);
        if count > SITES_MAX {
            return Err(self.fault("the number of sites"));
        }
        let mut words = BTreeMap::new();
        for _ in 0..count {
            let site = SiteId(self.uuid("a site")?);
            if words.last_key_value().is_some_and(|(last, _)| *last >= site) {
                return Err(self.fault("the order of sites"));
            }
            words.insert(site, self.wall()?);
        }
        let state =
            WitnessGroup { holder, reserved, fence, revision, span, condition, head, head_before, words };
        Ok((group, state))
    }

    /// To be called last.
    pub fn end(self) -> Result<(), WitnessCodecError> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.fault("the end")) }
    }
}

/// A group as another service keeps it.
pub fn encode_group(group: GroupId, state: &WitnessGroup) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_group(&mut bytes, group, state);
    bytes
}

/// Reads a group.
///
/// # Errors
///
/// The bytes are no group, or more than that.
pub fn decode_group(bytes: &[u8]) -> Result<(GroupId, WitnessGroup), WitnessCodecError> {
    let mut reader = ByteReader::new(bytes);
    let found = reader.group()?;
    reader.end()?;
    Ok(found)
}

/// Appends a group.
pub(super) fn write_group(into: &mut Vec<u8>, group: GroupId, state: &WitnessGroup) {
    let site = |site: Option<SiteId>| site.unwrap_or(SiteId::NONE).0;
    into.extend(group.0);
    into.extend(site(state.holder));
    into.extend(site(state.reserved));
    into.extend(state.fence.0.to_le_bytes());
    into.extend(state.revision.to_le_bytes());
    into.extend(state.span.ms().to_le_bytes());
    into.extend(state.head.0);
    into.extend(state.head_before.0);
    match state.condition {
        WitnessCondition::InSync => into.push(0),
        WitnessCondition::Alone { since } => {
            into.push(1);
            write_wall(into, since);
        }
    }
    into.push(u8::try_from(state.words.len()).expect("sites are few"));
    for (site, word) in &state.words {
        into.extend(site.0);
        write_wall(into, *word);
    }
}

fn write_wall(into: &mut Vec<u8>, wall: WallTime) {
    into.extend(wall.seconds.to_le_bytes());
    into.extend(wall.nanos.to_le_bytes());
}

//! The record of a group in its pool: what people set, and what the site must not forget.
//!
//! Invariants:
//!
//! 1. A record has exactly one encoding, and what decodes is a state in which flows can begin.
//! 2. A record that is put is stable, whatever else the pool waits for.

use crate::{
    connect::{SiteRole, UnfinishedPass},
    frame::{
        FrameError, FrameFault,
        body::{BodyReader, BodyWriter},
    },
    group_state::{GroupRecords, GroupState},
    session::{BoundPolicy, ReplicationMode},
};
use array::{
    error::Error,
    format::{Fence, GroupId, SiteId, Stamp, VolumeId},
    pool::Pool,
};
use std::{rc::Rc, time::Duration};
use world::LocalFuture;

/// Version of the record of a group without a witness.
const VERSION: u16 = 1;
/// Version of the record of a group with a witness.
const VERSION_WITH_WITNESS: u16 = 2;
/// Addresses of a witness.
pub const WITNESS_ADDRESSES_MAX: usize = 8;
/// Bytes of an address.
const ADDRESS_BYTES_MAX: usize = 255;
/// Bytes of a name.
pub const GROUP_NAME_BYTES_MAX: usize = 128;
/// Volumes of a group in one pool: as many as a record of its log can cut.
pub const GROUP_VOLUMES_MAX: usize = 124;

/// The settings of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    pub name: String,
    pub mode: ReplicationMode,
    /// The other site.
    pub peer: SiteId,
    /// Its volumes in this pool, each once.
    pub volumes: Vec<VolumeId>,
    /// The other site takes over without a person.
    pub auto: Option<AutoFailover>,
}

/// Failover without a person, by the leases of a witness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoFailover {
    /// Addresses of the witness, which are tried in this order: HOST or HOST:PORT.
    pub witness: Vec<String>,
}

impl GroupSettings {
    /// The rule that these settings break, if they break one.
    pub fn contradiction(&self) -> Option<&'static str> {
        let auto = self.auto.as_ref()?;
        let has_addresses = (1..=WITNESS_ADDRESSES_MAX).contains(&auto.witness.len());
        let are_short = auto.witness.iter().all(|address| (1..=ADDRESS_BYTES_MAX).contains(&address.len()));
        let is_sync = matches!(self.mode, ReplicationMode::Sync { is_failsafe: false, .. });
        let rules = [
            (has_addresses && are_short, "the addresses of the witness"),
            (is_sync, "a witness of a group that is not in sync, or refuses writes without its peer"),
        ];
        rules.into_iter().find_map(|(holds, what)| (!holds).then_some(what))
    }
}

/// A group, as a pool keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRecord {
    pub group: GroupId,
    pub settings: GroupSettings,
    pub state: GroupState,
}

/// A reason for which a record cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum GroupRecordError {
    #[error(
        "the record has version {0}, and this program knows up to {VERSION_WITH_WITNESS}: use a newer one"
    )]
    Version(u16),
    #[error("the record: {0}")]
    Content(#[from] FrameError),
    #[error("the record is of group {0}")]
    OtherGroup(GroupId),
    #[error(transparent)]
    Pool(#[from] Error),
}

impl GroupRecord {
    pub fn encode(&self) -> Vec<u8> {
        let Self { group, settings, state } = self;
        let mut bytes = BodyWriter::default();
        let writer = &mut bytes;
        // The pool reads these.
        writer.u16(settings.volumes.len() as u16);
        settings.volumes.iter().for_each(|volume| {
            writer.bytes(&volume.0);
        });
        writer.u16(if settings.auto.is_some() { VERSION_WITH_WITNESS } else { VERSION });
        writer.bytes(&group.0).bytes(&settings.peer.0).text(&settings.name);
        write_mode(writer, settings.mode);
        if let Some(auto) = &settings.auto {
            writer.u8(auto.witness.len() as u8);
            for address in &auto.witness {
                writer.text(address);
            }
        }
        writer.u8((state.role == SiteRole::Primary).into()).u64(state.fence.0).u8(state.is_alone.into());
        writer.u64(state.told.0).u8(state.forked_at.is_some().into());
        writer.u64(state.forked_at.unwrap_or_default().0).u8(state.unfinished.is_some().into());
        if let Some(pass) = &state.unfinished {
            writer.cut(&pass.since).cut(&pass.until);
        }
        writer.lineage(state.lineage.as_ref());
        bytes.0
    }

    /// Decodes a record.
    ///
    /// # Errors
    ///
    /// A version that is not known, bytes that are no record, or fields that contradict each other.
    pub fn decode(bytes: &[u8]) -> Result<Self, GroupRecordError> {
        let mut reader = BodyReader::new(bytes);
        let count = reader.u16()?;
        let volumes = (0..count).map(|_| Ok(VolumeId(reader.array()?))).collect::<Result<_, FrameError>>()?;
        let has_witness = match reader.u16()? {
            VERSION => false,
            VERSION_WITH_WITNESS => true,
            other => return Err(GroupRecordError::Version(other)),
        };
        let (group, peer) = (GroupId(reader.array()?), SiteId(reader.array()?));
        let name = reader.text(GROUP_NAME_BYTES_MAX)?;
        let mode = read_mode(&mut reader)?;
        let auto = if has_witness { Some(read_auto(&mut reader)?) } else { None };
        let settings = GroupSettings { name, mode, peer, volumes, auto };
        let role = if reader.flag()? { SiteRole::Primary } else { SiteRole::Secondary };
        let (fence, is_alone, told) = (Fence(reader.u64()?), reader.flag()?, Stamp(reader.u64()?));
        let (is_forked, fork) = (reader.flag()?, Stamp(reader.u64()?));
        let unfinished = match reader.flag()? {
            true => Some(UnfinishedPass { since: reader.cut()?, until: reader.cut()? }),
            false => None,
        };
        let lineage = reader.lineage()?;
        let forked_at = is_forked.then_some(fork);
        let state = GroupState { role, fence, lineage, is_alone, unfinished, told, forked_at };
        let record = Self { group, settings, state };
        if let Some(contradiction) = record.contradiction((is_forked, fork)) {
            return Err(reader.fault(FrameFault::Value(contradiction)).into());
        }
        reader.end()?;
        Ok(record)
    }

    fn contradiction(&self, (is_forked, fork): (bool, Stamp)) -> Option<&'static str> {
        let Self { group, settings, state } = self;
        let mut volumes = settings.volumes.clone();
        volumes.sort_unstable();
        volumes.dedup();
        let parts = state.lineage.as_ref().map(crate::lineage::Lineage::parts);
        let of_pass = |pass: &UnfinishedPass| {
            pass.since.parts() == 1 && pass.until.parts() == 1 && pass.since.is_within(&pass.until)
        };
        let rules = [
            (*group != GroupId::NONE && settings.peer != SiteId::NONE, "a UUID"),
            (!settings.name.is_empty(), "the name"),
            (volumes.len() == settings.volumes.len(), "a volume that is there twice"),
            ((1..=GROUP_VOLUMES_MAX).contains(&volumes.len()), "the number of volumes"),
            (is_forked || fork == Stamp(0), "the fork"),
            (parts.is_none_or(|parts| parts == 1), "the number of parts"),
            (state.role == SiteRole::Secondary || parts.is_some(), "a primary without a history"),
            (state.unfinished.as_ref().is_none_or(of_pass), "an unfinished pass"),
        ];
        let broken = rules.into_iter().find_map(|(holds, what)| (!holds).then_some(what));
        broken.or_else(|| settings.contradiction())
    }
}

fn read_auto(reader: &mut BodyReader<'_>) -> Result<AutoFailover, FrameError> {
    let count = reader.u8()?;
    let witness = (0..count).map(|_| reader.text(ADDRESS_BYTES_MAX)).collect::<Result<_, _>>()?;
    Ok(AutoFailover { witness })
}

fn write_mode(writer: &mut BodyWriter, mode: ReplicationMode) {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    match mode {
        ReplicationMode::Sync { hold, is_failsafe } => {
            writer.u8(1).u64(nanos(hold)).u8(is_failsafe.into());
        }
        ReplicationMode::Async { behind_max, behind_bytes_max, over } => {
            writer.u8(2).u64(nanos(behind_max)).u64(behind_bytes_max);
            writer.u8((over == BoundPolicy::PushBack).into());
        }
        // Mode 3 was never written: it kept no states.
        ReplicationMode::Periodic { every, kept } => {
            writer.u8(4).u64(nanos(every)).u16(kept);
        }
    }
}

fn read_mode(reader: &mut BodyReader<'_>) -> Result<ReplicationMode, FrameError> {
    let kind = reader.u8()?;
    let time = Duration::from_nanos(reader.u64()?);
    Ok(match kind {
        1 => ReplicationMode::Sync { hold: time, is_failsafe: reader.flag()? },
        2 => ReplicationMode::Async {
            behind_max: time,
            behind_bytes_max: reader.u64()?,
            over: if reader.flag()? { BoundPolicy::PushBack } else { BoundPolicy::Behind },
        },
        4 => ReplicationMode::Periodic { every: time, kept: reader.u16()? },
        _ => return Err(reader.fault(FrameFault::Value("the mode"))),
    })
}

/// The records of a pool's groups.
pub struct PoolRecords {
    pool: Rc<Pool>,
    group: GroupId,
    settings: GroupSettings,
}

impl PoolRecords {
    /// The place of one group.
    pub fn new(pool: &Rc<Pool>, group: GroupId, settings: GroupSettings) -> Self {
        Self { pool: Rc::clone(pool), group, settings }
    }
}

impl GroupRecords for PoolRecords {
    fn put(&self, state: &GroupState) -> LocalFuture<Result<(), Error>> {
        let record = GroupRecord { group: self.group, settings: self.settings.clone(), state: state.clone() };
        let (pool, group) = (Rc::clone(&self.pool), self.group);
        Box::pin(async move { pool.put_replication_record(group, record.encode()).await })
    }
}

/// The groups that a pool keeps records of; those of which the record cannot be used, with the reason.
pub fn load_records(pool: &Pool) -> Vec<(GroupId, Result<GroupRecord, GroupRecordError>)> {
    let read = |(group, bytes): (GroupId, Result<Vec<u8>, Error>)| {
        let record = bytes.map_err(GroupRecordError::from).and_then(|bytes| GroupRecord::decode(&bytes));
        let record = record.and_then(|record| match record.group == group {
            true => Ok(record),
            false => Err(GroupRecordError::OtherGroup(record.group)),
        });
        (group, record)
    };
    pool.replication_records().into_iter().map(read).collect()
}

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
    group_state::{
        BROUGHT_MAX, BroughtStamp, FORKS_MAX, GroupRecords, GroupState, HELD_SNAPSHOTS_MAX, HeldSnapshot,
        JointMark, JointPoint, JointPointState, JointProgress, JointSlot, KeptFork,
    },
    joint_group::{JOINT_PARTS_MAX, JoinId, JointPart},
    merge_plan::{DayWindow, MergePlan, MergeStart, Suspension},
    session::{BoundPolicy, ReplicationMode, SuspensionReason},
};
use array::{
    error::Error,
    format::{EpochId, Fence, GroupId, SiteId, SnapshotId, Stamp, VolumeId, WallNanoseconds},
    pool::Pool,
};
use std::{cell::RefCell, rc::Rc, time::Duration};
use world::LocalFuture;

/// Version of the record of a group without a witness.
const VERSION: u16 = 1;
/// Version of the record of a group with a witness.
const VERSION_WITH_WITNESS: u16 = 2;
/// Version of the record of a group that is suspended, has a rule of its own for merges, or forks; with a witness or without.
const VERSION_WITH_PLAN: u16 = 3;
/// Version of the record of a part of a group with volumes in several pools.
const VERSION_OF_PART: u16 = 4;
/// Version of the record of a group that holds locked snapshots; a part of a group or a whole one.
const VERSION_WITH_HELD: u16 = 5;
/// Version of the record of a part of a group with a witness: programs that know less would have each part ask for itself.
const VERSION_OF_WATCHED_PART: u16 = 6;
/// Version of the record of a part that is not in sync, or has marks: programs that know less would show parts of several moments.
const VERSION_WITH_MARKS: u16 = 7;
/// Version of the record of a group with the stamps of what an unfinished pass brought.
const VERSION_WITH_BROUGHT: u16 = 8;
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
    /// Its place in a group that has volumes in other pools, too.
    pub joint: Option<JointPart>,
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
        self.joint_contradiction().or_else(|| self.auto_contradiction())
    }

    fn joint_contradiction(&self) -> Option<&'static str> {
        let JointPart { whole, index, parts } = self.joint?;
        let rules = [
            (whole != GroupId::NONE, "the UUID of a group of several pools"),
            (
                (2..=JOINT_PARTS_MAX).contains(&parts.into()) && index < parts,
                "the number of pools of a group",
            ),
            (
                !matches!(self.mode, ReplicationMode::Periodic { .. }),
                "a group of several pools that is periodic",
            ),
        ];
        rules.into_iter().find_map(|(holds, what)| (!holds).then_some(what))
    }

    fn auto_contradiction(&self) -> Option<&'static str> {
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
        "the record has version {0}, and this program knows up to {VERSION_WITH_BROUGHT}: use a newer one"
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
        let version = self.version();
        writer.u16(version);
        writer.bytes(&group.0).bytes(&settings.peer.0).text(&settings.name);
        write_mode(writer, settings.mode);
        if version >= VERSION_WITH_WITNESS {
            let addresses = settings.auto.iter().flat_map(|auto| &auto.witness);
            writer.u8(addresses.clone().count() as u8);
            addresses.for_each(|address| {
                writer.text(address);
            });
        }
        writer.u8((state.role == SiteRole::Primary).into()).u64(state.fence.0).u8(state.is_alone.into());
        writer.u64(state.told.0).u8(state.forked_at.is_some().into());
        writer.u64(state.forked_at.unwrap_or_default().0).u8(state.unfinished.is_some().into());
        if let Some(pass) = &state.unfinished {
            writer.cut(&pass.since).cut(&pass.until);
        }
        writer.lineage(state.lineage.as_ref());
        if version >= VERSION_WITH_PLAN {
            write_suspension(writer, state.suspension);
            write_plan(writer, state.merge);
            write_forks(writer, &state.forks);
        }
        if version >= VERSION_WITH_HELD {
            writer.u8(settings.joint.is_some().into());
        }
        if let Some(part) = settings.joint {
            writer.bytes(&part.whole.0).u8(part.index).u8(part.parts);
            write_progress(writer, &state.joint);
            if version >= VERSION_WITH_MARKS {
                write_marks(writer, &state.joint);
            }
        }
        if version >= VERSION_WITH_HELD {
            write_held(writer, &state.held);
        }
        if version >= VERSION_WITH_BROUGHT {
            write_brought(writer, &state.brought);
        }
        bytes.0
    }

    /// The lowest version that has all of it.
    fn version(&self) -> u16 {
        let Self { settings, state, .. } = self;
        let has_plan = state.suspension.is_some() || state.merge != MergePlan::default();
        let is_sync = matches!(settings.mode, ReplicationMode::Sync { .. });
        match has_plan || !state.forks.is_empty() {
            _ if !state.brought.is_empty() => VERSION_WITH_BROUGHT,
            _ if settings.joint.is_some() && (!is_sync || state.joint.has_marks()) => VERSION_WITH_MARKS,
            _ if settings.joint.is_some() && settings.auto.is_some() => VERSION_OF_WATCHED_PART,
            _ if !state.held.is_empty() => VERSION_WITH_HELD,
            _ if settings.joint.is_some() => VERSION_OF_PART,
            true => VERSION_WITH_PLAN,
            false if settings.auto.is_some() => VERSION_WITH_WITNESS,
            false => VERSION,
        }
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
        let version = reader.u16()?;
        if !(VERSION..=VERSION_WITH_BROUGHT).contains(&version) {
            return Err(GroupRecordError::Version(version));
        }
        let (group, peer) = (GroupId(reader.array()?), SiteId(reader.array()?));
        let name = reader.text(GROUP_NAME_BYTES_MAX)?;
        let mode = read_mode(&mut reader)?;
        let auto = match version {
            VERSION => None,
            VERSION_WITH_WITNESS => Some(read_auto(&mut reader)?),
            _ => Some(read_auto(&mut reader)?).filter(|auto| !auto.witness.is_empty()),
        };
        let mut settings = GroupSettings { name, mode, peer, volumes, auto, joint: None };
        let role = if reader.flag()? { SiteRole::Primary } else { SiteRole::Secondary };
        let (fence, is_alone, told) = (Fence(reader.u64()?), reader.flag()?, Stamp(reader.u64()?));
        let (is_forked, fork) = (reader.flag()?, Stamp(reader.u64()?));
        let unfinished = match reader.flag()? {
            true => Some(UnfinishedPass { since: reader.cut()?, until: reader.cut()? }),
            false => None,
        };
        let lineage = reader.lineage()?;
        let forked_at = is_forked.then_some(fork);
        let mut state = GroupState {
            role,
            fence,
            lineage,
            is_alone,
            unfinished,
            told,
            forked_at,
            ..GroupState::new_replica()
        };
        if version >= VERSION_WITH_PLAN {
            (state.suspension, state.merge) = (read_suspension(&mut reader)?, read_plan(&mut reader)?);
            state.forks = read_forks(&mut reader)?;
        }
        if version == VERSION_OF_PART || version >= VERSION_WITH_HELD && reader.flag()? {
            let whole = GroupId(reader.array()?);
            settings.joint = Some(JointPart { whole, index: reader.u8()?, parts: reader.u8()? });
            state.joint = read_progress(&mut reader)?;
            if version >= VERSION_WITH_MARKS {
                read_marks(&mut reader, &mut state.joint)?;
            }
        }
        if version >= VERSION_WITH_HELD {
            state.held = read_held(&mut reader)?;
        }
        if version >= VERSION_WITH_BROUGHT {
            state.brought = read_brought(&mut reader)?;
        }
        let record = Self { group, settings, state };
        if record.version() != version {
            return Err(reader.fault(FrameFault::Value("the version")).into());
        }
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
        let mut held: Vec<SnapshotId> = state.held.iter().map(|held| held.snapshot).collect();
        held.sort_unstable();
        held.dedup();
        let rules = [
            (*group != GroupId::NONE && settings.peer != SiteId::NONE, "a UUID"),
            (!settings.name.is_empty(), "the name"),
            (volumes.len() == settings.volumes.len(), "a volume that is there twice"),
            ((1..=GROUP_VOLUMES_MAX).contains(&volumes.len()), "the number of volumes"),
            (is_forked || fork == Stamp(0), "the fork"),
            (parts.is_none_or(|parts| parts == 1), "the number of parts"),
            (state.role == SiteRole::Secondary || parts.is_some(), "a primary without a history"),
            (state.unfinished.as_ref().is_none_or(of_pass), "an unfinished pass"),
            (self.is_brought_by_pass(), "a stamp of what an unfinished pass brought"),
            (state.suspension.is_none() || state.role == SiteRole::Primary, "a secondary that is suspended"),
            (state.merge.contradiction().is_none(), "the rule for merges"),
            (settings.joint.is_some() || state.joint == JointProgress::default(), "a part of no group"),
            (state.role == SiteRole::Secondary || !state.joint.is_apart(), "a primary with a joint state"),
            (state.joint.cutting.is_none() || state.joint.point.is_none(), "the cut of a joint state"),
            (state.joint.point.as_ref().is_none_or(is_joint_point), "the joint state"),
            (
                state.joint.next.as_ref().is_none_or(|next| is_mark(next, &state.joint)),
                "the next joint state",
            ),
            (held.len() == state.held.len(), "a held snapshot that is there twice"),
            (state.role == SiteRole::Secondary || held.is_empty(), "a primary that holds snapshots"),
        ];
        let broken = rules.into_iter().find_map(|(holds, what)| (!holds).then_some(what));
        broken.or_else(|| settings.contradiction())
    }

    /// Each stamp is of a volume of the group, above where the pass begins, and not below what it is of there; once each.
    fn is_brought_by_pass(&self) -> bool {
        let Some(pass) = &self.state.unfinished else { return self.state.brought.is_empty() };
        let (since, brought) = (pass.since.stamps()[0], &self.state.brought);
        let is_of_pass = |one: &BroughtStamp| {
            let is_of_group = one.volume.is_none_or(|volume| self.settings.volumes.contains(&volume));
            is_of_group && since < one.as_of && one.as_of <= one.stamp
        };
        let mut stamps: Vec<_> = brought.iter().map(|one| (one.volume, one.stamp)).collect();
        stamps.sort_unstable();
        stamps.dedup();
        stamps.len() == brought.len() && brought.iter().all(is_of_pass)
    }
}

fn is_joint_point(point: &JointPoint) -> bool {
    point.join != JoinId::NONE && point.state.as_ref().is_none_or(is_whole)
}

fn is_whole(state: &JointPointState) -> bool {
    state.lineage.parts() == 1 && state.has <= state.cut
}

/// A mark lies in the other cut than the joint state, or in the same one at the same stamp.
fn is_mark(next: &JointMark, progress: &JointProgress) -> bool {
    let Some(point) = &progress.point else { return false };
    let is_beside =
        point.state.as_ref().is_none_or(|state| state.slot != next.state.slot || state.cut == next.state.cut);
    next.mark != JoinId::NONE && is_whole(&next.state) && is_beside
}

fn write_progress(writer: &mut BodyWriter, progress: &JointProgress) {
    writer.bytes(&progress.joined.0).u8(progress.cutting.is_some().into());
    if let Some(has) = progress.cutting {
        writer.u64(has.0);
    }
    writer.u8(progress.point.is_some().into());
    let Some(point) = &progress.point else { return };
    writer.bytes(&point.join.0).u8(point.state.is_some().into());
    if let Some(state) = &point.state {
        write_joint_state(writer, state);
    }
}

fn write_joint_state(writer: &mut BodyWriter, state: &JointPointState) {
    writer.u64(state.has.0).u64(state.cut.0).u64(state.complete_until.0).lineage(Some(&state.lineage));
}

/// Marks of a part: the last one that became the joint state, the cut that has it, and the next one.
fn write_marks(writer: &mut BodyWriter, progress: &JointProgress) {
    let slot = |state: &JointPointState| u8::from(state.slot == JointSlot::Second);
    let of_point = progress.point.as_ref().and_then(|point| point.state.as_ref());
    writer.bytes(&progress.marked.0).u8(of_point.map_or(0, slot)).u8(progress.next.is_some().into());
    if let Some(JointMark { mark, state }) = &progress.next {
        writer.bytes(&mark.0).u8(slot(state));
        write_joint_state(writer, state);
    }
}

fn read_progress(reader: &mut BodyReader<'_>) -> Result<JointProgress, FrameError> {
    let joined = JoinId(reader.array()?);
    let cutting = if reader.flag()? { Some(Stamp(reader.u64()?)) } else { None };
    let mut progress = JointProgress { joined, cutting, ..JointProgress::default() };
    if reader.flag()? {
        let join = JoinId(reader.array()?);
        let state = if reader.flag()? { Some(read_joint_state(reader)?) } else { None };
        progress.point = Some(JointPoint { join, state });
    }
    Ok(progress)
}

fn read_joint_state(reader: &mut BodyReader<'_>) -> Result<JointPointState, FrameError> {
    let (has, cut) = (Stamp(reader.u64()?), Stamp(reader.u64()?));
    let complete_until = WallNanoseconds(reader.u64()?);
    let lineage = reader.lineage()?;
    let lineage = lineage.ok_or_else(|| reader.fault(FrameFault::Value("the joint state")))?;
    Ok(JointPointState { has, cut, complete_until, lineage, slot: JointSlot::First })
}

fn read_marks(reader: &mut BodyReader<'_>, progress: &mut JointProgress) -> Result<(), FrameError> {
    let slot =
        |reader: &mut BodyReader<'_>| Ok(if reader.flag()? { JointSlot::Second } else { JointSlot::First });
    progress.marked = JoinId(reader.array()?);
    let of_point = slot(reader)?;
    match progress.point.as_mut().and_then(|point| point.state.as_mut()) {
        Some(state) => state.slot = of_point,
        None if of_point == JointSlot::First => {}
        None => return Err(reader.fault(FrameFault::Value("the cut of a joint state"))),
    }
    if reader.flag()? {
        let (mark, slot) = (JoinId(reader.array()?), slot(reader)?);
        let state = JointPointState { slot, ..read_joint_state(reader)? };
        progress.next = Some(JointMark { mark, state });
    }
    Ok(())
}

fn read_auto(reader: &mut BodyReader<'_>) -> Result<AutoFailover, FrameError> {
    let count = reader.u8()?;
    let witness = (0..count).map(|_| reader.text(ADDRESS_BYTES_MAX)).collect::<Result<_, _>>()?;
    Ok(AutoFailover { witness })
}

fn write_suspension(writer: &mut BodyWriter, suspension: Option<Suspension>) {
    let reason = suspension.map(|suspension| match suspension.reason {
        SuspensionReason::Person => 1,
        SuspensionReason::TargetFull => 2,
        SuspensionReason::Fault => 3,
    });
    writer.u8(reason.unwrap_or(0)).u64(suspension.map_or(0, |suspension| suspension.since_unix_s));
}

fn read_suspension(reader: &mut BodyReader<'_>) -> Result<Option<Suspension>, FrameError> {
    let (reason, since_unix_s) = (reader.u8()?, reader.u64()?);
    let reason = match reason {
        0 if since_unix_s == 0 => return Ok(None),
        1 => SuspensionReason::Person,
        2 => SuspensionReason::TargetFull,
        3 => SuspensionReason::Fault,
        _ => return Err(reader.fault(FrameFault::Value("the suspension"))),
    };
    Ok(Some(Suspension { reason, since_unix_s }))
}

fn write_plan(writer: &mut BodyWriter, MergePlan { start, rate_max }: MergePlan) {
    // Two numbers for each kind.
    let (kind, first, second) = match start {
        MergeStart::AtOnce => (1, 0, 0),
        MergeStart::Staggered(groups) => (2, groups.into(), 0),
        MergeStart::Window(window) => (3, window.minutes().0, window.minutes().1),
    };
    writer.u8(kind).u16(first).u16(second).u64(rate_max.unwrap_or(0));
}

fn read_plan(reader: &mut BodyReader<'_>) -> Result<MergePlan, FrameError> {
    let (kind, first, second, rate) = (reader.u8()?, reader.u16()?, reader.u16()?, reader.u64()?);
    let start = match (kind, first, second) {
        (1, 0, 0) => Some(MergeStart::AtOnce),
        (2, groups, 0) => u8::try_from(groups).ok().map(MergeStart::Staggered),
        (3, from, until) => DayWindow::new(from, until).map(MergeStart::Window),
        _ => None,
    };
    let start = start.ok_or_else(|| reader.fault(FrameFault::Value("the rule for merges")))?;
    Ok(MergePlan { start, rate_max: (rate > 0).then_some(rate) })
}

fn write_forks(writer: &mut BodyWriter, forks: &[KeptFork]) {
    writer.u16(forks.len() as u16);
    for fork in forks {
        writer.bytes(&fork.volume.0).u64(fork.has.0).u64(fork.blocks).u64(fork.kept_unix_s);
    }
}

fn read_forks(reader: &mut BodyReader<'_>) -> Result<Vec<KeptFork>, FrameError> {
    let count = reader.u16()?;
    if usize::from(count) > FORKS_MAX {
        return Err(reader.fault(FrameFault::Value("the number of forks")));
    }
    let mut fork = || {
        let (volume, has) = (VolumeId(reader.array()?), Stamp(reader.u64()?));
        Ok(KeptFork { volume, has, blocks: reader.u64()?, kept_unix_s: reader.u64()? })
    };
    (0..count).map(|_| fork()).collect()
}

fn write_held(writer: &mut BodyWriter, held: &[HeldSnapshot]) {
    writer.u16(held.len() as u16);
    for held in held {
        writer.bytes(&held.snapshot.0).u64(held.since_unix_s);
    }
}

fn read_held(reader: &mut BodyReader<'_>) -> Result<Vec<HeldSnapshot>, FrameError> {
    let count = reader.u16()?;
    if usize::from(count) > HELD_SNAPSHOTS_MAX {
        return Err(reader.fault(FrameFault::Value("the number of held snapshots")));
    }
    let mut held = || Ok(HeldSnapshot { snapshot: SnapshotId(reader.array()?), since_unix_s: reader.u64()? });
    (0..count).map(|_| held()).collect()
}

fn write_brought(writer: &mut BodyWriter, brought: &[BroughtStamp]) {
    writer.u16(brought.len() as u16);
    for one in brought {
        writer.bytes(&one.volume.unwrap_or(VolumeId::NONE).0).u64(one.stamp.0).u64(one.as_of.0);
        writer.bytes(&one.epoch.0);
    }
}

fn read_brought(reader: &mut BodyReader<'_>) -> Result<Vec<BroughtStamp>, FrameError> {
    let count = reader.u16()?;
    if usize::from(count) > BROUGHT_MAX {
        return Err(reader.fault(FrameFault::Value("the number of stamps that a pass brought")));
    }
    let mut brought = || {
        let volume = Some(VolumeId(reader.array()?)).filter(|volume| *volume != VolumeId::NONE);
        let (stamp, as_of) = (Stamp(reader.u64()?), Stamp(reader.u64()?));
        Ok(BroughtStamp { volume, stamp, as_of, epoch: EpochId(reader.array()?) })
    };
    (0..count).map(|_| brought()).collect()
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
    settings: Rc<RefCell<GroupSettings>>,
}

impl PoolRecords {
    /// The place of one group.
    pub fn new(pool: &Rc<Pool>, group: GroupId, settings: GroupSettings) -> Self {
        Self { pool: Rc::clone(pool), group, settings: Rc::new(RefCell::new(settings)) }
    }

    fn put_record(&self, record: &GroupRecord) -> LocalFuture<Result<(), Error>> {
        let (pool, group, bytes) = (Rc::clone(&self.pool), self.group, record.encode());
        Box::pin(async move { pool.put_replication_record(group, bytes).await })
    }
}

impl GroupRecords for PoolRecords {
    fn put(&self, state: &GroupState) -> LocalFuture<Result<(), Error>> {
        let settings = self.settings.borrow().clone();
        self.put_record(&GroupRecord { group: self.group, settings, state: state.clone() })
    }

    fn put_with_mode(&self, state: &GroupState, mode: ReplicationMode) -> LocalFuture<Result<(), Error>> {
        let settings = GroupSettings { mode, ..self.settings.borrow().clone() };
        let put = self.put_record(&GroupRecord { group: self.group, settings, state: state.clone() });
        let known = Rc::clone(&self.settings);
        Box::pin(async move {
            put.await?;
            known.borrow_mut().mode = mode;
            Ok(())
        })
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

//! The DR groups of one pool, on its thread.
//!
//! Invariants:
//!
//! 1. A volume is in one group at most.
//! 2. Hosts reach a volume of a group only while that [serves](HostedGroup::serves).
//! 3. A group whose record cannot be read serves nothing and is listed; the others go on.

use super::{
    access::{DrAccess, WITNESS_ADDRESSES},
    group_orders::{GroupHosts, GroupOrder},
    group_view::{DamagedDrGroup, DrGroups},
    hosted_group::{Entry, HostedGroup},
    kept_services::KeptServices,
    pool_clients::ClientState,
    pool_services::ServiceState,
    snapshot_locks::SiteLocks,
    takeover::{Promoted, PromotionOrder},
    thread_channel::ThreadChannel,
};
use crate::{
    notice::NoticeSender,
    order::{OrderRefusal, PendingOrder},
    planted::{self, DrBug},
    pool_thread::ServedPool,
    site::handle::PoolHandle,
};
use array::{
    error::Error,
    format::{BLOCK_BYTES, EpochId, Fence, GroupId, PoolId, SiteId, VolumeId},
    pool::{NewVolume, Pool, VolumeSetting},
};
use replication::{
    connect::SiteRole,
    group_record::{GROUP_VOLUMES_MAX, GroupRecord, GroupSettings, PoolRecords, load_records},
    group_state::{GroupRecords, GroupState},
    held_snapshots::SnapshotLocks,
    lineage::Lineage,
    member::GroupMember,
    merge_plan::MergePlan,
    secondary::{KeptState, SecondaryGroup},
    session::ReplicationMode,
    witness::keeper::{KeeperError, LeaseKeeper},
};
use report::Refusal;
use serving::{
    export::{WantedExports, replica_of},
    pool::folder::VolumePath,
};
use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::{BTreeMap, BTreeSet},
    path::Path,
    rc::{Rc, Weak},
    time::Duration,
};
use tokio::sync::oneshot;
use world::{LocalFuture, World, with_deadline};

/// Interval of looking whether a group has begun or ceased to serve.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Time that clients have to end when a group stops leading.
const CLIENTS_END_WITHIN: Duration = Duration::from_secs(5);

/// A volume of a group, as both sites have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupVolume {
    pub volume: VolumeId,
    pub name: String,
    pub bytes: u64,
}

pub(crate) struct PoolDrGroups {
    pub(super) world: World,
    pub(super) pool: Rc<Pool>,
    pub(super) notices: NoticeSender,
    pub(super) access: DrAccess,
    pub(super) groups: RefCell<BTreeMap<GroupId, Rc<HostedGroup>>>,
    pub(super) damaged: RefCell<Vec<(GroupId, String)>>,
    /// Held while replicas have no record yet, and while such are deleted.
    pub(super) making: tokio::sync::Mutex<()>,
    /// The volumes that hosts did not reach at the last look.
    closed: RefCell<BTreeSet<VolumeId>>,
    /// A damaged record names no volumes: everything is closed then.
    is_all_closed: Cell<bool>,
    hosts: Rc<PoolHosts>,
    pub(super) services: ServiceState,
    pub(super) clients: ClientState,
    locks: Rc<SiteLocks>,
}

/// The clients of the pool.
#[derive(Default)]
struct PoolHosts(OnceCell<Weak<ServedPool>>);

impl PoolDrGroups {
    /// Starts the groups that the pool keeps records of. Hosts reach none of their volumes before they serve.
    pub fn open((world, pool): (&World, &Rc<Pool>), notices: &NoticeSender, access: &DrAccess) -> Rc<Self> {
        let groups = Rc::new(Self {
            access: access.clone(),
            world: world.clone(),
            pool: Rc::clone(pool),
            notices: notices.clone(),
            groups: RefCell::default(),
            damaged: RefCell::default(),
            making: tokio::sync::Mutex::default(),
            closed: RefCell::default(),
            is_all_closed: Cell::new(false),
            hosts: Rc::default(),
            services: ServiceState::default(),
            clients: ClientState::default(),
            locks: Rc::new(SiteLocks::new(world, access.sets())),
        });
        for (id, record) in load_records(pool) {
            let started = match record {
                Ok(record) => groups.start(record, Entry::Returned),
                Err(error) => Err(error.to_string()),
            };
            started.unwrap_or_else(|problem| groups.close_all(id, problem));
        }
        if pool.nameless_replication_records() > 0 {
            groups
                .close_all(GroupId::NONE, "its first part is damaged, so nobody knows its group".to_owned());
        }
        *groups.closed.borrow_mut() = groups.closed_volumes();
        groups.delete_orphans();
        groups
    }

    /// Serves nothing of the pool, for a record that cannot be used.
    fn close_all(&self, group: GroupId, problem: String) {
        self.is_all_closed.set(true);
        // It is a condition, too.
        self.notices.show(format!(
            "the record of DR group {group} cannot be used: {problem}; no volume of this pool is served, since it may be a \
             secondary's and old. Look at the other site first; 'spindle dr remove {group}' serves the volumes as they are here"
        ));
        self.damaged.borrow_mut().push((group, problem));
    }

    /// Watches the groups from now on, and opens or closes their volumes to hosts of the pool.
    pub fn watch(self: &Rc<Self>, served: &Rc<ServedPool>) {
        assert!(self.hosts.0.set(Rc::downgrade(served)).is_ok(), "a pool is served once");
        self.watch_clients(served);
        self.watch_locks();
        let own = Rc::downgrade(self);
        let world = self.world.clone();
        self.world.spawn("DR groups", async move {
            while let Some(groups) = own.upgrade() {
                let pause =
                    if groups.groups.borrow().is_empty() { Duration::from_secs(1) } else { LOOK_EVERY };
                groups.look();
                drop(groups);
                world.sleep(pause).await;
            }
        });
    }

    fn look(&self) {
        if self.closed_volumes() != *self.closed.borrow() || self.is_plan_old() {
            self.hosts.refresh();
        }
    }

    fn start(&self, record: GroupRecord, entry: Entry) -> Result<(), String> {
        let GroupRecord { group, settings, state } = record;
        if let Some(other) = self.group_of_any(&settings.volumes) {
            return Err(format!("a volume of it is in group {other}, too"));
        }
        let records = Rc::new(PoolRecords::new(&self.pool, group, settings.clone()));
        let volumes: BTreeSet<VolumeId> = settings.volumes.iter().copied().collect();
        let keeper = self.access.keeper(&self.world, group, &settings)?;
        let member = GroupMember::new(&self.pool, (group, volumes), (state, records as Rc<dyn GroupRecords>));
        keeper.into_iter().for_each(|keeper| member.use_witness(keeper));
        if let Some(part) = &settings.joint {
            member.use_joint(self.access.joint(part), part.index.into());
        }
        member.keep_points_of(settings.mode);
        let turns = self.access.merge_turns().of_group(&self.world, (group, &settings.name), settings.peer);
        member.use_merge_gate(Rc::new(turns));
        member.use_locks(Rc::clone(&self.locks) as Rc<dyn SnapshotLocks>);
        let has = member.position_after_opening().map_err(|error| error.to_string())?;
        let hosts = Rc::clone(&self.hosts) as Rc<dyn GroupHosts>;
        let hosted =
            HostedGroup::start((&self.world, &self.notices), (member, settings), hosts, (has, entry));
        self.groups.borrow_mut().insert(group, hosted);
        Ok(())
    }

    /// Name of the group that one of the volumes is in.
    pub fn group_of_any(&self, volumes: &[VolumeId]) -> Option<String> {
        let groups = self.groups.borrow();
        let has =
            |group: &&Rc<HostedGroup>| group.settings().volumes.iter().any(|volume| volumes.contains(volume));
        groups.values().find(has).map(|group| group.settings().name.clone())
    }

    /// The volumes that hosts must not reach now.
    fn closed_volumes(&self) -> BTreeSet<VolumeId> {
        if self.is_all_closed.get() {
            return self.pool.volumes().into_iter().map(|info| info.volume).collect();
        }
        let groups = self.groups.borrow();
        groups.values().filter(|group| !group.serves()).flat_map(|group| group.volumes()).collect()
    }

    /// The part of what is wanted that hosts may reach now: without the volumes of groups that do not serve, and without the
    /// replicas of those that are not secondary. Snapshots and clones stay.
    pub fn open_part(&self, wanted: &WantedExports) -> WantedExports {
        let closed = self.closed_volumes();
        let names: BTreeSet<String> = match closed.is_empty() {
            true => BTreeSet::new(),
            false if planted::is_in_dr(DrBug::SecondaryOpen) => BTreeSet::new(),
            false => {
                let all = self.pool.volumes().into_iter();
                all.filter(|info| closed.contains(&info.volume)).map(|info| info.name).collect()
            }
        };
        // A path has the pool in front.
        let secondary = self.secondary_groups();
        let is_open = |meant: &str| {
            if let Some(volume) = replica_of(&self.pool, meant) {
                return self.group_with(volume).is_some_and(|group| secondary.contains(&group));
            }
            let path = VolumePath::of(&Path::new("pool").join(meant)).filter(|path| path.snapshot.is_none());
            path.is_none_or(|path| !names.contains(&path.volume))
        };
        let mut open = wanted.clone();
        open.nbd.retain(|export| is_open(&export.volume));
        open.targets.iter_mut().for_each(|target| target.units.retain(|unit| is_open(&unit.volume)));
        open
    }

    /// A warning for each replica that is wanted of a volume without another site.
    pub fn replicas_of_no_group(&self, wanted: &WantedExports) -> Vec<String> {
        let units = wanted.targets.iter().flat_map(|target| &target.units).map(|unit| &unit.volume);
        let all = wanted.nbd.iter().map(|export| &export.volume).chain(units);
        let without = |meant: &&String| {
            replica_of(&self.pool, meant).is_some_and(|volume| self.group_with(volume).is_none())
        };
        let warning =
            |meant: &String| format!("{meant} is served to nobody: its volume is in no DR group here");
        all.filter(without).map(warning).collect()
    }

    /// Hosts did not reach the volume at the last look.
    pub(super) fn is_shut(&self, volume: VolumeId) -> bool {
        self.closed.borrow().contains(&volume)
    }

    /// Hosts are about to reach what the groups allow now.
    pub(super) fn note_closed(&self) {
        *self.closed.borrow_mut() = self.closed_volumes();
    }

    pub fn view(&self) -> DrGroups {
        let view = |group: &Rc<HostedGroup>| {
            let mut view = group.view();
            view.report.held = group.held(&self.locks);
            view
        };
        let mut groups: Vec<_> = self.groups.borrow().values().map(view).collect();
        let space = self.pool.space();
        let used_percent = space.used_bytes.saturating_mul(100) / space.usable_bytes.max(1);
        let closed = self.closed.borrow();
        for group in &mut groups {
            group.hosts = self.hosts_view(group, used_percent);
            let missing = group.joint.as_ref().map(|joint| joint.missing.clone()).unwrap_or_default();
            if let Some(reasons) = group.hosts.reasons_against.as_mut() {
                reasons
                    .extend(missing.iter().map(|part| format!("part {part} of the group is not open here")));
            }
            // It may serve, and hosts find nothing before the pool has opened its volumes.
            group.serves &= !group.volumes.iter().any(|volume| closed.contains(volume));
        }
        groups.sort_by(|one, other| one.name.cmp(&other.name));
        let damaged = self
            .damaged
            .borrow()
            .iter()
            .map(|(group, problem)| DamagedDrGroup { group: *group, problem: problem.clone() })
            .collect();
        DrGroups { groups, damaged }
    }

    pub(super) fn find(&self, group: GroupId) -> Result<Rc<HostedGroup>, Refusal> {
        let found = self.groups.borrow().get(&group).cloned();
        found.ok_or_else(|| {
            Refusal::new(format!("there is no DR group {group} here"), "see 'spindle dr status'")
        })
    }

    /// Name and flow of a group that is secondary here.
    ///
    /// # Errors
    ///
    /// There is no such group, or it is primary here.
    pub(super) fn follower(&self, group: GroupId) -> Result<(String, Rc<SecondaryGroup>), Refusal> {
        let group = self.find(group)?;
        let name = group.settings().name.clone();
        let not_secondary =
            || Refusal::new(format!("{name} is not secondary here"), "see 'spindle dr status'");
        let follower = group.follower().ok_or_else(not_secondary)?;
        Ok((name, follower))
    }

    /// True if a group serves hosts here.
    pub(super) fn serves(&self, group: GroupId) -> bool {
        self.groups.borrow().get(&group).is_some_and(|group| group.serves())
    }

    /// A damaged record closes the whole pool.
    pub(super) fn is_closed(&self) -> bool {
        self.is_all_closed.get()
    }

    pub(super) fn kept(&self) -> &KeptServices {
        self.access.services()
    }

    pub(super) fn pool_id(&self) -> PoolId {
        self.pool.id()
    }

    /// Names of the pool's volumes.
    pub(super) fn volumes_by_id(&self) -> BTreeMap<VolumeId, String> {
        self.pool.volumes().into_iter().map(|info| (info.volume, info.name)).collect()
    }

    /// The other site of each group.
    pub(super) fn peers(&self) -> Vec<(GroupId, SiteId)> {
        self.groups.borrow().iter().map(|(group, hosted)| (*group, hosted.settings().peer)).collect()
    }

    /// The groups that follow here.
    pub(super) fn secondary_groups(&self) -> BTreeSet<GroupId> {
        let groups = self.groups.borrow();
        groups.iter().filter(|(_, hosted)| hosted.follower().is_some()).map(|(group, _)| *group).collect()
    }

    /// The volumes of each group.
    pub(super) fn group_volumes(&self) -> Vec<(GroupId, Vec<VolumeId>)> {
        self.groups.borrow().iter().map(|(group, hosted)| (*group, hosted.volumes())).collect()
    }

    /// The group of a name.
    pub(super) fn group_called(&self, name: &str) -> Option<GroupId> {
        let groups = self.groups.borrow();
        groups.iter().find(|(_, hosted)| hosted.settings().name == name).map(|(group, _)| *group)
    }

    /// The group that a volume is in.
    pub(super) fn group_with(&self, volume: VolumeId) -> Option<GroupId> {
        let groups = self.groups.borrow();
        groups.iter().find(|(_, hosted)| hosted.settings().volumes.contains(&volume)).map(|(group, _)| *group)
    }

    /// The volumes of all groups.
    pub(super) fn all_volumes(&self) -> Vec<VolumeId> {
        self.groups.borrow().values().flat_map(|group| group.volumes()).collect()
    }

    /// Gives a channel to a group. The one that it has is cut.
    pub fn connect(&self, group: GroupId, channel: ThreadChannel) -> Result<(), Refusal> {
        let group = self.find(group)?;
        group.order(GroupOrder::Connect(channel));
        Ok(())
    }

    /// The volumes of a new group that is to be primary here, as the other site has to have them.
    ///
    /// # Errors
    ///
    /// One is missing, in a group already, or has a size that is no multiple of 4 KiB.
    pub fn check_new(&self, name: &str, volumes: &[VolumeId]) -> Result<Vec<GroupVolume>, Refusal> {
        let all = self.pool.volumes();
        if self.group_called(name).is_some() {
            return Err(Refusal::new(format!("there is a DR group {name:?}"), "choose another name"));
        }
        if let Some(other) = self.group_of_any(volumes) {
            return Err(Refusal::new(
                format!("a volume is in DR group {other} already"),
                "a volume is in one group at most",
            ));
        }
        let mut found = Vec::new();
        for volume in volumes {
            let info = all.iter().find(|info| info.volume == *volume);
            let info = info.ok_or_else(|| Refusal::new(format!("there is no volume {volume}"), ""))?;
            if !info.size_bytes.is_multiple_of(BLOCK_BYTES as u64) {
                let problem =
                    format!("volume {} has {} bytes, no multiple of 4096", info.name, info.size_bytes);
                return Err(Refusal::new(problem, "resize it first"));
            }
            found.push(GroupVolume { volume: *volume, name: info.name.clone(), bytes: info.size_bytes });
        }
        Ok(found)
    }

    /// Makes a group that is primary here. Its other side has agreed.
    pub async fn create_primary(&self, group: GroupId, settings: GroupSettings) -> Result<(), Refusal> {
        let mut epoch = [0; 16];
        self.world.fill_secret(&mut epoch);
        let state = GroupState {
            role: SiteRole::Primary,
            fence: Fence(1),
            lineage: Some(Lineage::new(EpochId(epoch), 1)),
            is_alone: matches!(settings.mode, ReplicationMode::Sync { is_failsafe: false, .. }),
            ..GroupState::new_replica()
        };
        if let Some(keeper) = self.keeper_of(group, &settings)? {
            // Until the first copy is complete it answers alone, and the witness knows so before it does.
            let held = async {
                keeper.acquire(EpochId(epoch), false).await?;
                keeper.record_alone().await
            };
            held.await.map_err(|error| witness_refusal(&settings.name, &error))?;
        }
        // It never answered under this epoch, so it need not compare first.
        self.create(GroupRecord { group, settings, state }, Entry::Whole).await
    }

    fn keeper_of(
        &self,
        group: GroupId,
        settings: &GroupSettings,
    ) -> Result<Option<Rc<LeaseKeeper>>, Refusal> {
        if let Some(contradiction) = settings.contradiction() {
            let problem = format!("DR group {}: {contradiction}", settings.name);
            return Err(Refusal::new(problem, "a witness is for groups in sync without ⟨failsafe⟩"));
        }
        let keeper = self.access.keeper(&self.world, group, settings);
        keeper.map_err(|problem| Refusal::new(problem, WITNESS_ADDRESSES))
    }

    /// Refuses a group that breaks a rule, or whose witness does not answer here.
    pub async fn check_settings(&self, group: GroupId, settings: &GroupSettings) -> Result<(), Refusal> {
        let Some(keeper) = self.keeper_of(group, settings)? else { return Ok(()) };
        keeper.look().await.map_err(|error| witness_refusal(&settings.name, &error))
    }

    /// Makes replicas for a group of another site, and a group that is secondary here. Repeated, it finds what it made.
    ///
    /// # Errors
    ///
    /// A name is taken, or the pool lacks room.
    pub async fn create_secondary(
        &self,
        group: GroupId,
        settings: GroupSettings,
        volumes: &[GroupVolume],
    ) -> Result<(), Refusal> {
        let _one_at_a_time = self.making.lock().await;
        if let Ok(known) = self.find(group) {
            return match *known.settings() == settings {
                true => Ok(()),
                false => Err(Refusal::new(format!("there is another group {group}"), "")),
            };
        }
        if self.group_called(&settings.name).is_some() {
            return Err(Refusal::new(
                format!("there is a DR group {:?}", settings.name),
                "choose another name",
            ));
        }
        self.check_settings(group, &settings).await?;
        let all = self.pool.volumes();
        for wanted in volumes {
            let is_ours = |info: &&array::pool::VolumeInfo| info.volume == wanted.volume;
            match all.iter().find(is_ours) {
                Some(info)
                    if info.size_bytes == wanted.bytes
                        && self.pool.is_replica(wanted.volume).unwrap_or(false) => {}
                Some(info) => {
                    let problem = format!(
                        "the pool has volume {} with the same UUID, which is no replica of this size",
                        info.name
                    );
                    return Err(Refusal::new(problem, "use another pool"));
                }
                None if all.iter().any(|info| info.name == wanted.name) => {
                    let problem = format!("the pool has a volume {:?} already", wanted.name);
                    return Err(Refusal::new(problem, "rename or delete it, or use another pool"));
                }
                None => {}
            }
        }
        let new: Vec<&GroupVolume> =
            volumes.iter().filter(|wanted| !all.iter().any(|info| info.volume == wanted.volume)).collect();
        let needed: u64 = new.iter().map(|wanted| wanted.bytes).sum();
        let space = self.pool.space();
        let free = space.usable_bytes.saturating_sub(space.used_bytes);
        if needed > free {
            let problem = format!("the pool has {free} bytes free, and the group's volumes have {needed}");
            return Err(Refusal::new(problem, "add drives there, or use another pool"));
        }
        let made: Vec<VolumeId> = new.iter().map(|wanted| wanted.volume).collect();
        let done = self.make_replicas(new, (group, settings)).await;
        if done.is_err() {
            // If it cannot be deleted now, it is when the pool is opened next.
            let _ = self.delete_empty(&made).await;
        }
        done
    }

    async fn make_replicas(
        &self,
        new: Vec<&GroupVolume>,
        (group, settings): (GroupId, GroupSettings),
    ) -> Result<(), Refusal> {
        for wanted in new {
            let new = NewVolume {
                name: wanted.name.clone(),
                volume: wanted.volume,
                size_bytes: wanted.bytes,
                setting: VolumeSetting::default(),
            };
            self.pool.create_replica(&new).await.map_err(|error| refusal_of(&settings.name, &error))?;
        }
        self.create(GroupRecord { group, settings, state: GroupState::new_replica() }, Entry::Returned).await
    }

    async fn create(&self, record: GroupRecord, entry: Entry) -> Result<(), Refusal> {
        let name = record.settings.name.clone();
        let records = PoolRecords::new(&self.pool, record.group, record.settings.clone());
        records.put(&record.state).await.map_err(|error| refusal_of(&name, &error))?;
        let volumes = record.settings.volumes.clone();
        // A command of which a part is in the log before it begins would be taken for two.
        let started = self.pool.between_writes(&volumes, || self.start(record, entry)).await;
        let started = started.map_err(|error| refusal_of(&name, &error))?;
        started.map_err(|problem| Refusal::new(format!("DR group {name}: {problem}"), ""))?;
        self.note_groups();
        self.look();
        Ok(())
    }

    /// Has a group do something that it answers.
    pub(super) async fn ask<T>(
        &self,
        group: GroupId,
        order: impl FnOnce(oneshot::Sender<T>) -> GroupOrder,
    ) -> Result<T, Refusal> {
        let group = self.find(group)?;
        let (tell, answer) = oneshot::channel();
        group.order(order(tell));
        answer.await.map_err(|_| Refusal::new(format!("{} has ended", group.settings().name), ""))
    }

    /// Makes this side primary, whatever the other one does. `is_peer_off`: a person vouches for that, and the witness is
    /// not asked.
    /// `at`: as of a state that is kept here, instead of the newest one.
    pub async fn promote(
        &self,
        group: GroupId,
        is_peer_off: bool,
        at: Option<KeptState>,
    ) -> Result<Promoted, Refusal> {
        let order = PromotionOrder { is_peer_off, clients: self.access.clients().of(group), at };
        self.ask(group, |answer| GroupOrder::Promote(order, answer)).await?
    }

    /// The states of a group that are kept here, the newest first.
    pub fn kept_states(&self, group: GroupId) -> Result<Vec<KeptState>, Refusal> {
        let group = self.find(group)?;
        group.member.kept_states().map_err(|error| refusal_of(&group.settings().name, &error))
    }

    /// Has the primary here go on without the other side, of which a person says that it is off.
    pub async fn go_on_alone(&self, group: GroupId) -> Result<(), Refusal> {
        self.ask(group, GroupOrder::GoOnAlone).await?
    }

    /// Gives the right to the other side.
    pub async fn hand_over(&self, group: GroupId) -> Result<(), Refusal> {
        self.ask(group, GroupOrder::HandOver).await?
    }

    /// Stops sending a group to the other side, until it is resumed.
    pub async fn suspend(&self, group: GroupId) -> Result<(), Refusal> {
        self.ask(group, GroupOrder::Suspend).await?
    }

    /// Goes on sending a group to the other side, by a plan.
    pub async fn resume(&self, group: GroupId, plan: MergePlan) -> Result<(), Refusal> {
        self.ask(group, |answer| GroupOrder::Resume(plan, answer)).await?
    }

    /// Says that the other side's history counts: this one's own becomes a fork.
    pub async fn give_way(&self, group: GroupId) -> Result<(), Refusal> {
        self.ask(group, GroupOrder::GiveWay).await?
    }

    /// Forgets a group. Its volumes stay, and are no replicas any more.
    pub async fn remove(&self, group: GroupId) -> Result<(), Refusal> {
        let Ok(hosted) = self.find(group) else { return self.remove_damaged(group).await };
        self.check_rows_unused(group, &hosted.settings().name)?;
        // An attempt that failed has ended its flows already.
        let _ = self.ask(group, GroupOrder::End).await;
        let name = hosted.settings().name.clone();
        let refused = |error: Error| refusal_of(&name, &error);
        // Last goes what a crash in between needs: with the record it is a group again, which marks its volumes.
        self.pool.set_replica(&hosted.settings().volumes, false).await.map_err(refused)?;
        if !planted::is_in_dr(DrBug::RecordLeftBehind) {
            self.pool.remove_replication_record(group).await.map_err(refused)?;
        }
        self.groups.borrow_mut().remove(&group);
        self.kept().drop_group(group);
        self.access.clients().drop_group(group);
        self.note_groups();
        self.hosts.refresh();
        Ok(())
    }

    async fn remove_damaged(&self, group: GroupId) -> Result<(), Refusal> {
        if !self.damaged.borrow().iter().any(|(known, _)| *known == group) {
            return self.find(group).map(drop);
        }
        let removed = match group {
            GroupId::NONE => self.pool.remove_nameless_replication_records().await,
            group => self.pool.remove_replication_record(group).await,
        };
        removed.map_err(|error| refusal_of(&group.to_string(), &error))?;
        self.damaged.borrow_mut().retain(|(known, _)| *known != group);
        // Its volumes are of hosts from now on; the record did not say which they are.
        self.is_all_closed.set(!self.damaged.borrow().is_empty());
        for orphans in self.orphans().chunks(GROUP_VOLUMES_MAX) {
            let unmarked = self.pool.set_replica(orphans, false).await;
            unmarked.map_err(|error| refusal_of(&group.to_string(), &error))?;
        }
        self.hosts.refresh();
        Ok(())
    }
}

/// Orders a change of a pool's groups, which its view shows at once.
pub(crate) fn begin_change<T: Send + 'static>(
    pool: &PoolHandle,
    name: &'static str,
    work: impl FnOnce(Rc<PoolDrGroups>) -> LocalFuture<Result<T, Refusal>> + Send + 'static,
) -> Result<PendingOrder<Result<T, Refusal>>, OrderRefusal> {
    pool.begin(name, move |served| {
        Box::pin(async move {
            let done = work(Rc::clone(&served.dr)).await;
            served.show_changes();
            done
        })
    })
}

fn witness_refusal(name: &str, error: &KeeperError) -> Refusal {
    Refusal::new(
        format!("DR group {name}: {error}"),
        "'spindle witness' runs on a third machine, and both sites name its secret with witness_secret_file in [replication]; or \
         etcd answers at this address, from both sites",
    )
}

fn refusal_of(name: &str, error: &Error) -> Refusal {
    Refusal::new(format!("DR group {name}: {error}"), "see the pool's messages")
}

impl GroupHosts for PoolHosts {
    fn refresh(&self) {
        if let Some(served) = self.0.get().and_then(Weak::upgrade) {
            served.serve_again();
        }
    }

    fn show(&self) {
        if let Some(served) = self.0.get().and_then(Weak::upgrade) {
            served.show_changes();
        }
    }

    fn end(&self, volumes: &[VolumeId]) -> LocalFuture<bool> {
        let served = self.0.get().and_then(Weak::upgrade);
        let volumes = volumes.to_vec();
        Box::pin(async move {
            let Some(served) = served else { return true };
            let world = served.world.clone();
            let ended = async {
                while served.end_clients_of(&volumes) > 0 {
                    world.sleep(Duration::from_millis(5)).await;
                }
            };
            with_deadline(world.sleep(CLIENTS_END_WITHIN), ended).await.is_some()
        })
    }
}

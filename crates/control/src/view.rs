//! Views of a pool: what other threads see of it, at most a second old.
//!
//! Invariants:
//!
//! 1. A view is a value: reading it sends the pool nothing.
//! 2. A view is published once a second at most, and only if something in it changed; at once if what is served has
//!    changed, for the portal routes by it, and after changes of drives. Rows of volumes are made only when the catalogue
//!    has changed; what needs the rows of all segments is as old as [`HealthCollector`] says.
//! 3. Figures are published beside views, once a second if something in them changed: I/O changes no view, but for
//!    those of DR groups.

use crate::{
    dr::{group_view::DrGroups, rehearsal::RehearsalView, shared_targets::SharedTargets},
    job_request::JobRequest,
    metrics::NamedFigures,
    order::map_rows,
    pool_thread::{ListedServices, ServedPool, current},
    presenting::pool_presentations::PresentationProblems,
    session_view::SessionView,
};
use array::{
    format::{PoolId, VolumeId},
    pool::{GroupInfo, UnsettledCut, UnsettledState, VolumeInfo, VolumeSetting},
};
use iscsi::target::{ListedTarget, access::AccessList};
use nbd::ListedExport;
use serving::{
    figures::{FiguresCollector, PoolFigures, PoolMeters},
    pool::health::{HealthCollector, JobStatus, PoolHealth},
};
use std::{rc::Rc, sync::Arc, time::Duration};
use tokio::sync::watch;
use world::{ByteCount, World, with_deadline};

/// Interval of looking for changes.
pub const VIEWS_EVERY: Duration = Duration::from_secs(1);

/// A pool as other threads see it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolView {
    /// None before the first one is published.
    pub pool: Option<PoolId>,
    pub used: ByteCount,
    pub usable: ByteCount,
    /// The reason why the pool has stopped, if it has.
    pub failure: Option<String>,
    pub drives_in_use: usize,
    /// Its drives, copies and jobs, at most 10 s old; `None` before the first view.
    pub health: Option<Arc<PoolHealth>>,
    /// Jobs that were asked for: under way, or the last ones.
    pub job_requests: Arc<Vec<JobRequest>>,
    /// Progress of copies, refreshes and moves into the pool.
    pub transfers: Arc<Vec<JobStatus>>,
    /// The change of its drives or settings that is under way.
    pub change_under_way: Option<&'static str>,
    /// Grows when a change of its drives or settings ends, and with jobs on request.
    pub changes_revision: u64,
    /// Orders that were done.
    pub orders_done: u64,
    /// The order that is being done.
    pub order_under_way: Option<&'static str>,
    /// Sorted by name.
    pub volumes: Arc<Vec<VolumeView>>,
    /// Parts of groups that the pool has.
    pub groups: Arc<Vec<GroupInfo>>,
    /// Snapshots of several pools, and operations on groups, of which other pools may not know; without those under way.
    pub unsettled: Arc<Vec<UnsettledCut>>,
    /// DR groups.
    pub dr: Arc<DrGroups>,
    /// Rehearsals of these that are under way.
    pub rehearsals: Arc<Vec<RehearsalView>>,
    /// Presentations that are not served, although it is their time.
    pub(crate) presentation_problems: Arc<PresentationProblems>,
    /// NBD exports.
    pub exports: Arc<Vec<ListedExport>>,
    /// iSCSI targets.
    pub targets: Arc<Vec<ListedTarget>>,
    /// Rights on the targets.
    pub access: Arc<AccessList>,
    /// Targets that the other sites of DR groups have, too.
    pub(crate) shared_targets: Arc<SharedTargets>,
    /// Hosts that use the exports and targets.
    pub sessions: Arc<Vec<SessionView>>,
    /// Grows when what is served changes.
    pub services_revision: u64,
    /// Of the catalogue that the rows show.
    pub catalogue_revision: u64,
}

/// A volume as other threads see it.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeView {
    pub name: String,
    pub volume: VolumeId,
    pub size: ByteCount,
    /// Number of its present branch: another one after each rollback.
    pub branch: u32,
    pub setting: VolumeSetting,
    pub snapshots: usize,
    pub group: Option<String>,
    /// Name of the volume whose rollback left it.
    pub left_by: Option<String>,
}

impl VolumeView {
    /// A row of a volume.
    pub fn of(info: VolumeInfo) -> Self {
        let VolumeInfo { name, volume, size_bytes, branch, setting, snapshots, group, left_by, .. } = info;
        Self { name, volume, size: ByteCount(size_bytes), branch, setting, snapshots, group, left_by }
    }
}

/// Publishes the views of one pool.
pub(crate) struct ViewPublisher {
    world: World,
    pool: Rc<ServedPool>,
    views: watch::Sender<Arc<PoolView>>,
    /// Revision of the catalogue that the rows show.
    rows_of: Option<u64>,
    volumes: Arc<Vec<VolumeView>>,
    groups: Arc<Vec<GroupInfo>>,
    unsettled: Arc<Vec<UnsettledCut>>,
    exports: Arc<Vec<ListedExport>>,
    targets: Arc<Vec<ListedTarget>>,
    sessions: Arc<Vec<SessionView>>,
    health: HealthCollector,
}

impl ViewPublisher {
    pub fn new(world: &World, pool: &Rc<ServedPool>, views: watch::Sender<Arc<PoolView>>) -> Self {
        Self {
            world: world.clone(),
            pool: Rc::clone(pool),
            views,
            rows_of: None,
            volumes: Arc::default(),
            groups: Arc::default(),
            unsettled: Arc::default(),
            exports: Arc::default(),
            targets: Arc::default(),
            sessions: Arc::default(),
            health: HealthCollector::new(world, &pool.pool),
        }
    }

    /// Publishes until the future is dropped.
    pub async fn run(mut self) {
        loop {
            // Whichever comes first.
            let _ = with_deadline(self.world.sleep(VIEWS_EVERY), self.pool.services_changed()).await;
            self.publish().await;
        }
    }

    /// Publishes the view, if it differs from the last one.
    pub async fn publish(&mut self) {
        let revision = self.pool.pool.catalogue_revision();
        if self.rows_of != Some(revision) {
            let mut rows = map_rows(&self.world, self.pool.pool.volumes(), VolumeView::of).await;
            rows.sort_by(|one, other| one.name.cmp(&other.name));
            self.volumes = Arc::new(rows);
            self.groups = Arc::new(self.pool.pool.groups());
            self.rows_of = Some(revision);
        }
        // Work under way that fails ends without a change of the catalogue.
        let unsettled = self.pool.pool.unsettled_cuts().into_iter();
        keep_if_equal(
            &mut self.unsettled,
            unsettled.filter(|cut| cut.state != UnsettledState::UnderWay).collect(),
        );
        let services_revision = self.pool.services_revision();
        let ListedServices { exports, targets, access, shared } = self.pool.listed();
        keep_if_equal(&mut self.exports, exports);
        keep_if_equal(&mut self.targets, targets);
        keep_if_equal(&mut self.sessions, self.pool.sessions());
        let changes = &self.pool.changes;
        changes.update_record();
        let changes_revision = changes.revision();
        let health = self.health.collect(changes_revision, || changes.drive_statuses());
        let space = self.pool.pool.space();
        let view = PoolView {
            pool: Some(self.pool.pool.id()),
            used: ByteCount(space.used_bytes),
            usable: ByteCount(space.usable_bytes),
            failure: self.pool.pool.failure(),
            drives_in_use: self.pool.pool.drives_present(),
            health: Some(health),
            job_requests: changes.jobs.requests(),
            transfers: Arc::new(changes.jobs.transfers()),
            change_under_way: changes.under_way(),
            changes_revision,
            orders_done: self.pool.orders_done(),
            order_under_way: self.pool.order_under_way(),
            volumes: Arc::clone(&self.volumes),
            groups: Arc::clone(&self.groups),
            unsettled: Arc::clone(&self.unsettled),
            dr: Arc::new(self.pool.dr.view()),
            rehearsals: Arc::new(self.pool.rehearsals.views()),
            presentation_problems: self.pool.presentations.served().problems,
            exports: Arc::clone(&self.exports),
            targets: Arc::clone(&self.targets),
            access,
            shared_targets: shared,
            sessions: Arc::clone(&self.sessions),
            services_revision,
            catalogue_revision: revision,
        };
        self.views.send_if_modified(|last| {
            let is_new = **last != view;
            if is_new {
                *last = Arc::new(view);
            }
            is_new
        });
    }
}

/// Reads the figures of one pool, on any thread.
#[derive(Clone)]
pub struct FiguresReader {
    pool: String,
    figures: watch::Receiver<Arc<PoolFigures>>,
}

impl FiguresReader {
    pub(crate) fn new(pool: &str, figures: &watch::Receiver<Arc<PoolFigures>>) -> Self {
        Self { pool: pool.to_owned(), figures: figures.clone() }
    }

    /// The newest figures; none once the pool's thread has ended.
    pub fn read(&self) -> NamedFigures {
        NamedFigures { pool: self.pool.clone(), figures: current(&self.figures) }
    }
}

/// Publishes the figures of one pool.
pub(crate) struct FiguresPublisher {
    pool: Rc<ServedPool>,
    collector: FiguresCollector,
    figures: watch::Sender<Arc<PoolFigures>>,
}

impl FiguresPublisher {
    pub fn new(
        pool: &Rc<ServedPool>,
        meters: &Rc<PoolMeters>,
        figures: watch::Sender<Arc<PoolFigures>>,
    ) -> Self {
        let collector = FiguresCollector::new(&pool.world, &pool.pool, meters);
        Self { pool: Rc::clone(pool), collector, figures }
    }

    /// Publishes until the future is dropped.
    pub async fn run(mut self) {
        loop {
            self.publish().await;
            self.pool.world.sleep(VIEWS_EVERY).await;
        }
    }

    /// Publishes the figures, if they differ from the last ones.
    pub async fn publish(&mut self) {
        let figures = PoolFigures {
            nbd_clients: self.pool.nbd_clients(),
            iscsi_sessions: self.pool.iscsi_sessions(),
            orders_done: self.pool.orders_done(),
            ..self.collector.collect().await
        };
        let counted_at = Some(self.pool.world.wall());
        self.figures.send_if_modified(|last| {
            let before = PoolFigures { counted_at: None, ..(**last).clone() };
            let is_new = last.counted_at.is_none() || before != figures;
            if is_new {
                *last = Arc::new(PoolFigures { counted_at, ..figures });
            }
            is_new
        });
    }
}

fn keep_if_equal<T: PartialEq>(known: &mut Arc<Vec<T>>, now: Vec<T>) {
    if **known != now {
        *known = Arc::new(now);
    }
}

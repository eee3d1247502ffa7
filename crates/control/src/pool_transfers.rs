//! Copies, refreshes and moves of volumes of other pools into a served one. They run on the thread of the pool that gets the
//! volume; the pool of the source answers on its own, through a link.
//!
//! Invariants:
//!
//! 1. No thread waits for another one: a transfer whose source is not open, or ends, waits for it as a task, and goes on.
//! 2. A transfer that had been done when the server ended is found to be done, not done again.
//! 3. A volume that has moved is served in its new pool before what is left of the old one is deleted, if anybody serves it.

use crate::{
    job_request::{RequestedJob, TransferRequest},
    order::OrderRefusal,
    planted::{self, ApplyBug},
    pool_peers::PoolPeers,
    pool_thread::ServedPool,
    site::{
        handle::{SiteRequest, WantedAnswer},
        volume_following::MovedVolumeNews,
    },
};
use array::{
    error::{Error, Result as PoolResult},
    format::{PoolId, SnapshotId, VolumeId},
    mover::JobKind,
    pool::{
        FinishedCopy, INCOMPLETE_END, MoveTerms, MovedVolume, Pool, SourceHosts, SourceLink, serve_source,
        source_link,
    },
};
use serving::{
    pool::{copying::TransferAnswer, health::JobStatus},
    uuid::parse_uuid,
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::sync::mpsc;
use world::{Job, LocalFuture, World};

/// Between two looks at a source that is not open.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Hosts of a server are held once a pass took no longer than this: they log in again anyway.
const SHORT_PASS: Duration = Duration::from_millis(500);
/// Between two requests to the site to follow a volume.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// The transfers into one pool.
pub(crate) struct PoolTransfers {
    pub(crate) world: World,
    pub(crate) pool: Rc<Pool>,
    peers: PoolPeers,
    /// Those under way, and the last ones.
    jobs: RefCell<BTreeMap<JobKind, Rc<TransferJob>>>,
}

pub(crate) struct TransferJob {
    pub job: Job,
    /// The reason why it does not go on at present.
    problem: RefCell<Option<String>>,
    pub is_over: Cell<bool>,
}

/// The source of a transfer, and its goal.
struct TransferPoints {
    source: PoolId,
    volume: VolumeId,
    /// That of the volume, if it moves.
    snapshot: SnapshotId,
}

impl TransferPoints {
    fn of(request: &TransferRequest) -> Option<Self> {
        let snapshot = request.snapshot.as_ref().unwrap_or(&request.volume);
        Some(Self {
            source: PoolId(parse_uuid(&request.pool).ok()?),
            volume: VolumeId(parse_uuid(&request.volume).ok()?),
            snapshot: SnapshotId(parse_uuid(snapshot).ok()?),
        })
    }
}

impl PoolTransfers {
    pub fn new(world: &World, pool: &Rc<Pool>, peers: &PoolPeers) -> Self {
        Self { world: world.clone(), pool: Rc::clone(pool), peers: peers.clone(), jobs: RefCell::default() }
    }

    /// Progress of those under way and of the last ones.
    pub fn statuses(&self) -> Vec<JobStatus> {
        let jobs = self.jobs.borrow();
        let status = |(kind, transfer): (&JobKind, &Rc<TransferJob>)| {
            let progress = transfer.job.progress();
            let is_running = !transfer.is_over.get();
            JobStatus {
                kind: *kind,
                is_running,
                unit: progress.unit,
                total: progress.total,
                done: progress.done,
                per_second: progress.per_second.round() as u64,
                time_left: progress
                    .time_left
                    .filter(|_| is_running)
                    .map(|left| Duration::from_secs(left.as_secs())),
                problem: match kind {
                    JobKind::Import => self.import_problem().filter(|_| is_running),
                    _ => transfer.problem.borrow().clone(),
                },
            }
        };
        jobs.iter().map(status).collect()
    }

    /// Ends a transfer early. What is copied stays, for one that goes on.
    pub fn cancel(&self, kind: JobKind) {
        if let Some(transfer) = self.jobs.borrow().get(&kind) {
            transfer.job.cancel();
        }
    }

    /// Shows a transfer as under way from now on.
    pub(crate) fn start(&self, job: RequestedJob) -> Rc<TransferJob> {
        let (problem, is_over) = (RefCell::default(), Cell::new(false));
        let transfer = Rc::new(TransferJob { job: Job::under_way(&self.world), problem, is_over });
        self.jobs.borrow_mut().insert(job.kind(), Rc::clone(&transfer));
        transfer
    }

    /// Does a transfer to its end; `is_resumed` if a server of before had begun it.
    pub async fn run(
        &self,
        (job, request): (RequestedJob, &TransferRequest),
        is_wanted: &Cell<bool>,
        is_resumed: bool,
    ) -> PoolResult<TransferAnswer> {
        let Some(points) = TransferPoints::of(request) else {
            return Err(Error::NoVolume(request.from.clone()));
        };
        let transfer = self.start(job);
        let mut may_be_done = is_resumed;
        let done = loop {
            if !is_wanted.get() {
                break Err(Error::CopyCancelled);
            }
            let done_before = || self.done_before((job, request), &points).filter(|_| may_be_done);
            if let Some(done) = done_before().filter(|_| job == RequestedJob::Copy) {
                break Ok(done);
            }
            let done = match self.link(points.source) {
                Some(link) => {
                    transfer.problem.take();
                    self.transfer((job, request, &points), &link, &transfer).await
                }
                None => Err(Error::SourceGone),
            };
            match (done, done_before()) {
                (Err(Error::SourceGone), _) => may_be_done = true,
                // It is being closed.
                (Err(_), _) if self.peers.orders(points.source).is_none() => may_be_done = true,
                // The old volume was deleted, which is the end of a move.
                (Err(Error::NoVolume(_)), Some(done)) => break Ok(done),
                (done, _) => break done,
            }
            transfer.problem.replace(Some(format!("the pool of {} is not open", request.from)));
            self.world.sleep(LOOK_EVERY).await;
        };
        transfer.problem.take();
        transfer.is_over.set(true);
        done
    }

    /// The way to the pool of a source; `None` if it is not open, or has too much to do.
    fn link(&self, source: PoolId) -> Option<SourceLink> {
        let (link, requests) = source_link();
        let serve = move |served: Rc<ServedPool>| -> LocalFuture<()> {
            let world = served.world.clone();
            world.spawn("source of a transfer", async move {
                let check = |volume| match served.exports.registrants(volume) {
                    0 => Ok(()),
                    count => Err(Error::NotMovable(format!(
                        "hosts are registered for persistent reservations on it ({count}), which would end: take the cluster down \
                         first"
                    ))),
                };
                // The pool releases the rest when it is opened again.
                let _ = serve_source(&served.pool, SourceHosts::LogInAgain(&check), requests).await;
                served.show_changes();
            });
            Box::pin(async {})
        };
        let begun = self.peers.orders(source)?.begin("serve a transfer", serve);
        match begun {
            Ok(_) => Some(link),
            Err(OrderRefusal::Full | OrderRefusal::Stopped) => None,
        }
    }

    async fn transfer(
        &self,
        (job, request, points): (RequestedJob, &TransferRequest, &TransferPoints),
        link: &SourceLink,
        transfer: &Rc<TransferJob>,
    ) -> PoolResult<TransferAnswer> {
        let (point, name, progress) =
            ((points.volume, points.snapshot), request.name.as_str(), &transfer.job);
        match job {
            RequestedJob::Refresh => {
                let refreshed = self.pool.refresh_over(link, point, name, progress).await?;
                Ok(TransferAnswer::refreshed(&refreshed))
            }
            RequestedJob::Move => {
                let follow = self.following(request, transfer);
                let terms = MoveTerms { short_pass: SHORT_PASS, follow: &follow };
                let moved = self.pool.move_over(link, (points.volume, name), &terms, progress).await?;
                Ok(TransferAnswer::moved(&moved))
            }
            _ => {
                let copied = self.pool.copy_over(link, point, name, progress).await?;
                Ok(TransferAnswer::copied(&copied, snapshot_of(request)))
            }
        }
    }

    /// Has the site follow a volume that has moved, however often that takes. It has no end before the site has followed: a pool
    /// that is closed meanwhile goes on when it is opened again.
    fn following(
        &self,
        request: &TransferRequest,
        transfer: &Rc<TransferJob>,
    ) -> impl Fn(String) -> LocalFuture<PoolResult<()>> + use<> {
        let (world, site, pool) = (self.world.clone(), Arc::clone(&self.peers.site), self.pool.id());
        let (group, name) =
            (request.from.split_once('/').map(|(group, _)| group.to_owned()), request.name.clone());
        let transfer = Rc::clone(transfer);
        move |before| {
            let (world, site, transfer) = (world.clone(), Arc::clone(&site), Rc::clone(&transfer));
            let from = format!("{}/{before}", group.as_deref().unwrap_or_default());
            let news = MovedVolumeNews { from, pool, name: name.clone() };
            Box::pin(async move {
                let Some(site) = site.get().filter(|_| !planted::is(ApplyBug::NotFollowed)) else {
                    return Ok(());
                };
                while let Err(problem) = ask(site, news.clone()).await {
                    let problem = format!("it has moved, and what serves it does not follow yet: {problem}");
                    transfer.problem.replace(Some(problem));
                    world.sleep(FOLLOW_EVERY).await;
                }
                transfer.problem.take();
                Ok(())
            })
        }
    }

    /// The answer of a copy or a move that had been done before the server or the source's pool ended.
    fn done_before(
        &self,
        (job, request): (RequestedJob, &TransferRequest),
        points: &TransferPoints,
    ) -> Option<TransferAnswer> {
        let incomplete = format!("{}{INCOMPLETE_END}", request.name);
        let is_hidden_bug = planted::is(ApplyBug::IncompleteCopyTakenForDone);
        let is_it = |name: &String| *name == request.name || (is_hidden_bug && *name == incomplete);
        let there = self.pool.volumes().into_iter().find(|info| is_it(&info.name))?;
        let size_bytes = there.size_bytes;
        match job {
            RequestedJob::Copy => {
                let snapshots = self.pool.snapshots(there.volume).ok()?;
                let has_it = snapshots.iter().any(|snapshot| snapshot.snapshot == points.snapshot);
                if !has_it && !is_hidden_bug {
                    return None;
                }
                let copied = FinishedCopy { size_bytes, copied_bytes: 0, found_bytes: 0 };
                Some(TransferAnswer::copied(&copied, snapshot_of(request)))
            }
            RequestedJob::Move if there.volume == points.volume => {
                let moved = MovedVolume {
                    size_bytes,
                    copied_bytes: 0,
                    snapshots: there.snapshots,
                    passes: 0,
                    held_for: Duration::ZERO,
                };
                Some(TransferAnswer::moved(&moved))
            }
            _ => None,
        }
    }
}

/// Asks the site to follow a volume. The error is the reason why it has not.
async fn ask(site: &mpsc::Sender<SiteRequest>, news: MovedVolumeNews) -> Result<(), String> {
    let (request, answer) = SiteRequest::new(WantedAnswer::FollowMoved(news));
    site.try_send(request).map_err(|refused| refused.to_string())?;
    match answer.await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(refused)) => Err(refused.refusal.to_string()),
        Err(_) => Err("the server ends".to_owned()),
    }
}

/// Name of the snapshot.
fn snapshot_of(request: &TransferRequest) -> &str {
    request.from.rsplit_once('@').map_or("", |(_, snapshot)| snapshot)
}

//! Jobs of a served pool on request: the pool's thread runs them, and keeps how the last one of each kind ended.
//!
//! Invariants:
//!
//! 1. A job that is asked for while it is under way is done once; a cancelled one that has not begun does not begin.
//! 2. A job whose pool stops or is closed has no end: it goes on when the pool is served again ([`crate::job_keeper`]).
//! 3. A job does not hold the open pool of the folder while it waits for copies.

use crate::{
    folder_drives::{CopiesEnd, FolderDrives},
    job_request::{JobAnswer, JobEnd, JobOutcome, JobRequest, RequestedJob, TransferRequest},
    pool_peers::PoolPeers,
    pool_transfers::PoolTransfers,
};
use array::{error::Error, format::DriveId, mover::JobKind, pool::Pool};
use report::Refusal;
use serving::{
    pool::{health::JobStatus, levelling::LevelAnswer, scrub::ScrubAnswer},
    uuid::parse_uuid,
};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::sync::Notify;
use world::World;

/// Between two looks at a scrub, or at drives that are awaited.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Revisions of what views show of a pool's drives, settings and jobs.
#[derive(Default)]
pub(crate) struct ShownChanges {
    revision: Cell<u64>,
    changed: Notify,
}

impl ShownChanges {
    /// Has the view published now. Returns the revision that it will have.
    pub fn show(&self) -> u64 {
        let revision = self.revision.get() + 1;
        self.revision.set(revision);
        self.changed.notify_one();
        revision
    }

    pub fn revision(&self) -> u64 {
        self.revision.get()
    }

    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// Runs the jobs of one pool that were asked for.
pub struct PoolJobs {
    world: World,
    pool: Rc<Pool>,
    /// `None` for a pool without a folder.
    drives: Option<Rc<FolderDrives>>,
    transfers: PoolTransfers,
    known: RefCell<BTreeMap<JobKind, KnownJob>>,
    shown: Rc<ShownChanges>,
}

struct KnownJob {
    request: JobRequest,
    /// Grows with each request that joins it.
    requests: u64,
    /// False once it is cancelled.
    is_wanted: Rc<Cell<bool>>,
}

/// The result of a job's run; `None` if its pool has ended first.
type RunEnd = Option<Result<JobAnswer, String>>;

impl PoolJobs {
    pub(crate) fn new(
        world: &World,
        pool: &Rc<Pool>,
        (drives, shown): (Option<Rc<FolderDrives>>, &Rc<ShownChanges>),
        peers: &PoolPeers,
    ) -> Rc<Self> {
        let transfers = PoolTransfers::new(world, pool, peers);
        let (world, pool, shown) = (world.clone(), Rc::clone(pool), Rc::clone(shown));
        Rc::new(Self { world, pool, drives, transfers, known: RefCell::default(), shown })
    }

    /// Progress of copies, refreshes, moves and imports: those under way, and the last ones.
    pub(crate) fn transfers(&self) -> Vec<JobStatus> {
        self.transfers.statuses()
    }

    /// Begins a copy, a refresh or a move under the UUID `id`; `may_be_done` if a server of before may have done it. Returns the
    /// revision of the view that shows it.
    ///
    /// # Errors
    ///
    /// Another one of its kind is under way.
    pub async fn begin_transfer(
        self: &Rc<Self>,
        job: RequestedJob,
        transfer: TransferRequest,
        (id, may_be_done): ([u8; 16], bool),
    ) -> Result<u64, Refusal> {
        let id = DriveId(id).to_string();
        let known = self.known.borrow().get(&job.kind()).map(|known| known.request.clone());
        match known {
            // The same request again.
            Some(known) if known.id == id => {}
            Some(known) if known.is_open() => {
                let name = known.transfer.map_or(String::new(), |transfer| format!(" of {}", transfer.from));
                let problem = format!("another {} into this pool is under way:{name}", job.kind().name());
                return Err(Refusal::new(problem, "wait for it, or cancel it: see 'spindle job list'"));
            }
            _ => {
                let request = JobRequest::new(id, job, self.world.wall());
                self.run(JobRequest { transfer: Some(transfer), ..request }, may_be_done);
            }
        }
        // The view shows it once its task has begun.
        self.world.yield_now().await;
        Ok(self.shown.show())
    }

    /// Begins a job under the UUID `id`, unless one of its kind is under way. A scrub begins from the beginning: one that
    /// the pool began by itself ends. Returns the revision of the view that shows it.
    pub async fn begin(self: &Rc<Self>, job: RequestedJob, id: [u8; 16]) -> u64 {
        self.begin_with(job, id, None).await
    }

    /// As [`Self::begin`]; once copies are made, a drive is forgotten.
    pub async fn begin_with(
        self: &Rc<Self>,
        job: RequestedJob,
        id: [u8; 16],
        forgets: Option<DriveId>,
    ) -> u64 {
        let forgets: BTreeSet<String> = forgets.iter().map(DriveId::to_string).collect();
        let is_known = match self.known.borrow_mut().get_mut(&job.kind()) {
            Some(known) if known.request.is_open() => {
                known.request.forgets.extend(forgets.iter().cloned());
                known.requests += 1;
                true
            }
            // The same request again, after its job has ended.
            Some(known) => known.request.id == DriveId(id).to_string(),
            None => false,
        };
        if !is_known {
            let request = JobRequest::new(DriveId(id).to_string(), job, self.world.wall());
            self.run(JobRequest { forgets, ..request }, false);
        }
        // The view shows it once its task has begun.
        self.world.yield_now().await;
        self.shown.show()
    }

    /// Goes on with what was asked for before the pool was opened, and remembers what had ended.
    pub async fn resume(self: &Rc<Self>, requests: Vec<JobRequest>) -> u64 {
        for request in requests {
            if let Some(known) = self.known.borrow_mut().get_mut(&request.job.kind()) {
                // A newer request came first: it does this one's work, too.
                if request.is_open() {
                    known.request.forgets.extend(request.forgets);
                    known.requests += 1;
                }
                continue;
            }
            match request.is_open() {
                true => self.run(request, true),
                false => {
                    let is_wanted = Rc::new(Cell::new(false));
                    let known = KnownJob { is_wanted, request, requests: 1 };
                    self.known.borrow_mut().insert(known.request.job.kind(), known);
                }
            }
        }
        self.world.yield_now().await;
        self.shown.show()
    }

    /// Ends a job, or gives up its request. What is done counts.
    pub fn cancel(&self, job: JobKind) -> u64 {
        // A move whose volume has changed hands comes to its end all the same.
        let is_transfer = matches!(job, JobKind::Copy | JobKind::Refresh | JobKind::Move | JobKind::Import);
        if let Some(known) = self.known.borrow_mut().get_mut(&job).filter(|_| is_transfer) {
            known.is_wanted.set(false);
            // Its task ends it, or that of the next server; which cannot know whether a volume has changed hands.
            known.request.is_cancelled |= known.request.is_open() && job != JobKind::Move;
            self.transfers.cancel(job);
            return self.shown.show();
        }
        if let Some(known) = self.known.borrow_mut().get_mut(&job)
            && known.request.is_open()
        {
            known.is_wanted.set(false);
            let (outcome, ended_unix_s) = (JobOutcome::Cancelled, self.world.wall().seconds);
            known.request.end = Some(JobEnd { ended_unix_s, outcome, answer: None, problem: None });
        }
        self.pool.cancel(job);
        self.shown.show()
    }

    /// Those that are under way, and the last ones.
    pub(crate) fn requests(&self) -> Arc<Vec<JobRequest>> {
        Arc::new(self.known.borrow().values().map(|known| known.request.clone()).collect())
    }

    fn run(self: &Rc<Self>, request: JobRequest, is_resumed: bool) {
        let (job, asked_unix_s) = (request.job, request.asked_unix_s);
        let is_wanted = Rc::new(Cell::new(!request.is_cancelled));
        let transfer = request.transfer.clone();
        let known = KnownJob { request, is_wanted: Rc::clone(&is_wanted), requests: 1 };
        self.known.borrow_mut().insert(job.kind(), known);
        let jobs = Rc::clone(self);
        self.world.spawn("job on request", async move {
            if is_resumed && job != RequestedJob::Scrub && !job.is_transfer() {
                jobs.await_drives(&is_wanted).await;
            }
            let end = match job {
                RequestedJob::Scrub => {
                    // A round that had begun before belongs to nobody's request.
                    let begun_s = jobs.pool.scrub_begun_ns() / 1_000_000_000;
                    let goes_on =
                        is_resumed && i64::try_from(begun_s).is_ok_and(|begun| begun >= asked_unix_s);
                    jobs.scrub(&is_wanted, goes_on).await
                }
                RequestedJob::Level => jobs.level(&is_wanted).await,
                RequestedJob::Rebuild => jobs.rebuild().await,
                RequestedJob::Copy | RequestedJob::Refresh | RequestedJob::Move => {
                    let transfer = transfer.unwrap_or_default();
                    let done = jobs.transfers.run((job, &transfer), &is_wanted, is_resumed).await;
                    jobs.end_of(done.map(JobAnswer::Transfer))
                }
                RequestedJob::Import => {
                    let transfer = transfer.unwrap_or_default();
                    match jobs.transfers.import(&transfer, &is_wanted).await {
                        Err(_) if jobs.pool.failure().is_some() => None,
                        done => Some(done.map(JobAnswer::Import)),
                    }
                }
            };
            jobs.end(job.kind(), &is_wanted, end);
        });
    }

    /// Waits for drives that are only late after a restart: nobody asked for copies of what they have.
    async fn await_drives(&self, is_wanted: &Cell<bool>) {
        while is_wanted.get() && !self.pool.copies_wait().is_zero() && self.pool.failure().is_none() {
            self.world.sleep(LOOK_EVERY).await;
        }
    }

    /// Scrubs from the beginning, or goes on with the round that the pool knows.
    async fn scrub(&self, is_wanted: &Cell<bool>, goes_on: bool) -> RunEnd {
        let pool = &self.pool;
        while is_wanted.get() && pool.scrub_progress().is_running {
            // A pool goes on by itself with a round that had not ended.
            if !goes_on {
                pool.cancel(JobKind::Scrub);
            }
            self.world.sleep(LOOK_EVERY).await;
        }
        if !is_wanted.get() {
            return None;
        }
        let ended_before = pool.scrub_progress();
        let found = match goes_on {
            true if ended_before.rounds > 0 => Ok(ended_before.last),
            true => pool.continue_scrub().await,
            false => pool.scrub().await,
        };
        self.end_of(found.map(|found| JobAnswer::Scrub(ScrubAnswer::from(found))))
    }

    async fn level(&self, is_wanted: &Cell<bool>) -> RunEnd {
        let (pool, before) = (&self.pool, self.pool.levelled_bytes());
        if let Err(error) = pool.rebuild().await {
            return self.end_of(Err(error));
        }
        if !is_wanted.get() {
            return None;
        }
        let levelled = pool.level().await;
        self.end_of(levelled.map(|outcome| JobAnswer::Level(LevelAnswer::of(pool, outcome, before))))
    }

    /// Makes missing copies, then forgets the drives that are to be forgotten by then. A request that joins it meanwhile may
    /// have brought room, or drives to be forgotten: then once more.
    async fn rebuild(&self) -> RunEnd {
        loop {
            let requests = self.requests_to_rebuild().0;
            if let Err(error) = self.pool.rebuild().await {
                return self.end_of(Err(error));
            }
            let forgets = || {
                let (now, forgets) = self.requests_to_rebuild();
                (now == requests).then_some(forgets)
            };
            match self.drives.as_ref()?.conclude_copies(forgets).await {
                CopiesEnd::Again => {}
                CopiesEnd::Closed => return None,
                CopiesEnd::Concluded(Ok(copies)) => return Some(Ok(JobAnswer::Copies(copies))),
                // It goes on when the pool is opened again.
                CopiesEnd::Concluded(Err(_)) if self.pool.failure().is_some() => return None,
                CopiesEnd::Concluded(Err(refusal)) => return Some(Err(refusal.to_string())),
            }
        }
    }

    /// The number of requests for the job `rebuild`, and the drives that they want forgotten.
    fn requests_to_rebuild(&self) -> (u64, Vec<DriveId>) {
        match self.known.borrow().get(&JobKind::Rebuild) {
            Some(KnownJob { request, requests, .. }) => {
                let forgets = request.forgets.iter().filter_map(|id| parse_uuid(id).ok().map(DriveId));
                (*requests, forgets.collect())
            }
            None => (0, Vec::new()),
        }
    }

    fn end_of(&self, result: Result<JobAnswer, Error>) -> RunEnd {
        match result {
            Ok(answer) => Some(Ok(answer)),
            // It goes on when the pool is opened again. Another pool that has stopped is a reason as any other.
            Err(_) if self.pool.failure().is_some() => None,
            Err(error) => Some(Err(error.to_string())),
        }
    }

    fn end(&self, kind: JobKind, is_wanted: &Rc<Cell<bool>>, end: RunEnd) {
        let mut known = self.known.borrow_mut();
        let Some(known) = known.get_mut(&kind).filter(|known| Rc::ptr_eq(&known.is_wanted, is_wanted)) else {
            return;
        };
        if let Some(end) = end
            && known.request.is_open()
        {
            let (outcome, answer, problem) = match end {
                Ok(answer) => (JobOutcome::Done, Some(answer), None),
                Err(_) if !is_wanted.get() => (JobOutcome::Cancelled, None, None),
                Err(problem) => (JobOutcome::Failed, None, Some(problem)),
            };
            let ended_unix_s = self.world.wall().seconds;
            known.request.end = Some(JobEnd { ended_unix_s, outcome, answer, problem });
        }
        self.shown.show();
    }
}

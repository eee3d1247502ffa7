//! The flows of the sets: one for each set that no agent keeps, which looks when something is due, follows orders of
//! people, and says what happens.
//!
//! Invariants:
//!
//! 1. A set has one flow, which alone has its catalogue open.
//! 2. A set that stays the same in another site file goes on without a break. The flow of one that is gone ends; its backups
//!    stay, and that is said.
//! 3. A flow that is stopped has [`STOP_WITHIN`] to end what it does; what is under way then is as after a crash, which the
//!    next keeper repairs.
//! 4. A catalogue that cannot be opened or written stops its set alone, and is tried again.

use super::{
    catalogues::CatalogueFiles,
    pools::SitePools,
    replica_verifying::ReplicaVerifying,
    served_set::{
        RebuiltCatalogue, ServedSet, SetKeeping, SetOrder, SetOrderAnswer, SetOrderRefusal, SetOrders,
        SetReplication, SetRequest,
    },
    wanted::{WantedFreeze, WantedSet},
};
use crate::{
    conditions::{ConditionClaim, condition_id},
    dr::set_memory::SetMemory,
    notice::NoticeSender,
    planted::{self, SetBug},
    site::handle::SiteHandle,
};
use protect::{
    catalogue::{CatalogueExtract, MachineTime, SetId},
    set_keeper::{
        DatabasesFrozen, KeeperLook, NothingFrozen, PersonRefusal, SetFreezing, SetKeeper, SetNotice,
        SetOpening, SetProblem, SetSettings, SetView, collect_backups,
    },
};
use report::Refusal;
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot, watch};
use world::{JoinHandle, Network, World, with_deadline};

/// Time for a flow that is stopped to end what it does.
pub const STOP_WITHIN: Duration = Duration::from_secs(5);
/// Time after which a catalogue that failed is opened again.
const OPEN_AGAIN: Duration = Duration::from_secs(30);
/// Thread of the events about sets: a set may have several pools.
pub(crate) const SETS_THREAD: &str = "serve";
/// Kind of the condition that a catalogue cannot be used.
pub(super) const NOT_KEPT: &str = "set_not_kept";
const NOT_KEPT_TOPIC: &str = "set_catalogue";
pub(super) const GENERATOR: &str = concat!("spindle ", env!("CARGO_PKG_VERSION"));

/// Topic and kind of the condition of a problem.
pub(crate) fn condition_of(problem: SetProblem) -> (&'static str, &'static str) {
    match problem {
        SetProblem::Failing => ("set_rounds", "set_failing"),
        SetProblem::Waiting => ("set_pools", "set_waiting"),
        SetProblem::Strays => ("set_strays", "set_has_strays"),
        SetProblem::Left => ("set_left", "set_left_points"),
        SetProblem::Full => ("set_room", "set_full"),
        SetProblem::Unverified => ("set_verification", "set_unverified"),
        SetProblem::Undrilled => ("set_drill", "set_undrilled"),
        SetProblem::Uncopied => ("set_vault", "set_uncopied"),
        SetProblem::Unreleased => ("set_logs", "set_unreleased"),
    }
}

/// Topics of all conditions of sets; the subject is the set.
pub(crate) fn is_topic_of_sets(topic: &str) -> bool {
    topic == NOT_KEPT_TOPIC || SetProblem::ALL.iter().any(|problem| condition_of(*problem).0 == topic)
}

/// Keeps the sets of a site.
pub(crate) struct SetFlows {
    wanted: watch::Sender<Arc<Vec<WantedSet>>>,
    shown: watch::Sender<Arc<Vec<ServedSet>>>,
    running: Option<JoinHandle<()>>,
}

impl SetFlows {
    pub fn new() -> Self {
        Self { wanted: watch::Sender::default(), shown: watch::Sender::default(), running: None }
    }

    /// Keeps these sets from now on, once the flows are started.
    pub fn set(&self, sets: Vec<WantedSet>) {
        self.wanted.send_replace(Arc::new(sets));
    }

    /// The sets, for other threads.
    pub fn shown(&self) -> watch::Receiver<Arc<Vec<ServedSet>>> {
        self.shown.subscribe()
    }

    /// Starts the flows, unless they run.
    pub fn start(
        &mut self,
        world: &World,
        site: SiteHandle,
        (files, network, memory): (Rc<dyn CatalogueFiles>, Rc<dyn Network>, SetMemory),
        notices: &NoticeSender,
    ) {
        let notices = notices.of(SETS_THREAD);
        let board = Rc::new(SetBoard { shown: self.shown.clone(), sets: RefCell::default() });
        let surroundings =
            Surroundings { world: world.clone(), site, files, network, memory, notices, board };
        let wanted = self.wanted.subscribe();
        self.running.get_or_insert_with(|| world.spawn("sets", supervise(surroundings, wanted)));
    }

    /// Ends the flows.
    pub async fn stop(self) {
        let Self { wanted, running, .. } = self;
        drop(wanted);
        if let Some(running) = running {
            running.await;
        }
    }
}

#[derive(Clone)]
pub(super) struct Surroundings {
    pub world: World,
    pub site: SiteHandle,
    pub files: Rc<dyn CatalogueFiles>,
    /// Of this host: databases that are frozen.
    network: Rc<dyn Network>,
    /// Of sets that follow DR groups.
    pub memory: SetMemory,
    pub notices: NoticeSender,
    pub board: Rc<SetBoard>,
}

/// The sets as others see them.
pub(super) struct SetBoard {
    shown: watch::Sender<Arc<Vec<ServedSet>>>,
    /// By name; the order of the file is that of the list.
    sets: RefCell<Vec<ServedSet>>,
}

impl SetBoard {
    fn change(&self, change: impl FnOnce(&mut Vec<ServedSet>)) {
        change(&mut self.sets.borrow_mut());
        self.shown.send_replace(Arc::new(self.sets.borrow().clone()));
    }

    /// Shows the state of a set that this server keeps.
    fn show(&self, set: &str, new_view: Option<SetView>, new_problem: Option<String>) {
        self.change(|sets| {
            let known = sets.iter_mut().find(|known| known.wanted.settings.name == set);
            if let Some(ServedSet { keeping: SetKeeping::Server { view, problem, .. }, .. }) = known {
                if let Some(new) = new_view {
                    *view = Some(Box::new(new));
                }
                *problem = new_problem;
            }
        });
    }

    /// Shows the part of this site in the keeping of a set.
    pub fn show_replication(&self, set: &str, new: Option<SetReplication>) {
        self.change(|sets| {
            let known = sets.iter_mut().find(|known| known.wanted.settings.name == set);
            if let Some(ServedSet { keeping: SetKeeping::Server { replication, .. }, .. }) = known {
                *replication = new.map(Box::new);
            }
        });
    }

    /// Shows what the other site told last.
    pub fn show_told(&self, set: &str, new: Option<Arc<CatalogueExtract>>) {
        let is_same = self.sets.borrow().iter().any(|known| match &known.keeping {
            SetKeeping::Server { replication: Some(replication), .. } => {
                known.wanted.settings.name == set && replication.told == new
            }
            _ => false,
        });
        if is_same {
            return;
        }
        self.change(|sets| {
            let known = sets.iter_mut().find(|known| known.wanted.settings.name == set);
            if let Some(ServedSet { keeping: SetKeeping::Server { replication: Some(known), .. }, .. }) =
                known
            {
                known.told = new;
            }
        });
    }

    /// Shows a set that is not kept here.
    pub fn show_aside(&self, set: &str, view: Option<SetView>, replication: SetReplication) {
        self.show(set, view, None);
        self.show_replication(set, Some(replication));
    }
}

/// A flow that runs.
struct RunningSet {
    settings: watch::Sender<SetSettings>,
    freeze: WantedFreeze,
    orders: SetOrders,
    flow: JoinHandle<()>,
}

impl RunningSet {
    async fn end(self) {
        drop(self.settings);
        self.flow.await;
    }
}

async fn supervise(around: Surroundings, mut wanted: watch::Receiver<Arc<Vec<WantedSet>>>) {
    let mut running: BTreeMap<String, RunningSet> = BTreeMap::new();
    loop {
        let sets = Arc::clone(&wanted.borrow_and_update());
        let is_kept = |name: &str| {
            let known = sets.iter().find(|set| set.settings.name == name);
            known.is_some_and(|set| set.freeze.is_by_server())
        };
        let is_frozen_otherwise = |(name, running): (&String, &RunningSet)| {
            let known = sets.iter().find(|set| set.settings.name == *name);
            known.is_some_and(|set| set.freeze.is_by_server() && set.freeze != running.freeze)
        };
        let other: Vec<String> =
            running.iter().filter(|one| is_frozen_otherwise(*one)).map(|(name, _)| name.clone()).collect();
        for name in other {
            // Another flow begins below.
            running.remove(&name).expect("it was listed").end().await;
        }
        let mut gone: Vec<String> = running.keys().filter(|name| !is_kept(name)).cloned().collect();
        if planted::is_in_sets(SetBug::GoesOnWithoutFile) {
            gone.clear();
        }
        for name in gone {
            running.remove(&name).expect("it was listed").end().await;
            around.clear_all(&name);
            let has_agent = sets.iter().any(|set| set.settings.name == name);
            around.notices.note(match has_agent {
                true => {
                    format!("set {name}: an agent keeps it now; the backups of this server's catalogue stay")
                }
                false => format!(
                    "set {name}: the site file has it no more; its backups stay until someone deletes them"
                ),
            });
        }
        let mut shown = Vec::new();
        for set in sets.iter() {
            let keeping = match set.freeze {
                WantedFreeze::Here { .. } => SetKeeping::Agent,
                WantedFreeze::Nothing | WantedFreeze::Databases(_) => around.keep(set, &mut running),
            };
            shown.push(ServedSet { wanted: set.clone(), keeping });
        }
        around.board.change(|sets| *sets = shown);
        if wanted.changed().await.is_err() {
            let flows: Vec<JoinHandle<()>> = running.into_values().map(|set| set.flow).collect();
            for flow in flows {
                flow.await;
            }
            return;
        }
    }
}

impl Surroundings {
    /// Keeps a set, by the flow that there is, or by a new one.
    fn keep(&self, set: &WantedSet, running: &mut BTreeMap<String, RunningSet>) -> SetKeeping {
        let name = &set.settings.name;
        if let Some(known) = running.get(name) {
            known.settings.send_if_modified(|settings| {
                let is_new = *settings != set.settings;
                if is_new {
                    settings.clone_from(&set.settings);
                }
                is_new
            });
            let before = self.board.sets.borrow();
            let before = before.iter().find(|known| known.wanted.settings.name == *name);
            return before.map_or_else(|| unseen(&known.orders), |before| before.keeping.clone());
        }
        let (orders, requests) = SetOrders::channel();
        let settings = watch::Sender::new(set.settings.clone());
        let flow = SetFlow {
            around: self.clone(),
            name: name.clone(),
            settings: settings.subscribe(),
            freeze: set.freeze.clone(),
            requests,
            pools: SitePools::new(&self.world, &self.site, name),
            verifying: ReplicaVerifying::default(),
        };
        let flow = self.world.spawn("set", flow.run());
        let keeping = unseen(&orders);
        running.insert(name.clone(), RunningSet { settings, freeze: set.freeze.clone(), orders, flow });
        keeping
    }

    pub fn clear_all(&self, set: &str) {
        let topics = SetProblem::ALL.map(|problem| condition_of(problem).0);
        for topic in topics.into_iter().chain([NOT_KEPT_TOPIC]) {
            self.notices.clear(&condition_id(topic, SETS_THREAD, set), self.world.wall());
        }
    }
}

fn unseen(orders: &SetOrders) -> SetKeeping {
    SetKeeping::Server { view: None, problem: None, orders: orders.clone(), replication: None }
}

/// The flow of one set.
pub(super) struct SetFlow {
    pub around: Surroundings,
    pub name: String,
    pub settings: watch::Receiver<SetSettings>,
    freeze: WantedFreeze,
    requests: mpsc::Receiver<SetRequest>,
    pub pools: SitePools,
    pub verifying: ReplicaVerifying,
}

/// The reason why a flow wakes.
pub(super) enum FlowWake {
    Time,
    Settings,
    Request(SetRequest),
    /// It is to end.
    Stop,
}

/// The end of a keeper.
enum FlowEnd {
    Stopped,
    /// Its catalogue cannot be written.
    Failed(String),
    /// Another site keeps the set.
    StandsAside,
    /// Its catalogue is to be made again; this is the present one.
    Rebuild(Option<SetId>, RebuildRequest),
}

/// An order to make a catalogue again.
struct RebuildRequest {
    id: Option<SetId>,
    answer: oneshot::Sender<Result<RebuiltCatalogue, SetOrderRefusal>>,
}

impl SetFlow {
    async fn run(mut self) {
        loop {
            if !self.stand_aside().await {
                return;
            }
            let stopping = self.stopping();
            let preparing = Box::pin(self.prepare_succession());
            let Some(prepared) = with_deadline(stopping, preparing).await else { return };
            let problem = match prepared.and_then(|()| self.open()) {
                Err(problem) => problem,
                Ok(keeper) => match self.keep(keeper).await {
                    FlowEnd::Stopped => return,
                    FlowEnd::StandsAside => continue,
                    FlowEnd::Failed(problem) => problem,
                    FlowEnd::Rebuild(present, request) => {
                        self.answer_rebuild(present, request).await;
                        continue;
                    }
                },
            };
            self.say_not_kept(&problem);
            match self.rest(&problem).await {
                None => return,
                Some(None) => {}
                Some(Some(request)) => self.answer_rebuild(None, request).await,
            }
        }
    }

    fn open(&mut self) -> Result<SetKeeper, String> {
        let settings = self.settings.borrow_and_update().clone();
        self.pools.set_pools(settings.pools().into_iter().map(str::to_owned).collect());
        let file = self.around.files.open(&self.name).map_err(|error| error.to_string())?;
        let opening = SetOpening {
            settings,
            pools: Rc::new(self.pools.clone()),
            freezing: self.freezing(),
            generator: GENERATOR.to_owned(),
            runner: "spindle serve".to_owned(),
        };
        SetKeeper::open(&self.around.world, file, opening).map_err(|error| error.to_string())
    }

    fn freezing(&self) -> Rc<dyn SetFreezing> {
        let Surroundings { world, network, .. } = &self.around;
        match &self.freeze {
            WantedFreeze::Databases(sockets) => Rc::new(DatabasesFrozen {
                world: world.clone(),
                network: Rc::clone(network),
                sockets: sockets.clone(),
            }),
            WantedFreeze::Nothing => Rc::new(NothingFrozen),
            WantedFreeze::Here { .. } => unreachable!("an agent keeps it"),
        }
    }

    /// Keeps the set until it is to end, or the catalogue fails.
    async fn keep(&mut self, mut keeper: SetKeeper) -> FlowEnd {
        match with_deadline(self.stopping(), Box::pin(self.succeed(&mut keeper))).await {
            None => return FlowEnd::Stopped,
            Some(Ok(Ok(()))) => {}
            Some(Ok(Err(why))) => return FlowEnd::Failed(why),
            Some(Err(error)) => return FlowEnd::Failed(error.to_string()),
        }
        loop {
            if self.stands_aside().is_some() {
                return FlowEnd::StandsAside;
            }
            let heard =
                self.learn_of_predecessor(&mut keeper).and_then(|()| self.hear_of_replica(&mut keeper));
            if let Err(error) = heard {
                return FlowEnd::Failed(error.to_string());
            }
            let look = match with_deadline(self.stopping(), Box::pin(keeper.look())).await {
                None => return FlowEnd::Stopped,
                Some(look) => look,
            };
            self.say(&mut keeper);
            let wait = match look {
                Ok(KeeperLook { wait, .. }) => wait,
                Err(error) => return FlowEnd::Failed(error.to_string()),
            };
            self.show(&keeper);
            match self.wake_while_kept(wait).await {
                FlowWake::Time => {}
                FlowWake::Settings => self.change(&mut keeper),
                FlowWake::Stop => return FlowEnd::Stopped,
                FlowWake::Request(request) => {
                    if self.stands_aside().is_some() {
                        self.refuse_aside(request);
                        return FlowEnd::StandsAside;
                    }
                    // A change of the file before the order counts for it.
                    if self.settings.has_changed().unwrap_or(false) {
                        self.change(&mut keeper);
                    }
                    if let Some(end) = self.follow(&mut keeper, request).await {
                        return end;
                    }
                }
            }
        }
    }

    /// Ends [`STOP_WITHIN`] after the flow was told to end.
    pub(super) fn stopping(&self) -> impl Future<Output = ()> + Unpin + use<> {
        let (mut settings, world) = (self.settings.clone(), self.around.world.clone());
        Box::pin(async move {
            while settings.changed().await.is_ok() {}
            world.sleep(STOP_WITHIN).await;
        })
    }

    pub(super) async fn wake(&mut self, wait: Duration) -> FlowWake {
        let Self { around, settings, requests, .. } = self;
        let sooner = async {
            match with_deadline(async { drop(settings.changed().await) }, requests.recv()).await {
                None => FlowWake::Settings,
                Some(Some(request)) => FlowWake::Request(request),
                // The board has a sender as long as the set is kept.
                Some(None) => FlowWake::Stop,
            }
        };
        let wake = with_deadline(around.world.sleep(wait), sooner).await;
        match wake.unwrap_or(FlowWake::Time) {
            FlowWake::Settings if settings.has_changed().is_err() => FlowWake::Stop,
            wake => wake,
        }
    }

    fn change(&mut self, keeper: &mut SetKeeper) {
        let settings = self.settings.borrow_and_update().clone();
        self.pools.set_pools(settings.pools().into_iter().map(str::to_owned).collect());
        keeper.set(settings);
    }

    /// Follows an order of a person. Returns the end of the keeper, if it is one.
    async fn follow(&mut self, keeper: &mut SetKeeper, request: SetRequest) -> Option<FlowEnd> {
        let (order, by, answer) = match request {
            SetRequest::Order { order, by, answer } => (order, by, answer),
            SetRequest::Rebuild { id, answer } => {
                let present = keeper.catalogue().header().id.clone();
                return Some(FlowEnd::Rebuild(Some(present), RebuildRequest { id, answer }));
            }
            SetRequest::Catalogue { offset, compactions, answer } => {
                let present = keeper.catalogue().header().compactions;
                if compactions.is_some_and(|compactions| compactions != present) {
                    let what = format!("set {}: old records were summed up while they were read", self.name);
                    let refusal = Refusal::new(what, "read the catalogue from its beginning");
                    let _ = answer.send(Err(SetOrderRefusal::Refused(refusal)));
                    return None;
                }
                let part = keeper.read_catalogue(offset).map_err(|error| {
                    SetOrderRefusal::NotNow(Refusal::new(format!("set {}: {error}", self.name), "try again"))
                });
                let _ = answer.send(part);
                return None;
            }
        };
        let following = async {
            match order {
                SetOrder::BackUp { holds } => {
                    let made = keeper.back_up(&by, &holds).await?;
                    Ok((made.number, made.label.is_none().then(|| made.problems.join("; "))))
                }
                SetOrder::Follow { number, order } => {
                    keeper.follow(number, &order, &by).await?;
                    Ok::<_, PersonRefusal>((number, None))
                }
            }
        };
        let followed = with_deadline(self.stopping(), Box::pin(following)).await;
        // Dropping the answer says that its end is not known.
        let Some(followed) = followed else { return Some(FlowEnd::Stopped) };
        self.say(keeper);
        self.show(keeper);
        let (answered, end) = match followed {
            Ok((number, None)) => (Ok(SetOrderAnswer { number, view: keeper.view() }), None),
            Ok((_, Some(problems))) => {
                let problem = format!("set {}: no backup was made: {problems}", self.name);
                (Err(SetOrderRefusal::NotNow(Refusal::new(problem, "try again when that is over"))), None)
            }
            Err(error) => self.refused(error),
        };
        // The asking thread may have given up.
        let _ = answer.send(answered);
        end
    }

    fn refused(&self, error: PersonRefusal) -> (Result<SetOrderAnswer, SetOrderRefusal>, Option<FlowEnd>) {
        let refusal = Refusal::new(format!("set {}: {error}", self.name), "");
        match error {
            PersonRefusal::Unknown(_) => (Err(SetOrderRefusal::Unknown(refusal)), None),
            PersonRefusal::Wrong { .. } => (Err(SetOrderRefusal::Refused(refusal)), None),
            PersonRefusal::UnderWay(_) => (Err(SetOrderRefusal::NotNow(refusal)), None),
            PersonRefusal::Catalogue(error) => {
                (Err(SetOrderRefusal::NotNow(refusal)), Some(FlowEnd::Failed(error.to_string())))
            }
        }
    }

    fn show(&mut self, keeper: &SetKeeper) {
        let (view, wall) = (keeper.view(), self.around.world.wall());
        // Also those of before a restart.
        for problem in SetProblem::ALL.into_iter().filter(|problem| !view.problems.contains_key(problem)) {
            let (topic, _) = condition_of(problem);
            self.around.notices.clear(&condition_id(topic, SETS_THREAD, &self.name), wall);
        }
        self.around.notices.clear(&condition_id(NOT_KEPT_TOPIC, SETS_THREAD, &self.name), wall);
        self.around.board.show(&self.name, Some(view), None);
        self.show_kept(keeper);
    }

    fn say(&self, keeper: &mut SetKeeper) {
        let notices = &self.around.notices;
        for notice in keeper.take_notices() {
            match notice {
                SetNotice::Note(text) => notices.note(format!("set {}: {text}", self.name)),
                SetNotice::Warning(text) => notices.warn(format!("set {}: {text}", self.name)),
                SetNotice::Began(problem, text) => self.raise(condition_of(problem).1, &text),
                // `show` ends those that are over.
                SetNotice::Ended(_) => {}
            }
        }
    }

    pub(super) fn raise(&self, kind: &'static str, text: &str) {
        let text = format!("set {}: {text}", self.name);
        let claim = ConditionClaim::new(kind, SETS_THREAD, text).of(self.name.as_str());
        self.around.notices.raise(&claim, self.around.world.wall());
    }

    fn say_not_kept(&self, problem: &str) {
        self.raise(NOT_KEPT, problem);
        self.around.board.show(&self.name, None, Some(problem.to_owned()));
    }

    /// Makes the catalogue again. No keeper has it open.
    async fn answer_rebuild(&mut self, present: Option<SetId>, request: RebuildRequest) {
        let RebuildRequest { id, answer } = request;
        let rebuilding = Box::pin(self.rebuild(id, present));
        // Dropping the answer says that its end is not known.
        let Some(rebuilt) = with_deadline(self.stopping(), rebuilding).await else { return };
        if let Ok(rebuilt) = &rebuilt {
            let count = rebuilt.backups.len();
            self.around.notices.note(format!(
                "set {}: its catalogue was made again, with {count} backups; nothing is proven or held any more, and locks \
                 begin again",
                self.name
            ));
        }
        let refused = |error: String| {
            let problem = format!("set {}: its catalogue was not made again: {error}", self.name);
            SetOrderRefusal::Refused(Refusal::new(problem, "the present one stays"))
        };
        let _ = answer.send(rebuilt.map_err(refused));
    }

    async fn rebuild(&self, id: Option<SetId>, present: Option<SetId>) -> Result<RebuiltCatalogue, String> {
        let Surroundings { world, files, .. } = &self.around;
        let collecting = collect_backups(world, &self.name, &self.pools, (id, present.as_ref()));
        let rebuilt = collecting.await.map_err(|error| error.to_string())?;
        let now = MachineTime::of(world);
        let copy = files.keep_copy(&self.name, now.civil).map_err(|error| error.to_string())?;
        let file = files.open(&self.name).map_err(|error| error.to_string())?;
        rebuilt.write(file, GENERATOR, "spindle serve", &now).map_err(|error| error.to_string())?;
        Ok(RebuiltCatalogue {
            id: rebuilt.id,
            backups: rebuilt.backups.into_iter().map(|backup| backup.name).collect(),
            incomplete: rebuilt.incomplete,
            copy,
        })
    }

    /// Waits before the catalogue is opened again; `None` if the flow is to end.
    async fn rest(&mut self, problem: &str) -> Option<Option<RebuildRequest>> {
        let until = self.around.world.now() + OPEN_AGAIN;
        loop {
            let left = until.since(self.around.world.now());
            match self.wake(left).await {
                FlowWake::Time | FlowWake::Settings => return Some(None),
                FlowWake::Stop => return None,
                FlowWake::Request(SetRequest::Rebuild { id, answer }) => {
                    return Some(Some(RebuildRequest { id, answer }));
                }
                FlowWake::Request(request) => {
                    let refusal = Refusal::new(
                        format!("set {} is not kept now: {problem}", self.name),
                        "see the server's messages",
                    );
                    request.refuse(SetOrderRefusal::NotNow(refusal));
                }
            }
        }
    }
}

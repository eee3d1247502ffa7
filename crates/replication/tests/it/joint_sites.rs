//! Sites of two pools each, with a group that has volumes in both, and hosts that write to one pool after the other.

use crate::{
    joint_clones::{content_of_clone, delete_clone},
    sites::{LineEnd, MIB, Site, volumes_of},
};
use array::{
    format::{BLOCK_BYTES, EpochId, Fence, WallNanoseconds},
    pool::Pool,
    volume::VolumeDevice,
};
use futures_util::future::{Either, select};
use replication::{
    connect::SiteRole,
    joint_cut::JointCutId,
    joint_group::JointGroup,
    primary::{PrimaryEnd, PrimaryGroup},
    secondary::{SecondaryEnd, SecondaryGroup},
    session::ReplicationMode,
};
use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::sync::{
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    oneshot,
};
use world::{BlockDevice, Buffer, ByteOffset, Random, Stability, World};

pub const PARTS: usize = 2;
pub const WRITERS: usize = 3;
/// Blocks of each writer in each pool.
const WRITER_BLOCKS: u64 = 5;

pub enum PartOrder {
    Connect(LineEnd),
    Promote,
    /// Its own history becomes a fork.
    Yield,
}

#[derive(Clone)]
pub enum PartFlow {
    Primary(Rc<PrimaryGroup>),
    Secondary(Rc<SecondaryGroup>),
}

/// Work of the machine of a pool.
pub enum PoolWork {
    /// Block and content.
    Write(u64, Vec<u8>),
    ReadAll,
    /// The content of a clone of what a promotion would show, which is deleted again.
    Clone(JointCutId),
}

/// Work for the machine of the pool: it ends with that.
pub struct PoolCommand {
    work: PoolWork,
    done: oneshot::Sender<Vec<u8>>,
}

/// A part of the group at a site: one pool, on a machine of its own.
pub struct PartSite {
    pub site: Rc<Site>,
    pub flow: RefCell<Option<PartFlow>>,
    pub orders: RefCell<UnboundedSender<PartOrder>>,
    pub hands_over: Cell<bool>,
    commands: RefCell<UnboundedSender<PoolCommand>>,
}

pub struct JointSite {
    pub parts: [PartSite; PARTS],
    pub joint: RefCell<Arc<JointGroup>>,
    /// Counted up whenever its hosts are gone.
    pub reign: Cell<u64>,
    /// Hosts of this reign know which writes there are.
    pub known: Cell<Option<u64>>,
}

impl PartSite {
    pub fn is_primary(&self) -> bool {
        self.site.kept.borrow().role == SiteRole::Primary
    }

    pub fn leader(&self) -> Option<Rc<PrimaryGroup>> {
        match &*self.flow.borrow() {
            Some(PartFlow::Primary(group)) => Some(Rc::clone(group)),
            _ => None,
        }
    }

    pub fn follower(&self) -> Option<Rc<SecondaryGroup>> {
        match &*self.flow.borrow() {
            Some(PartFlow::Secondary(group)) => Some(Rc::clone(group)),
            _ => None,
        }
    }

    pub fn send(&self, order: PartOrder) {
        // A pool that is down takes none.
        let _ = self.orders.borrow().send(order);
    }
}

impl JointSite {
    pub fn new(parts: [Rc<Site>; PARTS]) -> Rc<Self> {
        let part = |site| PartSite {
            site,
            flow: RefCell::default(),
            orders: RefCell::new(unbounded_channel().0),
            hands_over: Cell::new(false),
            commands: RefCell::new(unbounded_channel().0),
        };
        let (joint, reign) = (RefCell::new(JointGroup::new(PARTS)), Cell::new(0));
        Rc::new(Self { parts: parts.map(part), joint, reign, known: Cell::new(None) })
    }

    /// Makes the pools, while the site does nothing else.
    pub async fn make(&self) {
        for part in &self.parts {
            let (made, (done, finished)) = (Rc::clone(&part.site), tokio::sync::oneshot::channel());
            part.site.node.start(|world| async move {
                made.make(&world).await;
                assert!(done.send(()).is_ok(), "the test waits for it");
            });
            finished.await.unwrap();
            part.site.node.crash();
        }
    }

    pub fn start(self: &Rc<Self>, mode: ReplicationMode) {
        *self.joint.borrow_mut() = JointGroup::new(PARTS);
        (0..PARTS).for_each(|part| self.start_part(part, mode));
    }

    pub fn start_part(self: &Rc<Self>, part: usize, mode: ReplicationMode) {
        let (orders, taken) = unbounded_channel();
        let own = Rc::clone(self);
        let place = &self.parts[part];
        *place.orders.borrow_mut() = orders;
        place.flow.take();
        place.hands_over.set(false);
        place.site.node.start(move |world| async move { own.live(world, part, mode, taken).await });
    }

    /// Opens pools again that have stopped.
    pub fn revive(self: &Rc<Self>, mode: ReplicationMode, random: &mut Random) {
        for part in 0..PARTS {
            if self.parts[part].site.has_failed.get() {
                self.crash_part(part, random);
                self.start_part(part, mode);
            }
        }
    }

    pub fn crash(&self, random: &mut Random) {
        (0..PARTS).for_each(|part| self.crash_part(part, random));
    }

    pub fn crash_part(&self, part: usize, random: &mut Random) {
        match random.below(2) {
            0 => self.parts[part].site.node.crash(),
            _ => self.parts[part].site.node.cut_power(),
        }
        self.parts[part].flow.take();
        self.parts[part].site.has_failed.set(false);
        self.reign.update(|reign| reign + 1);
    }

    /// Hosts may use the volumes of all parts. A pool that has stopped shows what it had before the writes that failed, and has
    /// them once it is open again.
    pub fn serves(&self) -> bool {
        let leads = |part: &PartSite| {
            !part.site.has_failed.get() && part.leader().is_some_and(|group| group.serves())
        };
        self.parts.iter().all(leads) && self.joint.borrow().all_serve()
    }

    /// The state that this site would show of all parts has the history of the other one's primaries.
    pub fn shows_history_of(&self, primary: &Self) -> bool {
        // One that has a history of its own would bring back writes that the ledger counts as lost.
        let is_copy = |(ours, theirs): (&PartSite, &PartSite)| {
            let (ours, theirs) = (ours.site.kept.borrow(), theirs.site.kept.borrow());
            let shown = match ours.joint.point.as_ref() {
                Some(point) => point.state.as_ref().map(|state| state.lineage.clone()),
                None => ours.lineage.clone(),
            };
            ours.role == SiteRole::Secondary && shown.is_some() && shown == theirs.lineage
        };
        self.parts.iter().zip(&primary.parts).all(is_copy)
    }

    /// Has the machine of a pool work; `None` if there was no answer.
    pub async fn work(&self, part: usize, work: PoolWork) -> Option<Vec<u8>> {
        let (done, answer) = oneshot::channel();
        let sent = self.parts[part].commands.borrow().send(PoolCommand { work, done });
        sent.ok()?;
        answer.await.ok()
    }

    async fn live(
        self: Rc<Self>,
        world: World,
        part: usize,
        mode: ReplicationMode,
        mut orders: UnboundedReceiver<PartOrder>,
    ) {
        let place = &self.parts[part];
        let member = place.site.open_member(&world).await;
        place.site.watch(&world, &member);
        let (commands, taken) = unbounded_channel();
        *place.commands.borrow_mut() = commands;
        delete_clone(member.pool()).await;
        let served = (Rc::clone(&self), part, Rc::clone(member.pool()));
        drop(world.spawn("work of a pool", serve(world.clone(), served, taken)));
        member.use_joint(Arc::clone(&self.joint.borrow()), part);
        place.site.done(member.end_going_back().await).await;
        let (mut has, mut returns) = (member.position_after_opening().unwrap(), true);
        let mut is_in_doubt = true;
        loop {
            let role = member.state().role;
            // As the daemon does it.
            place
                .site
                .done(member.pool().set_replica(&member.ids(), role == SiteRole::Secondary).await)
                .await;
            match role {
                SiteRole::Primary => {
                    let group = PrimaryGroup::begin(&world, &member, (mode, returns), has);
                    *place.flow.borrow_mut() = Some(PartFlow::Primary(Rc::clone(&group)));
                    let end = lead(place, &world, &group, &mut orders).await;
                    // Hosts of all parts are gone before.
                    self.reign.update(|reign| reign + 1);
                    for _ in 0..4 {
                        world.yield_now().await;
                    }
                    group.refuse_hosts();
                    group.end();
                    (is_in_doubt, returns) = (true, true);
                    has = group.session().has().stamps()[0];
                    match end {
                        PrimaryEnd::Fetched(fetched) => has = fetched,
                        PrimaryEnd::HandedOver { has: handed, .. } => (has, is_in_doubt) = (handed, false),
                        _ => {}
                    }
                    let now = place.site.done(member.position_after_leading(has).await).await;
                    (has, is_in_doubt) = (now, is_in_doubt || now > has);
                }
                SiteRole::Secondary => {
                    let group = Rc::new(SecondaryGroup::new(&world, &member, (has, is_in_doubt)));
                    *place.flow.borrow_mut() = Some(PartFlow::Secondary(Rc::clone(&group)));
                    follow(place, &world, &group, &mut orders).await;
                    (has, returns) = (group.has(), false);
                }
            }
            place.flow.take();
        }
    }
}

async fn serve(
    world: World,
    (site, part, pool): (Rc<JointSite>, usize, Rc<Pool>),
    mut commands: UnboundedReceiver<PoolCommand>,
) {
    while let Some(PoolCommand { work, done }) = commands.recv().await {
        let device = VolumeDevice(volumes_of(&pool).remove(0));
        let follower = site.parts[part].follower();
        let (clock, pool) = (world.clone(), Rc::clone(&pool));
        let work = async move {
            let answer = match work {
                PoolWork::Write(block, content) => {
                    let at = ByteOffset(block * BLOCK_BYTES as u64);
                    let written =
                        device.write(at, vec![Arc::new(Buffer::copy_of(&content))], Stability::Stable);
                    let at = || WallNanoseconds::of(clock.wall()).0.to_le_bytes().to_vec();
                    written.await.ok().map(|()| at())
                }
                PoolWork::ReadAll => {
                    // Commands of a session that ended come to their end before the next one begins.
                    let volumes: Vec<_> = pool.volumes().iter().map(|volume| volume.volume).collect();
                    match pool.between_writes(&volumes, || ()).await {
                        Ok(()) => {
                            let read = device.read(ByteOffset(0), vec![Buffer::zeroed(MIB as usize)]).await;
                            read.ok().map(|read| read[0].to_vec())
                        }
                        Err(_) => None,
                    }
                }
                PoolWork::Clone(cut) => match follower {
                    Some(group) => content_of_clone(&group, cut).await,
                    None => None,
                },
            };
            if let Some(answer) = answer {
                // Nobody waits any more if the site's hosts are gone.
                let _ = done.send(answer);
            }
        };
        drop(world.spawn("work of a pool", work));
    }
}

async fn lead(
    place: &PartSite,
    world: &World,
    group: &Rc<PrimaryGroup>,
    orders: &mut UnboundedReceiver<PartOrder>,
) -> PrimaryEnd {
    while let Some(order) = orders.recv().await {
        let line = match order {
            PartOrder::Connect(line) => line,
            PartOrder::Promote if group.serves() => continue,
            PartOrder::Yield => {
                place.site.done(group.member().yield_to_peer().await).await;
                return PrimaryEnd::StoodDown;
            }
            PartOrder::Promote => {
                // It returned, and does not wait for the other site: what it writes is of a new epoch.
                place.site.done(group.member().yield_to_peer().await).await;
                place.send(PartOrder::Promote);
                return PrimaryEnd::StoodDown;
            }
        };
        let run = Box::pin(group.run(&line));
        let end = match select(run, Box::pin(hand_over(place, world, group))).await {
            Either::Left((end, _)) => end,
            Either::Right((never, _)) => match never {},
        };
        place.hands_over.set(false);
        match end {
            PrimaryEnd::Channel(_) => {}
            PrimaryEnd::Failed(error) => place.site.done(Err(error)).await,
            end => return end,
        }
    }
    std::future::pending().await
}

/// Hands over whenever the owner wants that; the hosts are gone.
async fn hand_over(place: &PartSite, world: &World, group: &Rc<PrimaryGroup>) -> Infallible {
    loop {
        while !place.hands_over.get() {
            world.sleep(Duration::from_micros(500)).await;
        }
        // If it fails, this side goes on.
        if let Ok(_ready) = group.catch_up(Duration::from_secs(2)).await {
            let _ = group.hand_over().await;
        }
        place.hands_over.set(false);
    }
}

/// Follows until it is primary.
async fn follow(
    place: &PartSite,
    world: &World,
    group: &SecondaryGroup,
    orders: &mut UnboundedReceiver<PartOrder>,
) {
    while let Some(order) = orders.recv().await {
        match order {
            PartOrder::Connect(line) => match group.run(&line).await {
                SecondaryEnd::Channel(_) => {}
                SecondaryEnd::TakenOver(_) => return,
                SecondaryEnd::Failed(error) => place.site.done(Err(error)).await,
            },
            PartOrder::Yield => place.site.done(group.member().yield_to_peer().await).await,
            PartOrder::Promote => {
                let mut epoch = [0; 16];
                world.random(&format!("epoch {:?}", world.now())).fill(&mut epoch);
                let fence = Fence(group.member().state().fence.0 + 1);
                match group.promote_part(EpochId(epoch), fence).await {
                    Ok(_) => return,
                    Err(error) => println!("note: not promoted: {error}"),
                }
            }
        }
    }
    std::future::pending().await
}

/// A write of a host: a block of its own in one of the pools, with a number that is never given twice.
#[derive(Clone, Copy, Debug)]
struct JointWrite {
    part: usize,
    block: u64,
    number: u64,
}

/// A write of a host that was answered, by the clock of its part.
#[derive(Clone, Copy, Debug)]
pub struct AnsweredWrite {
    pub part: usize,
    pub at: WallNanoseconds,
    /// Counted from 1, over all parts.
    pub index: usize,
}

/// The writes of hosts. Each host begins one after the one before was answered, in any pool: so a state that has one of
/// them has all that the host wrote before.
#[derive(Default)]
pub struct JointLedger {
    begun: RefCell<Vec<Vec<JointWrite>>>,
    answered: RefCell<Vec<usize>>,
    /// Of each host, since it goes on: its writes, when they were answered by the clock of which part.
    times: RefCell<Vec<Vec<AnsweredWrite>>>,
    numbers: Cell<u64>,
    /// Counted up whenever hosts go on from what a site has: writes that it lacks are lost.
    pub restarts: Cell<u64>,
    pub is_over: Cell<bool>,
    /// Drives are slow, or refuse what they are asked: what was begun takes long.
    pub is_slow: Rc<Cell<bool>>,
    /// No new writes for now.
    pub is_draining: Cell<bool>,
    pub under_way: Cell<usize>,
}

impl JointLedger {
    pub fn new() -> Rc<Self> {
        let (begun, answered) = (RefCell::new(vec![Vec::new(); WRITERS]), RefCell::new(vec![0; WRITERS]));
        let times = RefCell::new(vec![Vec::new(); WRITERS]);
        Rc::new(Self { begun, answered, times, ..Self::default() })
    }

    pub fn answer_times(&self) -> Vec<Vec<AnsweredWrite>> {
        self.times.borrow().clone()
    }

    pub fn answered(&self) -> Vec<usize> {
        self.answered.borrow().clone()
    }

    /// Writes of each host that are there, or were begun since.
    pub fn begun(&self) -> Vec<usize> {
        self.begun.borrow().iter().map(Vec::len).collect()
    }

    /// Hosts go on from what both pools of a site have, which is checked.
    fn go_on(&self, contents: &[Vec<u8>]) {
        self.restarts.update(|restarts| restarts + 1);
        for (writer, count) in self.check(contents).into_iter().enumerate() {
            self.begun.borrow_mut()[writer].truncate(count);
            self.answered.borrow_mut()[writer] = count;
            // Times of another site are of another clock.
            self.times.borrow_mut()[writer].clear();
        }
    }

    /// Checks that the pools have a prefix of the writes of each host, and counts them.
    pub fn check(&self, contents: &[Vec<u8>]) -> Vec<usize> {
        let number_at = |part: usize, writer: usize, block: u64| {
            let at = (writer as u64 * WRITER_BLOCKS + block) as usize * BLOCK_BYTES;
            u64::from_le_bytes(contents[part][at..at + 8].try_into().unwrap())
        };
        let blocks = || (0..PARTS).flat_map(|part| (0..WRITER_BLOCKS).map(move |block| (part, block)));
        let mut counts = Vec::new();
        for (writer, writes) in self.begun.borrow().iter().enumerate() {
            let last = blocks().map(|(part, block)| number_at(part, writer, block)).max().unwrap_or(0);
            let count = match last {
                0 => 0,
                last => match writes.binary_search_by_key(&last, |write| write.number) {
                    Ok(at) => at + 1,
                    Err(_) => panic!("write {last} of host {writer} was lost, and is there again"),
                },
            };
            for (part, block) in blocks() {
                let is_here = |write: &&JointWrite| write.part == part && write.block == block;
                let expected = writes[..count].iter().rev().find(is_here).map_or(0, |write| write.number);
                let there = number_at(part, writer, block);
                assert_eq!(
                    there, expected,
                    "host {writer}: block {block} of pool {part} beside its write {last}, the last that is there"
                );
            }
            counts.push(count);
        }
        counts
    }

    /// Finds out which writes there are whenever a site begins to serve, until it is over.
    pub async fn keep(self: Rc<Self>, (world, sites): (World, [Rc<JointSite>; 2])) {
        while !self.is_over.get() {
            world.sleep(Duration::from_millis(1)).await;
            for site in &sites {
                let reign = site.reign.get();
                if !site.serves() || site.known.get() == Some(reign) || self.under_way.get() > 0 {
                    continue;
                }
                // Writes that hosts gave up begin before this.
                world.sleep(Duration::from_millis(30)).await;
                let mut contents = Vec::new();
                for part in 0..PARTS {
                    contents.extend(site.work(part, PoolWork::ReadAll).await);
                }
                if site.serves() && site.reign.get() == reign && contents.len() == PARTS {
                    self.go_on(&contents);
                    site.known.set(Some(reign));
                }
            }
        }
    }

    /// Writes whenever a site serves.
    pub async fn write(
        self: Rc<Self>,
        (world, sites): (World, [Rc<JointSite>; 2]),
        writer: usize,
        mut random: Random,
    ) {
        while !self.is_over.get() {
            let serving =
                sites.iter().find(|site| site.serves() && site.known.get() == Some(site.reign.get()));
            let Some(site) = serving.filter(|_| !self.is_draining.get()) else {
                world.sleep(Duration::from_micros(700)).await;
                continue;
            };
            let (part, block) = (random.below(PARTS as u64) as usize, random.below(WRITER_BLOCKS));
            self.numbers.update(|last| last + 1);
            let write = JointWrite { part, block, number: self.numbers.get() };
            let index = {
                let mut begun = self.begun.borrow_mut();
                begun[writer].push(write);
                begun[writer].len()
            };
            self.under_way.update(|count| count + 1);
            let reign = site.reign.get();
            let done = self.written(&world, site, writer, write).await;
            self.under_way.update(|count| count - 1);
            if let Some(at) = done {
                self.answered.borrow_mut()[writer] = index;
                self.times.borrow_mut()[writer].push(AnsweredWrite { part, at, index });
                world.sleep(Duration::from_micros(random.below(4_000))).await;
            } else {
                // Its site is gone, or a drive refused it: the next one says what there is.
                while !self.is_over.get() && site.reign.get() == reign {
                    world.sleep(Duration::from_millis(1)).await;
                }
            }
        }
    }

    /// The time of the answer, by the clock of the part; `None` if there was none.
    async fn written(
        &self,
        world: &World,
        site: &JointSite,
        writer: usize,
        write: JointWrite,
    ) -> Option<WallNanoseconds> {
        let mut block = vec![0; BLOCK_BYTES];
        block[..8].copy_from_slice(&write.number.to_le_bytes());
        let at = writer as u64 * WRITER_BLOCKS + write.block;
        let done = Box::pin(site.work(write.part, PoolWork::Write(at, block)));
        let reign = site.reign.get();
        let gone = async {
            while site.reign.get() == reign {
                world.sleep(Duration::from_micros(300)).await;
            }
        };
        match select(done, Box::pin(gone)).await {
            Either::Left((done, _)) => {
                done.map(|at| WallNanoseconds(u64::from_le_bytes(at.try_into().unwrap())))
            }
            Either::Right(_) => None,
        }
    }
}

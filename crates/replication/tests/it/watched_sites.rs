//! Two sites with a witness: its simulated server, the sites' owners, who take over by its leases alone, and hosts that ask
//! either site.

use crate::sites::{GROUP, LineEnd, Site, volumes_of};
use array::{
    format::{BLOCK_BYTES, EpochId, Fence, GroupId, SiteId},
    volume::VolumeDevice,
};
use futures_util::future::{Either, select};
use replication::{
    connect::SiteRole,
    joint_group::JointGroup,
    member::GroupMember,
    primary::{PrimaryEnd, PrimaryGroup},
    secondary::{SecondaryEnd, SecondaryGroup},
    session::ReplicationMode,
    witness::{
        client::{WitnessReply, WitnessSilence, WitnessStore},
        group::WitnessRequest,
        keeper::LeaseKeeper,
        ledger::{WitnessLedger, WitnessView},
    },
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::sync::{
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    oneshot,
};
use world::{
    BlockDevice, Buffer, ByteOffset, LocalFuture, Random, Stability, World, sim::SimNode, with_deadline,
};

/// A client gives up.
const ATTEMPT_MAX: Duration = Duration::from_millis(500);

/// The witness, at a place of its own.
pub struct SimWitness {
    world: World,
    ledger: RefCell<WitnessLedger>,
    pub is_up: Cell<bool>,
    /// By site.
    pub is_reached: [Cell<bool>; 2],
    random: RefCell<Random>,
}

impl SimWitness {
    pub fn new(world: &World) -> Rc<Self> {
        Rc::new(Self {
            world: world.clone(),
            ledger: RefCell::default(),
            is_up: Cell::new(true),
            is_reached: [Cell::new(true), Cell::new(true)],
            random: RefCell::new(world.random("the witness")),
        })
    }

    /// Starts again with what its file keeps.
    pub fn restart(&self) {
        let groups = self.ledger.borrow().groups().map(|(group, state)| (group, state.clone())).collect();
        *self.ledger.borrow_mut() = WitnessLedger::restarted(groups, self.world.now());
    }

    pub fn describe(&self) -> String {
        format!("witness {:?}", self.ledger.borrow().views(self.world.now()))
    }

    fn delay(&self) -> Duration {
        let mut random = self.random.borrow_mut();
        match random.below(40) {
            // Longer than a client waits.
            0 => Duration::from_millis(random.below(1_500)),
            _ => Duration::from_micros(random.below(4_000)),
        }
    }
}

/// The witness as a site reaches it.
struct SiteWitness {
    /// Of the site.
    world: World,
    witness: Rc<SimWitness>,
    site: usize,
}

impl WitnessStore for SiteWitness {
    fn ask(&self, request: WitnessRequest) -> LocalFuture<Result<WitnessReply, WitnessSilence>> {
        let sent = self.world.now();
        let (witness, site, (tell, answer)) = (Rc::clone(&self.witness), self.site, oneshot::channel());
        // A request that is on its way arrives, whatever becomes of its sender.
        let outside = witness.world.clone();
        drop(outside.spawn("a request", async move {
            let (there, back) = (witness.delay(), witness.delay());
            witness.world.sleep(there).await;
            if witness.is_up.get() && witness.is_reached[site].get() {
                let (now, wall) = (witness.world.now(), witness.world.wall());
                let (answered, _) = witness.ledger.borrow_mut().apply(&request, now, wall);
                witness.world.sleep(back).await;
                if witness.is_reached[site].get() {
                    drop(tell.send(answered));
                }
            }
        }));
        let world = self.world.clone();
        Box::pin(async move {
            match with_deadline(world.sleep(ATTEMPT_MAX), answer).await {
                Some(Ok(answer)) => Ok(WitnessReply { sent, answer }),
                _ => Err(WitnessSilence { address: "witness".to_owned(), why: "silence".to_owned() }),
            }
        })
    }

    fn list(&self) -> LocalFuture<Result<Vec<WitnessView>, WitnessSilence>> {
        unreachable!("no site lists")
    }
}

/// A command of a host on one register: a block of the first volume of a part.
pub enum HostCommand {
    Write(u64, u64),
    Read(u64),
}

/// A command, and the way of its answer: the value that was read, 0 of a write; `None` for an error.
type HostRequest = (HostCommand, oneshot::Sender<Option<u64>>);

/// A site with its owner: a machine with a pool, or two with a part of the group each.
pub struct WatchedSite {
    pub parts: Vec<WatchedPart>,
    index: usize,
    witness: Rc<SimWitness>,
    joint: RefCell<Option<Arc<JointGroup>>>,
    /// Takeovers without a person, each part for itself.
    pub takeovers: Cell<u32>,
    /// Nobody gets a connection to it.
    pub is_paused: Cell<bool>,
}

/// A part of the group, or all of it.
pub struct WatchedPart {
    pub site: Rc<Site>,
    index: usize,
    pub lines: RefCell<UnboundedSender<LineEnd>>,
    primary: RefCell<Option<Rc<PrimaryGroup>>>,
    pub secondary: RefCell<Option<Rc<SecondaryGroup>>>,
    requests: RefCell<UnboundedSender<HostRequest>>,
    pub hands_over: Cell<bool>,
}

impl WatchedPart {
    pub fn primary(&self) -> Option<Rc<PrimaryGroup>> {
        self.primary.borrow().clone()
    }

    pub fn member(&self) -> Option<Rc<GroupMember>> {
        let primary = self.primary.borrow().as_ref().map(|group| Rc::clone(group.member()));
        primary.or_else(|| self.secondary.borrow().as_ref().map(|group| Rc::clone(group.member())))
    }
}

impl WatchedSite {
    /// Both sites, of which each has the same number of pools on one machine.
    pub fn both(sites: [Vec<Rc<Site>>; 2], witness: &Rc<SimWitness>) -> [Rc<Self>; 2] {
        let mut index = 0..;
        sites.map(|parts| {
            let part = |(index, site)| WatchedPart {
                site,
                index,
                lines: RefCell::new(unbounded_channel().0),
                primary: RefCell::default(),
                secondary: RefCell::default(),
                requests: RefCell::new(unbounded_channel().0),
                hands_over: Cell::new(false),
            };
            Rc::new(Self {
                parts: parts.into_iter().enumerate().map(part).collect(),
                index: index.next().expect("it has no end"),
                witness: Rc::clone(witness),
                joint: RefCell::default(),
                takeovers: Cell::new(0),
                is_paused: Cell::new(false),
            })
        })
    }

    pub fn node(&self) -> &SimNode {
        &self.parts[0].site.node
    }

    /// All parts are primary, and hosts may use them.
    pub fn serves(&self) -> bool {
        let all = self.parts.iter().all(|part| part.primary().is_some_and(|group| group.serves()));
        all && self.joint.borrow().as_ref().is_none_or(|joint| joint.all_serve())
    }

    /// Forgets what its process had.
    pub fn note_crash(&self) {
        for part in &self.parts {
            part.primary.take();
            part.secondary.take();
            part.hands_over.set(false);
            *part.requests.borrow_mut() = unbounded_channel().0;
            part.site.has_failed.set(false);
        }
    }

    /// A pool of it has stopped.
    pub fn has_failed(&self) -> bool {
        self.parts.iter().any(|part| part.site.has_failed.get())
    }

    pub fn start(self: &Rc<Self>, mode: ReplicationMode) {
        let has_parts = self.parts.len() > 1;
        *self.joint.borrow_mut() = has_parts.then(|| JointGroup::new(self.parts.len()));
        let mut lines = Vec::new();
        for part in &self.parts {
            let (given, taken) = unbounded_channel();
            *part.lines.borrow_mut() = given;
            lines.push(taken);
        }
        let own = Rc::clone(self);
        self.node().start(move |world| async move {
            let mut parts = lines.into_iter().enumerate();
            let (first, lines) = parts.next().expect("a group has a part");
            for (part, lines) in parts {
                let (own, world_of) = (Rc::clone(&own), world.clone());
                drop(world.spawn("a part", async move { own.live(world_of, (part, mode), lines).await }));
            }
            own.live(world, (first, mode), lines).await;
        });
    }

    /// Gives a command to this site: registers lie in its parts in turn.
    pub async fn ask(&self, clock: &World, command: HostCommand) -> Option<u64> {
        let (tell, answer) = oneshot::channel();
        let parts = self.parts.len() as u64;
        let (HostCommand::Write(register, _) | HostCommand::Read(register)) = command;
        let _ = self.parts[(register % parts) as usize].requests.borrow().send((command, tell));
        // The host gives the disk up.
        with_deadline(clock.sleep(Duration::from_secs(20)), answer).await?.ok()?
    }

    fn keeper(&self, world: &World, part: usize) -> Rc<LeaseKeeper> {
        let ids = [SiteId([1; 16]), SiteId([2; 16])];
        let store = SiteWitness { world: world.clone(), witness: Rc::clone(&self.witness), site: self.index };
        let (store, of_sites) = (Rc::new(store), (ids[self.index], ids[1 - self.index]));
        match &*self.joint.borrow() {
            Some(joint) => {
                let right = Arc::clone(joint.right());
                LeaseKeeper::of_part(world, store, GroupId(GROUP.0), of_sites, (right, part))
            }
            None => LeaseKeeper::new(world, store, GroupId(GROUP.0), of_sites),
        }
    }

    async fn live(
        &self,
        world: World,
        (index, mode): (usize, ReplicationMode),
        mut lines: UnboundedReceiver<LineEnd>,
    ) {
        let part = &self.parts[index];
        let member = part.site.open_member(&world).await;
        member.use_witness(self.keeper(&world, index));
        if let Some(joint) = &*self.joint.borrow() {
            member.use_joint(Arc::clone(joint), index);
        }
        part.site.watch(&world, &member);
        part.site.done(member.end_going_back().await).await;
        let (mut has, mut returned) = (member.position_after_opening().unwrap(), true);
        loop {
            let role = member.state().role;
            // As the daemon does it.
            let marked = member.pool().set_replica(&member.ids(), role == SiteRole::Secondary).await;
            part.site.done(marked).await;
            (has, returned) = match role {
                SiteRole::Primary => {
                    let group = PrimaryGroup::begin(&world, &member, (mode, returned), has);
                    *part.primary.borrow_mut() = Some(Rc::clone(&group));
                    self.begin_serving(&world, part, &group);
                    let next = self.lead(&world, (part, &group), &mut lines).await;
                    part.primary.take();
                    group.refuse_hosts();
                    group.end();
                    let has = part.site.done(member.position_after_leading(next.0).await).await;
                    (has, next.1 || has > next.0)
                }
                SiteRole::Secondary => {
                    let group = Rc::new(SecondaryGroup::new(&world, &member, (has, returned)));
                    *part.secondary.borrow_mut() = Some(Rc::clone(&group));
                    self.follow(&world, (part, &group), &mut lines).await;
                    part.secondary.take();
                    (group.has(), false)
                }
            };
        }
    }

    /// Takes commands of hosts as long as the group serves.
    fn begin_serving(&self, world: &World, part: &WatchedPart, group: &Rc<PrimaryGroup>) {
        let (requests, mut taken) = unbounded_channel::<HostRequest>();
        *part.requests.borrow_mut() = requests;
        let (own, group, joint) = (world.clone(), Rc::clone(group), self.joint.borrow().clone());
        let parts = self.parts.len() as u64;
        drop(world.spawn("hosts", async move {
            while let Some((command, tell)) = taken.recv().await {
                let is_there = group.serves() && joint.as_ref().is_none_or(|joint| joint.all_serve());
                let volumes = volumes_of(group.member().pool());
                let device = VolumeDevice(Rc::clone(&volumes[0]));
                drop(own.spawn("a command", async move {
                    let done = if is_there { execute(&device, parts, command).await } else { None };
                    let _ = tell.send(done);
                }));
            }
        }));
    }

    async fn lead(
        &self,
        world: &World,
        (part, group): (&WatchedPart, &Rc<PrimaryGroup>),
        lines: &mut UnboundedReceiver<LineEnd>,
    ) -> (array::format::Stamp, bool) {
        loop {
            let looked = with_deadline(world.sleep(Duration::from_millis(250)), lines.recv()).await;
            let Some(line) = looked else {
                if group.steps_back_from().is_some_and(|from| from <= world.now()) {
                    let has = group.session().has().stamps()[0];
                    group.refuse_hosts();
                    group.end();
                    part.site.done(group.member().step_back(has).await).await;
                    return (has, true);
                }
                continue;
            };
            let line = line.expect("the test keeps it");
            let run = Box::pin(group.run(&line));
            let end = match select(run, Box::pin(self.hand_over(world, (part, group)))).await {
                Either::Left((end, _)) => end,
                Either::Right((never, _)) => match never {},
            };
            let has = group.session().has().stamps()[0];
            match end {
                PrimaryEnd::Channel(_) => part.hands_over.set(false),
                PrimaryEnd::HandedOver { has, .. } => return (has, false),
                PrimaryEnd::Fetched(fetched) => return (fetched, true),
                PrimaryEnd::StoodDown => return (has, true),
                PrimaryEnd::Failed(error) => part.site.done(Err(error)).await,
            }
        }
    }

    /// Hands a part over when it is asked to, once those before it are at the other site.
    async fn hand_over(
        &self,
        world: &World,
        (part, group): (&WatchedPart, &Rc<PrimaryGroup>),
    ) -> std::convert::Infallible {
        loop {
            let is_due = || {
                let before = &self.parts[..part.index];
                part.hands_over.get() && before.iter().all(|other| other.primary().is_none())
            };
            while !is_due() {
                world.sleep(Duration::from_millis(1)).await;
            }
            let _ = group.hand_over().await;
            part.hands_over.set(false);
        }
    }

    /// Follows until the group is handed over, or the witness gives this side the right.
    async fn follow(
        &self,
        world: &World,
        (part, group): (&WatchedPart, &Rc<SecondaryGroup>),
        lines: &mut UnboundedReceiver<LineEnd>,
    ) {
        let mut asks_next = world.now();
        loop {
            let line = match group.may_ask_from() {
                Some(from) => with_deadline(world.sleep_until(from.max(asks_next)), lines.recv()).await,
                None => Some(lines.recv().await),
            };
            let Some(line) = line else {
                asks_next = world.now() + Duration::from_millis(250);
                if group.ask_for_right().await.is_ok() {
                    let mut epoch = [0; 16];
                    world.random(&format!("epoch {:?}", world.now())).fill(&mut epoch);
                    let fence = Fence(group.member().state().fence.0 + 1);
                    match group.member().joint().is_some() {
                        true => drop(part.site.done(group.promote_part(EpochId(epoch), fence).await).await),
                        false => drop(part.site.done(group.promote(EpochId(epoch), fence).await).await),
                    }
                    self.takeovers.set(self.takeovers.get() + 1);
                    return;
                }
                continue;
            };
            match group.run(&line.expect("the test keeps it")).await {
                SecondaryEnd::Channel(_) => {}
                SecondaryEnd::TakenOver(_) => return,
                SecondaryEnd::Failed(error) => part.site.done(Err(error)).await,
            }
        }
    }
}

async fn execute(device: &VolumeDevice, parts: u64, command: HostCommand) -> Option<u64> {
    let at = |register: u64| ByteOffset(register / parts * BLOCK_BYTES as u64);
    match command {
        HostCommand::Write(register, value) => {
            let mut block = vec![0; BLOCK_BYTES];
            block[..8].copy_from_slice(&value.to_le_bytes());
            let data = vec![Arc::new(Buffer::copy_of(&block))];
            device.write(at(register), data, Stability::Stable).await.ok().map(|()| 0)
        }
        HostCommand::Read(register) => {
            let read = device.read(at(register), vec![Buffer::zeroed(BLOCK_BYTES)]).await.ok()?;
            Some(u64::from_le_bytes(read[0][..8].try_into().unwrap()))
        }
    }
}

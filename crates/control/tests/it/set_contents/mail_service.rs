//! An application with its data in one pool and its log in another, which can be frozen, and what it has answered.

use array::{pool::Pool, volume::VolumeDevice};
use protect::{
    backup::{Consistency, Freezable, StepError, StepResult},
    set_keeper::{RoundFreeze, SetFreezing},
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::pending,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{BlockDevice, Buffer, ByteOffset, IoResult, LocalFuture, Moment, Random, Stability, World};

/// Pools, and the volume of the set in each.
pub const VOLUMES: [(&str, &str); 2] = [("east", "store"), ("west", "log")];
const BLOCK: usize = 4096;
pub const BLOCKS: usize = 16;

/// Number of the last commit of each block.
pub type Contents = [u64; BLOCKS];

/// The answered writes, which no crash takes back.
#[derive(Default)]
pub struct Ledger {
    /// Contents after the last commit that was answered.
    pub head: Cell<Contents>,
    /// The commit under way, or the one that a crash ended.
    pub begun: Cell<Option<u64>>,
    next: Cell<u64>,
    /// Contents at the freeze of each point.
    pub frozen: RefCell<BTreeMap<String, Contents>>,
}

impl Ledger {
    /// True if a volume has what was answered, and of the commit under way nothing or all.
    pub fn allows(&self, found: &Contents) -> bool {
        let (mut with_begun, head) = (self.head.get(), self.head.get());
        if let Some(begun) = self.begun.get() {
            with_begun[begun as usize % BLOCKS] = begun;
        }
        *found == head || *found == with_begun
    }
}

pub async fn contents_of(device: &impl BlockDevice) -> Contents {
    let mut contents = [0; BLOCKS];
    for (index, number) in contents.iter_mut().enumerate() {
        let at = ByteOffset((index * BLOCK) as u64);
        let read = device.read(at, vec![Buffer::zeroed(BLOCK)]).await.expect("it is read");
        *number = u64::from_le_bytes(read[0][..8].try_into().expect("eight bytes"));
    }
    contents
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServiceState {
    Runs,
    /// Until then; by the round of that number.
    Frozen {
        until: Moment,
        round: u64,
    },
    Stopped,
}

pub struct MailService {
    world: World,
    ledger: Rc<Ledger>,
    devices: Vec<VolumeDevice>,
    state: Cell<ServiceState>,
    is_writing: Cell<bool>,
    rounds: Cell<u64>,
    random: RefCell<Random>,
    /// Percent of steps that fail, hang or end early.
    pub shaky: f64,
}

impl MailService {
    pub fn new(world: &World, ledger: &Rc<Ledger>, pools: &BTreeMap<&str, Rc<Pool>>, shaky: f64) -> Rc<Self> {
        let device =
            |(pool, volume): &(&str, &str)| VolumeDevice(pools[pool].volume(*volume).expect("it is there"));
        Rc::new(Self {
            world: world.clone(),
            ledger: Rc::clone(ledger),
            devices: VOLUMES.iter().map(device).collect(),
            state: Cell::new(ServiceState::Runs),
            is_writing: Cell::new(false),
            rounds: Cell::new(0),
            random: RefCell::new(world.random("mail service")),
            shaky,
        })
    }

    /// Ends what a crash interrupted, and commits until the life ends.
    pub async fn run(self: Rc<Self>) {
        loop {
            let pause_ms = self.random.borrow_mut().below(400);
            self.world.sleep(Duration::from_millis(pause_ms)).await;
            if !self.may_write() {
                continue;
            }
            let number = self.ledger.begun.get().unwrap_or_else(|| {
                self.ledger.next.set(self.ledger.next.get() + 1);
                self.ledger.next.get()
            });
            self.ledger.begun.set(Some(number));
            self.is_writing.set(true);
            let written = self.commit(number).await;
            if written.is_ok() {
                let mut head = self.ledger.head.get();
                head[number as usize % BLOCKS] = number;
                self.ledger.head.set(head);
                self.ledger.begun.set(None);
            }
            self.is_writing.set(false);
        }
    }

    fn may_write(&self) -> bool {
        match self.state.get() {
            ServiceState::Runs => true,
            ServiceState::Frozen { until, .. } => self.world.now() >= until,
            ServiceState::Stopped => false,
        }
    }

    /// The log first.
    async fn commit(&self, number: u64) -> IoResult<()> {
        let mut block = Buffer::zeroed(BLOCK);
        block[..8].copy_from_slice(&number.to_le_bytes());
        let (block, at) = (Arc::new(block), ByteOffset((number as usize % BLOCKS * BLOCK) as u64));
        for device in self.devices.iter().rev() {
            device.write(at, vec![Arc::clone(&block)], Stability::Stable).await?;
        }
        Ok(())
    }

    /// Ends the service for a restore, once nothing is under way.
    pub async fn stop(&self) {
        self.state.set(ServiceState::Stopped);
        while self.is_writing.get() {
            self.world.sleep(Duration::from_millis(1)).await;
        }
    }

    /// Starts it again.
    pub fn start(&self) {
        self.state.set(ServiceState::Runs);
    }

    pub fn is_stopped(&self) -> bool {
        self.state.get() == ServiceState::Stopped
    }

    fn chance(&self, percent: f64) -> bool {
        self.random.borrow_mut().percent(percent)
    }
}

/// The service in one round of backups.
struct ServiceFreeze {
    service: Rc<MailService>,
    point: String,
    round: u64,
}

/// Freezing of the service, for the keeper.
pub struct ServiceFreezing(pub Rc<MailService>);

impl SetFreezing for ServiceFreezing {
    fn round(&self, point: &str) -> RoundFreeze {
        let service = Rc::clone(&self.0);
        service.rounds.set(service.rounds.get() + 1);
        let round = service.rounds.get();
        let thing = ServiceFreeze { service, point: point.to_owned(), round };
        RoundFreeze { things: vec![Rc::new(thing)], hook_runs: Box::new(Vec::new) }
    }
}

impl Freezable for ServiceFreeze {
    fn describe(&self) -> String {
        "the mail service".to_owned()
    }

    fn consistency(&self) -> Consistency {
        Consistency::Application
    }

    fn prepare(&self) -> LocalFuture<StepResult> {
        Box::pin(async { Ok(()) })
    }

    fn freeze(&self, deadline: Moment) -> LocalFuture<StepResult> {
        let (service, point, round) = (Rc::clone(&self.service), self.point.clone(), self.round);
        Box::pin(async move {
            if service.is_stopped() {
                return Err(StepError("it does not run".to_owned()));
            }
            if service.chance(service.shaky) {
                // A hook that hangs, or one that fails.
                return if service.chance(50.0) { pending().await } else { Err(StepError("no".to_owned())) };
            }
            // One in some thaws early, as an application whose watchdog is impatient.
            let most_ms = deadline.since(service.world.now()).as_millis() as u64;
            let is_early = service.chance(service.shaky);
            let until = match is_early {
                true => {
                    service.world.now()
                        + Duration::from_millis(service.random.borrow_mut().below(most_ms.min(200) + 1))
                }
                false => deadline,
            };
            service.state.set(ServiceState::Frozen { until, round });
            while service.is_writing.get() {
                service.world.sleep(Duration::from_millis(1)).await;
            }
            if service.ledger.begun.get().is_some() {
                service.state.set(ServiceState::Runs);
                return Err(StepError("a commit failed and is to be ended".to_owned()));
            }
            service.ledger.frozen.borrow_mut().insert(point, service.ledger.head.get());
            Ok(())
        })
    }

    fn thaw(&self) -> LocalFuture<Result<bool, StepError>> {
        let (service, round) = (Rc::clone(&self.service), self.round);
        Box::pin(async move {
            let ServiceState::Frozen { until, round: of } = service.state.get() else { return Ok(false) };
            if of == round {
                service.state.set(ServiceState::Runs);
            }
            Ok(of == round && service.world.now() < until)
        })
    }

    fn after(&self) -> LocalFuture<StepResult> {
        Box::pin(async { Ok(()) })
    }
}

//! Two sites in simulated time, each a node with a pool, and a line between them.

use crate::{locked_snapshots::NoteLocks, row_ledger::RowLedger};
use array::{
    error::Error,
    format::{
        BLOCK_BYTES, DriveId, EpochId, Fence, GroupId, PoolId, SparingLevel, VolumeId, WallNanoseconds,
    },
    pool::{NewDrive, NewPool, NewVolume, OpenSetting, Pool, VolumeSetting, create, open},
    volume::{Volume, VolumeDevice},
};
use futures_util::future::{Either, select};
use replication::{
    channel::{ChannelEnd, FrameChannel},
    connect::SiteRole,
    frame::{Frame, FrameBody, FrameHeader, HEADER_BYTES},
    group_state::{GroupRecords, GroupState},
    lineage::Lineage,
    member::GroupMember,
    session::ReplicationMode,
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    fmt,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::sync::{
    Notify,
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, LocalFuture, Moment, Random, Stability, World,
    sim::{DriveOptions, FaultPlan, SimDrive, SimNode, Simulation},
};

pub const MIB: u64 = 1 << 20;
pub const GROUP: GroupId = GroupId([7; 16]);
pub const VOLUMES: [VolumeId; 2] = [VolumeId([b'a'; 16]), VolumeId([b'b'; 16])];
const VOLUME_BYTES: u64 = 4 * MIB;

/// A frame, and the moment at which it arrives.
type Arrival = (Moment, Vec<u8>);

/// One end of a line. Frames are encoded and decoded, and arrive after its delay.
pub struct LineEnd {
    /// Its clock is outside of both nodes.
    clock: World,
    delay: Duration,
    line: Rc<Line>,
    out: UnboundedSender<Arrival>,
    arrivals: RefCell<Option<UnboundedReceiver<Arrival>>>,
    sequence: Cell<u64>,
}

/// A line that may be cut.
#[derive(Default)]
pub struct Line {
    is_cut: Cell<bool>,
    changed: Notify,
}

impl Line {
    /// Neither it was cut, nor has an end let go of it.
    pub fn is_whole(self: &Rc<Self>) -> bool {
        // Both ends and the test have it.
        !self.is_cut.get() && Rc::strong_count(self) == 3
    }

    /// Loses everything that is on the line.
    pub fn cut(&self) {
        self.is_cut.set(true);
        self.changed.notify_waiters();
    }
}

/// Both ends of a new line.
pub fn line(clock: &World, delay: Duration) -> (Rc<Line>, LineEnd, LineEnd) {
    let line = Rc::new(Line::default());
    let ((out, there), (back, here)) = (unbounded_channel(), unbounded_channel());
    let end = |out, arrivals| LineEnd {
        clock: clock.clone(),
        delay,
        line: Rc::clone(&line),
        out,
        arrivals: RefCell::new(Some(arrivals)),
        sequence: Cell::new(0),
    };
    (Rc::clone(&line), end(out, here), end(back, there))
}

impl FrameChannel for LineEnd {
    async fn send(&self, body: FrameBody) -> Result<(), ChannelEnd> {
        let lost = || ChannelEnd::Lost("the line was cut".to_owned());
        if self.line.is_cut.get() {
            return Err(lost());
        }
        let sequence = if body.kind().is_ordered() {
            self.sequence.update(|last| last + 1);
            self.sequence.get()
        } else {
            0
        };
        let bytes = Frame { channel: 1, sequence, body }.encode().concat();
        self.out.send((self.clock.now() + self.delay, bytes)).map_err(|_| lost())
    }

    async fn receive(&self) -> Result<FrameBody, ChannelEnd> {
        let lost = || ChannelEnd::Lost("the line was cut".to_owned());
        let mut arrivals = self.arrivals.borrow_mut().take().expect("one waits at a time");
        let arrived = async {
            let (moment, bytes) = arrivals.recv().await?;
            self.clock.sleep_until(moment).await;
            Some(bytes)
        };
        let cut = self.line.changed.notified();
        if self.line.is_cut.get() {
            return Err(lost());
        }
        let bytes = match select(Box::pin(arrived), Box::pin(cut)).await {
            Either::Left((Some(bytes), _)) => bytes,
            _ => return Err(lost()),
        };
        self.arrivals.borrow_mut().replace(arrivals);
        Ok(decode(&bytes))
    }
}

fn decode(bytes: &[u8]) -> FrameBody {
    let header = FrameHeader::decode(bytes[..HEADER_BYTES].try_into().unwrap()).unwrap();
    let (body, blocks) = bytes[HEADER_BYTES..].split_at(header.body_bytes);
    let blocks = blocks.chunks(BLOCK_BYTES).map(|block| Arc::new(Buffer::copy_of(block))).collect();
    Frame::decode(&header, body, blocks).unwrap().body
}

/// States that survive a crash.
#[derive(Clone)]
pub struct KeptState {
    world: World,
    kept: Rc<RefCell<GroupState>>,
    mode: Rc<Cell<Option<ReplicationMode>>>,
}

impl GroupRecords for KeptState {
    fn put(&self, state: &GroupState) -> LocalFuture<Result<(), Error>> {
        let (world, kept, state) = (self.world.clone(), Rc::clone(&self.kept), state.clone());
        Box::pin(async move {
            world.sleep(Duration::from_micros(300)).await;
            *kept.borrow_mut() = state;
            Ok(())
        })
    }

    fn put_with_mode(&self, state: &GroupState, mode: ReplicationMode) -> LocalFuture<Result<(), Error>> {
        let (put, kept_mode) = (self.put(state), Rc::clone(&self.mode));
        Box::pin(async move {
            put.await?;
            // No crash comes in between.
            kept_mode.set(Some(mode));
            Ok(())
        })
    }
}

/// A site: a machine with two drives, and what it remembers of the group.
pub struct Site {
    pub node: Rc<SimNode>,
    number: u8,
    devices: Vec<Rc<SimDrive>>,
    pub kept: Rc<RefCell<GroupState>>,
    /// The mode that was recorded last, if one was.
    pub kept_mode: Rc<Cell<Option<ReplicationMode>>>,
    /// Snapshots whose notes say so are locked.
    pub has_locks: Cell<bool>,
    /// Drives may refuse what they are asked.
    pub may_fail: Cell<bool>,
    /// The pool has stopped since it was opened.
    pub has_failed: Rc<Cell<bool>>,
}

impl Site {
    pub fn new(simulation: &mut Simulation, number: u8, role: SiteRole) -> Rc<Self> {
        Self::with_drives(simulation, 320, (number, role))
    }

    /// A site whose two drives have so many MiB.
    pub fn with_drives(simulation: &mut Simulation, mib: u64, (number, role): (u8, SiteRole)) -> Rc<Self> {
        let node = Rc::new(simulation.add_node(&format!("site{number}")));
        Self::on(simulation, &node, mib, (number, role))
    }

    /// Another pool of a site, on the same machine.
    pub fn beside(&self, simulation: &mut Simulation, number: u8, role: SiteRole) -> Rc<Self> {
        Self::on(simulation, &self.node, 320, (number, role))
    }

    fn on(
        simulation: &mut Simulation,
        node: &Rc<SimNode>,
        drive_mib: u64,
        (number, role): (u8, SiteRole),
    ) -> Rc<Self> {
        let options = DriveOptions::new(ByteCount(drive_mib * MIB));
        let devices: Vec<_> = (0..2).map(|_| simulation.add_drive(options.clone())).collect();
        devices.iter().for_each(|drive| node.attach(drive));
        let state = GroupState {
            role,
            fence: Fence(1),
            lineage: Some(Lineage::new(EpochId([1; 16]), 1)),
            ..GroupState::new_replica()
        };
        let kept = Rc::new(RefCell::new(state));
        let (kept_mode, has_locks, may_fail) = (Rc::default(), Cell::new(false), Cell::new(false));
        let (node, has_failed) = (Rc::clone(node), Rc::default());
        Rc::new(Self { node, number, devices, kept, kept_mode, has_locks, may_fail, has_failed })
    }

    pub fn records(&self, world: &World) -> Rc<dyn GroupRecords> {
        let (kept, mode) = (Rc::clone(&self.kept), Rc::clone(&self.kept_mode));
        Rc::new(KeptState { world: world.clone(), kept, mode })
    }

    /// Its drives, or one of them, do as the plan says from now on.
    pub fn trouble_drives(&self, one: Option<usize>, faults: &FaultPlan) {
        let is_meant = |index: usize| one.is_none_or(|one| one == index);
        let meant = self.devices.iter().enumerate().filter(|(index, _)| is_meant(*index));
        meant.for_each(|(_, drive)| drive.set_faults(faults.clone()));
    }

    /// Each operation of its drives takes so much longer from now on.
    pub fn hang_drives(&self, span: Duration) {
        let faults = match span {
            Duration::ZERO => FaultPlan::none(),
            span => FaultPlan { slow_percent: 100.0, slow_span: span, ..FaultPlan::none() },
        };
        self.trouble_drives(None, &faults);
    }

    fn block_devices(&self) -> Vec<Rc<dyn BlockDevice>> {
        self.devices.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect()
    }

    /// Makes the pool and its volumes.
    pub async fn make(&self, world: &World) {
        let new = NewPool {
            pool: PoolId([self.number; 16]),
            name: format!("pool{}", self.number),
            slot_bytes: MIB as u32,
            sparing: SparingLevel::None,
        };
        let devices = self.block_devices();
        let drives = (0..).zip(&devices).map(|(index, device): (u8, _)| NewDrive {
            drive: DriveId([16 * self.number + index; 16]),
            serial: format!("S{index}"),
            device: Rc::clone(device),
            domain: None,
        });
        create(world, &new, &drives.collect::<Vec<_>>()).await.unwrap();
        let pool = self.open(world).await;
        for (name, volume) in ["a", "b"].into_iter().zip(VOLUMES) {
            let setting = VolumeSetting::default();
            let new = NewVolume { name: name.to_owned(), volume, size_bytes: VOLUME_BYTES, setting };
            pool.create_volume(&new).await.unwrap();
        }
        // The pool knows that they are in a DR group.
        let volumes = VOLUMES.iter().flat_map(|volume| volume.0);
        let record = (VOLUMES.len() as u16).to_le_bytes().into_iter().chain(volumes).collect();
        pool.put_replication_record(GROUP, record).await.unwrap();
        pool.close().await.unwrap();
    }

    /// Opens the pool, and finds the group in it.
    pub async fn open_member(&self, world: &World) -> Rc<GroupMember> {
        let pool = self.open(world).await;
        let state = self.kept.borrow().clone();
        let member = GroupMember::new(&pool, (GROUP, volume_ids()), (state, self.records(world)));
        if self.has_locks.get() {
            member.use_locks(Rc::new(NoteLocks(world.clone())));
        }
        member
    }

    /// The result of something; never returns if the pool has failed and may.
    pub async fn done<T>(&self, done: Result<T, impl fmt::Display>) -> T {
        match done {
            Ok(done) => done,
            Err(error) => {
                assert!(self.may_fail.get(), "a pool failed: {error}");
                self.has_failed.set(true);
                std::future::pending().await
            }
        }
    }

    /// Notes that the pool has stopped, as the server notices it, if drives may refuse what they are asked.
    pub fn watch(&self, world: &World, member: &Rc<GroupMember>) {
        if !self.may_fail.get() {
            return;
        }
        let (clock, member, has_failed) = (world.clone(), Rc::clone(member), Rc::clone(&self.has_failed));
        drop(world.spawn("a look at the pool", async move {
            while !member.has_pool_stopped() {
                clock.sleep(Duration::from_millis(1)).await;
            }
            has_failed.set(true);
        }));
    }

    pub async fn open(&self, world: &World) -> Rc<Pool> {
        // Its drives may refuse for a while.
        for _ in 0..100 {
            match open(world, &self.block_devices(), OpenSetting::default()).await {
                Ok(pool) => return pool,
                Err(error) if self.may_fail.get() => println!("note: not opened: {error}"),
                Err(error) => panic!("the pool does not open: {error}"),
            }
            world.sleep(Duration::from_millis(50)).await;
        }
        panic!("the pool does not open");
    }
}

pub fn volume_ids() -> BTreeSet<VolumeId> {
    VOLUMES.into()
}

/// A command of a writer: a run of blocks of one volume that carry its number.
#[derive(Clone, Debug)]
pub struct HostWrite {
    pub volume: usize,
    pub first: u64,
    pub count: u64,
    /// A discard, after which nobody knows which command a block is of.
    pub is_discard: bool,
    /// A failover may have left a part of it.
    pub is_partial: bool,
    /// Told apart from commands of the same number that a failover lost.
    pub number: u64,
}

/// Commands that hosts have begun, and those that were answered. Each writer has blocks of its own, and writes one command
/// after the other, so what it has written is a prefix of its commands at any moment.
#[derive(Default)]
pub struct HostLedger {
    /// Commands of each writer, from number 1.
    pub begun: RefCell<Vec<Vec<HostWrite>>>,
    /// Of each writer, the number of answered commands.
    pub answered: RefCell<Vec<usize>>,
    /// Times of the answers of each writer, by the clock of its site, with the number of answered commands.
    pub answer_times: RefCell<Vec<Vec<(WallNanoseconds, usize)>>>,
    pub is_over: Cell<bool>,
    /// Pools may stop, or refuse commands.
    pub may_fail: Cell<bool>,
    /// Those that did.
    pub pools_failed: Cell<usize>,
    /// One host that changes sizes and takes snapshots, too, instead of the writers.
    pub rows: Option<Rc<RowLedger>>,
    number_next: Numbers,
}

/// Writers, and blocks of each of them in each volume.
pub const WRITERS: usize = 6;
const WRITER_BLOCKS: u64 = VOLUME_BYTES / BLOCK_BYTES as u64 / WRITERS as u64;

fn block_of(writer: usize, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES];
    bytes[..8].copy_from_slice(&(writer as u64 + 1).to_le_bytes());
    bytes[BLOCK_BYTES - 8..].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn number_of(block: &[u8]) -> (u64, u64) {
    let number = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
    (number(0), number(BLOCK_BYTES - 8))
}

impl HostLedger {
    pub fn new() -> Rc<Self> {
        Self::of(None)
    }

    pub fn of(rows: Option<Rc<RowLedger>>) -> Rc<Self> {
        let ledger = Self { rows, ..Self::default() };
        *ledger.begun.borrow_mut() = vec![Vec::new(); WRITERS];
        *ledger.answered.borrow_mut() = vec![0; WRITERS];
        *ledger.answer_times.borrow_mut() = vec![Vec::new(); WRITERS];
        Rc::new(ledger)
    }

    /// Writes until it is over, or its site stops serving. Commands that were not answered are never written again.
    pub async fn write(
        self: Rc<Self>,
        (world, stop): (World, Rc<Stop>),
        writer: usize,
        volumes: Vec<Rc<Volume>>,
        mut random: Random,
    ) {
        let _writing = stop.begin_writing();
        while !self.is_over.get() && !stop.is_set.get() && !stop.is_draining.get() {
            let count =
                if random.percent(10.0) { 1 + random.below(WRITER_BLOCKS) } else { 1 + random.below(4) };
            let first = writer as u64 * WRITER_BLOCKS + random.below(WRITER_BLOCKS - count + 1);
            let volume = random.below(volumes.len() as u64) as usize;
            let is_discard = random.percent(8.0);
            let number = self.number_next.update_and_get();
            let command = HostWrite { volume, first, count, is_discard, is_partial: false, number };
            let index = {
                let mut begun = self.begun.borrow_mut();
                begun[writer].push(command);
                begun[writer].len()
            };
            let at = ByteOffset(first * BLOCK_BYTES as u64);
            let device = VolumeDevice(Rc::clone(&volumes[volume]));
            let done: LocalFuture<_> = if is_discard {
                device.discard(at, ByteCount(count * BLOCK_BYTES as u64))
            } else {
                let block = Arc::new(Buffer::copy_of(&block_of(writer, number)));
                device.write(at, (0..count).map(|_| Arc::clone(&block)).collect(), Stability::Stable)
            };
            match select(done, Box::pin(stop.stopped())).await {
                Either::Left((Ok(()), _)) => {}
                Either::Left((Err(error), _)) => {
                    assert!(self.may_fail.get(), "a host's command failed: {error}");
                    stop.has_failed.set(true);
                    return;
                }
                Either::Right(_) => return,
            }
            self.answered.borrow_mut()[writer] = index;
            self.answer_times.borrow_mut()[writer].push((WallNanoseconds::of(world.wall()), index));
            world.sleep(Duration::from_micros(random.below(20_000))).await;
        }
    }

    /// A failover has left these prefixes: what was begun beyond is lost.
    pub fn go_on_from(&self, counts: &[usize]) {
        for (writer, &count) in counts.iter().enumerate() {
            let commands = &mut self.begun.borrow_mut()[writer];
            commands.truncate(count);
            if let Some(last) = commands.last_mut() {
                last.is_partial = true;
            }
            self.answered.borrow_mut()[writer] = count;
            self.answer_times.borrow_mut()[writer].retain(|(_, index)| *index <= count);
        }
    }

    /// Checks that a side has every answered command, all of each.
    ///
    /// # Panics
    ///
    /// If it lacks one.
    pub async fn check_nothing_lost(&self, volumes: &[Rc<Volume>]) {
        let answered = self.answered.borrow().clone();
        let counts = self.check_prefix(volumes, Some(&answered)).await.unwrap();
        for (writer, (&there, &answered)) in counts.iter().zip(&answered).enumerate() {
            assert!(there >= answered, "writer {writer} was answered {answered}, and {there} is there");
        }
    }

    /// Checks what a replica has: of each writer a prefix of its commands, of the last one a part at most. Returns how
    /// many commands of each writer it may have, at most.
    ///
    /// Of commands that were answered in sync (`whole`, of each writer) there is no part.
    pub async fn check_prefix(
        &self,
        volumes: &[Rc<Volume>],
        whole: Option<&[usize]>,
    ) -> Result<Vec<usize>, String> {
        let mut contents = Vec::new();
        for volume in volumes {
            let device = VolumeDevice(Rc::clone(volume));
            let read = device.read(ByteOffset(0), vec![Buffer::zeroed(VOLUME_BYTES as usize)]).await;
            contents.push(read.unwrap().remove(0));
        }
        let begun = self.begun.borrow();
        let mut counts = Vec::new();
        for (writer, commands) in begun.iter().enumerate() {
            let whole = whole.map_or(0, |whole| whole[writer]);
            let first = writer as u64 * WRITER_BLOCKS;
            let all = (0..volumes.len())
                .flat_map(|volume| (first..first + WRITER_BLOCKS).map(move |index| (volume, index)));
            let mut blocks = Vec::new();
            for (volume, index) in all {
                let at = index as usize * BLOCK_BYTES;
                let (by, number) = number_of(&contents[volume][at..at + BLOCK_BYTES]);
                if by != 0 && by != writer as u64 + 1 {
                    return Err(format!("block {index} of volume {volume} is of writer {by}"));
                }
                blocks.push((volume, index, number));
            }
            let numbers: Vec<u64> = commands.iter().map(|command| command.number).collect();
            let position = |number: u64| match number {
                0 => Ok(0),
                _ => numbers.binary_search(&number).map(|at| at + 1),
            };
            let mut last = 0;
            for &(volume, index, number) in &blocks {
                let at = position(number).map_err(|_| {
                    format!("block {index} of volume {volume} is of command {number}, which was lost")
                })?;
                last = last.max(at);
            }
            let fits = |end: usize| {
                let wrong = blocks.iter().find(|&&(volume, index, number)| {
                    !possible(&commands[..end], (volume, index), whole).contains(&number)
                });
                wrong.copied()
            };
            // Commands behind the last one that shows may be hidden by discards.
            let Some(count) = (last..=commands.len()).rev().find(|&end| fits(end).is_none()) else {
                let (volume, index, number) = fits(last).unwrap();
                return Err(format!(
                    "writer {writer} has {last} commands, and block {index} of volume {volume} is of number {number}, not \
                     one of {:?}",
                    possible(&commands[..last], (volume, index), whole)
                ));
            };
            counts.push(count);
        }
        Ok(counts)
    }
}

/// The numbers that a block may have after some commands, of the last of which there may be a part.
fn possible(commands: &[HostWrite], (volume, index): (usize, u64), whole: usize) -> Vec<u64> {
    let covers = |write: &&HostWrite| {
        write.volume == volume && (write.first..write.first + write.count).contains(&index)
    };
    let mut numbers = Vec::new();
    for (at, write) in commands.iter().enumerate().rev().filter(|(_, write)| covers(write)) {
        numbers.push(if write.is_discard { 0 } else { write.number });
        if !write.is_partial && (at + 1 != commands.len() || at < whole) {
            return numbers;
        }
    }
    numbers.push(0);
    numbers
}

/// The end of a site's service.
#[derive(Default)]
pub struct Stop {
    pub is_set: Cell<bool>,
    /// A command of a host has failed.
    pub has_failed: Cell<bool>,
    /// Writers end after the command that they have under way.
    pub is_draining: Cell<bool>,
    writers: Rc<()>,
    changed: Notify,
}

impl Stop {
    pub fn begin_writing(&self) -> Rc<()> {
        Rc::clone(&self.writers)
    }

    /// Writers that have not ended.
    pub fn writers(&self) -> usize {
        Rc::strong_count(&self.writers) - 1
    }

    pub fn set(&self) {
        self.is_set.set(true);
        self.changed.notify_waiters();
    }

    pub async fn stopped(&self) {
        let changed = self.changed.notified();
        if !self.is_set.get() {
            changed.await;
        }
    }
}

/// Numbers of commands: ascending, each once.
#[derive(Default)]
pub struct Numbers(Cell<u64>);

impl Numbers {
    fn update_and_get(&self) -> u64 {
        self.0.update(|last| last + 1);
        self.0.get()
    }
}

/// Ways in which drives refuse what they are asked.
pub fn refusing(random: &mut Random) -> FaultPlan {
    match random.below(4) {
        0 => FaultPlan { failed_write_percent: 30.0, ..FaultPlan::none() },
        1 => FaultPlan { failed_flush_percent: 60.0, ..FaultPlan::none() },
        2 => FaultPlan { no_space_percent: 60.0, ..FaultPlan::none() },
        _ => FaultPlan {
            failed_write_percent: 5.0,
            failed_flush_percent: 5.0,
            slow_percent: 20.0,
            slow_span: Duration::from_millis(50),
            ..FaultPlan::none()
        },
    }
}

/// Drives of any of these pools are slow for a while, again and again, up to so many milliseconds each time.
pub async fn slow_drives(world: World, sites: Vec<Rc<Site>>, (each_ms, is_on): (u64, Rc<Cell<bool>>)) {
    let slow = |_: &mut Random| FaultPlan {
        slow_percent: 20.0,
        slow_span: Duration::from_millis(50),
        ..FaultPlan::none()
    };
    let random = world.random("slow drives");
    trouble_again_and_again(world, sites, (random, slow), ([each_ms, each_ms], is_on)).await;
}

/// Drives of any of these pools answer for 5 to 19 s nothing of what they are asked for a moment, again and again.
pub async fn silent_drives(world: World, sites: Vec<Rc<Site>>, (each_ms, is_on): (u64, Rc<Cell<bool>>)) {
    let silent = |random: &mut Random| FaultPlan {
        slow_percent: 100.0,
        slow_span: Duration::from_millis(5_000 + random.below(14_000)),
        ..FaultPlan::none()
    };
    let random = world.random("silent drives");
    trouble_again_and_again(world, sites, (random, silent), ([each_ms / 8, each_ms], is_on)).await;
}

/// Drives of any of these pools refuse what they are asked for a while, again and again: for a quarter of the milliseconds
/// at most.
pub async fn ill_drives(world: World, sites: Vec<Rc<Site>>, (each_ms, is_on): (u64, Rc<Cell<bool>>)) {
    let random = world.random("ill drives");
    trouble_again_and_again(world, sites, (random, refusing), ([each_ms / 4, each_ms], is_on)).await;
}

/// One drive of a pool or all have faults, then none has; each for so many milliseconds at most.
async fn trouble_again_and_again(
    world: World,
    sites: Vec<Rc<Site>>,
    (mut random, faults): (Random, impl Fn(&mut Random) -> FaultPlan),
    ([ill_ms, well_ms], is_on): ([u64; 2], Rc<Cell<bool>>),
) {
    while is_on.get() {
        let site = &sites[random.below(sites.len() as u64) as usize];
        let one = random.percent(50.0).then(|| random.below(2) as usize);
        site.trouble_drives(one, &faults(&mut random));
        world.sleep(Duration::from_millis(random.below(ill_ms))).await;
        site.trouble_drives(None, &FaultPlan::none());
        world.sleep(Duration::from_millis(random.below(well_ms))).await;
    }
}

const FILLER: &str = "filler";

/// Fills a pool: a volume beside the group's takes all that is left. Returns the bytes that it took.
pub async fn fill(pool: &Rc<Pool>) -> u64 {
    let (name, volume) = (FILLER.to_owned(), VolumeId([b'f'; 16]));
    let new = NewVolume { name, volume, size_bytes: 1 << 30, setting: VolumeSetting::default() };
    if pool.create_volume(&new).await.is_err() {
        return 0;
    }
    let device = VolumeDevice(pool.volume(array::pool::VolumeKey::Id(volume)).unwrap());
    let block = Arc::new(Buffer::copy_of(&[0xf; BLOCK_BYTES]));
    let mut at = 0;
    while at < new.size_bytes {
        let data = (0..64).map(|_| Arc::clone(&block)).collect();
        if device.write(ByteOffset(at), data, Stability::Stable).await.is_err() {
            break;
        }
        at += 64 * BLOCK_BYTES as u64;
    }
    at
}

/// Gives the room back that [`fill`] took.
pub async fn empty(pool: &Rc<Pool>) {
    // It may have failed meanwhile, and is emptied once it is open again.
    let _ = pool.delete_volume(array::pool::VolumeKey::Name(FILLER), true).await;
}

/// Contents of all volumes.
pub async fn contents(pool: &Pool) -> Vec<Vec<u8>> {
    contents_of(&VOLUMES.map(|id| pool.volume(array::pool::VolumeKey::Id(id)).unwrap())).await
}

pub async fn contents_of(volumes: &[Rc<Volume>]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for volume in volumes {
        let device = VolumeDevice(Rc::clone(volume));
        let read = device.read(ByteOffset(0), vec![Buffer::zeroed(VOLUME_BYTES as usize)]).await;
        all.push(read.unwrap()[0].to_vec());
    }
    all
}

/// Handles on the volumes of the group.
pub fn volumes_of(pool: &Rc<Pool>) -> Vec<Rc<Volume>> {
    VOLUMES.map(|id| pool.volume(array::pool::VolumeKey::Id(id)).unwrap()).into()
}

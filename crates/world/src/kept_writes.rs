//! A device on another machine whose writes are kept until a flush has made them stable.
//!
//! When the connection to such a device breaks, another server may answer afterwards, or the same one after a crash:
//! what it acknowledged and did not flush may be lost, and its client fails the next flush with
//! [`CacheLost`](IoErrorKind::CacheLost). Here all that may be lost is written again, and flushed. So a broken
//! connection costs the user of the device only time.
//!
//! It is in use where a request is sent again after a broken connection and answered once. Reads are not held up: the
//! bytes of a lost cache read as older ones until the next flush, and a user's checksums tell.
//!
//! Invariants:
//!
//! 1. A volatile write is kept from its start to the success of a flush that began after its answer. So is every
//!    operation that started behind it and changes bytes: written again in the same order, they give the same result.
//! 2. While operations are repeated, no other change is under way.
//! 3. The bytes kept are bounded: a write beyond the bound waits for a flush.

use crate::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoError, IoErrorKind, IoResult, LocalFuture,
    Stability, World,
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::{Rc, Weak},
    sync::Arc,
};
use tokio::sync::{Mutex, RwLock};

/// Bytes kept at most, but for writes that are under way.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// A change of the device's bytes.
#[derive(Clone, Debug)]
enum Change {
    Write(Vec<Arc<Buffer>>),
    Discard(ByteCount),
}

struct KeptChange {
    at: ByteOffset,
    change: Change,
    /// Number of its answer, in the order of answers; `None` while it is under way.
    answered: Option<u64>,
}

impl KeptChange {
    fn bytes(&self) -> usize {
        match &self.change {
            Change::Write(from) => from.iter().map(|buffer| buffer.len()).sum(),
            Change::Discard(_) => 0,
        }
    }
}

/// Changes that are kept, by the order of their starts.
#[derive(Default)]
struct KeptChanges {
    changes: RefCell<BTreeMap<u64, KeptChange>>,
    bytes: Cell<usize>,
    started: Cell<u64>,
    answers: Cell<u64>,
}

impl KeptChanges {
    /// Keeps an operation that starts now, if it or an earlier one may be lost. Returns its number then.
    fn start(&self, at: ByteOffset, change: &Change, stability: Stability) -> Option<u64> {
        let mut changes = self.changes.borrow_mut();
        if stability == Stability::Stable && changes.is_empty() {
            return None;
        }
        let number = self.started.get() + 1;
        self.started.set(number);
        let kept = KeptChange { at, change: change.clone(), answered: None };
        self.bytes.set(self.bytes.get() + kept.bytes());
        assert!(changes.insert(number, kept).is_none(), "numbers are used once");
        Some(number)
    }

    fn is_full(&self) -> bool {
        self.bytes.get() > KEPT_BYTES_MAX
    }

    /// Records the answer to an operation. One that failed promises nothing, and is kept no longer.
    fn end(&self, number: u64, is_done: bool) {
        let mut changes = self.changes.borrow_mut();
        if is_done {
            self.answers.set(self.answers.get() + 1);
            changes.get_mut(&number).expect("no flush covers what is under way").answered =
                Some(self.answers.get());
        } else if let Some(kept) = changes.remove(&number) {
            self.bytes.set(self.bytes.get() - kept.bytes());
        }
    }

    /// Everything kept, in the order of the starts.
    fn all(&self) -> Vec<(ByteOffset, Change)> {
        let changes = self.changes.borrow();
        assert!(changes.values().all(|kept| kept.answered.is_some()), "nothing is under way");
        changes.values().map(|kept| (kept.at, kept.change.clone())).collect()
    }

    /// Drops what was answered up to that answer: it is stable.
    fn flushed(&self, upto: u64) {
        let is_stable = |kept: &KeptChange| kept.answered.is_some_and(|answered| answered <= upto);
        self.changes.borrow_mut().retain(|_, kept| {
            let stays = !is_stable(kept);
            if !stays {
                self.bytes.set(self.bytes.get() - kept.bytes());
            }
            stays
        });
    }
}

/// A device whose volatile writes survive a broken connection. When it is dropped, so is the device: what is under way
/// fails then.
pub struct KeptWrites {
    world: World,
    session: Rc<Session>,
}

struct Session {
    device: Rc<dyn BlockDevice>,
    kept: KeptChanges,
    /// A loss was reported, and nothing was repeated since.
    may_have_lost: Cell<bool>,
    locks: Locks,
}

/// Held without holding the device.
#[derive(Clone, Default)]
struct Locks {
    /// Read by changes under way, written while they are repeated.
    gate: Rc<RwLock<()>>,
    flushing: Rc<Mutex<()>>,
}

impl KeptWrites {
    /// `device` fails a flush with [`IoErrorKind::CacheLost`] if acknowledged writes may be lost.
    pub fn new(world: &World, device: Rc<dyn BlockDevice>) -> Self {
        let session = Session {
            device,
            kept: KeptChanges::default(),
            may_have_lost: Cell::new(false),
            locks: Locks::default(),
        };
        Self { world: world.clone(), session: Rc::new(session) }
    }

    /// Starts a change in a task of its own: it is kept until it is answered, even if its caller is dropped.
    fn change(&self, at: ByteOffset, change: Change, stability: Stability) -> LocalFuture<IoResult<()>> {
        let (session, locks) = (Rc::downgrade(&self.session), self.session.locks.clone());
        let task = make(session, locks, at, change, stability);
        Box::pin(self.world.spawn("kept write", task))
    }
}

impl Session {
    fn start(&self, at: ByteOffset, change: &Change, stability: Stability) -> LocalFuture<IoResult<()>> {
        match change {
            Change::Write(from) => self.device.write(at, from.clone(), stability),
            Change::Discard(length) => self.device.discard(at, *length),
        }
    }

    /// Records an answer to a change. A server without stable writes has done it, and may have lost its cache.
    fn end(&self, number: Option<u64>, done: &IoResult<()>) {
        let is_lost = done.as_ref().is_err_and(is_cache_lost);
        self.may_have_lost.set(self.may_have_lost.get() || is_lost);
        if let Some(number) = number {
            self.kept.end(number, done.is_ok() || is_lost);
        }
    }
}

fn open(session: &Weak<Session>) -> IoResult<Rc<Session>> {
    let closed = || IoError::new(IoErrorKind::Disconnected, "the device was closed");
    session.upgrade().ok_or_else(closed)
}

/// Makes a change. It never holds the device while it waits.
async fn make(
    session: Weak<Session>,
    locks: Locks,
    at: ByteOffset,
    change: Change,
    stability: Stability,
) -> IoResult<()> {
    if open(&session)?.kept.is_full() {
        let one_at_a_time = locks.flushing.lock().await;
        // Another write may have waited for the same.
        if open(&session)?.kept.is_full() {
            flush_alone(&session, &locks).await?;
        }
        drop(one_at_a_time);
    }
    loop {
        let (number, done) = {
            let _under_way = locks.gate.read().await;
            let (number, started) = {
                let session = open(&session)?;
                (session.kept.start(at, &change, stability), session.start(at, &change, stability))
            };
            let done = started.await;
            open(&session)?.end(number, &done);
            (number, done)
        };
        match done {
            Err(error) if is_cache_lost(&error) && number.is_some() => {
                return flush_kept(&session, &locks).await;
            }
            // It was not kept: once more.
            Err(error) if is_cache_lost(&error) => {}
            done => return done,
        }
    }
}

async fn flush_kept(session: &Weak<Session>, locks: &Locks) -> IoResult<()> {
    let _one_at_a_time = locks.flushing.lock().await;
    flush_alone(session, locks).await
}

/// Flushes, and repeats what may be lost until nothing may be. The caller holds the lock of flushes.
async fn flush_alone(session: &Weak<Session>, locks: &Locks) -> IoResult<()> {
    let mut upto = open(session)?.kept.answers.get();
    loop {
        if open(session)?.may_have_lost.get() {
            let _alone = locks.gate.write().await;
            let (answers, changes) = {
                let session = open(session)?;
                session.may_have_lost.set(false);
                (session.kept.answers.get(), session.kept.all())
            };
            upto = answers;
            if let Err(error) = repeat(session, changes).await {
                open(session)?.may_have_lost.set(true);
                return Err(error);
            }
        }
        let flushing = open(session)?.device.flush();
        match flushing.await {
            Ok(()) if !open(session)?.may_have_lost.get() => break,
            Ok(()) => {}
            Err(error) if is_cache_lost(&error) => open(session)?.may_have_lost.set(true),
            Err(error) => return Err(error),
        }
    }
    open(session)?.kept.flushed(upto);
    Ok(())
}

/// Makes changes again, in the order in which they were made. None is under way.
async fn repeat(session: &Weak<Session>, changes: Vec<(ByteOffset, Change)>) -> IoResult<()> {
    for (at, change) in changes {
        let started = open(session)?.start(at, &change, Stability::Volatile);
        started.await?;
    }
    Ok(())
}

fn is_cache_lost(error: &IoError) -> bool {
    error.kind() == IoErrorKind::CacheLost
}

impl BlockDevice for KeptWrites {
    fn geometry(&self) -> Geometry {
        self.session.device.geometry()
    }

    fn may_be_away(&self) -> bool {
        true
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        self.session.device.read(at, into)
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        self.change(at, Change::Write(from), stability)
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        let (session, locks) = (Rc::downgrade(&self.session), self.session.locks.clone());
        Box::pin(async move { flush_kept(&session, &locks).await })
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        self.change(at, Change::Discard(length), Stability::Volatile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Random,
        sim::{DriveOptions, SimDrive, SimLimits, Simulation},
    };
    use std::time::Duration;

    const SECTOR: usize = 512;
    const SECTORS: u64 = 64;

    fn simulated(seed: u64) -> (Simulation, Rc<SimDrive>) {
        let mut simulation = Simulation::new(seed);
        let drive = simulation.add_drive(DriveOptions::new(ByteCount(SECTORS * SECTOR as u64)));
        (simulation, drive)
    }

    /// Overwrites and flushes, while the connection breaks. Returns what the last flush promised, or the error
    /// of a flush.
    async fn work(
        world: World,
        drive: Rc<SimDrive>,
        device: Rc<dyn BlockDevice>,
    ) -> Result<Vec<u8>, IoErrorKind> {
        let mut random = world.random("changes");
        let mut breaks = Random::new(random.next_u64(), "breaks");
        let own = world.clone();
        world.spawn("breaks", async move {
            loop {
                own.sleep(Duration::from_micros(1 << breaks.below(14))).await;
                drive.break_connection(Duration::from_micros(1 << breaks.below(14)));
            }
        });
        let mut promised = vec![0; SECTORS as usize];
        for _ in 0..20 {
            let mut under_way = Vec::new();
            // Each in sectors of its own, so that the order of those under way does not matter.
            for part in 0..4 {
                let first = 16 * part + random.below(16);
                let count = 1 + random.below(16 * (part + 1) - first);
                let (at, value) = (ByteOffset(first * SECTOR as u64), 1 + random.below(255) as u8);
                let data = vec![Arc::new(Buffer::copy_of(&vec![value; count as usize * SECTOR]))];
                let stability = if random.percent(30.0) { Stability::Stable } else { Stability::Volatile };
                promised[first as usize..(first + count) as usize].fill(value);
                under_way.push(device.write(at, data, stability));
            }
            for done in under_way {
                done.await.map_err(|error| error.kind())?;
            }
            if random.percent(40.0) {
                device.flush().await.map_err(|error| error.kind())?;
            }
        }
        device.flush().await.map_err(|error| error.kind())?;
        Ok(promised)
    }

    fn contents(drive: &SimDrive) -> Vec<u8> {
        let mut bytes = vec![0; SECTORS as usize * SECTOR];
        drive.peek(0, &mut bytes);
        bytes.chunks(SECTOR).map(|sector| sector[0]).collect()
    }

    #[test]
    fn what_a_flush_promised_is_there_whatever_the_connection_did() {
        let mut caches_lost = 0;
        for seed in 0..300 {
            let (mut simulation, drive) = simulated(seed);
            let own = Rc::clone(&drive);
            let worked = simulation.run(SimLimits::generous(), |world| {
                let device = Rc::new(KeptWrites::new(&world, Rc::clone(&own) as Rc<dyn BlockDevice>));
                work(world, own, device)
            });
            let promised = worked.completed().unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
            simulation.cut_power();
            assert_eq!(contents(&drive), promised, "seed {seed}");
            caches_lost += drive.statistics().faults.values().sum::<u64>();
        }
        assert!(caches_lost > 300, "{caches_lost} are too few to show much");
    }

    #[test]
    fn without_it_a_flush_fails() {
        let failed = (0..20).filter(|&seed| {
            let (mut simulation, drive) = simulated(seed);
            let own = Rc::clone(&drive) as Rc<dyn BlockDevice>;
            let worked = simulation.run(SimLimits::generous(), |world| work(world, drive, own));
            worked.completed() == Err(IoErrorKind::CacheLost)
        });
        assert!(failed.count() > 10, "the test above would find nothing");
    }

    #[test]
    fn what_is_under_way_does_not_hold_the_device() {
        let (mut simulation, drive) = simulated(1);
        let worked = simulation.run(SimLimits::generous(), |world| async move {
            let others = Rc::strong_count(&drive);
            let device = KeptWrites::new(&world, Rc::clone(&drive) as Rc<dyn BlockDevice>);
            drive.break_connection(Duration::from_secs(1));
            let data = || vec![Arc::new(Buffer::zeroed(SECTOR))];
            let (written, flushed) =
                (device.write(ByteOffset(0), data(), Stability::Volatile), device.flush());
            world.sleep(Duration::from_millis(1)).await;
            drop(device);
            assert_eq!(Rc::strong_count(&drive), others, "nobody holds it");
            (written.await.map_err(|error| error.kind()), flushed.await.map_err(|error| error.kind()))
        });
        let closed = Err(IoErrorKind::Disconnected);
        assert_eq!(worked.completed(), (closed, closed));
    }

    #[test]
    fn the_bytes_kept_are_bounded_by_flushes() {
        let mut simulation = Simulation::new(2);
        let drive = simulation.add_drive(DriveOptions::new(ByteCount::mib(64)));
        let own = Rc::clone(&drive);
        let worked = simulation.run(SimLimits::generous(), |world| async move {
            let device = KeptWrites::new(&world, Rc::clone(&own) as Rc<dyn BlockDevice>);
            for mib in 0..64 {
                let data = vec![Arc::new(Buffer::zeroed(1 << 20))];
                device.write(ByteOffset(mib << 20), data, Stability::Volatile).await.expect("it is there");
                assert!(device.session.kept.bytes.get() <= KEPT_BYTES_MAX + (1 << 20));
            }
            device.flush().await.expect("it is there");
            assert_eq!(device.session.kept.bytes.get(), 0);
        });
        worked.completed();
        assert!(drive.statistics().flushes > 1);
    }
}

//! Freezing a group for a cut of its volumes.
//!
//! A frozen group is at rest on its storage: a cut of all its files, taken at any moment while it is frozen,
//! opens to exactly what was answered before. It is prepared while the load goes on: a checkpoint is taken,
//! the file of the next log generation made, page writes are held and those under way awaited. Only then do
//! commits wait, for the rest of the log, the answers of commits that have logged their end, and the headers.
//!
//! Invariants, while a group is frozen:
//!
//! 1. Nothing is written: no page, no log segment, no header, no checkpoint; no file grows or gets another
//!    name.
//! 2. No commit is answered. None fails: it waits, and its latency counts.
//! 3. Everything that was answered is stable, lazy commits too; every commit that is in the stable log has
//!    been answered, unless its caller stopped waiting.
//! 4. The log is in a new generation, which holds no record: a cut needs no log beyond the one before.
//! 5. The header of every database names the freeze ([`SnapshotMark`]).
//! 6. It ends once: by [`FrozenGroup::thaw`], when the [`FrozenGroup`] is dropped, or at its deadline by a task
//!    of the group, whichever comes first. Only the first learns that the group was frozen until then.
//!
//! Reads, and changes in memory, go on until the cache or the log buffer is full.

use super::{
    DatabaseIndex,
    core::{OpenDatabase, SharedGroup},
    database::write_header,
    instance::Instance,
    opening::log_time,
    table::BulkLoadState,
};
use crate::{
    error::{Error, Result},
    format::header::{DatabaseHeader, LogPosition, SnapshotMark},
    planted::{self, FreezeBug},
};
use std::{rc::Rc, sync::Arc};
use world::{BoxedFuture, File, Moment, with_deadline};

/// A group that is frozen while this lives, at most until the deadline.
pub struct FrozenGroup {
    shared: Rc<SharedGroup>,
    number: u64,
    generation: u32,
    deadline: Moment,
}

impl FrozenGroup {
    /// The log generation that began with the freeze, and holds no record while it is held.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// When the group thaws, whatever happens.
    pub fn deadline(&self) -> Moment {
        self.deadline
    }

    pub fn is_held(&self) -> bool {
        self.shared.freeze.is_held_by(self.number)
    }

    /// Thaws the group. True if it was frozen until now: what was cut before is exactly what was answered.
    pub fn thaw(self) -> bool {
        self.shared.thaw(self.number) || planted::is(FreezeBug::EveryThawFirst)
    }
}

impl Drop for FrozenGroup {
    fn drop(&mut self) {
        self.shared.thaw(self.number);
    }
}

/// Freezes a group, for those who do not own its instance.
#[derive(Clone)]
pub struct GroupFreezer {
    shared: Rc<SharedGroup>,
}

impl GroupFreezer {
    /// Does, under load, what a freeze would otherwise wait for: a checkpoint, and the next log file.
    pub async fn prepare(&self) -> Result<()> {
        prepare(&self.shared).await
    }

    /// As [`Instance::release_logs`].
    pub async fn release_logs(&self, generation: u32) -> Result<u32> {
        self.shared.release_logs(generation).await
    }

    /// As [`Instance::freeze`], without preparing it.
    pub fn freeze(&self, deadline: Moment) -> BoxedFuture<'_, Result<FrozenGroup>> {
        Box::pin(freeze(&self.shared, deadline))
    }
}

impl Instance {
    /// Freezes the group until the result is dropped, at most until `deadline`. The load goes on while the
    /// freeze is prepared; commits wait for the last part of it.
    ///
    /// # Errors
    /// [`Error::NotFrozen`] if the deadline passes before, another freeze is held, or a bulk load is in
    /// progress; the group works on. An error of the storage stops the group, as always.
    pub fn freeze(&self, deadline: Moment) -> BoxedFuture<'_, Result<FrozenGroup>> {
        let shared = self.shared();
        Box::pin(async move {
            let until = shared.world.sleep_until(deadline);
            with_deadline(until, prepare(shared)).await.ok_or(TOO_LATE)??;
            freeze(shared, deadline).await
        })
    }

    /// A handle by which others freeze the group.
    pub fn freezer(&self) -> GroupFreezer {
        GroupFreezer { shared: Rc::clone(self.shared()) }
    }
}

const TOO_LATE: Error = Error::NotFrozen("what was under way did not end by the deadline");

async fn freeze(shared: &Rc<SharedGroup>, deadline: Moment) -> Result<FrozenGroup> {
    let work = async {
        let number = shared.freeze.hold_writes().ok_or(Error::NotFrozen("it is frozen already"))?;
        let attempt = FreezeAttempt { shared, number, is_frozen: false };
        let generation = hold(shared, number).await?;
        Ok(attempt.succeed(generation, deadline))
    };
    let frozen = with_deadline(shared.world.sleep_until(deadline), work).await;
    frozen.unwrap_or(Err(TOO_LATE))
}

/// A freeze that is given up when this is dropped.
struct FreezeAttempt<'a> {
    shared: &'a Rc<SharedGroup>,
    number: u64,
    is_frozen: bool,
}

impl FreezeAttempt<'_> {
    fn succeed(mut self, generation: u32, deadline: Moment) -> FrozenGroup {
        self.is_frozen = true;
        let (shared, number) = (Rc::clone(self.shared), self.number);
        if !planted::is(FreezeBug::DeadlineForgotten) {
            let task = thaw_at(Rc::clone(&shared), number, deadline);
            drop(shared.world.spawn("thaw at the deadline", task));
        }
        FrozenGroup { shared, number, generation, deadline }
    }
}

impl Drop for FreezeAttempt<'_> {
    fn drop(&mut self) {
        if !self.is_frozen && !planted::is(FreezeBug::HeldAfterGivingUp) {
            self.shared.thaw(self.number);
        }
    }
}

/// Ends a freeze at its deadline, unless something else does before.
async fn thaw_at(shared: Rc<SharedGroup>, number: u64, deadline: Moment) {
    let until = shared.world.sleep_until(deadline);
    if with_deadline(until, shared.freeze.until_open(number)).await.is_none() {
        shared.thaw(number);
    }
}

async fn prepare(shared: &Rc<SharedGroup>) -> Result<()> {
    shared.log().make_stable(shared.log().end()).await?;
    shared.advance_checkpoint().await?;
    shared.log().prepare_generation().await;
    Ok(())
}

/// Brings the group to rest; returns the log generation that begins with the freeze. Writes are held already.
async fn hold(shared: &Rc<SharedGroup>, number: u64) -> Result<u32> {
    if is_loading(shared) {
        return Err(Error::NotFrozen("a bulk load is in progress"));
    }
    while shared.page_writes.begun() > 0 && !planted::is(FreezeBug::PageWritesNotAwaited) {
        shared.any_write_ended().await;
        shared.core.borrow().check_running()?;
    }
    shared.wait_at_gate(|gate| gate.resizes() == 0).await;
    let no_checkpoint = Arc::clone(&shared.checkpointing).lock_owned().await;
    shared.core.borrow().check_running()?;

    // From here to the next await nothing else runs: what is logged by now is in the cut, and nothing else.
    shared.freeze.hold_commits();
    let position = shared.log().end();
    let start = shared.log().hold_at_new_generation();
    let headers = marked_headers(shared, position);
    // In a task of its own: a header write that was begun must end before a checkpoint writes the same header.
    let marking = Rc::clone(shared);
    let marking = shared.world.spawn("headers of a freeze", async move {
        let marked = write_headers(&marking, headers).await;
        (no_checkpoint, marked)
    });
    if planted::is(FreezeBug::LogNotHeld) {
        shared.log().release();
    }
    if !planted::is(FreezeBug::FrozenBeforeStable) {
        shared.log().make_stable(start).await?;
        shared.wait_at_gate(|gate| gate.commits() == 0).await;
    }
    let (no_checkpoint, marked) = marking.await;
    marked?;
    shared.core.borrow().check_running()?;
    assert!(shared.freeze.is_held_by(number), "only its deadline ends a freeze, and drops this");
    shared.freeze.keep(no_checkpoint);
    Ok(start.generation)
}

/// A bulk load writes behind the end of its database on its own account.
fn is_loading(shared: &SharedGroup) -> bool {
    let loading = |database: &OpenDatabase| {
        database.tables.values().any(|table| table.loading().get() != BulkLoadState::None)
    };
    shared.core.borrow().databases.iter().any(loading)
}

/// The headers of all databases, marked. The next checkpoint writes them without the mark.
fn marked_headers(shared: &SharedGroup, position: LogPosition) -> Vec<(Rc<dyn File>, DatabaseHeader)> {
    let checkpoint = shared.checkpoint_written.take().map_or(position, |(checkpoint, _)| checkpoint);
    let time = log_time(&shared.world);
    let mark = SnapshotMark {
        position,
        time,
        generation_min: checkpoint.generation,
        generation_max: position.generation,
    };
    let mut core = shared.core.borrow_mut();
    let marked = (0..core.databases.len()).map(|index| {
        let index = DatabaseIndex(index as u8);
        let mut header = core.running_header(index, checkpoint, position);
        header.snapshot = Some(mark).filter(|_| !planted::is(FreezeBug::HeadersUnmarked));
        core.database(index).header.snapshot = header.snapshot;
        (Rc::clone(&core.database(index).file), header)
    });
    marked.collect()
}

/// Writes the headers, those of all databases at the same time.
async fn write_headers(shared: &Rc<SharedGroup>, headers: Vec<(Rc<dyn File>, DatabaseHeader)>) -> Result<()> {
    let writes: Vec<_> = headers
        .into_iter()
        .map(|(file, header)| {
            let task = async move { write_header(&file, &header).await.map(|()| header.dbtime) };
            shared.world.spawn("header of a freeze", task)
        })
        .collect();
    for (index, write) in writes.into_iter().enumerate() {
        match write.await {
            Ok(dbtime) => {
                shared.core.borrow_mut().database(DatabaseIndex(index as u8)).header_time_stable = dbtime;
            }
            Err(error) => {
                shared.fail(&error);
                return Err(error);
            }
        }
    }
    Ok(())
}

//! Prepares the next generation's file while the current one fills.
//!
//! A released generation is reused as it is: its extents are allocated and written, its segments stale.
//! Otherwise a new file is filled with zeros in chunks of at most 512 KiB, so that its extents are written
//! and later log writes change data only. Preparation is throttled by the fill of the current file: of n
//! chunks, chunk i (from 0) is written when (i+1)/(n+1) of the current file is filled. So the file is ready
//! in time, and the zeros reach the log device spread out.

use super::{
    LogError,
    handle::{Shared, is_not_found},
};
use std::{cell::Cell, rc::Rc, sync::Arc};
use tokio::sync::Notify;
use world::{Buffer, ByteCount, ByteOffset, File, IoResult, JoinHandle, Stability};

/// Zeros in one write.
const CHUNK: ByteCount = ByteCount::kib(512);

/// A file being prepared under the temporary name.
pub(super) struct NextFile {
    task: JoinHandle<IoResult<Option<Rc<dyn File>>>>,
    limit: Rc<PreparationLimit>,
}

/// Limits preparation to the fill of the current file.
pub(super) struct PreparationLimit {
    /// Bytes written to the current file.
    fill: Cell<ByteCount>,
    hurry: Cell<bool>,
    stop: Cell<bool>,
    changed: Notify,
    /// Prepared, failed or stopped.
    ended: Cell<bool>,
    has_ended: Notify,
}

impl NextFile {
    /// Starts preparing. Replaces any file of the temporary name.
    pub(super) fn start(shared: &Rc<Shared>) -> Self {
        let limit = Rc::new(PreparationLimit {
            fill: Cell::new(ByteCount(0)),
            hurry: Cell::new(false),
            stop: Cell::new(false),
            changed: Notify::new(),
            ended: Cell::new(false),
            has_ended: Notify::new(),
        });
        shared.state.borrow_mut().preparation = Some(Rc::clone(&limit));
        let (shared, task) = (Rc::clone(shared), Rc::clone(&limit));
        let task = shared.world.clone().spawn("log preparation", async move {
            let file = prepare(shared, Rc::clone(&task)).await;
            task.ended.set(true);
            task.has_ended.notify_waiters();
            file
        });
        Self { task, limit }
    }

    /// Updates the number of bytes written to the current file.
    pub(super) fn set_fill(&self, fill: ByteCount) {
        self.limit.fill.set(fill);
        self.limit.changed.notify_one();
    }

    /// Finishes the preparation without delay and returns the file.
    pub(super) async fn finish(self) -> Result<Rc<dyn File>, LogError> {
        self.limit.hurry();
        let file = self.task.await?;
        Ok(file.expect("only a stopped preparation returns no file"))
    }

    /// Stops the preparation.
    pub(super) async fn stop(self) {
        self.limit.stop.set(true);
        self.limit.changed.notify_one();
        // Its result does not matter: the file is not used.
        let _ = self.task.await;
    }
}

impl PreparationLimit {
    fn hurry(&self) {
        self.hurry.set(true);
        self.changed.notify_one();
    }

    /// Finishes the preparation without delay; its result remains for the writer.
    pub(super) async fn complete(&self) {
        self.hurry();
        while !self.ended.get() {
            self.has_ended.notified().await;
        }
    }

    /// Waits until chunk `index` of `chunks` is due; false if preparation was stopped.
    async fn wait_for(&self, index: u64, chunks: u64, file_bytes: ByteCount) -> bool {
        loop {
            if self.stop.get() {
                return false;
            }
            if self.hurry.get() || self.fill.get().0 * (chunks + 1) >= file_bytes.0 * (index + 1) {
                return true;
            }
            self.changed.notified().await;
        }
    }
}

async fn prepare(shared: Rc<Shared>, limit: Rc<PreparationLimit>) -> IoResult<Option<Rc<dyn File>>> {
    let file_bytes = shared.config.file_bytes;
    let chunks = file_bytes.0.div_ceil(CHUNK.0);
    if !limit.wait_for(0, chunks, file_bytes).await {
        return Ok(None);
    }
    let name = shared.names.temporary();
    match shared.directory.remove(&name).await {
        Err(error) if !is_not_found(&error) => return Err(error),
        _ => {}
    }
    if let Some(file) = recycle(&shared, &name).await? {
        return Ok(Some(file));
    }

    let file = shared.directory.create(&name, file_bytes).await?;
    let zeros = Arc::new(Buffer::zeroed(CHUNK.0.min(file_bytes.0) as usize));
    for index in 0..chunks {
        if !limit.wait_for(index, chunks, file_bytes).await {
            return Ok(None);
        }
        let at = index * CHUNK.0;
        let length = CHUNK.0.min(file_bytes.0 - at) as usize;
        let chunk = if length == zeros.len() { Arc::clone(&zeros) } else { Arc::new(Buffer::zeroed(length)) };
        file.write(ByteOffset(at), vec![chunk], Stability::Volatile).await?;
    }
    file.flush().await?;
    // Stable before anything relies on the name: if the creation were lost, the name could refer to an older
    // file.
    shared.directory.sync().await?;
    Ok(Some(file))
}

/// Reuses the spare generation's file under the temporary name, if it has the right size.
async fn recycle(shared: &Shared, name: &str) -> IoResult<Option<Rc<dyn File>>> {
    let spare = shared.state.borrow_mut().spare.take();
    let Some(generation) = spare else { return Ok(None) };
    let archived = shared.names.archived(generation);
    let file = shared.directory.open(&archived).await?;
    if file.geometry().size != shared.config.file_bytes {
        shared.directory.remove(&archived).await?;
        return Ok(None);
    }
    shared.directory.rename(&archived, name).await?;
    // Stable before its header changes: an archive name must never refer to another generation.
    shared.directory.sync().await?;
    shared.state.borrow_mut().statistics.recycled += 1;
    Ok(Some(file))
}

//! Log writes that are acknowledged before they are done: the engine takes its log for stable too early.
//!
//! Only the engine is deceived: code that records a guarantee to a user waits for [`LateLog::flush`] first.
//! The effect that remains is the engine's own: it writes pages before their log. Without that canary there
//! are no such writes, and no wait.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{Buffer, ByteOffset, File, IoError, IoResult, JoinHandle, Stability, World};

/// Delay of a write.
const DELAY: Duration = Duration::from_millis(30);
/// Interval of polls for completed writes.
const POLL: Duration = Duration::from_millis(1);

/// The delayed writes of an incarnation.
pub struct LateLog {
    world: World,
    /// The last of them; each waits for the one before.
    last: RefCell<Option<JoinHandle<()>>>,
    begun: Cell<u64>,
    ended: Cell<u64>,
    failed: RefCell<Option<IoError>>,
}

impl LateLog {
    pub fn new(world: &World) -> Rc<Self> {
        Rc::new(Self {
            world: world.clone(),
            last: RefCell::default(),
            begun: Cell::default(),
            ended: Cell::default(),
            failed: RefCell::default(),
        })
    }

    /// Acknowledges at once, with the failure of an earlier write if there was one, and writes later.
    pub fn write(
        self: &Rc<Self>,
        file: Rc<dyn File>,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> IoResult<()> {
        self.outcome()?;
        let (before, late) = (self.last.take(), Rc::clone(self));
        self.begun.set(self.begun.get() + 1);
        let task = self.world.spawn("late log write", async move {
            if let Some(before) = before {
                before.await;
            }
            late.world.sleep(DELAY).await;
            if let Err(error) = file.write(at, from, stability).await {
                late.failed.borrow_mut().get_or_insert(error);
            }
            late.ended.set(late.ended.get() + 1);
        });
        self.last.replace(Some(task));
        Ok(())
    }

    /// Waits until all delayed writes are as stable as they were acknowledged to be.
    pub async fn flush(&self) -> IoResult<()> {
        let begun = self.begun.get();
        while self.ended.get() < begun {
            self.world.sleep(POLL).await;
        }
        self.outcome()
    }

    fn outcome(&self) -> IoResult<()> {
        self.failed.borrow().clone().map_or(Ok(()), Err)
    }
}

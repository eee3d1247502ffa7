//! Log writes that are answered before they are done: the engine takes its log for stable too early.
//!
//! Only the engine is deceived: whoever notes that a user may rely on something waits for [`LateLog::settle`]
//! first. What remains is what the engine does by itself: it writes pages before their log. Without that canary
//! there are no such writes, and nobody waits.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{Buffer, ByteOffset, File, IoError, IoResult, JoinHandle, Stability, World};

/// How late a write is.
const DELAY: Duration = Duration::from_millis(30);
/// How often it is looked whether writes are done.
const POLL: Duration = Duration::from_millis(1);

/// The late writes of an incarnation.
pub struct LateLog {
    world: World,
    /// The last of them; each waits for the one before.
    last: RefCell<Option<JoinHandle<()>>>,
    begun: Cell<u64>,
    ended: Cell<u64>,
    failed: RefCell<Option<IoError>>,
}

impl LateLog {
    /// None so far.
    pub fn new(world: &World) -> Rc<Self> {
        Rc::new(Self {
            world: world.clone(),
            last: RefCell::default(),
            begun: Cell::default(),
            ended: Cell::default(),
            failed: RefCell::default(),
        })
    }

    /// Answers at once, with the failure of an earlier write if there was one, and writes later.
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

    /// Waits until all that was written so far is as stable as it was said to be.
    pub async fn settle(&self) -> IoResult<()> {
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

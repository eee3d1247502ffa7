//! Exact space of a served pool's volumes: counted on request, and kept with its time.
//!
//! Invariants:
//!
//! 1. An order begins a count, and does not wait for it: changes have their orders meanwhile.
//! 2. One volume is counted at a time. Who asks for one that is waiting or being counted gets the same answer.
//! 3. An answer is given again for as long as its caller allows; the answers of `ANSWERS_MAX` volumes are kept.

use array::{
    error::Error,
    format::VolumeId,
    pool::{Pool, VolumeSpace},
};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};
use tokio::sync::{Mutex, oneshot};
use world::{Moment, WallTime, World};

/// Most volumes of which the answer is kept: it has a row for each snapshot.
const ANSWERS_MAX: usize = 16;

/// The space of a volume at one moment.
#[derive(Clone, Debug)]
pub struct CountedSpace {
    /// Begin of the count: what it says is not older.
    pub as_of: WallTime,
    begun: Moment,
    pub space: VolumeSpace,
}

/// The reason for which there is no count.
#[derive(Clone, Debug)]
pub enum CountFailure {
    /// There is no such volume any more.
    Gone,
    /// A part of the map cannot be read, or the pool has stopped: in words.
    Failed(String),
}

/// The answer to a request.
pub type CountAnswer = Result<Arc<CountedSpace>, CountFailure>;

/// Counts the space of one pool's volumes.
pub struct SpaceCounter {
    world: World,
    pool: Rc<Pool>,
    answers: RefCell<BTreeMap<VolumeId, Arc<CountedSpace>>>,
    /// Those who wait, by volume; a volume that has an entry is waiting or being counted.
    waiting: RefCell<BTreeMap<VolumeId, Vec<oneshot::Sender<CountAnswer>>>>,
    one_at_a_time: Mutex<()>,
}

impl SpaceCounter {
    pub(crate) fn new(world: &World, pool: &Rc<Pool>) -> Rc<Self> {
        Rc::new(Self {
            world: world.clone(),
            pool: Rc::clone(pool),
            answers: RefCell::default(),
            waiting: RefCell::default(),
            one_at_a_time: Mutex::default(),
        })
    }

    /// Begins a count, unless there is an answer that is no older than `age_max`.
    pub fn begin(self: &Rc<Self>, volume: VolumeId, age_max: Duration) -> oneshot::Receiver<CountAnswer> {
        let (tell, answer) = oneshot::channel();
        let known = self.answers.borrow().get(&volume).cloned();
        if let Some(known) = known.filter(|known| self.world.now().since(known.begun) < age_max) {
            // The caller may be gone.
            let _ = tell.send(Ok(known));
            return answer;
        }
        let mut waiting = self.waiting.borrow_mut();
        let callers = waiting.entry(volume).or_default();
        callers.push(tell);
        if callers.len() == 1 {
            let counter = Rc::clone(self);
            self.world.spawn("exact space", async move { counter.count(volume).await });
        }
        answer
    }

    async fn count(&self, volume: VolumeId) {
        let _one_at_a_time = self.one_at_a_time.lock().await;
        let (as_of, begun) = (self.world.wall(), self.world.now());
        let answer = match self.pool.exact_space(volume).await {
            Ok(space) => {
                let counted = Arc::new(CountedSpace { as_of, begun, space });
                self.keep(volume, &counted);
                Ok(counted)
            }
            Err(Error::NoVolume(_)) => Err(CountFailure::Gone),
            Err(error) => Err(CountFailure::Failed(error.to_string())),
        };
        for caller in self.waiting.borrow_mut().remove(&volume).unwrap_or_default() {
            let _ = caller.send(answer.clone());
        }
    }

    fn keep(&self, volume: VolumeId, counted: &Arc<CountedSpace>) {
        let mut answers = self.answers.borrow_mut();
        answers.insert(volume, Arc::clone(counted));
        if answers.len() > ANSWERS_MAX
            && let Some(oldest) = answers.iter().min_by_key(|(_, answer)| answer.begun).map(|(id, _)| *id)
        {
            answers.remove(&oldest);
        }
    }
}

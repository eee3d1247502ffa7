//! Threads for long work on sets, beside work that must not wait: of a server, and of an agent.

use crate::{console::Console, server::place::ServerPlace, verify::Watching};
use report::Refusal;
use std::{
    path::Path,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use world::{
    LocalFuture, World,
    real::{RealOptions, ThreadHandle, spawn_thread},
};

/// Interval of looks at what is due; the server's view of a set is a minute old at most.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Interval of looks whether the program ends.
const END_EVERY: Duration = Duration::from_millis(100);

/// The order to threads to end, because the program does.
#[derive(Clone, Default)]
pub struct WorkerEnd(Arc<AtomicBool>);

impl WorkerEnd {
    pub fn order(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn is_ordered(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub fn watching(&self) -> Watching {
        let end = self.clone();
        Watching::Thread(Rc::new(move || end.is_ordered()))
    }

    /// Returns once it is ordered.
    pub async fn ordered(&self, world: &World) {
        while !self.is_ordered() {
            world.sleep(END_EVERY).await;
        }
    }

    /// Does what is due, one thing after the other, until the end is ordered. `work` is true if something was due. What it
    /// cannot do twice in a row is said, once: a server that starts has no sets for a moment.
    pub async fn work_until(
        &self,
        world: &World,
        console: &Console,
        what: &str,
        mut work: impl AsyncFnMut() -> Result<bool, Refusal>,
    ) {
        let (mut seen, mut said) = (String::new(), String::new());
        while !self.is_ordered() {
            let next = match work().await {
                Ok(was_due) => {
                    seen.clear();
                    said.clear();
                    if was_due { Duration::ZERO } else { LOOK_EVERY }
                }
                Err(refusal) => {
                    // A server that ends does not answer.
                    let problem = refusal.to_string();
                    if !self.is_ordered() && seen == problem && said != problem {
                        console.warn(&format!("{what}: {problem}"));
                        said.clone_from(&problem);
                    }
                    seen = problem;
                    LOOK_EVERY
                }
            };
            let until = world.now() + next;
            while !self.is_ordered() && world.now() < until {
                world.sleep(END_EVERY).await;
            }
        }
    }
}

/// A thread of a server.
pub struct ServerWorker {
    end: WorkerEnd,
    thread: ThreadHandle<()>,
}

impl ServerWorker {
    /// Starts one for the server whose state folder this is.
    ///
    /// # Errors
    ///
    /// The system has no thread left.
    pub fn start(
        name: &'static str,
        state: &Path,
        work: impl FnOnce(World, ServerPlace, WorkerEnd) -> LocalFuture<()> + Send + 'static,
    ) -> Result<Self, Refusal> {
        let end = WorkerEnd::default();
        let place = ServerPlace { state: Some(state.to_owned()), ..Default::default() };
        let ordered = end.clone();
        let thread =
            spawn_thread(name, 0, RealOptions::default(), move |world: World| work(world, place, ordered))
                .map_err(|error| Refusal::new(format!("no thread {name}: {error}"), ""))?;
        Ok(Self { end, thread })
    }

    pub fn tell_to_end(&self) {
        self.end.order();
    }

    /// Ends it; what is under way is begun again after the next start.
    pub async fn stop(self) {
        self.end.order();
        self.thread.join().await;
    }
}

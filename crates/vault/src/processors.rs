//! Processors for arithmetic: helper threads, or in simulations the thread itself.

use std::rc::Rc;
use world::real::Workers;

/// Cheap to clone.
#[derive(Clone)]
pub enum Processors {
    /// The calling thread.
    Here,
    Threads(Rc<Workers>),
}

impl Processors {
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        match self {
            Self::Here => work(),
            Self::Threads(workers) => workers.run(work).await,
        }
    }
}

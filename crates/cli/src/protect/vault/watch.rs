//! Progress of work on a vault, and its early end by Ctrl-C.

use crate::{console::Console, progress::ProgressView};
use runs::observer::{ProgressDisplay, ProgressStatus};
use std::{cell::Cell, rc::Rc, time::Duration};
use world::{Job, JoinHandle, World, real::signals::interrupted};

/// Interval of progress updates.
const GLANCE: Duration = Duration::from_millis(200);

pub struct VaultWatch {
    pub job: Rc<Job>,
    is_over: Rc<Cell<bool>>,
    drawing: JoinHandle<()>,
}

impl VaultWatch {
    /// Shows the progress of `job` under the name `phase`; Ctrl-C cancels it.
    pub fn begin(world: &World, console: &Console, phase: &'static str) -> Self {
        let job = Rc::new(Job::under_way(world));
        let (ended, said, cancelled) = (interrupted(), console.clone(), Rc::clone(&job));
        world.spawn("interrupted", async move {
            ended.await;
            said.say_progress("ending; Ctrl-C again ends it at once");
            cancelled.cancel();
        });
        let is_over = Rc::new(Cell::new(false));
        let (over, looked, shown) = (Rc::clone(&is_over), world.clone(), Rc::clone(&job));
        let (began, mut view) = (world.now(), ProgressView::new(console));
        let drawing = world.spawn("progress", async move {
            while !over.get() {
                let elapsed = looked.now().since(began);
                let progress = shown.progress();
                let status = (progress.total > 0).then(|| ProgressStatus::of_job(phase, &progress, elapsed));
                view.tell(elapsed, status.as_ref(), &[]);
                looked.sleep(GLANCE).await;
            }
            view.tell(looked.now().since(began), None, &[]);
        });
        Self { job, is_over, drawing }
    }

    pub async fn end(self) {
        self.is_over.set(true);
        self.drawing.await;
    }
}

//! Progress of work on a vault, and its early end by Ctrl-C.

use crate::{console::Console, progress::ProgressView};
use runs::observer::{ProgressDisplay, ProgressStatus};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};
use world::{Job, Moment, World, real::signals::interrupted};

/// Interval of progress updates.
const GLANCE: Duration = Duration::from_millis(200);

pub struct VaultWatch {
    pub job: Rc<Job>,
    world: World,
    began: Moment,
    is_over: Rc<Cell<bool>>,
    view: Rc<RefCell<ProgressView>>,
}

impl VaultWatch {
    /// Shows the progress of `job` under the name `phase`; Ctrl-C cancels it.
    pub fn begin(world: &World, console: &Console, phase: &'static str) -> Self {
        let watch = Self {
            job: Rc::new(Job::under_way(world)),
            world: world.clone(),
            began: world.now(),
            is_over: Rc::default(),
            view: Rc::new(RefCell::new(ProgressView::new(console))),
        };
        let (ended, said, cancelled) = (interrupted(), console.clone(), Rc::clone(&watch.job));
        world.spawn("interrupted", async move {
            ended.await;
            said.say_progress("ending; Ctrl-C again ends it at once");
            cancelled.cancel();
        });
        let (began, over, looked) = (watch.began, Rc::clone(&watch.is_over), world.clone());
        let (shown, view) = (Rc::clone(&watch.job), Rc::clone(&watch.view));
        world.spawn("progress", async move {
            while !over.get() {
                let elapsed = looked.now().since(began);
                let progress = shown.progress();
                let status = (progress.total > 0).then(|| ProgressStatus::of_job(phase, &progress, elapsed));
                view.borrow_mut().tell(elapsed, status.as_ref(), &[]);
                looked.sleep(GLANCE).await;
            }
        });
        watch
    }

    /// Removes the progress. It waits for no glance: a copy of little takes less.
    pub fn end(self) {
        self.is_over.set(true);
        self.view.borrow_mut().tell(self.world.now().since(self.began), None, &[]);
    }
}

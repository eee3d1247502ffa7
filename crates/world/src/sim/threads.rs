//! Simulated threads: tasks of one node. They share its clock and its fate.

use crate::{IoResult, LocalFuture, Spawn, ThreadEnd, ThreadMain, ThreadStarter, World, with_deadline};
use std::{cell::Cell, rc::Rc, time::Duration};
use tokio::sync::Notify;

/// Starts threads as tasks of a world. A panic ends the simulation, like any other panic.
pub struct SimThreads(pub World);

impl ThreadStarter for SimThreads {
    fn start(&self, _name: &str, main: ThreadMain) -> IoResult<ThreadEnd> {
        let life = Rc::new(ThreadLife::default());
        let within = Rc::clone(&life);
        let own = self.0.map_spawner(|spawner| Rc::new(ThreadSpawner { spawner, life: within }));
        let running = self.0.spawn("thread", async move {
            main(own).await;
            life.end();
        });
        Ok(Box::pin(async move {
            running.await;
            Ok(())
        }))
    }
}

/// The life of a simulated thread.
#[derive(Default)]
struct ThreadLife {
    is_over: Cell<bool>,
    over: Notify,
}

impl ThreadLife {
    fn end(&self) {
        self.is_over.set(true);
        self.over.notify_waiters();
    }

    async fn until_over(self: Rc<Self>) {
        let over = self.over.notified();
        if !self.is_over.get() {
            over.await;
        }
    }
}

/// Drops the tasks of a thread when its main function ends.
struct ThreadSpawner {
    spawner: Rc<dyn Spawn>,
    life: Rc<ThreadLife>,
}

impl Spawn for ThreadSpawner {
    fn spawn(&self, name: &'static str, task: LocalFuture<()>) {
        let over = Rc::clone(&self.life).until_over();
        self.spawner.spawn(name, Box::pin(async move { _ = with_deadline(over, task).await }));
    }

    fn yield_now(&self) -> LocalFuture<()> {
        self.spawner.yield_now()
    }

    fn work(&self, cost: Duration) -> LocalFuture<()> {
        self.spawner.work(cost)
    }
}

//! A server under a service manager: it says when it serves, reloads and stops, and that its threads turn.
//!
//! The watchdog is for threads, and not for drives: a restart does not bring a drive back, and ends the pools that are well. The
//! messages stop if this thread, the portal's or a pool's does not turn; a pool that waits for its drives turns.

use crate::console::Console;
use control::{
    heartbeats::{BeatingThreads, Heartbeats, StallDetector},
    notice::NoticeSender,
    site::SiteServer,
};
use std::{rc::Rc, time::Duration};
use world::{
    ThreadStarter, World,
    real::{
        RealThreads,
        service_manager::{ServiceManager, ServiceState},
    },
};

/// The watchdog gets its message four times in its time.
const TELLS: u32 = 4;
/// Threads beat at least as often.
const BEAT_MAX: Duration = Duration::from_secs(1);
/// Times that a message is sent to a manager that is busy, and the time between them: 1 s together.
const TRIES: usize = 20;
const TRY_EVERY: Duration = Duration::from_millis(50);

/// The service manager of this process, if it has one, and the beats of the server's threads.
pub(super) struct Supervision {
    manager: Option<Rc<ServiceManager>>,
    heartbeats: Heartbeats,
}

impl Supervision {
    /// Warns of a manager that cannot be reached.
    pub fn begin(console: &Console) -> Self {
        let manager = ServiceManager::from_environment().unwrap_or_else(|error| {
            console.warn(&format!("the service manager learns nothing of this server: {error}"));
            None
        });
        Self { manager: manager.map(Rc::new), heartbeats: Heartbeats::default() }
    }

    /// Starts the threads of the portal and the pools, which beat if a watchdog waits for them.
    pub fn threads(&self, starter: RealThreads) -> Rc<dyn ThreadStarter> {
        let Some(span) = self.watchdog() else { return Rc::new(starter) };
        let every = (span / (2 * TELLS)).min(BEAT_MAX);
        let heartbeats = self.heartbeats.clone();
        #[cfg(debug_assertions)]
        let starter = super::planted_hang::HeldThreads(starter);
        Rc::new(BeatingThreads { starter, heartbeats, every })
    }

    fn watchdog(&self) -> Option<Duration> {
        self.manager.as_ref()?.watchdog()
    }

    /// Tells the watchdog from now on that all threads turn, while they do.
    pub fn watch(&self, world: &World, notices: &NoticeSender) {
        let (Some(manager), Some(span)) = (self.manager.clone(), self.watchdog()) else { return };
        let mut detector = StallDetector::new(self.heartbeats.clone());
        let (timer, notices) = (world.clone(), notices.clone());
        world.spawn("watchdog", async move {
            let mut was_stalled = Vec::new();
            loop {
                let stalled = detector.stalled(timer.now(), span / 2);
                if stalled.is_empty() {
                    // The next one follows soon.
                    let _ = manager.send(&[ServiceState::Watchdog]);
                } else if stalled != was_stalled {
                    let names = stalled.join(", ");
                    let line = format!(
                        "no step of the thread {names} has ended for {:.0?}: the watchdog is not told any more",
                        span / 2
                    );
                    let _ = manager.send(&[ServiceState::Status(&line)]);
                    notices.warn(line);
                }
                was_stalled = stalled;
                timer.sleep(span / TELLS).await;
            }
        });
    }

    /// The server serves: after its start, or a reload.
    pub async fn ready(&self, world: &World, server: &SiteServer) {
        self.tell(world, &[ServiceState::Ready, ServiceState::Status(&status_of(server))]).await;
    }

    /// The site has changed.
    pub async fn changed(&self, world: &World, server: &SiteServer) {
        self.tell(world, &[ServiceState::Status(&status_of(server))]).await;
    }

    pub async fn starting(&self, world: &World) {
        self.tell(world, &[ServiceState::Status("opening pools")]).await;
    }

    pub async fn reloading(&self, world: &World) {
        self.tell(world, &[ServiceState::Reloading, ServiceState::Status("applying the site file")]).await;
    }

    pub async fn stopping(&self, world: &World) {
        self.tell(world, &[ServiceState::Stopping, ServiceState::Status("closing pools")]).await;
    }

    async fn tell(&self, world: &World, states: &[ServiceState<'_>]) {
        let Some(manager) = &self.manager else { return };
        for _ in 0..TRIES {
            if manager.send(states).is_ok() {
                return;
            }
            world.sleep(TRY_EVERY).await;
        }
    }
}

/// `serving 2 pools; stopped: logs`.
fn status_of(server: &SiteServer) -> String {
    let count = server.daemon().pools().len();
    let mut text = format!("serving {count} pool{}", if count == 1 { "" } else { "s" });
    let stopped: Vec<&str> = server.stopped().keys().map(String::as_str).collect();
    if !stopped.is_empty() {
        text += &format!("; stopped: {}", stopped.join(", "));
    }
    text
}

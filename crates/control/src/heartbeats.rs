//! Heartbeats of the daemon's threads, for a watchdog: a thread whose executor turns beats, whatever its drives do.
//!
//! Invariants:
//!
//! 1. A thread beats from a task of its own executor: it beats as long as the executor runs tasks, and waits for nothing else.
//! 2. A thread that has ended, by a panic too, is not stalled: its pool is stopped, and the others go on.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use world::{IoResult, Moment, ThreadEnd, ThreadMain, ThreadStarter, World};

/// The beats of all threads that were started with [`BeatingThreads`]; clones are one list.
#[derive(Clone, Debug, Default)]
pub struct Heartbeats(Arc<Mutex<HeartbeatList>>);

#[derive(Debug, Default)]
struct HeartbeatList {
    threads_started: u64,
    threads: BTreeMap<u64, ThreadBeats>,
}

#[derive(Debug)]
struct ThreadBeats {
    thread: String,
    count: Arc<AtomicU64>,
}

impl Heartbeats {
    /// A thread that is about to start.
    fn add(&self, thread: &str) -> Heartbeat {
        let count = Arc::new(AtomicU64::new(0));
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.threads_started += 1;
        let key = list.threads_started;
        list.threads.insert(key, ThreadBeats { thread: thread.to_owned(), count: Arc::clone(&count) });
        Heartbeat { list: self.clone(), key, count }
    }

    /// Number of each thread, its name, and how often it has beaten.
    fn counts(&self) -> Vec<(u64, String, u64)> {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = |(key, beats): (&u64, &ThreadBeats)| {
            (*key, beats.thread.clone(), beats.count.load(Ordering::Relaxed))
        };
        list.threads.iter().map(count).collect()
    }
}

/// The beats of one thread, which are in the list until this is dropped.
struct Heartbeat {
    list: Heartbeats,
    key: u64,
    count: Arc<AtomicU64>,
}

impl Heartbeat {
    async fn run(self, world: World, every: Duration) {
        loop {
            self.count.fetch_add(1, Ordering::Relaxed);
            world.sleep(every).await;
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.list.0.lock().unwrap_or_else(PoisonError::into_inner).threads.remove(&self.key);
    }
}

/// Starts threads that beat.
pub struct BeatingThreads<S> {
    pub starter: S,
    pub heartbeats: Heartbeats,
    /// Time between two beats.
    pub every: Duration,
}

impl<S: ThreadStarter> ThreadStarter for BeatingThreads<S> {
    fn start(&self, name: &str, main: ThreadMain) -> IoResult<ThreadEnd> {
        let (heartbeat, every) = (self.heartbeats.add(name), self.every);
        let beating = move |world: World| {
            world.spawn("heartbeat", heartbeat.run(world.clone(), every));
            main(world)
        };
        self.starter.start(name, Box::new(beating))
    }
}

/// Finds the threads that do not beat any more.
pub struct StallDetector {
    heartbeats: Heartbeats,
    /// Beats of each thread, and when they were first as many.
    seen: BTreeMap<u64, (u64, Moment)>,
}

impl StallDetector {
    pub fn new(heartbeats: Heartbeats) -> Self {
        Self { heartbeats, seen: BTreeMap::new() }
    }

    /// Names of the threads that have not beaten for `limit` at `now`. It knows what it saw in earlier calls alone.
    pub fn stalled(&mut self, now: Moment, limit: Duration) -> Vec<String> {
        let before = std::mem::take(&mut self.seen);
        let mut stalled = Vec::new();
        for (key, thread, count) in self.heartbeats.counts() {
            let since = match before.get(&key) {
                Some(&(last, since)) if last == count => since,
                _ => now,
            };
            self.seen.insert(key, (count, since));
            if now.since(since) >= limit {
                stalled.push(thread);
            }
        }
        stalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc, thread};
    use world::real::{self, RealOptions, RealThreads};

    const EVERY: Duration = Duration::from_millis(5);
    const LIMIT: Duration = Duration::from_millis(200);

    fn starter(heartbeats: &Heartbeats) -> BeatingThreads<RealThreads> {
        BeatingThreads { starter: RealThreads::default(), heartbeats: heartbeats.clone(), every: EVERY }
    }

    /// Looks until the stalled threads are those.
    async fn until_stalled(world: &World, detector: &mut StallDetector, expected: &[&str]) {
        for _ in 0..2_000 {
            if detector.stalled(world.now(), LIMIT) == expected {
                return;
            }
            world.sleep(EVERY).await;
        }
        panic!("never just {expected:?}: {:?}", detector.stalled(world.now(), LIMIT));
    }

    #[test]
    fn a_thread_that_is_held_is_stalled_and_one_that_waits_is_not() {
        real::run(0, RealOptions::default(), async |world: World| {
            let heartbeats = Heartbeats::default();
            let threads = starter(&heartbeats);
            let (release, held) = mpsc::channel::<()>();
            // Its drives do not answer.
            let waits = threads.start("waits", Box::new(|_| Box::pin(std::future::pending()))).unwrap();
            let holds = threads.start(
                "holds",
                Box::new(move |_| {
                    Box::pin(async move {
                        // Blocks the thread, and so the executor.
                        let _ = held.recv();
                    })
                }),
            );
            let mut detector = StallDetector::new(heartbeats.clone());
            assert!(detector.stalled(world.now(), LIMIT).is_empty(), "nothing was seen before");
            until_stalled(&world, &mut detector, &["holds"]).await;
            release.send(()).unwrap();
            holds.unwrap().await.unwrap();
            until_stalled(&world, &mut detector, &[]).await;
            let names: Vec<String> = heartbeats.counts().into_iter().map(|(_, name, _)| name).collect();
            assert_eq!(names, ["waits"], "one that has ended is forgotten");
            drop(waits);
        });
    }

    #[test]
    fn a_thread_that_panics_is_not_stalled() {
        real::run(0, RealOptions::default(), async |world: World| {
            let heartbeats = Heartbeats::default();
            let threads = starter(&heartbeats);
            let end = threads.start("ends", Box::new(|_| Box::pin(async { panic!("as wanted") }))).unwrap();
            assert!(end.await.is_err());
            // Tasks of the thread are dropped with it.
            while !heartbeats.counts().is_empty() {
                thread::yield_now();
            }
            assert!(StallDetector::new(heartbeats).stalled(world.now(), Duration::ZERO).is_empty());
        });
    }
}

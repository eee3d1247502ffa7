//! The world of the API's thread, in handlers whose futures must be able to move between threads, although these never do.

use fragile::Fragile;
use hyper::rt::{Sleep, Timer};
use serving::uuid::random_uuid;
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use world::{LocalFuture, Moment, WallTime, World, real::HostInstant};

/// A world that may be sent, and is used on its own thread alone: elsewhere its methods panic.
#[derive(Clone)]
pub(super) struct LocalWorld(Arc<Fragile<World>>);

/// A sleep of a [`LocalWorld`].
pub(super) struct LocalSleep(Fragile<LocalFuture<()>>);

impl LocalWorld {
    pub fn new(world: &World) -> Self {
        Self(Arc::new(Fragile::new(world.clone())))
    }

    pub fn sleep(&self, time: Duration) -> LocalSleep {
        let world = self.0.get().clone();
        LocalSleep(Fragile::new(Box::pin(async move { world.sleep(time).await })))
    }

    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + 'static) {
        // It goes on when its handle is dropped.
        self.0.get().spawn(name, task);
    }

    pub fn now(&self) -> Moment {
        self.0.get().now()
    }

    /// Seconds since 1970, UTC.
    pub fn unix_s(&self) -> i64 {
        self.0.get().wall().seconds
    }

    pub fn wall(&self) -> WallTime {
        self.0.get().wall()
    }

    pub fn random_uuid(&self) -> [u8; 16] {
        random_uuid(self.0.get())
    }

    /// Fills a buffer with bytes that nobody can guess.
    pub fn fill_secret(&self, bytes: &mut [u8]) {
        self.0.get().fill_secret(bytes);
    }
}

impl Future for LocalSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.get_mut().as_mut().poll(context)
    }
}

impl Sleep for LocalSleep {}

/// hyper's timer, for the time that a request's headers may take.
impl Timer for LocalWorld {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(LocalWorld::sleep(self, duration))
    }

    fn sleep_until(&self, deadline: HostInstant) -> Pin<Box<dyn Sleep>> {
        let left = deadline.saturating_duration_since(Timer::now(self));
        Box::pin(LocalWorld::sleep(self, left))
    }
}

//! A volume for hosts that another one can replace while they use it: the same volume in another pool.
//!
//! Invariants:
//!
//! 1. Each command runs on the volume that was there when it began, and the volume is replaced only while no command
//!    is under way. So what was answered is on the volume that was left, before the other takes its place.
//! 2. Commands that wait begin on the other volume, in the order in which they came.

use super::VolumeDevice;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};
use tokio::sync::Notify;
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, Extent, Geometry, IoResult, LocalFuture, Stability};

/// End of the name of a volume that is in another pool now. Nobody writes it, so that hosts whose volume could not be
/// switched get errors, and no answer for what would be lost.
pub const MOVED_END: &str = "~moved";

/// The device that hosts have, and the volume behind it.
#[derive(Clone)]
pub struct SwitchedVolume(Rc<Switch>);

struct Switch {
    volume: RefCell<VolumeDevice>,
    is_held: Cell<bool>,
    under_way: Cell<usize>,
    changed: Notify,
}

/// A command that is under way.
struct CommandUnderWay(Rc<Switch>);

/// Commands wait while this is there.
#[must_use]
pub(crate) struct HostHold(Rc<Switch>);

impl Drop for CommandUnderWay {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
        self.0.changed.notify_waiters();
    }
}

impl HostHold {
    /// Commands go on with another volume.
    pub fn go_on_with(self, volume: VolumeDevice) {
        assert_eq!(self.0.under_way.get(), 0, "commands are held");
        *self.0.volume.borrow_mut() = volume;
    }
}

impl Drop for HostHold {
    fn drop(&mut self) {
        self.0.is_held.set(false);
        self.0.changed.notify_waiters();
    }
}

impl SwitchedVolume {
    pub fn new(volume: VolumeDevice) -> Self {
        let (volume, changed) = (RefCell::new(volume), Notify::new());
        Self(Rc::new(Switch { volume, is_held: Cell::new(false), under_way: Cell::new(0), changed }))
    }

    /// The volume as it is now.
    pub fn volume(&self) -> VolumeDevice {
        self.0.volume.borrow().clone()
    }

    /// Keeps commands waiting from now on, and returns when none is under way.
    pub(crate) async fn hold(&self) -> HostHold {
        let was_held = self.0.is_held.replace(true);
        assert!(!was_held, "one at a time moves a volume");
        let hold = HostHold(Rc::clone(&self.0));
        self.wait_until(|switch| switch.under_way.get() == 0).await;
        hold
    }

    /// Lists extents, as [`Volume::extents`](super::Volume::extents).
    pub fn extents(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<Vec<Extent>>> {
        self.run(move |VolumeDevice(volume)| Box::pin(async move { volume.extents(at, length).await }))
    }

    fn run<T: 'static>(
        &self,
        command: impl FnOnce(VolumeDevice) -> LocalFuture<IoResult<T>> + 'static,
    ) -> LocalFuture<IoResult<T>> {
        let own = self.clone();
        Box::pin(async move {
            own.wait_until(|switch| !switch.is_held.get()).await;
            // Nothing awaits between the look and this.
            own.0.under_way.set(own.0.under_way.get() + 1);
            let _under_way = CommandUnderWay(Rc::clone(&own.0));
            let volume = own.volume();
            command(volume).await
        })
    }

    async fn wait_until(&self, is_so: impl Fn(&Switch) -> bool) {
        loop {
            let changed = self.0.changed.notified();
            if is_so(&self.0) {
                return;
            }
            changed.await;
        }
    }
}

impl BlockDevice for SwitchedVolume {
    fn geometry(&self) -> Geometry {
        self.volume().geometry()
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        self.run(move |volume| volume.read(at, into))
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        self.run(move |volume| volume.write(at, from, stability))
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        self.run(|volume| volume.flush())
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        self.run(move |volume| volume.discard(at, length))
    }
}

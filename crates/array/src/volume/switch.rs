//! A volume for hosts that another one can replace while they use it: the same volume in another pool.
//!
//! Invariants:
//!
//! 1. Each command runs on the volume that was there when it began, and the volume is replaced only while no command
//!    is under way. So what was answered is on the volume that was left, before the other takes its place.
//! 2. Commands that wait begin on the other volume, in the order in which they came.

use super::{
    VolumeDevice,
    command_gate::{CommandGate, GateHold},
};
use std::{cell::RefCell, rc::Rc, sync::Arc};
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, Extent, Geometry, IoResult, LocalFuture, Stability};

/// End of the name of a volume that is in another pool now. Nobody writes it: a host whose volume could not be switched gets
/// no answer for what would be lost, but an error of the kind [`IoErrorKind::Moved`](world::IoErrorKind::Moved).
pub const MOVED_END: &str = "~moved";

/// The device that hosts have, and the volume behind it.
#[derive(Clone)]
pub struct SwitchedVolume(Rc<Switch>);

struct Switch {
    volume: RefCell<VolumeDevice>,
    gate: Rc<CommandGate>,
}

/// Commands wait while this is there.
#[must_use]
pub(crate) struct HostHold {
    switch: Rc<Switch>,
    gate: GateHold,
}

impl HostHold {
    /// Commands go on with another volume.
    pub fn go_on_with(self, volume: VolumeDevice) {
        assert!(self.gate.is_complete(), "commands are held");
        *self.switch.volume.borrow_mut() = volume;
    }
}

impl SwitchedVolume {
    pub fn new(volume: VolumeDevice) -> Self {
        Self(Rc::new(Switch { volume: RefCell::new(volume), gate: Rc::default() }))
    }

    /// The volume as it is now.
    pub fn volume(&self) -> VolumeDevice {
        self.0.volume.borrow().clone()
    }

    /// Keeps commands waiting from now on, and returns when none is under way.
    pub(crate) async fn hold(&self) -> HostHold {
        let gate = self.0.gate.hold().await.expect("one at a time moves a volume");
        HostHold { switch: Rc::clone(&self.0), gate }
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
            let _under_way = own.0.gate.enter().await.expect("hosts go along with a volume that leaves");
            let volume = own.volume();
            command(volume).await
        })
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

//! A device that protects the one below from writes.

use std::{rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoError, IoErrorKind, IoResult, LocalFuture,
    Stability,
};

/// Answer to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteAnswer {
    /// An error.
    Refuse,
    /// Success, without writing: for a trial that does not read what it wrote.
    Pretend,
}

pub(crate) struct WriteShield {
    device: Rc<dyn BlockDevice>,
    answer: WriteAnswer,
}

impl WriteShield {
    /// Wraps each of `devices`.
    pub fn over(devices: &[Rc<dyn BlockDevice>], answer: WriteAnswer) -> Vec<Rc<dyn BlockDevice>> {
        let shield = |device: &Rc<dyn BlockDevice>| {
            Rc::new(Self { device: Rc::clone(device), answer }) as Rc<dyn BlockDevice>
        };
        devices.iter().map(shield).collect()
    }

    fn answer(&self, what: &str) -> LocalFuture<IoResult<()>> {
        let answer = match self.answer {
            WriteAnswer::Pretend => Ok(()),
            WriteAnswer::Refuse => {
                Err(IoError::new(IoErrorKind::ReadOnly, format!("{what}: the pool is open for reading only")))
            }
        };
        Box::pin(async move { answer })
    }
}

impl BlockDevice for WriteShield {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        self.device.read(at, into)
    }

    fn write(&self, _: ByteOffset, _: Vec<Arc<Buffer>>, _: Stability) -> LocalFuture<IoResult<()>> {
        self.answer("write")
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        self.answer("flush")
    }

    fn discard(&self, _: ByteOffset, _: ByteCount) -> LocalFuture<IoResult<()>> {
        self.answer("discard")
    }
}

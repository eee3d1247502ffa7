//! Cost of a meter: nanoseconds of an operation on a device in memory, without and with a meter around it.
//!
//! `cargo run --release -p world --example meter_cost`. The device does nothing but return, so the difference is the
//! meter's: two readings of the clock, an allocation, and writes to cells.

use std::{future, hint::black_box, rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, DeviceMeter, DeviceOperation, Geometry, IoResult,
    LocalFuture, MeteredDevice, Stability,
    real::{RealOptions, run},
};

const OPERATIONS: u64 = 2_000_000;
const ROUNDS: usize = 7;

/// Answers at once.
struct Immediate;

impl BlockDevice for Immediate {
    fn geometry(&self) -> Geometry {
        Geometry { size: ByteCount(1 << 30), sector: 512 }
    }

    fn read(&self, _at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        Box::pin(future::ready(Ok(into)))
    }

    fn write(
        &self,
        _at: ByteOffset,
        _from: Vec<Arc<Buffer>>,
        _stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        Box::pin(future::ready(Ok(())))
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        Box::pin(future::ready(Ok(())))
    }

    fn discard(&self, _at: ByteOffset, _length: ByteCount) -> LocalFuture<IoResult<()>> {
        Box::pin(future::ready(Ok(())))
    }
}

fn main() {
    run(1, RealOptions::default(), async |world| {
        let plain: Rc<dyn BlockDevice> = Rc::new(Immediate);
        let meter = DeviceMeter::new(&world);
        let metered: Rc<dyn BlockDevice> = MeteredDevice::new(Rc::clone(&plain), &meter);
        let buffer = Arc::new(Buffer::zeroed(4096));
        let mut nanoseconds = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (device, of_device) in [&plain, &metered].into_iter().zip(&mut nanoseconds) {
                let begun = world.now();
                for number in 0..OPERATIONS {
                    let data = vec![Arc::clone(&buffer)];
                    let write = device.write(ByteOffset(number * 4096), data, Stability::Volatile);
                    black_box(write.await).expect("memory takes everything");
                }
                of_device.push(world.now().since(begun).as_nanos() as f64 / OPERATIONS as f64);
            }
        }
        let least = nanoseconds.map(|all| all.into_iter().fold(f64::INFINITY, f64::min));
        let [plain, metered] = least;
        println!("without {plain:.0} ns, with {metered:.0} ns: the meter takes {:.0} ns", metered - plain);
        let counted = meter.counts().of(DeviceOperation::Write).count();
        assert_eq!(counted, OPERATIONS * ROUNDS as u64);
    });
}

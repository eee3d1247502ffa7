//! Two pools in one world.

use crate::scene::{MIB, small};
use array::{
    format::{DriveId, PoolId, SparingLevel},
    pool::{NewDrive, NewPool, Pool, create, open},
};
use std::rc::Rc;
use world::{
    BlockDevice, ByteCount, World,
    sim::{DriveOptions, SimDrive, SimLimits, SimOutcome, Simulation},
};

/// Two pools of two drives each, in one world.
pub struct TwoPools {
    pub simulation: Simulation,
    pub drives: [Vec<Rc<SimDrive>>; 2],
}

pub type Devices = [Vec<Rc<dyn BlockDevice>>; 2];

impl TwoPools {
    pub fn new(seed: u64) -> Self {
        let mut simulation = Simulation::new(seed);
        let options = DriveOptions::new(ByteCount(65 * MIB));
        let drives = [(); 2].map(|()| (0..2).map(|_| simulation.add_drive(options.clone())).collect());
        let mut both = Self { simulation, drives };
        both.run(|world, devices| async move {
            for (index, devices) in devices.into_iter().enumerate() {
                let pool = PoolId([[0xa; 16], [0xb; 16]][index]);
                let new = NewPool {
                    pool,
                    name: format!("pool {index}"),
                    slot_bytes: MIB as u32,
                    sparing: SparingLevel::None,
                };
                let drives = devices.into_iter().enumerate().map(|(number, device)| NewDrive {
                    drive: DriveId([(16 * index + number) as u8 + 1; 16]),
                    serial: format!("S{index}{number}"),
                    device,
                    domain: None,
                });
                create(&world, &new, &drives.collect::<Vec<_>>()).await.expect("it is made");
            }
        });
        both
    }

    pub fn devices(&self) -> Devices {
        let devices = |drives: &Vec<Rc<SimDrive>>| {
            drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect()
        };
        [devices(&self.drives[0]), devices(&self.drives[1])]
    }

    pub fn run<F: Future<Output = ()> + 'static>(&mut self, main: impl FnOnce(World, Devices) -> F) {
        let devices = self.devices();
        self.simulation.run(SimLimits::generous(), |world| main(world, devices)).completed();
    }

    /// Runs `main` until it crashes after so many polls, then cuts the power. False if it ended before.
    pub fn crash<F: Future<Output = ()> + 'static>(
        &mut self,
        polls: u64,
        main: impl FnOnce(World, Devices) -> F,
    ) -> bool {
        let (devices, limits) = (self.devices(), SimLimits { polls: Some(polls), ..SimLimits::generous() });
        let outcome = self.simulation.run(limits, |world| main(world, devices));
        self.simulation.cut_power();
        matches!(outcome, SimOutcome::Crashed)
    }
}

pub async fn open_both(world: &World, devices: &Devices) -> [Rc<Pool>; 2] {
    let [one, other] = devices;
    [open(world, one, small()).await.expect("it opens"), open(world, other, small()).await.expect("it opens")]
}

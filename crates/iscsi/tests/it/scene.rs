//! A unit over a drive, and initiators.

use iscsi::scsi::{
    facts::Facts,
    identity::Identity,
    reservations::Nexus,
    sense::{AdditionalSense, SenseKey},
    unit::{Asked, Data, Ended, Reachable, Unit},
};
use std::rc::Rc;
use world::{
    BlockDevice, Buffer, ByteCount, World,
    sim::{DriveOptions, Limits, Simulation},
};

/// Blocks of 512 bytes the unit has.
pub const BLOCKS: u64 = 2048;

/// An identity of that number.
pub fn identity(number: u64) -> Identity {
    Identity(u128::from(number).to_be_bytes())
}

pub fn facts() -> Facts {
    Facts {
        product: "VOLUME".to_owned(),
        revision: "0001".to_owned(),
        identity: identity(1),
        block_bytes: 512,
        physical_bytes: 4096,
        is_read_only: false,
        is_thin: false,
        is_removable: false,
        port: 1,
    }
}

/// Runs `test` with a unit over a drive of that seed.
pub fn with_unit<F: Future<Output = ()> + 'static>(
    seed: u64,
    facts: Facts,
    test: impl FnOnce(World, Rc<Unit>) -> F,
) {
    let mut simulation = Simulation::new(seed);
    let drive = simulation.add_drive(DriveOptions::new(ByteCount(BLOCKS * 512)));
    let unit = Rc::new(Unit::new(facts, drive as Rc<dyn BlockDevice>, None, false));
    simulation.run(Limits::generous(), |world| test(world, unit)).completed();
}

/// An initiator that has heard of its reset.
pub struct Initiator(pub Nexus);

impl Initiator {
    pub fn new(unit: &Unit, name: &str) -> Self {
        let nexus = Nexus(format!("iqn.2026-11.test:{name},i,0x800000000001"));
        unit.begin(&nexus);
        Self(nexus)
    }

    /// One whose first command was answered with what it had to hear.
    pub async fn awake(unit: &Unit, name: &str) -> Self {
        let initiator = Self::new(unit, name);
        let heard = initiator.ask(unit, &[0; 6], &[]).await;
        assert_eq!(sense_of(&heard), (SenseKey::UnitAttention, AdditionalSense::RESET_OCCURRED));
        initiator
    }

    pub async fn ask(&self, unit: &Unit, cdb: &[u8], data: &[u8]) -> Ended {
        self.ask_within(unit, &[], cdb, data).await
    }

    /// Asks as one who may use the `units`.
    pub async fn ask_within(&self, unit: &Unit, units: &[Rc<Unit>], cdb: &[u8], data: &[u8]) -> Ended {
        let reached = |unit: &Rc<Unit>| Reachable { unit: Rc::clone(unit), may_write: true };
        let reach: &[Reachable] = &units.iter().map(reached).collect::<Vec<_>>();
        unit.execute(Asked { reach, ..self.asked(cdb, data) }).await
    }

    /// What is asked by one who may write, and announces what it sends.
    pub fn asked<'a>(&'a self, cdb: &'a [u8], data: &[u8]) -> Asked<'a> {
        Asked {
            nexus: &self.0,
            target: "iqn.2026-11.test:t",
            cdb,
            data: if data.is_empty() { Vec::new() } else { vec![Buffer::copy_of(data)] },
            units: &[0, 1, 300],
            reach: &[],
            may_write: true,
            is_mismatched: false,
        }
    }

    /// What a command gives that must be done.
    #[track_caller]
    pub fn done(ended: Ended) -> Vec<u8> {
        match ended {
            Ended::Good(Data::None) => Vec::new(),
            Ended::Good(Data::Parameters(bytes)) => bytes,
            Ended::Good(Data::Blocks(buffers)) => buffers.iter().flat_map(|buffer| buffer.to_vec()).collect(),
            other => panic!("it was not done: {other:?}"),
        }
    }
}

/// What a command was refused with.
#[track_caller]
pub fn sense_of(ended: &Ended) -> (SenseKey, AdditionalSense) {
    match ended {
        Ended::Check(sense) => (sense.key, sense.additional),
        other => panic!("it was not refused: {other:?}"),
    }
}

/// A command of 10 or 16 bytes with its blocks.
pub fn cdb(code: u8, flags: u8, block: u64, count: u32) -> Vec<u8> {
    let mut cdb = vec![code, flags];
    if code >> 5 == 4 {
        cdb.extend(block.to_be_bytes());
        cdb.extend(count.to_be_bytes());
        cdb.extend([0, 0]);
    } else {
        cdb.extend((block as u32).to_be_bytes());
        cdb.push(0);
        cdb.extend((count as u16).to_be_bytes());
        cdb.push(0);
    }
    cdb
}

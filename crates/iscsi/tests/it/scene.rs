//! A unit over a simulated drive, and its initiators.

use iscsi::scsi::{
    identity::UnitIdentity,
    properties::UnitProperties,
    reservations::Nexus,
    sense::{AdditionalSense, SenseKey},
    unit::{AccessibleUnit, CommandStatus, LogicalUnit, ResponseData, ScsiRequest},
};
use std::rc::Rc;
use world::{
    BlockDevice, Buffer, ByteCount, World,
    sim::{DriveOptions, SimLimits, Simulation},
};

/// 512-byte blocks of the unit.
pub const BLOCKS: u64 = 2048;

pub fn identity(number: u64) -> UnitIdentity {
    UnitIdentity(u128::from(number).to_be_bytes())
}

pub fn properties() -> UnitProperties {
    UnitProperties {
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

/// Runs `test` with a unit over a drive in a simulation with that seed.
pub fn with_unit<F: Future<Output = ()> + 'static>(
    seed: u64,
    properties: UnitProperties,
    test: impl FnOnce(World, Rc<LogicalUnit>) -> F,
) {
    let mut simulation = Simulation::new(seed);
    let drive = simulation.add_drive(DriveOptions::new(ByteCount(BLOCKS * 512)));
    let unit = Rc::new(LogicalUnit::new(properties, drive as Rc<dyn BlockDevice>, None, false));
    simulation.run(SimLimits::generous(), |world| test(world, unit)).completed();
}

pub struct Initiator(pub Nexus);

impl Initiator {
    pub fn new(unit: &LogicalUnit, name: &str) -> Self {
        let nexus = Nexus(format!("iqn.2026-11.test:{name},i,0x800000000001"));
        unit.begin_session(&nexus);
        Self(nexus)
    }

    /// An initiator that has taken RESET OCCURRED.
    pub async fn awake(unit: &LogicalUnit, name: &str) -> Self {
        let initiator = Self::new(unit, name);
        let heard = initiator.execute(unit, &[0; 6], &[]).await;
        assert_eq!(sense_of(&heard), (SenseKey::UnitAttention, AdditionalSense::RESET_OCCURRED));
        initiator
    }

    pub async fn execute(&self, unit: &LogicalUnit, cdb: &[u8], data: &[u8]) -> CommandStatus {
        self.ask_within(unit, &[], cdb, data).await
    }

    /// Executes a command of an initiator that may use `units`.
    pub async fn ask_within(
        &self,
        unit: &LogicalUnit,
        units: &[Rc<LogicalUnit>],
        cdb: &[u8],
        data: &[u8],
    ) -> CommandStatus {
        let reached = |unit: &Rc<LogicalUnit>| AccessibleUnit { unit: Rc::clone(unit), may_write: true };
        let reach: &[AccessibleUnit] = &units.iter().map(reached).collect::<Vec<_>>();
        unit.execute(ScsiRequest { reach, ..self.request(cdb, data) }).await
    }

    /// A request with the right to write and a matching length.
    pub fn request<'a>(&'a self, cdb: &'a [u8], data: &[u8]) -> ScsiRequest<'a> {
        ScsiRequest {
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

    /// The data of a command that must succeed.
    #[track_caller]
    pub fn done(ended: CommandStatus) -> Vec<u8> {
        match ended {
            CommandStatus::Good(ResponseData::None) => Vec::new(),
            CommandStatus::Good(ResponseData::Parameters(bytes)) => bytes,
            CommandStatus::Good(ResponseData::Blocks(buffers)) => {
                buffers.iter().flat_map(|buffer| buffer.to_vec()).collect()
            }
            other => panic!("it was not done: {other:?}"),
        }
    }
}

/// Sense of a command that must fail.
#[track_caller]
pub fn sense_of(ended: &CommandStatus) -> (SenseKey, AdditionalSense) {
    match ended {
        CommandStatus::CheckCondition(sense) => (sense.key, sense.additional),
        other => panic!("it was not refused: {other:?}"),
    }
}

/// A CDB of 10 or 16 bytes.
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

//! Provisioning thresholds: unit attentions when the pool fills up.

use crate::scene::{BLOCKS, Initiator, properties, sense_of};
use iscsi::scsi::{
    commands::code,
    properties::UnitProperties,
    sense::{AdditionalSense, SenseKey},
    thresholds::SpaceUsage,
    unit::{CommandStatus, LogicalUnit},
};
use std::{cell::Cell, rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Extent, IoResult, LocalFuture, Sparse, Stability,
    sim::{DriveOptions, SimDrive, SimLimits, Simulation},
};

const READY: [u8; 6] = [0; 6];
const REACHED: (SenseKey, AdditionalSense) =
    (SenseKey::UnitAttention, AdditionalSense::SOFT_THRESHOLD_REACHED);

/// A thin device that does not report holes, like a volume of a pool.
struct Thin(Rc<SimDrive>);

impl Sparse for Thin {
    fn write_zeroes(
        &self,
        at: ByteOffset,
        length: ByteCount,
        _keeps_space: bool,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        self.0.write(at, vec![Arc::new(Buffer::zeroed(length.0 as usize))], stability)
    }

    fn extents(&self, _at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<Vec<Extent>>> {
        Box::pin(async move { Ok(vec![Extent { length, is_hole: false, is_zero: false }]) })
    }
}

/// Runs `test` with two initiators of a unit in a pool of 1,000 MiB; the cell holds the used MiB.
fn with_shared<F: Future<Output = ()> + 'static>(
    test: impl FnOnce(Rc<LogicalUnit>, Rc<Cell<u64>>, Initiator, Initiator) -> F + 'static,
) {
    let mut simulation = Simulation::new(1);
    let drive = simulation.add_drive(DriveOptions::new(ByteCount(BLOCKS * 512)));
    let sparse: Rc<dyn Sparse> = Rc::new(Thin(Rc::clone(&drive)));
    let properties = UnitProperties { is_thin: true, ..properties() };
    let used = Rc::new(Cell::new(0_u64));
    let seen = Rc::clone(&used);
    let fill = move || SpaceUsage { used: ByteCount(seen.get() << 20), total: ByteCount(1000 << 20) };
    let unit = LogicalUnit::new(properties, drive as Rc<dyn BlockDevice>, Some(sparse), false);
    let unit = Rc::new(unit.with_thresholds(Rc::new(fill), [80, 90, 95]));
    let run = simulation.run(SimLimits::generous(), |_| async move {
        let (a, b) = (Initiator::awake(&unit, "a").await, Initiator::awake(&unit, "b").await);
        test(unit, used, a, b).await;
    });
    run.completed();
}

/// True if a threshold's unit attention is pending; no other may be.
async fn hears(unit: &LogicalUnit, initiator: &Initiator) -> bool {
    match initiator.execute(unit, &READY, &[]).await {
        CommandStatus::Good(_) => false,
        ended => {
            assert_eq!(sense_of(&ended), REACHED);
            true
        }
    }
}

fn mode_sense(page: u8, sub: u8) -> [u8; 10] {
    // DBD.
    [code::MODE_SENSE_10, 0x08, page, sub, 0, 0, 0, 0, 255, 0]
}

fn mode_select(length: usize) -> [u8; 10] {
    [code::MODE_SELECT_10, 0x10, 0, 0, 0, 0, 0, 0, length as u8, 0]
}

#[test]
fn each_initiator_gets_one_unit_attention_for_each_crossing() {
    with_shared(|unit, used, a, b| async move {
        for (at, is_news) in [(799, false), (800, true), (850, false), (960, true), (700, false), (801, true)]
        {
            used.set(at);
            for initiator in [&a, &b] {
                assert_eq!(hears(&unit, initiator).await, is_news, "{at} MiB of 1,000 are used");
                assert!(!hears(&unit, initiator).await, "it is told once");
            }
        }
        // INQUIRY leaves the unit attention pending.
        used.set(0);
        assert!(!hears(&unit, &a).await);
        used.set(990);
        Initiator::done(a.execute(&unit, &[code::INQUIRY, 0, 0, 0, 96, 0], &[]).await);
        assert!(hears(&unit, &a).await && hears(&unit, &b).await);
    });
}

#[test]
fn usage_is_reported_and_thresholds_can_be_set() {
    with_shared(|unit, used, a, b| async move {
        used.set(123);
        let page = [code::INQUIRY, 1, 0xb2, 0, 255, 0];
        assert_eq!(Initiator::done(a.execute(&unit, &page, &[]).await)[4], 11, "sets of 2,048 blocks: 1 MiB");
        let log = |page: u8, from: u8| [code::LOG_SENSE, 0, page, 0, 0, 0, from, 0, 255, 0];
        let listed = Initiator::done(a.execute(&unit, &log(0x40, 0), &[]).await);
        assert_eq!(listed[4..], [0, 0x0c]);
        let room = Initiator::done(a.execute(&unit, &log(0x4c, 0), &[]).await);
        assert_eq!(room[..4], [0x0c, 0, 0, 24]);
        assert_eq!(room[4..16], [0, 1, 3, 8, 0, 0, 0x03, 0x6d, 2, 0, 0, 0], "877 sets are available");
        assert_eq!(room[16..], [0, 2, 3, 8, 0, 0, 0, 123, 2, 0, 0, 0]);
        assert_eq!(Initiator::done(a.execute(&unit, &log(0x4c, 2), &[]).await).len(), 16);
        // A threshold at 200 MiB, with SITUA.
        let mut list = Initiator::done(a.execute(&unit, &mode_sense(0x1c, 2), &[]).await);
        assert_eq!(list[8..12], [0x5c, 2, 0, 36]);
        list[..2].fill(0);
        list[8 + 4] = 1;
        list[8 + 20..8 + 24].copy_from_slice(&200_u32.to_be_bytes());
        Initiator::done(a.execute(&unit, &mode_select(list.len()), &list).await);
        let changed = (SenseKey::UnitAttention, AdditionalSense::MODE_PARAMETERS_CHANGED);
        assert_eq!(sense_of(&b.execute(&unit, &READY, &[]).await), changed);
        used.set(250);
        assert!(hears(&unit, &b).await && !hears(&unit, &a).await);
        // A reset restores the default settings.
        unit.reset(None);
        for initiator in [&a, &b] {
            let reset = (SenseKey::UnitAttention, AdditionalSense::RESET_OCCURRED);
            assert_eq!(sense_of(&initiator.execute(&unit, &READY, &[]).await), reset);
        }
        used.set(0);
        assert!(!hears(&unit, &a).await);
        used.set(300);
        assert!(!hears(&unit, &a).await && !hears(&unit, &b).await);
        // LBPERE off.
        let mut list = Initiator::done(a.execute(&unit, &mode_sense(0x01, 0), &[]).await);
        list[..2].fill(0);
        assert_eq!(list[8 + 7], 0x80);
        list[8 + 7] = 0;
        Initiator::done(a.execute(&unit, &mode_select(list.len()), &list).await);
        assert_eq!(sense_of(&b.execute(&unit, &READY, &[]).await), changed);
        used.set(999);
        assert!(!hears(&unit, &a).await && !hears(&unit, &b).await);
    });
}

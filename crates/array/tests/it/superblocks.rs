//! Superblocks on simulated drives: a complete generation is found, an interrupted one does no harm.

use super::examples;
use array::{
    drive::Drives,
    format::{
        DriveId, Generation, Member, MemberIndex, MemberState, Superblock, superblock::superblock_places,
    },
    superblocks::{look, read_places, write_generation},
};
use std::{rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoError, IoErrorKind, IoResult, LocalFuture,
    Stability,
    sim::{DriveOptions, SimDrive, SimLimits, SimOutcome, Simulation},
};

fn superblock(generation: u64, drives: usize) -> Superblock {
    let mut superblock = examples::superblock();
    superblock.generation = Generation(generation);
    superblock.settled = Generation(generation - 1);
    superblock.place = superblock_places(superblock.generation)[0];
    superblock.this = MemberIndex(0);
    superblock.members = (0..drives)
        .map(|index| Member {
            drive: DriveId([index as u8 + 1; 16]),
            serial: String::new(),
            state: MemberState::Active,
            since: Generation(1),
            sector_bytes: 512,
            slot_count: 4,
            domain: None,
            set: None,
        })
        .collect();
    superblock
}

fn drives_of(devices: &[Rc<SimDrive>]) -> Drives {
    let members = devices.iter().enumerate();
    Drives::new(
        examples::superblock().geometry,
        members.map(|(index, drive)| (MemberIndex(index as u16), Rc::clone(drive) as Rc<dyn BlockDevice>)),
    )
}

fn as_devices(devices: &[Rc<SimDrive>]) -> Vec<Rc<dyn BlockDevice>> {
    devices.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect()
}

#[test]
fn what_is_complete_is_found_and_what_was_cut_short_leaves_the_one_before() {
    for seed in 0..80 {
        let mut simulation = Simulation::new(seed);
        let devices: Vec<_> =
            (0..3).map(|_| simulation.add_drive(DriveOptions::new(ByteCount::mib(4)))).collect();
        let mut random = simulation.random("crash");
        let drives = drives_of(&devices);
        let limits = SimLimits { polls: Some(random.below(120)), ..SimLimits::generous() };
        let complete = Rc::new(std::cell::Cell::new(0));
        let told = Rc::clone(&complete);
        let outcome = simulation.run(limits, async move |_| {
            for generation in 1..30 {
                write_generation(&drives, &superblock(generation, 3)).await.expect("drives work");
                told.set(generation);
            }
        });
        match outcome {
            SimOutcome::Completed(()) => {}
            SimOutcome::Crashed => simulation.cut_power(),
            other => panic!("seed {seed}: {other:?}"),
        }
        let given = as_devices(&devices);
        let seen = simulation.run(SimLimits::generous(), async move |_| look(&given).await).completed();
        let least = complete.get();
        assert!(least == 0 || seen.len() == 3, "seed {seed}: {} of 3 drives have one", seen.len());
        for seen in seen {
            let found = seen.superblock.generation.0;
            assert!((least..=least + 1).contains(&found), "seed {seed}: {found} found, {least} was complete");
            assert_eq!(usize::from(seen.superblock.this.0), seen.given);
        }
    }
}

#[test]
fn one_bad_place_costs_nothing_and_is_told() {
    let mut simulation = Simulation::new(1);
    let drive = simulation.add_drive(DriveOptions::new(ByteCount::mib(4)));
    let devices = [drive];
    let (drives, given) = (drives_of(&devices), as_devices(&devices));
    let places = simulation.run(SimLimits::generous(), async move |_| {
        write_generation(&drives, &superblock(8, 1)).await.expect("drives work");
        write_generation(&drives, &superblock(9, 1)).await.expect("drives work");
        // Generation 9 is in places 1 and 3; a bit of the first changes.
        let at = ByteOffset(256 << 10);
        let mut block = given[0].read(at, vec![Buffer::zeroed(4096)]).await.expect("drives read").remove(0);
        block[300] ^= 4;
        given[0].write(at, vec![block.into()], Stability::Stable).await.expect("drives write");
        read_places(&given[0]).await
    });
    let places = places.completed();
    assert_eq!(places.newest.expect("place 3 is whole").generation, Generation(9));
    assert_eq!(places.refused.len(), 1, "{:?}", places.refused);
    assert!(places.unreadable.is_empty());
}

#[test]
fn a_drive_of_anything_else_has_no_superblock() {
    let mut simulation = Simulation::new(2);
    let drive = simulation.add_drive(DriveOptions::new(ByteCount::mib(1)));
    let given = as_devices(&[drive]);
    let seen = simulation.run(SimLimits::generous(), async move |_| look(&given).await).completed();
    assert!(seen.is_empty());
}

/// A drive with unreadable sectors.
pub struct Scratched {
    pub inner: Rc<dyn BlockDevice>,
    /// Byte offsets, one in each such sector.
    pub bad: Vec<u64>,
}

impl BlockDevice for Scratched {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let end = at.0 + into.iter().map(|buffer| buffer.len() as u64).sum::<u64>();
        match self.bad.iter().any(|bad| (at.0..end).contains(bad)) {
            true => Box::pin(async { Err(IoError::new(IoErrorKind::Medium, "a scratch")) }),
            false => self.inner.read(at, into),
        }
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        self.inner.write(at, from, stability)
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        self.inner.flush()
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        self.inner.discard(at, length)
    }
}

#[test]
fn a_bad_sector_hides_nothing_but_the_image_it_lies_in() {
    const PLACE: u64 = 256 << 10;
    let mut simulation = Simulation::new(3);
    let drive = simulation.add_drive(DriveOptions::new(ByteCount::mib(4)));
    let devices = [drive];
    let (drives, given) = (drives_of(&devices), as_devices(&devices));
    let found = simulation.run(SimLimits::generous(), async move |_| {
        write_generation(&drives, &superblock(8, 1)).await.expect("drives work");
        write_generation(&drives, &superblock(9, 1)).await.expect("drives work");
        let mut found = Vec::new();
        // Behind all images; at either end of one of generation 9; in both.
        let bad_ones = [
            vec![60 << 10, PLACE + (60 << 10), 3 * PLACE + (60 << 10)],
            vec![PLACE],
            vec![3 * PLACE + 4096],
            vec![PLACE + 4096, 3 * PLACE],
        ];
        for bad in bad_ones {
            let scratched = Rc::new(Scratched { inner: given[0].clone(), bad }) as Rc<dyn BlockDevice>;
            let places = read_places(&scratched).await;
            let newest = places.newest.map(|superblock| superblock.generation.0);
            found.push((newest, places.unreadable.len()));
        }
        found
    });
    assert_eq!(found.completed(), [(Some(9), 3), (Some(9), 1), (Some(9), 1), (Some(8), 2)]);
}

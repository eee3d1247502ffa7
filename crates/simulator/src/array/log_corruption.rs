//! Corrupts the log of a closed pool.
//!
//! A record that a later one declares acknowledged, and that no copy has, must not be taken for the end of
//! the log. If one copy still has it, nothing is lost.

use super::{
    fault_model::DriveFault,
    fixture::PoolFixture,
    independent_reader::{Audit, platters::BLOCK},
    run::Run,
    salvage::Hole,
    violation::{PoolRunError, PoolViolation},
};
use array::{
    error::Error,
    pool::{check_opens, open},
};
use std::rc::Rc;
use world::{
    BlockDevice, World,
    sim::{SimLimits, Simulation},
};

impl Run {
    /// May corrupt a record in the middle of the log: on all copies, and then the pool must refuse to open,
    /// or on one.
    pub(super) fn corrupt_log(&mut self, audit: &Audit) -> Result<(), PoolViolation> {
        // A record stored twice may be missing once.
        let twice = [
            DriveFault::Dies,
            DriveFault::FailsWrites,
            DriveFault::FailsFlushes,
            DriveFault::Stuck,
            DriveFault::Smaller,
            DriveFault::Swapped,
        ];
        let is_written_twice = twice.map(|drive_fault| self.drive_faults.contains(&drive_fault));
        let acknowledged: Vec<_> = audit
            .records
            .iter()
            .enumerate()
            .filter(|(index, record)| {
                let mut later = audit.records[index + 1..].iter();
                later.any(|later| later.acknowledged_below > record.position)
            })
            .map(|(_, record)| record)
            .collect();
        if acknowledged.is_empty() || is_written_twice.contains(&true) || !self.log_corruption.percent(50.0) {
            return Ok(());
        }
        let record = acknowledged[self.log_corruption.below(acknowledged.len() as u64) as usize];
        let mut places: Vec<(usize, u64)> =
            record.slots.iter().map(|&slot| audit.place(slot, 1 + record.block)).collect();
        // Only the faulty drive may lack a copy.
        let of_patient: Vec<_> = places
            .iter()
            .copied()
            .filter(|(drive, _)| Some(*drive) == self.fixture.plan.faulty_drive)
            .collect();
        let is_whole_loss = places.len() == 1 || of_patient.is_empty() || self.log_corruption.percent(50.0);
        if !is_whole_loss {
            places = of_patient;
        }
        let byte = self.log_corruption.below(BLOCK as u64);
        self.flip(&places, byte);
        if !is_whole_loss {
            self.fixture.tell(format!("one copy of record {} is spoilt", record.position));
            self.fixture.tally.borrow_mut().copies_corrupted += 1;
            return Ok(());
        }
        self.fixture.tell(format!("record {} is spoilt", record.position));
        let fixture = self.fixture.clone();
        let position = record.position;
        let refused =
            self.simulation.run(SimLimits::generous(), |world| fixture.refuse_damaged(world, position));
        self.excuse(refused.completed())?;
        let index = audit.records.iter().position(|own| own.position == position);
        self.salvage(Hole::from(audit, index.expect("it is one of them")))?;
        self.flip(&places, byte);
        self.fixture.audit("after a spoilt log was fixed").map(drop)
    }

    /// May corrupt all headers of a log segment: unless another header leads past it, the pool must refuse to
    /// open. It can be read in any case, like a pool without corruption.
    pub(super) fn corrupt_header(&mut self, audit: &Audit) -> Result<(), PoolViolation> {
        if self.headers.percent(80.0) {
            return if self.headers.percent(20.0) {
                self.salvage(Hole::from(audit, audit.records.len()))
            } else {
                Ok(())
            };
        }
        let last = audit.log_segments.len() - 1;
        let index = self.headers.below(1 + last as u64) as usize;
        let segment = &audit.log_segments[index];
        let slots = segment.slots.iter().filter(|slot| audit.drives.contains_key(&slot.0));
        let places: Vec<(usize, u64)> = slots.map(|&slot| audit.place(slot, 0)).collect();
        let byte = self.headers.below(BLOCK as u64);
        self.flip(&places, byte);
        self.fixture.tell(format!("the header of log segment {} is spoilt", segment.number));
        // A header that leads past the first segment does not exist; for the last one it is unknown.
        let is_lost = index == 0 || index == last;
        let fixture = self.fixture.clone();
        let refused = self.look_from_outside(|world| fixture.refuse_headerless(world, is_lost));
        self.excuse(refused)?;
        let behind = audit.records.iter().position(|record| record.segment > index);
        let hole = behind.unwrap_or(audit.records.len());
        let hole = match index {
            0 => Hole::from(audit, hole),
            // Where the previous header names no other segment, the log may be readable up to there only.
            _ => Hole::perhaps_from(audit, hole),
        };
        self.salvage(hole)?;
        self.flip(&places, byte);
        Ok(())
    }

    /// Reads the pool without opening it and checks it against the model.
    fn salvage(&mut self, hole: Hole) -> Result<(), PoolViolation> {
        let fixture = self.fixture.clone();
        let salvaged = self.look_from_outside(|_| fixture.salvage(hole));
        self.excuse(salvaged)
    }

    /// Runs in a separate world, so the run itself is unaffected.
    fn look_from_outside<F: Future<Output = Result<(), PoolRunError>> + 'static>(
        &mut self,
        look: impl FnOnce(World) -> F,
    ) -> Result<(), PoolRunError> {
        Simulation::new(self.headers.next_u64()).run(SimLimits::generous(), look).completed()
    }

    /// Flips one bit on each of these drives.
    fn flip(&self, places: &[(usize, u64)], byte: u64) {
        for &(drive, at) in places {
            let mut bytes = [0];
            let drive = &self.fixture.drives[drive];
            drive.peek(at + byte, &mut bytes);
            bytes[0] ^= 4;
            drive.poke(at + byte, &bytes);
        }
    }
}

impl PoolFixture {
    async fn refuse_damaged(self, world: World, position: u64) -> Result<(), PoolRunError> {
        let drives = self.drives_there(&[]).into_iter();
        let devices: Vec<Rc<dyn BlockDevice>> = drives.map(|index| self.device(&world, index)).collect();
        match open(&world, &devices, self.plan.setting).await {
            Err(Error::LostRecords { .. }) => {
                self.tally.borrow_mut().logs_refused += 1;
                Ok(())
            }
            Err(_) => Ok(()),
            Ok(_) => {
                let what = format!("a log without record {position}, which was acknowledged");
                Err(PoolViolation::NotRefused(what).into())
            }
        }
    }

    /// Tries to open a pool whose log lacks a header.
    async fn refuse_headerless(self, world: World, is_lost: bool) -> Result<(), PoolRunError> {
        match check_opens(&world, &self.platter_devices(), self.plan.setting).await {
            Err(Error::NoLogHeader { .. }) => {
                self.tally.borrow_mut().headers_refused += 1;
                Ok(())
            }
            Ok(()) if is_lost => {
                let what = "a log that goes on where nobody knows".to_owned();
                Err(PoolViolation::NotRefused(what).into())
            }
            _ => Ok(()),
        }
    }

    /// Checks the remains of a crash during creation: no pool, or an empty one.
    pub(super) async fn look_at_new(self, world: World) -> Result<(), PoolRunError> {
        let devices: Vec<Rc<dyn BlockDevice>> =
            (0..self.plan.drives.len()).map(|index| self.device(&world, index)).collect();
        match open(&world, &devices, self.plan.setting).await {
            Ok(pool) if !pool.volumes().is_empty() => {
                Err(PoolViolation::Catalogue("a new pool has volumes".to_owned()).into())
            }
            _ => Ok(()),
        }
    }
}

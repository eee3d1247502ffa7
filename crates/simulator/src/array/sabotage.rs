//! What somebody does to a pool that is closed: records in the middle of its log are spoilt.
//!
//! A record that a later one says was acknowledged, and that no copy has, must not be taken for the end of the log. If
//! one copy still has it, nothing is missing.

use super::{
    atlas::Ill,
    foreign::{Audit, platters::BLOCK},
    ground::Ground,
    run::Run,
    salvage::Hole,
    trouble::{Trouble, Violation},
};
use array::{
    error::Error,
    pool::{check_opens, open},
};
use std::rc::Rc;
use world::{
    BlockDevice, World,
    sim::{Limits, Simulation},
};

impl Run {
    /// Spoils a record in the middle of the log, perhaps: on all copies, and the pool must stay closed; or on one.
    pub(super) fn spoil_log(&mut self, audit: &Audit) -> Result<(), Violation> {
        // What was written twice may be missing once.
        let twice = [Ill::Dies, Ill::FailsWrites, Ill::FailsFlushes, Ill::Stuck, Ill::Smaller, Ill::Swapped];
        let is_written_twice = twice.map(|ill| self.ills.contains(&ill));
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
        if acknowledged.is_empty() || is_written_twice.contains(&true) || !self.sabotage.percent(50.0) {
            return Ok(());
        }
        let record = acknowledged[self.sabotage.below(acknowledged.len() as u64) as usize];
        let mut places: Vec<(usize, u64)> =
            record.slots.iter().map(|&slot| audit.place(slot, 1 + record.block)).collect();
        // Nobody but the patient may be without a copy.
        let of_patient: Vec<_> =
            places.iter().copied().filter(|(drive, _)| Some(*drive) == self.ground.plan.patient).collect();
        let is_whole_loss = places.len() == 1 || of_patient.is_empty() || self.sabotage.percent(50.0);
        if !is_whole_loss {
            places = of_patient;
        }
        let byte = self.sabotage.below(BLOCK as u64);
        self.flip(&places, byte);
        if !is_whole_loss {
            self.ground.tell(format!("one copy of record {} is spoilt", record.position));
            self.ground.tally.borrow_mut().legs_spoilt += 1;
            return Ok(());
        }
        self.ground.tell(format!("record {} is spoilt", record.position));
        let ground = self.ground.clone();
        let position = record.position;
        let refused = self.simulation.run(Limits::generous(), |world| ground.refuse_damaged(world, position));
        self.settle_trouble(refused.completed())?;
        let index = audit.records.iter().position(|own| own.position == position);
        self.salvage(Hole::from(audit, index.expect("it is one of them")))?;
        self.flip(&places, byte);
        self.ground.audit("after a spoilt log was mended").map(drop)
    }

    /// Spoils all headers of a segment of the log, perhaps: unless another one leads past it the pool must stay closed. In any
    /// case it can be read; and so can one of which nothing is spoilt.
    pub(super) fn spoil_header(&mut self, audit: &Audit) -> Result<(), Violation> {
        if self.headers.percent(80.0) {
            return match self.headers.percent(20.0) {
                true => self.salvage(Hole::from(audit, audit.records.len())),
                false => Ok(()),
            };
        }
        let last = audit.log_segments.len() - 1;
        let index = self.headers.below(1 + last as u64) as usize;
        let segment = &audit.log_segments[index];
        let slots = segment.slots.iter().filter(|slot| audit.drives.contains_key(&slot.0));
        let places: Vec<(usize, u64)> = slots.map(|&slot| audit.place(slot, 0)).collect();
        let byte = self.headers.below(BLOCK as u64);
        self.flip(&places, byte);
        self.ground.tell(format!("the header of log segment {} is spoilt", segment.number));
        // What leads past the first one is nothing; past the last one, nobody knows.
        let is_lost = index == 0 || index == last;
        let ground = self.ground.clone();
        let refused = self.look_from_outside(|world| ground.refuse_headerless(world, is_lost));
        self.settle_trouble(refused)?;
        let behind = audit.records.iter().position(|record| record.segment > index);
        let hole = behind.unwrap_or(audit.records.len());
        let hole = match index {
            0 => Hole::from(audit, hole),
            // Where the header before names no other one it may be read to there alone.
            _ => Hole::perhaps_from(audit, hole),
        };
        self.salvage(hole)?;
        self.flip(&places, byte);
        Ok(())
    }

    /// Reads the pool without opening it, and holds that against the model.
    fn salvage(&mut self, hole: Hole) -> Result<(), Violation> {
        let ground = self.ground.clone();
        let salvaged = self.look_from_outside(|_| ground.salvage(hole));
        self.settle_trouble(salvaged)
    }

    /// In a world of its own: the run goes on as if nobody had looked.
    fn look_from_outside<F: Future<Output = Result<(), Trouble>> + 'static>(
        &mut self,
        look: impl FnOnce(World) -> F,
    ) -> Result<(), Trouble> {
        Simulation::new(self.headers.next_u64()).run(Limits::generous(), look).completed()
    }

    /// Turns one bit round on each of these drives.
    fn flip(&self, places: &[(usize, u64)], byte: u64) {
        for &(drive, at) in places {
            let mut bytes = [0];
            let drive = &self.ground.drives[drive];
            drive.peek(at + byte, &mut bytes);
            bytes[0] ^= 4;
            drive.poke(at + byte, &bytes);
        }
    }
}

impl Ground {
    async fn refuse_damaged(self, world: World, position: u64) -> Result<(), Trouble> {
        let drives = self.drives_there(&[]).into_iter();
        let devices: Vec<Rc<dyn BlockDevice>> = drives.map(|index| self.device(index)).collect();
        match open(&world, &devices, self.plan.setting).await {
            Err(Error::LostRecords { .. }) => {
                self.tally.borrow_mut().logs_refused += 1;
                Ok(())
            }
            Err(_) => Ok(()),
            Ok(_) => {
                let what = format!("a log without record {position}, which was acknowledged");
                Err(Violation::NotRefused(what).into())
            }
        }
    }

    /// Tries to open a pool whose log lacks a header.
    async fn refuse_headerless(self, world: World, is_lost: bool) -> Result<(), Trouble> {
        match check_opens(&world, &self.platter_devices(), self.plan.setting).await {
            Err(Error::NoLogHeader { .. }) => {
                self.tally.borrow_mut().headers_refused += 1;
                Ok(())
            }
            Ok(()) if is_lost => {
                let what = "a log that goes on where nobody knows".to_owned();
                Err(Violation::NotRefused(what).into())
            }
            _ => Ok(()),
        }
    }

    /// What a crash left of a pool in the making: none, or an empty one.
    pub(super) async fn look_at_new(self, world: World) -> Result<(), Trouble> {
        let devices: Vec<Rc<dyn BlockDevice>> =
            (0..self.plan.drives.len()).map(|index| self.device(index)).collect();
        match open(&world, &devices, self.plan.setting).await {
            Ok(pool) if !pool.volumes().is_empty() => {
                Err(Violation::Catalogue("a new pool has volumes".to_owned()).into())
            }
            _ => Ok(()),
        }
    }
}

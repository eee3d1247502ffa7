//! From opening a pool to its end, unless a crash comes first.
//!
//! 1. Open, on the drives present.
//! 2. Inspect: the catalogue always, contents often.
//! 3. Work: hosts and an administrator; meanwhile a drive may become faulty.
//! 4. Perhaps close; then open again and inspect.

use super::{
    administrator::Administrator,
    comparison::Comparer,
    drive_changes::DriveChanger,
    fault_model::{DriveFault, PoolFaultGrade},
    fixture::PoolFixture,
    host::Host,
    independent_reader::{platters::Platters, superblock::elect},
    plan::SLOT_BYTES,
    shortage::ShortageEpisode,
    subscriber::PoolFollower,
    violation::{PoolRefusal, PoolRunError, PoolViolation},
};
use array::{
    election::OpenRefusal,
    error::Error,
    format::{DriveId, PoolId},
    pool::{NewDrive, NewPool, OpenSetting, Pool, create_with_copies, open},
};
use std::{cell::RefCell, rc::Rc, time::Duration};
use world::{BlockDevice, Random, World, sim::FaultPlan, with_deadline};

/// The scenario of an incarnation.
#[derive(Clone, Debug, Default)]
pub struct PoolScenario {
    pub absent: Vec<usize>,
    /// Drives that become faulty, each after this time.
    pub becomes_faulty: Vec<(usize, FaultPlan, Duration)>,
    /// A shortage that several drives share for a while.
    pub shortage: Option<ShortageEpisode>,
    /// Reads contents after the opening; each snapshot with this probability, in percent.
    pub inspects: Option<f64>,
    /// Ends once superblocks declare the replayed log stable.
    pub ends_behind_replay: bool,
    /// Runs hosts and the administrator.
    pub works: bool,
    /// May end in the middle of an operation on a group.
    pub may_end_early: bool,
    /// Adds the spare after this time, unless it is a member; the second time lets it fail after that.
    pub adds: Option<(Duration, Option<Duration>)>,
    /// After the work, waits until all copies exist and are right.
    pub heals: bool,
    /// At the end, closes the pool, opens it again, inspects and closes it.
    pub closes: bool,
}

impl PoolFixture {
    /// Creates the pool.
    pub async fn create(self, world: World) -> Result<(), PoolRunError> {
        let new = NewPool {
            pool: PoolId([7; 16]),
            name: "simulated".to_owned(),
            slot_bytes: SLOT_BYTES,
            sparing: self.plan.sparing,
        };
        let drives = (0..self.plan.drives.len()).map(|index| NewDrive {
            drive: DriveId([index as u8 + 1; 16]),
            serial: format!("drive {index}"),
            device: self.device(&world, index),
            domain: self.plan.domain(index),
        });
        let drives: Vec<_> = drives.collect();
        let created = create_with_copies(&world, &new, &drives, self.plan.copies).await;
        created.map_err(|error| PoolRefusal::of_pool("making a pool", &error).into())
    }

    /// Runs one incarnation.
    pub async fn live(self, world: World, scenario: PoolScenario) -> Result<(), PoolRunError> {
        let mut random = world.random("incarnation");
        if let Some(shortage) = scenario.shortage.clone() {
            self.begin_shortage(&world, shortage);
        }
        if scenario.ends_behind_replay {
            return self.open_until_announced(&world, random).await;
        }
        let pool = self.open(&world, &mut random, &scenario.absent).await?;
        self.check_drive_changes(&pool)?;
        self.inspect(&pool, &mut random, scenario.inspects).await?;
        if scenario.works {
            let follower = self.plan.subscribes.then(|| PoolFollower::begin(&world, &pool));
            *self.follower.borrow_mut() = follower.as_ref().map(PoolFollower::follower);
            if !self.work(&world, &pool, &mut random, &scenario).await? {
                self.tell("ended in the middle of an operation on a group".to_owned());
                return Ok(());
            }
            if let Some(follower) = follower {
                follower.end(&self, &pool).await?;
            }
        }
        if scenario.heals {
            self.heal(&world, &pool).await?;
        }
        self.check_runs(&pool)?;
        if scenario.closes {
            self.close(pool).await?;
            let pool = self.open(&world, &mut random, &scenario.absent).await?;
            self.inspect(&pool, &mut random, Some(100.0)).await?;
            self.close(pool).await?;
        }
        Ok(())
    }

    /// Opens the pool on the drives in random order; half of two drives by force.
    pub(super) async fn open(
        &self,
        world: &World,
        random: &mut Random,
        absent: &[usize],
    ) -> Result<Rc<Pool>, PoolRunError> {
        let mut devices: Vec<Rc<dyn BlockDevice>> = Vec::new();
        for index in self.drives_there(absent) {
            let place = random.below(devices.len() as u64 + 1) as usize;
            devices.insert(place, self.device(world, index));
        }
        let setting = self.plan.setting;
        let wrong_reads = self.wrong_reads();
        let opened = match open(world, &devices, setting).await {
            Err(Error::OpenRefused(OpenRefusal::MayBeNewerElsewhere(_))) if self.may_need_force(absent) => {
                self.tally.borrow_mut().openings_forced += 1;
                open(world, &devices, OpenSetting { forced: true, ..setting }).await
            }
            opened => opened,
        };
        if self.plan.grade == PoolFaultGrade::Beyond && self.wrong_reads() > wrong_reads {
            // Where no drive returns the newest superblock, the pool continues from the one before.
            self.is_untold.set(true);
        }
        let pool = opened.map_err(|error| PoolRefusal::of_pool("opening the pool", &error))?;
        let mut tally = self.tally.borrow_mut();
        tally.openings += 1;
        tally.openings_without += u64::from(!absent.is_empty());
        tally.openings_without_two += u64::from(absent.len() > 1);
        tally.openings_without_shelf += u64::from(absent.len() > 1 && self.plan.has_domains);
        tally.openings_without_one_of_each += u64::from(absent.len() > 1 && self.plan.has_sets);
        tally.story.push(match absent {
            [] => "opened".to_owned(),
            absent => format!("opened without {absent:?}"),
        });
        Ok(pool)
    }

    /// Starts to open the pool; done when a superblock names the new opening: the replayed log must be stable
    /// by then.
    async fn open_until_announced(self, world: &World, mut random: Random) -> Result<(), PoolRunError> {
        const LOOK_EVERY: Duration = Duration::from_micros(20);
        let platters = Platters(self.drives.to_vec());
        let incarnation = || elect(&platters).map_or(0, |(superblock, _)| superblock.incarnation);
        let before = incarnation();
        let (fixture, own) = (self.clone(), world.clone());
        let result: Rc<RefCell<Option<Result<(), PoolRunError>>>> = Rc::default();
        let opened = Rc::clone(&result);
        world.spawn("opening", async move {
            let pool = fixture.open(&own, &mut random, &[]).await;
            *opened.borrow_mut() = Some(pool.map(drop));
        });
        loop {
            if let Some(opened) = result.take() {
                return opened;
            }
            if incarnation() > before {
                self.tell("an opening was cut off behind its replay".to_owned());
                return Ok(());
            }
            world.sleep(LOOK_EVERY).await;
        }
    }

    /// True if one drive of two may be all that is left: then opening needs force.
    fn may_need_force(&self, absent: &[usize]) -> bool {
        let (plan, bay) = (&self.plan, self.bay.borrow());
        let are_all_there = absent.is_empty() && plan.faulty_drive.is_none() && bay.taken_out.is_none();
        if plan.drive_changes && are_all_there && plan.grade == PoolFaultGrade::Envelope {
            return false;
        }
        let counting = bay.counting.len();
        // An opening by force may have been cut short when one drive had its superblock.
        let is_one_of_two = plan.drive_changes && counting < 2 && self.tally.borrow().openings_forced > 0;
        plan.drives.len() == 2 || counting == 2 || is_one_of_two
    }

    async fn inspect(
        &self,
        pool: &Rc<Pool>,
        random: &mut Random,
        contents: Option<f64>,
    ) -> Result<(), PoolRunError> {
        self.check_catalogue(pool)?;
        if let Some(percent) = contents {
            self.check_contents(pool, random, percent).await?;
            self.tell("inspected".to_owned());
        }
        Ok(())
    }

    /// False if it ended early.
    async fn work(
        &self,
        world: &World,
        pool: &Rc<Pool>,
        random: &mut Random,
        scenario: &PoolScenario,
    ) -> Result<bool, PoolRunError> {
        self.early_end.begin(scenario.may_end_early);
        let mut administrator = self.administrator(pool, random);
        while (self.model.borrow().usable().len() as u64) < self.plan.volumes {
            match administrator.create().await {
                // A full pool takes no more volumes.
                Err(PoolRunError::Refused(refusal)) if refusal.is_full && self.plan.is_tight => break,
                Err(PoolRunError::Refused(refusal))
                    if refusal.is_for_space() && scenario.shortage.is_some() =>
                {
                    break;
                }
                created => created?,
            }
        }
        for (drive, faults, after) in scenario.becomes_faulty.clone() {
            let (fixture, own) = (self.clone(), world.clone());
            world.spawn("illness", async move {
                own.sleep(after).await;
                fixture.tell(format!("drive {drive} becomes faulty: {faults:?}"));
                fixture.drives[drive].set_faults(faults);
            });
        }
        if self.plan.remote {
            let random = Random::new(random.next_u64(), "connections");
            world.spawn("connections", self.clone().break_connections(world.clone(), random));
        }
        let drives_before = pool.drives_present();
        let mut tasks = Vec::new();
        if let Some(adds) = scenario.adds {
            let adding = self.clone().add_spare(world.clone(), Rc::clone(pool), adds);
            tasks.push(world.spawn("addition of a drive", adding));
        }
        for _ in 0..self.plan.hosts {
            let random = Random::new(random.next_u64(), "host");
            let host = Host { fixture: self.clone(), pool: Rc::clone(pool), random };
            tasks.push(world.spawn("host", host.work(world.clone())));
        }
        tasks.push(world.spawn("administrator", administrator.work(world.clone())));
        if self.plan.compares {
            let random = world.random("differences");
            let comparer = Comparer { fixture: self.clone(), pool: Rc::clone(pool), random };
            tasks.push(world.spawn("comparer", comparer.work(world.clone())));
        }
        if self.plan.drive_changes {
            let mut random = world.random("drive changes");
            for _ in 0..1 + random.below(2) {
                let random = Random::new(random.next_u64(), "changer");
                let (fixture, pool, own) = (self.clone(), Rc::clone(pool), world.clone());
                let changer = DriveChanger { fixture, pool, world: own, random };
                tasks.push(world.spawn("drive changes", changer.work(world.clone())));
            }
        }
        let all = async {
            let mut done = Ok(());
            for task in tasks {
                done = done.and(task.await);
            }
            done
        };
        let done = with_deadline(self.early_end.wait(), all).await;
        if self.plan.remote && !self.plan.drive_changes {
            self.check_none_lost(pool, drives_before)?;
        }
        match done {
            Some(done) => done.map(|()| true),
            None => Ok(false),
        }
    }

    /// Adds the spare to the pool, under a new name at each attempt, because the pool may remember the last
    /// one.
    async fn add_spare(
        self,
        world: World,
        pool: Rc<Pool>,
        (after, ill_after): (Duration, Option<Duration>),
    ) -> Result<(), PoolRunError> {
        let spare = self.spare().expect("a spare is there to be added");
        world.sleep(after).await;
        let attempt = {
            let mut bay = self.bay.borrow_mut();
            bay.additions += 1;
            bay.additions
        };
        let new = NewDrive {
            drive: DriveId([100 + attempt; 16]),
            serial: format!("spare {attempt}"),
            device: self.device(&world, spare),
            domain: self.plan.domain(spare),
        };
        if let Some(ill_after) = ill_after {
            let (fixture, own) = (self.clone(), world.clone());
            world.spawn("illness", async move {
                own.sleep(ill_after).await;
                fixture.tell("the spare dies".to_owned());
                fixture.bay.borrow_mut().is_spare_faulty = true;
                let faults = DriveFault::Dies.faults(&mut own.random("spare"));
                fixture.drives[spare].set_faults(faults);
            });
        }
        match pool.add_drive(&new).await {
            Ok(()) => {
                self.tally.borrow_mut().drives_added += 1;
                self.tell("the spare was added".to_owned());
                Ok(())
            }
            Err(_) if self.bay.borrow().is_spare_faulty => Ok(()),
            Err(error) => Err(PoolRefusal::of_pool("adding a drive", &error).into()),
        }
    }

    fn administrator(&self, pool: &Rc<Pool>, random: &mut Random) -> Administrator {
        let random = Random::new(random.next_u64(), "administrator");
        Administrator { fixture: self.clone(), pool: Rc::clone(pool), random }
    }

    fn check_runs(&self, pool: &Rc<Pool>) -> Result<(), PoolRunError> {
        self.tally.borrow_mut().fixed += pool.repaired();
        match pool.failure() {
            None => Ok(()),
            Some(failure) => {
                Err(PoolRefusal { is_full: false, what: format!("the pool stopped: {failure}") }.into())
            }
        }
    }

    async fn close(&self, pool: Rc<Pool>) -> Result<(), PoolRunError> {
        let closed = pool.close().await;
        closed.map_err(|error| PoolRefusal::of_pool("closing the pool", &error))?;
        self.tally.borrow_mut().closings += 1;
        self.tell("closed".to_owned());
        self.check_closed(&pool)?;
        Ok(())
    }

    /// A closed pool has nothing to replay, and its audit matches its statistics.
    fn check_closed(&self, pool: &Rc<Pool>) -> Result<(), PoolViolation> {
        let when = "after a pool was closed";
        let Some(audit) = self.audit(when)? else { return Ok(()) };
        let (used, records) = (pool.space().used_bytes, audit.records.len());
        if (used, 0, 0) == (audit.live_bytes, records, audit.intents) {
            return Ok(());
        }
        let what = format!(
            "{} bytes are live, not {used}; {records} records are to be replayed, {} operations completed",
            audit.live_bytes, audit.intents
        );
        Err(PoolViolation::Foreign { when, what })
    }

    /// A stale drive that the others continued without must not open as a pool alone.
    pub async fn refuse_stale(self, world: World, stale: usize) -> Result<(), PoolRunError> {
        match open(&world, &[self.device(&world, stale)], self.plan.setting).await {
            Err(_) => Ok(()),
            Ok(_) => {
                Err(PoolViolation::NotRefused(format!("a pool of drive {stale} alone, which is stale"))
                    .into())
            }
        }
    }
}

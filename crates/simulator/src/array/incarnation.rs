//! From opening a pool to its end, unless a crash comes first.
//!
//! 1. Open, on the drives that are there.
//! 2. Inspect: the catalogue always, contents often.
//! 3. Work: hosts and an administrator; meanwhile a drive may fall ill.
//! 4. Perhaps close; then open again and inspect.

use super::{
    administrator::Administrator,
    atlas::{Grade, Ill},
    foreign::{platters::Platters, superblock::elect},
    ground::Ground,
    host::Host,
    plan::SLOT_BYTES,
    shortage::Spell,
    trouble::{Refusal, Trouble, Violation},
};
use array::{
    election::OpenRefusal,
    error::Error,
    format::{DriveId, PoolId},
    pool::{NewDrive, NewPool, OpenSetting, Pool, create_with_copies, open},
};
use std::{cell::RefCell, rc::Rc, time::Duration};
use world::{BlockDevice, Random, World, sim::FaultPlan};

/// How an incarnation is to go.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// Drives that are not there.
    pub absent: Vec<usize>,
    /// A drive falls ill after so long.
    pub falls_ill: Option<(usize, FaultPlan, Duration)>,
    /// What several drives have in common for a while.
    pub spell: Option<Spell>,
    /// Whether contents are read after the opening, and each snapshot with which probability, in percent.
    pub inspects: Option<f64>,
    /// Whether it is over as soon as drives say that what was replayed is the log.
    pub ends_behind_replay: bool,
    /// Whether to do any work.
    pub works: bool,
    /// Whether to add the spare after so long, unless it is a member; and then that it falls ill after so long.
    pub adds: Option<(Duration, Option<Duration>)>,
    /// Whether to wait until all copies are there and right, after the work.
    pub heals: bool,
    /// Whether to close the pool in the end, open it again, inspect, and close it.
    pub closes: bool,
}

impl Ground {
    /// Makes the pool.
    pub async fn create(self, world: World) -> Result<(), Trouble> {
        let new = NewPool { pool: PoolId([7; 16]), name: "simulated".to_owned(), slot_bytes: SLOT_BYTES };
        let drives = (0..self.plan.drives.len()).map(|index| NewDrive {
            drive: DriveId([index as u8 + 1; 16]),
            serial: format!("drive {index}"),
            device: self.device(index),
        });
        let drives: Vec<_> = drives.collect();
        let created = create_with_copies(&world, &new, &drives, self.plan.copies).await;
        created.map_err(|error| Refusal::of_pool("making a pool", &error).into())
    }

    /// One whole incarnation.
    pub async fn live(self, world: World, course: Course) -> Result<(), Trouble> {
        let mut random = world.random("incarnation");
        if let Some(spell) = course.spell.clone() {
            self.begin_spell(&world, spell);
        }
        if course.ends_behind_replay {
            return self.open_until_announced(&world, random).await;
        }
        let pool = self.open(&world, &mut random, &course.absent).await?;
        self.inspect(&pool, &mut random, course.inspects).await?;
        if course.works {
            self.work(&world, &pool, &mut random, &course).await?;
        }
        if course.heals {
            self.heal(&world, &pool).await?;
        }
        self.check_runs(&pool)?;
        if course.closes {
            self.close(pool).await?;
            let pool = self.open(&world, &mut random, &course.absent).await?;
            self.inspect(&pool, &mut random, Some(100.0)).await?;
            self.close(pool).await?;
        }
        Ok(())
    }

    /// Opens the pool on drives given in any order. The half of two drives is opened by force.
    pub(super) async fn open(
        &self,
        world: &World,
        random: &mut Random,
        absent: &[usize],
    ) -> Result<Rc<Pool>, Trouble> {
        let mut devices: Vec<Rc<dyn BlockDevice>> = Vec::new();
        for index in self.drives_there(absent) {
            let place = random.below(devices.len() as u64 + 1) as usize;
            devices.insert(place, self.device(index));
        }
        let setting = self.plan.setting;
        let wrong_reads = self.wrong_reads();
        let opened = match open(world, &devices, setting).await {
            Err(Error::OpenRefused(OpenRefusal::MayBeNewerElsewhere(_))) if self.is_half_of_two() => {
                self.tally.borrow_mut().openings_forced += 1;
                open(world, &devices, OpenSetting { forced: true, ..setting }).await
            }
            opened => opened,
        };
        if self.plan.grade == Grade::Beyond && self.wrong_reads() > wrong_reads {
            // Where the newest superblock cannot be read on any drive, the one before it is the pool's.
            self.is_untold.set(true);
        }
        let pool = opened.map_err(|error| Refusal::of_pool("opening the pool", &error))?;
        let mut tally = self.tally.borrow_mut();
        tally.openings += 1;
        tally.openings_without += u64::from(!absent.is_empty());
        tally.openings_without_two += u64::from(absent.len() > 1);
        tally.story.push(match absent {
            [] => "opened".to_owned(),
            absent => format!("opened without {absent:?}"),
        });
        Ok(pool)
    }

    /// Begins to open the pool. Done when a superblock names the new opening: what was replayed must be stable by then.
    async fn open_until_announced(self, world: &World, mut random: Random) -> Result<(), Trouble> {
        const LOOK_EVERY: Duration = Duration::from_micros(20);
        let platters = Platters(self.drives.to_vec());
        let incarnation = || elect(&platters).map_or(0, |(superblock, _)| superblock.incarnation);
        let before = incarnation();
        let (ground, own) = (self.clone(), world.clone());
        let result: Rc<RefCell<Option<Result<(), Trouble>>>> = Rc::default();
        let opened = Rc::clone(&result);
        world.spawn("opening", async move {
            let pool = ground.open(&own, &mut random, &[]).await;
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

    /// Whether one drive may be all that is left: then somebody has to say so.
    fn is_half_of_two(&self) -> bool {
        self.plan.drives.len() == 2 || self.bay.borrow().counting.len() == 2
    }

    async fn inspect(
        &self,
        pool: &Rc<Pool>,
        random: &mut Random,
        contents: Option<f64>,
    ) -> Result<(), Trouble> {
        self.check_catalogue(pool)?;
        if let Some(percent) = contents {
            self.check_contents(pool, random, percent).await?;
            self.tell("inspected".to_owned());
        }
        Ok(())
    }

    async fn work(
        &self,
        world: &World,
        pool: &Rc<Pool>,
        random: &mut Random,
        course: &Course,
    ) -> Result<(), Trouble> {
        let mut administrator = self.administrator(pool, random);
        while (self.model.borrow().usable().len() as u64) < self.plan.volumes {
            match administrator.create().await {
                // A pool that is full takes no more volumes.
                Err(Trouble::Refused(refusal)) if refusal.is_full && self.plan.is_tight => break,
                Err(Trouble::Refused(refusal)) if refusal.is_for_space() && course.spell.is_some() => break,
                created => created?,
            }
        }
        if let Some((drive, faults, after)) = course.falls_ill.clone() {
            let (ground, own) = (self.clone(), world.clone());
            world.spawn("illness", async move {
                own.sleep(after).await;
                ground.tell(format!("drive {drive} falls ill: {faults:?}"));
                ground.drives[drive].set_faults(faults);
            });
        }
        let mut tasks = Vec::new();
        if let Some(adds) = course.adds {
            let adding = self.clone().add_spare(world.clone(), Rc::clone(pool), adds);
            tasks.push(world.spawn("addition of a drive", adding));
        }
        for _ in 0..self.plan.hosts {
            let random = Random::new(random.next_u64(), "host");
            let host = Host { ground: self.clone(), pool: Rc::clone(pool), random };
            tasks.push(world.spawn("host", host.work(world.clone())));
        }
        tasks.push(world.spawn("administrator", administrator.work(world.clone())));
        let mut done = Ok(());
        for task in tasks {
            done = done.and(task.await);
        }
        done
    }

    /// Takes the spare into the pool; under a new name each time that is begun, for of the last time something may be known.
    async fn add_spare(
        self,
        world: World,
        pool: Rc<Pool>,
        (after, ill_after): (Duration, Option<Duration>),
    ) -> Result<(), Trouble> {
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
            device: self.device(spare),
        };
        if let Some(ill_after) = ill_after {
            let (ground, own) = (self.clone(), world.clone());
            world.spawn("illness", async move {
                own.sleep(ill_after).await;
                ground.tell("the spare dies".to_owned());
                ground.bay.borrow_mut().is_spare_ill = true;
                let faults = Ill::Dies.faults(&mut own.random("spare"));
                ground.drives[spare].set_faults(faults);
            });
        }
        match pool.add_drive(&new).await {
            Ok(()) => {
                self.tally.borrow_mut().drives_added += 1;
                self.tell("the spare was added".to_owned());
                Ok(())
            }
            Err(_) if self.bay.borrow().is_spare_ill => Ok(()),
            Err(error) => Err(Refusal::of_pool("adding a drive", &error).into()),
        }
    }

    fn administrator(&self, pool: &Rc<Pool>, random: &mut Random) -> Administrator {
        let random = Random::new(random.next_u64(), "administrator");
        Administrator { ground: self.clone(), pool: Rc::clone(pool), random }
    }

    fn check_runs(&self, pool: &Rc<Pool>) -> Result<(), Trouble> {
        self.tally.borrow_mut().mended += pool.repaired();
        match pool.failure() {
            None => Ok(()),
            Some(failure) => {
                Err(Refusal { is_full: false, what: format!("the pool stopped: {failure}") }.into())
            }
        }
    }

    async fn close(&self, pool: Rc<Pool>) -> Result<(), Trouble> {
        let closed = pool.close().await;
        closed.map_err(|error| Refusal::of_pool("closing the pool", &error))?;
        self.tally.borrow_mut().closings += 1;
        self.tell("closed".to_owned());
        self.check_closed(&pool)?;
        Ok(())
    }

    /// A pool that was closed has nothing to replay, and lies there as it says.
    fn check_closed(&self, pool: &Rc<Pool>) -> Result<(), Violation> {
        let when = "after a pool was closed";
        let Some(audit) = self.audit(when)? else { return Ok(()) };
        let (used, records) = (pool.space().used_bytes, audit.records.len());
        if (used, 0) == (audit.live_bytes, records) {
            return Ok(());
        }
        let what =
            format!("{} bytes are live, not {used}; {records} records are to be replayed", audit.live_bytes);
        Err(Violation::Foreign { when, what })
    }

    /// A drive that the others went on without must not be a pool by itself.
    pub async fn refuse_stale(self, world: World, stale: usize) -> Result<(), Trouble> {
        match open(&world, &[self.device(stale)], self.plan.setting).await {
            Err(_) => Ok(()),
            Ok(_) => {
                Err(Violation::NotRefused(format!("a pool of drive {stale} alone, which is stale")).into())
            }
        }
    }
}

//! The administrator's clones and rollbacks, the filling of clones, and clients from which rollbacks withhold volumes.

use super::{
    administrator::Administrator,
    content::VolumeKey,
    fixture::volume_id,
    model::{CutKey, EarlierState, Presence},
    violation::{PoolRefusal, PoolRunError},
};
use array::{
    error::Error,
    format::row::WithheldClient,
    mover::JobKind,
    pool::{NewClone, RollbackGoal},
};
use std::{collections::BTreeSet, time::Duration};
use world::World;

/// Number of volumes with clones and what rollbacks left, at most.
const ALL_VOLUMES_MAX: usize = 12;
/// Pauses in which the commands of hosts may end before a rollback, and the length of one.
const PAUSES_MAX: u32 = 200;
const PAUSE: Duration = Duration::from_millis(5);

/// Initiator ports that volumes may be withheld from.
const PORTS: u64 = 5;

fn port(number: u64) -> WithheldClient {
    WithheldClient::InitiatorPort(format!("iqn.2026-11.test:host-{number},i,0x80000000000{number}"))
}

impl Administrator {
    /// Clones a volume, rolls one back, or deletes what a rollback left.
    pub(super) async fn branch(&mut self, world: &World) -> Result<(), PoolRunError> {
        if self.fixture.plan.fills && self.random.percent(35.0) {
            return self.fill(world).await;
        }
        if self.fixture.plan.withholds && self.random.percent(60.0) {
            return if self.random.percent(30.0) {
                self.readmit().await
            } else {
                self.roll_back(world).await
            };
        }
        let is_crowded = self.fixture.model.borrow().usable().len() >= ALL_VOLUMES_MAX;
        match self.random.below(10) {
            0..=2 if !is_crowded => self.clone_snapshot().await,
            3..=4 if !is_crowded => self.clone_now().await,
            5..=6 if !is_crowded => self.roll_back(world).await,
            7 if !is_crowded => self.undo(world).await,
            _ => self.delete_left().await,
        }
    }

    pub(super) fn pick<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        (!all.is_empty()).then(|| all[self.random.below(all.len() as u64) as usize])
    }

    /// A snapshot of a volume without a change in flight.
    fn pick_snapshot(&mut self) -> Option<(CutKey, VolumeKey)> {
        let idle = self.fixture.model.borrow().idle();
        let mut there = self.fixture.model.borrow().readable_cuts();
        there.retain(|(_, volume)| idle.contains(volume));
        self.pick(&there)
    }

    async fn clone_snapshot(&mut self) -> Result<(), PoolRunError> {
        let Some((cut, source)) = self.pick_snapshot() else { return Ok(()) };
        self.clone_of(source, Some(cut)).await
    }

    async fn clone_now(&mut self) -> Result<(), PoolRunError> {
        let mut sources = self.fixture.model.borrow().idle();
        sources.extend(self.fixture.model.borrow().left());
        let Some(source) = self.pick(&sources) else { return Ok(()) };
        self.clone_of(source, None).await
    }

    async fn clone_of(&mut self, source: VolumeKey, cut: Option<CutKey>) -> Result<(), PoolRunError> {
        let name = format!("clone {:x}", self.random.next_u64());
        let (key, source_name, cut_name) = {
            let mut model = self.fixture.model.borrow_mut();
            let key = model.begin_clone(source, cut, name.clone());
            let cut_name = cut.map(|cut| model.cuts[&cut].name.clone());
            (key, model.volume(source).name.clone(), cut_name)
        };
        let is_independent = self.fixture.plan.fills && self.random.percent(60.0);
        let new = NewClone { name, volume: volume_id(key), is_independent };
        let at = cut_name.as_deref().map(Into::into);
        let cloned = self.pool.clone_volume(&source_name, at, &new).await;
        let presence = match &cloned {
            Ok(()) => Presence::There,
            Err(Error::TooDeep(_)) => Presence::Gone,
            Err(_) => Presence::Making,
        };
        self.fixture.model.borrow_mut().end_clone(key, source, presence);
        match cloned {
            Ok(()) => self.fixture.tally.borrow_mut().clones += 1,
            Err(Error::TooDeep(_)) => {}
            Err(error) => return Err(PoolRefusal::of_pool("cloning a volume", &error).into()),
        }
        Ok(())
    }

    /// Begins to fill a volume, gives that up, cancels the job, or lets it go on for a while.
    async fn fill(&mut self, world: &World) -> Result<(), PoolRunError> {
        let mut volumes = self.fixture.model.borrow().idle();
        volumes.extend(self.fixture.model.borrow().left());
        let Some(key) = self.pick(&volumes) else { return Ok(()) };
        let name = self.name_of(key);
        match self.random.below(10) {
            0..=4 => {
                self.set_busy(key, true);
                let begun = self.pool.fill_volume(&name).await;
                begun.map_err(|error| PoolRefusal::of_pool("filling a volume", &error))?;
                self.set_busy(key, false);
                self.fixture.tally.borrow_mut().fills += 1;
            }
            5..=6 => {
                self.set_busy(key, true);
                match self.pool.cancel_filling(&name).await {
                    Ok(()) | Err(Error::MustBeFilled(_)) => {}
                    Err(error) => {
                        return Err(PoolRefusal::of_pool("giving up the filling of a volume", &error).into());
                    }
                }
                self.set_busy(key, false);
            }
            7 => self.pool.cancel(JobKind::Fill),
            _ => world.sleep(Duration::from_millis(1 + self.random.below(500))).await,
        }
        Ok(())
    }

    fn set_busy(&mut self, key: VolumeKey, is_busy: bool) {
        self.fixture.model.borrow_mut().volume(key).is_busy = is_busy;
    }

    async fn roll_back(&mut self, world: &World) -> Result<(), PoolRunError> {
        let Some((cut, key)) = self.pick_snapshot() else { return Ok(()) };
        self.roll_back_to(world, key, EarlierState::Cut(cut)).await
    }

    async fn undo(&mut self, world: &World) -> Result<(), PoolRunError> {
        let lefts = {
            let model = self.fixture.model.borrow();
            let idle = model.idle();
            let left_by = |left: VolumeKey| model.volumes[&left].left_by.expect("a rollback left it");
            let pairs = model.left().into_iter().map(|left| (left, left_by(left)));
            pairs.filter(|(_, by)| idle.contains(by)).collect::<Vec<_>>()
        };
        match self.pick(&lefts) {
            Some((left, key)) => self.roll_back_to(world, key, EarlierState::Left(left)).await,
            None => self.take_a_place(world).await,
        }
    }

    /// Lets a volume without snapshots take the place of another one.
    async fn take_a_place(&mut self, world: &World) -> Result<(), PoolRunError> {
        let idle = self.fixture.model.borrow().idle();
        let mut without_cuts = idle.clone();
        without_cuts.retain(|key| !self.fixture.model.borrow().has_cuts(*key));
        let Some(taking) = self.pick(&without_cuts) else { return Ok(()) };
        let others: Vec<VolumeKey> = idle.into_iter().filter(|key| *key != taking).collect();
        let Some(key) = self.pick(&others) else { return Ok(()) };
        self.roll_back_to(world, key, EarlierState::Volume(taking)).await
    }

    /// Rolls a volume back, once hosts have no commands on it: those would happen before or after.
    async fn roll_back_to(
        &mut self,
        world: &World,
        key: VolumeKey,
        to: EarlierState,
    ) -> Result<(), PoolRunError> {
        // A command that the pool stopped waiting for may go on.
        let held: Vec<VolumeKey> = to.ended().into_iter().chain([key]).collect();
        if self.fixture.has_shortage() || !self.hold(world, &held).await {
            return Ok(());
        }
        let clients = self.draw_clients();
        let (left, name, goal) = {
            let mut model = self.fixture.model.borrow_mut();
            let goal = match to {
                EarlierState::Cut(cut) => model.cuts[&cut].name.clone(),
                EarlierState::Left(ended) | EarlierState::Volume(ended) => model.volume(ended).name.clone(),
            };
            let left = model.begin_rollback(key, to, clients.clone().unwrap_or_default());
            (left, model.volume(key).name.clone(), goal)
        };
        let goal = match to {
            EarlierState::Cut(_) => RollbackGoal::Snapshot(goal.as_str().into()),
            EarlierState::Left(_) => RollbackGoal::Left(goal.as_str().into()),
            EarlierState::Volume(_) => RollbackGoal::Volume(goal.as_str().into()),
        };
        let begun = self.fixture.model.borrow_mut().tick();
        let withheld = clients.as_ref().map_or(0, |clients| clients.len() as u64);
        let rolled_back = match clients {
            Some(clients) => {
                let clients: Vec<WithheldClient> = clients.into_iter().collect();
                self.pool.force_rollback(&name, goal, volume_id(left), &clients).await
            }
            None => self.pool.roll_back(&name, goal, volume_id(left), false).await,
        };
        match rolled_back {
            Ok(left_name) => {
                let mut model = self.fixture.model.borrow_mut();
                model.end_rollback(key, Some(left_name));
                model.is_stable_until(begun);
                let mut tally = self.fixture.tally.borrow_mut();
                tally.withheld += withheld;
                *match to {
                    EarlierState::Cut(_) => &mut tally.rollbacks,
                    EarlierState::Left(_) => &mut tally.undone,
                    EarlierState::Volume(_) => &mut tally.places_taken,
                } += 1;
                Ok(())
            }
            Err(
                Error::TooDeep(_) | Error::VolumeInUse(_) | Error::OtherClass(..) | Error::InGroup { .. },
            ) => {
                self.fixture.model.borrow_mut().end_rollback(key, None);
                Ok(())
            }
            Err(error) => Err(PoolRefusal::of_pool("rolling a volume back", &error).into()),
        }
    }

    /// Clients of a forced rollback; `None` for one that is not forced.
    fn draw_clients(&mut self) -> Option<BTreeSet<WithheldClient>> {
        let is_forced = self.random.percent(50.0);
        let mut clients = BTreeSet::new();
        if is_forced && self.fixture.plan.withholds {
            clients.extend((0..PORTS).filter(|_| self.random.percent(40.0)).map(port));
            clients.extend(self.random.percent(40.0).then_some(WithheldClient::AllNbd));
        }
        is_forced.then_some(clients)
    }

    /// Readmits some of the clients from which a volume is withheld.
    async fn readmit(&mut self) -> Result<(), PoolRunError> {
        let mut volumes = self.fixture.model.borrow().idle();
        volumes.retain(|key| !self.fixture.model.borrow().volumes[key].withheld.is_empty());
        let Some(key) = self.pick(&volumes) else { return Ok(()) };
        let withheld: Vec<WithheldClient> =
            self.fixture.model.borrow_mut().volume(key).withheld.iter().cloned().collect();
        let readmitting: BTreeSet<_> = withheld.into_iter().filter(|_| self.random.percent(60.0)).collect();
        let name = {
            let mut model = self.fixture.model.borrow_mut();
            let volume = model.volume(key);
            (volume.is_busy, volume.readmitting) = (true, readmitting.clone());
            volume.name.clone()
        };
        let readmitted = self.pool.readmit(&name, |client| readmitting.contains(client)).await;
        let readmitted = readmitted.map_err(|error| PoolRefusal::of_pool("readmitting clients", &error))?;
        let mut model = self.fixture.model.borrow_mut();
        let volume = model.volume(key);
        volume.withheld.retain(|client| !readmitting.contains(client));
        (volume.is_busy, volume.readmitting) = (false, BTreeSet::new());
        self.fixture.tally.borrow_mut().readmitted += readmitted.len() as u64;
        Ok(())
    }

    /// Keeps hosts off volumes. False if their commands do not end in time.
    pub(super) async fn hold(&mut self, world: &World, volumes: &[VolumeKey]) -> bool {
        let set = |is_held: bool, is_busy: bool| {
            let mut model = self.fixture.model.borrow_mut();
            for &key in volumes {
                let volume = model.volume(key);
                (volume.is_held, volume.is_busy) = (is_held, is_busy);
            }
        };
        set(true, true);
        for _ in 0..PAUSES_MAX {
            let is_used = {
                let model = self.fixture.model.borrow();
                volumes.iter().any(|key| model.volumes[key].commands > 0)
            };
            if !is_used {
                return true;
            }
            world.sleep(PAUSE).await;
        }
        set(false, false);
        false
    }

    async fn delete_left(&mut self) -> Result<(), PoolRunError> {
        let left = self.fixture.model.borrow().left();
        let Some(left) = self.pick(&left) else { return Ok(()) };
        self.delete_this_volume(left).await?;
        self.fixture.tally.borrow_mut().left_deleted += 1;
        Ok(())
    }
}

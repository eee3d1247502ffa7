//! Catalogue changes while hosts work: volumes created, renamed, resized, deleted; snapshots created and
//! deleted.

use super::{
    content::VolumeKey,
    fixture::{PoolFixture, snapshot_id, volume_id},
    model::{CutKey, PendingResize, Presence, VolumeModel, VolumeTerms},
    plan::PoolRunPlan,
    violation::{PoolRefusal, PoolRunError, PoolViolation},
};
use array::{
    error::Error,
    format::{RedundancyClass, row::WriteCache},
    pool::{NewSnapshot, NewVolume, Pool, VolumeSetting},
    volume::{Bounds, Rates},
};
use std::rc::Rc;
use world::{Random, World};

/// Number of volumes, at most.
const VOLUMES_MAX: usize = 6;
/// Sectors of a large volume: 64 GiB.
const LARGE_SECTORS: u64 = 64 << 21;

pub struct Administrator {
    /// State shared by the run.
    pub fixture: PoolFixture,
    pub pool: Rc<Pool>,
    pub random: Random,
}

impl Administrator {
    /// Issues all catalogue changes of this incarnation.
    pub async fn work(mut self, world: World) -> Result<(), PoolRunError> {
        for _ in 0..self.fixture.plan.verbs {
            let mean = self.fixture.plan.pause * 2;
            world.sleep(mean.mul_f64(-(1.0 - self.random.unit()).ln())).await;
            let done = match self.random.below(100) {
                _ if self.fixture.plan.groups && self.random.percent(40.0) => {
                    self.change_groups(&world).await
                }
                _ if self.fixture.plan.branches && self.random.percent(45.0) => self.branch(&world).await,
                0..=9 => self.create().await,
                10..=14 => self.rename().await,
                15..=16 => self.switch_cache().await,
                17..=20 => self.set_rates().await,
                21..=25 => self.set_bounds().await,
                26..=34 => self.resize().await,
                35..=39 => self.delete_volume().await,
                40..=69 => self.snapshot().await,
                70..=84 => self.delete_snapshot().await,
                85..=90 => self.checkpoint().await,
                91..=94 => self.clean().await,
                _ => self.send_invalid_commands().await,
            };
            match done {
                Err(PoolRunError::Refused(refusal)) if refusal.is_full && self.fixture.plan.is_tight => {
                    self.fixture.tally.borrow_mut().full += 1;
                }
                Err(PoolRunError::Refused(refusal))
                    if refusal.is_for_space() && self.fixture.has_shortage() =>
                {
                    self.fixture.tally.borrow_mut().out_of_space += 1;
                }
                done => done?,
            }
            self.fixture.tally.borrow_mut().verbs += 1;
        }
        Ok(())
    }

    pub(super) fn pick_idle(&mut self) -> Option<VolumeKey> {
        let idle = self.fixture.model.borrow().idle();
        (!idle.is_empty()).then(|| idle[self.random.below(idle.len() as u64) as usize])
    }

    pub(super) fn name_of(&self, key: VolumeKey) -> String {
        self.fixture.model.borrow_mut().volume(key).name.clone()
    }

    /// Creates a volume unless the maximum is reached.
    pub async fn create(&mut self) -> Result<(), PoolRunError> {
        if self.fixture.model.borrow().usable().len() >= VOLUMES_MAX {
            return Ok(());
        }
        let model = draw_volume(&mut self.random, &self.fixture.plan);
        let (name, size_bytes) = (model.name.clone(), model.size_bytes());
        let write_cache = if model.is_cached { WriteCache::On } else { WriteCache::Off };
        let is_raid0 = self.fixture.plan.has_raid0 && self.random.percent(50.0);
        let class = if is_raid0 { RedundancyClass::Raid0 } else { RedundancyClass::Raid1 };
        let (rates, bounds) = model.terms;
        let setting = VolumeSetting { class, write_cache, rates, bounds };
        let key = {
            let mut all = self.fixture.model.borrow_mut();
            let key = all.next_volume();
            all.is_bounded |= bounds != Bounds::default();
            all.add_volume(key, model);
            key
        };
        let created =
            self.pool.create_volume(&NewVolume { name, volume: volume_id(key), size_bytes, setting }).await;
        if let Err(Error::NoRoomToReserve { .. }) = created {
            self.fixture.model.borrow_mut().volume(key).presence = Presence::Gone;
            self.fixture.tally.borrow_mut().bounded += 1;
            return Ok(());
        }
        created.map_err(|error| PoolRefusal::of_pool("creating a volume", &error))?;
        self.fixture.tally.borrow_mut().capped += u64::from(rates != Rates::default());
        let mut model = self.fixture.model.borrow_mut();
        let volume = model.volume(key);
        (volume.presence, volume.is_busy) = (Presence::There, false);
        Ok(())
    }

    async fn rename(&mut self) -> Result<(), PoolRunError> {
        let Some(key) = self.pick_idle() else { return Ok(()) };
        let new_name = format!("volume {:x}", self.random.next_u64());
        let name = {
            let mut model = self.fixture.model.borrow_mut();
            let volume = model.volume(key);
            volume.is_busy = true;
            volume.new_name = Some(new_name.clone());
            volume.name.clone()
        };
        let renamed = self.pool.rename_volume(&name, &new_name).await;
        renamed.map_err(|error| PoolRefusal::of_pool("renaming a volume", &error))?;
        let mut model = self.fixture.model.borrow_mut();
        let volume = model.volume(key);
        (volume.name, volume.new_name, volume.is_busy) = (new_name, None, false);
        Ok(())
    }

    async fn switch_cache(&mut self) -> Result<(), PoolRunError> {
        let Some(key) = self.pick_idle() else { return Ok(()) };
        let (name, is_on, begun) = {
            let mut all = self.fixture.model.borrow_mut();
            let begun = all.tick();
            let volume = all.volume(key);
            let is_on = !volume.is_cached;
            volume.is_busy = true;
            volume.switches += 1;
            // While it is being switched off it may still be on.
            volume.is_cached = true;
            (volume.name.clone(), is_on, begun)
        };
        let write_cache = if is_on { WriteCache::On } else { WriteCache::Off };
        let switched = self.pool.set_write_cache(&name, write_cache).await;
        switched.map_err(|error| PoolRefusal::of_pool("switching a write cache", &error))?;
        let mut model = self.fixture.model.borrow_mut();
        let volume = model.volume(key);
        (volume.is_cached, volume.is_busy) = (is_on, false);
        model.is_stable_until(begun);
        Ok(())
    }

    async fn set_rates(&mut self) -> Result<(), PoolRunError> {
        let Some(key) = self.pick_idle() else { return Ok(()) };
        let rates = draw_rates(&mut self.random);
        let (name, terms) = self.begin_terms(key, |(_, bounds)| (rates, bounds));
        let done = self.pool.set_rates(&name, rates).await;
        done.map_err(|error| PoolRefusal::of_pool("changing what a volume may have", &error))?;
        self.end_terms(key, terms);
        Ok(())
    }

    async fn set_bounds(&mut self) -> Result<(), PoolRunError> {
        let Some(key) = self.pick_idle() else { return Ok(()) };
        let bounds = draw_bounds(&mut self.random, self.fixture.plan.window_sectors);
        let (name, terms) = self.begin_terms(key, |(rates, _)| (rates, bounds));
        match self.pool.set_bounds(&name, bounds).await {
            Ok(()) => self.end_terms(key, terms),
            Err(Error::NoRoomToReserve { .. }) => {
                let before = self.fixture.model.borrow_mut().volume(key).terms;
                self.end_terms(key, before);
                self.fixture.tally.borrow_mut().bounded += 1;
            }
            Err(error) => {
                return Err(PoolRefusal::of_pool("changing what a volume may take", &error).into());
            }
        }
        Ok(())
    }

    fn begin_terms(
        &mut self,
        key: VolumeKey,
        change: impl FnOnce(VolumeTerms) -> VolumeTerms,
    ) -> (String, VolumeTerms) {
        let mut all = self.fixture.model.borrow_mut();
        let volume = all.volume(key);
        let terms = change(volume.terms);
        volume.is_busy = true;
        volume.begin_terms(terms);
        let name = volume.name.clone();
        all.is_bounded |= terms.1 != Bounds::default();
        (name, terms)
    }

    fn end_terms(&mut self, key: VolumeKey, terms: VolumeTerms) {
        let mut all = self.fixture.model.borrow_mut();
        let volume = all.volume(key);
        (volume.terms, volume.new_terms, volume.is_busy) = (terms, None, false);
    }

    async fn resize(&mut self) -> Result<(), PoolRunError> {
        let Some(key) = self.pick_idle() else { return Ok(()) };
        let (name, resizing) = {
            let mut all = self.fixture.model.borrow_mut();
            let volume = all.volume(key);
            let sectors = draw_size(&mut self.random, volume, self.fixture.plan.window_sectors);
            let (name, before) = (volume.name.clone(), volume.sectors);
            let cleared = sectors.min(before)..before;
            let operation = all.next_operation(key, cleared.clone());
            let now = all.tick();
            let volume = all.volume(key);
            let resizing = PendingResize { sectors, operation };
            volume.is_busy = true;
            volume.resizes += 1;
            volume.resizing = Some(resizing);
            if !cleared.is_empty() {
                volume.register.begin_zeroes(cleared, operation, now);
                self.fixture.tally.borrow_mut().shrinks += 1;
            }
            (name, resizing)
        };
        let size_bytes = resizing.sectors * super::content::SECTOR_BYTES as u64;
        let resized = self.pool.resize_volume(&name, size_bytes).await;
        resized.map_err(|error| PoolRefusal::of_pool("resizing a volume", &error))?;
        let mut model = self.fixture.model.borrow_mut();
        let now = model.tick();
        let volume = model.volume(key);
        volume.has_size(resizing, now);
        volume.is_busy = false;
        Ok(())
    }

    async fn delete_volume(&mut self) -> Result<(), PoolRunError> {
        if self.fixture.model.borrow().usable().len() < 2 {
            return Ok(());
        }
        let Some(key) = self.pick_idle() else { return Ok(()) };
        if self.fixture.model.borrow().group_of(key).is_some() {
            return Ok(());
        }
        self.delete_this_volume(key).await
    }

    /// Deletes a volume, sometimes without its snapshots, which is refused if it has any.
    pub async fn delete_this_volume(&mut self, key: VolumeKey) -> Result<(), PoolRunError> {
        let (name, has_snapshots) = {
            let mut model = self.fixture.model.borrow_mut();
            let has_snapshots = model.readable_cuts().iter().any(|(_, volume)| *volume == key);
            let volume = model.volume(key);
            volume.is_busy = true;
            (volume.name.clone(), has_snapshots)
        };
        let with_snapshots = self.random.percent(70.0);
        if has_snapshots && !with_snapshots {
            let refused = self.pool.delete_volume(&name, false).await;
            self.fixture.model.borrow_mut().volume(key).is_busy = false;
            return match refused {
                Err(Error::HasSnapshots { .. }) => Ok(()),
                Err(error) => Err(PoolRefusal::of_pool("deleting a volume with snapshots", &error).into()),
                Ok(()) => {
                    Err(PoolViolation::NotRefused("deleting a volume with snapshots".to_owned()).into())
                }
            };
        }
        self.fixture.model.borrow_mut().volume(key).presence = Presence::Deleting;
        let deleted = self.pool.delete_volume(&name, with_snapshots).await;
        deleted.map_err(|error| PoolRefusal::in_reserve("deleting a volume", &error))?;
        let mut model = self.fixture.model.borrow_mut();
        model.volume(key).presence = Presence::Gone;
        for cut in model.cuts.values_mut() {
            if let Some(part) = cut.parts.get_mut(&key) {
                part.presence = Presence::Gone;
            }
        }
        self.fixture.tally.borrow_mut().volumes_deleted += 1;
        Ok(())
    }

    async fn snapshot(&mut self) -> Result<(), PoolRunError> {
        let mut volumes = self.fixture.model.borrow().idle();
        let percent = [100.0, 60.0, 30.0][self.random.below(3) as usize];
        let random = &mut self.random;
        volumes.retain(|_| random.percent(percent));
        if volumes.is_empty() {
            return Ok(());
        }
        let has_note = self.fixture.plan.notes && self.random.percent(50.0);
        let (cut, cut_name, note) = {
            let mut model = self.fixture.model.borrow_mut();
            let cut = model.begin_cut(&volumes, has_note);
            (cut, model.cuts[&cut].name.clone(), model.cuts[&cut].note.clone())
        };
        let names: Vec<String> = volumes.iter().map(|&key| self.name_of(key)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let new = NewSnapshot { name: &cut_name, snapshot: snapshot_id(cut), note: &note };
        let made = self.pool.take_snapshot(&names, &new).await;
        self.fixture.model.borrow_mut().end_cut(cut, made.is_ok());
        made.map_err(|error| PoolRefusal::of_pool("taking a snapshot", &error))?;
        self.fixture.tally.borrow_mut().snapshots += volumes.len() as u64;
        Ok(())
    }

    async fn delete_snapshot(&mut self) -> Result<(), PoolRunError> {
        let idle = self.fixture.model.borrow().idle();
        let mut there = self.fixture.model.borrow().readable_cuts();
        there.retain(|(_, volume)| idle.contains(volume));
        there.retain(|(cut, _)| self.fixture.model.borrow().cuts[cut].group.is_none());
        if there.is_empty() {
            return Ok(());
        }
        let (cut, volume) = there[self.random.below(there.len() as u64) as usize];
        let cut_name = {
            let mut model = self.fixture.model.borrow_mut();
            model.volume(volume).is_busy = true;
            let model_cut = model.cuts.get_mut(&cut).expect("it is there");
            model_cut.parts.get_mut(&volume).expect("it is there").presence = Presence::Deleting;
            model_cut.name.clone()
        };
        let deleted = self.pool.delete_snapshot(&self.name_of(volume), &cut_name).await;
        deleted.map_err(|error| PoolRefusal::in_reserve("deleting a snapshot", &error))?;
        let mut model = self.fixture.model.borrow_mut();
        model.volume(volume).is_busy = false;
        forget_part(&mut model.cuts, cut, volume);
        self.fixture.tally.borrow_mut().snapshots_deleted += 1;
        Ok(())
    }

    async fn checkpoint(&mut self) -> Result<(), PoolRunError> {
        let made = self.pool.checkpoint().await;
        made.map_err(|error| PoolRefusal::in_reserve("making a checkpoint", &error))?;
        self.fixture.tally.borrow_mut().checkpoints += 1;
        Ok(())
    }

    async fn clean(&mut self) -> Result<(), PoolRunError> {
        match self.pool.clean().await {
            // A scrub loses nothing; it skips failed drives.
            Ok(_) | Err(Error::Drive { .. } | Error::Full) => Ok(()),
            Err(error) => Err(PoolRefusal::in_reserve("cleaning", &error).into()),
        }
    }

    /// Issues invalid commands, which must be refused and change nothing.
    async fn send_invalid_commands(&mut self) -> Result<(), PoolRunError> {
        let Some(key) = self.pick_idle() else { return Ok(()) };
        self.fixture.model.borrow_mut().volume(key).is_busy = true;
        let name = self.name_of(key);
        let new = NewVolume {
            name: name.clone(),
            volume: volume_id(VolumeKey(u32::MAX)),
            size_bytes: 4096,
            setting: VolumeSetting::default(),
        };
        let (what, done) = match self.random.below(6) {
            0 => ("making a volume twice", self.pool.create_volume(&new).await),
            1 => ("a size that is none", self.pool.resize_volume(&name, 700).await),
            2 => ("renaming what is not there", self.pool.rename_volume("nobody", "somebody").await),
            3 => {
                let bounds = Bounds { reserve_bytes: 512, limit_bytes: 0 };
                ("bounds that are no blocks", self.pool.set_bounds(&name, bounds).await)
            }
            4 => ("a name that is none", self.pool.rename_volume(&name, "").await),
            _ => ("deleting what is not there", self.pool.delete_snapshot(&name, "nobody").await),
        };
        self.fixture.model.borrow_mut().volume(key).is_busy = false;
        match done {
            Err(_) => Ok(()),
            Ok(()) => Err(PoolViolation::NotRefused(what.to_owned()).into()),
        }
    }
}

fn forget_part(
    cuts: &mut std::collections::BTreeMap<CutKey, super::model::Cut>,
    cut: CutKey,
    volume: VolumeKey,
) {
    let parts = &mut cuts.get_mut(&cut).expect("it is there").parts;
    parts.get_mut(&volume).expect("it is there").presence = Presence::Gone;
    if parts.values().all(|part| part.presence == Presence::Gone) {
        cuts.remove(&cut);
    }
}

/// A volume with a few windows that hosts write to; some volumes are large and nearly empty.
fn draw_volume(random: &mut Random, plan: &PoolRunPlan) -> VolumeModel {
    let window = plan.window_sectors;
    let is_large = random.percent(25.0);
    let sectors = if is_large { LARGE_SECTORS - random.below(8) } else { 1 + random.below(3 * window) };
    let windows = if is_large {
        (0..3).map(|_| random.below(sectors)).chain([sectors - window.min(sectors)]).collect()
    } else {
        vec![0, sectors / 2]
    };
    let name = format!("volume {:x}", random.next_u64());
    let terms = (draw_rates(random), draw_bounds(random, window));
    let is_cached = random.percent(40.0) || plan.cuts_behind_replay;
    VolumeModel { is_cached, ..VolumeModel::new(name, sectors, windows).with_terms(terms) }
}

/// IOPS and bandwidth caps of some volumes, none so low that a run takes too long.
fn draw_rates(random: &mut Random) -> Rates {
    let mut draw = |caps: [u32; 2]| if random.percent(15.0) { caps[random.below(2) as usize] } else { 0 };
    Rates { iops_max: draw([50, 1_000]), kib_per_second_max: draw([2_000, 50_000]) }
}

/// Limits and reserves of some volumes, comparable to the bytes hosts write.
fn draw_bounds(random: &mut Random, window_sectors: u64) -> Bounds {
    let mut draw = |percent: f64| {
        let blocks = 1 + random.below(window_sectors / 4);
        if random.percent(percent) { blocks * 4096 } else { 0 }
    };
    let (limit_bytes, reserve_bytes) = (draw(25.0), draw(20.0));
    let reserve_bytes = if limit_bytes > 0 { reserve_bytes.min(limit_bytes) } else { reserve_bytes };
    Bounds { reserve_bytes, limit_bytes }
}

/// A new size: within a window that hosts write to, slightly smaller or larger, or much larger.
fn draw_size(random: &mut Random, volume: &VolumeModel, window_sectors: u64) -> u64 {
    let window = volume.windows[random.below(volume.windows.len() as u64) as usize];
    match random.below(4) {
        0 => 1 + window + random.below(window_sectors),
        1 => (volume.sectors - volume.sectors.min(random.below(20))).max(1),
        2 => volume.sectors + random.below(window_sectors),
        _ => 1 + random.below(volume.sectors),
    }
}

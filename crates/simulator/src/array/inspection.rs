//! Checks after an opening: everything required is present, and nothing else.
//!
//! First the catalogue; then snapshots, because what they show has happened; then the heads of volumes.

use super::{
    content::{SECTOR_BYTES, SectorContent, VolumeKey, content_of},
    fixture::{PoolFixture, cut_key},
    group_inspection::{check_groups, check_made_together},
    model::{CutKey, Model, Presence, VolumeModel},
    register::Interval,
    violation::{PoolRefusal, PoolRunError, PoolViolation},
};
use array::{
    format::row::WriteCache,
    pool::{Pool, VolumeInfo},
    volume::VolumeDevice,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    rc::Rc,
};
use world::{BlockDevice, Buffer, ByteOffset, Random};

/// Sectors of one read, at most.
const READ_SECTORS_MAX: u64 = 512;
/// Sectors of a pool block: reads extend a little beyond the written sectors.
const BLOCK_SECTORS: u64 = 8;

impl PoolFixture {
    /// Checks the catalogue of a newly opened pool against the model.
    pub fn check_catalogue(&self, pool: &Rc<Pool>) -> Result<(), PoolRunError> {
        let mut model = self.model.borrow_mut();
        model.settle();
        let is_lossy = self.is_untold.get();
        let infos = pool.volumes();
        let names: BTreeSet<&String> = infos.iter().map(|info| &info.name).collect();
        if names.len() != infos.len() {
            return Err(PoolViolation::Catalogue("two volumes have one name".to_owned()).into());
        }
        let found: BTreeMap<VolumeKey, &VolumeInfo> =
            infos.iter().map(|info| (model.key_of(info.volume), info)).collect();
        if let Some(unknown) = found.keys().find(|key| !model.volumes.contains_key(key)) {
            return Err(PoolViolation::Catalogue(format!("unknown volume {}", unknown.0)).into());
        }
        check_made_together(&mut model, &found, is_lossy)?;
        let keys: Vec<VolumeKey> = model.volumes.keys().copied().collect();
        for &key in &keys {
            settle_rollback(&mut model, key, &found);
        }
        for key in keys {
            check_volume(&mut model, key, found.get(&key).copied(), is_lossy)?;
        }
        let mut snapshots = BTreeMap::new();
        for (&key, info) in &found {
            let there = snapshots_of(&model, pool, (key, info), is_lossy)?;
            snapshots.extend(there.into_iter().map(|(cut, sectors)| ((cut, key), sectors)));
        }
        check_cuts(&mut model, &snapshots, is_lossy)?;
        check_groups(&mut model, pool, &found, is_lossy)?;
        Ok(())
    }

    /// Reads snapshots and volumes and checks them against the model; each snapshot with this probability.
    pub async fn check_contents(
        &self,
        pool: &Rc<Pool>,
        random: &mut Random,
        percent: f64,
    ) -> Result<(), PoolRunError> {
        let cuts = self.model.borrow().readable_cuts();
        for (cut, volume) in cuts {
            if random.percent(percent) {
                self.check_snapshot(pool, cut, volume).await?;
            }
        }
        self.check_cuts_at_one_moment()?;
        let volumes = self.model.borrow().usable();
        for volume in volumes {
            let (name, sectors, touched) = {
                let mut model = self.model.borrow_mut();
                let volume = model.volume(volume);
                (volume.name.clone(), volume.sectors, volume.register.touched(READ_SECTORS_MAX))
            };
            let device = pool.volume(&name).map(VolumeDevice);
            let device = device.map_err(|error| PoolRefusal::of_pool("finding a volume", &error))?;
            for run in within(touched, sectors) {
                self.read_volume(&device, volume, run).await?;
            }
        }
        Ok(())
    }

    /// Reads sectors of a volume and checks them against the model.
    pub async fn read_volume(
        &self,
        device: &dyn BlockDevice,
        volume: VolumeKey,
        sectors: Range<u64>,
    ) -> Result<(), PoolRunError> {
        let begun = self.model.borrow_mut().begin_look();
        let read = read_sectors(device, &sectors).await;
        let mut model = self.model.borrow_mut();
        let (span, is_alone) = model.end_look(begun);
        let bytes = read.map_err(|error| PoolRefusal::of_volume("reading a volume", &error))?;
        for (sector, bytes) in sectors.zip(bytes.chunks_exact(SECTOR_BYTES)) {
            self.check_sector(&mut model, volume, sector, bytes, (span, is_alone))?;
        }
        Ok(())
    }

    fn check_sector(
        &self,
        model: &mut Model,
        volume: VolumeKey,
        sector: u64,
        bytes: &[u8],
        (span, is_alone): (Interval, bool),
    ) -> Result<(), PoolRunError> {
        let content = content_of(bytes, &model.volumes[&volume].writers, sector);
        let wrong = |found: String, allowed: String| {
            let span = format!("{}..{}", span.begun, span.ended);
            PoolRunError::from(PoolViolation::WrongSector { volume, sector, found, allowed, span })
        };
        let content = content.map_err(|found| wrong(found, "what was written there".to_owned()))?;
        let was_written = is_known(model, content, volume, sector);
        if !was_written {
            return Err(wrong(format!("{content:?}"), "what was written there".to_owned()));
        }
        if !self.is_untold.get() {
            let cut = model.learn(volume, sector, content, span);
            if cut.gone < cut.survived {
                return Err(PoolViolation::NotTheEnd {
                    volume,
                    sector,
                    gone: cut.gone,
                    survived: cut.survived,
                }
                .into());
            }
            let mut tally = self.tally.borrow_mut();
            if cut.gone < u64::MAX {
                tally.caches_lost.insert(cut.at);
            }
        }
        let register = &mut model.volume(volume).register;
        if self.is_untold.get() {
            register.believe(sector, content, span.ended);
            return Ok(());
        }
        let checked = register.check(sector, content, span, is_alone);
        checked.map_err(|allowed| wrong(format!("{content:?}"), allowed))
    }

    async fn check_snapshot(
        &self,
        pool: &Rc<Pool>,
        cut: CutKey,
        volume: VolumeKey,
    ) -> Result<(), PoolRunError> {
        let (volume_name, name, sectors, touched) = {
            let model = self.model.borrow();
            let cut = &model.cuts[&cut];
            let part = &cut.parts[&volume];
            let register = part.register.as_ref().expect("a snapshot that is there is frozen");
            let name = model.volumes[&volume].name.clone();
            (name, cut.name.clone(), part.sectors, register.touched(READ_SECTORS_MAX))
        };
        let device = pool.snapshot_device(&volume_name, &name);
        let device = device.map_err(|error| PoolRefusal::of_pool("finding a snapshot", &error))?;
        for run in within(touched, sectors) {
            self.read_snapshot(&device, (cut, volume), run).await?;
        }
        Ok(())
    }

    /// Reads sectors of a snapshot and checks them against the model.
    pub async fn read_snapshot(
        &self,
        device: &dyn BlockDevice,
        (cut, volume): (CutKey, VolumeKey),
        sectors: Range<u64>,
    ) -> Result<(), PoolRunError> {
        let read = read_sectors(device, &sectors).await;
        let bytes = read.map_err(|error| PoolRefusal::of_volume("reading a snapshot", &error))?;
        let mut model = self.model.borrow_mut();
        for (sector, bytes) in sectors.zip(bytes.chunks_exact(SECTOR_BYTES)) {
            let content = content_of(bytes, &model.volumes[&volume].writers, sector);
            let was_written =
                content.as_ref().is_ok_and(|content| is_known(&model, *content, volume, sector));
            let Some(model_cut) = model.cuts.get_mut(&cut) else { return Ok(()) };
            let snapshot = model_cut.name.clone();
            let wrong = |found: String, allowed: String| {
                PoolRunError::from(PoolViolation::WrongSnapshot { snapshot, volume, sector, found, allowed })
            };
            let content = match content {
                Ok(content) if was_written => content,
                other => return Err(wrong(format!("{other:?}"), "what was written there".to_owned())),
            };
            let part = model_cut.parts.get_mut(&volume).expect("a part of the cut");
            let register = part.register.as_mut().expect("a snapshot that is there is frozen");
            if self.is_untold.get() {
                register.believe(sector, content);
                continue;
            }
            register.check(sector, content).map_err(|allowed| wrong(format!("{content:?}"), allowed))?;
            let (ended, line) = (register.span().ended, part.line);
            if let SectorContent::Of(operation) = content
                && let Some(register) = model.register_of(line)
            {
                register.note_seen(sector, operation, ended);
            }
        }
        Ok(())
    }

    /// Checks that fully read cuts show everything acknowledged before any operation they show began.
    fn check_cuts_at_one_moment(&self) -> Result<(), PoolViolation> {
        if self.is_untold.get() {
            return Ok(());
        }
        let mut model = self.model.borrow_mut();
        let mut checked = 0;
        for cut in model.cuts.values_mut().filter(|cut| !cut.is_checked) {
            let there: Vec<_> =
                cut.parts.iter().filter(|(_, part)| part.presence == Presence::There).collect();
            let registers: Vec<_> =
                there.iter().filter_map(|(key, part)| Some((**key, part.register.as_ref()?))).collect();
            if registers.is_empty() || !registers.iter().all(|(_, register)| register.is_known()) {
                continue;
            }
            let moment = registers.iter().map(|(_, register)| register.latest_seen()).max().unwrap_or(0);
            for (volume, register) in &registers {
                register.check_behind(moment).map_err(|(sector, allowed)| PoolViolation::NotOneMoment {
                    snapshot: cut.name.clone(),
                    volume: *volume,
                    sector,
                    allowed,
                })?;
            }
            checked += u64::from(registers.len() > 1);
            cut.is_checked = true;
        }
        self.tally.borrow_mut().cuts_checked += checked;
        Ok(())
    }
}

fn is_known(model: &Model, content: SectorContent, volume: VolumeKey, sector: u64) -> bool {
    match content {
        SectorContent::Zeroes => true,
        SectorContent::Of(operation) => model.has_written(operation, volume, sector),
    }
}

/// Runs extended to whole blocks, within `sectors`.
pub(super) fn within(runs: Vec<Range<u64>>, sectors: u64) -> impl Iterator<Item = Range<u64>> {
    let widened = runs.into_iter().map(move |run| {
        let start = run.start / BLOCK_SECTORS * BLOCK_SECTORS;
        start..(run.end.div_ceil(BLOCK_SECTORS) * BLOCK_SECTORS).min(sectors)
    });
    widened.filter(|run| run.start < run.end)
}

pub async fn read_sectors(device: &dyn BlockDevice, sectors: &Range<u64>) -> world::IoResult<Buffer> {
    let bytes = (sectors.end - sectors.start) as usize * SECTOR_BYTES;
    let at = ByteOffset(sectors.start * SECTOR_BYTES as u64);
    let mut read = device.read(at, vec![Buffer::zeroed(bytes)]).await?;
    Ok(read.pop().expect("a read gives its buffer back"))
}

/// Ends a rollback in flight. It has happened exactly if its volume of before is there: one record has both.
fn settle_rollback(model: &mut Model, key: VolumeKey, found: &BTreeMap<VolumeKey, &VolumeInfo>) {
    if let Some(rolling) = &model.volumes[&key].rolling {
        let left = found.get(&rolling.left).map(|info| info.name.clone());
        model.end_rollback(key, left);
    }
}

fn check_volume(
    model: &mut Model,
    key: VolumeKey,
    found: Option<&VolumeInfo>,
    is_lossy: bool,
) -> Result<(), PoolViolation> {
    let now = model.tick();
    let volume = model.volume(key);
    let (may_be, must_be) = volume.presence.may_and_must_be();
    let wrong = |what: &str| Err(PoolViolation::Catalogue(format!("volume {} {what}", key.0)));
    volume.is_busy = false;
    let Some(info) = found else {
        volume.presence = Presence::Gone;
        return if must_be && !is_lossy { wrong("is lost") } else { Ok(()) };
    };
    if !may_be && !is_lossy {
        return wrong("is back");
    }
    volume.presence = Presence::There;
    let new_name = volume.new_name.take();
    if info.name != volume.name && Some(&info.name) != new_name.as_ref() && !is_lossy {
        return wrong(&format!("is named {:?}, not {:?} or {new_name:?}", info.name, volume.name));
    }
    volume.name = info.name.clone();
    if info.left_by.is_some() != volume.left_by.is_some() && !is_lossy {
        return wrong(&format!("is left by {:?}, not by {:?}", info.left_by, volume.left_by));
    }
    volume.is_cached = info.setting.write_cache == WriteCache::On;
    let terms = (info.setting.rates, info.setting.bounds);
    let new_terms = volume.new_terms.take();
    if terms != volume.terms && Some(terms) != new_terms && !is_lossy {
        return wrong(&format!("has {terms:?}, not {:?} or {new_terms:?}", volume.terms));
    }
    volume.terms = terms;
    check_withheld(volume, info, is_lossy).or_else(|what| wrong(&what))?;
    let sectors = info.size_bytes / SECTOR_BYTES as u64;
    match volume.resizing {
        Some(resizing) if resizing.sectors == sectors => volume.has_size(resizing, now),
        _ if volume.sectors == sectors => volume.keeps_size(),
        _ if is_lossy => {
            volume.resizing = None;
            volume.sectors = sectors;
        }
        resizing => {
            return wrong(&format!("has {sectors} sectors, not {} or {resizing:?}", volume.sectors));
        }
    }
    Ok(())
}

/// Fails unless the volume is withheld from all clients that it must be withheld from, and no others.
fn check_withheld(volume: &mut VolumeModel, info: &VolumeInfo, is_lossy: bool) -> Result<(), String> {
    let found: BTreeSet<_> = info.withheld_from.iter().map(|row| row.client.clone()).collect();
    let readmitting = std::mem::take(&mut volume.readmitting);
    let must_be: BTreeSet<_> = volume.withheld.difference(&readmitting).cloned().collect();
    let is_allowed = found.is_superset(&must_be) && found.is_subset(&volume.withheld);
    if !is_allowed && !is_lossy {
        return Err(format!("is withheld from {found:?}, not {:?} or {must_be:?}", volume.withheld));
    }
    volume.withheld = found;
    Ok(())
}

/// The pool's snapshots of a volume, with their sizes in sectors.
fn snapshots_of(
    model: &Model,
    pool: &Rc<Pool>,
    (key, info): (VolumeKey, &VolumeInfo),
    is_lossy: bool,
) -> Result<BTreeMap<CutKey, u64>, PoolViolation> {
    let wrong = |what: String| Err(PoolViolation::Catalogue(format!("volume {}: {what}", key.0)));
    let listed = match pool.snapshots(&info.name) {
        Ok(listed) => listed,
        Err(error) => return wrong(error.to_string()),
    };
    let mut there = BTreeMap::new();
    for snapshot in &listed {
        let cut = cut_key(snapshot.snapshot);
        let part = model.cuts.get(&cut).and_then(|cut| cut.parts.get(&key));
        let may_be = part.is_some_and(|part| part.presence.may_and_must_be().0);
        if !may_be && !is_lossy {
            return wrong(format!("snapshot {:?} is back, or was never made", snapshot.name));
        }
        let Some(part) = part else { continue };
        let size = part.sectors * SECTOR_BYTES as u64;
        if (&snapshot.name, snapshot.size_bytes) != (&model.cuts[&cut].name, size) && !is_lossy {
            return wrong(format!("{snapshot:?} is not {:?} of {size} bytes", model.cuts[&cut].name));
        }
        if snapshot.note != model.cuts[&cut].note && !is_lossy {
            return wrong(format!("the note of {:?} has {} other bytes", snapshot.name, snapshot.note.len()));
        }
        if there.last_key_value().is_some_and(|(&last, _)| last >= cut) && !is_lossy {
            return wrong("snapshots are not in their order".to_owned());
        }
        there.insert(cut, part.sectors);
    }
    if info.snapshots != listed.len() {
        return wrong(format!("{} snapshots counted, {} listed", info.snapshots, listed.len()));
    }
    Ok(there)
}

fn check_cuts(
    model: &mut Model,
    found: &BTreeMap<(CutKey, VolumeKey), u64>,
    is_lossy: bool,
) -> Result<(), PoolViolation> {
    let usable: BTreeSet<VolumeKey> = model.usable().into_iter().collect();
    for (&key, cut) in &mut model.cuts {
        let (mut unanswered, mut undecided) = (BTreeSet::new(), BTreeSet::new());
        for (&volume, part) in &mut cut.parts {
            let is_found = found.contains_key(&(key, volume));
            let (_, must_be) = part.presence.may_and_must_be();
            if must_be && !is_found && usable.contains(&volume) && !is_lossy {
                return Err(PoolViolation::Catalogue(format!("{} of volume {} is lost", cut.name, volume.0)));
            }
            if part.presence == Presence::Making {
                unanswered.insert(is_found);
            }
            if part.presence == Presence::Deleting && usable.contains(&volume) {
                undecided.insert(is_found);
            }
            part.presence = if is_found { Presence::There } else { Presence::Gone };
        }
        if unanswered.len() > 1 && !is_lossy {
            return Err(PoolViolation::Catalogue(format!("{} was made of some of its volumes", cut.name)));
        }
        if undecided.len() > 1 && !is_lossy {
            return Err(PoolViolation::Catalogue(format!("{} was deleted of some of its volumes", cut.name)));
        }
    }
    model.cuts.retain(|_, cut| cut.parts.values().any(|part| part.presence == Presence::There));
    Ok(())
}

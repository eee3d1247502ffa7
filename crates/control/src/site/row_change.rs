//! One change of what a site serves: of a target, a unit, an initiator, an export or a schedule. Pure: a [`Site`] is changed, and
//! nothing is done.
//!
//! Invariants:
//!
//! 1. A change concerns the row that it names, and references to a row that it takes away: rights on a target that is deleted
//!    go with it.
//! 2. A change that was made already is found to be made, and changes nothing: it may be repeated.

use super::row_refusal::RowRefusal;
use plan::site::{Site, SiteExport, SiteInitiator, SiteTarget, SiteUnit, Snapshots, split_snapshot};
use serving::export::name_of;

/// A change of one row.
#[derive(Clone, Debug, PartialEq)]
pub enum SiteRowChange {
    /// A target, and the initiators that may use it.
    CreateTarget {
        target: SiteTarget,
        initiators: Vec<String>,
    },
    SetTarget {
        target: String,
        open: bool,
    },
    DeleteTarget {
        target: String,
    },
    AddUnit {
        target: String,
        unit: NewUnit,
    },
    SetUnit {
        target: String,
        number: u64,
        patch: UnitPatch,
    },
    RemoveUnit {
        target: String,
        number: u64,
    },
    CreateInitiator {
        initiator: SiteInitiator,
    },
    SetInitiator {
        initiator: String,
        patch: InitiatorPatch,
    },
    DeleteInitiator {
        initiator: String,
    },
    CreateExport {
        export: SiteExport,
    },
    DeleteExport {
        export: String,
    },
    CreateSchedule {
        schedule: Snapshots,
    },
    SetSchedule {
        schedule: String,
        patch: SchedulePatch,
    },
    DeleteSchedule {
        schedule: String,
    },
}

/// A unit to add.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewUnit {
    /// The lowest free one if `None`.
    pub number: Option<u64>,
    /// `VOLUME`, `POOL/VOLUME`, either with `@SNAPSHOT`.
    pub volume: String,
    pub read_only: bool,
    pub shared: bool,
    pub write_cache: Option<bool>,
}

/// New values of a unit. What is `None` stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnitPatch {
    pub volume: Option<String>,
    pub read_only: Option<bool>,
    pub shared: Option<bool>,
    /// `Some(None)` is the volume's own setting.
    pub write_cache: Option<Option<bool>>,
}

/// New values of an initiator. What is `None` stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InitiatorPatch {
    /// User name for CHAP.
    pub user: Option<String>,
    /// File with the secret, which is read again.
    pub secret_file: Option<String>,
    /// Its name is believed from now on.
    pub without_chap: bool,
    pub uses: Option<Vec<String>>,
    pub reads: Option<Vec<String>>,
}

/// New values of a schedule. What is `None` stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulePatch {
    pub groups: Option<Vec<String>>,
    pub volumes: Option<Vec<String>>,
    pub every_hours: Option<f64>,
    /// Empty for none.
    pub at: Option<String>,
    pub keep: Option<u32>,
}

/// The effect of a change on a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowEffect {
    Created,
    Changed,
    Removed,
    /// It was made already.
    None,
}

/// The row that a change is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SiteRow<'s> {
    Target(&'s SiteTarget),
    Initiator(&'s SiteInitiator),
    Export(&'s SiteExport),
    Schedule(&'s Snapshots),
}

impl SiteRowChange {
    /// Makes the change in a site, whose references say the groups of volumes.
    ///
    /// # Errors
    ///
    /// It names something that is not there, or whose name something else has. The site is not to be used then.
    pub fn make(self, site: &mut Site) -> Result<RowEffect, RowRefusal> {
        match self {
            Self::CreateTarget { target, initiators } => create_target(site, target, &initiators),
            Self::SetTarget { target, open } => {
                let known = target_mut(site, &target)?;
                let effect = changed(known.open != open);
                known.open = open;
                Ok(effect)
            }
            Self::DeleteTarget { target } => {
                let name = target_mut(site, &target)?.name.clone();
                site.targets.retain(|known| known.name != name);
                let units = format!("{name}/");
                forget_rights(site, |meant| meant == name || meant.starts_with(&units));
                Ok(RowEffect::Removed)
            }
            Self::AddUnit { target, unit } => add_unit(site, &target, unit),
            Self::SetUnit { target, number, patch } => set_unit(site, &target, number, patch),
            Self::RemoveUnit { target, number } => {
                let known = target_mut(site, &target)?;
                let name = known.name.clone();
                if known.units.extract_if(.., |unit| unit.number == number).count() == 0 {
                    return Err(RowRefusal::not_found(format!("target {name} has no unit {number}")));
                }
                let unit = format!("{name}/{number}");
                forget_rights(site, |meant| meant == unit);
                Ok(RowEffect::Removed)
            }
            Self::CreateInitiator { initiator } => create_initiator(site, initiator),
            Self::SetInitiator { initiator, patch } => set_initiator(site, &initiator, patch),
            Self::DeleteInitiator { initiator } => {
                let is_meant = |known: &mut SiteInitiator| known.name.eq_ignore_ascii_case(&initiator);
                match site.initiators.extract_if(.., is_meant).count() {
                    0 => Err(RowRefusal::not_found(format!("there is no initiator {initiator}"))),
                    _ => Ok(RowEffect::Removed),
                }
            }
            Self::CreateExport { export } => create_export(site, export),
            Self::DeleteExport { export } => {
                match site.exports.extract_if(.., |known| known.name == export).count() {
                    0 => Err(RowRefusal::not_found(format!("there is no NBD export {export}"))),
                    _ => Ok(RowEffect::Removed),
                }
            }
            Self::CreateSchedule { schedule } => create_schedule(site, schedule),
            Self::SetSchedule { schedule, patch } => set_schedule(site, &schedule, patch),
            Self::DeleteSchedule { schedule } => {
                match site.snapshots.extract_if(.., |known| known.name == schedule).count() {
                    0 => Err(RowRefusal::not_found(format!("there is no schedule {schedule}"))),
                    _ => Ok(RowEffect::Removed),
                }
            }
        }
    }

    /// It makes a row, or a unit.
    pub fn is_creation(&self) -> bool {
        matches!(
            self,
            Self::CreateTarget { .. }
                | Self::AddUnit { .. }
                | Self::CreateInitiator { .. }
                | Self::CreateExport { .. }
                | Self::CreateSchedule { .. }
        )
    }

    /// It takes a row away, or a unit.
    pub fn is_removal(&self) -> bool {
        matches!(
            self,
            Self::DeleteTarget { .. }
                | Self::RemoveUnit { .. }
                | Self::DeleteInitiator { .. }
                | Self::DeleteExport { .. }
                | Self::DeleteSchedule { .. }
        )
    }

    /// The initiator that the change is about.
    pub fn initiator(&self) -> Option<&str> {
        match self {
            Self::CreateInitiator { initiator } => Some(&initiator.name),
            Self::SetInitiator { initiator, .. } | Self::DeleteInitiator { initiator } => Some(initiator),
            _ => None,
        }
    }

    /// The row that the change is about, as it is in a site.
    pub fn row<'s>(&self, site: &'s Site) -> Option<SiteRow<'s>> {
        match self {
            Self::CreateTarget { target, .. } => find_target(site, &target.name).map(SiteRow::Target),
            Self::SetTarget { target, .. }
            | Self::DeleteTarget { target }
            | Self::AddUnit { target, .. }
            | Self::SetUnit { target, .. }
            | Self::RemoveUnit { target, .. } => find_target(site, target).map(SiteRow::Target),
            Self::CreateInitiator { initiator } => {
                find_initiator(site, &initiator.name).map(SiteRow::Initiator)
            }
            Self::SetInitiator { initiator, .. } | Self::DeleteInitiator { initiator } => {
                find_initiator(site, initiator).map(SiteRow::Initiator)
            }
            Self::CreateExport { export: SiteExport { name, .. } } | Self::DeleteExport { export: name } => {
                site.exports.iter().find(|known| known.name == *name).map(SiteRow::Export)
            }
            Self::CreateSchedule { schedule: Snapshots { name, .. } }
            | Self::SetSchedule { schedule: name, .. }
            | Self::DeleteSchedule { schedule: name } => {
                site.snapshots.iter().find(|known| known.name == *name).map(SiteRow::Schedule)
            }
        }
    }
}

/// The target of a name, or of an iSCSI name.
pub fn find_target<'s>(site: &'s Site, meant: &str) -> Option<&'s SiteTarget> {
    site.targets.iter().find(|target| is_target(target, meant))
}

/// The initiator of an iSCSI name.
pub fn find_initiator<'s>(site: &'s Site, meant: &str) -> Option<&'s SiteInitiator> {
    site.initiators.iter().find(|initiator| initiator.name.eq_ignore_ascii_case(meant))
}

fn is_target(target: &SiteTarget, meant: &str) -> bool {
    target.name == meant || name_of(&target.name).eq_ignore_ascii_case(meant)
}

fn target_mut<'s>(site: &'s mut Site, meant: &str) -> Result<&'s mut SiteTarget, RowRefusal> {
    let found = site.targets.iter_mut().find(|target| is_target(target, meant));
    found.ok_or_else(|| RowRefusal::not_found(format!("there is no target {meant}")))
}

fn changed(is_changed: bool) -> RowEffect {
    if is_changed { RowEffect::Changed } else { RowEffect::None }
}

/// `POOL/VOLUME`, with the snapshot if there is one.
fn whole_volume(site: &Site, meant: &str) -> Result<String, RowRefusal> {
    let Some(volume) = site.served_volume(meant) else {
        let (name, _) = split_snapshot(meant);
        return Err(match site.volumes.iter().any(|known| known.name == name) {
            true => {
                RowRefusal::bad(format!("several pools have a volume {name}"), format!("say POOL/{name}"))
            }
            false => RowRefusal::not_found(format!("there is no volume {name} in the pools that are open")),
        });
    };
    let snapshot = split_snapshot(meant).1.map_or(String::new(), |snapshot| format!("@{snapshot}"));
    Ok(format!("{}/{}{snapshot}", volume.group, volume.name))
}

/// References of rights, by the names that targets have; each once.
fn whole_rights(site: &Site, meant: Vec<String>) -> Result<Vec<String>, RowRefusal> {
    let mut rights: Vec<String> = Vec::new();
    for meant in meant {
        let whole = match find_target(site, &meant) {
            Some(target) => target.name.clone(),
            None => {
                let found = meant.rsplit_once('/').and_then(|(target, number)| {
                    let (target, number) = (find_target(site, target)?, number.parse::<u64>().ok()?);
                    let is_there = target.units.iter().any(|unit| unit.number == number);
                    is_there.then(|| format!("{}/{number}", target.name))
                });
                found.ok_or_else(|| {
                    RowRefusal::not_found(format!("there is no target or unit {meant} to be used"))
                })?
            }
        };
        if !rights.contains(&whole) {
            rights.push(whole);
        }
    }
    Ok(rights)
}

/// Takes rights away from all initiators.
fn forget_rights(site: &mut Site, is_gone: impl Fn(&str) -> bool) {
    for initiator in &mut site.initiators {
        initiator.uses.retain(|meant| !is_gone(meant));
        initiator.reads.retain(|meant| !is_gone(meant));
    }
}

fn create_target(
    site: &mut Site,
    mut target: SiteTarget,
    initiators: &[String],
) -> Result<RowEffect, RowRefusal> {
    check_target_name(&target.name)?;
    for unit in &mut target.units {
        unit.volume = whole_volume(site, &unit.volume)?;
    }
    if let Some(missing) = initiators.iter().find(|name| find_initiator(site, name).is_none()) {
        return Err(RowRefusal::not_found(format!("there is no initiator {missing}")));
    }
    let is_listed =
        |known: &SiteInitiator| initiators.iter().any(|name| known.name.eq_ignore_ascii_case(name));
    if let Some(known) = find_target(site, &target.name) {
        let users_are_same = site
            .initiators
            .iter()
            .all(|initiator| is_listed(initiator) == initiator.uses.contains(&known.name));
        return match *known == target && users_are_same {
            true => Ok(RowEffect::None),
            false => Err(RowRefusal::exists(format!("there is another target {}", known.name))),
        };
    }
    let name = target.name.clone();
    site.targets.push(target);
    for initiator in site.initiators.iter_mut().filter(|initiator| is_listed(initiator)) {
        initiator.uses.push(name.clone());
    }
    Ok(RowEffect::Created)
}

/// Refuses a name that other rows could not refer to.
fn check_target_name(name: &str) -> Result<(), RowRefusal> {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-.:".contains(char);
    match !name.is_empty() && name.len() <= 180 && name.chars().all(is_plain) {
        true => Ok(()),
        false => Err(RowRefusal::bad(
            format!("{name:?} is no name of a target"),
            "use letters, digits, '-', '.' and ':', at most 180".to_owned(),
        )),
    }
}

fn add_unit(site: &mut Site, target: &str, unit: NewUnit) -> Result<RowEffect, RowRefusal> {
    let NewUnit { number, volume, read_only, shared, write_cache } = unit;
    let volume = whole_volume(site, &volume)?;
    let known = target_mut(site, target)?;
    let is_same = |known: &&SiteUnit| {
        known.volume == volume
            && number.is_none_or(|number| number == known.number)
            && (known.read_only, known.shared, known.write_cache) == (read_only, shared, write_cache)
    };
    if known.units.iter().find(is_same).is_some() {
        return Ok(RowEffect::None);
    }
    let is_taken = |number: u64| known.units.iter().any(|unit| unit.number == number);
    let number = match number {
        Some(number) if is_taken(number) => {
            return Err(RowRefusal::exists(format!("target {} has another unit {number}", known.name)));
        }
        Some(number) => number,
        None => (0..).find(|&number| !is_taken(number)).expect("numbers do not end"),
    };
    known.units.push(SiteUnit { number, volume, read_only, shared, write_cache });
    known.units.sort_by_key(|unit| unit.number);
    Ok(RowEffect::Created)
}

fn set_unit(site: &mut Site, target: &str, number: u64, patch: UnitPatch) -> Result<RowEffect, RowRefusal> {
    let volume = patch.volume.map(|volume| whole_volume(site, &volume)).transpose()?;
    let known = target_mut(site, target)?;
    let name = known.name.clone();
    let unit = known.units.iter_mut().find(|unit| unit.number == number);
    let unit = unit.ok_or_else(|| RowRefusal::not_found(format!("target {name} has no unit {number}")))?;
    let before = unit.clone();
    *unit = SiteUnit {
        number,
        volume: volume.unwrap_or_else(|| before.volume.clone()),
        read_only: patch.read_only.unwrap_or(before.read_only),
        shared: patch.shared.unwrap_or(before.shared),
        write_cache: patch.write_cache.unwrap_or(before.write_cache),
    };
    Ok(changed(*unit != before))
}

fn create_initiator(site: &mut Site, initiator: SiteInitiator) -> Result<RowEffect, RowRefusal> {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-.:".contains(char);
    let is_named =
        ["iqn.", "eui.", "naa."].iter().any(|kind| initiator.name.to_ascii_lowercase().starts_with(kind));
    if !is_named || initiator.name.len() > 223 || !initiator.name.chars().all(is_plain) {
        return Err(RowRefusal::bad(
            format!("{:?} is no iSCSI name", initiator.name),
            "it begins with iqn., eui. or naa.; open-iscsi has it in /etc/iscsi/initiatorname.iscsi"
                .to_owned(),
        ));
    }
    let uses = whole_rights(site, initiator.uses)?;
    let reads = whole_rights(site, initiator.reads)?;
    let initiator = SiteInitiator { uses, reads, ..initiator };
    if let Some(known) = find_initiator(site, &initiator.name) {
        return match *known == initiator {
            true => Ok(RowEffect::None),
            false => Err(RowRefusal::exists(format!("there is another initiator {}", known.name))),
        };
    }
    site.initiators.push(initiator);
    Ok(RowEffect::Created)
}

fn set_initiator(site: &mut Site, name: &str, patch: InitiatorPatch) -> Result<RowEffect, RowRefusal> {
    let uses = patch.uses.map(|uses| whole_rights(site, uses)).transpose()?;
    let reads = patch.reads.map(|reads| whole_rights(site, reads)).transpose()?;
    let known = site.initiators.iter_mut().find(|known| known.name.eq_ignore_ascii_case(name));
    let known = known.ok_or_else(|| RowRefusal::not_found(format!("there is no initiator {name}")))?;
    let before = known.clone();
    let is_secret_read = patch.secret_file.is_some();
    if patch.without_chap {
        known.user.clear();
        known.secret_file.clear();
    }
    known.user = patch.user.unwrap_or_else(|| known.user.clone());
    known.secret_file = patch.secret_file.unwrap_or_else(|| known.secret_file.clone());
    known.uses = uses.unwrap_or_else(|| before.uses.clone());
    known.reads = reads.unwrap_or_else(|| before.reads.clone());
    Ok(changed(*known != before || is_secret_read))
}

fn create_export(site: &mut Site, mut export: SiteExport) -> Result<RowEffect, RowRefusal> {
    if export.name.is_empty() || export.name.len() > 255 || export.name.chars().any(char::is_control) {
        let next = "use 1 to 255 bytes without control characters".to_owned();
        return Err(RowRefusal::bad(format!("{:?} is no name of an export", export.name), next));
    }
    export.volume = whole_volume(site, &export.volume)?;
    if let Some(known) = site.exports.iter().find(|known| known.name == export.name) {
        return match *known == export {
            true => Ok(RowEffect::None),
            false => Err(RowRefusal::exists(format!("there is another NBD export {}", known.name))),
        };
    }
    site.exports.push(export);
    Ok(RowEffect::Created)
}

fn create_schedule(site: &mut Site, schedule: Snapshots) -> Result<RowEffect, RowRefusal> {
    let volumes = scheduled(site, schedule.volumes, &schedule.groups)?;
    let schedule = Snapshots { volumes, ..schedule };
    if let Some(known) = site.snapshots.iter().find(|known| known.name == schedule.name) {
        return match *known == schedule {
            true => Ok(RowEffect::None),
            false => Err(RowRefusal::exists(format!("there is another schedule {}", known.name))),
        };
    }
    site.snapshots.push(schedule);
    Ok(RowEffect::Created)
}

fn set_schedule(site: &mut Site, name: &str, patch: SchedulePatch) -> Result<RowEffect, RowRefusal> {
    let groups = patch.groups.clone().unwrap_or_default();
    let volumes = patch.volumes.map(|volumes| scheduled(site, volumes, &groups)).transpose()?;
    if patch.groups.is_some() && volumes.is_none() {
        scheduled(site, Vec::new(), &groups)?;
    }
    let known = site.snapshots.iter_mut().find(|known| known.name == name);
    let known = known.ok_or_else(|| RowRefusal::not_found(format!("there is no schedule {name}")))?;
    if known.is_set() {
        return Err(RowRefusal::exists(format!(
            "{name} is a set of backups; change its table in the site file"
        )));
    }
    let before = known.clone();
    known.groups = patch.groups.unwrap_or_else(|| before.groups.clone());
    known.volumes = volumes.unwrap_or_else(|| before.volumes.clone());
    known.every_hours = patch.every_hours.or(before.every_hours);
    known.at = patch.at.unwrap_or_else(|| before.at.clone());
    known.keep = patch.keep.or(before.keep);
    Ok(changed(*known != before))
}

/// Volumes of a schedule, whole; the pools that it names are there.
fn scheduled(site: &Site, volumes: Vec<String>, groups: &[String]) -> Result<Vec<String>, RowRefusal> {
    if let Some(missing) = groups.iter().find(|group| site.group(group).is_none()) {
        return Err(RowRefusal::not_found(format!("there is no pool {missing}")));
    }
    volumes.iter().map(|volume| whole_volume(site, volume)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: &str = "
        [[group]]
        name = 'mail'
        [[group]]
        name = 'logs'
        [[volume]]
        name = 'store'
        group = 'mail'
        [[volume]]
        name = 'new'
        group = 'mail'
        [[volume]]
        name = 'store'
        group = 'logs'
        [[target]]
        name = 'disks'
        [[target.unit]]
        number = 0
        volume = 'mail/store'
        [[initiator]]
        name = 'iqn.x:a'
        uses = ['disks']
        reads = ['disks/0']
    ";

    fn site() -> Site {
        Site::from_toml(SITE).unwrap()
    }

    fn unit(volume: &str) -> SiteRowChange {
        let unit = NewUnit { volume: volume.to_owned(), ..NewUnit::default() };
        SiteRowChange::AddUnit { target: "disks".to_owned(), unit }
    }

    fn refused(change: SiteRowChange) -> String {
        change.make(&mut site()).unwrap_err().to_string()
    }

    #[test]
    fn a_change_is_made_once_and_found_made_when_it_is_repeated() {
        let mut site = site();
        assert_eq!(unit("new").make(&mut site), Ok(RowEffect::Created));
        assert_eq!(unit("mail/new").make(&mut site), Ok(RowEffect::None));
        assert_eq!((site.targets[0].units[1].number, &*site.targets[0].units[1].volume), (1, "mail/new"));
        let export = SiteExport { name: "n".into(), volume: "new@monday".into(), read_only: true };
        let create = SiteRowChange::CreateExport { export };
        assert_eq!(create.clone().make(&mut site), Ok(RowEffect::Created));
        assert_eq!(create.make(&mut site), Ok(RowEffect::None));
        assert_eq!(site.exports[0].volume, "mail/new@monday");
        assert_eq!(site.fault(), None);
        assert_eq!(Site::from_toml(&site.to_toml()), Ok(site));
    }

    #[test]
    fn rights_go_with_what_they_are_on() {
        let mut site = site();
        let remove = SiteRowChange::RemoveUnit { target: name_of("disks"), number: 0 };
        assert_eq!(remove.make(&mut site), Ok(RowEffect::Removed));
        let initiator = &site.initiators[0];
        assert_eq!((&initiator.uses[..], &initiator.reads[..]), (&["disks".to_owned()][..], &[][..]));
        let delete = SiteRowChange::DeleteTarget { target: "disks".into() };
        assert_eq!(delete.make(&mut site), Ok(RowEffect::Removed));
        assert_eq!(site.initiators[0].uses, [""; 0]);
        assert_eq!(site.fault(), None);
    }

    #[test]
    fn what_is_not_there_or_is_another_is_refused() {
        for (change, why) in [
            (unit("none"), "there is no volume none in the pools that are open"),
            (unit("store"), "several pools have a volume store; say POOL/store"),
            (
                SiteRowChange::SetUnit { target: "disks".into(), number: 3, patch: UnitPatch::default() },
                "target disks has no unit 3",
            ),
            (SiteRowChange::DeleteTarget { target: "other".into() }, "there is no target other"),
            (
                SiteRowChange::SetInitiator {
                    initiator: "IQN.X:A".into(),
                    patch: InitiatorPatch { uses: Some(vec!["disks/7".into()]), ..Default::default() },
                },
                "there is no target or unit disks/7 to be used",
            ),
            (
                SiteRowChange::CreateInitiator {
                    initiator: SiteInitiator { name: "iqn.X:a".into(), ..Default::default() },
                },
                "there is another initiator iqn.x:a",
            ),
            (
                SiteRowChange::CreateInitiator {
                    initiator: SiteInitiator { name: "host".into(), ..Default::default() },
                },
                "\"host\" is no iSCSI name",
            ),
            (
                SiteRowChange::CreateTarget {
                    target: SiteTarget { name: "a/b".into(), ..Default::default() },
                    initiators: Vec::new(),
                },
                "\"a/b\" is no name of a target",
            ),
            (
                SiteRowChange::CreateSchedule {
                    schedule: Snapshots { name: "d".into(), groups: vec!["x".into()], ..Default::default() },
                },
                "there is no pool x",
            ),
        ] {
            let refused = refused(change.clone());
            assert!(refused.starts_with(why), "{change:?}: {refused}");
        }
    }
}

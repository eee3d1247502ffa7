//! The steps from what is there to what is wanted. Pure: nothing is done here.

use super::{
    known_dr_group::KnownDrGroups,
    wanted::WantedSite,
    wanted_dr_group::WantedDrGroup,
    wanted_pool::{WantedDrives, WantedPool, WantedVolume},
};
use crate::{
    dr::mode::DrMode,
    planted::{self, ApplyBug},
    view::VolumeView,
};
use array::{format::row::WriteCache, pool::VolumeSetting, volume::MOVED_END};
use report::Refusal;
use serde::{Deserialize, Serialize};
use serving::pool::limits::LimitStatus;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
};
use utoipa::ToSchema;
use world::ByteCount;

/// Services in words, by kind and name.
pub type ServiceTexts = BTreeMap<(&'static str, String), String>;

/// The site as it is.
#[derive(Clone, Debug, Default)]
pub struct KnownSite {
    /// Volumes of each pool that is there, by the pool's name; `None` if it is there and cannot be looked into now.
    pub pools: BTreeMap<String, Option<Vec<VolumeView>>>,
    /// `None` if nobody looked for them: none is made then.
    pub dr_groups: Option<KnownDrGroups>,
    /// Of the site that was applied last.
    pub services: ServiceTexts,
    /// Volumes that it had, as `POOL/VOLUME`.
    pub volumes_before: BTreeSet<String>,
    /// Differences between the file and pools that no apply changes.
    pub notes: Vec<String>,
}

/// One step, with all it needs.
#[derive(Clone, Debug, PartialEq)]
pub enum SiteStep {
    MakePool(Box<WantedPool>),
    RenameVolume {
        pool: String,
        from: String,
        to: String,
    },
    GrowVolume {
        pool: String,
        volume: String,
        from: ByteCount,
        to: ByteCount,
    },
    SetVolume {
        pool: String,
        volume: String,
        from: VolumeSetting,
        to: VolumeSetting,
    },
    MakeVolume {
        pool: String,
        volume: WantedVolume,
    },
    /// One thing that is served, before and after; all are changed in one step of each pool.
    Serve {
        kind: &'static str,
        name: String,
        from: Option<String>,
        to: Option<String>,
    },
    DestroyVolume {
        pool: String,
        volume: String,
        size: ByteCount,
        snapshots: usize,
    },
    MakeDrGroup(Box<WantedDrGroup>),
    /// Another mode for a group that is there.
    ChangeDrGroup {
        name: String,
        /// Pools with its volumes.
        pools: Vec<String>,
        from: DrMode,
        to: DrMode,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SiteAction {
    /// It is made, or served.
    Create,
    /// It is changed, and loses nothing.
    Change,
    /// Exports and rights end; volumes and their data are gone.
    Destroy,
}

/// A step in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SiteChange {
    pub action: SiteAction,
    /// `pool`, `volume`, `target`, `unit`, `initiator`, `nbd export`, `snapshots` (a schedule), `set`, `metrics` or `DR group`.
    pub kind: String,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// All steps, in the order in which they are done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SiteChanges {
    pub steps: Vec<SiteStep>,
    /// Pools and volumes that the file lacks: they stay.
    pub kept: Vec<String>,
    /// Pools that cannot become as the file says, with the reasons; nothing is changed in them.
    pub refused: BTreeMap<String, Refusal>,
    /// DR groups that the file wants otherwise than they are: they stay as they are. And sets that need a group, and have none.
    pub fixed_dr_groups: Vec<Refusal>,
    /// Parts of the file that are not made, with the reasons.
    pub notes: Vec<String>,
}

impl SiteChanges {
    /// The steps from `known` to `wanted`. Of what the file lacks, `destroy` names the volumes to destroy, as `POOL/VOLUME`.
    ///
    /// # Errors
    ///
    /// `destroy` names what is not there, or what the file has.
    pub fn between(known: &KnownSite, wanted: &WantedSite, destroy: &[String]) -> Result<Self, Refusal> {
        let mut changes = Self::default();
        let mut destroyed = BTreeSet::new();
        let mut last = Vec::new();
        for pool in &wanted.pools {
            match known.pools.get(&pool.name) {
                None => changes.make(pool, wanted),
                Some(None) => {}
                Some(Some(volumes)) => {
                    let (steps, kept) = (changes.steps.len(), changes.kept.len());
                    match changes.change((pool, wanted), (volumes, known), destroy) {
                        Ok(destroying) => {
                            for (name, step) in destroying {
                                destroyed.insert(name);
                                last.push(step);
                            }
                        }
                        Err(refusal) => {
                            changes.steps.truncate(steps);
                            changes.kept.truncate(kept);
                            changes.refused.insert(pool.name.clone(), refusal);
                        }
                    }
                }
            }
        }
        let is_wanted = |name: &String| wanted.pools.iter().any(|pool| pool.name == *name);
        for name in known.pools.keys().filter(|name| !is_wanted(name)) {
            changes.kept.push(format!("pool {name}: it is not served any more, and keeps everything"));
        }
        let is_in_refused =
            |name: &String| changes.refused.keys().any(|pool| name.starts_with(&format!("{pool}/")));
        if let Some(name) = destroy.iter().find(|name| !destroyed.contains(*name) && !is_in_refused(name)) {
            return Err(not_destroyed(name, known, wanted));
        }
        changes.serve(&known.services, &wanted.services);
        changes.steps.extend(last);
        changes.add_dr_groups(known, wanted);
        Ok(changes)
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The steps in words.
    pub fn shown(&self) -> Vec<SiteChange> {
        self.steps.iter().map(SiteStep::shown).collect()
    }

    fn make(&mut self, pool: &WantedPool, site: &WantedSite) {
        self.steps.push(SiteStep::MakePool(Box::new(pool.clone())));
        let volume = |volume: &WantedVolume| SiteStep::MakeVolume {
            pool: pool.name.clone(),
            volume: WantedVolume { was: None, ..volume.clone() },
        };
        let own: Vec<&WantedVolume> =
            pool.volumes.iter().filter(|volume| !self.waits_for_copy(site, pool, volume)).collect();
        self.steps.extend(own.into_iter().map(volume));
    }

    /// True if the volume is moving to another pool: what serves it follows when its job has come to its end.
    fn is_moving<'k>(
        &mut self,
        (pool, wanted): (&WantedPool, &WantedVolume),
        find: &impl Fn(&str) -> Option<&'k VolumeView>,
    ) -> bool {
        let left = format!("{}{MOVED_END}", wanted.name);
        if find(&left).is_none() {
            return false;
        }
        self.notes.push(format!(
            "volume {}/{} is moving to another pool, and is served when that has come to its end: see 'spindle job list'",
            pool.name, wanted.name
        ));
        true
    }

    /// True if the pool had the volume, and another one has one of its name that the file does not say. It may have been moved
    /// there while no server ran, and an empty one in its place would be taken for it.
    fn may_have_moved(
        &mut self,
        (pool, wanted): (&WantedPool, &WantedVolume),
        (site, known): (&WantedSite, &KnownSite),
    ) -> bool {
        let name = &wanted.name;
        if !known.volumes_before.contains(&format!("{}/{name}", pool.name)) {
            return false;
        }
        let has = |other: &WantedPool| {
            let is_said = other.volumes.iter().any(|one| one.name == *name || one.was.as_ref() == Some(name));
            let volumes =
                known.pools.get(&other.name).and_then(|volumes| volumes.as_deref()).unwrap_or_default();
            !is_said && volumes.iter().any(|volume| volume.name == *name)
        };
        let Some(other) = site.pools.iter().find(|other| other.name != pool.name && has(other)) else {
            return false;
        };
        self.notes.push(format!(
            "volume {}/{name} is gone, and not made again: pool {} has one of this name that the file does not say. If it was \
             moved there, say group = {:?}; if both are to be there, say both",
            pool.name, other.name, other.name
        ));
        true
    }

    /// Steps in a pool that is there. Returns those that destroy, which come last.
    fn change(
        &mut self,
        (pool, site): (&WantedPool, &WantedSite),
        (known, all): (&[VolumeView], &KnownSite),
        destroy: &[String],
    ) -> Result<Vec<(String, SiteStep)>, Refusal> {
        let named = known.iter().filter(|volume| volume.left_by.is_none());
        let named: HashMap<_, _> = named.map(|volume| (volume.name.as_str(), volume)).collect();
        let find = |name: &str| named.get(name).copied();
        let mut met = BTreeSet::new();
        let mut made = Vec::new();
        let mut adjusted = Vec::new();
        for wanted in &pool.volumes {
            let was = wanted.was.as_deref().and_then(find);
            let before = match (find(&wanted.name), was) {
                // Once it is renamed, the file may go on to say what it was.
                (Some(_), Some(_)) => {
                    let was = wanted.was.as_deref().unwrap_or_default();
                    let problem =
                        format!("{}/{was} cannot become {}: there is such a volume", pool.name, wanted.name);
                    return Err(Refusal::new(problem, "take was out of the file, or rename one of them"));
                }
                (Some(same), None) => Some(same),
                (None, Some(was)) => {
                    let (from, to) = (was.name.clone(), wanted.name.clone());
                    self.steps.push(SiteStep::RenameVolume { pool: pool.name.clone(), from, to });
                    Some(was)
                }
                (None, None) => None,
            };
            match before {
                Some(before) => {
                    met.insert(before.name.clone());
                    adjusted.push((wanted, before));
                }
                None if self.waits_for_copy(site, pool, wanted) => {}
                None if self.is_moving((pool, wanted), &find) => {}
                None if self.may_have_moved((pool, wanted), (site, all)) => {}
                None => made.push(SiteStep::MakeVolume { pool: pool.name.clone(), volume: wanted.clone() }),
            }
        }
        // Renames first: what is served is found by its new name then, whatever fails behind them.
        for (wanted, before) in adjusted {
            self.adjust(&pool.name, wanted, before)?;
        }
        self.steps.extend(made);
        let mut last = Vec::new();
        for volume in known.iter().filter(|volume| !met.contains(&volume.name)) {
            let path = format!("{}/{}", pool.name, volume.name);
            if destroy.contains(&path) || planted::is(ApplyBug::DestroyedWithoutName) {
                let VolumeView { name, size, snapshots, .. } = volume.clone();
                let step = SiteStep::DestroyVolume { pool: pool.name.clone(), volume: name, size, snapshots };
                last.push((path, step));
            } else {
                self.kept.push(format!("volume {path}, {}: it stays, and is not served", volume.size));
            }
        }
        Ok(last)
    }

    /// Size and settings of a volume that is there.
    fn adjust(&mut self, pool: &str, wanted: &WantedVolume, before: &VolumeView) -> Result<(), Refusal> {
        let path = format!("{pool}/{}", wanted.name);
        if before.setting.class != wanted.class {
            return Err(Refusal::new(
                format!("volume {path} has another RAID level, which is fixed for its life"),
                "make a volume of the wanted level under another name, and copy it",
            ));
        }
        if wanted.size < before.size {
            return Err(Refusal::new(
                format!(
                    "volume {path} would be cut from {} to {}, and its end would be lost",
                    before.size, wanted.size
                ),
                format!(
                    "say its size as it is, or cut it by hand: spindle volume resize {path} SIZE --shrink"
                ),
            ));
        }
        let (pool, volume) = (pool.to_owned(), wanted.name.clone());
        if wanted.size > before.size {
            let (from, to) = (before.size, wanted.size);
            self.steps.push(SiteStep::GrowVolume { pool: pool.clone(), volume: volume.clone(), from, to });
        }
        let from = before.setting;
        let to = VolumeSetting {
            write_cache: wanted.write_cache.map_or(from.write_cache, write_cache),
            rates: wanted.limits.rates(from.rates),
            bounds: wanted.limits.bounds(from.bounds),
            ..from
        };
        if to != from {
            self.steps.push(SiteStep::SetVolume { pool, volume, from, to });
        }
        Ok(())
    }

    fn serve(&mut self, known: &ServiceTexts, wanted: &ServiceTexts) {
        let all: BTreeSet<_> = known.keys().chain(wanted.keys()).collect();
        for key in all {
            let (from, to) = (known.get(key), wanted.get(key));
            if from != to {
                let (kind, name) = key.clone();
                self.steps.push(SiteStep::Serve { kind, name, from: from.cloned(), to: to.cloned() });
            }
        }
    }
}

fn write_cache(is_on: bool) -> WriteCache {
    if is_on { WriteCache::On } else { WriteCache::Off }
}

fn not_destroyed(name: &str, known: &KnownSite, wanted: &WantedSite) -> Refusal {
    let in_file = wanted
        .pools
        .iter()
        .any(|pool| pool.volumes.iter().any(|volume| format!("{}/{}", pool.name, volume.name) == name));
    if in_file {
        return Refusal::new(
            format!("{name} is in the file, so it is not destroyed"),
            "take it out of the file first",
        );
    }
    if let Some((pool, _)) = name.split_once('/')
        && matches!(known.pools.get(pool), Some(None))
    {
        return Refusal::new(
            format!("{name} is not destroyed: the pool {pool} is not open"),
            "see its messages",
        );
    }
    if known.dr_groups.as_ref().is_some_and(|groups| groups.find(name).is_some()) {
        return Refusal::new(
            format!("{name} is a DR group, and holds no data of its own"),
            format!("'spindle dr remove {name}' takes it apart; its volumes stay"),
        );
    }
    if known.pools.contains_key(name) {
        return Refusal::new(
            format!("{name} is a pool, and pools are not destroyed here"),
            "destroy its volumes, take it out of the file, and empty its drives yourself",
        );
    }
    Refusal::new(format!("there is no volume {name} to destroy"), "name it as POOL/VOLUME")
}

impl SiteStep {
    /// The pool that it changes; `None` of services.
    pub fn pool(&self) -> Option<&str> {
        match self {
            Self::MakePool(pool) => Some(&pool.name),
            Self::RenameVolume { pool, .. }
            | Self::GrowVolume { pool, .. }
            | Self::SetVolume { pool, .. }
            | Self::MakeVolume { pool, .. }
            | Self::DestroyVolume { pool, .. } => Some(pool),
            Self::MakeDrGroup(group) => group.places.first().map(|place| place.pool.as_str()),
            Self::ChangeDrGroup { pools, .. } => pools.first().map(String::as_str),
            Self::Serve { .. } => None,
        }
    }

    /// The step in words.
    pub fn shown(&self) -> SiteChange {
        let create = |kind: &str, name, after| SiteChange {
            action: SiteAction::Create,
            kind: kind.to_owned(),
            name,
            before: None,
            after,
        };
        let change = |kind: &str, name, before: String, after: String| {
            let (before, after) = (Some(before), Some(after));
            SiteChange { action: SiteAction::Change, kind: kind.to_owned(), name, before, after }
        };
        match self {
            Self::MakePool(pool) => create("pool", pool.name.clone(), Some(pool_text(pool))),
            Self::RenameVolume { pool, from, to } => {
                change("volume", format!("{pool}/{from}"), from.clone(), to.clone())
            }
            Self::GrowVolume { pool, volume, from, to } => {
                change("volume", format!("{pool}/{volume}"), from.to_string(), to.to_string())
            }
            Self::SetVolume { pool, volume, from, to } => {
                let (before, after) = differing(from, to);
                change("volume", format!("{pool}/{volume}"), before, after)
            }
            Self::MakeVolume { pool, volume } => {
                let setting = new_setting(volume);
                let text = format!("{}, {}", volume.size, setting_text(&setting));
                create("volume", format!("{pool}/{}", volume.name), Some(text))
            }
            Self::Serve { kind, name, from, to } => {
                let action = match (from, to) {
                    (None, _) => SiteAction::Create,
                    (Some(_), Some(_)) => SiteAction::Change,
                    (Some(_), None) => SiteAction::Destroy,
                };
                let (kind, name) = ((*kind).to_owned(), name.clone());
                SiteChange { action, kind, name, before: from.clone(), after: to.clone() }
            }
            Self::DestroyVolume { pool, volume, size, snapshots } => {
                let with = match snapshots {
                    0 => String::new(),
                    1 => " with its snapshot".to_owned(),
                    many => format!(" with its {many} snapshots"),
                };
                let (name, before) = (format!("{pool}/{volume}"), Some(format!("{size}{with}")));
                let kind = "volume".to_owned();
                SiteChange { action: SiteAction::Destroy, kind, name, before, after: None }
            }
            Self::MakeDrGroup(group) => create("DR group", group.name.clone(), Some(group.text())),
            Self::ChangeDrGroup { name, from, to, .. } => {
                change("DR group", name.clone(), from.to_string(), to.to_string())
            }
        }
    }
}

/// The settings of a volume that is made.
pub(super) fn new_setting(volume: &WantedVolume) -> VolumeSetting {
    let usual = VolumeSetting::default();
    VolumeSetting {
        class: volume.class,
        write_cache: volume.write_cache.map_or(usual.write_cache, write_cache),
        rates: volume.limits.rates(usual.rates),
        bounds: volume.limits.bounds(usual.bounds),
    }
}

fn setting_text(setting: &VolumeSetting) -> String {
    format!("{}{}", cache_text(setting), LimitStatus::of(setting).text())
}

fn cache_text(setting: &VolumeSetting) -> &'static str {
    match setting.write_cache {
        WriteCache::On => "write cache on",
        WriteCache::Off => "write cache off",
    }
}

/// The difference of two settings, before and after.
fn differing(from: &VolumeSetting, to: &VolumeSetting) -> (String, String) {
    let limits = |setting| match LimitStatus::of(setting).text() {
        text if text.is_empty() => "no limits".to_owned(),
        text => text.trim_start_matches(", ").to_owned(),
    };
    let (before, after) = (limits(from), limits(to));
    match (from.write_cache == to.write_cache, before == after) {
        (true, _) => (before, after),
        (false, true) => (cache_text(from).to_owned(), cache_text(to).to_owned()),
        (false, false) => (setting_text(from), setting_text(to)),
    }
}

fn pool_text(pool: &WantedPool) -> String {
    let drives = match &pool.drives {
        WantedDrives::Files { count, .. } => format!("{count} drives in files in {}", pool.folder.display()),
        WantedDrives::Devices(devices) => {
            devices.iter().map(|device| device.display().to_string()).collect::<Vec<_>>().join(", ")
        }
    };
    let copies = pool.copies.map_or(String::new(), |copies| format!(", {copies} copies"));
    format!("{drives}{copies}")
}

impl fmt::Display for SiteChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.action {
            SiteAction::Create => '+',
            SiteAction::Change => '~',
            SiteAction::Destroy => '-',
        };
        write!(f, "{sign} {} {}", self.kind, self.name)?;
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => write!(f, ": {before} → {after}"),
            (Some(text), None) | (None, Some(text)) if !text.is_empty() => write!(f, ": {text}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::wanted::SiteContext;
    use array::format::VolumeId;
    use plan::site::Site;

    const FILE: &str = "
        [[group]]
        name = 'mail'
        [[volume]]
        name = 'store'
        gb = 2
        iops_max = 500
        [[nbd]]
        name = 'store'
        volume = 'store'
    ";

    fn wanted(text: &str) -> WantedSite {
        let context = SiteContext { folder: "/".into(), state: "/state".into(), site: None };
        WantedSite::of(&Site::from_toml(text).unwrap(), &context).unwrap()
    }

    fn volume(name: &str, size: ByteCount) -> VolumeView {
        VolumeView {
            name: name.to_owned(),
            volume: VolumeId([7; 16]),
            size,
            branch: 0,
            setting: VolumeSetting::default(),
            snapshots: 2,
            group: None,
            left_by: None,
        }
    }

    fn known(volumes: Vec<VolumeView>) -> KnownSite {
        let pools = BTreeMap::from([("mail".to_owned(), Some(volumes))]);
        KnownSite { pools, ..KnownSite::default() }
    }

    fn lines(known: &KnownSite, text: &str, destroy: &[&str]) -> Result<Vec<String>, String> {
        let destroy: Vec<String> = destroy.iter().map(|name| (*name).to_owned()).collect();
        let changes =
            SiteChanges::between(known, &wanted(text), &destroy).map_err(|error| error.to_string())?;
        if let Some(refusal) = changes.refused.values().next() {
            return Err(refusal.to_string());
        }
        let kept = changes.kept.iter().map(|kept| format!("kept: {kept}"));
        Ok(changes.shown().iter().map(ToString::to_string).chain(kept).collect())
    }

    #[test]
    fn a_new_site_is_made_from_its_pools_to_its_services() {
        let made = lines(&KnownSite::default(), FILE, &[]).unwrap();
        assert_eq!(
            made,
            [
                "+ pool mail: 8 drives in files in /state/pools/mail",
                "+ volume mail/store: 2.00 GiB, write cache off, at most 500 IOPS",
                "+ nbd export store: mail/store",
            ]
        );
    }

    #[test]
    fn what_differs_is_changed_and_data_are_destroyed_last_and_only_by_name() {
        let before = known(vec![volume("store", ByteCount::gib(1)), volume("old", ByteCount::gib(3))]);
        let grown = [
            "~ volume mail/store: 1.00 GiB → 2.00 GiB",
            "~ volume mail/store: no limits → at most 500 IOPS",
            "+ nbd export store: mail/store",
        ];
        let kept = "kept: volume mail/old, 3.00 GiB: it stays, and is not served";
        assert_eq!(lines(&before, FILE, &[]).unwrap(), [&grown[..], &[kept]].concat());
        let destroyed = "- volume mail/old: 3.00 GiB with its 2 snapshots";
        assert_eq!(lines(&before, FILE, &["mail/old"]).unwrap(), [&grown[..], &[destroyed]].concat());
        for (name, why) in [
            (
                "mail/store",
                "mail/store is in the file, so it is not destroyed; take it out of the file first",
            ),
            ("mail", "mail is a pool, and pools are not destroyed here"),
            ("mail/none", "there is no volume mail/none to destroy; name it as POOL/VOLUME"),
        ] {
            let refused = lines(&before, FILE, &[name]).unwrap_err();
            assert!(refused.starts_with(why), "{refused}");
        }
    }

    #[test]
    fn a_rename_is_done_once_and_never_over_another_volume() {
        let text = FILE.replace("gb = 2", "was = 'old'\ngb = 2");
        let renamed = lines(&known(vec![volume("old", ByteCount::gib(2))]), &text, &[]).unwrap();
        assert_eq!(renamed[0], "~ volume mail/old: old → store");
        let after = lines(&known(vec![volume("store", ByteCount::gib(2))]), &text, &[]).unwrap();
        assert!(!after.iter().any(|line| line.contains("old")), "{after:?}");
        let both = known(vec![volume("store", ByteCount::gib(2)), volume("old", ByteCount::gib(2))]);
        let refused = lines(&both, &text, &[]).unwrap_err();
        assert!(refused.starts_with("mail/old cannot become store: there is such a volume"), "{refused}");
    }

    #[test]
    fn what_would_lose_data_is_refused() {
        let large = known(vec![volume("store", ByteCount::gib(5))]);
        let refused = lines(&large, FILE, &[]).unwrap_err();
        assert!(refused.contains("would be cut from 5.00 GiB to 2.00 GiB"), "{refused}");
        let same = known(vec![volume("store", ByteCount::gib(2))]);
        let refused = lines(&same, &FILE.replace("gb = 2", "gb = 2\nraid = 'raid0'"), &[]).unwrap_err();
        assert!(refused.contains("has another RAID level"), "{refused}");
    }

    #[test]
    fn a_pool_that_cannot_be_looked_into_is_left_alone_and_services_end_without_being_named() {
        let services = BTreeMap::from([(("nbd export", "gone".to_owned()), "mail/gone".to_owned())]);
        let pools = BTreeMap::from([("mail".to_owned(), None), ("logs".to_owned(), None)]);
        let changes = lines(&KnownSite { pools, services, ..KnownSite::default() }, FILE, &[]).unwrap();
        assert_eq!(
            changes,
            [
                "- nbd export gone: mail/gone",
                "+ nbd export store: mail/store",
                "kept: pool logs: it is not served any more, and keeps everything",
            ]
        );
    }
}

//! A site file as the daemon wants it: checked against what an array can do, with units and paths resolved.

use crate::{
    metrics::MetricsSetting,
    notifying::{notifier_texts, wanted_notifiers},
    schedules::wanted::{WantedSchedule, schedule_texts, wanted_schedules},
    watched::{WatchedCertificate, WatchedSite},
};
use array::format::{BLOCK_BYTES, RedundancyClass, SparingLevel, superblock::MEMBERS_MAX};
use iscsi::target::access::{AccessList, AccessRight, InitiatorRights};
use nbd::TlsMode;
use plan::{
    catalogue::{Catalogue, Raid},
    site::{Group, Serving, Site, SiteIndex, SiteTarget, Volume, split_snapshot},
};
use report::Refusal;
use serving::{
    certificates,
    export::{WantedExport, WantedExports, WantedTarget, WantedUnit, credentials, name_of},
    pool::limits::LimitChange,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};
use tls::ServerTls;
use world::{Address, ByteCount};

/// Drives in files of a group that says nothing of its drives.
const FILES_USUAL: u16 = 8;
/// Most drives of a pool.
const DRIVES_MAX: u16 = MEMBERS_MAX as u16;
/// Largest size of a volume, in GiB.
const VOLUME_GB_MAX: f64 = 65_536.0;
const GIB: f64 = (1u64 << 30) as f64;

/// Surroundings of a site file.
#[derive(Clone, Debug)]
pub struct SiteContext {
    /// Folder of the file, from the root: its relative paths begin there.
    pub folder: PathBuf,
    /// The daemon's own folder: pools whose group says no folder lie there.
    pub state: PathBuf,
    /// Overrides the file's own `[serve] site`.
    pub site: Option<String>,
}

/// A site as it is to be served.
#[derive(Clone, Debug)]
pub struct WantedSite {
    pub pools: Vec<WantedPool>,
    pub nbd: Option<Address>,
    pub iscsi: Option<Address>,
    /// Of the API.
    pub api: Option<Address>,
    pub nbd_tls: TlsMode,
    /// Of the API.
    pub api_tls: Option<ServerTls>,
    /// Schedules of snapshots of these pools.
    pub schedules: Vec<WantedSchedule>,
    /// Notifiers, and certificates to be watched.
    pub watched: WatchedSite,
    pub metrics: MetricsSetting,
    /// Parts of the file that are not served, and dangers.
    pub notes: Vec<String>,
    /// Exports, units, rights and schedules in words, by kind and name.
    pub services: BTreeMap<(&'static str, String), String>,
}

/// A pool: a group of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedPool {
    pub name: String,
    pub folder: PathBuf,
    pub drives: WantedDrives,
    /// As is usual if `None`.
    pub copies: Option<usize>,
    /// As is usual if `None`.
    pub sparing: Option<SparingLevel>,
    pub volumes: Vec<WantedVolume>,
    pub exports: WantedExports,
}

/// Drives of a pool that is not there yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedDrives {
    /// In the pool's folder; at most this large.
    Files { count: u16, size_max: Option<ByteCount> },
    /// Block devices, or disks on other machines by their URIs.
    Devices(Vec<PathBuf>),
}

/// A volume of a pool. What is `None` stays as it is, and is usual for a new volume.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedVolume {
    pub name: String,
    /// Its name of before.
    pub was: Option<String>,
    pub size: ByteCount,
    pub class: RedundancyClass,
    pub write_cache: Option<bool>,
    pub limits: LimitChange,
}

impl WantedSite {
    /// The part of `site` that is served here.
    ///
    /// # Errors
    ///
    /// It asks for something that is not there, or that would be unsafe; secrets or certificates cannot be read.
    pub fn of(site: &Site, context: &SiteContext) -> Result<Self, Refusal> {
        Self::read(site, context, true)
    }

    /// As [`WantedSite::of`], without the contents of secrets and certificates: to be compared, not to be served.
    ///
    /// # Errors
    ///
    /// It asks for something that is not there, or that would be unsafe.
    pub fn described(site: &Site, context: &SiteContext) -> Result<Self, Refusal> {
        Self::read(site, context, false)
    }

    fn read(site: &Site, context: &SiteContext, has_secrets: bool) -> Result<Self, Refusal> {
        let site = &site.clone().with_groups_said();
        let index = &SiteIndex::of(site);
        let groups = groups_here(site, context)?;
        let iscsi = address(&site.serve.iscsi, "iscsi", iscsi::PORT)?;
        let nbd = address(&site.serve.nbd, "nbd", nbd::PORT)?;
        let api = api_address(&site.serve)?;
        let mut notes = Vec::new();
        let mut pools = Vec::new();
        for group in &groups {
            pools.push(pool(group, context)?);
            notes.extend(unused_keys(group));
        }
        let mut folders = BTreeMap::new();
        for pool in &pools {
            if let Some(other) = folders.insert(&pool.folder, &pool.name) {
                let problem = format!("the groups {other:?} and {:?} have one folder", pool.name);
                return Err(Refusal::new(problem, "give each its own, or leave it out"));
            }
        }
        for volume in &site.volumes {
            match pool_of(volume, &groups) {
                Some(index) => pools[index].volumes.push(wanted_volume(volume, groups[index])?),
                None if volume.group.is_empty() => {
                    notes.push(format!("volume {:?} says no group, and is not served", volume.name));
                }
                // It is another site's.
                None => {}
            }
        }
        let is_pool = |name: &str| pools.iter().any(|pool| pool.name == name);
        let (schedules, without_effect) = wanted_schedules(site, index, is_pool)?;
        notes.extend(without_effect);
        let notifiers = wanted_notifiers(site, (&context.folder, has_secrets))?;
        let (nbd_tls, mut services) = (TlsMode::Off, schedule_texts(site, &schedules));
        services.append(&mut notifier_texts(&notifiers));
        let in_pools = |one: &WantedSchedule| {
            let name = one.name.clone();
            one.volumes.keys().map(move |pool| (pool.clone(), name.clone())).collect::<Vec<_>>()
        };
        let in_pools = schedules.iter().flat_map(in_pools).collect();
        let watched = WatchedSite { notifiers, certificates: Vec::new(), schedules: in_pools };
        let api_tls = match &api {
            Some(_) if has_secrets => api_certificates(site, context)?,
            _ => None,
        };
        let metrics = MetricsSetting::default();
        let mut wanted =
            Self { pools, nbd, iscsi, api, nbd_tls, api_tls, schedules, watched, metrics, notes, services };
        wanted.select_histograms(site)?;
        wanted.add_targets((site, index), &groups)?;
        wanted.add_rights((site, index), (context, has_secrets))?;
        wanted.add_exports((site, index), &groups, (context, has_secrets))?;
        Ok(wanted)
    }

    /// The volumes with latency histograms. A name that selects no volume of the file is noted.
    fn select_histograms(&mut self, site: &Site) -> Result<(), Refusal> {
        let listed = &site.metrics.histograms;
        if listed.is_empty() {
            return Ok(());
        }
        if listed.iter().any(|name| name.trim().is_empty()) {
            let problem = "[metrics] histograms has an empty name";
            return Err(Refusal::new(problem, "say VOLUME or POOL/VOLUME, with * for a part"));
        }
        self.metrics.histograms = listed.iter().cloned().collect();
        let of_pool = |pool: &'_ WantedPool| -> Vec<(String, String)> {
            pool.volumes.iter().map(|volume| (pool.name.clone(), volume.name.clone())).collect()
        };
        let volumes: Vec<_> = self.pools.iter().flat_map(of_pool).collect();
        let volumes = volumes.iter().map(|(pool, volume)| (pool.as_str(), volume.as_str()));
        // Snapshots are not in the file.
        let unknown = self.metrics.histograms.without_effect(volumes);
        self.notes.extend(unknown.iter().filter(|name| !name.contains('@')).map(|name| {
            format!("[metrics] histograms: no volume of the file is {name:?}, so it selects none of them")
        }));
        self.services.insert(("metrics", "histograms".to_owned()), listed.join(", "));
        Ok(())
    }

    fn add_targets(&mut self, (site, index): (&Site, &SiteIndex), groups: &[&Group]) -> Result<(), Refusal> {
        let mut names = BTreeSet::new();
        for target in &site.targets {
            // Initiators compare names without case, and characters that iSCSI names may not have become dashes.
            if !names.insert(name_of(&target.name)) {
                let problem = format!("two targets would be called {}", name_of(&target.name));
                return Err(Refusal::new(problem, "name them apart"));
            }
            let volume = target.units.first().and_then(|unit| index.served_volume(&unit.volume));
            let Some(volume) = volume else {
                self.notes.push(format!("target {:?} has no units", target.name));
                continue;
            };
            let Some(index) = pool_of(volume, groups) else { continue };
            let group = &groups[index].name;
            let mut units = Vec::new();
            for unit in &target.units {
                let meant = within_group(&unit.volume).to_owned();
                let cache = match unit.write_cache {
                    None => "",
                    Some(true) => ", write cache on",
                    Some(false) => ", write cache off",
                };
                let flag = |is_set: bool, word: &'static str| if is_set { word } else { "" };
                let text = format!(
                    "{group}/{meant}{}{}{cache}",
                    flag(unit.read_only, ", read-only"),
                    flag(unit.shared, ", shared")
                );
                self.services.insert(("unit", format!("{}/{}", target.name, unit.number)), text);
                units.push(WantedUnit {
                    number: unit.number,
                    volume: meant,
                    is_read_only: unit.read_only,
                    is_shared: unit.shared,
                    write_cache: unit.write_cache,
                });
            }
            self.pools[index].exports.targets.push(WantedTarget { name: target.name.clone(), units });
        }
        Ok(())
    }

    /// Rights on all targets, for each pool: those on targets of others do no harm.
    fn add_rights(
        &mut self,
        (site, index): (&Site, &SiteIndex),
        (context, has_secrets): (&SiteContext, bool),
    ) -> Result<(), Refusal> {
        let mut named = BTreeMap::new();
        let mut used = BTreeSet::new();
        for initiator in &site.initiators {
            let mut rights = InitiatorRights::default();
            for (right, meant) in
                [(AccessRight::Read, &initiator.reads), (AccessRight::Write, &initiator.uses)]
            {
                for (target, numbers) in meant.iter().filter_map(|meant| index.units_meant(meant)) {
                    used.insert(target.name.clone());
                    let known = rights.units.entry(name_of(&target.name)).or_default();
                    known.extend(numbers.into_iter().map(|number| (number, right)));
                }
            }
            if has_secrets && !initiator.user.is_empty() {
                let file = Path::new(&initiator.secret_file);
                rights.credentials = Some(credentials(&context.folder, initiator.user.clone(), file)?);
            }
            let words = |verb: &str, list: &[String]| match list {
                [] => None,
                list => Some(format!("{verb} {}", list.join(", "))),
            };
            let chap = (!initiator.user.is_empty()).then(|| format!("CHAP user {}", initiator.user));
            let parts = [words("uses", &initiator.uses), words("reads", &initiator.reads), chap];
            let text = parts.into_iter().flatten().collect::<Vec<_>>().join("; ");
            self.services.insert(("initiator", initiator.name.clone()), text);
            named.insert(initiator.name.clone(), rights);
        }
        let own = match site.serve.chap_user.as_str() {
            user if has_secrets && !user.is_empty() => {
                let file = Path::new(&site.serve.chap_secret_file);
                Some(credentials(&context.folder, user.to_owned(), file)?)
            }
            _ => None,
        };
        let mut open = BTreeSet::new();
        for target in site.targets.iter().filter(|target| !used.contains(&target.name) || target.open) {
            if !target.open {
                self.check_unused(target)?;
            }
            open.insert(name_of(&target.name));
            self.services.insert(("target", target.name.clone()), "open to every initiator".to_owned());
        }
        let access = AccessList::only(named, own);
        let access = access
            .map_err(|error| Refusal::new(error.to_string(), "make one: spindle export --chap-make"))?;
        let access = access.with_open(open);
        self.pools.iter_mut().for_each(|pool| pool.exports.access = access.clone());
        Ok(())
    }

    /// Refuses a target that no initiator uses where others than this host reach it.
    fn check_unused(&self, target: &SiteTarget) -> Result<(), Refusal> {
        match &self.iscsi {
            Some(address) if !address.is_local() => Err(Refusal::new(
                format!(
                    "target {:?}: no initiator uses it, and anyone who reaches {address} could",
                    target.name
                ),
                "list its hosts as [[initiator]] with uses, or write open = true",
            )),
            _ => Ok(()),
        }
    }

    fn add_exports(
        &mut self,
        (site, index): (&Site, &SiteIndex),
        groups: &[&Group],
        (context, has_secrets): (&SiteContext, bool),
    ) -> Result<(), Refusal> {
        for export in &site.exports {
            let volume = index.served_volume(&export.volume).expect("a site refers to what is there");
            let Some(index) = pool_of(volume, groups) else { continue };
            let meant = within_group(&export.volume).to_owned();
            let suffix = if export.read_only { ", read-only" } else { "" };
            let text = format!("{}/{meant}{suffix}", groups[index].name);
            self.services.insert(("nbd export", export.name.clone()), text);
            let (name, is_read_only) = (export.name.clone(), export.read_only);
            self.pools[index].exports.nbd.push(WantedExport { name, volume: meant, is_read_only });
        }
        if has_secrets && !site.serve.nbd_tls.is_empty() {
            let folder = context.folder.join(&site.serve.nbd_tls);
            self.nbd_tls = TlsMode::Required(certificates::of_server(&folder)?);
            self.watch_certificates(&folder);
        }
        if has_secrets && self.api_tls.is_some() {
            self.watch_certificates(&context.folder.join(&site.serve.api_tls));
        }
        let asks_who = matches!(&self.nbd_tls, TlsMode::Required(tls) if tls.asks_who());
        if let (Some(address), false, false) = (&self.nbd, asks_who, site.exports.is_empty())
            && !address.is_local()
        {
            self.notes.push(format!(
                "anyone who reaches {address} can read and write the NBD exports: give nbd_tls with a ca-cert.pem, or a \
                 loopback address"
            ));
        }
        Ok(())
    }

    fn watch_certificates(&mut self, folder: &Path) {
        let ends = certificates::ends_of_server(folder);
        let watched = ends.map(|(file, ends_unix_s)| WatchedCertificate { file, ends_unix_s });
        self.watched.certificates.extend(watched);
        // Both may be of one folder.
        self.watched.certificates.dedup();
    }
}

/// Port of the API if its address names none.
pub const API_PORT: u16 = 7780;

/// Certificates of the API, if there are to be any.
pub(super) fn api_certificates(site: &Site, context: &SiteContext) -> Result<Option<ServerTls>, Refusal> {
    let folder = &site.serve.api_tls;
    (!folder.is_empty()).then(|| certificates::of_server(&context.folder.join(folder))).transpose()
}

/// The address of the API: without TLS, only this machine may reach it.
fn api_address(serve: &Serving) -> Result<Option<Address>, Refusal> {
    let text = &serve.api;
    if text.is_empty() || text == "none" {
        return Ok(None);
    }
    let address = Address::parse(text, API_PORT).map_err(|error| {
        Refusal::new(format!("[serve] api: {error}"), "say 127.0.0.1:PORT, or leave it out")
    })?;
    if !address.is_local() && serve.api_tls.is_empty() && !serve.api_insecure {
        return Err(Refusal::new(
            format!(
                "[serve] api: {address} is no loopback address, and tokens would pass the network in the clear"
            ),
            "give api_tls with certificates, or say 127.0.0.1:PORT",
        ));
    }
    Ok(Some(address))
}

/// The groups that stand in the site that is served here.
fn groups_here<'s>(site: &'s Site, context: &SiteContext) -> Result<Vec<&'s Group>, Refusal> {
    let places: BTreeSet<&str> = site.groups.iter().map(|group| group.site.as_str()).collect();
    let named = context.site.as_deref().or(Some(site.serve.site.as_str())).filter(|name| !name.is_empty());
    match named {
        Some(name) if site.sites.iter().all(|known| known.name != name) => {
            let known = site.sites.iter().map(|site| site.name.as_str()).collect::<Vec<_>>().join(", ");
            let problem = format!("site {name:?} is not in the file");
            Err(Refusal::new(
                problem,
                if known.is_empty() { "it has no [[site]]".to_owned() } else { format!("it has {known}") },
            ))
        }
        Some(name) => {
            Ok(site.groups.iter().filter(|group| group.site == name || group.site.is_empty()).collect())
        }
        None if places.len() > 1 => Err(Refusal::new(
            format!("the file has groups of {} sites", places.len()),
            "say which one is here: site = NAME under [serve], or ⟨site⟩ NAME",
        )),
        None => Ok(site.groups.iter().collect()),
    }
}

/// The index of the pool in which a volume lies.
fn pool_of(volume: &Volume, groups: &[&Group]) -> Option<usize> {
    match volume.group.as_str() {
        "" => None,
        name => groups.iter().position(|group| group.name == name),
    }
}

/// `VOLUME` or `VOLUME@SNAPSHOT`, without the group.
fn within_group(meant: &str) -> &str {
    let (volume, _) = split_snapshot(meant);
    match volume.find('/') {
        Some(slash) => &meant[slash + 1..],
        None => meant,
    }
}

fn pool(group: &Group, context: &SiteContext) -> Result<WantedPool, Refusal> {
    let name = &group.name;
    if name.contains(['/', '@', '\0']) || name.starts_with('.') {
        return Err(Refusal::new(
            format!("group {name:?} cannot be a folder's name"),
            "choose a name without / and @",
        ));
    }
    let copies = copies(group)?;
    let sparing = match group.spares {
        None => None,
        Some(0) => Some(SparingLevel::None),
        Some(1) => Some(SparingLevel::Single),
        Some(2) => Some(SparingLevel::Double),
        Some(more) => {
            let problem =
                format!("group {name:?}: a pool keeps room for two lost drives at most, not for {more}");
            return Err(Refusal::new(problem, "say spares = 2"));
        }
    };
    let drives = match group.devices.as_slice() {
        [] => {
            let spares = u64::from(group.spares.unwrap_or(0));
            let count = group.drives.map_or(u64::from(FILES_USUAL), |drives| u64::from(drives) + spares);
            let count = u16::try_from(count).ok().filter(|count| (1..=DRIVES_MAX).contains(count));
            let count = count.ok_or_else(|| {
                let problem = format!("group {name:?}: a pool has 1 to {DRIVES_MAX} drives");
                Refusal::new(problem, "say drives = N, or divide the group")
            })?;
            let size_max = group.drive_gb.map(|gb| ByteCount((gb * 1e9) as u64));
            WantedDrives::Files { count, size_max }
        }
        devices => WantedDrives::Devices(devices.iter().map(PathBuf::from).collect()),
    };
    let folder = match group.folder.as_str() {
        "" => context.state.join("pools").join(name),
        folder => context.folder.join(folder),
    };
    Ok(WantedPool {
        name: name.clone(),
        folder,
        drives,
        copies,
        sparing,
        volumes: Vec::new(),
        exports: WantedExports::default(),
    })
}

/// A line for each key that a reader would expect to have an effect, and that has none.
fn unused_keys(group: &Group) -> Vec<String> {
    let name = &group.name;
    let unused = [
        (
            !group.failure_sets.is_empty(),
            "failure_sets",
            "'spindle pool set POOL --failure-sets on' forms them",
        ),
        (group.write_cache.is_some(), "write_cache", "say it of each volume"),
        (group.snapshot_reserve_percent.is_some(), "snapshot_reserve_percent", "say limit_gb of each volume"),
    ];
    let lines = unused.into_iter().filter(|(is_said, ..)| *is_said);
    lines.map(|(_, key, next)| format!("group {name:?}: {key} is not used by pools; {next}")).collect()
}

/// Copies of each block in a group's pool; refuses levels that the array does not have.
fn copies(group: &Group) -> Result<Option<usize>, Refusal> {
    check_level(group, group.raid, &format!("group {:?}", group.name))?;
    match group.copies {
        None => Ok(None),
        Some(copies @ (2 | 3)) => Ok(Some(copies as usize)),
        Some(copies) => Err(Refusal::new(
            format!("group {:?}: a pool keeps two copies or three, not {copies}", group.name),
            "say copies = 2 or copies = 3",
        )),
    }
}

/// Refuses a level that the array does not have, with the nearest one and the drives it takes.
fn check_level(group: &Group, level: Raid, who: &str) -> Result<(), Refusal> {
    let (nearest, copies) = match level {
        Raid::Raid0 | Raid::Raid1 | Raid::Raid10 => return Ok(()),
        Raid::Raid5 | Raid::Raid50 => ("raid = \"raid10\"", 2),
        Raid::Raid6 | Raid::RaidDp => ("raid = \"raid10\" with copies = 3", 3),
        Raid::Jbod | Raid::Inside => ("raid = \"raid10\"", 2),
    };
    let same_room = group.drives.map(|drives| {
        let data = Catalogue::built_in().redundancy(level).data_drives(drives).max(1);
        let wanted = u64::from(data) * copies;
        format!(", which takes {wanted} drives for the room of these {drives}")
    });
    let problem = format!("{who}: Spindle's pools do not have {} yet", level.word());
    Err(Refusal::new(problem, format!("the nearest is {nearest}{}", same_room.unwrap_or_default())))
}

fn wanted_volume(volume: &Volume, group: &Group) -> Result<WantedVolume, Refusal> {
    let who = format!("volume {}/{}", group.name, volume.name);
    if volume.name.contains(['/', '@', '~']) {
        return Err(Refusal::new(format!("{who}: a volume's name has no /, @ or ~"), "choose another name"));
    }
    let level = volume.raid.unwrap_or(group.raid);
    check_level(group, level, &who)?;
    let size = volume.gb.filter(|gb| *gb > 0.0);
    let size = size.ok_or_else(|| Refusal::new(format!("{who} says no size"), "say gb = N"))?;
    let largest = [Some(size), volume.reserve_gb, volume.limit_gb].into_iter().flatten().fold(0.0, f64::max);
    if largest > VOLUME_GB_MAX {
        return Err(Refusal::new(
            format!("{who}: {largest} GB are more than a volume has"),
            "at most 65,536",
        ));
    }
    if let (Some(reserve), Some(limit)) = (volume.reserve_gb, volume.limit_gb)
        && limit > 0.0
        && reserve > limit
    {
        return Err(Refusal::new(
            format!("{who}: its reserve exceeds its limit"),
            "say reserve_gb <= limit_gb",
        ));
    }
    let bound = |gb: Option<f64>| gb.map(|gb| whole_blocks(bytes_of(gb)));
    let kib = |mb: f64| (mb * 1024.0).ceil().min(f64::from(u32::MAX)) as u32;
    Ok(WantedVolume {
        name: volume.name.clone(),
        was: Some(volume.was.clone()).filter(|was| !was.is_empty() && *was != volume.name),
        size: size_of(size),
        class: if level == Raid::Raid0 { RedundancyClass::Raid0 } else { RedundancyClass::Raid1 },
        write_cache: volume.write_cache,
        limits: LimitChange {
            reserve: bound(volume.reserve_gb),
            limit: bound(volume.limit_gb),
            iops_max: volume.iops_max,
            kib_per_second_max: volume.mb_per_second_max.map(kib),
        },
    })
}

fn bytes_of(gb: f64) -> u64 {
    (gb * GIB).round() as u64
}

fn whole_blocks(bytes: u64) -> ByteCount {
    ByteCount(bytes.next_multiple_of(BLOCK_BYTES as u64))
}

/// A volume's size: whole sectors as they are, since volumes of such sizes exist; anything else in whole blocks.
fn size_of(gb: f64) -> ByteCount {
    let bytes = bytes_of(gb);
    if bytes.is_multiple_of(512) { ByteCount(bytes) } else { whole_blocks(bytes) }
}

/// The address that a key gives: that of loopback if it is left out.
fn address(text: &str, key: &str, port: u16) -> Result<Option<Address>, Refusal> {
    match text {
        "none" => Ok(None),
        "" => Ok(Some(Address::Tcp { host: "127.0.0.1".to_owned(), port })),
        text => Address::parse(text, port).map(Some).map_err(|error| {
            Refusal::new(format!("serve: {key} = {text:?}: {error}"), "say HOST:PORT, or none")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, site: Option<&str>) -> Result<WantedSite, String> {
        let context =
            SiteContext { folder: "/etc".into(), state: "/state".into(), site: site.map(str::to_owned) };
        let site = Site::from_toml(text).map_err(|error| error.to_string())?;
        WantedSite::of(&site, &context).map_err(|refusal| refusal.to_string())
    }

    const GROUP: &str = "[[group]]\nname = 'mail'\n";
    const TARGET: &str =
        "[[volume]]\nname = 'store'\ngb = 1\n[[target]]\nname = 'disks'\n[[target.unit]]\nvolume = 'store'\n";

    #[test]
    fn levels_that_pools_do_not_have_are_refused_with_what_takes_their_place() {
        for (level, nearest) in [
            ("raid5", "the nearest is raid = \"raid10\", which takes 14 drives for the room of these 8"),
            ("raid-dp", "the nearest is raid = \"raid10\" with copies = 3, which takes 18 drives"),
            ("jbod", "the nearest is raid = \"raid10\""),
        ] {
            let refused = read(&format!("{GROUP}raid = '{level}'\ndrives = 8\n"), None).unwrap_err();
            assert!(
                refused.contains(&format!("do not have {level} yet")) && refused.contains(nearest),
                "{refused}"
            );
        }
        let volume = "[[volume]]\nname = 'store'\ngb = 1\nraid = 'raid6'\n";
        assert!(read(&format!("{GROUP}{volume}"), None).unwrap_err().starts_with("volume mail/store: "));
    }

    #[test]
    fn of_several_sites_one_is_served_here() {
        let text = "
            [[site]]
            name = 'east'
            [[site]]
            name = 'west'
            [[group]]
            name = 'mail'
            site = 'east'
            [[group]]
            name = 'copies'
            site = 'west'
            [[volume]]
            name = 'store'
            group = 'copies'
            gb = 1
            [[nbd]]
            name = 'store'
            volume = 'store'
        ";
        let refused = read(text, None).unwrap_err();
        assert!(refused.starts_with("the file has groups of 2 sites; say which one is here"), "{refused}");
        assert!(read(text, Some("north")).unwrap_err().contains("it has east, west"));
        let here = |site| {
            let wanted = read(text, Some(site)).unwrap();
            let [pool] = &wanted.pools[..] else { panic!("{:?}", wanted.pools) };
            (pool.name.clone(), pool.volumes.len(), pool.exports.nbd.len())
        };
        assert_eq!(here("east"), ("mail".to_owned(), 0, 0));
        assert_eq!(here("west"), ("copies".to_owned(), 1, 1));
    }

    #[test]
    fn a_target_that_no_initiator_uses_is_served_on_loopback_or_if_the_file_says_so() {
        let text = format!("{GROUP}{TARGET}");
        let wanted = read(&text, None).unwrap();
        let right = |wanted: &WantedSite, host: &str| {
            wanted.pools[0].exports.access.right(host, &name_of("disks"), 0)
        };
        assert_eq!(right(&wanted, "iqn.x:any"), Some(AccessRight::Write));
        let elsewhere = format!("[serve]\niscsi = '10.0.0.5'\n{text}");
        let refused = read(&elsewhere, None).unwrap_err();
        assert!(refused.contains("anyone who reaches 10.0.0.5:3260 could"), "{refused}");
        assert!(read(&elsewhere.replace("name = 'disks'", "name = 'disks'\nopen = true"), None).is_ok());
        let listed = format!("{elsewhere}[[initiator]]\nname = 'iqn.x:host'\nreads = ['disks']\n");
        let wanted = read(&listed, None).unwrap();
        assert_eq!(
            (right(&wanted, "iqn.x:any"), right(&wanted, "iqn.x:host")),
            (None, Some(AccessRight::Read))
        );
    }

    #[test]
    fn volumes_with_histograms_are_selected_and_names_without_effect_are_noted() {
        let volumes = "[[volume]]\nname = 'store'\ngb = 1\n";
        let metrics = "[metrics]\nhistograms = ['store', 'mail/*', 'log*', 'store@*']\n";
        let wanted = read(&format!("{metrics}{GROUP}{volumes}"), None).unwrap();
        assert!(
            wanted.metrics.histograms.selects("mail", "other")
                && !wanted.metrics.histograms.selects("x", "y")
        );
        let note = "[metrics] histograms: no volume of the file is \"log*\", so it selects none of them";
        assert_eq!(wanted.notes, [note]);
        let shown = wanted.services.get(&("metrics", "histograms".to_owned()));
        assert_eq!(shown.map(String::as_str), Some("store, mail/*, log*, store@*"));
        let refused = read(&format!("[metrics]\nhistograms = ['']\n{GROUP}"), None).unwrap_err();
        assert!(refused.contains("has an empty name"), "{refused}");
    }

    #[test]
    fn sizes_are_exact_and_wrong_ones_are_refused() {
        assert_eq!(size_of(1.0), ByteCount::gib(1));
        assert_eq!(size_of(2_097_153.0 * 512.0 / GIB), ByteCount(2_097_153 * 512));
        assert_eq!(size_of(0.3).0 % 4096, 0);
        for (volume, problem) in [
            ("name = 'store'", "volume mail/store says no size; say gb = N"),
            ("name = 'a~b'\ngb = 1", "volume mail/a~b: a volume's name has no /, @ or ~"),
        ] {
            let refused = read(&format!("{GROUP}[[volume]]\n{volume}\n"), None).unwrap_err();
            assert!(refused.starts_with(problem), "{refused}");
        }
        for (group, problem) in [
            ("spares = 3", "keeps room for two lost drives at most, not for 3; say spares = 2"),
            ("copies = 4", "a pool keeps two copies or three, not 4"),
        ] {
            let refused = read(&format!("{GROUP}{group}\n"), None).unwrap_err();
            assert!(refused.contains(problem), "{refused}");
        }
        let refused = read(&format!("[serve]\nnbd = 'host:port'\n{GROUP}"), None).unwrap_err();
        assert!(refused.starts_with("serve: nbd = \"host:port\""), "{refused}");
        assert!(read(&format!("[serve]\nnbd = 'none'\n{GROUP}"), None).unwrap().nbd.is_none());
    }
}

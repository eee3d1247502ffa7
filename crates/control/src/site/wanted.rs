//! A site file as the daemon wants it: checked against what an array can do (`wanted_pool`), with units and paths resolved.

use super::{
    wanted_dr_group::{WantedDrGroup, wanted_dr_groups},
    wanted_pool::{WantedPool, pool, unused_keys, wanted_volume},
};
use crate::{
    metrics::MetricsSetting,
    notifying::{notifier_texts, wanted_notifiers},
    schedules::wanted::{WantedSchedule, schedule_texts, wanted_schedules},
    sets::{
        set_texts::set_texts,
        wanted::{WantedSet, sets_of_pools, wanted_sets},
    },
    watched::{WatchedCertificate, WatchedSite},
};
use iscsi::target::access::{AccessList, AccessRight, InitiatorRights};
use nbd::TlsMode;
use plan::site::{Group, Serving, Site, SiteIndex, SiteTarget, Volume, split_snapshot};
use report::Refusal;
use serving::{
    certificates::{self, ClientCertificates, ServerCertificates},
    export::{WantedExport, WantedTarget, WantedUnit, credentials, name_of},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};
use tls::{ClientTls, ServerTls};
use world::Address;

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
    /// Trust and identity towards witnesses over TLS; `None` if the machine's authorities count.
    pub witness_tls: Option<ClientTls>,
    /// Of the API.
    pub api_tls: Option<ServerTls>,
    /// Schedules of snapshots of these pools.
    pub schedules: Vec<WantedSchedule>,
    /// Sets whose volumes are all in these pools.
    pub sets: Vec<WantedSet>,
    /// DR groups of the file, those of other sites included.
    pub dr_groups: Vec<WantedDrGroup>,
    /// The file says where the server waits for other sites.
    pub listens: bool,
    /// Notifiers, and certificates to be watched.
    pub watched: WatchedSite,
    pub metrics: MetricsSetting,
    /// Parts of the file that are not served, and dangers.
    pub notes: Vec<String>,
    /// Exports, units, rights, schedules and sets in words, by kind and name.
    pub services: BTreeMap<(&'static str, String), String>,
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
        let (sets, not_here) = sets_of_pools(wanted_sets(index)?, is_pool);
        notes.extend(not_here);
        let own = context.site.as_deref().unwrap_or(&site.serve.site);
        let dr_groups = wanted_dr_groups((site, index), own, is_pool)?;
        let listens = site.replication.as_ref().is_some_and(|replication| !replication.listen.is_empty());
        let notifiers = wanted_notifiers(site, (&context.folder, has_secrets))?;
        let (nbd_tls, mut services) = (TlsMode::Off, schedule_texts((site, index), &schedules));
        services.append(&mut set_texts(index, &sets));
        services.append(&mut notifier_texts(&notifiers));
        let in_pools = |one: &WantedSchedule| {
            let name = one.name.clone();
            one.volumes.keys().map(move |pool| (pool.clone(), name.clone())).collect::<Vec<_>>()
        };
        let in_pools = schedules.iter().flat_map(in_pools).collect();
        let kept_here = sets.iter().filter(|set| set.freeze.is_by_server());
        let kept_here = kept_here.map(|set| set.settings.name.clone()).collect();
        let watched =
            WatchedSite { notifiers, certificates: Vec::new(), schedules: in_pools, sets: kept_here };
        let api_tls = match &api {
            Some(_) if has_secrets => api_certificates(site, context)?,
            _ => None,
        };
        let (api_tls, api_ends) = api_tls.map(|own| (own.tls, own.ends)).unzip();
        let witness_tls = if has_secrets { witness_certificates(site, context)? } else { None };
        let (witness_tls, witness_ends) = witness_tls.map(|own| (own.tls, own.ends)).unzip();
        let metrics = MetricsSetting::default();
        let mut wanted = Self {
            pools,
            nbd,
            iscsi,
            api,
            nbd_tls,
            witness_tls,
            api_tls,
            schedules,
            sets,
            dr_groups,
            listens,
            watched,
            metrics,
            notes,
            services,
        };
        wanted.select_histograms(site)?;
        wanted.add_targets((site, index), &groups)?;
        wanted.add_rights((site, index), (context, has_secrets))?;
        wanted.add_exports((site, index), &groups, (context, has_secrets))?;
        wanted.watch_certificates(api_ends.unwrap_or_default());
        wanted.watch_certificates(witness_ends.unwrap_or_default());
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
            let ServerCertificates { tls, ends } = certificates::of_server(&folder)?;
            self.nbd_tls = TlsMode::Required(tls);
            self.watch_certificates(ends);
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

    /// Those of NBD and of the API may be of one folder.
    fn watch_certificates(&mut self, ends: Vec<(PathBuf, i64)>) {
        for (file, ends_unix_s) in ends {
            let watched = WatchedCertificate { file, ends_unix_s };
            if !self.watched.certificates.contains(&watched) {
                self.watched.certificates.push(watched);
            }
        }
    }
}

/// Port of the API if its address names none.
pub const API_PORT: u16 = 7780;

/// Certificates of the API, if there are to be any.
pub(super) fn api_certificates(
    site: &Site,
    context: &SiteContext,
) -> Result<Option<ServerCertificates>, Refusal> {
    let folder = &site.serve.api_tls;
    (!folder.is_empty()).then(|| certificates::of_server(&context.folder.join(folder))).transpose()
}

/// Certificates for witnesses over TLS, if the file has a folder of them.
fn witness_certificates(site: &Site, context: &SiteContext) -> Result<Option<ClientCertificates>, Refusal> {
    let folder = site.replication.as_ref().map(|replication| replication.witness_tls.as_str());
    let folder = folder.filter(|folder| !folder.is_empty());
    folder.map(|folder| certificates::of_client_to_several(&context.folder.join(folder))).transpose()
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
    fn an_address_is_of_a_host_and_a_port_or_none() {
        let refused = read(&format!("[serve]\nnbd = 'host:port'\n{GROUP}"), None).unwrap_err();
        assert!(refused.starts_with("serve: nbd = \"host:port\""), "{refused}");
        assert!(read(&format!("[serve]\nnbd = 'none'\n{GROUP}"), None).unwrap().nbd.is_none());
    }
}

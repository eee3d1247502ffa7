//! The site of the documents that were found in pools. Where they contradict each other, the newest counts, and that is said.

use super::{
    document::PoolDocument,
    key::RecoveryKey,
    secrets::{self, SiteSecret},
};
use crate::site::adoption::{FoundPool, refreshed};
use array::format::{PoolId, SiteId};
use plan::site::{Group, ProtectedSet, Replication, Site, SiteIndex, SiteInitiator, SiteTarget, Snapshots};
use report::Refusal;
use serving::export::name_of;
use std::collections::{BTreeMap, BTreeSet};

/// A pool that was found, with what it keeps of its site.
pub struct RecoveredPool {
    pub pool: PoolId,
    /// Folder, devices and volumes, under the name of the pool's drives.
    pub found: FoundPool,
    pub kept: KeptPart,
}

/// A pool's part of its site.
pub enum KeptPart {
    /// It was never served by a site, or last by an older program.
    Nothing,
    Damaged(Refusal),
    Document {
        site: SiteId,
        generation: u64,
        document: Box<PoolDocument>,
    },
}

/// A site made of its pools.
pub struct RecoveredSite {
    /// It has no groups if no pool was found.
    pub site: Site,
    /// The site's UUID and the number of its last change; none if no pool keeps a document.
    pub kept: Option<(SiteId, u64)>,
    /// The state of each pool, in the order of the pools that were given.
    pub pools: Vec<RecoveredPart>,
    /// Secrets that were opened, and those that were not, with the reasons.
    pub secrets: Vec<SiteSecret>,
    pub lacking: Vec<(String, Refusal)>,
    /// Contradictions and how they were settled, and what is left out.
    pub lines: Vec<String>,
}

/// The outcome for a pool's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoveredPart {
    /// The pool's group has this name, and its part is of the site's last change.
    Newest { group: String },
    /// Its part is of an older change.
    Older { group: String, reason: String },
    /// The pool's volumes are there, and nothing of them is served.
    Unserved { group: String, reason: String },
    /// The pool is not in the site.
    LeftOut { reason: String },
}

/// The site of these pools; `chosen` says which one, if they are of several. Secrets are opened with the key, if there is one.
///
/// # Errors
///
/// The pools are of several sites, and none was chosen; or the key is another one than that of the secrets.
pub fn merged(
    pools: &[RecoveredPool],
    key: Option<&RecoveryKey>,
    chosen: Option<SiteId>,
) -> Result<RecoveredSite, Refusal> {
    let order = newest_first(pools, chosen)?;
    if let (Some(key), Some(newest)) = (key, order.iter().find_map(|part| part.document.key.as_ref())) {
        check_key(key, newest)?;
    }
    let site = order.first().map_or_else(Site::default, |newest| whole_of(&newest.document.site));
    let mut merging = Merging {
        pools,
        key,
        newest: order.first().map(|part| part.generation),
        draft: SiteDraft { site, ..SiteDraft::default() },
    };
    let mut states = BTreeMap::new();
    for part in &order {
        states.insert(part.index, merging.try_to(|merging| merging.add(part)));
    }
    for index in 0..pools.len() {
        if !order.iter().any(|part| part.index == index) {
            states.insert(index, merging.try_to(|merging| merging.add_unserved(index)));
        }
    }
    let (site, left_out) = refreshed(merging.draft.site.clone(), &merging.found())?;
    let SiteDraft { secrets, lacking, mut lines, .. } = merging.draft;
    lines.extend(left_out);
    Ok(RecoveredSite {
        site,
        kept: order.first().map(|part| (part.site, part.generation)),
        pools: states.into_values().collect(),
        secrets: secrets.into_iter().map(|(label, bytes)| SiteSecret { label, bytes }).collect(),
        lacking: lacking.into_iter().collect(),
        lines,
    })
}

/// A document with its pool.
struct Part<'p> {
    index: usize,
    site: SiteId,
    generation: u64,
    document: &'p PoolDocument,
}

/// The parts of the one site, the newest first. Documents of other sites are not looked at.
fn newest_first(pools: &[RecoveredPool], chosen: Option<SiteId>) -> Result<Vec<Part<'_>>, Refusal> {
    let parts = pools.iter().enumerate().filter_map(|(index, pool)| match &pool.kept {
        KeptPart::Document { site, generation, document } => {
            Some(Part { index, site: *site, generation: *generation, document })
        }
        KeptPart::Nothing | KeptPart::Damaged(_) => None,
    });
    let mut parts: Vec<Part<'_>> = parts.collect();
    let sites: BTreeSet<String> = parts.iter().map(|part| part.site.to_string()).collect();
    match chosen {
        Some(chosen) => parts.retain(|part| part.site == chosen),
        None if sites.len() > 1 => {
            let named = |site: &String| {
                let own = parts.iter().filter(|part| part.site.to_string() == *site);
                let groups: Vec<&str> = own.map(|part| part.document.group.as_str()).collect();
                format!("{site} ({})", groups.join(", "))
            };
            let all: Vec<String> = sites.iter().map(named).collect();
            return Err(Refusal::new(
                format!("the pools are of {} sites: {}", all.len(), all.join(" and ")),
                "say which one is to come back with ⟨site⟩ UUID, or name its drives alone",
            ));
        }
        None => {}
    }
    parts.sort_by_key(|part| std::cmp::Reverse(part.generation));
    Ok(parts)
}

/// Fails if the newest secrets were sealed with another key.
fn check_key(key: &RecoveryKey, newest: &str) -> Result<(), Refusal> {
    match key.id() == newest {
        true => Ok(()),
        false => Err(Refusal::new(
            format!("this is the recovery key {}, and the secrets were sealed with {newest}", key.id()),
            "give the key that was shown last, or leave it out: the site comes back without its secrets",
        )),
    }
}

/// The site without what refers to other groups: a document speaks for its own pool alone.
fn within(site: &Site, group: &str) -> Site {
    let is_own = |meant: &String| meant.split_once('/').is_some_and(|(of, _)| of == group);
    let mut own = site.clone();
    own.groups.retain(|known| known.name == group);
    own.volumes.retain(|volume| volume.group == group);
    own.targets.retain(|target| target.units.iter().all(|unit| is_own(&unit.volume)));
    own.exports.retain(|export| is_own(&export.volume));
    for schedule in &mut own.snapshots {
        schedule.groups.retain(|known| known == group);
        schedule.volumes.retain(is_own);
    }
    own.snapshots.retain(|schedule| !schedule.groups.is_empty() || !schedule.volumes.is_empty());
    for set in &mut own.sets {
        set.volumes.retain(is_own);
        set.logs.retain(is_own);
    }
    own.sets.retain(|set| !set.volumes.is_empty());
    if let Some(replication) = &mut own.replication {
        replication.dr_groups.retain(|dr| dr.volumes.iter().all(is_own));
    }
    own
}

/// The keys that concern a site as a whole.
fn whole_of(site: &Site) -> Site {
    let without_groups = |replication: Replication| Replication { dr_groups: Vec::new(), ..replication };
    Site {
        replication: site.replication.clone().map(without_groups),
        groups: Vec::new(),
        volumes: Vec::new(),
        targets: Vec::new(),
        initiators: Vec::new(),
        exports: Vec::new(),
        snapshots: Vec::new(),
        sets: Vec::new(),
        ..site.clone()
    }
}

fn renamed(found: &FoundPool, name: &str) -> FoundPool {
    FoundPool {
        name: name.to_owned(),
        folder: found.folder.clone(),
        devices: found.devices.clone(),
        drives: found.drives,
        volumes: found.volumes.clone(),
        presented: found.presented.clone(),
    }
}

struct Merging<'p> {
    pools: &'p [RecoveredPool],
    key: Option<&'p RecoveryKey>,
    /// The site's last change.
    newest: Option<u64>,
    draft: SiteDraft,
}

/// The site that was merged so far.
#[derive(Clone, Default)]
struct SiteDraft {
    site: Site,
    /// Index of the pool of each group.
    groups: BTreeMap<String, usize>,
    secrets: BTreeMap<String, Vec<u8>>,
    /// The number of the newest change that lists each label.
    labels: BTreeMap<String, u64>,
    lacking: BTreeMap<String, Refusal>,
    lines: Vec<String>,
}

impl Merging<'_> {
    /// The pools of the groups so far, under the groups' names.
    fn found(&self) -> Vec<FoundPool> {
        self.draft.groups.iter().map(|(name, &index)| renamed(&self.pools[index].found, name)).collect()
    }

    /// Adds a pool, unless what comes of it is no site: one odd pool keeps no other from coming back.
    fn try_to(&mut self, add: impl FnOnce(&mut Self) -> RecoveredPart) -> RecoveredPart {
        let before = self.draft.clone();
        let added = add(self);
        let Err(fault) = refreshed(self.draft.site.clone(), &self.found()) else { return added };
        // Parts of a plan may refer to pools that were not found.
        let less = Site {
            replication: None,
            backup: None,
            links: Vec::new(),
            servers: Vec::new(),
            ..self.draft.site.clone()
        };
        if refreshed(less.clone(), &self.found()).is_ok() {
            self.draft.site = less;
            self.draft.lines.push(format!("replication, backup, links and servers are left out: {fault}"));
            return added;
        }
        self.draft = before;
        RecoveredPart::LeftOut { reason: format!("with it the site would contradict itself: {fault}") }
    }

    /// Adds the part of a pool, as far as newer ones do not contradict it.
    fn add(&mut self, part: &Part<'_>) -> RecoveredPart {
        let group = &part.document.group;
        let own = &within(&part.document.site, group);
        let pool = &self.pools[part.index];
        if let Some(&other) = self.draft.groups.get(group) {
            let other = self.pools[other].pool;
            return RecoveredPart::LeftOut {
                reason: format!("its group {group:?} is that of the pool {other}, which is newer"),
            };
        }
        self.draft.groups.insert(group.clone(), part.index);
        let before = own.group(group).expect("a document has its group").clone();
        self.draft.site.groups.push(placed(before, &pool.found));
        self.draft.site.volumes.extend(own.volumes.iter().cloned());
        let brought = self.add_targets(own, group);
        self.add_exports(own, group);
        let is_older = Some(part.generation) != self.newest;
        self.add_initiators(own, (group, is_older), &brought);
        self.add_schedules(own, group);
        self.add_sets(own, group);
        self.add_dr_groups(own, group);
        self.add_secrets(part, pool.pool);
        let group = group.clone();
        match self.newest {
            Some(newest) if is_older => RecoveredPart::Older {
                group,
                reason: format!(
                    "what it keeps is of change {} of the site, and the last one is {newest}: it was away since",
                    part.generation
                ),
            },
            _ => RecoveredPart::Newest { group },
        }
    }

    /// Adds a pool of which nothing is known but what its drives say.
    fn add_unserved(&mut self, index: usize) -> RecoveredPart {
        let pool = &self.pools[index];
        let reason = match &pool.kept {
            KeptPart::Damaged(refusal) => refusal.to_string(),
            KeptPart::Document { site, .. } => format!("it is of another site, {site}"),
            KeptPart::Nothing => {
                "it keeps nothing of a site: no site served it, or a program of before 2026-11-27 did"
                    .to_owned()
            }
        };
        let name = &pool.found.name;
        if name.is_empty() || self.draft.groups.contains_key(name) {
            return RecoveredPart::LeftOut {
                reason: format!("{reason}; and another group is called {name:?}"),
            };
        }
        self.draft.groups.insert(name.clone(), index);
        let group = Group { name: name.clone(), ..Group::default() };
        self.draft.site.groups.push(placed(group, &pool.found));
        RecoveredPart::Unserved { group: name.clone(), reason }
    }

    /// Returns the names of the targets that are new.
    fn add_targets(&mut self, own: &Site, group: &str) -> BTreeSet<String> {
        let mut brought = BTreeSet::new();
        for target in &own.targets {
            let is_same = |known: &SiteTarget| name_of(&known.name) == name_of(&target.name);
            if self.draft.site.targets.iter().any(is_same) {
                self.draft.lines.push(format!(
                    "target {:?} of the group {group:?} is left out: a newer part has a target of this name",
                    target.name
                ));
            } else {
                brought.insert(target.name.clone());
                self.draft.site.targets.push(target.clone());
            }
        }
        brought
    }

    fn add_exports(&mut self, own: &Site, group: &str) {
        for export in &own.exports {
            match self.draft.site.exports.iter().any(|known| known.name == export.name) {
                false => self.draft.site.exports.push(export.clone()),
                true => self.draft.lines.push(format!(
                    "NBD export {:?} of the group {group:?} is left out: a newer part has an export of this name",
                    export.name
                )),
            }
        }
    }

    /// Rights on the targets that this part has brought: on others it says nothing.
    fn add_initiators(&mut self, own: &Site, (group, is_older): (&str, bool), brought: &BTreeSet<String>) {
        let index = SiteIndex::of(own);
        for initiator in &own.initiators {
            let is_brought = |meant: &&String| {
                index.units_meant(meant).is_some_and(|(target, _)| brought.contains(&target.name))
            };
            let uses: Vec<String> = initiator.uses.iter().filter(is_brought).cloned().collect();
            let reads: Vec<String> = initiator.reads.iter().filter(is_brought).cloned().collect();
            if is_older && !(uses.is_empty() && reads.is_empty()) {
                self.draft.lines.push(format!(
                    "initiator {:?} may use {} of the group {group:?} as of before: take that out of the file if it was revoked \
                     since",
                    initiator.name,
                    uses.iter().chain(&reads).cloned().collect::<Vec<_>>().join(", ")
                ));
            }
            let is_same = |known: &&mut SiteInitiator| known.name.eq_ignore_ascii_case(&initiator.name);
            let Some(known) = self.draft.site.initiators.iter_mut().find(is_same) else {
                if !(is_older && uses.is_empty() && reads.is_empty()) {
                    self.draft.site.initiators.push(SiteInitiator { uses, reads, ..initiator.clone() });
                }
                continue;
            };
            for (all, more) in [(&mut known.uses, uses), (&mut known.reads, reads)] {
                let new: Vec<String> = more.into_iter().filter(|meant| !all.contains(meant)).collect();
                all.extend(new);
            }
            if known.user != initiator.user {
                self.draft.lines.push(format!(
                    "initiator {:?}: the CHAP user {:?} counts, not {:?}, which the group {group:?} has of before",
                    known.name, known.user, initiator.user
                ));
            }
        }
    }

    /// A schedule of other times keeps its own name: under a newer one with fewer to keep, its snapshots would be pruned.
    fn add_schedules(&mut self, own: &Site, group: &str) {
        for schedule in &own.snapshots {
            if self.draft.site.sets.iter().any(|set| set.set == schedule.name) {
                self.draft.lines.push(format!(
                    "snapshots {:?} of the group {group:?} are left out: a newer part has a set of this name; what the \
                     schedule took stays until someone deletes it",
                    schedule.name
                ));
                continue;
            }
            let Some(known) = self.draft.site.snapshots.iter_mut().find(|known| known.name == schedule.name)
            else {
                self.draft.site.snapshots.push(schedule.clone());
                continue;
            };
            let plain = |schedule: &Snapshots| Snapshots {
                name: String::new(),
                groups: Vec::new(),
                volumes: Vec::new(),
                ..schedule.clone()
            };
            if plain(known) == plain(schedule) {
                known.groups.extend(schedule.groups.iter().cloned());
                known.volumes.extend(schedule.volumes.iter().cloned());
                continue;
            }
            let name = format!("{} of {group}", schedule.name);
            self.draft.lines.push(format!(
                "snapshots {:?}: the group {group:?} has other times or numbers of before, and goes on with them as {name:?}; \
                 what the schedule took there until now stays until someone deletes it",
                schedule.name
            ));
            self.draft.site.snapshots.push(Snapshots { name, ..schedule.clone() });
        }
    }

    /// A set over several pools comes back from all of them. What the newest part says of it counts: one set has one catalogue.
    fn add_sets(&mut self, own: &Site, group: &str) {
        for set in &own.sets {
            if self.draft.site.snapshots.iter().any(|schedule| schedule.name == set.set) {
                self.draft.lines.push(format!(
                    "set {:?} of the group {group:?} is left out: a newer part has a schedule of this name; its backups stay",
                    set.set
                ));
                continue;
            }
            let Some(known) = self.draft.site.sets.iter_mut().find(|known| known.set == set.set) else {
                self.draft.site.sets.push(set.clone());
                continue;
            };
            let plain =
                |set: &ProtectedSet| ProtectedSet { volumes: Vec::new(), logs: Vec::new(), ..set.clone() };
            if plain(known) != plain(set) {
                self.draft.lines.push(format!(
                    "set {:?}: the schedules and rules of a newer part count, not those of before that the group {group:?} has",
                    set.set
                ));
            }
            known.volumes.extend(set.volumes.iter().cloned());
            known.logs.extend(set.logs.iter().cloned());
        }
    }

    fn add_dr_groups(&mut self, own: &Site, group: &str) {
        let Some(replication) = &mut self.draft.site.replication else { return };
        for dr in own.dr_groups() {
            match replication.dr_groups.iter().any(|known| known.name == dr.name) {
                false => replication.dr_groups.push(dr.clone()),
                true => self.draft.lines.push(format!(
                    "DR group {:?} of the group {group:?} is left out: a newer part has a DR group of this name",
                    dr.name
                )),
            }
        }
    }

    fn add_secrets(&mut self, part: &Part<'_>, pool: PoolId) {
        let document = part.document;
        for label in secrets::labels(&document.site) {
            // Of one change, any pool will do; an older one says nothing of what a newer one lists.
            let listed = *self.draft.labels.entry(label.clone()).or_insert(part.generation);
            if listed != part.generation || self.draft.secrets.contains_key(&label) {
                continue;
            }
            let sealed = document.secrets.iter().find(|secret| secret.label == label);
            let opened = match (sealed, self.key) {
                (None, _) if secrets::is_of_clients(&label) => continue,
                (None, _) => Err(Refusal::new(
                    "it could not be read when the pool was written",
                    "put it there from elsewhere",
                )),
                (Some(_), None) => Err(Refusal::new(
                    format!(
                        "it is sealed with the recovery key {}",
                        document.key.as_deref().unwrap_or("of the site")
                    ),
                    "import again with ⟨recovery-key-file⟩ FILE, or put the secret there from elsewhere",
                )),
                (Some(sealed), Some(key)) => sealed.open(key, part.site, pool),
            };
            match opened {
                Ok(bytes) => {
                    self.draft.lacking.remove(&label);
                    self.draft.secrets.insert(label, bytes);
                }
                Err(refusal) => drop(self.draft.lacking.entry(label).or_insert(refusal)),
            }
        }
    }
}

/// The group where its pool was found.
fn placed(group: Group, found: &FoundPool) -> Group {
    let is_of_devices = found.devices.len() == found.drives as usize;
    let spares = group.spares.unwrap_or(0);
    let is_right =
        group.drives.is_some_and(|drives| drives == found.drives || drives + spares == found.drives);
    Group {
        folder: found.folder.display().to_string(),
        devices: if is_of_devices { found.devices.clone() } else { Vec::new() },
        drives: if is_right { group.drives } else { Some(found.drives) },
        ..group
    }
}

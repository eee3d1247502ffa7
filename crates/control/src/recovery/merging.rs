//! The site of the documents that were found in pools. Where they contradict each other, the newest counts, and that is said.

use super::{
    document::PoolDocument,
    key::RecoveryKey,
    secrets::{self, SiteSecret},
};
use crate::site::adoption::{FoundPool, refreshed};
use array::format::{PoolId, SiteId};
use plan::site::{Group, Site, SiteInitiator, Snapshots, Volume};
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

/// What a pool keeps of its site.
pub enum KeptPart {
    /// It was never served by a site, or last by an older program.
    Nothing,
    Damaged(Refusal),
    Document {
        site: SiteId,
        generation: u64,
        written_unix_s: i64,
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

/// What became of a pool's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoveredPart {
    /// The pool's group has this name, and its part is of the site's last change.
    Newest { group: String },
    /// Its part is of an older change, or of another site.
    Older { group: String, reason: String },
    /// The pool's volumes are there, and nothing of them is served.
    Unserved { group: String, reason: String },
    /// The pool is not in the site.
    LeftOut { reason: String },
}

/// The site of these pools. Secrets are opened with the key, if there is one.
///
/// # Errors
///
/// The key is another one than that of the secrets; or the documents make no site.
pub fn merged(pools: &[RecoveredPool], key: Option<&RecoveryKey>) -> Result<RecoveredSite, Refusal> {
    let order = newest_first(pools);
    let kept = order.first().map(|part| (part.site, part.generation));
    if let Some(key) = key {
        check_key(&order, key)?;
    }
    let mut merging = Merging {
        pools,
        key,
        site: Site::default(),
        groups: BTreeMap::new(),
        secrets: BTreeMap::new(),
        lacking: BTreeMap::new(),
        lines: Vec::new(),
    };
    if let Some(newest) = order.first() {
        merging.site = whole_of(&newest.document.site);
    }
    let mut states = BTreeMap::new();
    for part in &order {
        states.insert(part.index, merging.add(part, kept.expect("there is a first")));
    }
    for (index, pool) in
        pools.iter().enumerate().filter(|(index, _)| !order.iter().any(|part| part.index == *index))
    {
        states.insert(index, merging.add_unserved(index, pool));
    }
    let found: Vec<FoundPool> =
        merging.groups.iter().map(|(name, &index)| renamed(&pools[index].found, name)).collect();
    let (site, left_out) = match refreshed(merging.site.clone(), &found) {
        Ok(refreshed) => refreshed,
        // Parts of the plan may refer to what was not found.
        Err(fault) => {
            merging.lines.push(format!("replication, backup, links and servers are left out: {fault}"));
            let less = Site {
                replication: None,
                backup: None,
                links: Vec::new(),
                servers: Vec::new(),
                ..merging.site
            };
            refreshed(less, &found)?
        }
    };
    merging.lines.extend(left_out);
    let secrets = merging.secrets.into_iter().map(|(label, bytes)| SiteSecret { label, bytes });
    Ok(RecoveredSite {
        site,
        kept,
        pools: states.into_values().collect(),
        secrets: secrets.collect(),
        lacking: merging.lacking.into_iter().collect(),
        lines: merging.lines,
    })
}

/// A document with its pool.
struct Part<'p> {
    index: usize,
    site: SiteId,
    generation: u64,
    written_unix_s: i64,
    document: &'p PoolDocument,
}

/// The parts of the site that most pools are of first, then those of others; the newest first.
fn newest_first(pools: &[RecoveredPool]) -> Vec<Part<'_>> {
    let parts = pools.iter().enumerate().filter_map(|(index, pool)| match &pool.kept {
        KeptPart::Document { site, generation, written_unix_s, document } => Some(Part {
            index,
            site: *site,
            generation: *generation,
            written_unix_s: *written_unix_s,
            document,
        }),
        KeptPart::Nothing | KeptPart::Damaged(_) => None,
    });
    let mut parts: Vec<Part<'_>> = parts.collect();
    let mut weights: BTreeMap<[u8; 16], (usize, i64)> = BTreeMap::new();
    for part in &parts {
        let (count, written) = weights.entry(part.site.0).or_default();
        (*count, *written) = (*count + 1, part.written_unix_s.max(*written));
    }
    parts.sort_by_key(|part| std::cmp::Reverse((weights[&part.site.0], part.site.0, part.generation)));
    parts
}

/// Fails if no secret of the site was sealed with this key.
fn check_key(parts: &[Part<'_>], key: &RecoveryKey) -> Result<(), Refusal> {
    let ids: BTreeSet<&String> = parts.iter().filter_map(|part| part.document.key.as_ref()).collect();
    if ids.is_empty() || ids.contains(&key.id()) {
        return Ok(());
    }
    let ids: Vec<&str> = ids.into_iter().map(String::as_str).collect();
    Err(Refusal::new(
        format!(
            "this is the recovery key {}, and the secrets were sealed with {}",
            key.id(),
            ids.join(" and ")
        ),
        "give the key that was shown last, or leave it out: the site comes back without its secrets",
    ))
}

/// What concerns a site as a whole.
fn whole_of(site: &Site) -> Site {
    Site {
        groups: Vec::new(),
        volumes: Vec::new(),
        targets: Vec::new(),
        initiators: Vec::new(),
        exports: Vec::new(),
        snapshots: Vec::new(),
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
    }
}

struct Merging<'p> {
    pools: &'p [RecoveredPool],
    key: Option<&'p RecoveryKey>,
    site: Site,
    /// Index of the pool of each group.
    groups: BTreeMap<String, usize>,
    secrets: BTreeMap<String, Vec<u8>>,
    lacking: BTreeMap<String, Refusal>,
    lines: Vec<String>,
}

impl Merging<'_> {
    /// Adds the part of a pool, as far as newer ones do not contradict it.
    fn add(&mut self, part: &Part<'_>, (site, generation): (SiteId, u64)) -> RecoveredPart {
        let PoolDocument { group, site: own, .. } = part.document;
        let pool = &self.pools[part.index];
        if let Some(&other) = self.groups.get(group) {
            let other = self.pools[other].pool;
            return RecoveredPart::LeftOut {
                reason: format!("its group {group:?} is that of the pool {other}, which is newer"),
            };
        }
        self.groups.insert(group.clone(), part.index);
        let before = own.group(group).expect("a document has its group").clone();
        self.site.groups.push(placed(before, &pool.found));
        self.site
            .volumes
            .extend(own.volumes.iter().map(|volume| Volume { group: group.clone(), ..volume.clone() }));
        self.add_targets(own, group);
        self.add_exports(own, group);
        self.add_initiators(own, group);
        self.add_schedules(own, group);
        self.add_secrets(part, pool.pool);
        let group = group.clone();
        if part.site != site {
            let reason = format!("it is of another site, {}", part.site);
            RecoveredPart::Older { group, reason }
        } else if part.generation != generation {
            let reason = format!(
                "what it keeps is of change {} of the site, and the last one is {generation}: it was away since, or no longer \
                 in the site file",
                part.generation
            );
            RecoveredPart::Older { group, reason }
        } else {
            RecoveredPart::Newest { group }
        }
    }

    /// Adds a pool of which nothing is known but what its drives say.
    fn add_unserved(&mut self, index: usize, pool: &RecoveredPool) -> RecoveredPart {
        let reason = match &pool.kept {
            KeptPart::Damaged(refusal) => refusal.to_string(),
            _ => "it keeps nothing of a site: no site served it, or a program of before 2026-11-27 did"
                .to_owned(),
        };
        let name = &pool.found.name;
        if name.is_empty() || self.groups.contains_key(name) {
            return RecoveredPart::LeftOut {
                reason: format!("{reason}; and another group is called {name:?}"),
            };
        }
        self.groups.insert(name.clone(), index);
        self.site.groups.push(placed(Group { name: name.clone(), ..Group::default() }, &pool.found));
        RecoveredPart::Unserved { group: name.clone(), reason }
    }

    fn add_targets(&mut self, own: &Site, group: &str) {
        for target in &own.targets {
            let is_same = |known: &&plan::site::SiteTarget| name_of(&known.name) == name_of(&target.name);
            match self.site.targets.iter().find(is_same) {
                None => self.site.targets.push(target.clone()),
                Some(_) => self.lines.push(format!(
                    "target {:?} of the group {group:?} is left out: a newer part has a target of this name",
                    target.name
                )),
            }
        }
    }

    fn add_exports(&mut self, own: &Site, group: &str) {
        for export in &own.exports {
            match self.site.exports.iter().any(|known| known.name == export.name) {
                false => self.site.exports.push(export.clone()),
                true => self.lines.push(format!(
                    "NBD export {:?} of the group {group:?} is left out: a newer part has an export of this name",
                    export.name
                )),
            }
        }
    }

    /// Rights on targets that this part has brought.
    fn add_initiators(&mut self, own: &Site, group: &str) {
        for initiator in &own.initiators {
            let is_same = |known: &&mut SiteInitiator| known.name.eq_ignore_ascii_case(&initiator.name);
            let Some(known) = self.site.initiators.iter_mut().find(is_same) else {
                self.site.initiators.push(initiator.clone());
                continue;
            };
            for (all, more) in [(&mut known.uses, &initiator.uses), (&mut known.reads, &initiator.reads)] {
                let new: Vec<String> = more.iter().filter(|meant| !all.contains(meant)).cloned().collect();
                all.extend(new);
            }
            if known.user != initiator.user {
                self.lines.push(format!(
                    "initiator {:?}: the CHAP user {:?} counts, not {:?}, which the group {group:?} has of before",
                    known.name, known.user, initiator.user
                ));
            }
        }
    }

    fn add_schedules(&mut self, own: &Site, group: &str) {
        for schedule in &own.snapshots {
            let Some(known) = self.site.snapshots.iter_mut().find(|known| known.name == schedule.name) else {
                self.site.snapshots.push(schedule.clone());
                continue;
            };
            let plain = |schedule: &Snapshots| Snapshots {
                groups: Vec::new(),
                volumes: Vec::new(),
                ..schedule.clone()
            };
            if plain(known) != plain(schedule) {
                self.lines.push(format!(
                    "snapshots {:?}: the group {group:?} has other times or numbers of before; the newest count",
                    schedule.name
                ));
            }
            known.groups.extend(schedule.groups.iter().cloned());
            known.volumes.extend(schedule.volumes.iter().cloned());
        }
    }

    fn add_secrets(&mut self, part: &Part<'_>, pool: PoolId) {
        let document = part.document;
        for label in secrets::labels(&document.site) {
            if self.secrets.contains_key(&label) {
                continue;
            }
            let sealed = document.secrets.iter().find(|secret| secret.label == label);
            let opened = match (sealed, self.key) {
                (None, _) if label.contains("ca-cert") => continue,
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
                    self.lacking.remove(&label);
                    self.secrets.insert(label, bytes);
                }
                Err(refusal) => drop(self.lacking.entry(label).or_insert(refusal)),
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

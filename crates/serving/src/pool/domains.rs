//! Failure domains of a pool: shelves, controllers or machines whose drives fail together, for people and programs.

use super::{
    create::drive_name,
    departure::{NamedDrive, drive_named},
    folder::OpenPool,
    status::{DriveStatus, PoolStatus},
};
use array::{
    format::{DomainName, DriveId},
    pool::{DomainLoss, DomainStatus, Pool},
};
use report::Refusal;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use world::{ByteCount, real::host_files};

/// A domain with its drives, as a person names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedDomain {
    pub name: DomainName,
    pub drives: Vec<String>,
}

/// The domains that drives are to have; `None` for none.
pub type DomainChanges = Vec<(DriveId, Option<DomainName>)>;

/// A failure domain of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainReport {
    pub name: String,
    /// UUIDs of its drives in use.
    pub drives: Vec<String>,
    /// UUIDs of its drives that are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Segments that lie in this domain with all of their copies.
    pub shared_segments: u64,
    /// If all of its drives are lost at once: `survived`, `data_lost`, `stops`, `needs_force`, or `absent` if they
    /// are.
    pub loss: String,
    /// Bytes of mirrored data that would be lost, of one copy.
    pub lost_bytes: u64,
}

impl NamedDomain {
    /// `shelf-1=/dev/sda,/dev/sdb`.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, drives) = text.split_once('=').ok_or("expected NAME=DRIVE,DRIVE…".to_owned())?;
        let drives: Vec<String> = drives.split(',').map(str::to_owned).collect();
        if drives.iter().any(String::is_empty) {
            return Err(format!("{name} has a drive without a name: expected NAME=DRIVE,DRIVE…"));
        }
        Ok(Self { name: parse_name(name)?, drives })
    }
}

/// The name of a domain.
///
/// # Errors
///
/// What is wrong with it, in words.
pub fn parse_name(text: &str) -> Result<DomainName, String> {
    let rule = "the name of a domain is 1 to 12 letters, digits, '-', '_' and '.'";
    DomainName::new(text).ok_or_else(|| format!("{text:?} is none: {rule}"))
}

impl DomainReport {
    /// The domains of an open pool, by name.
    pub fn all(pool: &Pool) -> Vec<Self> {
        pool.domains().into_iter().map(Self::of).collect()
    }

    fn of(DomainStatus { name, drives, absent, shared_segments, loss }: DomainStatus) -> Self {
        let ids = |drives: &[DriveId]| drives.iter().map(DriveId::to_string).collect();
        let (word, lost_bytes) = match loss {
            DomainLoss::Survived => ("survived", 0),
            DomainLoss::DataLost(bytes) => ("data_lost", bytes),
            DomainLoss::Stops => ("stops", 0),
            DomainLoss::NeedsForce => ("needs_force", 0),
            DomainLoss::Absent => ("absent", 0),
        };
        Self {
            name: name.to_string(),
            drives: ids(&drives),
            missing: ids(&absent),
            shared_segments,
            loss: word.to_owned(),
            lost_bytes,
        }
    }

    /// In a line; `drives` are those of the pool.
    pub fn text(&self, drives: &[DriveStatus]) -> String {
        let Self { name, shared_segments, lost_bytes, .. } = self;
        let name_of = |drive: &String| {
            let known = drives.iter().find(|known| known.drive.as_ref() == Some(drive));
            known.map_or_else(|| drive.clone(), |known| file_name(&known.path))
        };
        let mut listed: Vec<String> = self.drives.iter().map(name_of).collect();
        if !self.missing.is_empty() {
            listed.push(format!("{} missing", self.missing.len()));
        }
        let loss = match self.loss.as_str() {
            "data_lost" if *shared_segments > 0 => format!(
                "its loss loses {}: {shared_segments} segments lie there with all copies, for lack of room elsewhere",
                ByteCount(*lost_bytes)
            ),
            "data_lost" => {
                format!("its loss loses {}, which has no copy elsewhere now", ByteCount(*lost_bytes))
            }
            "stops" => {
                "its loss loses no data, but stops the pool: the other drives are less than half".to_owned()
            }
            "needs_force" => {
                "its loss loses nothing; opening the pool without it then takes 'spindle pool force-open', \
                              as the others are no majority"
                    .to_owned()
            }
            "absent" => "what lies there is copied to the other drives unless they come back".to_owned(),
            _ => "its loss loses nothing".to_owned(),
        };
        format!("domain {name}: {}; {loss}", listed.join(", "))
    }
}

pub(super) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// The domain of each drive of a new pool; the drives are files, or the devices given.
///
/// # Errors
///
/// A domain has a drive that the pool has not, or two have the same.
pub(super) fn of_new_drives(
    domains: &[NamedDomain],
    devices: Option<&[PathBuf]>,
    count: usize,
) -> Result<Vec<Option<DomainName>>, Refusal> {
    let mut all = vec![None; count];
    for NamedDomain { name, drives } in domains {
        for drive in drives {
            let index = (0..count).find(|&index| match devices {
                Some(devices) => is_same_path(&devices[index], drive),
                None => {
                    let number = index as u16 + 1;
                    drive_name(number) == Path::new(drive) || *drive == number.to_string()
                }
            });
            let Some(index) = index else {
                let remedy = match devices {
                    Some(_) => "name the devices as they are given for the pool".to_owned(),
                    None => format!("name the drives by their numbers, 1 to {count}"),
                };
                return Err(Refusal::new(format!("domain {name}: the pool has no drive {drive}"), remedy));
            };
            if let Some(other) = all[index].replace(*name) {
                let problem = format!("drive {drive} is in domain {other} and in domain {name}");
                return Err(Refusal::new(problem, "name each drive once"));
            }
        }
    }
    Ok(all)
}

fn is_same_path(device: &Path, given: &str) -> bool {
    let same_file = || match (host_files::canonical(device), host_files::canonical(Path::new(given))) {
        (Ok(device), Ok(given)) => device == given,
        _ => false,
    };
    device == Path::new(given) || same_file()
}

/// The domains that drives are to have: those of `domains`, and none those of `without`.
///
/// # Errors
///
/// A drive is unknown or named twice.
pub fn domain_changes(
    open: &OpenPool,
    domains: &[NamedDomain],
    without: &[String],
) -> Result<DomainChanges, Refusal> {
    let mut changes = DomainChanges::new();
    let named =
        domains.iter().flat_map(|domain| domain.drives.iter().map(|drive| (drive, Some(domain.name))));
    for (given, domain) in named.chain(without.iter().map(|drive| (drive, None))) {
        let NamedDrive { drive, name } = drive_named(open, given)?;
        if changes.iter().any(|(known, _)| *known == drive) {
            let problem = format!("{}: {name} is named twice", open.folder().display());
            return Err(Refusal::new(problem, "name each drive once; nothing was changed"));
        }
        changes.push((drive, domain));
    }
    Ok(changes)
}

/// Gives drives other domains.
///
/// # Errors
///
/// The pool refuses; nothing was changed.
pub async fn set_domains(open: &OpenPool, changes: &DomainChanges) -> Result<(), Refusal> {
    let set = open.pool.set_domains(changes).await;
    set.map_err(|error| open.refusal(&error, "nothing was changed"))
}

/// The line that a verb adds if segments lie in one domain now.
pub fn advice(open: &OpenPool) -> Option<String> {
    advice_for(open.pool.segments_in_one_domain(), open.folder())
}

/// As [`advice`], of a status; `pool` is its folder or name.
pub fn advice_of(status: &PoolStatus, pool: &Path) -> Option<String> {
    advice_for(status.domains.iter().map(|domain| domain.shared_segments).sum(), pool)
}

fn advice_for(segments: u64, pool: &Path) -> Option<String> {
    (segments > 0).then(|| {
        format!(
            "{segments} segments lie in one domain with all copies: they are moved apart while the pool is exported, as \
             far as there is room; 'spindle pool level {}' does it now",
            pool.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_named_with_their_drives() {
        let shelf = NamedDomain::parse("shelf-1=/dev/sda,/dev/sdb").unwrap();
        assert_eq!(
            (shelf.name.as_str(), &shelf.drives[..]),
            ("shelf-1", &["/dev/sda".into(), "/dev/sdb".into()][..])
        );
        for (text, problem) in [
            ("shelf-1", "expected NAME=DRIVE,DRIVE"),
            ("shelf-1=", "without a name"),
            ("shelf-1=1,,2", "without a name"),
            ("=1", "1 to 12 letters"),
            ("the first shelf=1", "1 to 12 letters"),
        ] {
            let refused = NamedDomain::parse(text).unwrap_err();
            assert!(refused.contains(problem), "{text}: {refused}");
        }
    }

    #[test]
    fn drives_of_a_new_pool_are_files_by_number_or_name() {
        let domain = |text: &str| NamedDomain::parse(text).unwrap();
        let names = |domains: &[NamedDomain], count| {
            let all = of_new_drives(domains, None, count);
            all.map(|all| {
                all.iter()
                    .map(|name| name.map_or("-".to_owned(), |name| name.to_string()))
                    .collect::<Vec<_>>()
            })
        };
        let found = names(&[domain("a=1,drive-3.spindle"), domain("b=2")], 4).unwrap();
        assert_eq!(found, ["a", "b", "a", "-"]);
        let refused = |domains: &[NamedDomain]| names(domains, 3).unwrap_err().to_string();
        assert!(refused(&[domain("a=4")]).contains("domain a: the pool has no drive 4"));
        assert!(refused(&[domain("a=1"), domain("b=1")]).contains("drive 1 is in domain a and in domain b"));
    }
}

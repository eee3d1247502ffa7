//! `--access FILE`: targets, and the initiators that may use them ([the book](../../../docs/targets.md)).
//!
//! Secrets lie in files of their own, which only their owner can read.

use super::iscsi_endpoints::name_of;
use iscsi::{
    session::chap::{Credentials, Secret},
    target::access::{AccessList, AccessRight, InitiatorRights},
};
use report::Refusal;
use rustix::fs::stat;
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    str::FromStr,
};
use world::real::host_files;

/// Bound on the size of a list kept by hand.
const BYTES_MAX: u64 = 1 << 20;
/// The highest number of flat space addressing (SAM-5, 4.7.7.4).
const UNIT_MAX: u64 = 0x3fff;

/// An access file as it is written; [`target_plan`](super::target_plan) checks it against exports.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AccessFile {
    #[serde(default)]
    target: Vec<TargetLine>,
    #[serde(default)]
    pub initiator: Vec<InitiatorLine>,
    pub own: Option<CredentialsLine>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TargetLine {
    name: String,
    units: Vec<UnitLine>,
}

/// An export as a unit: its name, or its name and settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum UnitLine {
    Plain(String),
    Special(SpecialUnit),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct SpecialUnit {
    export: String,
    lun: Option<u64>,
    write_cache: Option<bool>,
    #[serde(default)]
    read_only: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CredentialsLine {
    pub user: String,
    pub secret_file: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct InitiatorLine {
    pub name: String,
    pub user: Option<String>,
    pub secret_file: Option<PathBuf>,
    #[serde(default)]
    pub uses: Vec<String>,
    #[serde(default)]
    pub reads: Vec<String>,
}

impl AccessFile {
    /// The file at `path`.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is no access file.
    pub fn read(path: &Path) -> Result<Self, Refusal> {
        let shown = path.display();
        let refuse =
            |problem: String| Refusal::new(format!("{shown}: {problem}"), "docs/targets.md has an example");
        let bytes = host_files::read_at_most(path, BYTES_MAX).map_err(|error| refuse(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| refuse("it is not UTF-8 text".to_owned()))?;
        text.parse().map_err(refuse)
    }

    /// Its targets, and one for each of the exports that is in none of them.
    ///
    /// # Errors
    ///
    /// A target has what is no export, or two have the same.
    pub fn targets(&self, exports: &[String]) -> Result<Vec<PlannedTarget>, String> {
        targets(&self.target, exports)
    }
}

impl FromStr for AccessFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }
}

/// A unit of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedUnit {
    pub export: String,
    pub number: u64,
    /// `None` if not given.
    pub write_cache: Option<bool>,
    pub is_read_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedTarget {
    /// The name in the file, or that of its export.
    pub name: String,
    /// Named by the file. A target without a name is called by its export, which two hosts may share.
    pub is_named: bool,
    pub units: Vec<PlannedUnit>,
}

/// Targets and access rights.
#[derive(Debug)]
pub struct TargetPlan {
    /// In the order of the file, then those of single exports.
    pub targets: Vec<PlannedTarget>,
    /// Access rights, by the names of `targets`.
    pub access: AccessList,
    /// Not every initiator may use every target.
    pub is_restricted: bool,
}

impl TargetPlan {
    /// The targets whose units are all among `exports`, with all rights; `None` if a target has units here and elsewhere.
    pub fn part(&self, exports: &[String]) -> Option<Self> {
        let mut targets = Vec::new();
        for target in &self.targets {
            let here = target.units.iter().filter(|unit| exports.contains(&unit.export)).count();
            match here {
                0 => {}
                count if count == target.units.len() => targets.push(target.clone()),
                _ => return None,
            }
        }
        Some(Self { targets, access: self.access.clone(), is_restricted: self.is_restricted })
    }
}

/// One target for each export, open to all initiators.
pub fn for_everybody(exports: &[String]) -> TargetPlan {
    let targets = exports.iter().map(|export| single(export)).collect();
    TargetPlan { targets, access: AccessList::everybody(), is_restricted: false }
}

fn single(export: &str) -> PlannedTarget {
    PlannedTarget { name: export.to_owned(), is_named: false, units: vec![plain(export, 0)] }
}

fn plain(export: &str, number: u64) -> PlannedUnit {
    PlannedUnit { export: export.to_owned(), number, write_cache: None, is_read_only: false }
}

/// Reads the access file at `path`.
pub fn read(path: &Path, exports: &[String]) -> Result<TargetPlan, Refusal> {
    let shown = path.display();
    let refuse =
        |problem: String| Refusal::new(format!("{shown}: {problem}"), "docs/targets.md has an example");
    let file = AccessFile::read(path)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let targets = file.targets(exports).map_err(&refuse)?;
    let own = file.own.map(|line| credentials(folder, line.user, &line.secret_file)).transpose()?;
    let is_restricted = !file.initiator.is_empty();
    let mut admitted = BTreeMap::new();
    for line in file.initiator {
        let shows = match (line.user, line.secret_file) {
            (Some(user), Some(secret)) => Some(credentials(folder, user, &secret)?),
            (None, None) => None,
            _ => return Err(refuse(format!("{}: user and secret-file go together", line.name))),
        };
        let mut units: BTreeMap<String, BTreeMap<u64, AccessRight>> = BTreeMap::new();
        for (right, meant) in [(AccessRight::Read, line.reads), (AccessRight::Write, line.uses)] {
            for meant in meant {
                let (target, numbers) = units_meant(&meant, &targets).map_err(&refuse)?;
                let known = units.entry(target.to_owned()).or_default();
                known.extend(numbers.into_iter().map(|number| (number, right)));
            }
        }
        if admitted.insert(line.name.clone(), InitiatorRights { credentials: shows, units }).is_some() {
            return Err(refuse(format!("{} is listed twice", line.name)));
        }
    }
    let access = if is_restricted {
        AccessList::only(admitted, own).map_err(|error| refuse(error.to_string()))?
    } else {
        AccessList::everybody()
    };
    Ok(TargetPlan { targets, access, is_restricted })
}

/// The targets of the file, and one for each export that is in none of them.
fn targets(lines: &[TargetLine], exports: &[String]) -> Result<Vec<PlannedTarget>, String> {
    let mut targets = Vec::new();
    let mut placed = BTreeSet::new();
    for TargetLine { name, units } in lines {
        let mut planned: Vec<PlannedUnit> = Vec::new();
        for (position, unit) in (0..).zip(units.clone()) {
            let unit = match unit {
                UnitLine::Plain(export) => plain(&export, position),
                UnitLine::Special(SpecialUnit { export, lun, write_cache, read_only }) => PlannedUnit {
                    export,
                    number: lun.unwrap_or(position),
                    write_cache,
                    is_read_only: read_only,
                },
            };
            if unit.number > UNIT_MAX {
                return Err(format!(
                    "target {name}: {:?}: lun is a number from 0 to {UNIT_MAX}",
                    unit.export
                ));
            }
            if let Some(other) = planned.iter().find(|other| other.number == unit.number) {
                let (one, other, number) = (&other.export, &unit.export, unit.number);
                return Err(format!("target {name}: {one:?} and {other:?} would both be unit {number}"));
            }
            if !exports.contains(&unit.export) {
                return Err(format!("target {name}: there is no export {:?}", unit.export));
            }
            if !placed.insert(unit.export.clone()) {
                return Err(format!("target {name}: {:?} is a unit already", unit.export));
            }
            planned.push(unit);
        }
        targets.push(PlannedTarget { name: name.clone(), is_named: true, units: planned });
    }
    let others = exports.iter().filter(|export| !placed.contains(*export));
    targets.extend(others.map(|export| single(export)));
    let mut names = BTreeSet::new();
    // Initiators compare names without case, and characters that iSCSI names may not have become dashes.
    match targets.iter().find(|target| !names.insert(name_of(&target.name))) {
        Some(PlannedTarget { name, .. }) => Err(format!("two targets would be called {name:?}")),
        None => Ok(targets),
    }
}

/// The units that `TARGET` or `TARGET/NUMBER` selects.
fn units_meant<'t>(meant: &str, targets: &'t [PlannedTarget]) -> Result<(&'t str, Vec<u64>), String> {
    let find = |name: &str| targets.iter().find(|target| target.name == name);
    let numbers = |target: &PlannedTarget| target.units.iter().map(|unit| unit.number).collect::<Vec<_>>();
    if let Some(target) = find(meant) {
        return Ok((&target.name, numbers(target)));
    }
    let unit =
        meant.rsplit_once('/').and_then(|(name, number)| Some((find(name)?, number.parse::<u64>().ok()?)));
    match unit {
        Some((target, number)) if numbers(target).contains(&number) => Ok((&target.name, vec![number])),
        _ => Err(format!("there is no target or unit {meant:?}")),
    }
}

/// Reads a secret from a file that only its owner can read, without its line end.
///
/// # Errors
///
/// The file is not there, others may read it, or it holds no secret.
pub fn credentials(folder: &Path, user: String, file: &Path) -> Result<Credentials, Refusal> {
    let path = folder.join(file);
    let secret = read_secret(&path, MAKE_SECRET)?;
    let secret = Secret::new(secret)
        .map_err(|error| Refusal::new(format!("{}: {error}", path.display()), MAKE_SECRET))?;
    Ok(Credentials { name: user, secret })
}

const MAKE_SECRET: &str = "make it: spindle export --chap-make > FILE";

/// A secret in a file of its own, without its line end.
///
/// # Errors
///
/// The file is missing or empty (`remedy` says how to make it), or others may read it.
pub fn read_secret(path: &Path, remedy: &str) -> Result<Vec<u8>, Refusal> {
    let refuse =
        |problem: String, remedy: &str| Refusal::new(format!("{}: {problem}", path.display()), remedy);
    // An administrator of a server may name what blocks.
    let bytes =
        host_files::read_file_at_most(path, 4096).map_err(|error| refuse(error.to_string(), remedy))?;
    let mode = stat(path).map_err(|error| refuse(error.to_string(), ""))?.st_mode;
    if mode & 0o077 != 0 {
        return Err(refuse("others may read this secret".to_owned(), "chmod 600 it"));
    }
    let secret = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let secret = secret.strip_suffix(b"\r").unwrap_or(secret);
    if secret.is_empty() {
        return Err(refuse("it is empty".to_owned(), remedy));
    }
    Ok(secret.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn planned(text: &str, exports: &[&str]) -> Result<Vec<PlannedTarget>, String> {
        text.parse::<AccessFile>()?.targets(&names(exports))
    }

    #[test]
    fn exports_that_no_target_has_are_targets_of_their_own() {
        let text = "[[target]]\nname = 'mail'\nunits = ['a', { export = 'b', write-cache = true }]";
        let targets = planned(text, &["a", "b", "c"]).unwrap();
        let special = PlannedUnit { write_cache: Some(true), ..plain("b", 1) };
        let units = vec![plain("a", 0), special];
        let mail = PlannedTarget { name: "mail".to_owned(), is_named: true, units };
        assert_eq!(targets, [mail, single("c")]);
        assert_eq!(units_meant("mail", &targets), Ok(("mail", vec![0, 1])));
        assert_eq!(units_meant("mail/1", &targets), Ok(("mail", vec![1])));
        for wrong in ["mail/2", "mail/x", "none", "none/0", ""] {
            assert!(units_meant(wrong, &targets).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_plan_is_divided_by_exports_unless_a_target_is_in_several_parts() {
        let text = "[[target]]\nname = 'mail'\nunits = ['a', 'b']\n[[target]]\nname = 'logs'\nunits = ['c']";
        let targets = planned(text, &["a", "b", "c", "d"]).unwrap();
        let plan = TargetPlan { targets, access: AccessList::everybody(), is_restricted: false };
        let part = |exports: &[&str]| {
            let part = plan.part(&names(exports))?;
            Some(part.targets.into_iter().map(|target| target.name).collect::<Vec<_>>())
        };
        assert_eq!(part(&["a", "b", "d"]).unwrap(), ["mail", "d"]);
        assert_eq!(part(&["c"]).unwrap(), ["logs"]);
        assert_eq!(part(&["a", "c"]), None);
    }

    #[test]
    fn a_unit_has_the_number_it_is_given_or_that_of_its_position() {
        let text = "[[target]]\nname = 'mail'\nunits = [{ export = 'a', lun = 7 }, 'b', { export = 'c' }]";
        let targets = planned(text, &["a", "b", "c"]).unwrap();
        let numbers =
            |target: &PlannedTarget| target.units.iter().map(|unit| unit.number).collect::<Vec<_>>();
        assert_eq!(numbers(&targets[0]), [7, 1, 2]);
        assert_eq!(units_meant("mail", &targets), Ok(("mail", vec![7, 1, 2])));
        assert_eq!(units_meant("mail/7", &targets), Ok(("mail", vec![7])));
        assert!(units_meant("mail/0", &targets).is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (text, problem) in [
            ("[[target]]\nname = 'mail'\nunits = ['z']", "there is no export \"z\""),
            ("[[target]]\nname = 'mail'\nunits = ['a', 'a']", "\"a\" is a unit already"),
            ("[[target]]\nname = 'm'\nunits = ['a', { export = 'b', lun = 0 }]", "would both be unit 0"),
            ("[[target]]\nname = 'm'\nunits = [{ export = 'b', lun = 16384 }]", "from 0 to 16383"),
            ("[[target]]\nname = 'm'\nunits = [{ export = 'b', lun = -1 }]", "units"),
            ("[[target]]\nname = 'b'\nunits = ['a']", "two targets would be called \"b\""),
            ("[[target]]\nname = 'B'\nunits = ['a']", "two targets would be called \"b\""),
            ("[[target]]\nname = 'b'\nunit = ['a']", "unit"),
            ("[[initiator]]\nname = 'x'\npassword = 'y'", "unknown field"),
        ] {
            let refused = planned(text, &["a", "b"]).unwrap_err();
            assert!(refused.contains(problem), "{text}: {refused}");
        }
    }
}

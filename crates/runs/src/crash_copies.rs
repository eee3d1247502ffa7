//! Databases of a run on copies of its devices, as a crash or a replication left them: found by the records beside them, and
//! recovered and checked there. The copies are written.

use crate::{manifest::Manifest, storage_endpoint::read_padded};
use maildb::PageSize;
use std::{collections::BTreeMap, rc::Rc};
use workload::database::measure::recovery::RecoveredGroup;
use world::{
    BlockDevice, Directory, IoResult,
    extent_directory::{ExtentDirectory, Probe},
};

/// A copy of a device.
#[derive(Clone)]
pub struct DeviceCopy {
    /// In front of people.
    pub name: String,
    pub device: Rc<dyn BlockDevice>,
}

/// Contents of the copies together.
pub enum CopiedRun {
    /// Storage groups of a run.
    Groups(Vec<RecoveredGroup>),
    /// There is a record of a run, and what it names cannot be used: one sentence for each problem.
    Incomplete(Vec<String>),
    /// No copy holds databases of a run: what they hold, a sentence for each.
    NotOurs(Vec<String>),
}

/// Finds the databases of a run on copies of its devices. Nothing is written.
///
/// # Errors
///
/// A copy cannot be read.
pub async fn find(copies: &[DeviceCopy]) -> IoResult<CopiedRun> {
    let (mut found, mut others, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for copy in copies {
        match ExtentDirectory::probe(&*copy.device).await? {
            Probe::Blank => others.push(format!("{} is blank", copy.name)),
            Probe::Foreign => others.push(format!("{} holds something else", copy.name)),
            Probe::Ours => {
                let directory = ExtentDirectory::open(Rc::clone(&copy.device)).await?;
                let directory: Rc<dyn Directory> = Rc::new(directory.named(copy.name.clone()));
                match read_padded(&*directory).await? {
                    None => others.push(format!("{} holds no record of a run", copy.name)),
                    Some(Err(problem)) => {
                        problems.push(format!("{}: the record of its run is damaged: {problem}", copy.name));
                    }
                    Some(Ok(manifest)) if manifest.shape.pools => {
                        others.push(format!("{} holds drives of a pool", copy.name));
                    }
                    Some(Ok(manifest)) => found.push((directory, manifest)),
                }
            }
        }
    }
    if found.is_empty() && problems.is_empty() {
        return Ok(CopiedRun::NotOurs(others));
    }
    let groups = groups_of(&found, &mut problems);
    Ok(if problems.is_empty() { CopiedRun::Groups(groups) } else { CopiedRun::Incomplete(problems) })
}

/// The groups, by the names that a run gives to their files: databases `sg1-db1.edb` and on with the log `E00`.
fn groups_of(found: &[(Rc<dyn Directory>, Manifest)], problems: &mut Vec<String>) -> Vec<RecoveredGroup> {
    let (mut databases, mut logs) = (BTreeMap::new(), BTreeMap::new());
    for (directory, manifest) in found {
        databases.extend(manifest.databases.iter().map(|name| (name.clone(), directory)));
        logs.extend(manifest.log_series.iter().map(|series| (series.clone(), directory)));
    }
    let Some((_, Manifest { shape, run, .. })) = found.first() else { return Vec::new() };
    if found.iter().any(|(_, manifest)| manifest.run != *run) {
        problems.push("the volumes hold databases of two runs, which do not belong together".to_owned());
        return Vec::new();
    }
    let Some(page_size) = PageSize::from_bytes(shape.page_size) else {
        problems.push(format!("the record of the run has pages of {} bytes", shape.page_size));
        return Vec::new();
    };
    let mut groups = Vec::new();
    for group in 0..shape.groups {
        let base_name = format!("E{group:02}");
        let names = (1..=shape.databases).map(|database| format!("sg{}-db{database}.edb", group + 1));
        let mut places = Vec::new();
        for name in names {
            match databases.get(&name) {
                Some(&directory) => places.push((Rc::clone(directory), name)),
                None => problems.push(format!("{name} lies on none of the volumes")),
            }
        }
        match logs.get(&base_name) {
            Some(&directory) => groups.push(RecoveredGroup {
                base_name,
                log: Rc::clone(directory),
                databases: places,
                page_size,
                profile: shape.profile.clone(),
            }),
            None => problems.push(format!("the log {base_name} lies on none of the volumes")),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Shape;
    use world::{
        World,
        real::{self, FolderDirectory, RealOptions},
    };

    fn manifest(databases: &[&str], series: &[&str]) -> Manifest {
        let shape = Shape {
            profile: "exchange-2010".to_owned(),
            page_size: 32768,
            groups: 1,
            databases: 2,
            ..Shape::default()
        };
        Manifest {
            run: "abc".to_owned(),
            shape,
            databases: databases.iter().map(|&name| name.to_owned()).collect(),
            log_series: series.iter().map(|&name| name.to_owned()).collect(),
            ..Manifest::default()
        }
    }

    #[test]
    fn a_group_is_whole_if_all_its_files_have_a_volume() {
        real::run(0, RealOptions::default(), async |_: World| check_groups());
    }

    fn check_groups() {
        let folder = tempfile::tempdir().unwrap();
        let directory: Rc<dyn Directory> = Rc::new(FolderDirectory::open(folder.path()).unwrap());
        let of = |manifest: Manifest| (Rc::clone(&directory), manifest);
        let mut problems = Vec::new();
        let both = [of(manifest(&["sg1-db1.edb", "sg1-db2.edb"], &[])), of(manifest(&[], &["E00"]))];
        let groups = groups_of(&both, &mut problems);
        assert_eq!((groups.len(), groups[0].databases.len(), &problems), (1, 2, &Vec::new()));
        assert!(groups_of(&both[..1], &mut problems).is_empty());
        assert_eq!(problems, ["the log E00 lies on none of the volumes"]);
        problems.clear();
        groups_of(&[of(manifest(&["sg1-db1.edb"], &["E00"]))], &mut problems);
        assert_eq!(problems, ["sg1-db2.edb lies on none of the volumes"]);
        problems.clear();
        let other = Manifest { run: "def".to_owned(), ..manifest(&[], &["E00"]) };
        groups_of(&[both[0].clone(), of(other)], &mut problems);
        assert!(problems[0].contains("two runs"), "{problems:?}");
    }
}

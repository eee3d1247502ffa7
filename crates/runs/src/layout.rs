//! Layout of files over locations: databases round-robin, logs likewise or beside their databases.

use crate::location::{LocationFacts, RunLocation};
use report::Refusal;
use std::collections::BTreeSet;

/// A file or log series, and its location.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileSlot {
    /// Index into the locations of the run.
    pub location: usize,
    /// File name of a database, prefix of a log series.
    pub name: String,
}

/// Files of one storage group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLayout {
    pub databases: Vec<FileSlot>,
    pub log: FileSlot,
}

/// All paths of a run, each once, and their uses.
#[derive(Clone, Debug)]
pub struct RunLocations {
    pub all: Vec<RunLocation>,
    /// Indices of those for databases, in the given order.
    pub databases: Vec<usize>,
    /// Indices of those for logs; empty if logs lie beside the databases.
    pub logs: Vec<usize>,
}

/// A way to spread databases and logs over the paths: the four that Dell 2010 compares (table 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutKind {
    /// Databases on all their paths, logs on all of theirs: with as many paths as databases and logs,
    /// each has a volume of its own (layout test 1).
    VolumePerDatabase,
    /// Databases on all their paths, each group's log beside its first database (layout test 2).
    Together,
    /// Databases on half of their paths, logs on half of theirs (layout test 3).
    HalfTheVolumes,
    /// Databases on their first path, logs on theirs (layout test 4).
    OneVolume,
}

impl LayoutKind {
    /// All, in the paper's order.
    pub const ALL: [Self; 4] =
        [Self::VolumePerDatabase, Self::Together, Self::HalfTheVolumes, Self::OneVolume];

    /// Name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::VolumePerDatabase => "volume-per-database",
            Self::Together => "together",
            Self::HalfTheVolumes => "half-the-volumes",
            Self::OneVolume => "one-volume",
        }
    }

    /// Parses a name; the error lists the names.
    pub fn parse(name: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|kind| kind.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| format!("there are {}", known()))
    }
}

/// Input of [`spread`].
#[derive(Clone, Copy, Debug)]
pub struct LayoutRequest {
    pub groups: u32,
    /// In each group.
    pub databases: u32,
    /// `None`: round-robin, with logs beside the databases unless they have paths of their own.
    pub kind: Option<LayoutKind>,
    /// The first so many database paths are used; all if `None`.
    pub volumes: Option<u32>,
}

/// Spreads groups and databases over the locations.
///
/// A raw device serves one thread; a device that two groups would share is refused.
pub fn spread(locations: &RunLocations, request: LayoutRequest) -> Result<Vec<GroupLayout>, Refusal> {
    assert!(!locations.databases.is_empty(), "there is a place for databases");
    let LayoutRequest { groups, databases, kind, volumes } = request;
    let locations = &narrowed(locations, kind, volumes)?;
    let nth = |indices: &[usize], n: u32| indices[n as usize % indices.len()];
    let layout: Vec<GroupLayout> = (0..groups)
        .map(|group| {
            let slots: Vec<FileSlot> = (0..databases)
                .map(|database| FileSlot {
                    location: nth(&locations.databases, group * databases + database),
                    name: format!("sg{}-db{}.edb", group + 1, database + 1),
                })
                .collect();
            let location =
                if locations.logs.is_empty() { slots[0].location } else { nth(&locations.logs, group) };
            GroupLayout { databases: slots, log: FileSlot { location, name: format!("E{group:02}") } }
        })
        .collect();
    for (index, location) in locations.all.iter().enumerate() {
        let users = layout.iter().filter(|group| group.locations().contains(&index)).count();
        if matches!(location.facts, LocationFacts::Device(_)) && users > 1 {
            return Err(Refusal::new(
                format!("{users} groups would share the raw device {}", location.given.display()),
                "give each group devices of its own, or use ⟨groups⟩ 1",
            ));
        }
    }
    Ok(layout)
}

/// The subset of locations that `kind` and `volumes` use.
fn narrowed(
    locations: &RunLocations,
    kind: Option<LayoutKind>,
    volumes: Option<u32>,
) -> Result<RunLocations, Refusal> {
    let mut locations = locations.clone();
    if let Some(volumes) = volumes {
        let given = locations.databases.len();
        if volumes as usize > given {
            return Err(Refusal::new(
                format!(
                    "{volumes} volumes are asked for, and {given} {} given",
                    if given == 1 { "is" } else { "are" }
                ),
                "give as many paths, or fewer volumes",
            ));
        }
        locations.databases.truncate(volumes as usize);
    }
    let Some(kind) = kind else { return Ok(locations) };
    if kind != LayoutKind::Together && locations.logs.is_empty() {
        return Err(Refusal::new(
            format!("the layout {} keeps logs apart, and they have no path", kind.name()),
            "give one with ⟨logs⟩, or use the layout together",
        ));
    }
    let part = |all: &mut Vec<usize>| match kind {
        LayoutKind::VolumePerDatabase | LayoutKind::Together => {}
        LayoutKind::HalfTheVolumes => all.truncate(all.len().div_ceil(2)),
        LayoutKind::OneVolume => all.truncate(1),
    };
    part(&mut locations.databases);
    match kind {
        LayoutKind::Together => locations.logs.clear(),
        _ => part(&mut locations.logs),
    }
    Ok(locations)
}

impl GroupLayout {
    /// Indices of the locations this group uses, each once.
    pub fn locations(&self) -> BTreeSet<usize> {
        self.databases.iter().chain([&self.log]).map(|slot| slot.location).collect()
    }
}

/// Names of the databases that lie in `location`.
pub fn databases_in(layout: &[GroupLayout], location: usize) -> Vec<String> {
    let all = layout.iter().flat_map(|group| &group.databases);
    all.filter(|slot| slot.location == location).map(|slot| slot.name.clone()).collect()
}

/// Prefixes of the log series that lie in `location`.
pub fn logs_in(layout: &[GroupLayout], location: usize) -> Vec<String> {
    let all = layout.iter().map(|group| &group.log);
    all.filter(|slot| slot.location == location).map(|slot| slot.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::tests::{device, folder};

    fn locations(databases: usize, logs: usize) -> RunLocations {
        let all = (0..databases + logs)
            .map(|index| {
                let path = format!("/mnt/{index}");
                RunLocation { given: path.clone().into(), facts: LocationFacts::Folder(folder(&path)) }
            })
            .collect();
        RunLocations {
            all,
            databases: (0..databases).collect(),
            logs: (databases..databases + logs).collect(),
        }
    }

    fn shown(layout: &[GroupLayout]) -> Vec<String> {
        let slot = |slot: &FileSlot| format!("{}:{}", slot.location, slot.name);
        layout
            .iter()
            .map(|group| {
                let databases: Vec<String> = group.databases.iter().map(slot).collect();
                format!("{} | {}", databases.join(" "), slot(&group.log))
            })
            .collect()
    }

    fn plainly(locations: &RunLocations, groups: u32, databases: u32) -> Result<Vec<GroupLayout>, Refusal> {
        spread(locations, LayoutRequest { groups, databases, kind: None, volumes: None })
    }

    #[test]
    fn the_four_layouts_of_the_paper_come_out() {
        let locations = locations(4, 4);
        let by = |kind| {
            let request = LayoutRequest { groups: 4, databases: 1, kind: Some(kind), volumes: None };
            let slots = |layout: Vec<GroupLayout>| {
                let of = layout
                    .iter()
                    .map(|group| format!("{}/{}", group.databases[0].location + 1, group.log.location + 1));
                of.collect::<Vec<_>>().join(" ")
            };
            spread(&locations, request).map(slots).expect("fits")
        };
        // Locations 1 to 4 are for databases, 5 to 8 for logs; see table 9 of Dell 2010.
        assert_eq!(by(LayoutKind::VolumePerDatabase), "1/5 2/6 3/7 4/8");
        assert_eq!(by(LayoutKind::Together), "1/1 2/2 3/3 4/4");
        assert_eq!(by(LayoutKind::HalfTheVolumes), "1/5 2/6 1/5 2/6");
        assert_eq!(by(LayoutKind::OneVolume), "1/5 1/5 1/5 1/5");
    }

    #[test]
    fn fewer_volumes_are_the_first_ones_and_more_than_given_are_refused() {
        let locations = locations(3, 1);
        let used = |volumes| {
            let request = LayoutRequest { groups: 1, databases: 4, kind: None, volumes: Some(volumes) };
            spread(&locations, request).map(|layout| shown(&layout)).map_err(|refusal| refusal.to_string())
        };
        assert_eq!(
            used(2).expect("fits"),
            ["0:sg1-db1.edb 1:sg1-db2.edb 0:sg1-db3.edb 1:sg1-db4.edb | 3:E00"]
        );
        assert_eq!(
            used(4).expect_err("refused"),
            "4 volumes are asked for, and 3 are given; give as many paths, or fewer volumes"
        );
    }

    #[test]
    fn a_layout_that_keeps_logs_apart_needs_a_path_for_them() {
        let request =
            LayoutRequest { groups: 1, databases: 1, kind: Some(LayoutKind::OneVolume), volumes: None };
        assert_eq!(
            spread(&locations(2, 0), request).expect_err("refused").to_string(),
            "the layout one-volume keeps logs apart, and they have no path; give one with ⟨logs⟩, or use the \
             layout together"
        );
    }

    #[test]
    fn databases_are_spread_round_robin_and_logs_lie_beside_them_or_apart() {
        assert_eq!(
            shown(&plainly(&locations(3, 0), 2, 2).expect("fits")),
            ["0:sg1-db1.edb 1:sg1-db2.edb | 0:E00", "2:sg2-db1.edb 0:sg2-db2.edb | 2:E01"]
        );
        assert_eq!(
            shown(&plainly(&locations(1, 2), 3, 1).expect("fits")),
            ["0:sg1-db1.edb | 1:E00", "0:sg2-db1.edb | 2:E01", "0:sg3-db1.edb | 1:E02"]
        );
    }

    #[test]
    fn what_lies_in_a_place_is_what_its_record_names() {
        let layout = plainly(&locations(2, 0), 2, 2).expect("fits");
        assert_eq!(databases_in(&layout, 0), ["sg1-db1.edb", "sg2-db1.edb"]);
        assert_eq!(logs_in(&layout, 0), ["E00", "E01"]);
        assert_eq!(logs_in(&layout, 1), Vec::<String>::new());
    }

    #[test]
    fn two_groups_do_not_share_a_raw_device() {
        let mut locations = locations(1, 0);
        locations.all[0].facts = LocationFacts::Device(device());
        assert!(plainly(&locations, 1, 4).is_ok());
        assert_eq!(
            plainly(&locations, 2, 1).expect_err("refused").to_string(),
            "2 groups would share the raw device /mnt/0; give each group devices of its own, or use ⟨groups⟩ 1"
        );
    }
}

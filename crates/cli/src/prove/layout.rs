//! Which file lies in which place: databases spread round-robin, logs likewise or beside them.

use super::place::{Ground, Place};
use crate::refusal::Refusal;
use std::collections::BTreeSet;

/// The place, by its index, and the name of one file or log series.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// Index into the places of the run.
    pub place: usize,
    /// File name of a database, prefix of a log series.
    pub name: String,
}

/// Files of one storage group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLayout {
    /// Its databases.
    pub databases: Vec<Spot>,
    /// Its transaction log.
    pub log: Spot,
}

/// All paths of a run, each once, with what they are for.
#[derive(Clone, Debug)]
pub struct Places {
    /// Each place once.
    pub all: Vec<Place>,
    /// Indices of those for databases, in the order given.
    pub databases: Vec<usize>,
    /// Indices of those for logs; empty if logs lie beside the databases.
    pub logs: Vec<usize>,
}

/// A way to spread databases and logs over the paths: the four that Dell 2010 compared (table 9).
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

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::VolumePerDatabase => "volume-per-database",
            Self::Together => "together",
            Self::HalfTheVolumes => "half-the-volumes",
            Self::OneVolume => "one-volume",
        }
    }

    /// The layout called `name`.
    pub fn parse(name: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|kind| kind.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| format!("there are {}", known()))
    }
}

/// How the files of a run are spread.
#[derive(Clone, Copy, Debug)]
pub struct Spreading {
    /// Storage groups.
    pub groups: u32,
    /// Databases of each.
    pub databases: u32,
    /// The way; none means round-robin, logs beside the databases if they have no paths of their own.
    pub kind: Option<LayoutKind>,
    /// How many of the paths for databases are used; all if none.
    pub volumes: Option<u32>,
}

/// Spreads groups and databases over the places.
///
/// A raw device is worked by one thread; a device that two groups would share is refused.
pub fn spread(places: &Places, spreading: Spreading) -> Result<Vec<GroupLayout>, Refusal> {
    assert!(!places.databases.is_empty(), "there is a place for databases");
    let Spreading { groups, databases, kind, volumes } = spreading;
    let places = &narrowed(places, kind, volumes)?;
    let nth = |indices: &[usize], n: u32| indices[n as usize % indices.len()];
    let layout: Vec<GroupLayout> = (0..groups)
        .map(|group| {
            let spots: Vec<Spot> = (0..databases)
                .map(|database| Spot {
                    place: nth(&places.databases, group * databases + database),
                    name: format!("sg{}-db{}.edb", group + 1, database + 1),
                })
                .collect();
            let place = if places.logs.is_empty() { spots[0].place } else { nth(&places.logs, group) };
            GroupLayout { databases: spots, log: Spot { place, name: format!("E{group:02}") } }
        })
        .collect();
    for (index, place) in places.all.iter().enumerate() {
        let users = layout.iter().filter(|group| group.places().contains(&index)).count();
        if matches!(place.ground, Ground::Device(_)) && users > 1 {
            return Err(Refusal::new(
                format!("{users} groups would share the raw device {}", place.given.display()),
                "give each group devices of its own, or use --groups 1",
            ));
        }
    }
    Ok(layout)
}

/// The places as `kind` and `volumes` would have them used.
fn narrowed(places: &Places, kind: Option<LayoutKind>, volumes: Option<u32>) -> Result<Places, Refusal> {
    let mut places = places.clone();
    if let Some(volumes) = volumes {
        let given = places.databases.len();
        if volumes as usize > given {
            return Err(Refusal::new(
                format!(
                    "{volumes} volumes are asked for, and {given} {} given",
                    if given == 1 { "is" } else { "are" }
                ),
                "give as many paths, or fewer volumes",
            ));
        }
        places.databases.truncate(volumes as usize);
    }
    let Some(kind) = kind else { return Ok(places) };
    if kind != LayoutKind::Together && places.logs.is_empty() {
        return Err(Refusal::new(
            format!("the layout {} keeps logs apart, and they have no path", kind.name()),
            "give one with --logs, or use the layout together",
        ));
    }
    let part = |all: &mut Vec<usize>| match kind {
        LayoutKind::VolumePerDatabase | LayoutKind::Together => {}
        LayoutKind::HalfTheVolumes => all.truncate(all.len().div_ceil(2)),
        LayoutKind::OneVolume => all.truncate(1),
    };
    part(&mut places.databases);
    match kind {
        LayoutKind::Together => places.logs.clear(),
        _ => part(&mut places.logs),
    }
    Ok(places)
}

impl GroupLayout {
    /// Places this group uses, each once.
    pub fn places(&self) -> BTreeSet<usize> {
        self.databases.iter().chain([&self.log]).map(|spot| spot.place).collect()
    }
}

/// Names of the databases that lie in `place`.
pub fn databases_in(layout: &[GroupLayout], place: usize) -> Vec<String> {
    let all = layout.iter().flat_map(|group| &group.databases);
    all.filter(|spot| spot.place == place).map(|spot| spot.name.clone()).collect()
}

/// Prefixes of the log series that lie in `place`.
pub fn logs_in(layout: &[GroupLayout], place: usize) -> Vec<String> {
    let all = layout.iter().map(|group| &group.log);
    all.filter(|spot| spot.place == place).map(|spot| spot.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::place::tests::{device, folder};

    fn places(databases: usize, logs: usize) -> Places {
        let all = (0..databases + logs)
            .map(|index| {
                let path = format!("/mnt/{index}");
                Place { given: path.clone().into(), ground: Ground::Folder(folder(&path)) }
            })
            .collect();
        Places { all, databases: (0..databases).collect(), logs: (databases..databases + logs).collect() }
    }

    fn shown(layout: &[GroupLayout]) -> Vec<String> {
        let spot = |spot: &Spot| format!("{}:{}", spot.place, spot.name);
        layout
            .iter()
            .map(|group| {
                let databases: Vec<String> = group.databases.iter().map(spot).collect();
                format!("{} | {}", databases.join(" "), spot(&group.log))
            })
            .collect()
    }

    fn plainly(places: &Places, groups: u32, databases: u32) -> Result<Vec<GroupLayout>, Refusal> {
        spread(places, Spreading { groups, databases, kind: None, volumes: None })
    }

    #[test]
    fn the_four_layouts_of_the_paper_come_out() {
        let places = places(4, 4);
        let by = |kind| {
            let spreading = Spreading { groups: 4, databases: 1, kind: Some(kind), volumes: None };
            let spots = |layout: Vec<GroupLayout>| {
                let of = layout
                    .iter()
                    .map(|group| format!("{}/{}", group.databases[0].place + 1, group.log.place + 1));
                of.collect::<Vec<_>>().join(" ")
            };
            spread(&places, spreading).map(spots).expect("fits")
        };
        // Places 1 to 4 are for databases, 5 to 8 for logs; see table 9 of Dell 2010.
        assert_eq!(by(LayoutKind::VolumePerDatabase), "1/5 2/6 3/7 4/8");
        assert_eq!(by(LayoutKind::Together), "1/1 2/2 3/3 4/4");
        assert_eq!(by(LayoutKind::HalfTheVolumes), "1/5 2/6 1/5 2/6");
        assert_eq!(by(LayoutKind::OneVolume), "1/5 1/5 1/5 1/5");
    }

    #[test]
    fn fewer_volumes_are_the_first_ones_and_more_than_given_are_refused() {
        let places = places(3, 1);
        let used = |volumes| {
            let spreading = Spreading { groups: 1, databases: 4, kind: None, volumes: Some(volumes) };
            spread(&places, spreading).map(|layout| shown(&layout)).map_err(|refusal| refusal.to_string())
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
        let spreading =
            Spreading { groups: 1, databases: 1, kind: Some(LayoutKind::OneVolume), volumes: None };
        assert_eq!(
            spread(&places(2, 0), spreading).expect_err("refused").to_string(),
            "the layout one-volume keeps logs apart, and they have no path; give one with --logs, or use the \
             layout together"
        );
    }

    #[test]
    fn databases_are_spread_round_robin_and_logs_lie_beside_them_or_apart() {
        assert_eq!(
            shown(&plainly(&places(3, 0), 2, 2).expect("fits")),
            ["0:sg1-db1.edb 1:sg1-db2.edb | 0:E00", "2:sg2-db1.edb 0:sg2-db2.edb | 2:E01"]
        );
        assert_eq!(
            shown(&plainly(&places(1, 2), 3, 1).expect("fits")),
            ["0:sg1-db1.edb | 1:E00", "0:sg2-db1.edb | 2:E01", "0:sg3-db1.edb | 1:E02"]
        );
    }

    #[test]
    fn what_lies_in_a_place_is_what_its_record_names() {
        let layout = plainly(&places(2, 0), 2, 2).expect("fits");
        assert_eq!(databases_in(&layout, 0), ["sg1-db1.edb", "sg2-db1.edb"]);
        assert_eq!(logs_in(&layout, 0), ["E00", "E01"]);
        assert_eq!(logs_in(&layout, 1), Vec::<String>::new());
    }

    #[test]
    fn two_groups_do_not_share_a_raw_device() {
        let mut places = places(1, 0);
        places.all[0].ground = Ground::Device(device());
        assert!(plainly(&places, 1, 4).is_ok());
        assert_eq!(
            plainly(&places, 2, 1).expect_err("refused").to_string(),
            "2 groups would share the raw device /mnt/0; give each group devices of its own, or use --groups 1"
        );
    }
}

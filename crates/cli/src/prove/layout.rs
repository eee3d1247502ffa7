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

/// Spreads `groups` groups of `databases` databases over the places.
///
/// A raw device is worked by one thread; a device that two groups would share is refused.
pub fn spread(places: &Places, groups: u32, databases: u32) -> Result<Vec<GroupLayout>, Refusal> {
    assert!(!places.databases.is_empty(), "there is a place for databases");
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

    #[test]
    fn databases_are_spread_round_robin_and_logs_lie_beside_them_or_apart() {
        assert_eq!(
            shown(&spread(&places(3, 0), 2, 2).expect("fits")),
            ["0:sg1-db1.edb 1:sg1-db2.edb | 0:E00", "2:sg2-db1.edb 0:sg2-db2.edb | 2:E01"]
        );
        assert_eq!(
            shown(&spread(&places(1, 2), 3, 1).expect("fits")),
            ["0:sg1-db1.edb | 1:E00", "0:sg2-db1.edb | 2:E01", "0:sg3-db1.edb | 1:E02"]
        );
    }

    #[test]
    fn what_lies_in_a_place_is_what_its_record_names() {
        let layout = spread(&places(2, 0), 2, 2).expect("fits");
        assert_eq!(databases_in(&layout, 0), ["sg1-db1.edb", "sg2-db1.edb"]);
        assert_eq!(logs_in(&layout, 0), ["E00", "E01"]);
        assert_eq!(logs_in(&layout, 1), Vec::<String>::new());
    }

    #[test]
    fn two_groups_do_not_share_a_raw_device() {
        let mut places = places(1, 0);
        places.all[0].ground = Ground::Device(device());
        assert!(spread(&places, 1, 4).is_ok());
        assert_eq!(
            spread(&places, 2, 1).expect_err("refused").to_string(),
            "2 groups would share the raw device /mnt/0; give each group devices of its own, or use --groups 1"
        );
    }
}

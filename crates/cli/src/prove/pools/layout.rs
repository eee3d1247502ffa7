//! Which drive of which pool lies in which place, and what that protects from.

use super::{
    super::layout::{Places, Spot},
    size::DRIVES,
};
use crate::prove::place::Place;
use rustix::fs::stat;
use std::collections::BTreeMap;
use workload::database::meter::Role;

/// The drives of one group's pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDrives {
    /// Of the pool for databases.
    pub databases: Vec<Spot>,
    /// Of the pool for logs.
    pub logs: Vec<Spot>,
}

/// What the pool of a role is called.
pub fn pool_name(role: Role) -> &'static str {
    match role {
        Role::Database => "pool for databases",
        Role::Log => "pool for logs",
    }
}

/// Spreads the drives of each group's pools over the places: databases over theirs, logs over theirs if they have any.
pub fn spread(places: &Places, groups: u32) -> Vec<GroupDrives> {
    let logs = if places.logs.is_empty() { &places.databases } else { &places.logs };
    let drives = |group: u32, what: &str, on: &[usize]| {
        let spot = |drive: u32| Spot {
            place: on[drive as usize % on.len()],
            name: format!("sg{}-{what}-drive{}.spindle", group + 1, drive + 1),
        };
        (0..DRIVES).map(spot).collect()
    };
    let of_group = |group| GroupDrives {
        databases: drives(group, "db", &places.databases),
        logs: drives(group, "log", logs),
    };
    (0..groups).map(of_group).collect()
}

/// Names of the drives that lie in `place`.
pub fn drives_in(layout: &[GroupDrives], place: usize) -> Vec<String> {
    let all = layout.iter().flat_map(|group| group.databases.iter().chain(&group.logs));
    all.filter(|spot| spot.place == place).map(|spot| spot.name.clone()).collect()
}

/// How many drives of pools for databases lie in `place`, and of pools for logs.
pub fn counts_in(layout: &[GroupDrives], place: usize) -> (u32, u32) {
    let count = |of: fn(&GroupDrives) -> &[Spot]| {
        layout.iter().flat_map(of).filter(|spot| spot.place == place).count() as u32
    };
    (count(|group| &group.databases), count(|group| &group.logs))
}

impl GroupDrives {
    /// The drives of the pool of a role.
    pub fn of(&self, role: Role) -> &[Spot] {
        match role {
            Role::Database => &self.databases,
            Role::Log => &self.logs,
        }
    }
}

/// Which drives of a pool would fail together, in words; none if each has a device of its own.
pub fn shared(drives: &[Spot], places: &[Place]) -> Option<String> {
    let mut on_device: BTreeMap<String, usize> = BTreeMap::new();
    for spot in drives {
        *on_device.entry(device_of(&places[spot.place])).or_default() += 1;
    }
    let most = on_device.values().copied().max().unwrap_or(0);
    match most {
        0 | 1 => None,
        all if all == drives.len() => Some(format!("all {all} drives share one device")),
        some => Some(format!("{some} of {} drives share one device", drives.len())),
    }
}

/// What tells a place's device from others: its drive, or what the filesystem says it lies on.
fn device_of(place: &Place) -> String {
    match &place.drive().name {
        Some(name) => name.clone(),
        // A folder that is yet to be made will lie on its parent's filesystem.
        None => {
            let there = place.canonical().ancestors().find_map(|path| stat(path).ok());
            there.map_or_else(|| "unknown".to_owned(), |found| found.st_dev.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::place::{Ground, tests::folder};

    fn places(databases: usize, logs: usize, same_drive: bool) -> Places {
        let place = |index: usize| {
            let path = format!("/mnt/{index}");
            let mut facts = folder(&path);
            facts.drive.name = Some(if same_drive { "sda".to_owned() } else { format!("sd{index}") });
            Place { given: path.into(), ground: Ground::Folder(facts) }
        };
        Places {
            all: (0..databases + logs).map(place).collect(),
            databases: (0..databases).collect(),
            logs: (databases..databases + logs).collect(),
        }
    }

    #[test]
    fn drives_are_spread_over_the_paths_of_their_role() {
        let layout = spread(&places(2, 1, false), 2);
        assert_eq!(layout[0].databases[0].name, "sg1-db-drive1.spindle");
        assert_eq!(layout[1].logs[7].name, "sg2-log-drive8.spindle");
        let of = |spots: &[Spot]| spots.iter().map(|spot| spot.place).collect::<Vec<_>>();
        assert_eq!(of(&layout[0].databases), [0, 1, 0, 1, 0, 1, 0, 1]);
        assert_eq!(of(&layout[0].logs), [2; 8]);
        assert_eq!(drives_in(&layout, 2).len(), 16);
    }

    #[test]
    fn drives_that_share_a_device_are_named_and_eight_devices_are_protection() {
        let said = |databases, same| {
            let places = places(databases, 0, same);
            shared(&spread(&places, 1)[0].databases, &places.all)
        };
        assert_eq!(said(1, false).as_deref(), Some("all 8 drives share one device"));
        assert_eq!(said(8, true).as_deref(), Some("all 8 drives share one device"));
        assert_eq!(said(3, false).as_deref(), Some("3 of 8 drives share one device"));
        assert_eq!(said(8, false), None);
    }
}

//! Layout of pool drives over locations, and the failures it protects from.

use super::size::DRIVES;
use crate::{
    layout::{FileSlot, RunLocations},
    location::RunLocation,
};
use rustix::fs::stat;
use std::collections::BTreeMap;
use workload::meter::VolumeRole;

/// The drives of one group's pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDrives {
    pub databases: Vec<FileSlot>,
    pub logs: Vec<FileSlot>,
}

/// Name of the pool of a role.
pub fn pool_name(role: VolumeRole) -> &'static str {
    match role {
        VolumeRole::Database => "pool for databases",
        VolumeRole::Log => "pool for logs",
    }
}

/// Spreads the drives of each group's pools over the locations: databases over theirs, logs over theirs if they have any.
pub fn spread(locations: &RunLocations, groups: u32) -> Vec<GroupDrives> {
    let logs = if locations.logs.is_empty() { &locations.databases } else { &locations.logs };
    let drives = |group: u32, what: &str, on: &[usize]| {
        let slot = |drive: u32| FileSlot {
            location: on[drive as usize % on.len()],
            name: format!("sg{}-{what}-drive{}.spindle", group + 1, drive + 1),
        };
        (0..DRIVES).map(slot).collect()
    };
    let of_group = |group| GroupDrives {
        databases: drives(group, "db", &locations.databases),
        logs: drives(group, "log", logs),
    };
    (0..groups).map(of_group).collect()
}

/// Names of the drives that lie in `location`.
pub fn drives_in(layout: &[GroupDrives], location: usize) -> Vec<String> {
    let all = layout.iter().flat_map(|group| group.databases.iter().chain(&group.logs));
    all.filter(|slot| slot.location == location).map(|slot| slot.name.clone()).collect()
}

/// Number of drives of database pools at `location`, and of log pools.
pub fn counts_in(layout: &[GroupDrives], location: usize) -> (u32, u32) {
    let count = |of: fn(&GroupDrives) -> &[FileSlot]| {
        layout.iter().flat_map(of).filter(|slot| slot.location == location).count() as u32
    };
    (count(|group| &group.databases), count(|group| &group.logs))
}

impl GroupDrives {
    pub fn of(&self, role: VolumeRole) -> &[FileSlot] {
        match role {
            VolumeRole::Database => &self.databases,
            VolumeRole::Log => &self.logs,
        }
    }
}

/// Drives of a pool that would fail together, in words; `None` if each has a device of its own.
pub fn shared(drives: &[FileSlot], locations: &[RunLocation]) -> Option<String> {
    let mut on_device: BTreeMap<String, usize> = BTreeMap::new();
    for slot in drives {
        *on_device.entry(device_of(&locations[slot.location])).or_default() += 1;
    }
    let most = on_device.values().copied().max().unwrap_or(0);
    match most {
        0 | 1 => None,
        all if all == drives.len() => Some(format!("all {all} drives share one device")),
        some => Some(format!("{some} of {} drives share one device", drives.len())),
    }
}

/// Identifies a location's device: its drive, or the filesystem's device number.
fn device_of(location: &RunLocation) -> String {
    match &location.drive().name {
        Some(name) => name.clone(),
        // A folder that is yet to be made will lie on its parent's filesystem.
        None => {
            let there = location.canonical().ancestors().find_map(|path| stat(path).ok());
            there.map_or_else(|| "unknown".to_owned(), |found| found.st_dev.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::{LocationFacts, tests::folder};

    fn locations(databases: usize, logs: usize, same_drive: bool) -> RunLocations {
        let location = |index: usize| {
            let path = format!("/mnt/{index}");
            let mut facts = folder(&path);
            facts.drive.name = Some(if same_drive { "sda".to_owned() } else { format!("sd{index}") });
            RunLocation { given: path.into(), facts: LocationFacts::Folder(facts) }
        };
        RunLocations {
            all: (0..databases + logs).map(location).collect(),
            databases: (0..databases).collect(),
            logs: (databases..databases + logs).collect(),
        }
    }

    #[test]
    fn drives_are_spread_over_the_paths_of_their_role() {
        let layout = spread(&locations(2, 1, false), 2);
        assert_eq!(layout[0].databases[0].name, "sg1-db-drive1.spindle");
        assert_eq!(layout[1].logs[7].name, "sg2-log-drive8.spindle");
        let of = |slots: &[FileSlot]| slots.iter().map(|slot| slot.location).collect::<Vec<_>>();
        assert_eq!(of(&layout[0].databases), [0, 1, 0, 1, 0, 1, 0, 1]);
        assert_eq!(of(&layout[0].logs), [2; 8]);
        assert_eq!(drives_in(&layout, 2).len(), 16);
    }

    #[test]
    fn drives_that_share_a_device_are_named_and_eight_devices_are_protection() {
        let said = |databases, same| {
            let locations = locations(databases, 0, same);
            shared(&spread(&locations, 1)[0].databases, &locations.all)
        };
        assert_eq!(said(1, false).as_deref(), Some("all 8 drives share one device"));
        assert_eq!(said(8, true).as_deref(), Some("all 8 drives share one device"));
        assert_eq!(said(3, false).as_deref(), Some("3 of 8 drives share one device"));
        assert_eq!(said(8, false), None);
    }
}

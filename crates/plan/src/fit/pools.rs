//! Number of drive pools for one purpose: as few as hold all storage groups within the largest pool.

use super::{
    DRIVES_MAX, Purpose,
    load::{GroupLoad, Load},
};
use crate::units::{counted, shown};

/// One purpose, divided into pools that are all alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Division {
    pub pools: u32,
    /// Load of the fullest pool.
    pub asked: GroupLoad,
    /// Storage groups that a pool may have, where they had to be divided.
    pub storage_groups_max: Option<u64>,
    /// Drives, or whole arrays, of each pool.
    pub units: u32,
}

/// Divides what is `asked` into pools of at most `units_max` drives or arrays; `units_of` says how many of them carry what
/// a pool is asked for.
pub fn divide(
    load: &Load,
    asked: &GroupLoad,
    units_max: u32,
    units_of: impl Fn(&GroupLoad) -> Result<u32, String>,
) -> Result<Division, String> {
    assert!(units_max > 0, "a pool has a drive");
    let undivided = units_of(asked)?;
    if undivided <= units_max {
        return Ok(Division { pools: 1, asked: asked.clone(), storage_groups_max: None, units: undivided });
    }
    let fits = |of_pool: &GroupLoad| units_of(of_pool).ok().filter(|units| *units <= units_max);
    let division = match asked.purpose {
        Purpose::Backup => {
            let mut pools = undivided.div_ceil(units_max);
            // Each pool has redundancy of its own, so a few more may be needed than there are drives for.
            while fits(&asked.part(pools)).is_none() && pools < undivided {
                pools += 1;
            }
            (pools, asked.part(pools), None)
        }
        Purpose::Mail | Purpose::Databases | Purpose::Logs => {
            let most = most_storage_groups(load, asked, &fits)
                .ok_or_else(|| too_large(load, asked, units_max, units_of(&load.of_pool(asked, 1))))?;
            let pools = load.logs.div_ceil(most);
            let of_pool = load.of_pool(asked, load.logs.div_ceil(pools));
            let pools = u32::try_from(pools).map_err(|_| too_many())?;
            (pools, of_pool, Some(most))
        }
    };
    let (pools, of_pool, storage_groups_max) = division;
    let units = units_of(&of_pool)?;
    match pools.checked_mul(units) {
        Some(all) if all <= DRIVES_MAX => Ok(Division { pools, asked: of_pool, storage_groups_max, units }),
        _ => Err(too_many()),
    }
}

/// The most storage groups of one pool; none if not even one fits. More of them never take fewer drives.
fn most_storage_groups(
    load: &Load,
    asked: &GroupLoad,
    fits: &dyn Fn(&GroupLoad) -> Option<u32>,
) -> Option<u64> {
    let fit = |count: u64| fits(&load.of_pool(asked, count)).is_some();
    if !fit(1) {
        return None;
    }
    let (mut fitting, mut beyond) = (1, load.logs);
    while beyond - fitting > 1 {
        let middle = fitting + (beyond - fitting) / 2;
        if fit(middle) {
            fitting = middle;
        } else {
            beyond = middle;
        }
    }
    Some(fitting)
}

fn too_large(load: &Load, asked: &GroupLoad, units_max: u32, units: Result<u32, String>) -> String {
    let one = load.of_pool(asked, 1);
    let of_one = format!("one storage group takes {} and asks {}", one.capacity, one.iops());
    match (units, units_max) {
        (Ok(_), 1) => format!("{of_one}, more than a single drive has; allow smaller databases"),
        (Ok(units), _) => format!(
            "{of_one}: {} drives, and a pool has {} at most (pool_drives); allow smaller databases",
            counted(units),
            counted(units_max)
        ),
        (Err(reason), _) => reason,
    }
}

/// Refusal of a group with too many drives to count.
pub fn too_many() -> String {
    format!("more than {} drives are needed", shown(DRIVES_MAX.into()))
}

//! Figures of the rules that groups of drives are sized by.

use crate::{
    rules::{self, Rules},
    units::{DriveIops, HostIops},
};

/// Figures of the rules that groups of drives are sized by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizing {
    /// IOPS of one drive, in place of the catalogue's.
    pub drive_iops: Option<DriveIops>,
    /// IOPS of one array that is bought whole, at the host, in place of the catalogue's.
    pub array_iops: Option<HostIops>,
    /// Sequential writes a second of one drive that has nothing but logs.
    pub log_writes: DriveIops,
    /// Drives of one pool at most, spares not counted.
    pub pool_drives: u32,
    /// Drives at work for each spare, where no paper says how many spares the array has.
    pub drives_per_spare: u32,
}

impl Sizing {
    /// Those of `rules`.
    pub fn of(rules: &Rules) -> Self {
        let given = |key: &str| Some(rules.value(key)).filter(|value| *value > 0.0);
        Self {
            drive_iops: given("drive_iops").map(DriveIops::new),
            array_iops: given("array_iops").map(HostIops::new),
            log_writes: DriveIops::new(1000.0 * rules.value("log_drive_use") / rules.value("log_write_time")),
            pool_drives: rules.value("pool_drives") as u32,
            drives_per_spare: rules.value("drives_per_spare") as u32,
        }
    }

    /// Spares for `drives` at work in one group: at least one.
    pub fn spares(&self, drives: u32) -> u32 {
        drives.div_ceil(self.drives_per_spare).max(1)
    }
}

impl Default for Sizing {
    fn default() -> Self {
        Self::of(&Rules::named(rules::DEFAULT).expect("it is built in"))
    }
}

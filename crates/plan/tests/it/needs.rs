//! Needs as tests want them.

use plan::{
    demand::{Mode, Needs},
    units::{Gib, HostIops, MegabitsPerSecond, Share},
};

/// Needs of 12 middling databases that ask `iops` of all together.
pub fn needs(mode: Mode, iops: f64) -> Needs {
    let databases = 12;
    let (database_volume, log_volume) = (Gib::new(400.0), Gib::new(40.0));
    Needs {
        mode,
        copies: if mode == Mode::Copies { 2 } else { 1 },
        users: 5000,
        databases,
        servers: 2,
        database: Gib::new(300.0),
        database_volume,
        log_volume,
        database_capacity: database_volume * databases as f64,
        log_capacity: log_volume * databases as f64,
        restore_capacity: Gib::ZERO,
        backup_capacity: Gib::ZERO,
        snapshot_reserve: Gib::ZERO,
        write_history: Gib::ZERO,
        database_iops: HostIops::new(iops),
        database_read_share: Share::percent(60.0),
        log_iops: HostIops::new(iops * 0.3),
        log_read_share: Share::ZERO,
        maintenance_iops: HostIops::ZERO,
        maintenance_read_bytes: 256 * 1024,
        replication_link: MegabitsPerSecond::ZERO,
        iops_headroom: Share::percent(20.0),
        growth: Share::ZERO,
    }
}

/// The Dell paper's example as it is printed (Dell 2010, section 3.4.2): 12 databases of 1266 and 48 GB, 900 IOPS.
pub fn dell_as_printed() -> Needs {
    let mut needs = needs(Mode::Copies, 900.0);
    needs.database = Gib::new(959.0);
    (needs.database_volume, needs.log_volume) = (Gib::new(1266.0), Gib::new(48.0));
    needs.log_iops = HostIops::new(378.0);
    needs.maintenance_iops = HostIops::new(240.0);
    needs
}

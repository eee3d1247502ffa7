//! Load on the groups of one copy.

use super::{Purpose, Wishes};
use crate::{
    demand::Needs,
    units::{DriveIops, Gib, HostIops, Share},
};

/// A stream of I/O with its share of reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// Reads and writes a second.
    pub iops: HostIops,
    /// Reads in them.
    pub reads: Share,
}

/// Load on one group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupLoad {
    pub purpose: Purpose,
    pub capacity: Gib,
    /// I/O of databases, logs and maintenance, those that are for it.
    pub databases: Option<Stream>,
    /// Load of logs; none where the group holds no logs.
    pub logs: Option<Stream>,
    /// IOPS of maintenance, all of them reads.
    pub maintenance: HostIops,
}

impl GroupLoad {
    /// All of it together.
    pub fn iops(&self) -> HostIops {
        let streams = [self.databases, self.logs].into_iter().flatten();
        streams.map(|stream| stream.iops).sum::<HostIops>() + self.maintenance
    }

    /// One of so many alike `parts`.
    pub fn part(&self, parts: u32) -> Self {
        self.scaled(self.capacity * (1.0 / f64::from(parts)), 1.0 / f64::from(parts), 1.0 / f64::from(parts))
    }

    /// The same for what holds `capacity` and has these shares of databases and of logs.
    fn scaled(&self, capacity: Gib, of_databases: f64, of_logs: f64) -> Self {
        let stream = |stream: Option<Stream>, share: f64| {
            stream.map(|stream| Stream { iops: stream.iops * share, reads: stream.reads })
        };
        Self {
            purpose: self.purpose,
            capacity,
            databases: stream(self.databases, of_databases),
            logs: stream(self.logs, of_logs),
            maintenance: self.maintenance * of_databases,
        }
    }

    /// I/O of drives for it, if one write costs `write_penalty`: each stream has its own share of reads.
    pub fn on_drives(&self, write_penalty: f64) -> DriveIops {
        let streams = [self.databases, self.logs].into_iter().flatten();
        let of_streams = streams.map(|stream| stream.iops.on_drives(stream.reads, write_penalty)).sum();
        self.maintenance.on_drives(Share::ALL, write_penalty) + of_streams
    }
}

/// Load on all groups.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// The groups of one copy, then that for backups, if one is needed.
    pub asked: Vec<GroupLoad>,
    pub copies: u32,
    pub databases: u64,
    /// Logs of the databases.
    pub logs: u64,
    /// Volume of one database.
    pub database_volume: Gib,
    /// Volume of one log.
    pub log_volume: Gib,
    /// Databases that share a log.
    per_log: u64,
    /// Room beside the volumes, to restore and for snapshots.
    beside: Gib,
}

impl Load {
    /// Divides `needs` over groups, by `wishes`.
    pub fn of(needs: &Needs, wishes: &Wishes) -> Self {
        assert!(needs.copies > 0 && needs.databases > 0, "there is a database: {needs:?}");
        let databases = Stream { iops: needs.database_iops, reads: needs.database_read_share };
        let logs = Stream { iops: needs.log_iops, reads: needs.log_read_share };
        let per_log = u64::from(wishes.databases_per_log.max(1));
        let log_count = needs.databases.div_ceil(per_log);
        // One log of several databases holds what theirs would.
        let log_volume = needs.log_volume * per_log as f64;
        let of_logs = log_volume * log_count as f64;
        let of_databases = needs.database_volume * needs.databases as f64;
        let beside = needs.restore_capacity + needs.snapshot_reserve;
        let group = |purpose, capacity, databases, logs, maintenance| GroupLoad {
            purpose,
            capacity,
            databases,
            logs,
            maintenance,
        };
        let mut asked = match wishes.keeps_logs_apart(needs) {
            true => vec![
                group(
                    Purpose::Databases,
                    of_databases + beside,
                    Some(databases),
                    None,
                    needs.maintenance_iops,
                ),
                group(Purpose::Logs, of_logs, None, Some(logs), HostIops::ZERO),
            ],
            false => vec![group(
                Purpose::Mail,
                of_databases + of_logs + beside,
                Some(databases),
                Some(logs),
                needs.maintenance_iops,
            )],
        };
        let of_backup = needs.backup_capacity + needs.write_history;
        if of_backup > Gib::ZERO {
            asked.push(group(Purpose::Backup, of_backup, None, None, HostIops::ZERO));
        }
        Self {
            asked,
            copies: needs.copies,
            databases: needs.databases,
            logs: log_count,
            database_volume: needs.database_volume,
            log_volume,
            per_log,
            beside,
        }
    }

    /// Share of the load of all pools that falls on one with `storage_groups`.
    pub fn of_pool(&self, asked: &GroupLoad, storage_groups: u64) -> GroupLoad {
        assert!((1..=self.logs).contains(&storage_groups), "{storage_groups} of {}", self.logs);
        let databases = (storage_groups * self.per_log).min(self.databases);
        let share = databases as f64 / self.databases as f64;
        let of_databases = self.database_volume * databases as f64;
        let of_logs = self.log_volume * storage_groups as f64;
        let capacity = match asked.purpose {
            Purpose::Mail => of_databases + of_logs + self.beside * share,
            Purpose::Databases => of_databases + self.beside * share,
            Purpose::Logs => of_logs,
            Purpose::Backup => panic!("backups are of no storage group"),
        };
        asked.scaled(capacity, share, storage_groups as f64 / self.logs as f64)
    }
}

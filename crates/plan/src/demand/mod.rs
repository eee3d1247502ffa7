//! The storage needs of a profile's users: one file an activity, in the order of derivation.
//!
//! Invariants:
//!
//! 1. Sizes and rates are those of one copy of all databases; each copy needs them again.
//! 2. More users never need less: no capacity and no rate for all of them falls. What is counted in whole volumes may, by
//!    less than one of its units a database.

mod backup;
mod capacity;
mod databases;
mod history;
mod iops;
mod logs;
mod memory;
mod needs;
mod replication;
mod snapshots;
mod users;

pub use needs::{Mode, Needs};

use crate::{
    derivation::Sheet,
    profile::{Profile, ProfileError},
    rules::Rules,
    units::{Gib, HostIops, MegabitsPerSecond, Share},
};
use thiserror::Error;

/// The needs of a profile, with their derivation.
#[derive(Clone, Debug)]
pub struct Demand {
    /// Every number on the way.
    pub sheet: Sheet,
    /// The answer, in the words of supply.
    pub needs: Needs,
}

/// Why nothing can be planned for a profile.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DemandError {
    /// The profile contradicts itself.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A database would not hold one mailbox.
    #[error(
        "one mailbox takes {mailbox}, and a database may have {database}; allow larger databases, or smaller mailboxes"
    )]
    MailboxLargerThanDatabase {
        /// The largest mailbox.
        mailbox: String,
        /// The largest database.
        database: String,
    },
}

/// The profile as the derivations read it.
#[derive(Clone, Copy, Debug)]
struct PlanInput<'a> {
    profile: &'a Profile,
    mode: Mode,
    copies: u32,
}

impl Demand {
    /// Derives the needs of `profile` by `rules`.
    pub fn of(profile: &Profile, rules: Rules) -> Result<Self, DemandError> {
        profile.check()?;
        let (mode, copies) = profile.mode_and_copies()?;
        let input = PlanInput { profile, mode, copies };
        let rules = profile.settle(rules)?;
        let tiers = profile.tiers.iter().map(|tier| tier.name.clone()).collect();
        let mut sheet = Sheet::new(rules, tiers);
        users::derive(&mut sheet, &input);
        capacity::derive(&mut sheet);
        databases::derive(&mut sheet, &input)?;
        logs::derive(&mut sheet);
        iops::derive(&mut sheet, &input);
        replication::derive(&mut sheet, &input);
        history::derive(&mut sheet, &input);
        snapshots::derive(&mut sheet);
        memory::derive(&mut sheet, &input);
        backup::derive(&mut sheet, &input);
        let needs = needs(&sheet, &input);
        Ok(Self { sheet, needs })
    }
}

fn needs(sheet: &Sheet, input: &PlanInput<'_>) -> Needs {
    let gib = |id: &str| Gib::new(sheet.get(id));
    let iops = |id: &str| HostIops::new(sheet.get(id));
    let share = |part: f64, whole: f64| Share::new(if whole > 0.0 { (part / whole).min(1.0) } else { 0.0 });
    let rules = sheet.rules();
    let users = sheet.get("NUT");
    Needs {
        mode: input.mode,
        copies: input.copies,
        users: users as u64,
        databases: sheet.get("DBC") as u64,
        servers: sheet.get("SRV") as u32,
        database: gib("IDBS"),
        database_volume: gib("DVW"),
        log_volume: gib("LVW"),
        database_capacity: gib("DCAP"),
        log_capacity: gib("LCAP"),
        restore_capacity: gib("RCAP"),
        backup_capacity: gib("BKC"),
        snapshot_reserve: gib("SNR"),
        write_history: gib("WHL"),
        database_iops: iops("DBIOP"),
        database_read_share: share(sheet.get("DBRD"), sheet.get("DBIOP")),
        log_iops: iops("LIOPS"),
        log_read_share: share(sheet.get("LOGR"), sheet.get("LIOPS")),
        maintenance_iops: iops("MNT"),
        maintenance_read_bytes: (rules.value("maintenance_read") * 1024.0) as u64,
        replication_link: MegabitsPerSecond::new(sheet.get("LNK")),
        iops_headroom: Share::new(rules.value("iops_headroom")),
        growth: Share::new(users / sheet.get("USERS_ALL") - 1.0),
    }
}

//! Changes of a pool's drives and settings as values: a command makes them in a pool that it has opened.
//!
//! A change begins its work and does not wait for it: who made it may look at the pool's jobs, or wait with
//! [`departure::wait_until_left`] and [`add_drive::await_copies`].
//!
//! Invariant: a refused change changes nothing. Only settings come one after the other: those before a refused one stay.

use super::{
    add_drive::{self, DriveSource},
    departure::{self, NamedDrive, drive_named},
    domains::{NamedDomain, domain_changes, set_domains},
    failure_sets::set_failure_sets,
    folder::OpenPool,
    format_level::upgrade,
    growth, sparing,
};
use crate::{notices::Notices, remote::RemoteSettings};
use array::{
    format::{DomainName, DriveId, SparingLevel},
    mover::JobKind,
};
use report::Refusal;
use std::{path::PathBuf, rc::Rc};
use world::{ByteCount, World};

/// A change of one pool. A drive is named by its path, its file's name, its serial number, or its UUID.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolChange {
    /// Sparing, domains and failure sets, in this order.
    Set(PoolSettingChange),
    /// Raises the format level to that of new pools.
    Upgrade,
    AddDrive {
        source: NewDriveSource,
        domain: Option<DomainName>,
    },
    /// Adds a drive, and lets another one leave.
    Replace {
        old: String,
        source: NewDriveSource,
        /// That of the old drive if `None`.
        domain: Option<DomainName>,
    },
    /// Takes back a drive that fell behind.
    Readmit {
        drive: String,
    },
    Retire {
        drive: String,
    },
    /// Keeps a drive that was to leave.
    Keep {
        drive: String,
    },
    /// Removes a lost drive. Copies that are missing are made first, which this waits for.
    Forget {
        drive: String,
    },
    /// Uses all of a drive that has become larger.
    Grow {
        drive: String,
    },
    /// Makes copies that are missing, and levels the drives.
    Level,
    CancelLevelling,
    /// Checks everything once, from the beginning.
    Scrub,
    CancelScrub,
}

/// New settings of a pool. What is `None` or empty stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolSettingChange {
    pub sparing: Option<SparingLevel>,
    pub domains: Vec<NamedDomain>,
    /// Drives that fail alone from then on.
    pub without_domain: Vec<String>,
    pub failure_sets: Option<bool>,
}

/// A drive that is new to the pool.
#[derive(Clone, Debug, PartialEq)]
pub enum NewDriveSource {
    /// A file in the pool's folder, of that size.
    File(ByteCount),
    /// A raw device that holds nothing, or the URI of one on another machine and what its server asks for.
    Device(PathBuf, RemoteSettings),
}

/// A change of a pool that was made, or whose work has begun.
#[derive(Clone, Debug)]
pub enum PoolDone {
    Set,
    /// Missing copies are made on it from now on.
    Joined {
        path: PathBuf,
        size: ByteCount,
        /// The drive that leaves.
        replaced: Option<NamedDrive>,
    },
    Leaving(NamedDrive),
    Kept(NamedDrive),
    Forgotten(NamedDrive),
    Grown {
        drive: NamedDrive,
        gained_bytes: u64,
    },
    /// A job has begun, as [`Pool::jobs`](array::pool::Pool::jobs) shows.
    Begun(JobKind),
    Cancelled(JobKind),
}

impl NewDriveSource {
    pub fn source(&self) -> DriveSource<'_> {
        match self {
            Self::File(size) => DriveSource::File(*size),
            Self::Device(path, access) => DriveSource::Device(path, access),
        }
    }
}

/// Makes a change.
///
/// # Errors
///
/// A refusal.
pub async fn perform(
    change: &PoolChange,
    on: (&World, &mut OpenPool),
    notices: &dyn Notices,
) -> Result<PoolDone, Refusal> {
    perform_as(change, None, on, notices).await
}

/// Makes a change. A drive that joins has the UUID `identity`; the same change with the same identity may have been interrupted
/// before, if that drive is not listed.
///
/// # Errors
///
/// A refusal.
pub async fn perform_as(
    change: &PoolChange,
    identity: Option<DriveId>,
    (world, open): (&World, &mut OpenPool),
    notices: &dyn Notices,
) -> Result<PoolDone, Refusal> {
    Ok(match change {
        PoolChange::Set(settings) => {
            set(open, settings).await?;
            PoolDone::Set
        }
        PoolChange::Upgrade => {
            upgrade(open).await?;
            PoolDone::Set
        }
        PoolChange::AddDrive { source, domain } => {
            let source = (source.source(), *domain, identity);
            let (path, size) = add_drive::join(world, open, source, None, notices).await?;
            PoolDone::Joined { path, size, replaced: None }
        }
        PoolChange::Replace { old, source, domain } => {
            let named = drive_named(open, old)?;
            let source = (source.source(), *domain, identity);
            let (path, size) = departure::replace(world, open, &named, source, notices).await?;
            PoolDone::Joined { path, size, replaced: Some(named) }
        }
        PoolChange::Readmit { drive } => {
            let named = drive_named(open, drive)?;
            let source = (DriveSource::Returned(&named), None, identity);
            let (path, size) = add_drive::join(world, open, source, None, notices).await?;
            PoolDone::Joined { path, size, replaced: None }
        }
        PoolChange::Retire { drive } => {
            let named = drive_named(open, drive)?;
            departure::retire(open, &named).await?;
            PoolDone::Leaving(named)
        }
        PoolChange::Keep { drive } => {
            let named = drive_named(open, drive)?;
            departure::keep(open, &named).await?;
            PoolDone::Kept(named)
        }
        PoolChange::Forget { drive } => {
            let named = drive_named(open, drive)?;
            departure::forget(open, &named).await?;
            PoolDone::Forgotten(named)
        }
        PoolChange::Grow { drive } => {
            let named = drive_named(open, drive)?;
            let gained_bytes = growth::grow(open, &named).await?;
            PoolDone::Grown { drive: named, gained_bytes }
        }
        PoolChange::Level => {
            let pool = Rc::clone(&open.pool);
            // The pool's events tell how both end.
            world.spawn("levelling on request", async move {
                if pool.rebuild().await.is_ok() {
                    drop(pool.level().await);
                }
            });
            PoolDone::Begun(JobKind::Level)
        }
        PoolChange::Scrub => {
            let pool = Rc::clone(&open.pool);
            world.spawn("scrub on request", async move { drop(pool.scrub().await) });
            PoolDone::Begun(JobKind::Scrub)
        }
        PoolChange::CancelLevelling => cancel(open, JobKind::Level),
        PoolChange::CancelScrub => cancel(open, JobKind::Scrub),
    })
}

fn cancel(open: &OpenPool, kind: JobKind) -> PoolDone {
    open.pool.cancel(kind);
    PoolDone::Cancelled(kind)
}

async fn set(open: &OpenPool, settings: &PoolSettingChange) -> Result<(), Refusal> {
    let changes = domain_changes(open, &settings.domains, &settings.without_domain)?;
    if let Some(level) = settings.sparing {
        sparing::set_level(open, level).await?;
    }
    set_domains(open, &changes).await?;
    // After the domains: the drives of a set are to be in different ones.
    match settings.failure_sets {
        Some(is_wanted) => set_failure_sets(open, is_wanted).await,
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::create::{NewPoolDrives, NewPoolSetting, create};
    use world::real::{self, RealOptions};

    fn is_sent<T: Send + 'static>() {}

    #[test]
    fn changes_and_their_answers_go_between_threads() {
        is_sent::<PoolChange>();
        is_sent::<PoolDone>();
    }

    struct Unheard;

    impl Notices for Unheard {
        fn warn(&self, _: &str) {}
        fn note(&self, _: &str) {}
    }

    #[test]
    fn jobs_begin_and_end_on_request_and_a_drive_that_cannot_leave_stays() {
        let parent = tempfile::tempdir().unwrap();
        let folder = &parent.path().join("mail");
        real::run(0, RealOptions::default(), async |world: World| {
            let drives = NewPoolDrives::Files { count: 2, size: ByteCount::mib(65) };
            let setting = NewPoolSetting { copies: None, sparing: None, domains: &[], pool: None };
            create(&world, folder, drives, setting, &Unheard).await.unwrap();
            let notices: Rc<dyn Notices> = Rc::new(Unheard);
            let mut open = OpenPool::open(&world, folder, &notices).await.unwrap();
            for (change, begun) in [
                (PoolChange::Scrub, PoolDone::Begun(JobKind::Scrub)),
                (PoolChange::CancelScrub, PoolDone::Cancelled(JobKind::Scrub)),
                (PoolChange::Level, PoolDone::Begun(JobKind::Level)),
                (PoolChange::CancelLevelling, PoolDone::Cancelled(JobKind::Level)),
            ] {
                let done = perform(&change, (&world, &mut open), &Unheard).await.unwrap();
                assert_eq!(format!("{done:?}"), format!("{begun:?}"));
            }
            let drive = "drive-2.spindle".to_owned();
            let retire = PoolChange::Retire { drive: drive.clone() };
            let refused = perform(&retire, (&world, &mut open), &Unheard);
            let refused = refused.await.unwrap_err().to_string();
            assert!(refused.contains("cannot leave") && open.pool.leaving().is_empty(), "{refused}");
            let source = NewDriveSource::File(ByteCount::mib(65));
            let replace = PoolChange::Replace { old: drive, source, domain: None };
            let replaced = perform(&replace, (&world, &mut open), &Unheard).await.unwrap();
            let PoolDone::Joined { path, replaced: Some(old), .. } = replaced else { panic!("{replaced:?}") };
            assert_eq!(path, folder.join("drive-3.spindle"));
            departure::wait_until_left(&world, &mut open, &old, &mut |_| {}).await.unwrap();
            assert_eq!((open.pool.drives_present(), open.record().drives.len()), (2, 2));
            open.close().await.unwrap();
        });
    }
}

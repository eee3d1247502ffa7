//! Verifications in the order of the program: the points of a backup are exported, which is use; all of them are read; then they
//! are let go, and the verdict is noted with the identities of the points that were read. What could not be read to its end is no
//! verdict.

use super::{
    mail_service::{Contents, contents_of},
    two_pools::{OpenPools, snapshot_of},
};
use protect::{
    catalogue::CutPoint,
    set_keeper::{VerificationResult, VerificationVerdict},
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    rc::Rc,
    time::Duration,
};
use world::{Random, World};

/// The verifier of one life of the server: exports end with it.
#[derive(Default)]
pub struct Verifier {
    in_use: RefCell<BTreeSet<CutPoint>>,
    is_busy: Cell<bool>,
    /// Of backups, by number, that nobody has noted yet.
    pub results: RefCell<Vec<(u64, VerificationResult)>>,
}

/// One backup to verify.
pub struct VerifiedBackup {
    pub number: u64,
    pub points: Vec<CutPoint>,
    /// Contents at its freeze, if that held until the cut.
    pub frozen: Option<Contents>,
}

impl Verifier {
    pub fn is_busy(&self) -> bool {
        self.is_busy.get()
    }

    /// Points that are exported now.
    pub fn in_use(&self) -> BTreeSet<CutPoint> {
        self.in_use.borrow().clone()
    }

    /// Verifies a backup, one at a time. `losing` is the chance in percent that an export is lost.
    pub async fn verify(self: Rc<Self>, world: World, pools: OpenPools, backup: VerifiedBackup, losing: f64) {
        assert!(!self.is_busy.replace(true), "one at a time");
        let mut random = world.random("verifier");
        self.in_use.borrow_mut().extend(backup.points.iter().cloned());
        let read = Self::read(&world, &pools, &backup, &mut random, losing).await;
        self.in_use.borrow_mut().clear();
        self.is_busy.set(false);
        let (verdict, findings) = match read {
            // Damage of databases is in contents that are as they were written.
            Ok(()) if random.percent(15.0) => (VerificationVerdict::Damaged, vec!["page 7".to_owned()]),
            Ok(()) => (VerificationVerdict::Proven, Vec::new()),
            Err(why) => (VerificationVerdict::Unfinished, vec![why]),
        };
        let points = backup.points.into_iter().map(|point| point.id).collect();
        let (level, version) = ("deep".to_owned(), "1".to_owned());
        let result = VerificationResult { level, version, verdict, findings, points };
        self.results.borrow_mut().push((backup.number, result));
    }

    /// Reads all points of a backup; the reason if not everything was looked at.
    async fn read(
        world: &World,
        pools: &OpenPools,
        backup: &VerifiedBackup,
        random: &mut Random,
        losing: f64,
    ) -> Result<(), String> {
        for point in &backup.points {
            // A deep one may take long: schedules and people go on meanwhile.
            let most_ms = [40, 4_000, 120_000][random.below(3) as usize];
            world.sleep(Duration::from_millis(random.below(most_ms))).await;
            if random.percent(losing) {
                return Err("the export was lost".to_owned());
            }
            let device =
                pools[point.pool.as_str()].snapshot_device(point.volume.as_str(), snapshot_of(point));
            let device = device.map_err(|error| error.to_string())?;
            let found = contents_of(&device).await;
            if let Some(frozen) = &backup.frozen {
                assert_eq!(found, *frozen, "{} of backup {}, as it is verified", point.volume, backup.number);
            }
        }
        Ok(())
    }
}

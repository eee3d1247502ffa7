//! Volumes and sets that an apply must leave: a backup of them is locked.

use super::{changes::SiteStep, server::SiteServer, wanted::WantedSite};
use crate::sets::locks::{check_kept, check_unlocked};
use report::Refusal;

impl SiteServer {
    /// Refuses, before anything is done, to destroy a volume with a backup that is locked, and to let go of the set that counts
    /// its time.
    pub(super) async fn check_locks(&self, steps: &[SiteStep], wanted: &WantedSite) -> Result<(), Refusal> {
        let sets = self.sets.shown().borrow().clone();
        let is_wanted = |name: &str| wanted.sets.iter().any(|set| set.settings.name == name);
        check_kept(&sets, is_wanted, self.world.wall().seconds)?;
        for step in steps {
            if let SiteStep::DestroyVolume { pool, volume, .. } = step
                && self.daemon.pool(pool).is_some()
            {
                self.check_volume_unlocked(pool, volume).await?;
            }
        }
        Ok(())
    }

    /// Refuses a volume with a backup that is locked, or a point that is presented.
    pub(super) async fn check_volume_unlocked(&self, pool: &str, name: &str) -> Result<(), Refusal> {
        let name = name.to_owned();
        let points = self.order(pool, "look at snapshots", move |served| {
            Box::pin(async move {
                let found = served.pool.volumes().into_iter().find(|known| known.name == name);
                Ok(found.map(|known| (known.volume, served.pool.snapshots(known.volume).unwrap_or_default())))
            })
        });
        let Some((volume, points)) = points.await? else { return Ok(()) };
        self.daemon.presentations().check_volume_not_held(volume)?;
        let (sets, now_s) = (self.sets.shown().borrow().clone(), self.world.wall().seconds);
        points.iter().try_for_each(|point| check_unlocked(&sets, (volume, point), now_s))
    }
}

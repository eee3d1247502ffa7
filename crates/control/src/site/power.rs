//! The site on a battery, and without power: what NUT tells (`spindle power`).
//!
//! Invariants:
//!
//! 1. On a battery each write is stable before it is acknowledged, whatever the write caches of volumes and units say; what was
//!    acknowledged before is flushed. This holds for pools that are opened meanwhile, from the end of the apply that opens them.
//! 2. When power is low, all pools are closed, as at the end of the server, and none is opened before somebody says that power
//!    is better.
//! 3. Low power ends with the power's return alone: NUT tells a battery that begins low twice, by two processes at once, and the
//!    later one may say less.
//! 4. A server that starts takes the power as being there, unless it ended on a battery: then it is on it still.

use super::{
    handle::SiteAnswer,
    planning::{PlanOccasion, PlannedSite},
    server::SiteServer,
};
use crate::{
    conditions::{ConditionClaim, condition_id},
    journal::{ApplyRecord, JournalError},
};
use array::volume::VolumeDevice;
use report::Refusal;
use serde::{Deserialize, Serialize};
use std::rc::Rc;
use utoipa::ToSchema;
use world::BlockDevice;

/// The power of the machine, as somebody told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SitePower {
    /// As usual.
    #[default]
    OnLine,
    /// Write caches are suspended.
    OnBattery,
    /// Nothing is served.
    Low,
}

impl SitePower {
    pub fn word(self) -> &'static str {
        match self {
            Self::OnLine => "on-line",
            Self::OnBattery => "on-battery",
            Self::Low => "low",
        }
    }

    /// Refuses what opens pools while power is low.
    pub(super) fn check(self) -> Result<(), Refusal> {
        match self {
            Self::Low => Err(Refusal::new(
                "power is low, and nothing is served",
                "say 'spindle power on-line' when it is back, and repeat the command",
            )),
            Self::OnLine | Self::OnBattery => Ok(()),
        }
    }
}

impl SiteServer {
    /// Follows the power. The notes say what could not be done.
    pub(super) async fn set_power(&mut self, power: SitePower) -> Result<SiteAnswer, Refusal> {
        if self.power == SitePower::Low && power == SitePower::OnBattery {
            let note = "power is low, and nothing is served, until 'spindle power on-line'".to_owned();
            return Ok(SiteAnswer { notes: vec![note], ..SiteAnswer::default() });
        }
        let was = std::mem::replace(&mut self.power, power);
        let mut notes = Vec::new();
        if was == SitePower::Low && power == SitePower::OnLine {
            notes.extend(self.serve_again().await);
        }
        match power {
            SitePower::OnLine => {
                notes.extend(self.suspend_caches(false).await);
                self.notices.clear(&condition_id("power", "power", ""), self.world.wall());
            }
            SitePower::OnBattery => {
                notes.extend(self.suspend_caches(true).await);
                let text = "the machine runs on its battery: write caches are off and flushed";
                self.raise_power("on_battery", text, &notes);
            }
            SitePower::Low => {
                // Pools that are closed have not failed.
                self.publish();
                // Hosts that write on while they log out lose nothing either.
                notes.extend(self.suspend_caches(true).await);
                let panicked = self.daemon.remove_all_pools().await;
                notes.extend(panicked.into_iter().map(|(pool, why)| format!("pool {pool}: {why}")));
                let text = "the battery is low: hosts are logged out, and all pools are closed";
                self.raise_power("battery_low", text, &notes);
            }
        }
        Ok(SiteAnswer { notes, ..SiteAnswer::default() })
    }

    fn raise_power(&self, kind: &'static str, text: &str, notes: &[String]) {
        let mut text = text.to_owned();
        notes.iter().for_each(|note| text += &format!("; not done: {note}"));
        self.notices.raise(&ConditionClaim::new(kind, "power", text), self.world.wall());
    }

    /// Opens the pools again, and serves the site file that was applied last.
    async fn serve_again(&mut self) -> Option<String> {
        let served = async {
            let refusal = |error: JournalError| error.refusal();
            let under_way = self.journal.apply_under_way().map_err(refusal)?;
            let (text, file, begun) = match under_way.filter(|apply| apply.online.is_none()) {
                Some(ApplyRecord { text, file, begun, .. }) => (text, file, begun),
                None => {
                    let text = self.journal.served_site().map_err(refusal)?;
                    let text = text.ok_or_else(|| Refusal::new("no site file was applied", "apply one"))?;
                    // The served site must not become the file: a start would take it for a person's wish.
                    (text, self.journal.applied_file().map_err(refusal)?, None)
                }
            };
            let plan = self.plan(&text, &[], PlanOccasion::Start).await?;
            self.apply(PlannedSite { file, begun, ..plan }, |_| ()).await
        };
        served.await.err().map(|refusal| format!("the site is not served as before: {refusal}"))
    }

    /// Suspends or resumes the write caches of all open pools, and flushes what was acknowledged. Returns what failed.
    pub(super) async fn suspend_caches(&self, is_suspended: bool) -> Vec<String> {
        let mut failed = Vec::new();
        for pool in self.daemon.pools() {
            let done = self.order(&pool.name, "write caches", move |served| {
                Box::pin(async move {
                    served.pool.suspend_write_caches(is_suspended);
                    // The flush of one volume is that of the whole pool.
                    let Some(volume) = served.pool.volumes().into_iter().next() else { return Ok(()) };
                    let volume = served.pool.volume(volume.volume);
                    let volume = volume.map_err(|error| Refusal::new(error.to_string(), ""))?;
                    let device: Rc<dyn BlockDevice> = Rc::new(VolumeDevice(volume));
                    device.flush().await.map_err(|error| Refusal::new(error.to_string(), ""))
                })
            });
            failed.extend(done.await.err().map(|refusal| refusal.to_string()));
        }
        failed
    }
}

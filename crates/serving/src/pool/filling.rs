//! The filling of clones in a pool that this thread has open.

use super::volume_change::{ChangeablePool, HELP, VolumeDone, VolumeOutcome, VolumeRef};
use array::{
    mover::JobKind,
    pool::{FillStatus, Pool},
};
use report::Refusal;
use std::{path::Path, time::Duration};
use world::World;

/// Between two looks at a filling.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The end of a filling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FillEnd {
    /// It shares nothing with its source any more.
    Independent,
    /// This snapshot of the clone still reads the source.
    WaitsFor(String),
}

/// Progress of a filling under way.
#[derive(Clone, Copy, Debug)]
pub struct FillProgress {
    pub filled_bytes: u64,
    pub total_bytes: u64,
    /// Of all fillings of the pool, as its time left.
    pub bytes_per_second: f64,
    pub time_left: Option<Duration>,
}

impl FillProgress {
    /// 0 to 1.
    pub fn fraction(&self) -> f64 {
        self.filled_bytes as f64 / self.total_bytes.max(1) as f64
    }
}

/// Begins to fill a volume, or goes on.
pub(super) async fn fill(on: &ChangeablePool<'_>, volume: &VolumeRef) -> Result<VolumeDone, Refusal> {
    on.pool.fill_volume(volume.key()).await.map_err(|error| on.refusal(&error, HELP))?;
    Ok(VolumeDone::of(on.info(volume)?, VolumeOutcome::FillingBegun))
}

/// Gives the filling of a volume up.
pub(super) async fn cancel(on: &ChangeablePool<'_>, volume: &VolumeRef) -> Result<VolumeDone, Refusal> {
    on.pool.cancel_filling(volume.key()).await.map_err(|error| on.refusal(&error, HELP))?;
    Ok(VolumeDone::of(on.info(volume)?, VolumeOutcome::FillingCancelled))
}

/// Waits while a volume is being filled, and shows its progress. None if it is not, and was not when this
/// began.
///
/// # Errors
///
/// It does not go on at present, for want of room or another reason; or the pool has stopped. The filling is
/// not given up by that.
pub async fn wait(
    world: &World,
    pool: &Pool,
    path: &Path,
    volume: &str,
    show: &mut dyn FnMut(FillProgress),
) -> Result<Option<FillEnd>, Refusal> {
    let mut was_filling = false;
    loop {
        let Some(status) = status(pool, volume) else {
            return Ok(was_filling.then_some(FillEnd::Independent));
        };
        was_filling = true;
        let problem = status.problem.or_else(|| pool.failure());
        if let Some(problem) = problem {
            let problem = format!("{}: not filled yet: {problem}", path.display());
            let remedy =
                "it goes on while the pool is exported, or with 'spindle volume fill'; --cancel gives it up";
            return Err(Refusal::new(problem, remedy));
        }
        if let Some(snapshot) = status.waits_for {
            return Ok(Some(FillEnd::WaitsFor(snapshot)));
        }
        let job = pool.jobs().into_iter().find(|job| job.kind == JobKind::Fill);
        let job = job.map(|job| job.progress).unwrap_or_default();
        show(FillProgress {
            filled_bytes: status.filled_bytes,
            total_bytes: status.total_bytes,
            bytes_per_second: job.per_second,
            time_left: job.time_left,
        });
        world.sleep(LOOK_EVERY).await;
    }
}

fn status(pool: &Pool, volume: &str) -> Option<FillStatus> {
    let found = pool.volumes().into_iter().find(|info| info.name == volume);
    found.and_then(|info| info.filling)
}

impl FillEnd {
    /// For programs: `independent` or `filled`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Independent => "independent",
            Self::WaitsFor(_) => "filled",
        }
    }

    /// The snapshot that still reads the source.
    pub fn waits_for(&self) -> Option<&str> {
        match self {
            Self::Independent => None,
            Self::WaitsFor(snapshot) => Some(snapshot),
        }
    }

    /// In a line.
    pub fn text(&self, path: &Path) -> String {
        let path = path.display();
        match self {
            Self::Independent => format!("{path}: filled, shares nothing with its source any more"),
            Self::WaitsFor(snapshot) => format!(
                "{path}: filled, but its snapshot {snapshot} still reads the source; independent once that is deleted"
            ),
        }
    }
}

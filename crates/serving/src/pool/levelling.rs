//! Levelling: how full the drives of a pool are, and the moves that make them equally full.

use super::folder::OpenPool;
use array::{
    mover::{DriveFill, JobKind},
    pool::{Pool, events::LevellingOutcome},
};
use report::Refusal;
use serde::{Deserialize, Serialize};
use std::{path::Path, time::Duration};
use world::{ByteCount, JobProgress, World, with_deadline};

/// Between two looks at a levelling.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Fill of the drives in use, and progress of levelling them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LevelStatus {
    /// Used slots of the fullest drive, in percent of its slots.
    pub fullest_percent: f64,
    pub emptiest_percent: f64,
    pub is_running: bool,
    /// They differ so much that an export levels them by itself.
    pub is_uneven: bool,
    /// Bytes to move, of the levelling under way or the last one.
    pub total_bytes: u64,
    pub done_bytes: u64,
}

/// The end of a levelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LevelOutcome {
    Level,
    NoMoveHelps,
    Postponed,
}

/// The result of levelling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LevelAnswer {
    pub outcome: LevelOutcome,
    pub moved_bytes: u64,
    pub fullest_percent: f64,
    pub emptiest_percent: f64,
}

impl LevelStatus {
    pub fn of(pool: &Pool) -> Self {
        let progress = progress_of(pool);
        let fills = pool.fills().iter().map(DriveFill::percent).collect::<Vec<_>>();
        let tenths = |percent: f64| (percent * 10.0).round() / 10.0;
        Self {
            fullest_percent: tenths(fills.iter().copied().fold(0.0, f64::max)),
            emptiest_percent: tenths(fills.iter().copied().reduce(f64::min).unwrap_or(0.0)),
            is_running: progress.is_running,
            is_uneven: pool.is_uneven(),
            total_bytes: progress.total,
            done_bytes: progress.done,
        }
    }

    /// A line, if there is something to say.
    pub fn text(&self) -> Option<String> {
        if self.is_running && self.total_bytes > 0 {
            let left = ByteCount(self.total_bytes.saturating_sub(self.done_bytes));
            let done = 100 * self.done_bytes / self.total_bytes;
            return Some(format!("drives are being levelled: {done} %, {left} to be moved"));
        }
        self.is_uneven.then(|| {
            format!(
                "drives are {} % to {} % full: an export levels them while hosts are idle, 'spindle pool level' at once",
                self.emptiest_percent.round(),
                self.fullest_percent.round()
            )
        })
    }
}

/// The line that a verb adds after a change of drives, if the drives are uneven now, or copies lie across failure sets.
pub fn advice(open: &OpenPool) -> Option<String> {
    advice_if(open.pool.is_uneven() || open.pool.segments_across_sets() > 0, open.folder())
}

/// As [`advice`], if drives are uneven or copies lie across failure sets; `pool` is its folder or name in commands.
pub fn advice_if(is_uneven: bool, pool: &Path) -> Option<String> {
    is_uneven.then(|| {
        format!(
            "its data will be levelled over all drives while the pool is exported; 'spindle pool level {}' does it now",
            pool.display()
        )
    })
}

/// Levels the drives, and shows the progress.
///
/// # Errors
///
/// The pool has stopped. What was moved stays moved.
pub async fn level(
    world: &World,
    open: &OpenPool,
    show: &mut dyn FnMut(&JobProgress),
) -> Result<LevelAnswer, Refusal> {
    let remedy = "nothing was lost; see 'spindle pool show'";
    let before = open.pool.levelled_bytes();
    // Missing copies come first.
    open.pool.rebuild().await.map_err(|error| open.refusal(&error, remedy))?;
    let levelling = open.pool.level();
    let mut levelling = std::pin::pin!(levelling);
    let outcome = loop {
        match with_deadline(world.sleep(LOOK_EVERY), levelling.as_mut()).await {
            Some(outcome) => break outcome.map_err(|error| open.refusal(&error, remedy))?,
            None => show(&progress_of(&open.pool)),
        }
    };
    Ok(LevelAnswer::of(&open.pool, outcome, before))
}

impl LevelAnswer {
    /// Of a levelling that has ended; `before` are the bytes that had been moved when it began.
    pub fn of(pool: &Pool, outcome: LevellingOutcome, before: u64) -> Self {
        let after = LevelStatus::of(pool);
        Self {
            outcome: match outcome {
                LevellingOutcome::Level => LevelOutcome::Level,
                LevellingOutcome::NoMoveHelps => LevelOutcome::NoMoveHelps,
                LevellingOutcome::Postponed | LevellingOutcome::Cancelled => LevelOutcome::Postponed,
            },
            // The background may have moved some of it.
            moved_bytes: pool.levelled_bytes() - before,
            fullest_percent: after.fullest_percent,
            emptiest_percent: after.emptiest_percent,
        }
    }

    /// In a line, behind the name of the pool.
    pub fn text(&self) -> String {
        let Self { moved_bytes, fullest_percent, emptiest_percent, .. } = self;
        let (least, most) = (emptiest_percent.round(), fullest_percent.round());
        let fills = format!("drives are {least} % to {most} % full");
        match (self.outcome, moved_bytes) {
            (LevelOutcome::Level, 0) => format!("{fills}: nothing to move"),
            (LevelOutcome::Level, moved) => format!("{} moved; {fills}", ByteCount(*moved)),
            (LevelOutcome::Postponed, _) => {
                format!(
                    "{fills}: a drive leaves, or copies are missing, which comes first; see 'spindle pool show'"
                )
            }
            (LevelOutcome::NoMoveHelps, moved) => format!(
                "{} moved; {fills}: more moves do not help, since copies must lie on different drives and need free \
                 room",
                ByteCount(*moved)
            ),
        }
    }
}

fn progress_of(pool: &Pool) -> JobProgress {
    let job = pool.jobs().into_iter().find(|job| job.kind == JobKind::Level);
    job.map(|job| job.progress).unwrap_or_default()
}

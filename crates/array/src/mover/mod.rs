//! The mover: relocates live blocks so that whole segments become free.
//!
//! ```text
//! victim ─▶ contents: keys of all blocks written there
//!            └▶ those that the map still points to there ─▶ read, checksum verified
//!                 └▶ data segment: blocks, then its summary, stable
//!                      └▶ log: the segment's row and a move for each block ─▶ tables
//!                           └▶ next checkpoint frees the victim
//! ```
//!
//! A move counts only if its key still points to the old location when its record is applied, so host and
//! mover never wait for each other. The engine's `throttle` limits the mover's share of the drives' time.
//! After a crash before the moves are stable, nothing refers to the new segment.
//!
//! The mover uses the `engine` alone, and knows neither pool nor volumes.

mod cleaner;
mod cleaning_rounds;
mod contents;
mod copying;
mod data_segment;
mod destage;
mod emptying;
mod gathering;
mod job;
mod level_plan;
mod levelling;
mod moving_rate;
mod old_copies;
mod rebuild;
mod scrub;
mod scrub_segments;
mod separation;
mod upkeep;
mod victim;
mod victims;

pub use crate::engine::{NodeRoom, ThrottleFigures, ThrottleSetting};
pub use cleaner::CleaningResult;
pub use emptying::{EmptyingProblem, LeavingDrive};
pub use job::{JobKind, PoolJob, RebuildProgress};
pub use level_plan::DriveFill;
pub use rebuild::DegradedSegments;
pub use scrub::{ScrubProgress, ScrubResult};

use crate::{
    engine::{Checkpoints, MapReader, Shared, Throttle},
    format::{CheckpointNumber, MemberIndex},
    log::LogWriter,
};
use cleaning_rounds::CleaningBasis;
use moving_rate::MovingRate;
use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
};
use tokio::sync::Mutex;
use victims::Outlook;
use world::{Job, Moment};

/// Cleaning, destaging, rebuild, emptying, levelling and scrub of a pool, and their progress.
pub(crate) struct Mover {
    this: Weak<Self>,
    shared: Rc<Shared>,
    map: MapReader,
    log: Rc<LogWriter>,
    checkpoints: Rc<Checkpoints>,
    throttle: Rc<Throttle>,
    /// Held during a round of cleaning.
    cleaning: Mutex<()>,
    /// Inputs of cleaning when a round last gained nothing.
    cleaned_out: Cell<Option<CleaningBasis>>,
    moving_rate: Cell<MovingRate>,
    /// Consecutive rounds of cleaning that failed or whose gain is unknown.
    doubtful_rounds: Cell<u32>,
    /// Forecast of cleaning, and the checkpoint that it is based on.
    outlook: Cell<Option<(CheckpointNumber, Outlook)>>,
    /// Held while slots are copied, for a rebuild or to empty a drive.
    rebuilding: Mutex<()>,
    rebuild_job: Job,
    /// Blocks that the current rebuild, or the last one, could read from no copy.
    unreadable_blocks: Cell<u64>,
    /// Bytes of copies that the current rebuild, or the last one, found on a drive that came back.
    matched_bytes: Cell<u64>,
    /// [`Drives::changes`](crate::drive::Drives::changes) when a rebuild was cancelled.
    rebuild_held: Cell<Option<u64>>,
    /// Held while leaving drives are emptied.
    emptying: Mutex<()>,
    emptying_job: Job,
    /// The task that empties them was started.
    is_emptying: Cell<bool>,
    /// [`Drives::changes`](crate::drive::Drives::changes) when emptying was cancelled.
    emptying_held: Cell<Option<u64>>,
    /// Held while drives are levelled.
    levelling: Mutex<()>,
    levelling_job: Job,
    /// [`Drives::changes`](crate::drive::Drives::changes) when levelling was cancelled.
    levelling_held: Cell<Option<u64>>,
    /// Slots that levelling has moved since the pool was opened.
    levelled_slots: Cell<u64>,
    /// The task that levels them was started.
    is_levelling: Cell<bool>,
    /// The next attempt of levelling that ended.
    levelling_again_at: Cell<Moment>,
    scrub_job: Job,
    destage_job: Job,
    /// The members when no segment lacked a copy.
    whole_with: RefCell<Vec<MemberIndex>>,
    /// The next attempt of a failed rebuild.
    rebuild_again_at: Cell<Moment>,
    /// Held during a scrub.
    scrubbing: Mutex<()>,
    scrubs: RefCell<ScrubProgress>,
}

impl Mover {
    pub fn new(
        map: MapReader,
        log: &Rc<LogWriter>,
        checkpoints: &Rc<Checkpoints>,
        throttle: &Rc<Throttle>,
    ) -> Rc<Self> {
        let [rebuild_job, emptying_job, levelling_job, scrub_job, destage_job] =
            std::array::from_fn(|_| Job::new(&map.shared.world));
        Rc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            shared: Rc::clone(&map.shared),
            map,
            log: Rc::clone(log),
            checkpoints: Rc::clone(checkpoints),
            throttle: Rc::clone(throttle),
            cleaning: Mutex::default(),
            cleaned_out: Cell::new(None),
            moving_rate: Cell::default(),
            doubtful_rounds: Cell::new(0),
            outlook: Cell::new(None),
            rebuilding: Mutex::default(),
            rebuild_job,
            unreadable_blocks: Cell::new(0),
            matched_bytes: Cell::new(0),
            rebuild_held: Cell::new(None),
            emptying: Mutex::default(),
            emptying_job,
            is_emptying: Cell::new(false),
            emptying_held: Cell::new(None),
            levelling: Mutex::default(),
            levelling_job,
            levelling_held: Cell::new(None),
            levelled_slots: Cell::new(0),
            is_levelling: Cell::new(false),
            levelling_again_at: Cell::default(),
            scrub_job,
            destage_job,
            whole_with: RefCell::default(),
            rebuild_again_at: Cell::default(),
            scrubbing: Mutex::default(),
            scrubs: RefCell::default(),
        })
    }
}

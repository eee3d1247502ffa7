//! Sparing: room that a pool keeps for drives that may be lost, for people and programs.

use super::folder::OpenPool;
use array::{
    error::Error,
    format::{Sparing, SparingLevel},
    pool::Pool,
};
use report::Refusal;
use serde::{Deserialize, Serialize};
use world::ByteCount;

/// Pools of so many drives keep room for a lost one, unless another level is given.
const SINGLE_FROM_DRIVES: usize = 8;

/// Room kept for lost drives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SparingStatus {
    /// `none`, `single` or `double`.
    pub level: String,
    /// Drives for which room is kept now: fewer than the level says after a loss.
    pub kept_drives: u8,
    /// Bytes of one copy.
    pub kept_bytes: u64,
}

/// The level of a new pool.
pub fn usual_level(drive_count: usize) -> SparingLevel {
    if drive_count >= SINGLE_FROM_DRIVES { SparingLevel::Single } else { SparingLevel::None }
}

/// The name of a level on the command line.
pub fn level_name(level: SparingLevel) -> &'static str {
    match level {
        SparingLevel::None => "none",
        SparingLevel::Single => "single",
        SparingLevel::Double => "double",
    }
}

/// Drives in words.
fn drives_text(drives: u8) -> &'static str {
    match drives {
        0 => "no lost drive",
        1 => "a lost drive",
        _ => "two lost drives",
    }
}

impl SparingStatus {
    pub fn of(pool: &Pool) -> Self {
        let Sparing { level, kept_drives } = pool.sparing();
        let space = pool.space();
        // As the usable room is: `usable` of `segments`.
        let bytes_per_segment = space.usable_bytes.checked_div(space.segments).unwrap_or(0);
        Self { level: level_name(level).to_owned(), kept_drives, kept_bytes: space.spare * bytes_per_segment }
    }

    /// In a line; `None` without sparing.
    pub fn text(&self) -> Option<String> {
        let Self { level, kept_drives, kept_bytes } = self;
        let wanted = match level.as_str() {
            "single" => 1,
            "double" => 2,
            _ => return None,
        };
        let (kept, bytes) = (drives_text(*kept_drives), ByteCount(*kept_bytes));
        Some(match *kept_drives {
            0 => format!("sparing {level}, spent: room for no lost drive is kept; add a drive"),
            fewer if fewer < wanted => {
                format!("sparing {level}, spent in part: room for {kept} is kept ({bytes}); add a drive")
            }
            _ => format!("sparing {level}: room for {kept} is kept ({bytes})"),
        })
    }
}

/// Line of `pool create` and `pool set` about a level.
pub fn level_text(level: SparingLevel) -> String {
    let name = level_name(level);
    match level {
        SparingLevel::None => format!("sparing {name}: no room is kept for lost drives"),
        _ => format!("sparing {name}: room for {} is kept on all drives", drives_text(level.drives())),
    }
}

/// Keeps room for so many lost drives.
///
/// # Errors
///
/// The drives or the room are too few; nothing was changed.
pub async fn set_level(open: &OpenPool, level: SparingLevel) -> Result<(), Refusal> {
    let unchanged = "nothing was changed";
    open.pool.set_sparing(level).await.map_err(|error| match error {
        Error::TooFewToSpare { .. } | Error::TooFullToSpare { .. } => {
            let name = level_name(level);
            let problem = format!("{}: sparing cannot be {name}: {error}", open.folder().display());
            Refusal::new(problem, unchanged)
        }
        error => open.refusal(&error, unchanged),
    })
}

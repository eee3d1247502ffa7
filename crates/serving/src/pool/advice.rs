//! Next steps for a pool that does not open: only steps that help, and none that costs the last copy of anything.

use array::{
    election::OpenRefusal,
    error::Error,
    pool::{OpenSetting, check_opens, open_read_only},
};
use std::{path::Path, rc::Rc};
use world::{BlockDevice, ByteCount, World};

/// RAM for nodes during the examination.
const CACHE_BYTES: usize = 16 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpeningAdvice {
    /// The given drives are no complete set of one pool: the error names the remedy.
    NameDrives,
    /// The missing drives can be given up. So many bytes lie on them and nowhere else.
    ForceOpen { only_there: u64 },
    /// It does not open in any way, and can only be read.
    Read,
}

impl OpeningAdvice {
    /// The step that helps with a pool that `error` kept from opening. `was_forced`: the missing drives were given up already.
    pub async fn after(
        world: &World,
        devices: &[Rc<dyn BlockDevice>],
        error: &Error,
        was_forced: bool,
    ) -> Self {
        let is_of_drives = matches!(
            error,
            Error::OpenRefused(
                OpenRefusal::NoPool
                    | OpenRefusal::TwoPools(..)
                    | OpenRefusal::Twice(_)
                    | OpenRefusal::Features(_)
                    | OpenRefusal::OldHistory
            )
        );
        if is_of_drives {
            return Self::NameDrives;
        }
        let forced = OpenSetting { forced: true, ..OpenSetting::default() };
        if was_forced || check_opens(world, devices, forced).await.is_err() {
            return Self::Read;
        }
        let only_there = match open_read_only(devices, CACHE_BYTES).await {
            Ok(pool) => pool.bytes_without_copy(),
            Err(_) => 0,
        };
        Self::ForceOpen { only_there }
    }

    /// Advice for going on without the missing drives, if that is possible.
    pub fn without_missing(self, pool: &Path) -> Option<String> {
        let force_open = format!("'spindle pool force-open {}'", pool.display());
        match self {
            Self::NameDrives | Self::Read => None,
            Self::ForceOpen { only_there: 0 } => Some(format!(
                "if they are gone for good, first copy what can be read, with 'spindle pool salvage'; then {force_open} \
                 goes on without them, and without what they alone hold"
            )),
            Self::ForceOpen { only_there } => Some(format!(
                "{} lie on them alone, and {force_open} would give that up: first copy what can be read, with \
                 'spindle pool salvage'",
                ByteCount(only_there)
            )),
        }
    }

    /// The advice as the remedy of a refusal.
    pub fn remedy(self, pool: &Path) -> String {
        let read = format!("'spindle pool show {}' says what can be read as it is", pool.display());
        match self {
            Self::NameDrives => String::new(),
            Self::Read => format!("{read}, 'spindle pool salvage' copies it"),
            Self::ForceOpen { .. } => {
                let without = self.without_missing(pool).expect("it is possible");
                format!("{without}; {read}")
            }
        }
    }
}

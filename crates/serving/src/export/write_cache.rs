//! The write cache that clients see: a volume's own setting, unless the command line or an access file overrides it.

use super::shared::SharedDevice;
use std::fmt;

/// The write cache of one export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveWriteCache {
    /// Writes are answered before they are stable.
    pub is_on: bool,
    /// The override, which differs from the volume's own setting.
    overridden_by: Option<&'static str>,
}

impl EffectiveWriteCache {
    /// For `shared`, with the command line's setting and the access file's setting of a unit, which wins.
    pub fn of(shared: &SharedDevice, option: Option<bool>, unit: Option<bool>) -> Self {
        let own = shared.volume.as_ref().map(|volume| volume.has_write_cache());
        let is_on = unit.or(option).or(own).unwrap_or(false) && !shared.is_read_only;
        let who = match (unit, is_on) {
            (Some(true), _) => "write-cache = true of the access file",
            (Some(false), _) => "write-cache = false of the access file",
            (None, true) => "⟨write-cache⟩ on",
            (None, false) => "⟨write-cache⟩ off",
        };
        Self { is_on, overridden_by: own.filter(|own| *own != is_on).map(|_| who) }
    }

    /// Applies it: a volume whose own setting is off would make each write stable regardless.
    pub fn apply(&self, shared: &SharedDevice) {
        // One whose own setting is on follows that, also when it is turned off.
        if let (true, Some(volume)) = (self.is_on, &shared.volume)
            && !volume.has_write_cache()
        {
            volume.force_write_cache();
        }
    }
}

impl fmt::Display for EffectiveWriteCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_on {
            "write cache on: stable after a flush"
        } else {
            "write cache off: stable when answered"
        })?;
        match self.overridden_by {
            Some(who) => {
                write!(f, " ({who}; the volume's own setting is {})", if self.is_on { "off" } else { "on" })
            }
            None => Ok(()),
        }
    }
}

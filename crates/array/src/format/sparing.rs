//! Sparing: room for drives that may be lost, kept out of what hosts can use. It lies on all drives, so a rebuild
//! after a loss finds it everywhere.
//!
//! Feature flags store it. The *level* is the number of drives for which room should be kept; an older program
//! may ignore it, so its bits are compatible. The *kept* drives are those for which room is kept at present: a
//! program that does not know would give it to hosts, so these bits are incompatible. A lost drive takes the room
//! of one; it is kept again when there is enough.
//!
//! Invariant: room is kept for no more drives than the level says. Bits that say more count as many.

use super::features::{
    COMPATIBLE_SPARING_DOUBLE, COMPATIBLE_SPARING_SINGLE, Features, INCOMPATIBLE_SPARE_FIRST,
    INCOMPATIBLE_SPARE_SECOND,
};

/// Drives whose loss a pool keeps room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SparingLevel {
    #[default]
    None,
    Single,
    Double,
}

/// The level of sparing, and the drives for which room is kept now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sparing {
    pub level: SparingLevel,
    /// At most those of the level.
    pub kept_drives: u8,
}

impl SparingLevel {
    const ALL: [Self; 3] = [Self::None, Self::Single, Self::Double];

    /// The number of drives.
    pub fn drives(self) -> u8 {
        self as u8
    }
}

impl Sparing {
    /// All the room that the level wants.
    pub fn whole(level: SparingLevel) -> Self {
        Self { level, kept_drives: level.drives() }
    }

    /// True if drives were lost, and room for fewer than the level wants is kept.
    pub fn is_spent(self) -> bool {
        self.kept_drives < self.level.drives()
    }

    /// As it is after the loss of so many drives.
    #[must_use]
    pub fn after_losses(self, drives: usize) -> Self {
        let lost = u8::try_from(drives).unwrap_or(u8::MAX);
        Self { kept_drives: self.kept_drives.saturating_sub(lost), ..self }
    }

    /// With room for one more drive.
    #[must_use]
    pub fn with_one_more(self) -> Self {
        assert!(self.is_spent(), "the level wants it: {self:?}");
        Self { kept_drives: self.kept_drives + 1, ..self }
    }
}

impl Features {
    /// The sparing of a pool.
    pub fn sparing(self) -> Sparing {
        let count = |bits: u64| bits.count_ones() as u8;
        let wanted = count(self.compatible & (COMPATIBLE_SPARING_SINGLE | COMPATIBLE_SPARING_DOUBLE));
        let kept = count(self.incompatible & (INCOMPATIBLE_SPARE_FIRST | INCOMPATIBLE_SPARE_SECOND));
        Sparing { level: SparingLevel::ALL[usize::from(wanted)], kept_drives: kept.min(wanted) }
    }

    /// The same features with another sparing.
    #[must_use]
    pub fn with_sparing(self, sparing: Sparing) -> Self {
        assert!(sparing.kept_drives <= sparing.level.drives(), "no more than the level wants: {sparing:?}");
        let set = |bits: u64, drives: u8, first: u64, second: u64| {
            let bits = bits & !(first | second);
            bits | if drives > 0 { first } else { 0 } | if drives > 1 { second } else { 0 }
        };
        let wanted = sparing.level.drives();
        let compatible = set(self.compatible, wanted, COMPATIBLE_SPARING_SINGLE, COMPATIBLE_SPARING_DOUBLE);
        let incompatible =
            set(self.incompatible, sparing.kept_drives, INCOMPATIBLE_SPARE_FIRST, INCOMPATIBLE_SPARE_SECOND);
        Self { compatible, incompatible, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparing_is_stored_in_features_and_leaves_the_others_alone() {
        let others = Features { compatible: 1 << 40, read_only: 2, incompatible: 1 << 6 };
        for level in SparingLevel::ALL {
            for kept_drives in 0..=level.drives() {
                let sparing = Sparing { level, kept_drives };
                let features = others.with_sparing(sparing);
                assert_eq!(features.sparing(), sparing);
                assert_eq!(features.with_sparing(Sparing::default()), others);
                assert_eq!(features.incompatible == others.incompatible, kept_drives == 0);
            }
        }
    }

    #[test]
    fn room_is_kept_for_no_more_drives_than_the_level_says() {
        let (first, second) = (INCOMPATIBLE_SPARE_FIRST, INCOMPATIBLE_SPARE_SECOND);
        let of = |compatible, incompatible| Features { compatible, read_only: 0, incompatible }.sparing();
        assert_eq!(of(COMPATIBLE_SPARING_SINGLE, first | second), Sparing::whole(SparingLevel::Single));
        assert_eq!(of(0, first), Sparing::default());
    }

    #[test]
    fn a_loss_takes_the_room_of_one_drive() {
        let double = Sparing::whole(SparingLevel::Double);
        assert_eq!(double.after_losses(1), Sparing { kept_drives: 1, ..double });
        assert_eq!(double.after_losses(3).kept_drives, 0);
        assert_eq!(double.after_losses(2).with_one_more().with_one_more(), double);
        assert!(!double.is_spent() && double.after_losses(1).is_spent());
    }
}

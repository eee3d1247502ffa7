//! Limits and reserve of a volume, as they are shown and changed.

use array::{
    pool::VolumeSetting,
    volume::{Bounds, Rates},
};
use serde::{Deserialize, Serialize};
use world::ByteCount;

/// Limits as JSON; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitStatus {
    limit_bytes: u64,
    reserve_bytes: u64,
    iops_max: u32,
    kib_per_second_max: u32,
}

/// New limits of a volume. `None` stays as it is; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitChange {
    /// A multiple of 4 KiB, as the limit.
    pub reserve: Option<ByteCount>,
    pub limit: Option<ByteCount>,
    pub iops_max: Option<u32>,
    pub kib_per_second_max: Option<u32>,
}

impl LimitChange {
    /// The bounds of a volume that had those of `before`.
    pub fn bounds(&self, before: Bounds) -> Bounds {
        Bounds {
            reserve_bytes: self.reserve.map_or(before.reserve_bytes, |reserve| reserve.0),
            limit_bytes: self.limit.map_or(before.limit_bytes, |limit| limit.0),
        }
    }

    /// The rates of a volume that had those of `before`.
    pub fn rates(&self, before: Rates) -> Rates {
        Rates {
            iops_max: self.iops_max.unwrap_or(before.iops_max),
            kib_per_second_max: self.kib_per_second_max.unwrap_or(before.kib_per_second_max),
        }
    }
}

impl LimitStatus {
    pub fn of(setting: &VolumeSetting) -> Self {
        Self {
            limit_bytes: setting.bounds.limit_bytes,
            reserve_bytes: setting.bounds.reserve_bytes,
            iops_max: setting.rates.iops_max,
            kib_per_second_max: setting.rates.kib_per_second_max,
        }
    }

    /// The limits that are set, each behind a comma.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if self.limit_bytes > 0 {
            text += &format!(", limit {}", ByteCount(self.limit_bytes));
        }
        if self.reserve_bytes > 0 {
            text += &format!(", reserve {}", ByteCount(self.reserve_bytes));
        }
        if self.iops_max > 0 {
            text += &format!(", at most {} IOPS", self.iops_max);
        }
        if self.kib_per_second_max > 0 {
            text += &format!(", at most {}/s", ByteCount(u64::from(self.kib_per_second_max) << 10));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_limits_are_shown_behind_commas() {
        let before = VolumeSetting {
            bounds: Bounds { reserve_bytes: 8192, limit_bytes: 16_384 },
            rates: Rates { iops_max: 5, kib_per_second_max: 2048 },
            ..VolumeSetting::default()
        };
        assert_eq!(
            LimitStatus::of(&before).text(),
            ", limit 16.0 KiB, reserve 8.00 KiB, at most 5 IOPS, at most 2.00 MiB/s"
        );
        assert_eq!(LimitStatus::of(&VolumeSetting::default()).text(), "");
    }

    #[test]
    fn what_is_not_said_stays_as_it_is() {
        let bounds = Bounds { reserve_bytes: 8192, limit_bytes: 16_384 };
        let rates = Rates { iops_max: 5, kib_per_second_max: 2048 };
        let nothing = LimitChange::default();
        assert_eq!((nothing.bounds(bounds), nothing.rates(rates)), (bounds, rates));
        let said = LimitChange { limit: Some(ByteCount(0)), kib_per_second_max: Some(3072), ..nothing };
        assert_eq!(said.bounds(bounds), Bounds { limit_bytes: 0, ..bounds });
        assert_eq!(said.rates(rates), Rates { kib_per_second_max: 3072, ..rates });
    }
}

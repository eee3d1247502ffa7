//! Arrays as their papers have them.

use super::raid::Raid;
use crate::{
    figure::Confidence,
    units::{DriveIops, Gib, HostIops, SoldGb},
};
use serde::Deserialize;

/// An array.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Array {
    /// Its name.
    pub name: String,
    /// The line of products it belongs to.
    pub family: String,
    /// What its drives are.
    pub drive: String,
    /// Whether it is bought with every bay filled: then it is one group, and several of them are several groups.
    pub whole: bool,
    /// Drives it holds.
    pub bays: u32,
    /// Of these, spares: of the whole array, or of each group.
    pub spares: u32,
    /// Controllers that own volumes.
    pub controllers: u32,
    /// Cache of all controllers, where the paper says it.
    pub cache_gb: Option<f64>,
    /// Least drives of a group, where the array has such a rule.
    #[serde(default)]
    pub group_min: u32,
    /// Levels it has, where its paper says so; any if not.
    #[serde(default)]
    pub levels: Vec<Raid>,
    /// Who says all this, and where.
    pub source: String,
    /// Drive sizes it comes with.
    pub sizes: Vec<ArraySize>,
    /// Who says what of them can be used.
    pub sizes_source: String,
    /// What it was measured to do; nothing if its paper says nothing.
    #[serde(default, rename = "rating")]
    ratings: Vec<RatingRow>,
}

/// One size of drive in an array.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArraySize {
    /// Label of the drive.
    pub drive_gb: SoldGb,
    /// What one drive holds for redundancy to divide, as arrays count: in 1024s; of arrays with groups of any size.
    pub formatted_gib: Option<Gib>,
    /// What a whole array holds.
    raid50_gb: Option<SoldGb>,
    raid10_gb: Option<SoldGb>,
}

impl ArraySize {
    /// What a whole array holds at `raid`, where that is printed.
    pub fn whole(&self, raid: Raid) -> Option<SoldGb> {
        match raid {
            Raid::Raid50 => self.raid50_gb,
            Raid::Raid10 => self.raid10_gb,
            _ => None,
        }
    }
}

/// What drives or arrays can do, at one of two places. The two are never added, and only [`Rating::Drives`] is met by I/O
/// with the cost of redundancy on it: "using the host IOPS per spindle value over-factors the RAID impact" (HP EVA8000,
/// appendix A).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rating {
    /// At the host, of so many drives at one level: redundancy is in it.
    Host {
        /// The level it was measured at.
        raid: Raid,
        /// Drives under it.
        drives: u32,
        /// What they did.
        iops: HostIops,
        /// Whether the logs of the databases were on the same drives, so that theirs are not to be added.
        holds_logs: bool,
    },
    /// Of one drive: redundancy comes on top.
    Drives {
        /// What one does.
        each: DriveIops,
    },
}

/// A rating with its origin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rated<'a> {
    /// What can be done.
    pub rating: Rating,
    /// Who says so, and where.
    pub source: &'a str,
    /// How far that can be trusted.
    pub confidence: Confidence,
}

/// A rating as the table has it: either kind.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct RatingRow {
    raid: Option<Raid>,
    drives: Option<u32>,
    host_iops: Option<HostIops>,
    #[serde(default)]
    holds_logs: bool,
    array_iops_each: Option<DriveIops>,
    source: String,
    confidence: Confidence,
}

impl RatingRow {
    fn rating(&self) -> Option<Rating> {
        match (self.raid, self.drives, self.host_iops, self.array_iops_each) {
            (Some(raid), Some(drives), Some(iops), None) if drives > 0 => {
                Some(Rating::Host { raid, drives, iops, holds_logs: self.holds_logs })
            }
            (None, None, None, Some(each)) if each.get() > 0.0 => Some(Rating::Drives { each }),
            _ => None,
        }
    }
}

impl Array {
    /// The rating to plan by at `raid`: of its drives where that is known, else as measured at that level.
    pub fn rated(&self, raid: Raid) -> Option<Rated<'_>> {
        let mut all = self.rated_all();
        let of_drives = all.clone().find(|rated| matches!(rated.rating, Rating::Drives { .. }));
        let measured =
            |rated: &Rated<'_>| matches!(rated.rating, Rating::Host { raid: at, .. } if at == raid);
        of_drives.or_else(|| all.find(measured))
    }

    fn rated_all(&self) -> impl Iterator<Item = Rated<'_>> + Clone {
        let rated = |row: &RatingRow| row.rating().expect("checked when it was read");
        self.ratings.iter().map(move |row| Rated {
            rating: rated(row),
            source: &row.source,
            confidence: row.confidence,
        })
    }

    /// What of the table makes no sense.
    pub(super) fn fault(&self) -> Option<String> {
        if self.ratings.iter().any(|row| row.rating().is_none()) {
            return Some("a rating is raid, drives and host_iops, or array_iops_each alone".to_owned());
        }
        if self.sizes.is_empty() || self.bays <= self.spares || self.controllers == 0 {
            return Some("sizes, more bays than spares, and a controller are needed".to_owned());
        }
        let is_whole = |size: &ArraySize| size.raid50_gb.is_some() || size.raid10_gb.is_some();
        let lacks =
            |size: &ArraySize| if self.whole { !is_whole(size) } else { size.formatted_gib.is_none() };
        let lacking = self.sizes.iter().find(|size| lacks(size))?;
        Some(format!("drives of {} lack what can be used of them", lacking.drive_gb))
    }
}

#[cfg(test)]
impl Array {
    /// Whether each rating names who measured it.
    pub(super) fn ratings_have_sources(&self) -> bool {
        self.ratings.iter().all(|row| row.source.len() > 20)
    }
}

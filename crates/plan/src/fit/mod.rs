//! Choices of the catalogue that meet the needs, in order, and the reasons against the others.
//!
//! Invariants:
//!
//! 1. A choice carries all that is asked of it: no group has fewer I/O or less room than its needs.
//! 2. Nothing of the catalogue is passed over in silence: it is chosen, or rejected with a reason.
//! 3. Each copy has groups of its own.
//! 4. No pool has more drives than the rules allow; spares grow with drives.

mod choice;
mod cloud;
mod load;
mod meeting;
mod of_drives;
mod pools;
mod sizing;
pub mod spindle;
mod whole;

pub use choice::{
    ArraySizing, Bound, Choice, DriveRating, DriveSizing, GroupChoice, Purpose, Rejected, SizedBy,
};
pub use sizing::Sizing;

use crate::{
    catalogue::{Catalogue, Raid},
    demand::{Mode, Needs},
};
use load::Load;
use thiserror::Error;

/// Most drives of a group.
const DRIVES_MAX: u32 = 1_000_000;
/// Levels that are tried if none is asked for.
const LEVELS: [Raid; 4] = [Raid::Raid10, Raid::Raid50, Raid::Raid6, Raid::RaidDp];

/// The buyer's wishes beside the needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wishes {
    /// An array, a family of arrays, a drive or a cloud volume, by name or by words of it; any if none.
    pub product: Option<String>,
    /// Level of the databases; any that is recommended if none.
    pub raid: Option<Raid>,
    /// Drives of their own for logs; by default with one copy (Dell 2010, section 3.4.1).
    pub logs_apart: Option<bool>,
    /// Databases that share a log, as the storage groups of 2003 and 2007 do; 0 or 1 is a log for each.
    pub databases_per_log: u32,
    /// Ratings and bounds that groups are sized by.
    pub sizing: Sizing,
}

impl Wishes {
    /// True if logs get drives of their own.
    pub fn keeps_logs_apart(&self, needs: &Needs) -> bool {
        self.logs_apart.unwrap_or(needs.mode != Mode::Copies || needs.copies < 2)
    }
}

/// Why nothing could be looked for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WishError {
    /// Nothing in the catalogue is called so.
    #[error("nothing in the catalogue is called {name:?}{}", .nearest.as_ref().map(|name| format!("; did you mean {name:?}?")).unwrap_or_default())]
    Unknown {
        name: String,
        /// The name it may have meant.
        nearest: Option<String>,
    },
    /// Spindle's array has no such level.
    #[error("Spindle's pools {}: {nearest}", spindle::missing(*.raid))]
    Level {
        raid: Raid,
        /// The nearest one that they have, with the drives it takes.
        nearest: String,
    },
}

/// Everything in the catalogue, sorted out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fit {
    /// Choices that meet the needs: the fewest drives first, then the least capacity, then the most headroom. Cloud volumes, which
    /// are no drives, come after all of them.
    pub choices: Vec<Choice>,
    /// Choices that do not, in the order of the catalogue.
    pub rejected: Vec<Rejected>,
}

/// Ranks the wished part of `catalogue` against `needs`.
pub fn choices(needs: &Needs, catalogue: &Catalogue, wishes: &Wishes) -> Result<Fit, WishError> {
    if wishes.product.as_deref().is_some_and(spindle::is_meant) {
        return spindle::choices(needs, catalogue, wishes);
    }
    let names = match &wishes.product {
        None => catalogue.names(),
        Some(asked) => match catalogue.named(asked) {
            found if found.is_empty() => {
                let nearest = catalogue.nearest(asked).map(str::to_owned);
                return Err(WishError::Unknown { name: asked.clone(), nearest });
            }
            found => found,
        },
    };
    let load = Load::of(needs, wishes);
    let mut fit = Fit::default();
    for array in &catalogue.arrays {
        if !names.contains(&array.name.as_str()) && !names.contains(&array.family.as_str()) {
            continue;
        }
        for size in &array.sizes {
            for raid in levels(wishes, array.whole, &array.levels) {
                let tried = match array.whole {
                    true => whole::choice(&load, array, size, raid, &wishes.sizing),
                    false => of_drives::of_array(&load, array, size, raid, catalogue, &wishes.sizing),
                };
                fit.add(tried, &array.name, Some((size.drive_gb, raid)));
            }
        }
    }
    for drive in catalogue.drives.iter().filter(|drive| names.contains(&drive.name.as_str())) {
        for size in &drive.sizes_gb {
            for raid in levels(wishes, false, &[]) {
                let tried = of_drives::of_drive(&load, drive, *size, raid, catalogue, &wishes.sizing);
                fit.add(tried, &drive.name, Some((*size, raid)));
            }
        }
    }
    for cloud in catalogue.clouds.iter().filter(|cloud| names.contains(&cloud.name.as_str())) {
        let tried = match wishes.raid {
            Some(raid) if raid != Raid::Inside => {
                Err(format!("{} was asked for, and redundancy is the provider's", raid.word()))
            }
            _ => cloud::choice(&load, cloud),
        };
        fit.add(tried, &cloud.name, None);
    }
    fit.rank();
    Ok(fit)
}

/// Levels to try of a product that `has` some of its own, or, if it names none, those that all have.
fn levels(wishes: &Wishes, whole: bool, has: &[Raid]) -> Vec<Raid> {
    match wishes.raid {
        Some(raid) => vec![raid],
        None if whole => vec![Raid::Raid50, Raid::Raid10],
        None if has.is_empty() => LEVELS.into_iter().filter(|raid| *raid != Raid::RaidDp).collect(),
        None => LEVELS.into_iter().filter(|raid| has.contains(raid)).collect(),
    }
}

impl Fit {
    /// Puts the choices in their order.
    fn rank(&mut self) {
        self.choices.sort_by(|a, b| {
            let by_kind = (a.raid == Raid::Inside).cmp(&(b.raid == Raid::Inside));
            let by_size = by_kind
                .then(a.drives().cmp(&b.drives()))
                .then(a.capacity().get().total_cmp(&b.capacity().get()));
            let by_headroom = by_size.then(b.headroom().total_cmp(&a.headroom()));
            by_headroom.then(a.confidence.cmp(&b.confidence)).then(a.product.cmp(&b.product))
        });
    }

    fn add(
        &mut self,
        tried: Result<Choice, String>,
        product: &str,
        model: Option<(crate::units::SoldGb, Raid)>,
    ) {
        match tried {
            Ok(choice) => {
                for group in &choice.groups {
                    assert!(group.capacity >= group.capacity_needed, "{choice:?} holds too little");
                    assert!(group.iops >= group.iops_needed, "{choice:?} does too little");
                }
                self.choices.push(choice);
            }
            Err(reason) => self.rejected.push(Rejected {
                product: product.to_owned(),
                drive_size: model.map(|(size, _)| size),
                raid: model.map(|(_, raid)| raid),
                reason,
            }),
        }
    }
}

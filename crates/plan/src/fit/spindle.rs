//! Spindle's own array, on drives of the catalogue: two copies of everything, and room for one lost drive.
//!
//! Three copies and raid0 are there as well, and are not planned with: no rule asks for them. A refusal says where they are written.

use super::{Choice, Fit, WishError, Wishes, load::Load, of_drives};
use crate::{
    catalogue::{Catalogue, Raid},
    demand::Needs,
    units::counted,
};

/// Name of the array.
pub const NAME: &str = "Spindle";
/// Drives of a pool at most.
pub const POOL_DRIVES_MAX: u32 = 256;
/// Part of a drive that data may fill: cleaning has a reserve of 2 %, 2 % more stay unfilled, and the rest is for trees, the log
/// and what is dead.
pub(super) const FILLED_SHARE: f64 = 0.9;
pub(super) const FILLED_SOURCE: &str =
    "its label, in 1000s, by 1024s, less a tenth for cleaning and trees (Spindle, docs/pools.md)";

/// True if a product's name means this array.
pub(super) fn is_meant(name: &str) -> bool {
    name.trim().eq_ignore_ascii_case(NAME)
}

/// Ranks pools of all drives of the catalogue against `needs`.
pub(super) fn choices(needs: &Needs, catalogue: &Catalogue, wishes: &Wishes) -> Result<Fit, WishError> {
    let fit = mirrored(needs, catalogue, wishes);
    match wishes.raid {
        None | Some(Raid::Raid10 | Raid::Raid1) => Ok(fit),
        Some(raid) => Err(WishError::Level { raid, nearest: nearest(raid, fit.choices.first()) }),
    }
}

fn mirrored(needs: &Needs, catalogue: &Catalogue, wishes: &Wishes) -> Fit {
    let load = Load::of(needs, wishes);
    let mut fit = Fit::default();
    for drive in &catalogue.drives {
        for size in &drive.sizes_gb {
            let tried = of_drives::of_spindle(&load, drive, *size, Raid::Raid10, catalogue, &wishes.sizing);
            fit.add(tried, &format!("{NAME}, {}", drive.name), Some((*size, Raid::Raid10)));
        }
    }
    fit.rank();
    fit
}

/// The lack of a level in pools, in words.
pub(super) fn missing(raid: Raid) -> String {
    match raid {
        Raid::Raid0 => {
            "have raid0 for single volumes (raid = \"raid0\" in a [[volume]]), and no plan rests on one copy"
                .to_owned()
        }
        raid => format!("do not have {} yet", raid.word()),
    }
}

/// The nearest level, with the drives it takes.
fn nearest(raid: Raid, choice: Option<&Choice>) -> String {
    let drives = choice.map_or(String::new(), |choice| {
        let (all, spares) = (choice.drives(), choice.spares());
        format!(", which takes {} x {} {}", counted(all), choice.drive, choice.drive_size)
            + &match raid {
                // Their data and what is beside them grow by half with a third copy.
                Raid::Raid6 | Raid::RaidDp => format!(
                    "; three copies, so that any two may be lost, take {}",
                    counted((all - spares).div_ceil(2) * 3 + spares)
                ),
                _ => String::new(),
            }
    });
    let copies = match raid {
        Raid::Raid6 | Raid::RaidDp => {
            ", with copies = 3 in its [[group]] if two lost drives must cost nothing"
        }
        _ => "",
    };
    format!("the nearest is raid10 (--raid raid10){copies}{drives}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        answer::PlanError,
        answer::StoragePlan,
        profile::{Profile, Tier},
        rules::Rules,
    };

    fn plan(raid: Option<Raid>, users: u64) -> Result<StoragePlan, PlanError> {
        let profile = Profile {
            tiers: vec![Tier::new("all", users)],
            array: Some("spindle".to_owned()),
            raid,
            ..Profile::default()
        };
        StoragePlan::of(profile, Rules::named("exchange-2010").unwrap(), &Catalogue::built_in())
    }

    #[test]
    fn only_what_the_array_has_is_planned() {
        for users in [50, 5_000, 60_000] {
            let plan = plan(None, users).unwrap();
            for choice in &plan.fit.choices {
                assert_eq!(choice.product, NAME);
                for group in &choice.groups {
                    assert!(group.raid.is_mirrored(), "{group:?}");
                    assert!((group.drives + group.spares) / group.pools <= POOL_DRIVES_MAX, "{group:?}");
                    assert!(group.spares <= 2 * group.pools, "a pool keeps room for two lost drives at most");
                }
            }
            let site = plan.site().unwrap();
            assert!(
                site.groups
                    .iter()
                    .all(|group| group.array.starts_with(NAME) && group.failure_sets.is_empty())
            );
        }
    }

    #[test]
    fn another_level_is_refused_with_the_nearest_and_its_drives() {
        let refused = |raid| plan(Some(raid), 5_000).unwrap_err().to_string();
        let raid5 = refused(Raid::Raid5);
        assert!(
            raid5.starts_with(
                "Spindle's pools do not have raid5 yet: the nearest is raid10 (--raid raid10), which takes "
            ),
            "{raid5}"
        );
        let raid6 = refused(Raid::Raid6);
        assert!(
            raid6.contains("with copies = 3") && raid6.contains("so that any two may be lost, take "),
            "{raid6}"
        );
        let raid0 = refused(Raid::Raid0);
        assert!(raid0.contains("for single volumes") && raid0.contains("the nearest is raid10"), "{raid0}");
        assert!(plan(Some(Raid::Raid10), 5_000).is_ok());
    }
}

//! Locks of backups: until one ends nobody deletes the backup, its volume, or the set that counts its time.

use super::{SetKeeping, points::point_id, served_set::ServedSet};
use crate::planted::{self, DrBug};
use array::{format::VolumeId, pool::Snapshot};
use protect::catalogue::PointNote;
use report::{Refusal, calendar::utc_time};

/// The end of a lock that a point has by its note, in seconds since 1970; `None` if it has none.
pub fn lock_of_note(point: &Snapshot) -> Option<i64> {
    let note = PointNote::decode(&point.note).ok().flatten()?;
    let cut_s = (point.created_at.0 / 1_000_000_000) as i64;
    Some(cut_s.saturating_add(note.lock_s?))
}

/// Refuses the deletion of a point, as long as the note or the keeper of its set says that it is locked. A lock that people made
/// longer is known to the keeper alone. `now_s` is in seconds since 1970.
///
/// # Errors
///
/// It is locked.
pub(crate) fn check_unlocked(
    sets: &[ServedSet],
    (volume, point): (VolumeId, &Snapshot),
    now_s: i64,
) -> Result<(), Refusal> {
    if planted::is_in_dr(DrBug::LockedDeleted) {
        return Ok(());
    }
    let id = point_id(volume, point.snapshot);
    let of_keeper = sets.iter().find_map(|set| set.locked_for_s(&id)).map(|left_s| now_s + left_s);
    match lock_of_note(point).max(of_keeper).filter(|until_s| now_s < *until_s) {
        None => Ok(()),
        Some(until_s) => Err(locked(&point.name, until_s)),
    }
}

/// Refuses to let go of a set with a backup that is locked yet: its keeper counts the time.
///
/// # Errors
///
/// A set of these is not `wanted`, and has one.
pub(crate) fn check_kept(
    sets: &[ServedSet],
    is_wanted: impl Fn(&str) -> bool,
    now_s: i64,
) -> Result<(), Refusal> {
    for set in sets {
        let name = &set.wanted.settings.name;
        let SetKeeping::Server { view: Some(view), .. } = &set.keeping else { continue };
        let longest =
            view.backups.iter().filter_map(|backup| Some((backup.locked_for_s?, &backup.name))).max();
        if let Some((left_s, backup)) = longest.filter(|_| !is_wanted(name)) {
            return Err(Refusal::new(
                format!(
                    "the file lacks set {name}, whose backup {backup} is locked until {}: its keeper counts that time",
                    utc_time(now_s + left_s)
                ),
                "keep its table in the file until then, with fewer schedules if it is to make no more backups",
            ));
        }
    }
    Ok(())
}

/// The refusal to delete a point of a locked backup.
pub fn locked(name: &str, until_s: i64) -> Refusal {
    Refusal::new(
        format!("{name} is a backup that is locked until {}: nobody can delete it before", utc_time(until_s)),
        "see 'spindle protect list'",
    )
}

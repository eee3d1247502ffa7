//! One row that was changed online and in the file: field by field, and right by right. Pure.
//!
//! Invariants:
//!
//! 1. A change that the other side did not make as well counts.
//! 2. If both sides changed one thing in two ways, the smaller right counts, and both values are said.
//! 3. What was taken away online does not come back with another change of its row.

use plan::site::{SiteExport, SiteInitiator, SiteTarget, SiteUnit, Snapshots};

/// A row as it was applied, as it was served, and as the file has it now.
#[derive(Clone, Copy)]
pub(super) struct RowVersions<'r, T> {
    pub applied: Option<&'r T>,
    pub served: Option<&'r T>,
    pub file: Option<&'r T>,
}

/// Fate of the online change of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnlineOutcome {
    Kept,
    /// The file changed another part of the row.
    KeptWithFile,
    /// It was deleted, and stays away although the file changed it.
    StaysAway,
    Lost,
}

/// A row of one kind.
pub(super) trait MergedRow: Clone + PartialEq {
    /// One that was deleted stays away if the file changes it.
    const STAYS_AWAY: bool = true;

    /// The row with the changes of both sides. `say` is told of what they changed in two ways.
    fn both(applied: Option<&Self>, served: &Self, file: &Self, say: &mut dyn FnMut(String)) -> Self;

    /// The file's row without what was taken away online; none if it cannot be served without what was added.
    fn restricted(applied: &Self, served: &Self, file: &Self) -> Option<Self>;
}

impl<T: MergedRow> RowVersions<'_, T> {
    /// The version that counts, and what becomes of the online change.
    pub fn merged(&self, say: &mut dyn FnMut(String)) -> (Option<T>, Option<OnlineOutcome>) {
        let Self { applied, served, file } = *self;
        match (served, file) {
            _ if served == applied || served == file => (file.cloned(), None),
            _ if file == applied => (served.cloned(), Some(OnlineOutcome::Kept)),
            (Some(served), Some(file)) => {
                let row = T::both(applied, served, file, say);
                let is_file = row == *file;
                let outcome = if is_file { OnlineOutcome::Lost } else { OnlineOutcome::KeptWithFile };
                (Some(row), Some(outcome))
            }
            (None, Some(_)) if T::STAYS_AWAY => (None, Some(OnlineOutcome::StaysAway)),
            _ => (file.cloned(), Some(OnlineOutcome::Lost)),
        }
    }

    /// The file's version without what was taken away online.
    pub fn restricted(&self) -> Option<T> {
        let Self { applied, served, file } = *self;
        let file = file?;
        match (applied, served) {
            _ if served == applied || served == Some(file) => Some(file.clone()),
            (Some(_), None) if T::STAYS_AWAY || Some(file) == applied => None,
            (Some(applied), Some(served)) => T::restricted(applied, served, file),
            _ => Some(file.clone()),
        }
    }
}

/// The version that counts of one value; if both sides changed it, `decide` does.
fn three_way<T: PartialEq>(applied: Option<&T>, served: T, file: T, decide: impl FnOnce(T, T) -> T) -> T {
    if applied == Some(&served) || served == file {
        file
    } else if applied == Some(&file) {
        served
    } else {
        decide(served, file)
    }
}

/// A flag that takes something away.
fn is_taken(applied: bool, served: bool, file: bool) -> bool {
    file || (served && !applied)
}

impl MergedRow for SiteTarget {
    fn both(applied: Option<&Self>, served: &Self, file: &Self, _: &mut dyn FnMut(String)) -> Self {
        let open = three_way(applied.map(|row| &row.open), served.open, file.open, |one, other| one && other);
        Self { open, ..file.clone() }
    }

    fn restricted(applied: &Self, served: &Self, file: &Self) -> Option<Self> {
        let open = file.open && (served.open || !applied.open);
        Some(Self { open, ..file.clone() })
    }
}

impl MergedRow for SiteUnit {
    fn both(applied: Option<&Self>, served: &Self, file: &Self, _: &mut dyn FnMut(String)) -> Self {
        let volume = applied.map(|row| &row.volume);
        if volume != Some(&served.volume) && volume != Some(&file.volume) && served.volume != file.volume {
            // Two disks cannot be one: the caller says that the file counts.
            return file.clone();
        }
        Self {
            number: file.number,
            volume: three_way(volume, served.volume.clone(), file.volume.clone(), |_, file| file),
            read_only: three_way(
                applied.map(|row| &row.read_only),
                served.read_only,
                file.read_only,
                |one, other| one || other,
            ),
            shared: three_way(applied.map(|row| &row.shared), served.shared, file.shared, |one, other| {
                one && other
            }),
            write_cache: three_way(
                applied.map(|row| &row.write_cache),
                served.write_cache,
                file.write_cache,
                |_, file| file,
            ),
        }
    }

    fn restricted(applied: &Self, served: &Self, file: &Self) -> Option<Self> {
        let read_only = is_taken(applied.read_only, served.read_only, file.read_only);
        let shared = file.shared && (served.shared || !applied.shared);
        Some(Self { read_only, shared, ..file.clone() })
    }
}

impl MergedRow for SiteExport {
    fn both(applied: Option<&Self>, served: &Self, file: &Self, _: &mut dyn FnMut(String)) -> Self {
        let read_only = match applied {
            Some(applied) => is_taken(applied.read_only, served.read_only, file.read_only),
            None => served.read_only || file.read_only,
        };
        Self { read_only, ..file.clone() }
    }

    fn restricted(applied: &Self, served: &Self, file: &Self) -> Option<Self> {
        let read_only = is_taken(applied.read_only, served.read_only, file.read_only);
        Some(Self { read_only, ..file.clone() })
    }
}

impl MergedRow for Snapshots {
    /// It gives nobody a right.
    const STAYS_AWAY: bool = false;

    fn both(_: Option<&Self>, _: &Self, file: &Self, _: &mut dyn FnMut(String)) -> Self {
        file.clone()
    }

    fn restricted(_: &Self, _: &Self, file: &Self) -> Option<Self> {
        Some(file.clone())
    }
}

/// The right of an initiator on a target or a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum MergedRight {
    None,
    Read,
    Write,
}

impl MergedRight {
    fn words(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Read => "to read",
            Self::Write => "to read and write",
        }
    }
}

/// True if a right on `entry` is one on `meant`.
fn covers(entry: &str, meant: &str) -> bool {
    let is_unit_of = |(target, number): (&str, &str)| target == entry && number.parse::<u64>().is_ok();
    entry == meant || meant.rsplit_once('/').is_some_and(is_unit_of)
}

fn right_of(row: Option<&SiteInitiator>, meant: &str) -> MergedRight {
    let Some(row) = row else { return MergedRight::None };
    let has = |list: &[String]| list.iter().any(|entry| covers(entry, meant));
    match (has(&row.uses), has(&row.reads)) {
        (true, _) => MergedRight::Write,
        (false, true) => MergedRight::Read,
        (false, false) => MergedRight::None,
    }
}

fn entries(row: &SiteInitiator) -> impl Iterator<Item = &String> {
    row.uses.iter().chain(&row.reads)
}

/// The row with the rights that `decide` gives, of the entries of both; rights that were taken away online do not come back with a
/// right on the whole target.
fn with_rights(
    rows: (Option<&SiteInitiator>, &SiteInitiator, &SiteInitiator),
    mut decide: impl FnMut(&str, [MergedRight; 3]) -> MergedRight,
    say: &mut dyn FnMut(String),
) -> SiteInitiator {
    let (applied, served, file) = rows;
    let mut merged = SiteInitiator { uses: Vec::new(), reads: Vec::new(), ..file.clone() };
    let mut seen: Vec<&String> = Vec::new();
    for meant in entries(file).chain(entries(served)) {
        if seen.contains(&meant) {
            continue;
        }
        seen.push(meant);
        let rights = [applied, Some(served), Some(file)].map(|row| right_of(row, meant));
        let right = decide(meant, rights);
        let back = applied.into_iter().flat_map(entries).find(|unit| {
            let taken = right_of(Some(served), unit);
            *unit != meant && covers(meant, unit) && taken < right_of(applied, unit) && taken < right
        });
        if let Some(unit) = back {
            say(format!("the right on {meant} is not given: that on {unit} was taken away online"));
            continue;
        }
        match right {
            MergedRight::Write => merged.uses.push(meant.clone()),
            MergedRight::Read => merged.reads.push(meant.clone()),
            MergedRight::None => {}
        }
    }
    merged
}

fn credentials(row: &SiteInitiator) -> (&str, &str) {
    (&row.user, &row.secret_file)
}

impl MergedRow for SiteInitiator {
    fn both(applied: Option<&Self>, served: &Self, file: &Self, say: &mut dyn FnMut(String)) -> Self {
        let mut conflicts = Vec::new();
        let decide = |meant: &str, [applied, served, file]: [MergedRight; 3]| {
            three_way(Some(&applied), served, file, |served, file| {
                let less = served.min(file);
                conflicts.push(format!(
                    "the right on {meant} is {} online and {} in the file: {} counts",
                    served.words(),
                    file.words(),
                    less.words()
                ));
                less
            })
        };
        let mut row = with_rights((applied, served, file), decide, say);
        let chap = three_way(
            applied.map(credentials).as_ref(),
            credentials(served),
            credentials(file),
            |online, said| {
                let counts = if said.0.is_empty() { online } else { said };
                let words = |(user, secret): (&str, &str)| match user {
                    "" => "without CHAP".to_owned(),
                    user => format!("CHAP user {user}, secret in {secret}"),
                };
                conflicts.push(format!(
                    "it is {} online and {} in the file: {} counts",
                    words(online),
                    words(said),
                    words(counts)
                ));
                counts
            },
        );
        (row.user, row.secret_file) = (chap.0.to_owned(), chap.1.to_owned());
        conflicts.into_iter().for_each(say);
        row
    }

    fn restricted(applied: &Self, served: &Self, file: &Self) -> Option<Self> {
        // The secret of before may be known to others, and the new one cannot be used.
        if credentials(served) != credentials(applied) && credentials(file) != credentials(served) {
            return None;
        }
        let decide = |_: &str, [applied, served, file]: [MergedRight; 3]| {
            if served < applied { served.min(file) } else { file }
        };
        Some(with_rights((Some(applied), served, file), decide, &mut |_| ()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(uses: &[&str], reads: &[&str]) -> SiteInitiator {
        let [uses, reads] = [uses, reads].map(|list| list.iter().map(|&meant| meant.to_owned()).collect());
        SiteInitiator { name: "iqn.x:a".into(), uses, reads, ..SiteInitiator::default() }
    }

    fn merged(
        applied: &SiteInitiator,
        served: &SiteInitiator,
        file: &SiteInitiator,
    ) -> (SiteInitiator, Vec<String>) {
        let mut said = Vec::new();
        let row = SiteInitiator::both(Some(applied), served, file, &mut |line| said.push(line));
        (row, said)
    }

    #[test]
    fn a_right_that_was_taken_away_stays_away_whatever_else_the_file_changes() {
        let applied = host(&["disks", "logs"], &[]);
        let (row, said) = merged(&applied, &host(&["logs"], &[]), &host(&["disks", "logs", "third"], &[]));
        assert_eq!((row, said), (host(&["logs", "third"], &[]), Vec::new()));
        // Narrowed to a unit, while the file names another of its units.
        let (row, _) = merged(&applied, &host(&["disks/0", "logs"], &[]), &host(&["disks/1", "disks"], &[]));
        assert_eq!(row, host(&["disks/0"], &[]));
        let (row, said) = merged(&host(&["disks/0"], &[]), &host(&[], &[]), &host(&["disks"], &[]));
        assert_eq!(row, host(&[], &[]));
        assert_eq!(said, ["the right on disks is not given: that on disks/0 was taken away online"]);
    }

    #[test]
    fn of_two_changes_of_one_right_the_smaller_counts_and_is_said() {
        let (row, said) = merged(&host(&["a"], &[]), &host(&["x"], &["a"]), &host(&["y"], &[]));
        assert_eq!(row, host(&["y", "x"], &[]));
        assert_eq!(said, ["the right on a is to read online and none in the file: none counts"]);
    }

    #[test]
    fn a_secret_that_was_replaced_does_not_come_back_with_another_change() {
        let secret = |row: SiteInitiator, name: &str| SiteInitiator {
            user: "u".into(),
            secret_file: name.into(),
            ..row
        };
        let (applied, served) = (secret(host(&["a"], &[]), "old"), secret(host(&["a"], &[]), "new"));
        let (row, said) = merged(&applied, &served, &secret(host(&["a", "b"], &[]), "old"));
        assert_eq!((row, said.len()), (secret(host(&["a", "b"], &[]), "new"), 0));
        let (row, said) = merged(&applied, &served, &secret(host(&["a"], &[]), "third"));
        assert_eq!(row.secret_file, "third");
        assert!(
            said[0].contains("secret in new online") && said[0].contains("secret in third counts"),
            "{said:?}"
        );
        assert_eq!(SiteInitiator::restricted(&applied, &served, &applied), None);
        let (row, _) = merged(&applied, &served, &host(&["a"], &[]));
        assert_eq!(row.secret_file, "new", "a secret is less than none");
    }
}

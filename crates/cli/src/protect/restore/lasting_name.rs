//! Lasting names of clones that are to take the places of volumes: they say what put them there.

use crate::protect::temporary_clones::first_bytes;
use world::crc32c::crc32c;

/// Bytes of the volume and of the label in a lasting name: a name has 128 at most.
const VOLUME_BYTES_MAX: usize = 40;
const LABEL_BYTES_MAX: usize = 64;
/// Bytes of a database's name in a label, and of the end of a backup's, which has the time and the number.
const DATABASE_BYTES_MAX: usize = 24;
const BACKUP_END_BYTES_MAX: usize = 36;
/// Bytes of the sum that stands for what is left out of many names, with the hyphen before it.
const SUM_BYTES: usize = 9;

/// A change of what is in the places of a set's volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeKind {
    /// All volumes go back.
    Restore,
    /// Some databases go back.
    Database,
    /// Empty databases stand in.
    DialTone,
    /// They are joined with those that came back.
    Merge,
}

impl ChangeKind {
    const ALL: [Self; 4] = [Self::Restore, Self::Database, Self::DialTone, Self::Merge];

    /// Between the name of the volume and the label.
    fn mark(self) -> &'static str {
        match self {
            Self::Restore => "-restored-",
            Self::Database => "-database-",
            Self::DialTone => "-dialtone-",
            Self::Merge => "-merged-",
        }
    }
}

/// One change of what is in the places of a set's volumes, as its command says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceChange {
    kind: ChangeKind,
    label: String,
}

impl PlaceChange {
    /// All volumes go back to a backup.
    pub fn restore(backup: &str) -> Self {
        Self { kind: ChangeKind::Restore, label: first_bytes(backup, LABEL_BYTES_MAX).to_owned() }
    }

    /// Some databases go back to a backup, in whatever order they are named.
    pub fn databases(databases: &[String], backup: &str) -> Self {
        let from = backup.len().saturating_sub(BACKUP_END_BYTES_MAX);
        let from = (from..=backup.len()).find(|&at| backup.is_char_boundary(at)).unwrap_or_default();
        let mut names = databases.to_vec();
        names.sort_unstable();
        names.dedup();
        let all = names.join("-and-");
        let named = match all.len() <= DATABASE_BYTES_MAX || names.len() == 1 {
            true => first_bytes(&all, DATABASE_BYTES_MAX).to_owned(),
            false => {
                let sum = crc32c(&[all.as_bytes()]);
                format!("{}-{sum:08x}", first_bytes(&all, DATABASE_BYTES_MAX - SUM_BYTES))
            }
        };
        Self { kind: ChangeKind::Database, label: format!("{named}-of-{}", &backup[from..]) }
    }

    /// Empty databases, made by a backup, stand in.
    pub fn dial_tone(backup: &str) -> Self {
        Self { kind: ChangeKind::DialTone, label: first_bytes(backup, LABEL_BYTES_MAX).to_owned() }
    }

    /// A dial tone is joined with databases that were restored beside it by this name.
    pub fn merge(from: &str) -> Self {
        Self { kind: ChangeKind::Merge, label: first_bytes(from, LABEL_BYTES_MAX).to_owned() }
    }

    /// For a person.
    pub fn text(&self) -> String {
        match self.kind {
            ChangeKind::Restore | ChangeKind::Database => format!("the restore of {}", self.label),
            ChangeKind::DialTone => format!("the dial tone by {}", self.label),
            ChangeKind::Merge => format!("the merge from {}", self.label),
        }
    }
}

/// A lasting name, read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LastingName {
    pub change: PlaceChange,
    /// Counted from 1.
    pub place: usize,
    pub of: usize,
}

impl LastingName {
    pub(super) fn text(&self, volume: &str) -> String {
        let PlaceChange { kind, label } = &self.change;
        let volume = first_bytes(volume, VOLUME_BYTES_MAX);
        format!("{volume}{}{label}-{}of{}", kind.mark(), self.place, self.of)
    }

    /// Reads that of a clone of `volume`.
    pub(super) fn of(name: &str, volume: &str) -> Option<Self> {
        let rest = name.strip_prefix(first_bytes(volume, VOLUME_BYTES_MAX))?;
        let kinds = ChangeKind::ALL.into_iter();
        let (kind, rest) = kinds.filter_map(|kind| Some((kind, rest.strip_prefix(kind.mark())?))).next()?;
        let (label, place) = rest.rsplit_once('-')?;
        let (place, of) = place.split_once("of")?;
        let (place, of) = (place.parse().ok()?, of.parse().ok()?);
        let change = PlaceChange { kind, label: label.to_owned() };
        (0 < place && place <= of).then_some(Self { change, place, of })
    }

    /// The last one decides.
    pub(super) fn is_last(&self) -> bool {
        self.place == self.of
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lasting_names_are_read_back_and_no_others() {
        let change = PlaceChange::restore("mail-2026-11-28-1830-17");
        let name = LastingName { change, place: 2, of: 3 };
        let text = name.text("store");
        assert_eq!(text, "store-restored-mail-2026-11-28-1830-17-2of3");
        assert_eq!(LastingName::of(&text, "store"), Some(name));
        assert_eq!(LastingName::of(&text, "log"), None);
        for other in
            ["store", "store-restored-", "store-restored-x-0of1", "store-restored-x-2of1", "store-x-1of1"]
        {
            assert_eq!(LastingName::of(other, "store"), None, "{other}");
        }
    }

    fn databases(names: &[&str], backup: &str) -> PlaceChange {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        PlaceChange::databases(&names, backup)
    }

    #[test]
    fn each_change_has_a_name_of_its_own_that_is_not_too_long() {
        let backup = "mail-2026-11-28-1830-17";
        let changes = [
            PlaceChange::restore(backup),
            PlaceChange::dial_tone(backup),
            PlaceChange::merge(backup),
            databases(&["sg1-db1.edb"], backup),
            databases(&["sg1-db2.edb"], backup),
            databases(&["sg1-db1.edb"], "mail-2026-11-28-1830-18"),
            databases(&["sg1-db1", "sg1-db2"], backup),
            databases(&["sg1-db1", "sg1-db2", "sg1-db3"], backup),
            databases(&["sg1-db1", "sg1-db2", "sg1-db3", "sg1-db4"], backup),
        ];
        assert_eq!(databases(&["sg1-db2", "sg1-db1", "sg1-db2"], backup), changes[6], "in any order");
        for (index, change) in changes.iter().enumerate() {
            let text = LastingName { change: change.clone(), place: 1, of: 2 }.text("store");
            assert_eq!(LastingName::of(&text, "store").unwrap().change, *change);
            assert!(changes[..index].iter().all(|other| other != change), "{text}");
        }
        let long = "ö".repeat(100);
        for change in
            [PlaceChange::restore(&long), databases(&[&long], &long), databases(&[&long, "b"], &long)]
        {
            let text = LastingName { change, place: 128, of: 128 }.text(&"ä".repeat(100));
            assert!(text.len() <= 128, "{text}");
        }
    }
}

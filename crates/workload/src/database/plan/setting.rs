//! Profile figures: names, units, ranges and text form.
//!
//! Every figure of a profile is one whole number under one name. Names carry their unit (`cache_max_bytes`),
//! values may carry one (`256MiB`, `93%`), and each figure has a range that rejects typing mistakes.

use crate::suggestion::nearest;
use ::plan::figure::Confidence;
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use thiserror::Error;

/// Unit class of a figure; decides which suffixes its text may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Plain, or with KiB, MiB, GiB, TiB (K, M, G, T and KB, MB … mean the same: all scale by 1024).
    Bytes,
    /// A `%` may follow.
    Percent,
    /// `ms` or `s` may follow.
    Milliseconds,
    Count,
}

/// Specification of one profile figure.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// Name in profile files and in `--set name=value`.
    pub name: &'static str,
    pub kind: ValueKind,
    /// Smallest and largest value accepted.
    pub range: (u64, u64),
    /// One line for reports.
    pub meaning: &'static str,
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Every figure of a profile, in the order a report shows them.
pub const KEYS: &[KeySpec] = &[
    key("page_bytes", ValueKind::Bytes, (4096, 32768), "database page: 4, 8 or 32 KiB"),
    key("record_bytes", ValueKind::Bytes, (256, 16384), "one mail record, all columns together"),
    key(
        "compressible_percent",
        ValueKind::Percent,
        (0, 100),
        "bytes of a record's body that a compressor can drop",
    ),
    key("hot_mailbox_percent", ValueKind::Percent, (1, 100), "mailboxes that are hot; 100 % is all alike"),
    key("hot_access_percent", ValueKind::Percent, (1, 100), "operations that go to hot mailboxes"),
    key("insert_percent", ValueKind::Percent, (0, 100), "operations that insert a record"),
    key("replace_percent", ValueKind::Percent, (0, 100), "operations that seek a record and change it"),
    key("delete_percent", ValueKind::Percent, (0, 100), "operations that seek a record and delete it"),
    key("read_percent", ValueKind::Percent, (0, 100), "operations that seek a record and read it"),
    key("lazy_commit_percent", ValueKind::Percent, (0, 100), "commits that do not wait for the log"),
    key("operations_per_transaction", ValueKind::Count, (1, 1000), "operations between two commits"),
    key("threads_per_group", ValueKind::Count, (1, 1024), "simulated sessions of a storage group"),
    key("log_buffers", ValueKind::Count, (32, 262_144), "transaction log buffers, of 512 bytes each"),
    key("log_file_bytes", ValueKind::Bytes, (MIB, 64 * MIB), "one generation of the transaction log"),
    key("cache_min_bytes", ValueKind::Bytes, (4 * MIB, 1024 * GIB), "least page cache of one database"),
    key("cache_max_bytes", ValueKind::Bytes, (4 * MIB, 1024 * GIB), "most page cache of one database"),
    key(
        "start_flush_percent",
        ValueKind::Percent,
        (1, 50),
        "free share of the cache at which eviction starts",
    ),
    key("stop_flush_percent", ValueKind::Percent, (1, 60), "free share of the cache at which eviction stops"),
    key("checkpoint_depth_bytes", ValueKind::Bytes, (MIB, 64 * GIB), "log a crash may have to replay"),
    key(
        "scan_bytes_per_second",
        ValueKind::Bytes,
        (0, 10 * GIB),
        "background scan of one database; 0 is off",
    ),
    key("scan_batch_bytes", ValueKind::Bytes, (64 * 1024, MIB / 2), "one read of the background scan"),
    key(
        "torn_page_protection",
        ValueKind::Count,
        (0, 1),
        "1: changed pages go to a journal before their place",
    ),
    key(
        "page_stamps",
        ValueKind::Count,
        (0, 2),
        "1: a page read must be the one last written; 2: across crashes too, ordered with the log",
    ),
    key("coalesce_bytes", ValueKind::Bytes, (4096, 10 * MIB), "longest write of neighbouring pages"),
    key(
        "lazy_commit_delay_ms",
        ValueKind::Milliseconds,
        (1, 60_000),
        "longest wait of a lazy commit for stable storage",
    ),
];

const fn key(name: &'static str, kind: ValueKind, range: (u64, u64), meaning: &'static str) -> KeySpec {
    KeySpec { name, kind, range, meaning }
}

/// One figure with its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// In the unit the figure's name says.
    pub value: u64,
    /// Citation: document and place.
    pub source: String,
    #[serde(serialize_with = "as_stored")]
    pub confidence: Confidence,
}

/// Writes the confidence as run records hold it: they call a given figure the user's.
fn as_stored<S: Serializer>(confidence: &Confidence, serializer: S) -> Result<S::Ok, S::Error> {
    match confidence {
        Confidence::Given => serializer.serialize_str("user"),
        confidence => confidence.serialize(serializer),
    }
}

/// A rejected name or value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingError {
    /// No figure has this name.
    #[error("no setting is called {name:?}{}", suggestion(.nearest))]
    UnknownKey {
        name: String,
        /// The closest known name, if one is similar.
        nearest: Option<&'static str>,
    },
    /// The text is not a number of this kind.
    #[error("{key}: {text:?} is not {}", wanted(*.kind))]
    NotANumber { key: &'static str, text: String, kind: ValueKind },
    /// The number is out of range.
    #[error("{key}: {} is out of range, {} to {} make sense", FigureText(*.kind, *.value), FigureText(*.kind, .range.0), FigureText(*.kind, .range.1))]
    OutOfRange {
        key: &'static str,
        value: u64,
        kind: ValueKind,
        /// Least and greatest accepted value.
        range: (u64, u64),
    },
}

fn suggestion(nearest: &Option<&'static str>) -> String {
    nearest.map(|name| format!("; did you mean {name:?}?")).unwrap_or_default()
}

fn wanted(kind: ValueKind) -> &'static str {
    match kind {
        ValueKind::Bytes => "a number of bytes such as 4096, 256MiB or 2GiB",
        ValueKind::Percent => "a whole percentage such as 55 or 55%",
        ValueKind::Milliseconds => "a number of milliseconds such as 100 or 100ms",
        ValueKind::Count => "a whole number",
    }
}

/// Displays a figure with its unit: `256 MiB`, `55 %`.
pub struct FigureText(pub ValueKind, pub u64);

impl fmt::Display for FigureText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(kind, value) = *self;
        match kind {
            ValueKind::Bytes => {
                const UNITS: [(u64, &str); 4] =
                    [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
                let unit = UNITS.iter().find(|(bytes, _)| value >= *bytes && value.is_multiple_of(*bytes));
                match unit {
                    Some((bytes, name)) => write!(f, "{} {name}", value / bytes),
                    None => write!(f, "{value} B"),
                }
            }
            ValueKind::Percent => write!(f, "{value} %"),
            ValueKind::Milliseconds => write!(f, "{value} ms"),
            ValueKind::Count => write!(f, "{value}"),
        }
    }
}

/// The specification of `name`; the error suggests the closest known name.
pub fn find_key(name: &str) -> Result<&'static KeySpec, SettingError> {
    KEYS.iter().find(|spec| spec.name == name).ok_or_else(|| SettingError::UnknownKey {
        name: name.to_owned(),
        nearest: nearest(name, KEYS.iter().map(|spec| spec.name)),
    })
}

impl KeySpec {
    /// Parses `text`, with an optional unit, and checks the range.
    pub fn parse(&'static self, text: &str) -> Result<u64, SettingError> {
        let wrong = || SettingError::NotANumber { key: self.name, text: text.to_owned(), kind: self.kind };
        let value = parse_number(self.kind, text.trim()).ok_or_else(wrong)?;
        self.check(value)
    }

    /// Returns `value` if it lies in the figure's range.
    pub fn check(&'static self, value: u64) -> Result<u64, SettingError> {
        let (least, most) = self.range;
        if (least..=most).contains(&value) {
            return Ok(value);
        }
        Err(SettingError::OutOfRange { key: self.name, value, kind: self.kind, range: self.range })
    }
}

fn parse_number(kind: ValueKind, text: &str) -> Option<u64> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(unit_at);
    let number: u64 = digits.parse().ok()?;
    let unit = unit.trim().to_ascii_lowercase();
    let factor = match (kind, unit.as_str()) {
        (_, "") | (ValueKind::Percent, "%") | (ValueKind::Milliseconds, "ms") | (ValueKind::Bytes, "b") => 1,
        (ValueKind::Milliseconds, "s") => 1000,
        (ValueKind::Bytes, "k" | "kb" | "kib") => 1 << 10,
        (ValueKind::Bytes, "m" | "mb" | "mib") => 1 << 20,
        (ValueKind::Bytes, "g" | "gb" | "gib") => 1 << 30,
        (ValueKind::Bytes, "t" | "tb" | "tib") => 1_u64 << 40,
        _ => return None,
    };
    number.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str, text: &str) -> Result<u64, String> {
        find_key(name).and_then(|spec| spec.parse(text)).map_err(|error| error.to_string())
    }

    #[test]
    fn values_may_carry_their_unit() {
        assert_eq!(parse("cache_max_bytes", "256MiB"), Ok(256 << 20));
        assert_eq!(parse("cache_max_bytes", "268435456"), Ok(256 << 20));
        assert_eq!(parse("lazy_commit_percent", "93 %"), Ok(93));
        assert_eq!(parse("lazy_commit_delay_ms", "2s"), Ok(2000));
    }

    #[test]
    fn a_bad_setting_is_rejected_in_one_line() {
        let said = |name, text| parse(name, text).unwrap_err();
        assert_eq!(
            said("lazy_comit_percent", "5"),
            "no setting is called \"lazy_comit_percent\"; did you mean \"lazy_commit_percent\"?"
        );
        assert_eq!(said("zzz", "5"), "no setting is called \"zzz\"");
        assert_eq!(said("threads_per_group", "-4"), "threads_per_group: \"-4\" is not a whole number");
        assert_eq!(
            said("lazy_commit_percent", "930"),
            "lazy_commit_percent: 930 % is out of range, 0 % to 100 % make sense"
        );
        assert_eq!(
            said("cache_max_bytes", "99999999999T"),
            "cache_max_bytes: \"99999999999T\" is not a number of bytes such as 4096, 256MiB or 2GiB"
        );
    }

    #[test]
    fn figures_print_in_the_unit_they_divide_by() {
        assert_eq!(FigureText(ValueKind::Bytes, 1 << 30).to_string(), "1 GiB");
        assert_eq!(FigureText(ValueKind::Bytes, 1000).to_string(), "1000 B");
        assert_eq!(FigureText(ValueKind::Bytes, 0).to_string(), "0 B");
    }
}

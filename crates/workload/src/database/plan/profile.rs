//! Server profiles: the named, sourced figures of one kind of mailbox server.
//!
//! A profile is data (`profiles/*.toml`). Four are built in; a file of the same form can replace them, and
//! single figures can be overridden. Invariants, kept by every constructor and setter:
//!
//! 1. A profile has exactly the figures of [`KEYS`], each in its range.
//! 2. The four operation percentages sum to 100. (Only [`ServerProfile::check`] verifies this, so that several
//!    calls of `set` can change the mix from one valid state to another.)
//! 3. Page size, record size, cache bounds and flush thresholds are consistent (also verified by `check`).

use crate::{
    database::plan::setting::{KEYS, KeySpec, Setting, SettingError, find_key},
    suggestion::nearest,
    verdict::limits::{LimitSet, LimitsError},
};
use ::plan::figure::Confidence;
use maildb::{PageSize, PageStampMode};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};
use thiserror::Error;
use world::ByteCount;

const BUILT_IN: [(&str, &str); 4] = [
    ("exchange-2003", include_str!("profiles/exchange-2003.toml")),
    ("exchange-2007", include_str!("profiles/exchange-2007.toml")),
    ("exchange-2010", include_str!("profiles/exchange-2010.toml")),
    ("exchange-2013", include_str!("profiles/exchange-2013.toml")),
];

/// Server versions without figures of their own, with the profile used for each.
pub const ALIASES: [(&str, &str); 2] =
    [("exchange-2016", "exchange-2013"), ("exchange-2019", "exchange-2013")];

/// Bytes of one log buffer (open ESE source: 512). The papers give the log buffer as a count of these.
const LOG_BUFFER_BYTES: u64 = 512;

/// The figures of one kind of mailbox server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerProfile {
    /// As in `--server exchange-2007`.
    pub name: String,
    /// One line: the server and load it imitates.
    pub summary: String,
    /// Name of the limit set a run is judged by.
    pub limits: String,
    #[serde(flatten)]
    figures: BTreeMap<String, Setting>,
}

/// Share of each operation, in percent; the four sum to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationMix {
    /// Inserts of a new record.
    pub insert: u64,
    /// Changes of an existing record.
    pub replace: u64,
    /// Deletes of an existing record.
    pub delete: u64,
    /// Reads of an existing record.
    pub read: u64,
}

/// Distribution of operations over hot and cold mailboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    /// Share of mailboxes that are hot, in percent; at least one mailbox is.
    pub mailbox_percent: u64,
    /// Share of operations on hot mailboxes, in percent.
    pub access_percent: u64,
}

impl Default for Skew {
    /// No skew.
    fn default() -> Self {
        Self { mailbox_percent: 100, access_percent: 100 }
    }
}

/// Size and compressibility of a database's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordForm {
    /// Size of each record, all columns together.
    pub record_bytes: usize,
    /// Compressible share of a body, in percent.
    pub compressible_percent: u64,
}

/// A rejected profile. Every message is one line.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ServerProfileError {
    /// No built-in profile has this name.
    #[error("no profile is called {name:?}{}; there are {}", did_you_mean(.nearest), names_listed())]
    Unknown {
        name: String,
        /// The closest known name, if one is similar.
        nearest: Option<&'static str>,
    },
    /// The text is not a profile.
    #[error("this is not a profile: {problem}")]
    Syntax {
        /// The parser's message and position.
        problem: String,
    },
    /// A figure is missing.
    #[error("profile {profile:?} lacks {key}")]
    Missing { profile: String, key: &'static str },
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The operations do not sum to 100.
    #[error("insert, replace, delete and read must sum to 100 %, not {sum} %")]
    Mix { sum: u64 },
    /// Two figures are inconsistent.
    #[error("{first} ({first_value}) does not fit {second} ({second_value}): {rule}")]
    Contradiction {
        first: &'static str,
        first_value: u64,
        second: &'static str,
        second_value: u64,
        rule: &'static str,
    },
    /// The profile names an unknown limit set.
    #[error(transparent)]
    Limits(#[from] LimitsError),
}

fn did_you_mean(nearest: &Option<&'static str>) -> String {
    nearest.map(|name| format!("; did you mean {name:?}?")).unwrap_or_default()
}

fn names_listed() -> String {
    ServerProfile::names().join(", ")
}

impl ServerProfile {
    /// Names of the built-in profiles.
    pub fn names() -> [&'static str; BUILT_IN.len()] {
        BUILT_IN.map(|(name, _)| name)
    }

    /// Loads a built-in profile by name or alias, ignoring case.
    pub fn load(name: &str) -> Result<Self, ServerProfileError> {
        let alias = ALIASES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name));
        let wanted = alias.map_or(name, |(_, built_in)| built_in);
        let found = BUILT_IN.iter().find(|(built_in, _)| built_in.eq_ignore_ascii_case(wanted));
        match found {
            Some((_, text)) => Self::parse(text),
            None => Err(ServerProfileError::Unknown {
                name: name.to_owned(),
                nearest: nearest(name, Self::names().into_iter()),
            }),
        }
    }

    /// Parses and checks the text of a profile file.
    pub fn parse(text: &str) -> Result<Self, ServerProfileError> {
        let profile: Self = toml::from_str(text).map_err(|error| ServerProfileError::Syntax {
            problem: error.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" "),
        })?;
        for (name, setting) in &profile.figures {
            find_key(name)?.check(setting.value)?;
        }
        for spec in KEYS {
            if !profile.figures.contains_key(spec.name) {
                return Err(ServerProfileError::Missing { profile: profile.name, key: spec.name });
            }
        }
        profile.check()?;
        Ok(profile)
    }

    /// Overrides one figure with a user's value; call [`ServerProfile::check`] after the last override.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ServerProfileError> {
        let spec = find_key(key)?;
        let value = spec.parse(value)?;
        let setting = Setting { value, source: "set for this run".to_owned(), confidence: Confidence::Given };
        self.figures.insert(spec.name.to_owned(), setting);
        Ok(())
    }

    /// The same profile under another name, to be changed.
    #[must_use]
    pub fn named(self, name: &str, summary: &str) -> Self {
        Self { name: name.to_owned(), summary: summary.to_owned(), ..self }
    }

    /// Sets the shares of the operations, which sum to 100, as `source` says.
    ///
    /// # Panics
    ///
    /// If they do not.
    pub fn set_mix(&mut self, OperationMix { insert, replace, delete, read }: OperationMix, source: &str) {
        assert_eq!(insert + replace + delete + read, 100, "shares of all operations");
        let shares = [
            ("insert_percent", insert),
            ("replace_percent", replace),
            ("delete_percent", delete),
            ("read_percent", read),
        ];
        for (key, value) in shares {
            let setting = Setting { value, source: source.to_owned(), confidence: Confidence::Given };
            self.figures.insert(key.to_owned(), setting);
        }
    }

    /// The profile as a file, which [`ServerProfile::parse`] reads.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("texts and numbers in tables")
    }

    /// Completes a profile read from an older record: missing figures take the value of the built-in profile
    /// of the same name, then all figures are checked.
    pub fn complete(&mut self) -> Result<(), ServerProfileError> {
        for (name, setting) in &self.figures {
            find_key(name)?.check(setting.value)?;
        }
        let model = Self::load(&self.name).or_else(|_| Self::load(BUILT_IN[BUILT_IN.len() - 1].0))?;
        for (name, setting) in model.figures {
            self.figures.entry(name).or_insert(setting);
        }
        self.check()
    }

    /// Checks that the figures are consistent with each other.
    pub fn check(&self) -> Result<(), ServerProfileError> {
        let mix = self.mix();
        let sum = mix.insert + mix.replace + mix.delete + mix.read;
        if sum != 100 {
            return Err(ServerProfileError::Mix { sum });
        }
        if ![4096, 8192, 32768].contains(&self.value("page_bytes")) {
            return Err(SettingError::OutOfRange {
                key: "page_bytes",
                value: self.value("page_bytes"),
                kind: crate::database::plan::setting::ValueKind::Bytes,
                range: (4096, 32768),
            }
            .into());
        }
        // Half a page leaves room for page header and tags, and lets every page hold two records.
        self.fits("record_bytes", "page_bytes", "a record takes at most half a page", |r, p| 2 * r <= p)?;
        self.fits("cache_min_bytes", "cache_max_bytes", "the least is not above the most", |l, m| l <= m)?;
        self.fits(
            "start_flush_percent",
            "stop_flush_percent",
            "eviction stops above where it starts",
            |a, b| a < b,
        )?;
        self.fits(
            "hot_mailbox_percent",
            "hot_access_percent",
            "hot mailboxes get at least their share of the operations",
            |m, a| m <= a,
        )?;
        self.fits("coalesce_bytes", "page_bytes", "a write holds at least one page", |c, p| c >= p)?;
        self.fits("scan_batch_bytes", "page_bytes", "a scan reads whole pages", |s, p| s % p == 0)?;
        self.fits("log_file_bytes", "page_bytes", "a log file is a multiple of the page", |l, p| l % p == 0)?;
        LimitSet::load(&self.limits)?;
        Ok(())
    }

    fn fits(
        &self,
        first: &'static str,
        second: &'static str,
        rule: &'static str,
        holds: impl Fn(u64, u64) -> bool,
    ) -> Result<(), ServerProfileError> {
        let (first_value, second_value) = (self.value(first), self.value(second));
        if holds(first_value, second_value) {
            return Ok(());
        }
        Err(ServerProfileError::Contradiction { first, first_value, second, second_value, rule })
    }

    /// Every figure with its specification, in report order.
    pub fn figures(&self) -> impl Iterator<Item = (&'static KeySpec, &Setting)> {
        KEYS.iter().map(|spec| (spec, &self.figures[spec.name]))
    }

    fn value(&self, key: &'static str) -> u64 {
        self.figures[key].value
    }

    pub fn mix(&self) -> OperationMix {
        OperationMix {
            insert: self.value("insert_percent"),
            replace: self.value("replace_percent"),
            delete: self.value("delete_percent"),
            read: self.value("read_percent"),
        }
    }

    pub fn page_size(&self) -> PageSize {
        let bytes = u32::try_from(self.value("page_bytes")).expect("range checked");
        PageSize::from_bytes(bytes).expect("check() allows real page sizes only")
    }

    /// Size of one mail record, all columns together, in bytes.
    pub fn record_bytes(&self) -> usize {
        self.value("record_bytes") as usize
    }

    /// Size and compressibility of mail records.
    pub fn record_form(&self) -> RecordForm {
        RecordForm {
            record_bytes: self.record_bytes(),
            compressible_percent: self.value("compressible_percent"),
        }
    }

    /// Distribution of operations over hot and cold mailboxes.
    pub fn skew(&self) -> Skew {
        Skew {
            mailbox_percent: self.value("hot_mailbox_percent"),
            access_percent: self.value("hot_access_percent"),
        }
    }

    /// Share of commits that return before the log is stable, in percent.
    pub fn lazy_commit_percent(&self) -> f64 {
        self.value("lazy_commit_percent") as f64
    }

    /// Operations between two commits.
    pub fn operations_per_transaction(&self) -> u32 {
        self.value("operations_per_transaction") as u32
    }

    /// Sessions of a storage group in a closed loop; a plan may override it.
    pub fn threads_per_group(&self) -> u32 {
        self.value("threads_per_group") as u32
    }

    pub fn log_buffer(&self) -> ByteCount {
        ByteCount(self.value("log_buffers") * LOG_BUFFER_BYTES)
    }

    pub fn log_file(&self) -> ByteCount {
        ByteCount(self.value("log_file_bytes"))
    }

    /// Minimum and maximum page cache of one database.
    pub fn cache_bounds(&self) -> (ByteCount, ByteCount) {
        (ByteCount(self.value("cache_min_bytes")), ByteCount(self.value("cache_max_bytes")))
    }

    /// Free shares of the cache, in percent, at which eviction starts and stops.
    pub fn flush_thresholds_percent(&self) -> (f64, f64) {
        (self.value("start_flush_percent") as f64, self.value("stop_flush_percent") as f64)
    }

    /// Maximum log to replay after a crash.
    pub fn checkpoint_depth(&self) -> ByteCount {
        ByteCount(self.value("checkpoint_depth_bytes"))
    }

    /// Rate of the background scan of one database and bytes of one read; None if it is off.
    pub fn scan(&self) -> Option<(ByteCount, ByteCount)> {
        let rate = ByteCount(self.value("scan_bytes_per_second"));
        (rate.0 > 0).then(|| (rate, ByteCount(self.value("scan_batch_bytes"))))
    }

    /// True if changed pages go to a flush journal before they are written in place.
    pub fn torn_page_protection(&self) -> bool {
        self.value("torn_page_protection") == 1
    }

    pub fn page_stamps(&self) -> PageStampMode {
        match self.value("page_stamps") {
            0 => PageStampMode::Off,
            1 => PageStampMode::WhileOpen,
            _ => PageStampMode::Durable,
        }
    }

    /// Maximum size of a write that coalesces neighbouring pages.
    pub fn coalesce(&self) -> ByteCount {
        ByteCount(self.value("coalesce_bytes"))
    }

    /// Maximum time before a lazy commit becomes stable.
    pub fn lazy_commit_delay(&self) -> Duration {
        Duration::from_millis(self.value("lazy_commit_delay_ms"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_profile_is_whole_and_sourced() {
        for name in ServerProfile::names() {
            let profile = ServerProfile::load(name).unwrap();
            assert_eq!(profile.name, name);
            assert_eq!(profile.figures().count(), KEYS.len());
            assert!(profile.figures().all(|(_, setting)| !setting.source.is_empty()), "{name}");
        }
    }

    #[test]
    fn the_mixes_of_the_papers_are_as_printed() {
        let of = |name| {
            let profile = ServerProfile::load(name).unwrap();
            let OperationMix { insert, replace, delete, read } = profile.mix();
            (insert, replace, delete, read, profile.lazy_commit_percent(), profile.log_buffer().0 / 512)
        };
        assert_eq!(of("exchange-2003"), (20, 75, 5, 0, 93.0, 64), "HP Continuous Access, fig. 17");
        assert_eq!(of("exchange-2007"), (40, 5, 30, 25, 55.0, 9000), "AMI 2008, report");
    }

    #[test]
    fn names_ignore_case_and_later_servers_use_the_profile_of_a_similar_one() {
        for (name, profile) in [
            ("Exchange-2010", "exchange-2010"),
            ("EXCHANGE-2016", "exchange-2013"),
            ("exchange-2019", "exchange-2013"),
        ] {
            assert_eq!(ServerProfile::load(name).unwrap().name, profile);
        }
    }

    #[test]
    fn an_unknown_profile_is_answered_with_the_nearest() {
        assert_eq!(
            ServerProfile::load("exchange-2077").unwrap_err().to_string(),
            "no profile is called \"exchange-2077\"; did you mean \"exchange-2007\"?; there are \
             exchange-2003, exchange-2007, exchange-2010, exchange-2013"
        );
    }

    #[test]
    fn several_sets_may_pass_through_an_invalid_mix_but_not_stay_there() {
        let mut profile = ServerProfile::load("exchange-2007").unwrap();
        profile.set("read_percent", "35").unwrap();
        assert_eq!(
            profile.check().unwrap_err().to_string(),
            "insert, replace, delete and read must sum to 100 %, not 110 %"
        );
        profile.set("delete_percent", "20%").unwrap();
        profile.check().unwrap();
        assert_eq!(profile.figures["delete_percent"].confidence, Confidence::Given);
    }

    #[test]
    fn figures_that_contradict_each_other_are_refused() {
        let mut profile = ServerProfile::load("exchange-2003").unwrap();
        profile.set("record_bytes", "4096").unwrap();
        assert_eq!(
            profile.check().unwrap_err().to_string(),
            "record_bytes (4096) does not fit page_bytes (4096): a record takes at most half a page"
        );
    }

    #[test]
    fn hot_mailboxes_get_at_least_their_share() {
        let mut profile = ServerProfile::load("exchange-2010").unwrap();
        profile.set("hot_mailbox_percent", "20%").unwrap();
        profile.set("hot_access_percent", "80%").unwrap();
        profile.check().unwrap();
        profile.set("hot_access_percent", "10%").unwrap();
        assert_eq!(
            profile.check().unwrap_err().to_string(),
            "hot_mailbox_percent (20) does not fit hot_access_percent (10): hot mailboxes get at \
             least their share of the operations"
        );
    }

    #[test]
    fn a_text_with_a_misspelt_or_missing_figure_is_refused() {
        let text = BUILT_IN[1].1;
        let misspelt = text.replace("[log_buffers]", "[log_bufers]");
        assert!(
            ServerProfile::parse(&misspelt).unwrap_err().to_string().contains("did you mean \"log_buffers\"")
        );
        let start = text.find("[log_buffers]").unwrap();
        let end = text[start + 1..].find('[').unwrap() + start + 1;
        let missing = format!("{}{}", &text[..start], &text[end..]);
        assert_eq!(
            ServerProfile::parse(&missing).unwrap_err().to_string(),
            "profile \"exchange-2007\" lacks log_buffers"
        );
    }
}

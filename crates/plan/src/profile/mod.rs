//! The profile: users in tiers, copies, the rules to plan by.
//!
//! A profile comes from flags or from a file. Invariants:
//!
//! 1. There is a tier, and every tier has users; every number of it makes sense by itself.
//! 2. What was not said is known to be a default, and says so.

mod error;
mod file;
mod tier;

pub use error::ProfileError;
pub use tier::{CLIENTS, Tier, TierValue};

use crate::{
    catalogue::Raid,
    demand::Mode,
    figure::{FigureError, is_speck, nearest, parse_number},
    rules::{DEFAULT, Rules},
    units::{Gib, parse_size},
};

/// Most copies of a database (16 is the most that any server keeps).
const COPIES_MAX: u32 = 16;
/// Most tiers that a table can show.
const TIERS_MAX: usize = 64;
/// Users beyond which there are more mailboxes than people.
const USERS_MAX: u64 = 10_000_000_000;

/// Lines between sites that have a name, and the figure with their rate.
pub const LINES: [(&str, &str); 4] =
    [("t3", "line_t3"), ("oc3", "line_oc3"), ("1gbe", "line_1gbe"), ("10gbe", "line_10gbe")];

/// Input of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The rule set by name, or a file.
    pub rules: String,
    /// Figures to change: `key=value`.
    pub set: Vec<String>,
    /// By copies unless given.
    pub mode: Option<Mode>,
    /// Copies of each database; 1 if unsaid, or 2 if mode `copies` is.
    pub copies: Option<u32>,
    /// Largest database; by mode if unsaid.
    pub database_max: Option<Gib>,
    /// Growth that is planned for, in percent, for tiers that do not say their own.
    pub growth: f64,
    /// RAID level wished for.
    pub raid: Option<Raid>,
    /// Array, drive or cloud volume wished for.
    pub array: Option<String>,
    /// Name of the line to another site.
    pub link: Option<String>,
    pub tiers: Vec<Tier>,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            rules: DEFAULT.to_owned(),
            set: Vec::new(),
            mode: None,
            copies: None,
            database_max: None,
            growth: 0.0,
            raid: None,
            array: None,
            link: None,
            tiers: Vec::new(),
        }
    }
}

impl Profile {
    /// Reads a profile file.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        file::parse(text)
    }

    /// Mode and number of copies; refuses a contradiction.
    pub fn mode_and_copies(&self) -> Result<(Mode, u32), ProfileError> {
        let (mode, copies) = match (self.mode, self.copies) {
            (None, None) => (Mode::StandAlone, 1),
            (None, Some(1)) => (Mode::StandAlone, 1),
            (None, Some(copies)) => (Mode::Copies, copies),
            (Some(Mode::Copies), copies) => (Mode::Copies, copies.unwrap_or(2)),
            (Some(mode), copies) => (mode, copies.unwrap_or(1)),
        };
        match (mode, copies) {
            (_, 0) => Err(ProfileError::NoCopy),
            (_, copies) if copies > COPIES_MAX => {
                Err(ProfileError::TooManyCopies { copies, most: COPIES_MAX })
            }
            (Mode::Copies, 1) => Err(ProfileError::ModeAgainstCopies { mode, copies }),
            (Mode::StandAlone | Mode::BackupWindow, 2..) => {
                Err(ProfileError::ModeAgainstCopies { mode, copies })
            }
            settled => Ok(settled),
        }
    }

    /// The figures it is planned by: `rules`, changed as the profile says.
    pub fn settle(&self, mut rules: Rules) -> Result<Rules, ProfileError> {
        if let Some(link) = &self.link {
            line(link)?;
            if rules.value("remote_copies") == 0.0 {
                rules.set("remote_copies=1")?;
            }
        }
        for assignment in &self.set {
            rules.set(assignment)?;
        }
        Ok(rules)
    }

    /// Checks what no single value tells: that there are users, and names are their own.
    pub fn check(&self) -> Result<(), ProfileError> {
        if self.tiers.is_empty() {
            return Err(ProfileError::NoUsers);
        }
        if self.tiers.len() > TIERS_MAX {
            return Err(ProfileError::TooManyTiers { tiers: self.tiers.len(), most: TIERS_MAX });
        }
        for (index, tier) in self.tiers.iter().enumerate() {
            tier.check()?;
            if self.tiers[..index].iter().any(|other| other.name == tier.name) {
                return Err(ProfileError::SameName(tier.name.clone()));
            }
        }
        let users = self.tiers.iter().map(|tier| tier.users).try_fold(0_u64, u64::checked_add);
        if users.is_none_or(|users| users > USERS_MAX) {
            return Err(ProfileError::TooManyUsers(USERS_MAX));
        }
        self.mode_and_copies().map(|_| ())
    }
}

/// The figure with the rate of the line called `name` (any case).
pub fn line(name: &str) -> Result<&'static str, ProfileError> {
    let lower = name.to_ascii_lowercase();
    match LINES.iter().find(|(known, _)| *known == lower) {
        Some((_, key)) => Ok(key),
        None => Err(ProfileError::Unknown {
            what: "line",
            name: name.to_owned(),
            known: LINES.map(|(known, _)| known).join(", "),
            nearest: nearest(&lower, LINES.iter().map(|(known, _)| *known)).map(str::to_owned),
        }),
    }
}

/// The mode that `text` names.
pub fn parse_mode(text: &str) -> Result<Mode, ProfileError> {
    const ALL: [Mode; 3] = [Mode::StandAlone, Mode::Copies, Mode::BackupWindow];
    ALL.into_iter().find(|mode| mode.word() == text).ok_or_else(|| ProfileError::Unknown {
        what: "mode",
        name: text.to_owned(),
        known: ALL.map(Mode::word).join(", "),
        nearest: nearest(text, ALL.iter().map(|mode| mode.word())).map(str::to_owned),
    })
}

/// The RAID level that `text` names.
pub fn parse_raid(text: &str) -> Result<Raid, ProfileError> {
    Raid::parse(text).ok_or_else(|| ProfileError::Unknown {
        what: "RAID level",
        name: text.to_owned(),
        known: Raid::ALL.map(Raid::word).join(", "),
        nearest: nearest(text, Raid::ALL.iter().map(|raid| raid.word())).map(str::to_owned),
    })
}

/// The largest database that `text` allows.
pub fn parse_database_max(key: &str, text: &str) -> Result<Gib, ProfileError> {
    let size = parse_size(text).map_err(|source| FigureError::Size { key: key.to_owned(), source })?.gib();
    match (1.0 / 1024.0..=1e9).contains(&size.get()) {
        true => Ok(size),
        false => Err(FigureError::OutOfRange {
            key: key.to_owned(),
            shown: size.to_string(),
            range: "1MB to 1,000,000,000GB".to_owned(),
        }
        .into()),
    }
}

/// Growth in percent, `20%` or `20`.
pub fn parse_growth(key: &str, text: &str) -> Result<f64, ProfileError> {
    percent(key, text, 10_000.0)
}

/// A percentage up to `most`.
fn percent(key: &str, text: &str, most: f64) -> Result<f64, ProfileError> {
    let value = parse_number(key, text, "%")?;
    match (0.0..=most).contains(&value) && !is_speck(value) {
        true => Ok(value),
        false => Err(FigureError::OutOfRange {
            key: key.to_owned(),
            shown: format!("{}%", crate::units::shown(value)),
            range: format!("0% to {}%", crate::units::shown(most)),
        }
        .into()),
    }
}

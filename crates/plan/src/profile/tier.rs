//! Users who are alike.

use super::{ProfileError, percent};
use crate::{
    figure::{FigureError, nearest},
    units::{Kib, Mib, parse_size, shown},
};

/// Clients that add load, and the figure that says how much.
pub const CLIENTS: [(&str, &str); 3] =
    [("mobile", "client_mobile"), ("desktop-search", "client_desktop_search"), ("online", "client_online")];

/// A value, and whether somebody gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierValue<T> {
    pub value: T,
    /// False if it is the default.
    pub given: bool,
}

impl<T> TierValue<T> {
    /// A value that the administrator gave.
    pub fn given(value: T) -> Self {
        Self { value, given: true }
    }

    fn default(value: T) -> Self {
        Self { value, given: false }
    }
}

/// Users who are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Tier {
    pub name: String,
    /// Number of users before growth.
    pub users: u64,
    pub quota: TierValue<Mib>,
    /// Messages sent and received a day by each.
    pub messages: TierValue<f64>,
    /// Mean size of a message.
    pub message_size: TierValue<Kib>,
    /// Of them, at work at the busiest time, in percent.
    pub concurrency: TierValue<f64>,
    /// Growth that is planned for, in percent; the profile's if none.
    pub growth: Option<f64>,
    /// Clients that add load, by name.
    pub clients: Vec<String>,
}

impl Tier {
    /// `users` called `name`, all else by default: the user of the Dell paper's example, with 100 messages a day.
    pub fn new(name: impl Into<String>, users: u64) -> Self {
        Self {
            name: name.into(),
            users,
            quota: TierValue::default(Mib::new(2048.0)),
            messages: TierValue::default(100.0),
            message_size: TierValue::default(Kib::new(75.0)),
            concurrency: TierValue::default(100.0),
            growth: None,
            clients: Vec::new(),
        }
    }

    /// Takes a quota such as `2GB`.
    pub fn quota(&mut self, key: &str, text: &str) -> Result<(), ProfileError> {
        self.quota =
            TierValue::given(size(key, text, "1KB to 1,024TB", 1.0 / 1024.0, 1024.0 * 1024.0 * 1024.0)?);
        Ok(())
    }

    /// Takes a mean message size such as `75KB`.
    pub fn message_size(&mut self, key: &str, text: &str) -> Result<(), ProfileError> {
        let size = size(key, text, "1B to 1GB", 1.0 / (1024.0 * 1024.0), 1024.0)?;
        self.message_size = TierValue::given(Kib::new(size.get() * 1024.0));
        Ok(())
    }

    /// Takes messages a day.
    pub fn messages(&mut self, key: &str, count: f64) -> Result<(), ProfileError> {
        if !(0.001..=1e6).contains(&count) {
            return Err(FigureError::OutOfRange {
                key: key.to_owned(),
                shown: shown(count),
                range: "0.001 to 1,000,000 a day".to_owned(),
            }
            .into());
        }
        self.messages = TierValue::given(count);
        Ok(())
    }

    /// Takes a concurrency such as `80%`.
    pub fn concurrency(&mut self, key: &str, text: &str) -> Result<(), ProfileError> {
        self.concurrency = TierValue::given(percent(key, text, 100.0)?);
        Ok(())
    }

    /// Takes clients by name.
    pub fn clients(&mut self, names: Vec<String>) -> Result<(), ProfileError> {
        for name in &names {
            if !CLIENTS.iter().any(|(known, _)| known == name) {
                return Err(ProfileError::Unknown {
                    what: "client",
                    name: name.clone(),
                    known: CLIENTS.map(|(known, _)| known).join(", "),
                    nearest: nearest(name, CLIENTS.iter().map(|(known, _)| *known)).map(str::to_owned),
                });
            }
        }
        self.clients = names;
        Ok(())
    }

    pub(super) fn check(&self) -> Result<(), ProfileError> {
        if self.name.trim().is_empty() || self.name.chars().any(char::is_control) {
            return Err(ProfileError::BadName(self.name.clone()));
        }
        match self.users {
            0 => Err(ProfileError::NoUsers),
            _ => Ok(()),
        }
    }
}

fn size(key: &str, text: &str, range: &str, least: f64, most: f64) -> Result<Mib, ProfileError> {
    let size = parse_size(text).map_err(|source| FigureError::Size { key: key.to_owned(), source })?;
    match (least..=most).contains(&size.get()) {
        true => Ok(size),
        false => Err(FigureError::OutOfRange {
            key: key.to_owned(),
            shown: text.trim().to_owned(),
            range: range.to_owned(),
        }
        .into()),
    }
}

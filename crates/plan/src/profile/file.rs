//! Profiles as files.
//!
//! ```toml
//! rules = "exchange-2010"
//! copies = 2
//! max-database = "1024GB"
//!
//! [[tier]]
//! name = "heavy"
//! users = 5000
//! quota = "2GB"
//! messages = 150
//! message-size = "75KB"
//! clients = ["mobile"]
//!
//! [set]
//! database_overhead = "15%"
//! ```

use super::{Profile, ProfileError, Tier, line, parse_database_max, parse_growth, parse_mode, parse_raid};
use crate::figure::NumberText;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ProfileFile {
    rules: Option<String>,
    mode: Option<String>,
    copies: Option<u32>,
    max_database: Option<String>,
    growth: Option<NumberText>,
    raid: Option<String>,
    array: Option<String>,
    link: Option<String>,
    tier: Vec<TierFile>,
    #[serde(default)]
    set: BTreeMap<String, NumberText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TierFile {
    name: Option<String>,
    users: u64,
    quota: Option<NumberText>,
    messages: Option<f64>,
    message_size: Option<NumberText>,
    concurrency: Option<NumberText>,
    growth: Option<NumberText>,
    #[serde(default)]
    clients: Vec<String>,
}

pub(super) fn parse(text: &str) -> Result<Profile, ProfileError> {
    let file: ProfileFile =
        toml::from_str(text).map_err(|error| ProfileError::Parse(crate::toml_text::problem(text, &error)))?;
    let mut profile = Profile::default();
    if let Some(rules) = file.rules {
        profile.rules = rules;
    }
    profile.mode = file.mode.as_deref().map(parse_mode).transpose()?;
    profile.copies = file.copies;
    if let Some(size) = &file.max_database {
        profile.database_max = Some(parse_database_max("max-database", size)?);
    }
    if let Some(growth) = &file.growth {
        profile.growth = parse_growth("growth", &growth.text())?;
    }
    profile.raid = file.raid.as_deref().map(parse_raid).transpose()?;
    profile.array = file.array;
    if let Some(link) = &file.link {
        line(link)?;
    }
    profile.link = file.link;
    profile.set = file.set.iter().map(|(key, value)| format!("{key}={}", value.text())).collect();
    for (index, tier) in file.tier.iter().enumerate() {
        profile.tiers.push(tier.read(index)?);
    }
    profile.check()?;
    Ok(profile)
}

impl TierFile {
    fn read(&self, index: usize) -> Result<Tier, ProfileError> {
        let name = self.name.clone().unwrap_or_else(|| format!("tier {}", index + 1));
        let key = |field: &str| format!("{name}: {field}");
        let mut tier = Tier::new(name.clone(), self.users);
        tier.check()?;
        if let Some(quota) = &self.quota {
            tier.quota(&key("quota"), &quota.text())?;
        }
        if let Some(messages) = self.messages {
            tier.messages(&key("messages"), messages)?;
        }
        if let Some(size) = &self.message_size {
            tier.message_size(&key("message-size"), &size.text())?;
        }
        if let Some(concurrency) = &self.concurrency {
            tier.concurrency(&key("concurrency"), &concurrency.text())?;
        }
        if let Some(growth) = &self.growth {
            tier.growth = Some(parse_growth(&key("growth"), &growth.text())?);
        }
        tier.clients(self.clients.clone())?;
        Ok(tier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::Mode;

    const WHOLE: &str = r#"
rules = "exchange-2013"
copies = 3
max-database = "1TB"
growth = 10
raid = "raid10"
link = "OC3"

[[tier]]
name = "office"
users = 1000
quota = "2GB"
messages = 150
message-size = "75KB"
concurrency = "80%"
clients = ["mobile", "desktop-search"]

[[tier]]
users = 50
growth = "50%"

[set]
retained_days = 30
database_overhead = "15%"
"#;

    #[test]
    fn a_file_says_all_that_flags_say_and_tiers() {
        let profile = Profile::parse(WHOLE).unwrap();
        assert_eq!(profile.mode_and_copies(), Ok((Mode::Copies, 3)));
        assert_eq!(profile.set, ["database_overhead=15%", "retained_days=30"]);
        let names: Vec<&str> = profile.tiers.iter().map(|tier| tier.name.as_str()).collect();
        assert_eq!(names, ["office", "tier 2"]);
        let office = &profile.tiers[0];
        assert_eq!((office.quota.value.get(), office.message_size.value.get()), (2048.0, 75.0));
        assert!(office.messages.given && !profile.tiers[1].messages.given);
    }

    #[track_caller]
    fn refused(change: (&str, &str), expected: &str) {
        let text = WHOLE.replacen(change.0, change.1, 1);
        assert_ne!(text, WHOLE, "{change:?}");
        assert_eq!(Profile::parse(&text).unwrap_err().to_string(), expected);
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_one_line() {
        refused(("quota =", "qouta ="), "line 12: unknown key \"qouta\"; did you mean \"quota\"?");
        refused(
            ("\"2GB\"", "2048"),
            "office: quota: \"2048\" has no unit; write KB, MB, GB or TB behind it, such as 2GB",
        );
        refused(("\"2GB\"", "\"0GB\""), "office: quota: 0GB is out of range, 1KB to 1,024TB make sense");
        refused(
            ("users = 1000", "users = 0"),
            "there are no users to plan for; say how many, such as --users 5000",
        );
        refused(
            ("users = 1000", "users = -4"),
            "line 11: invalid value: integer `-4`, expected a whole number from 0 on",
        );
        refused(
            ("= 150", "= -1"),
            "office: messages: -1 is out of range, 0.001 to 1,000,000 a day make sense",
        );
        refused(
            ("= 150", "= nan"),
            "office: messages: – is out of range, 0.001 to 1,000,000 a day make sense",
        );
        refused(
            ("= 150", "= 1e-300"),
            "office: messages: <0.00001 is out of range, 0.001 to 1,000,000 a day make sense",
        );
        refused(
            ("name = \"office\"", "name = \"a\\u001b[31m\""),
            "a tier is called \"a\\u{1b}[31m\"; give it a name of letters, digits and the like",
        );
        refused(
            ("name = \"office\"", "name = \" \""),
            "a tier is called \" \"; give it a name of letters, digits and the like",
        );
        refused(
            ("quota = \"2GB\"", "quota = true"),
            "line 12: a number, or a text of one with its unit, is expected here",
        );
        refused(
            ("\"1TB\"", "\"1KB\""),
            "max-database: <0.00001 GB is out of range, 1MB to 1,000,000,000GB make sense",
        );
        refused(
            ("\"80%\"", "0.8"),
            "office: concurrency: 0.8 may mean 0.8% or 80%; write \"0.8%\" or \"80%\"",
        );
        refused(
            ("growth = 10", "growth = 0.1"),
            "growth: 0.1 may mean 0.1% or 10%; write \"0.1%\" or \"10%\"",
        );
        refused(("\"80%\"", "\"180%\""), "office: concurrency: 180% is out of range, 0% to 100% make sense");
        refused(("\"mobile\"", "\"mobil\""), "no client is called \"mobil\"; did you mean \"mobile\"?");
        refused(("\"OC3\"", "\"OC4\""), "no line is called \"OC4\"; did you mean \"oc3\"?");
        refused(
            ("copies = 3", "copies = 0"),
            "0 copies keep nothing; 1 is a database without a further copy",
        );
        refused(
            ("copies = 3", "copies = 2\nmode = \"stand-alone\""),
            "mode stand-alone with 2 copies; more copies are mode copies",
        );
        refused(
            ("copies = 3", "copies = 1\nmode = \"copies\""),
            "mode copies with 1 copy; at least 2 copies are needed for it",
        );
        refused(
            ("copies = 3", "mode = \"stand-alonee\""),
            "no mode is called \"stand-alonee\"; did you mean \"stand-alone\"?",
        );
    }
}

//! Plans as tests ask for them.

use plan::{answer::StoragePlan, catalogue::Catalogue, demand::Demand, profile::Profile, rules::Rules};

/// Users of the Dell paper's example (Dell 2010, section 3.4.2): 5000 with 2 GB, 150 messages of 75 KB.
pub const DELL: &str = r#"
rules = "exchange-2010"
copies = 2
max-database = "1024GB"

[[tier]]
name = "all"
users = 5000
quota = "2GB"
messages = 150
message-size = "75KB"
"#;

/// Needs of the profile `text`, with the figures of `set` changed.
pub fn planned(text: &str, set: &[&str]) -> Demand {
    let mut profile = Profile::parse(text).expect("a profile");
    profile.set.extend(set.iter().map(|&assignment| assignment.to_owned()));
    let rules = Rules::named(&profile.rules).expect("a rule set");
    Demand::of(&profile, rules).expect("a plan")
}

/// The whole plan of the profile `text`, with the figures changed that `set` names.
pub fn answered(text: &str, set: &[&str]) -> StoragePlan {
    let mut profile = Profile::parse(text).expect("a profile");
    profile.set.extend(set.iter().map(|&assignment| assignment.to_owned()));
    let rules = Rules::named(&profile.rules).expect("a rule set");
    StoragePlan::of(profile, rules, &Catalogue::built_in()).expect("a plan")
}

/// A profile of `users` alike.
pub fn users(rules: &str, users: u64, quota: &str, messages: u32, more: &str) -> String {
    format!(
        "rules = \"{rules}\"\n{more}\n[[tier]]\nusers = {users}\nquota = \"{quota}\"\nmessages = {messages}\nmessage-size = \"75KB\"\n"
    )
}

/// Holds numbers of `demand` to printed ones: as many decimals as are printed must be the same.
#[track_caller]
pub fn check(demand: &Demand, printed: &[(&str, &str)]) {
    for (id, expected) in printed {
        let decimals = expected.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        let value = demand.sheet.get(id);
        assert_eq!(format!("{value:.decimals$}"), *expected, "{id} is {value}");
    }
}

//! Contradictions within the notifiers of a site.

use super::Site;
use std::collections::BTreeSet;

impl Site {
    /// The first fallback that is not there; none if all are. What each kind of notifier needs is the daemon's to check.
    pub(super) fn notifier_fault(&self) -> Option<String> {
        let names: BTreeSet<&String> = self.notifiers.iter().map(|notifier| &notifier.name).collect();
        let missing =
            self.notifiers.iter().find(|one| !one.fallback.is_empty() && !names.contains(&one.fallback));
        missing
            .map(|one| format!("notifier {:?} has fallback {:?}, which is not there", one.name, one.fallback))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_fallbacks_are_there() {
        let read = |text: &str| Site::from_toml(text).map_err(|error| error.to_string());
        let two = "[[notify]]\nname = 'ops'\nfallback = 'mail'\n[[notify]]\nname = 'mail'\n";
        assert!(read(two).is_ok());
        for (from, to, fault) in [
            ("name = 'mail'", "name = 'ops'", "two notifiers are called \"ops\""),
            ("fallback = 'mail'", "fallback = 'sms'", "has fallback \"sms\", which is not there"),
            ("name = 'mail'", "", "a notifier has no name"),
        ] {
            let refused = read(&two.replacen(from, to, 1)).unwrap_err();
            assert!(refused.contains(fault), "{refused}");
        }
    }
}

//! The rules on a line between two sites, for one that was measured.

use super::{Advice, advise};
use crate::site::Site;

/// Rules on a line: its round trip, its rate, its paths, and what is kept while it is down.
pub const LINE_RULES: [&str; 5] =
    ["round-trip", "link-over-provisioned", "link-redundant", "link-without-a-path", "write-history-room"];
/// Rules that a line may break and still carry replication: it has no path to spare.
const BESIDE: &str = "link-redundant";

impl Advice {
    /// Its words on the line alone.
    pub fn on_line(mut self) -> Self {
        let is_of_line = |id: &str| LINE_RULES.contains(&id);
        self.findings.retain(|finding| is_of_line(&finding.id));
        self.passed.retain(|id| is_of_line(id));
        self.not_applicable.retain(|id| is_of_line(id));
        self.skipped.retain(|rule| is_of_line(&rule.id));
        self
    }

    /// True if the line carries replication: of the rules on lines none is broken, but that on a single path may be.
    pub fn line_carries(&self) -> bool {
        self.findings.iter().all(|finding| !LINE_RULES.contains(&finding.id.as_str()) || finding.id == BESIDE)
    }
}

/// Holds the line of `site` against the rules on lines.
pub fn advise_on_line(site: &Site) -> Advice {
    advise(site, None).on_line()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{advice::rules, site::MeasuredLink};

    /// The rules that a line breaks.
    fn broken(rtt_ms: f64, mbit_each: f64, paths: u32, groups: u64, needed: f64) -> (bool, Vec<String>) {
        let measured = MeasuredLink { rtt_ms, mbit_each, paths };
        let mut site = measured.put_into(Site::default()).unwrap();
        site.databases.storage_groups = Some(groups);
        site.links[0].needed_mbit = Some(needed);
        let advice = advise_on_line(&site);
        (advice.line_carries(), advice.findings.into_iter().map(|finding| finding.id).collect())
    }

    #[test]
    fn a_measured_line_is_judged_by_the_rules_of_advise() {
        let single = "link-redundant".to_owned();
        assert_eq!(broken(7.9, 48.0, 1, 8, 40.0), (true, vec![single.clone()]));
        assert_eq!(broken(7.9, 48.0, 2, 4, 40.0), (false, vec!["round-trip".to_owned()]));
        assert_eq!(
            broken(1.0, 47.9, 1, 8, 40.0),
            (false, vec!["link-over-provisioned".to_owned(), single.clone()])
        );
        assert_eq!(broken(1.0, 39.0, 2, 8, 40.0), (false, vec!["link-without-a-path".to_owned()]));
        assert_eq!(broken(1.0, 48.0, 2, 8, 40.0), (true, Vec::new()));
    }

    #[test]
    fn each_rule_on_lines_is_a_rule() {
        let known: Vec<String> = rules().into_iter().map(|rule| rule.id).collect();
        assert!(LINE_RULES.iter().all(|id| known.iter().any(|known| known == id)), "{known:?}");
    }
}

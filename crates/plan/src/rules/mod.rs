//! The figures of a mail server, by the name of a rule set.
//!
//! All are data: `common.toml` declares every figure with its meaning, unit, range and a value; a rule set changes
//! values. A file of one's own may change them again, and `--set` has the last word.

mod file;

pub use file::RulesError;

use crate::figure::{Confidence, Curve, Figure, FigureError, GIVEN, nearest, parse_number};
use file::{Common, RuleFile};

const COMMON: &str = include_str!("common.toml");

const BUILT_IN: [(&str, &str); 5] = [
    ("exchange-2003", include_str!("exchange-2003.toml")),
    ("exchange-2007", include_str!("exchange-2007.toml")),
    ("exchange-2010", include_str!("exchange-2010.toml")),
    ("exchange-2013", include_str!("exchange-2013.toml")),
    ("open-mail", include_str!("open-mail.toml")),
];

/// The rule set that is meant if none is named: the one with the most printed sources.
pub const DEFAULT: &str = "exchange-2010";

/// Every figure of one mail server.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Short name, as in `--rules exchange-2010`.
    pub name: String,
    /// Of which mail server.
    pub title: String,
    figures: Vec<Figure>,
    curves: Vec<Curve>,
}

/// Servers without figures of their own, and the rule set that stands for each.
const ALIASES: [(&str, &str); 2] = [("exchange-2016", "exchange-2013"), ("exchange-2019", "exchange-2013")];

impl Rules {
    /// The names of the built-in rule sets.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// The built-in rule set called `name`, in any case.
    pub fn named(name: &str) -> Result<Self, RulesError> {
        let lower = name.to_ascii_lowercase();
        let alias = ALIASES.iter().find(|(alias, _)| *alias == lower);
        let wanted = alias.map_or(lower.as_str(), |(_, stands)| *stands);
        let found = BUILT_IN.iter().find(|(known, _)| *known == wanted);
        let Some((_, text)) = found else {
            let nearest = nearest(name, Self::names()).map(str::to_owned);
            return Err(RulesError::Unknown { name: name.to_owned(), nearest });
        };
        let common: Common = toml::from_str(COMMON).expect("the common figures parse; a test sees to it");
        let mut rules =
            Self { name: String::new(), title: String::new(), figures: common.figure, curves: Vec::new() };
        for curve in common.curve {
            rules.take_curve(curve).expect("the common curves are good; a test sees to it");
        }
        let file: RuleFile = toml::from_str(text).expect("a built-in rule set parses; a test sees to it");
        rules.take(file).expect("a built-in rule set is good; a test sees to it");
        Ok(rules)
    }

    /// A rule set of one's own: the `text` of a file that names the one it is `based_on` and changes some figures.
    pub fn parse(text: &str) -> Result<Self, RulesError> {
        let file: RuleFile = toml::from_str(text).map_err(|error| RulesError::parse(text, &error))?;
        let mut rules = Self::named(file.based_on.as_deref().unwrap_or(DEFAULT))?;
        rules.take(file)?;
        Ok(rules)
    }

    fn take(&mut self, file: RuleFile) -> Result<(), RulesError> {
        for change in file.figure {
            let figure = self.figure_mut(&change.key)?;
            let value = figure.read(&change.value)?;
            figure.change(value, &change.source, change.confidence)?;
        }
        for curve in file.curve {
            self.take_curve(curve)?;
        }
        self.name = file.name;
        self.title = file.title;
        Ok(())
    }

    fn take_curve(&mut self, change: file::CurveChange) -> Result<(), RulesError> {
        let place = self.curves.iter().position(|curve| curve.key == change.key);
        let curve = change.over(place.map(|at| &self.curves[at]));
        let Some(curve) = curve else { return Err(self.unknown(&change.key).into()) };
        if place.is_some_and(|at| self.curves[at].unit != curve.unit) {
            // Formulas count on the unit.
            let problem = "its unit is not the one it has in the rule set it is based on";
            return Err(FigureError::Curve { key: curve.key, problem }.into());
        }
        curve.check().map_err(|problem| FigureError::Curve { key: curve.key.clone(), problem })?;
        match place {
            Some(at) => self.curves[at] = curve,
            None => self.curves.push(curve),
        }
        Ok(())
    }

    /// Changes what `assignment` (`database_overhead=15%`) says. A curve becomes the same everywhere.
    pub fn set(&mut self, assignment: &str) -> Result<(), FigureError> {
        let Some((key, text)) = assignment.split_once('=') else {
            return Err(FigureError::NoAssignment(assignment.to_owned()));
        };
        let key = key.trim();
        if let Some(curve) = self.curves.iter_mut().find(|curve| curve.key == key) {
            let value = parse_number(key, text, &curve.unit)?;
            let mut flat = curve.clone();
            flat.flatten(value, GIVEN, Confidence::Given);
            flat.check().map_err(|problem| FigureError::Curve { key: key.to_owned(), problem })?;
            *curve = flat;
            return Ok(());
        }
        let figure = self.figure_mut(key)?;
        let value = parse_number(key, text, &figure.unit)?;
        figure.change(value, GIVEN, Confidence::Given)
    }

    /// Every figure, in the order they are declared.
    pub fn figures(&self) -> &[Figure] {
        &self.figures
    }

    pub fn curves(&self) -> &[Curve] {
        &self.curves
    }

    /// The figure called `key`, if there is one.
    pub fn figure(&self, key: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.key == key)
    }

    /// The curve called `key`, if there is one.
    pub fn curve(&self, key: &str) -> Option<&Curve> {
        self.curves.iter().find(|curve| curve.key == key)
    }

    /// The value of `key` as formulas take it.
    ///
    /// # Panics
    /// If no figure is called so: the formula that asks is wrong.
    pub fn value(&self, key: &str) -> f64 {
        self.figure(key).unwrap_or_else(|| panic!("no figure is called {key}")).in_formulas()
    }

    fn figure_mut(&mut self, key: &str) -> Result<&mut Figure, FigureError> {
        match self.figures.iter().position(|figure| figure.key == key) {
            Some(at) => Ok(&mut self.figures[at]),
            None => Err(self.unknown(key)),
        }
    }

    fn unknown(&self, name: &str) -> FigureError {
        let figures = self.figures.iter().map(|figure| figure.key.as_str());
        let keys = figures.chain(self.curves.iter().map(|curve| curve.key.as_str()));
        FigureError::Unknown { name: name.to_owned(), nearest: nearest(name, keys).map(str::to_owned) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_set_is_whole_and_every_figure_has_a_source_and_makes_sense() {
        for name in Rules::names() {
            let rules = Rules::named(name).unwrap();
            assert_eq!(rules.name, name);
            for figure in rules.figures() {
                let bounds = figure.least..=figure.most;
                assert!(bounds.contains(&figure.value), "{name}: {}", figure.key);
                assert!(!figure.source.is_empty() && !figure.meaning.is_empty(), "{name}: {}", figure.key);
                assert!(figure.confidence != Confidence::Given, "{name}: {}", figure.key);
            }
            let curves: Vec<&str> = rules.curves().iter().map(|curve| curve.key.as_str()).collect();
            let all = [
                "log_size_factor",
                "cache_per_mailbox",
                "ram_for_cache",
                "ram_for_databases",
                "iops_per_mailbox",
            ];
            assert_eq!(curves, all, "{name}");
            assert!(rules.curves().iter().all(|curve| !curve.source.is_empty() && curve.check().is_ok()));
        }
    }

    #[test]
    fn no_figure_is_declared_twice() {
        let rules = Rules::named(DEFAULT).unwrap();
        let mut keys: Vec<&str> = rules.figures().iter().map(|figure| figure.key.as_str()).collect();
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn a_file_of_ones_own_changes_what_it_names_and_nothing_else() {
        let own = r#"
            name = "ours"
            title = "Ours"
            based_on = "exchange-2013"
            [[figure]]
            key = "retained_days"
            value = 30
            source = "our policy"
            confidence = "given"
        "#;
        let (ours, theirs) = (Rules::parse(own).unwrap(), Rules::named("exchange-2013").unwrap());
        let differ = ours.figures().iter().zip(theirs.figures()).filter(|(ours, theirs)| ours != theirs);
        let differ: Vec<String> = differ.map(|(ours, _)| format!("{} {}", ours.key, ours.shown())).collect();
        assert_eq!(differ, ["retained_days 30 days"]);
        assert_eq!(ours.curves(), theirs.curves());
    }

    #[test]
    fn what_is_wrong_with_a_rule_file_is_one_line() {
        let said = |text: &str| Rules::parse(text).unwrap_err().to_string();
        let head = "name = \"a\"\ntitle = \"A\"\n";
        let figure = |key: &str, value: &str| {
            format!(
                "{head}[[figure]]\nkey = \"{key}\"\nvalue = {value}\nsource = \"s\"\nconfidence = \"given\"\n"
            )
        };
        assert_eq!(
            said(&figure("retaned_days", "1")),
            "no figure is called \"retaned_days\"; did you mean \"retained_days\"?"
        );
        assert_eq!(
            said(&figure("retained_days", "-1")),
            "retained_days: -1 days is out of range, 0 days to 3,650 days make sense"
        );
        assert_eq!(
            said(&figure("retained_days", "nan")),
            "retained_days: – days is out of range, 0 days to 3,650 days make sense"
        );
        assert_eq!(
            said("based_on = \"exchange-2012\"\nname = \"\"\ntitle = \"\""),
            "no rule set is called \"exchange-2012\"; did you mean \"exchange-2013\"?"
        );
        assert_eq!(
            said(&format!("{head}[[figures]]\n")),
            "line 3: unknown key \"figures\"; did you mean \"figure\"?"
        );
    }

    #[test]
    fn percent_of_a_rule_file_may_be_written_and_below_1_must_be() {
        let of = |value: &str| {
            let text = format!(
                "name = \"a\"\ntitle = \"A\"\n[[figure]]\nkey = \"database_overhead\"\nvalue = {value}\n\
                 source = \"s\"\nconfidence = \"given\"\n"
            );
            let rules = Rules::parse(&text).map_err(|error| error.to_string())?;
            Ok(rules.figure("database_overhead").expect("declared").value)
        };
        assert_eq!(
            [of("15"), of("\"15%\""), of("\"0.15%\""), of("0")],
            [Ok(15.0), Ok(15.0), Ok(0.15), Ok(0.0)]
        );
        let refused = "database_overhead: 0.15 may mean 0.15% or 15%; write \"0.15%\" or \"15%\"";
        assert_eq!(of("0.15"), Err(refused.to_owned()));
    }

    #[test]
    fn a_curve_of_ones_own_keeps_its_unit_and_stays_within_what_can_be_counted() {
        let said = |key: &str, unit: &str, points: &str, source: &str| {
            let text = format!(
                "name = \"a\"\ntitle = \"A\"\n[[curve]]\nkey = \"{key}\"\nby = \"messages a day\"\nunit = \"{unit}\"\n\
                 kind = \"line\"\npoints = [{points}]\nsource = \"{source}\"\nconfidence = \"given\"\n"
            );
            Rules::parse(&text).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(said("cache_per_mailbox", "MB", "{ at = 50, value = 4 }", "ours"), Ok(()));
        for spelling in ["IOPS", "I/O/s"] {
            assert_eq!(said("iops_per_mailbox", spelling, "{ at = 50, value = 0.1 }", "ours"), Ok(()));
        }
        assert_eq!(
            said("cache_per_mailbox", "GB", "{ at = 50, value = 4 }", "ours").unwrap_err(),
            "cache_per_mailbox: its unit is not the one it has in the rule set it is based on"
        );
        assert_eq!(
            said("iops_per_mailbox", "IOPS", "{ at = 1e-300, value = 1e300 }", "ours").unwrap_err(),
            "iops_per_mailbox: its values are up to 1,000,000,000, and nothing in it is less than a billionth and not 0"
        );
        assert_eq!(
            said("iops_per_mailbox", "IOPS", "{ at = 50, value = 1 }", "").unwrap_err(),
            "iops_per_mailbox: it has no source; say where its points are from"
        );
    }

    #[test]
    fn set_has_the_last_word_and_says_who_spoke() {
        let mut rules = Rules::named("exchange-2010").unwrap();
        rules.set("database_overhead=0%").unwrap();
        rules.set("iops_per_mailbox = 0.45").unwrap();
        let overhead = rules.figure("database_overhead").unwrap();
        assert_eq!((overhead.value, overhead.source.as_str()), (0.0, GIVEN));
        assert_eq!(rules.curve("iops_per_mailbox").unwrap().at(1e6), 0.45);
        let said = |assignment: &str| rules.clone().set(assignment).unwrap_err().to_string();
        assert_eq!(
            said("databse_overhead=1"),
            "no figure is called \"databse_overhead\"; did you mean \"database_overhead\"?"
        );
        assert_eq!(
            said("backup_rate=10"),
            "backup_rate: \"10\" has no unit; write KB, MB, GB or TB behind it, such as 2GB"
        );
        assert_eq!(
            said("databases_per_log=2.5"),
            "databases_per_log: 2.5 is not a whole number, and it counts what comes whole"
        );
        assert_eq!(
            said(&format!("iops_per_mailbox={}", "9".repeat(300))),
            "iops_per_mailbox: its values are up to 1,000,000,000, and nothing in it is less than a billionth and not 0"
        );
        assert_eq!(
            said("retained_days"),
            "\"retained_days\" sets nothing; write a name and a value, such as database_overhead=15%"
        );
    }
}

//! The sheet a plan is computed on: every number that was given or derived, in order.

use super::formula::{Formula, Names};
use crate::{
    figure::{Confidence, factor, nearest, with_unit},
    rules::Rules,
};
use serde::Serialize;

/// One derived number: its formula and the formula's source.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Its short name, in capitals: `DSU`.
    pub id: &'static str,
    pub title: &'static str,
    /// Its unit; `%` counts hundredths.
    pub unit: &'static str,
    /// Formula over names that are already on the sheet.
    pub formula: &'a str,
    pub source: &'a str,
    pub confidence: Confidence,
}

impl Step<'static> {
    /// A step as a seed paper has it, at `source`.
    pub fn seed(
        id: &'static str,
        title: &'static str,
        unit: &'static str,
        formula: &'static str,
        source: &'static str,
    ) -> Self {
        Self { id, title, unit, formula, source, confidence: Confidence::Seed }
    }

    /// A step that follows from what its words mean.
    pub fn plain(
        id: &'static str,
        title: &'static str,
        unit: &'static str,
        formula: &'static str,
        why: &'static str,
    ) -> Self {
        Self { id, title, unit, formula, source: why, confidence: Confidence::Computed }
    }
}

/// One number of a plan, with all it takes to believe it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Derived {
    /// Its short name: `DSU`.
    pub id: &'static str,
    /// Whose number it is, if each tier of users has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    pub title: &'static str,
    /// Part of the plan it belongs to.
    pub activity: &'static str,
    /// The formula, with names; empty if the number was given.
    pub formula: String,
    /// The formula with numbers; empty if the number was given.
    pub put_in: String,
    /// Values of the names in the formula.
    pub inputs: Vec<Input>,
    /// The result, in `unit`.
    pub value: f64,
    pub unit: &'static str,
    /// Source of the formula.
    pub source: String,
    /// Confidence: that of its weakest input at most.
    pub confidence: Confidence,
    #[serde(skip)]
    tier_index: Option<usize>,
}

impl Derived {
    /// With its unit.
    pub fn shown(&self) -> String {
        with_unit(self.value, self.unit)
    }
}

/// Value of a name in a formula.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Input {
    pub name: String,
    pub meaning: String,
    /// Its value, as people read it.
    pub shown: String,
    pub source: String,
    pub confidence: Confidence,
}

/// Every number of a plan. Steps are added and never changed.
#[derive(Clone, Debug)]
pub struct Sheet {
    rules: Rules,
    tiers: Vec<String>,
    activity: &'static str,
    all: Vec<Derived>,
}

impl Sheet {
    /// An empty sheet for users in these `tiers`.
    pub fn new(rules: Rules, tiers: Vec<String>) -> Self {
        assert!(!tiers.is_empty(), "there is a tier of users");
        Self { rules, tiers, activity: "", all: Vec::new() }
    }

    /// The figures behind it.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Every number, in the order they came.
    pub fn all(&self) -> &[Derived] {
        &self.all
    }

    /// Assigns all further steps to `activity`.
    pub fn begin(&mut self, activity: &'static str) {
        self.activity = activity;
    }

    /// Takes a number that was given for `tier`, or for all.
    pub fn give(&mut self, tier: Option<usize>, step: Step<'_>, value: f64, source: &str) {
        assert!(value.is_finite(), "{}: {value}", step.id);
        self.put(Derived {
            id: step.id,
            tier: None,
            title: step.title,
            activity: self.activity,
            formula: String::new(),
            put_in: String::new(),
            inputs: Vec::new(),
            value,
            unit: step.unit,
            source: source.to_owned(),
            confidence: step.confidence,
            tier_index: tier,
        });
    }

    /// Derives one number for all users, and gives it.
    pub fn derive(&mut self, step: Step<'_>) -> f64 {
        self.derive_in(None, step)
    }

    /// Derives a number for each tier of users.
    pub fn derive_each(&mut self, step: Step<'_>) {
        for tier in 0..self.tiers.len() {
            self.derive_in(Some(tier), step);
        }
    }

    /// Derives a number for one tier of users, where each has a formula of its own.
    pub fn derive_for(&mut self, tier: usize, step: Step<'_>) {
        assert!(tier < self.tiers.len(), "there is no tier {tier}");
        self.derive_in(Some(tier), step);
    }

    fn derive_in(&mut self, tier: Option<usize>, step: Step<'_>) -> f64 {
        let formula = Formula::read(step.formula);
        let value = formula.compute(self, tier) / factor(step.unit);
        assert!(value.is_finite() && value >= 0.0, "{} = {} is {value}", step.id, step.formula);
        let inputs: Vec<Input> = formula.names().iter().flat_map(|name| self.inputs(name, tier)).collect();
        let confidence = inputs.iter().fold(step.confidence, |worst, input| worst.weaker(input.confidence));
        self.put(Derived {
            id: step.id,
            tier: None,
            title: step.title,
            activity: self.activity,
            formula: formula.written(),
            put_in: formula.put_in(self, tier),
            inputs,
            value,
            unit: step.unit,
            source: step.source.to_owned(),
            confidence,
            tier_index: tier,
        });
        value
    }

    fn put(&mut self, mut derived: Derived) {
        let known = self.all.iter().any(|one| one.id == derived.id && one.tier_index == derived.tier_index);
        assert!(!known, "{} is derived twice", derived.id);
        if self.tiers.len() > 1 {
            derived.tier = derived.tier_index.map(|tier| self.tiers[tier].clone());
        }
        self.all.push(derived);
    }

    /// The number called `id`, of the first tier if each has its own.
    ///
    /// # Panics
    /// If there is none: the caller is wrong.
    pub fn get(&self, id: &str) -> f64 {
        self.all.iter().find(|one| one.id == id).unwrap_or_else(|| panic!("{id} was not derived")).value
    }

    /// Every number called `id` (any case), one for each tier; or the nearest name there is.
    pub fn find(&self, id: &str) -> Result<Vec<&Derived>, Option<&'static str>> {
        let found: Vec<&Derived> = self.all.iter().filter(|one| one.id.eq_ignore_ascii_case(id)).collect();
        match found.is_empty() {
            false => Ok(found),
            true => Err(nearest(&id.to_ascii_uppercase(), self.all.iter().map(|one| one.id))),
        }
    }

    fn number(&self, name: &str, tier: Option<usize>) -> Option<&Derived> {
        let of =
            |tier: Option<usize>| self.all.iter().find(move |one| one.id == name && one.tier_index == tier);
        tier.and_then(|tier| of(Some(tier))).or_else(|| of(None))
    }

    /// Inputs behind `name`: one a tier where tiers are added up.
    fn inputs(&self, name: &str, tier: Option<usize>) -> Vec<Input> {
        if let Some(figure) = self.rules.figure(name) {
            return vec![Input {
                name: name.to_owned(),
                meaning: figure.meaning.clone(),
                shown: figure.shown(),
                source: figure.source.clone(),
                confidence: figure.confidence,
            }];
        }
        if let Some(curve) = self.rules.curve(name) {
            return vec![Input {
                name: name.to_owned(),
                meaning: format!("{}, by {}", curve.meaning, curve.by),
                shown: curve.shown(),
                source: curve.source.clone(),
                confidence: curve.confidence,
            }];
        }
        let numbers: Vec<&Derived> = match self.number(name, tier) {
            Some(one) => vec![one],
            None => self.all.iter().filter(|one| one.id == name).collect(),
        };
        let input = |one: &Derived| Input {
            name: one.tier.as_ref().map_or(name.to_owned(), |tier| format!("{name} ({tier})")),
            meaning: one.title.to_owned(),
            shown: one.shown(),
            source: if one.formula.is_empty() { one.source.clone() } else { "derived above".to_owned() },
            confidence: one.confidence,
        };
        numbers.into_iter().map(input).collect()
    }
}

impl Names for Sheet {
    fn value(&self, name: &str, tier: Option<usize>) -> Option<f64> {
        if let Some(one) = self.number(name, tier) {
            return Some(one.value * factor(one.unit));
        }
        self.rules.figure(name).map(|figure| figure.in_formulas())
    }

    fn shown(&self, name: &str, tier: Option<usize>) -> String {
        let (value, unit) = match self.number(name, tier) {
            Some(one) => (one.value, one.unit),
            None => {
                let figure = self.rules.figure(name).expect("it was computed with");
                (figure.value, figure.unit.as_str())
            }
        };
        // Units would drown the numbers; percent is part of how they are written.
        with_unit(value, if unit == "%" { "%" } else { "" })
    }

    fn curve(&self, name: &str, place: f64) -> Option<f64> {
        self.rules.curve(name).map(|curve| curve.at(place))
    }

    fn tiers(&self) -> usize {
        self.tiers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(id: &'static str, formula: &'static str) -> Step<'static> {
        Step { id, title: "it", unit: "MB", formula, source: "somewhere", confidence: Confidence::Seed }
    }

    fn sheet(tiers: &[&str]) -> Sheet {
        let tiers = tiers.iter().map(|&name| name.to_owned()).collect();
        Sheet::new(Rules::named("exchange-2010").unwrap(), tiers)
    }

    #[test]
    fn a_number_shows_the_formula_it_was_computed_by() {
        let mut sheet = sheet(&["all"]);
        sheet.give(Some(0), step("MSR", ""), 150.0, "given");
        sheet.derive_each(step("WSU", "MSR * 75 / 1024 * (1 + database_overhead)"));
        let found = sheet.find("wsu").unwrap();
        assert_eq!(found[0].formula, "MSR × 75 / 1024 × (1 + database_overhead)");
        assert_eq!(found[0].put_in, "150 × 75 / 1024 × (1 + 20 %)");
        assert_eq!(found[0].shown(), "13.18 MB");
        assert_eq!(sheet.find("WSV").unwrap_err(), Some("WSU"));
    }

    #[test]
    fn what_rests_on_a_weak_figure_is_weak_itself() {
        let mut sheet = sheet(&["all"]);
        sheet.derive(step("A", "1 + database_overhead"));
        sheet.derive(step("B", "A * client_mobile"));
        sheet.derive(step("C", "B + 1"));
        let marks = sheet.all().iter().map(|one| one.confidence).collect::<Vec<_>>();
        assert_eq!(marks, [Confidence::Seed, Confidence::Assumed, Confidence::Assumed]);
    }

    #[test]
    fn tiers_have_their_own_numbers_and_add_up() {
        let mut sheet = sheet(&["light", "heavy"]);
        for (tier, users) in [(0, 10.0), (1, 30.0)] {
            sheet.give(Some(tier), step("NU", ""), users, "given");
        }
        sheet.derive(step("ALL", "total(NU)"));
        let all = sheet.find("ALL").unwrap()[0];
        assert_eq!((all.value, all.put_in.as_str()), (40.0, "10 + 30"));
        let names: Vec<&str> = all.inputs.iter().map(|input| input.name.as_str()).collect();
        assert_eq!(names, ["NU (light)", "NU (heavy)"]);
    }

    #[test]
    #[should_panic(expected = "stands for nothing")]
    fn a_formula_cannot_use_what_comes_after_it() {
        sheet(&["all"]).derive(step("A", "B + 1"));
    }
}

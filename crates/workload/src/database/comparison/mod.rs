//! Comparison of several runs: settings that differ, results, and the first saturated resource.
//!
//! [`settings`] finds the varied setting; [`figures`] takes from each run the figures that the papers
//! compared; [`likeness`] finds other differences; [`saturation`] names the resource that ended the growth,
//! with its evidence; [`document`](mod@document) builds the report.

pub mod document;
pub mod figures;
pub mod likeness;
pub mod saturation;
pub mod settings;

use super::{
    results::RunResults,
    verdict::{Answer, Verdict},
};
use figures::Figures;
use settings::Varied;

/// A lighter load is as good as a heavier one if it reaches this share of its IOPS, in percent: the knee of
/// the curve.
const AS_GOOD_PERCENT: f64 = 95.0;

/// One run of a comparison.
#[derive(Clone, Debug)]
pub struct ComparedRun {
    /// Name of the run's record; used where the varied setting does not identify the run.
    pub name: String,
    pub results: RunResults,
    pub verdict: Verdict,
}

/// Runs in the order of the varied setting.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub runs: Vec<ComparedRun>,
    pub varied: Varied,
    /// One for each run.
    pub figures: Vec<Figures>,
}

impl Comparison {
    /// Compares `runs`, given in any order.
    ///
    /// # Panics
    /// If there are none.
    pub fn of(mut runs: Vec<ComparedRun>) -> Self {
        assert!(!runs.is_empty(), "there is something to compare");
        let mut varied = Varied::among(&runs);
        if let Some(places) = &varied.places {
            let mut order: Vec<usize> = (0..runs.len()).collect();
            order.sort_by(|one, other| places[*one].total_cmp(&places[*other]));
            runs = order.into_iter().map(|index| runs[index].clone()).collect();
            varied = Varied::among(&runs);
        }
        let figures = runs.iter().map(|run| Figures::of(&run.results)).collect();
        Self { runs, varied, figures }
    }

    /// The best run: among those that passed, the lightest whose IOPS come near the maximum. None if none
    /// passed, or if the runs differ in limits or kind of load.
    pub fn best(&self) -> Option<usize> {
        if likeness::unlike(self).iter().any(|unlike| unlike.what.forbids_best()) {
            return None;
        }
        let passed = |index: &usize| self.runs[*index].verdict.answer == Answer::Pass;
        let iops = |index: usize| self.figures[index].iops.unwrap_or(0.0);
        let most = (0..self.runs.len()).filter(passed).map(iops).fold(0.0, f64::max);
        (0..self.runs.len()).filter(passed).find(|&index| iops(index) >= most * AS_GOOD_PERCENT / 100.0)
    }

    /// Name of run `index`: `20 threads a group`, or the name of its record.
    pub fn title(&self, index: usize) -> String {
        let label = &self.varied.labels[index];
        match self.varied.setting {
            Some(setting) => settings::in_words(setting, label),
            None => label.clone(),
        }
    }
}

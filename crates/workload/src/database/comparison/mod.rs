//! Comparison of several runs: settings that differ, results, and the first saturated resource.
//!
//! [`settings`] finds the varied setting; [`figures`](super::results::figures) takes from each run the figures that the papers
//! compared; [`comparability`] finds other differences; [`saturation`] names the resource that ended the growth,
//! with its evidence; [`document`](mod@document) builds the report.

pub mod comparability;
pub mod document;
pub mod saturation;
pub mod settings;

use crate::database::comparison::settings::VariedSetting;
use crate::database::results::figures::RunFigures;
use crate::{
    database::results::RunResults,
    verdict::{RunVerdict, VerdictOutcome},
};

/// A lighter load is as good as a heavier one if it reaches this share of its IOPS, in percent: the knee of
/// the curve.
const AS_GOOD_PERCENT: f64 = 95.0;

/// One run of a comparison.
#[derive(Clone, Debug)]
pub struct ComparedRun {
    /// Name of the run's record; used where the varied setting does not identify the run.
    pub name: String,
    pub results: RunResults,
    pub verdict: RunVerdict,
}

/// Runs in the order of the varied setting.
#[derive(Clone, Debug)]
pub struct RunComparison {
    pub runs: Vec<ComparedRun>,
    pub varied: VariedSetting,
    /// One for each run.
    pub figures: Vec<RunFigures>,
}

impl RunComparison {
    /// Compares `runs`, given in any order.
    ///
    /// # Panics
    /// If there are none.
    pub fn of(mut runs: Vec<ComparedRun>) -> Self {
        assert!(!runs.is_empty(), "there is something to compare");
        let mut varied = VariedSetting::among(&runs);
        if let Some(places) = &varied.places {
            let mut order: Vec<usize> = (0..runs.len()).collect();
            order.sort_by(|one, other| places[*one].total_cmp(&places[*other]));
            runs = order.into_iter().map(|index| runs[index].clone()).collect();
            varied = VariedSetting::among(&runs);
        }
        let figures = runs.iter().map(|run| RunFigures::of(&run.results)).collect();
        Self { runs, varied, figures }
    }

    /// The best run: among those that passed, the lightest whose IOPS come near the maximum. None if none
    /// passed, or if the runs differ in limits or kind of load.
    pub fn best(&self) -> Option<usize> {
        if comparability::mismatches(self).iter().any(|mismatch| mismatch.what.forbids_best()) {
            return None;
        }
        let passed = |index: &usize| self.runs[*index].verdict.answer == VerdictOutcome::Pass;
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

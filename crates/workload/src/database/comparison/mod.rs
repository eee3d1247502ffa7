//! Several runs side by side: what differs between them, what each reached, and what saturated first.
//!
//! [`settings`] finds what was varied; [`figures`] takes from each run's results what the papers compared;
//! [`likeness`] says in what they are unlike beside that; [`saturation`] names the resource that ended the growth, with its evidence; [`document`](mod@document)
//! draws the curves.

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

/// Of two loads, the lighter one is as good if it reaches this share of the other's I/O: the knee of the
/// curve lies there.
const AS_GOOD_PERCENT: f64 = 95.0;

/// One run of a comparison.
#[derive(Clone, Debug)]
pub struct ComparedRun {
    /// What it is called where what was varied does not name it: its record's name.
    pub name: String,
    /// What it found.
    pub results: RunResults,
    /// How that was judged.
    pub verdict: Verdict,
}

/// Runs in the order of what was varied.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The runs.
    pub runs: Vec<ComparedRun>,
    /// What was varied.
    pub varied: Varied,
    /// The figures of each run.
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

    /// The run to choose: of those that passed the one with the most I/O, or the lightest that comes near
    /// it. None if none passed, or if runs of different limits or loads make "most" mean nothing.
    pub fn best(&self) -> Option<usize> {
        if likeness::unlike(self).iter().any(|unlike| unlike.what.forbids_best()) {
            return None;
        }
        let passed = |index: &usize| self.runs[*index].verdict.answer == Answer::Pass;
        let iops = |index: usize| self.figures[index].iops.unwrap_or(0.0);
        let most = (0..self.runs.len()).filter(passed).map(iops).fold(0.0, f64::max);
        (0..self.runs.len()).filter(passed).find(|&index| iops(index) >= most * AS_GOOD_PERCENT / 100.0)
    }

    /// How run `index` is called: `20 threads a group`, or by its name.
    pub fn title(&self, index: usize) -> String {
        let label = &self.varied.labels[index];
        match self.varied.setting {
            Some(setting) => settings::in_words(setting, label),
            None => label.clone(),
        }
    }
}

//! Comparability of runs: properties that differ and were not varied on purpose.

use crate::database::{
    comparison::{
        RunComparison,
        settings::{IOPS_EACH, MAILBOXES, THREADS},
    },
    plan::LoadPlan,
    results::RunResults,
};
use report::prose::counted;
use std::fmt;
use world::ByteCount;

/// Databases are sized in whole pages and files: sizes this near to each other count as equal, in percent.
const SAME_SIZE_PERCENT: u64 = 2;

/// A property that comparable runs share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunProperty {
    Limits,
    Load,
    Profile,
    /// Total size of all databases.
    Size,
}

/// A property that differs between runs, with its distinct values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropertyMismatch {
    pub what: RunProperty,
    pub values: Vec<String>,
}

impl RunProperty {
    const ALL: [Self; 4] = [Self::Limits, Self::Load, Self::Profile, Self::Size];

    /// True if the difference makes a best run meaningless: the runs passed different limits or had different
    /// loads.
    pub fn forbids_best(self) -> bool {
        matches!(self, Self::Limits | Self::Load)
    }

    /// Plural name.
    pub fn title(self) -> &'static str {
        match self {
            Self::Limits => "limit sets",
            Self::Load => "loads",
            Self::Profile => "profiles",
            Self::Size => "sizes",
        }
    }

    fn of(self, results: &RunResults, varied: Option<&str>) -> String {
        let plan = &results.plan;
        match self {
            Self::Limits => plan.profile.limits.clone(),
            Self::Load => load(plan.load, varied),
            Self::Profile => plan.profile.name.clone(),
            Self::Size => ByteCount(size(results)).to_string(),
        }
    }
}

impl fmt::Display for PropertyMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "The runs have different {} ({})", self.what.title(), self.values.join("; "))?;
        f.write_str(match self.what {
            RunProperty::Limits => ": passing means different things, so no run is named the best.",
            RunProperty::Load => ": their IOPS are not comparable, so no run is named the best.",
            RunProperty::Profile => ": their I/Os are not comparable.",
            RunProperty::Size => ": smaller databases are cached more easily.",
        })
    }
}

/// The properties that differ between the runs of `comparison`, except the varied one.
pub fn mismatches(comparison: &RunComparison) -> Vec<PropertyMismatch> {
    let varied = comparison.varied.setting;
    let found = RunProperty::ALL.map(|what| {
        let mut values: Vec<String> = Vec::new();
        for run in &comparison.runs {
            let value = what.of(&run.results, varied);
            if !values.contains(&value) {
                values.push(value);
            }
        }
        PropertyMismatch { what, values }
    });
    let sizes = comparison.runs.iter().map(|run| size(&run.results));
    let (least, most) = sizes.fold((u64::MAX, 0), |(least, most), size| (least.min(size), most.max(size)));
    let are_one_size = most - least <= most / 100 * SAME_SIZE_PERCENT;
    found
        .into_iter()
        .filter(|mismatch| mismatch.values.len() > 1 && !(mismatch.what == RunProperty::Size && are_one_size))
        .collect()
}

fn size(results: &RunResults) -> u64 {
    results.plan.database_bytes.saturating_mul(results.plan.database_count())
}

/// Describes a load without its varied setting.
fn load(load: LoadPlan, varied: Option<&str>) -> String {
    let unless = |setting: &str, text: String| if varied == Some(setting) { String::new() } else { text };
    match load {
        LoadPlan::Threads { per_group } => {
            format!(
                "a closed loop{}",
                unless(THREADS, format!(" of {} a group", counted(per_group.into(), "thread")))
            )
        }
        LoadPlan::Mailboxes { count, iops_each } => format!(
            "a held rate{}{}",
            unless(MAILBOXES, format!(" of {}", counted(count, "mailbox"))),
            unless(IOPS_EACH, format!(" of {iops_each} IOPS each")),
        ),
        LoadPlan::Maximum { .. } => "the highest rate within limits".to_owned(),
        LoadPlan::TunedThreads { .. } => "the best number of threads".to_owned(),
    }
}

//! Settings of runs, and their differences.

use crate::{
    database::{
        comparison::ComparedRun,
        plan::{LoadPlan, setting::FigureText},
        results::RunResults,
    },
    time_span::TimeSpan,
};
use report::prose;
use world::ByteCount;

/// Value of one setting in one run.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingValue {
    pub text: String,
    /// Set if a larger value may mean more load or more storage.
    pub number: Option<f64>,
}

/// Settings that a sweep varies; the first one that differs is the varied one. Their order matters: a layout
/// decides how many volumes are used, more databases may use more of them, and a load found by the run itself
/// differs with everything.
const VARIED: [&str; 7] = [LAYOUT, GROUPS, DATABASES, VOLUMES, THREADS, MAILBOXES, IOPS_EACH];
/// Those among them that increase the load on the same storage.
const LOADS: [&str; 4] = [THREADS, MAILBOXES, IOPS_EACH, GROUPS];
pub(super) const THREADS: &str = "Threads a group";
pub(super) const MAILBOXES: &str = "Mailboxes";
pub(super) const IOPS_EACH: &str = "IOPS of a mailbox";
const GROUPS: &str = "Groups";
const DATABASES: &str = "Databases a group";
const VOLUMES: &str = "Database volumes";
const LAYOUT: &str = "Layout";

/// Describes a setting and its value: `1 thread a group`, `layout together`.
pub fn in_words(setting: &str, label: &str) -> String {
    let one = match setting {
        THREADS => "thread a group",
        MAILBOXES => "mailbox",
        GROUPS => "group",
        DATABASES => "database a group",
        VOLUMES => "database volume",
        _ => "",
    };
    let mut letters = setting.chars();
    let lower: String =
        letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default();
    match (setting, label) {
        (LAYOUT, _) => format!("layout {label}"),
        (IOPS_EACH, _) => format!("{label} {setting}"),
        (_, "1") if !one.is_empty() => format!("1 {one}"),
        _ => format!("{label} {lower}"),
    }
}

/// All settings of a run by name, in report order. Runs of one profile have the same names in the same order.
pub fn settings(results: &RunResults) -> Vec<(String, SettingValue)> {
    let plan = &results.plan;
    let number = |text: String, number: f64| SettingValue { text, number: Some(number) };
    let words = |text: String| SettingValue { text, number: None };
    let count = |count: u64| number(prose::number(count as f64, 0), count as f64);
    let none = || words("–".to_owned());
    let threads = match results.threads_per_group() {
        Some(threads) => count(threads as u64),
        None => none(),
    };
    let (mailboxes, iops_each) = match plan.load {
        LoadPlan::Mailboxes { count: mailboxes, iops_each } => {
            (count(mailboxes), number(iops_each.to_string(), iops_each))
        }
        LoadPlan::Threads { .. } | LoadPlan::TunedThreads { .. } | LoadPlan::Maximum { .. } => {
            (none(), none())
        }
    };
    let of = |holds: fn(&crate::database::plan::VolumeFacts) -> bool| {
        plan.volumes.iter().filter(move |volume| holds(volume)).map(|volume| volume.name.clone())
    };
    let databases: Vec<String> = of(|volume| volume.databases).collect();
    let logs: Vec<String> = of(|volume| volume.logs).collect();
    let mut all = vec![
        (THREADS, threads),
        (MAILBOXES, mailboxes),
        (IOPS_EACH, iops_each),
        (GROUPS, count(plan.groups.into())),
        (DATABASES, count(plan.databases_per_group.into())),
        (VOLUMES, count(databases.len() as u64)),
        (LAYOUT, words(plan.layout.clone().unwrap_or_else(|| "spread".to_owned()))),
        ("Databases on", words(databases.join(", "))),
        ("Logs on", words(logs.join(", "))),
        ("Size of a database", words(ByteCount(plan.database_bytes).to_string())),
        ("Cache of a group", words(ByteCount(plan.cache_bytes_per_group).to_string())),
        ("Measured time", words(TimeSpan(plan.duration_s).to_string())),
        ("Profile", words(plan.profile.name.clone())),
        ("Limits", words(plan.profile.limits.clone())),
        ("Seed", words(plan.seed.to_string())),
        ("Machine", words(results.host.name.clone())),
        ("Program", words(results.generator.clone())),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect::<Vec<_>>();
    let figures = plan.profile.figures();
    all.extend(figures.map(|(spec, setting)| {
        (format!("profile: {}", spec.name), words(FigureText(spec.kind, setting.value).to_string()))
    }));
    all
}

/// The settings in which runs differ, with the value in each run.
pub fn differences(runs: &[ComparedRun]) -> Vec<(String, Vec<SettingValue>)> {
    let each: Vec<Vec<(String, SettingValue)>> = runs.iter().map(|run| settings(&run.results)).collect();
    let Some(first) = each.first() else { return Vec::new() };
    let rows = first.iter().enumerate().map(|(index, (name, _))| {
        (name.clone(), each.iter().map(|settings| settings[index].1.clone()).collect::<Vec<_>>())
    });
    rows.filter(|(_, values)| values.iter().any(|value| value != &values[0])).collect()
}

/// The setting that was varied between runs.
#[derive(Clone, Debug, PartialEq)]
pub struct VariedSetting {
    /// None if the runs differ in no setting that a sweep varies, or two runs share a value.
    pub setting: Option<&'static str>,
    /// The value in each run, or the run's name.
    pub labels: Vec<String>,
    /// The values, if all are numbers.
    pub places: Option<Vec<f64>>,
}

impl VariedSetting {
    /// Finds the varied setting.
    pub fn among(runs: &[ComparedRun]) -> Self {
        let differences = differences(runs);
        for name in VARIED {
            let Some((_, values)) = differences.iter().find(|(other, _)| other == name) else { continue };
            let are_distinct = (1..values.len()).all(|index| !values[..index].contains(&values[index]));
            if are_distinct {
                return Self {
                    setting: Some(name),
                    labels: values.iter().map(|value| value.text.clone()).collect(),
                    places: values.iter().map(|value| value.number).collect(),
                };
            }
        }
        Self { setting: None, labels: runs.iter().map(|run| run.name.clone()).collect(), places: None }
    }
}

impl VariedSetting {
    /// True if a larger value means more load on the same storage.
    pub fn is_load(&self) -> bool {
        self.setting.is_some_and(|setting| LOADS.contains(&setting))
    }
}

/// The load, to order runs: threads of all groups, or IOPS.
pub fn load(results: &RunResults) -> f64 {
    match results.threads_per_group() {
        Some(per_group) => per_group * f64::from(results.plan.groups),
        None => results.target_iops().unwrap_or_default(),
    }
}

/// True if the loads of two runs can be compared.
pub fn is_same_kind_of_load(one: &RunResults, other: &RunResults) -> bool {
    one.plan.load.is_open() == other.plan.load.is_open()
}

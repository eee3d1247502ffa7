//! What runs were asked for, setting by setting, and in what they differ.

use super::{
    super::{plan::Load, results::RunResults, setting::Shown, span::Span},
    ComparedRun,
};
use report::prose;
use world::ByteCount;

/// One setting of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// As it is shown.
    pub text: String,
    /// As a number, if more of it may mean more load or more storage.
    pub number: Option<f64>,
}

/// Settings that a sweep varies, the first one that differs being what was varied. A layout decides how many
/// volumes are used, more databases may reach more of them, and where the load is found by the run itself it
/// differs with everything.
const VARIED: [&str; 7] = [LAYOUT, GROUPS, DATABASES, VOLUMES, THREADS, MAILBOXES, IOPS_EACH];
/// Of those, the ones by which more is asked of the same storage.
const LOADS: [&str; 4] = [THREADS, MAILBOXES, IOPS_EACH, GROUPS];
pub(super) const THREADS: &str = "Threads a group";
pub(super) const MAILBOXES: &str = "Mailboxes";
pub(super) const IOPS_EACH: &str = "IOPS of a mailbox";
const GROUPS: &str = "Groups";
const DATABASES: &str = "Databases a group";
const VOLUMES: &str = "Database volumes";
const LAYOUT: &str = "Layout";

/// A setting that was varied, with its value: `1 thread a group`, `layout together`.
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

/// Every setting of a run with its name, in the order they are shown. Those of one name stand at the
/// same place for all runs of a profile.
pub fn settings(results: &RunResults) -> Vec<(String, Value)> {
    let plan = &results.plan;
    let number = |text: String, number: f64| Value { text, number: Some(number) };
    let words = |text: String| Value { text, number: None };
    let count = |count: u64| number(prose::number(count as f64, 0), count as f64);
    let none = || words("–".to_owned());
    let threads = match results.threads_per_group() {
        Some(threads) => count(threads as u64),
        None => none(),
    };
    let (mailboxes, iops_each) = match plan.load {
        Load::Mailboxes { count: mailboxes, iops_each } => {
            (count(mailboxes), number(iops_each.to_string(), iops_each))
        }
        Load::Threads { .. } | Load::TunedThreads { .. } | Load::Maximum { .. } => (none(), none()),
    };
    let of = |holds: fn(&super::super::plan::VolumeFacts) -> bool| {
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
        ("Measured time", words(Span(plan.duration_s).to_string())),
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
        (format!("profile: {}", spec.name), words(Shown(spec.kind, setting.value).to_string()))
    }));
    all
}

/// The settings in which runs differ, with the value of each run.
pub fn differences(runs: &[ComparedRun]) -> Vec<(String, Vec<Value>)> {
    let each: Vec<Vec<(String, Value)>> = runs.iter().map(|run| settings(&run.results)).collect();
    let Some(first) = each.first() else { return Vec::new() };
    let rows = first.iter().enumerate().map(|(index, (name, _))| {
        (name.clone(), each.iter().map(|settings| settings[index].1.clone()).collect::<Vec<_>>())
    });
    rows.filter(|(_, values)| values.iter().any(|value| value != &values[0])).collect()
}

/// What was varied between runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Varied {
    /// Its name; none if the runs differ in nothing a sweep varies, or not each from each.
    pub setting: Option<&'static str>,
    /// The value of each run, or the run's name.
    pub labels: Vec<String>,
    /// The values as numbers, if they are.
    pub places: Option<Vec<f64>>,
}

impl Varied {
    /// What was varied between `runs`.
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

impl Varied {
    /// Whether more of what was varied asks more of the storage.
    pub fn is_load(&self) -> bool {
        self.setting.is_some_and(|setting| LOADS.contains(&setting))
    }
}

/// How much is asked of the storage, to tell whether a run asked more than another: threads of all
/// groups, or I/O a second.
pub fn load(results: &RunResults) -> f64 {
    match results.threads_per_group() {
        Some(per_group) => per_group * f64::from(results.plan.groups),
        None => results.target_iops().unwrap_or_default(),
    }
}

/// Whether the loads of two runs can be compared at all.
pub fn is_same_kind_of_load(one: &RunResults, other: &RunResults) -> bool {
    one.plan.load.is_open() == other.plan.load.is_open()
}

//! Published tests as data: configuration, duration, load and limits.
//!
//! A set-up (`setups/*.toml`) holds a paper's description of one of its tests, each figure with its source.
//! It supplies defaults for what the user leaves open; the user's options win. The run keeps its set-up, and
//! the report lists the differences: a minute on a laptop is not the paper's two hours on its array.

use crate::{
    database::plan::{
        LoadPlan, RunPlan,
        profile::{ServerProfile, ServerProfileError},
        setting::FigureText,
    },
    suggestion::nearest,
    time_span::TimeSpan,
    verdict::{
        judged_part::JudgedPart,
        limits::{LimitSet, LimitsError},
    },
};
use ::plan::figure::Confidence;
use report::prose::counted;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use world::ByteCount;

const BUILT_IN: [(&str, &str); 9] = [
    ("eva5000", include_str!("setups/eva5000.toml")),
    ("eva5000-throughput", include_str!("setups/eva5000-throughput.toml")),
    ("continuous-access", include_str!("setups/continuous-access.toml")),
    ("eva8000", include_str!("setups/eva8000.toml")),
    ("stortrends", include_str!("setups/stortrends.toml")),
    ("stortrends-stress", include_str!("setups/stortrends-stress.toml")),
    ("snapmanager", include_str!("setups/snapmanager.toml")),
    ("equallogic", include_str!("setups/equallogic.toml")),
    ("equallogic-light", include_str!("setups/equallogic-light.toml")),
];

/// Databases are sized in whole pages: sizes this near to each other count as equal, in percent.
const SAME_SIZE_PERCENT: u64 = 1;

/// One figure of a set-up with its source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourcedFigure<T> {
    /// In the unit the field's name says.
    pub value: T,
    /// Citation: document and place.
    pub source: String,
    pub confidence: Confidence,
}

/// The default load of a set-up, which has figures for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadKind {
    /// Closed loop.
    Threads,
    /// Held rate.
    Mailboxes,
}

/// A published series of runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedSweep {
    /// Setting and values: `threads=1,5,10`.
    pub sweep: String,
    /// The paper's conclusion.
    pub shows: String,
    /// Citation: document and place.
    pub source: String,
}

/// A published layout of databases and logs on volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedLayout {
    /// As in the paper.
    pub name: String,
    pub database_volumes: usize,
    /// Volumes with logs only. If 0, each log shares the volume of its databases.
    pub log_volumes: usize,
    /// Citation: document and place.
    pub source: String,
}

/// A published test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// As in `--setup eva8000`.
    pub name: String,
    /// One line for lists.
    pub summary: String,
    /// Paper and section.
    pub source: String,
    pub load: LoadKind,
    /// Name of the profile, or path of a profile file.
    pub profile: SourcedFigure<String>,
    /// Name of the limit set that judged the test.
    pub limits: SourcedFigure<String>,
    /// Storage groups of all servers.
    pub groups: SourcedFigure<u32>,
    /// Databases of each group.
    pub databases_per_group: SourcedFigure<u32>,
    /// Initial size of all databases together, in bytes.
    pub size_bytes: SourcedFigure<u64>,
    pub threads_per_group: SourcedFigure<u32>,
    /// Mailboxes of all databases.
    pub mailboxes: SourcedFigure<u32>,
    /// Database IOPS of one mailbox.
    pub iops_each: SourcedFigure<f64>,
    /// Measured time, in seconds.
    pub duration_s: SourcedFigure<u64>,
    /// Length of the judged middle part, in seconds; None if another part was judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judged_middle_s: Option<SourcedFigure<u64>>,
    /// Length of the judged last part, in seconds; None if another part was judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judged_last_s: Option<SourcedFigure<u64>>,
    #[serde(default, rename = "sweep")]
    pub sweeps: Vec<PublishedSweep>,
    /// Layouts the paper compared, or the one it used.
    #[serde(default, rename = "layout")]
    pub layouts: Vec<PublishedLayout>,
}

/// One figure of a set-up compared with that of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupComparison {
    /// Name of the figure.
    pub what: &'static str,
    pub published: String,
    /// The value of this run.
    pub here: String,
    /// Citation of the published figure.
    pub source: String,
    pub confidence: Confidence,
}

impl SetupComparison {
    pub fn is_same(&self) -> bool {
        self.published == self.here
    }
}

/// A rejected set-up. Every message is one line.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SetupError {
    /// No built-in set-up has this name.
    #[error("no set-up is called {name:?}{}; there are {}", .nearest.map(|n| format!("; did you mean {n:?}?")).unwrap_or_default(), Setup::names().join(", "))]
    Unknown {
        name: String,
        /// The closest known name, if one is similar.
        nearest: Option<&'static str>,
    },
    /// The text is not a set-up.
    #[error("this is not a set-up: {problem}")]
    Syntax {
        /// The parser's message and position.
        problem: String,
    },
    /// A figure is impossible.
    #[error("set-up {setup:?}: {what}: {given} makes no sense")]
    Nonsense { setup: String, what: &'static str, given: String },
    /// The set-up names an unknown profile.
    #[error(transparent)]
    Profile(#[from] ServerProfileError),
    /// The set-up names an unknown limit set.
    #[error(transparent)]
    Limits(#[from] LimitsError),
}

impl Setup {
    /// Names of the built-in set-ups, in the order of the papers.
    pub fn names() -> [&'static str; BUILT_IN.len()] {
        BUILT_IN.map(|(name, _)| name)
    }

    /// Loads a built-in set-up by name, ignoring case.
    pub fn load(name: &str) -> Result<Self, SetupError> {
        match BUILT_IN.iter().find(|(built_in, _)| built_in.eq_ignore_ascii_case(name)) {
            Some((_, text)) => Self::parse(text),
            None => Err(SetupError::Unknown {
                name: name.to_owned(),
                nearest: nearest(name, Self::names().into_iter()),
            }),
        }
    }

    /// Parses and checks the text of a set-up file.
    pub fn parse(text: &str) -> Result<Self, SetupError> {
        let setup: Self = toml::from_str(text).map_err(|error| SetupError::Syntax {
            problem: error.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" "),
        })?;
        setup.check()?;
        Ok(setup)
    }

    /// Checks only the figures that comparisons rely on; the plan checks the rest.
    fn check(&self) -> Result<(), SetupError> {
        let sense = |what, holds: bool, given: String| {
            if holds { Ok(()) } else { Err(SetupError::Nonsense { setup: self.name.clone(), what, given }) }
        };
        let duration_s = self.duration_s.value;
        sense("duration_s", duration_s > 0, duration_s.to_string())?;
        sense("groups", self.groups.value > 0, self.groups.value.to_string())?;
        sense(
            "databases_per_group",
            self.databases_per_group.value > 0,
            self.databases_per_group.value.to_string(),
        )?;
        sense("iops_each", self.iops_each.value.is_finite(), self.iops_each.value.to_string())?;
        let both = self.judged_middle_s.is_some() && self.judged_last_s.is_some();
        sense("judged_last_s", !both, "beside judged_middle_s".to_owned())?;
        if let Some(seconds) = self.judged().seconds() {
            sense("judged part", (1..=duration_s).contains(&seconds), TimeSpan(seconds).to_string())?;
        }
        LimitSet::load(&self.limits.value)?;
        if ServerProfile::names().contains(&self.profile.value.as_str()) || self.profile.value.contains('/') {
            return Ok(());
        }
        Ok(ServerProfile::load(&self.profile.value).map(drop)?)
    }

    /// The judged part of the published run.
    pub fn judged(&self) -> JudgedPart {
        match (&self.judged_middle_s, &self.judged_last_s) {
            (Some(middle), _) => JudgedPart::Middle { seconds: middle.value },
            (None, Some(last)) => JudgedPart::Last { seconds: last.value },
            (None, None) => JudgedPart::All,
        }
    }

    /// The default load.
    pub fn load_of(&self) -> LoadPlan {
        match self.load {
            LoadKind::Threads => LoadPlan::Threads { per_group: self.threads_per_group.value },
            LoadKind::Mailboxes => {
                LoadPlan::Mailboxes { count: self.mailboxes.value.into(), iops_each: self.iops_each.value }
            }
        }
    }

    /// Compares every figure with that of `plan`.
    pub fn compare(&self, plan: &RunPlan) -> Vec<SetupComparison> {
        let mut rows = Vec::new();
        let mut row = |what, published: String, here: String, source: &str, confidence| {
            rows.push(SetupComparison { what, published, here, source: source.to_owned(), confidence });
        };
        let of = &self.profile;
        row("Profile", of.value.clone(), plan.profile.name.clone(), &of.source, of.confidence);
        let of = &self.limits;
        row("Limits", of.value.clone(), plan.profile.limits.clone(), &of.source, of.confidence);
        let of = &self.groups;
        row("Storage groups", of.value.to_string(), plan.groups.to_string(), &of.source, of.confidence);
        let of = &self.databases_per_group;
        let here = plan.databases_per_group.to_string();
        row("Databases of each", of.value.to_string(), here, &of.source, of.confidence);
        let of = &self.size_bytes;
        let size = plan.database_bytes * plan.database_count();
        let is_same = size.abs_diff(of.value) <= of.value / 100 * SAME_SIZE_PERCENT;
        let published = ByteCount(of.value).to_string();
        let here = if is_same { published.clone() } else { ByteCount(size).to_string() };
        row("All databases", published, here, &of.source, of.confidence);
        let (source, confidence) = match self.load {
            LoadKind::Threads => (&self.threads_per_group.source, self.threads_per_group.confidence),
            LoadKind::Mailboxes => (&self.iops_each.source, self.iops_each.confidence),
        };
        row("Load", shown_load(self.load_of()), shown_load(plan.load), source, confidence);
        let of = &self.duration_s;
        let here = TimeSpan(plan.duration_s).to_string();
        row("Measured", TimeSpan(of.value).to_string(), here, &of.source, of.confidence);
        if let Some(of) = self.judged_middle_s.as_ref().or(self.judged_last_s.as_ref()) {
            let (published, here) = (self.judged().to_string(), plan.judged.to_string());
            row("Judged", published, here, &of.source, of.confidence);
        } else if plan.judged != JudgedPart::All {
            row("Judged", JudgedPart::All.to_string(), plan.judged.to_string(), "", Confidence::Given);
        }
        if let Some((layout, here)) = self.compare_layout(plan) {
            row("Volumes", layout.shown(), here, &layout.source, Confidence::Seed);
        }
        if let Ok(published) = ServerProfile::load(&self.profile.value) {
            for ((spec, as_published), (_, here)) in published.figures().zip(plan.profile.figures()) {
                if as_published.value != here.value {
                    let (published, here) =
                        (FigureText(spec.kind, as_published.value), FigureText(spec.kind, here.value));
                    let source = &as_published.source;
                    row(spec.name, published.to_string(), here.to_string(), source, as_published.confidence);
                }
            }
        }
        rows
    }

    /// The published layout that `plan` uses, or else the first, with the layout of `plan` in words.
    fn compare_layout(&self, plan: &RunPlan) -> Option<(&PublishedLayout, String)> {
        let databases = plan.volumes.iter().filter(|volume| volume.databases).count();
        let logs = plan.volumes.iter().filter(|volume| volume.logs && !volume.databases).count();
        let used = self
            .layouts
            .iter()
            .find(|layout| (layout.database_volumes, layout.log_volumes) == (databases, logs));
        match used {
            Some(layout) => Some((layout, layout.shown())),
            None => self.layouts.first().map(|layout| (layout, shown_volumes(databases, logs))),
        }
    }

    /// The differences between `plan` and the published test, one sentence each.
    pub fn differences(&self, plan: &RunPlan) -> Vec<String> {
        let rows = self.compare(plan).into_iter().filter(|row| !row.is_same());
        rows.map(|row| format!("{}: {} instead of {}", row.what, row.here, row.published)).collect()
    }
}

impl PublishedLayout {
    fn shown(&self) -> String {
        format!("{} ({})", shown_volumes(self.database_volumes, self.log_volumes), self.name)
    }
}

fn shown_volumes(databases: usize, logs: usize) -> String {
    let volumes = counted(databases as u64, "volume");
    match logs {
        0 => format!("{volumes} for databases and logs"),
        logs => format!("{volumes} for databases, {logs} for logs"),
    }
}

fn shown_load(load: LoadPlan) -> String {
    match load {
        LoadPlan::Threads { per_group } => format!("{} a group", counted(per_group.into(), "thread")),
        LoadPlan::Mailboxes { count, iops_each } => {
            format!("{} at {iops_each} IOPS", counted(count, "mailbox"))
        }
        LoadPlan::Maximum { .. } => "the highest rate within limits".to_owned(),
        LoadPlan::TunedThreads { .. } => "the best number of threads".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::plan::tests::sample_plan;

    #[test]
    fn every_built_in_set_up_is_whole_and_sourced() {
        for name in Setup::names() {
            let setup = Setup::load(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(setup.name, name);
            let rows = setup.compare(&sample_plan());
            assert!(rows.iter().all(|row| !row.source.is_empty()), "{name}");
            assert!(setup.sweeps.iter().all(|sweep| !sweep.source.is_empty()), "{name}");
            let of_profile = ServerProfile::load(&setup.profile.value).unwrap();
            of_profile.check().unwrap();
        }
    }

    #[test]
    fn the_papers_figures_are_as_printed() {
        let eva8000 = Setup::load("eva8000").unwrap();
        assert_eq!((eva8000.groups.value, eva8000.databases_per_group.value), (4, 5), "HP EVA8000");
        assert_eq!(eva8000.size_bytes.value, 375_000_000_000, "HP EVA8000: 75 % of 5000 x 100 MB");
        let of = |name: &str| {
            let setup = Setup::load(name).unwrap();
            setup.iops_each.value * f64::from(setup.mailboxes.value)
        };
        assert_eq!(of("stortrends"), 270.0, "AMI 2008: target 270");
        assert_eq!(of("equallogic"), 1750.0, "Dell 2010: 5000 x 0.35");
        assert_eq!(Setup::load("eva5000").unwrap().load_of(), LoadPlan::Threads { per_group: 10 });
        let judged = |name: &str| Setup::load(name).unwrap().judged().to_string();
        assert_eq!(judged("continuous-access"), "the middle 4 h", "HP Continuous Access");
        assert_eq!(judged("snapmanager"), "the last 4 h", "IBM 2008");
    }

    #[test]
    fn a_run_as_published_differs_in_nothing_and_a_small_one_says_where() {
        let setup = Setup::load("stortrends").unwrap();
        let mut plan = sample_plan();
        assert_eq!(setup.differences(&plan), Vec::<String>::new());
        plan.database_bytes = 4 << 30;
        plan.duration_s = 60;
        plan.load = LoadPlan::Threads { per_group: 8 };
        plan.volumes.truncate(1);
        plan.profile.set("lazy_commit_percent", "0").unwrap();
        assert_eq!(
            setup.differences(&plan),
            [
                "All databases: 4.00 GiB instead of 129 GiB",
                "Load: 8 threads a group instead of 600 mailboxes at 0.45 IOPS",
                "Measured: 1 min instead of 2 h",
                "Volumes: 1 volume for databases and logs instead of 1 volume for databases, 1 for logs (as tested)",
                "lazy_commit_percent: 0 % instead of 55 %",
            ]
        );
    }

    #[test]
    fn a_misspelt_or_impossible_set_up_is_refused_in_one_line() {
        let said = Setup::load("eva800").unwrap_err().to_string();
        assert!(said.starts_with("no set-up is called \"eva800\"; did you mean \"eva8000\"?"), "{said}");
        let text = BUILT_IN.iter().find(|(name, _)| *name == "snapmanager").unwrap().1;
        let changed = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            Setup::parse(&text.replace(from, to)).unwrap_err().to_string()
        };
        assert_eq!(
            changed("value = 36000", "value = 3600"),
            "set-up \"snapmanager\": judged part: 4 h makes no sense"
        );
        assert!(changed("[groups]", "[gruops]").contains("gruops"));
        assert!(changed("value = \"exchange-2007\"", "value = \"exchange-2077\"").contains("did you mean"));
    }
}

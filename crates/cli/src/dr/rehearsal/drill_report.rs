//! The report of a rehearsal: its steps beside the published ones, as a document and as JSON.

use crate::command_line::own_command;
use control::web::client::RehearsalOutcome;
use report::{
    Cell, Column, Document, KeyValues, Mark, Meta, Section, Severity, Table, Verdict, VerdictOutcome,
    calendar::shown_time,
};
use serde::Serialize;
use workload::database::measure::verify::VerifiedFile;
use world::{World, real::host::machine};

const SOURCE: &str = "HP Continuous Access, \"Failover testing results\"";
/// Longest time of a whole failover there.
const PUBLISHED_MINUTES_MAX: u32 = 15;

/// A step of the failover that HP measured with Continuous Access between two EVA5000 and Exchange 2003 in warm standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct PublishedStep {
    pub step: &'static str,
    pub minutes_min: u32,
    pub minutes_max: u32,
}

impl PublishedStep {
    pub const STORAGE: Self =
        Self { step: "fail over the storage groups by hand", minutes_min: 1, minutes_max: 3 };
    pub const DISKS: Self = Self { step: "Windows sees the disks", minutes_min: 1, minutes_max: 2 };
    pub const DATABASES: Self =
        Self { step: "Exchange online, with database recovery", minutes_min: 3, minutes_max: 5 };
}

/// A step of a rehearsal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct DrillStep {
    pub step: &'static str,
    pub seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<PublishedStep>,
}

/// A rehearsal that has an answer; as JSON it is the verb's.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DrillReport {
    pub group: String,
    pub peer: String,
    pub volumes: Vec<String>,
    pub began: String,
    pub is_merging: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete_until: Option<String>,
    pub outcome: RehearsalOutcome,
    pub headline: String,
    pub problems: Vec<String>,
    pub steps: Vec<DrillStep>,
    /// From the order to the answer, without the dropping of the clones.
    pub seconds: f64,
    pub files: Vec<VerifiedFile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_output: Option<String>,
}

impl DrillReport {
    pub fn document(&self, world: &World) -> Document {
        let meta = Meta {
            generator: concat!("spindle ", env!("CARGO_PKG_VERSION")).to_owned(),
            created_utc: shown_time(world.wall().seconds),
            machine: machine().hostname,
            seed: None,
            command: Some(own_command()),
        };
        let title = format!("Rehearsal of the failover of {}", self.group);
        let mut document =
            Document::new(title, format!("{} from {}", self.volumes.join(", "), self.peer), meta);
        let outcome = match self.outcome {
            RehearsalOutcome::Passed => VerdictOutcome::Pass,
            RehearsalOutcome::Failed => VerdictOutcome::Fail,
        };
        let class = match self.command {
            Some(_) => "on clones at the secondary, by a command",
            None => "on clones at the secondary: recovery, every page and the log",
        };
        document.verdict =
            Some(Verdict { outcome, class: class.to_owned(), headline: self.headline.clone() });
        for problem in &self.problems {
            document.finding(Severity::Error, problem, "");
        }
        document.section(self.clones());
        document.section(self.steps());
        if !self.files.is_empty() {
            document.section(self.files());
        }
        if let Some(output) = &self.command_output {
            document.section(Section::new("Output of the command", "").paragraph(output));
        }
        document.section(Section::new("Not shown by this", "").paragraph(
            "How long hosts take to find the other site and to log in there; how the site bears the whole load; writes that \
             the primary had not sent.",
        ));
        document
    }

    fn clones(&self) -> Section {
        let state = match self.is_merging {
            true => "as of the beginning of the pass that is under way: a promotion would go back there",
            false => "as of the last write that had come",
        };
        let facts = KeyValues::default().row("Clones", state);
        let facts = match &self.complete_until {
            Some(until) => facts.row("Everything answered is there until", until.as_str()),
            None => facts,
        };
        Section::new("State", "Replication went on meanwhile; the clones are dropped.").block(facts)
    }

    fn steps(&self) -> Section {
        let columns =
            [Column::text("Step"), Column::number("Time", ""), Column::text("HP Continuous Access")];
        let mut table = Table::new("", columns);
        for DrillStep { step, seconds, published } in &self.steps {
            let published = published.map_or_else(String::new, |published| {
                let PublishedStep { step, minutes_min, minutes_max } = published;
                format!("{minutes_min}–{minutes_max} min: {step}")
            });
            table.push([Cell::text(*step), Cell::seconds(*seconds), Cell::text(published)]);
        }
        let within = format!("less than {PUBLISHED_MINUTES_MAX} min");
        table.push([Cell::text("To the answer"), Cell::seconds(self.seconds), Cell::text(within)]);
        Section::new("Steps", format!("Beside the published failover ({SOURCE})")).block(table)
    }

    fn files(&self) -> Section {
        let columns = [
            Column::text("File"),
            Column::number("Size", ""),
            Column::number("Good", ""),
            Column::number("Blank", ""),
            Column::text("Result"),
        ];
        let mut table = Table::new("", columns);
        for file in &self.files {
            let mark = if file.damaged.is_empty() { Mark::Pass } else { Mark::Fail };
            table.push([
                Cell::text(&file.name),
                Cell::bytes(file.bytes),
                Cell::count(file.good),
                Cell::count(file.empty),
                Cell::mark(mark),
            ]);
        }
        Section::new("Files", "Pages of databases, segments of logs").block(table)
    }
}

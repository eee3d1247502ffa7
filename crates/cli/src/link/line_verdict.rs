//! A measured line, judged by the rules of `advise`, and shown.

use control::web::client::{LinePathRow, LineTestRow};
use plan::{
    advice::{Advice, advise_on_line},
    site::{MeasuredLink, Site},
};
use report::{
    Cell, Column, Document, Mark, Meta, Refusal, Section, Severity, Table, Unit, Verdict, VerdictOutcome,
    prose::counted,
};
use serde::Serialize;

/// Unknowns of each test of a line, whatever it finds.
const NEVER_LOOKED_AT: [&str; 2] =
    ["lost and repeated packets (the system is not asked for them)", "other times than now"];

/// A line by its name, with the rate that it is sold by.
#[derive(Clone, Debug, Serialize)]
pub struct RatedLine {
    pub name: String,
    pub rated_mbit: f64,
    /// Measured rate of the slowest path, in percent of it.
    pub measured_percent: f64,
}

/// Everything there is to say of a tested line, as JSON.
#[derive(Serialize)]
pub struct LineVerdict {
    /// Replication fits on the line, by what was looked at.
    pub fits: bool,
    /// Figures that were judged: those of the slowest path and direction.
    pub rtt_ms: f64,
    pub mbit_each: f64,
    /// Paths that were measured, or that the site file names.
    pub paths: Option<u32>,
    pub storage_groups: u64,
    pub needed_mbit: Option<f64>,
    pub line: Option<RatedLine>,
    pub test: LineTestRow,
    #[serde(flatten)]
    pub advice: Advice,
    pub not_looked_at: Vec<String>,
    /// Changes of the site file.
    pub written: Vec<String>,
}

/// The load of the line, where the command says it.
#[derive(Clone, Copy, Debug, Default)]
pub struct LineNeeds {
    pub groups: Option<u64>,
    pub needed_mbit: Option<f64>,
}

/// The figures of a test that count: those of the slowest path and direction.
///
/// # Errors
///
/// No path was measured.
pub fn measured(test: &LineTestRow) -> Result<MeasuredLink, Refusal> {
    let figures: Vec<_> = test.paths.iter().filter_map(|path| path.figures.as_ref()).collect();
    if figures.is_empty() {
        return Err(Refusal::new("no path of the line was measured", "see 'spindle dr status'"));
    }
    let rtt_ms = figures.iter().map(|path| path.round_trip_idle.median_ms).fold(0.0, f64::max);
    let rates = figures.iter().map(|path| path.sent.all_mbit.min(path.received.all_mbit));
    let mbit_each = rates.fold(f64::INFINITY, f64::min);
    Ok(MeasuredLink { rtt_ms, mbit_each, paths: figures.len() as u32 })
}

impl LineVerdict {
    /// Judges a test by the needs of the command, and else by those of a site.
    ///
    /// # Errors
    ///
    /// No path was measured, or the site does not say which link is meant.
    pub fn new(
        test: LineTestRow,
        site: Site,
        needs: LineNeeds,
        line: Option<(&str, f64)>,
    ) -> Result<Self, Refusal> {
        let measured = measured(&test)?;
        let refuse = |error: plan::site::SiteError| Refusal::new(error.to_string(), "");
        let meant = measured.link_of(&site).map_err(refuse)?;
        let mut site = measured.put_into(site).map_err(refuse)?;
        let of_servers: u64 = site.servers.iter().filter_map(|server| server.storage_groups).sum();
        let known = site.databases.storage_groups.or(Some(of_servers).filter(|groups| *groups > 0));
        let storage_groups = needs.groups.or(known).unwrap_or(1);
        site.databases.storage_groups = Some(storage_groups);
        let link = &mut site.links[meant];
        link.needed_mbit = needs.needed_mbit.or(link.needed_mbit);
        let (needed_mbit, paths, mbit_each) = (link.needed_mbit, link.paths, measured.mbit_each);
        let advice = advise_on_line(&site);
        let skipped = advice.skipped.iter().map(|rule| format!("{} (not said: {})", rule.id, rule.missing));
        let inapplicable = advice.not_applicable.iter().map(|id| format!("{id} (not applicable)"));
        let never = NEVER_LOOKED_AT.map(str::to_owned);
        let not_looked_at = skipped.chain(inapplicable).chain(never).collect();
        let line = line.map(|(name, rated_mbit)| RatedLine {
            name: name.to_owned(),
            rated_mbit,
            measured_percent: (mbit_each / rated_mbit * 1000.0).round() / 10.0,
        });
        Ok(Self {
            fits: advice.line_carries(),
            rtt_ms: measured.rtt_ms,
            mbit_each,
            paths,
            storage_groups,
            needed_mbit,
            line,
            test,
            advice,
            not_looked_at,
            written: Vec::new(),
        })
    }

    fn verdict(&self, class: &str) -> Verdict {
        let groups = counted(self.storage_groups, "storage group");
        let found =
            format!("round trip {:.1} ms, {} Mb/s on each path", self.rtt_ms, rate_text(self.mbit_each));
        let (outcome, headline) = match (self.fits, self.needed_mbit) {
            (true, Some(needed)) => (
                VerdictOutcome::Pass,
                format!("The line carries {} Mb/s of {groups} in sync: {found}.", rate_text(needed)),
            ),
            (true, None) => (
                VerdictOutcome::Pass,
                format!(
                    "The round trip suits {groups} in sync: {found}. The rate was not judged: say --needed."
                ),
            ),
            (false, needed) => {
                let needed =
                    needed.map_or_else(String::new, |needed| format!(" {} Mb/s of", rate_text(needed)));
                let headline = format!("The line does not carry{needed} {groups} in sync: {found}.");
                (VerdictOutcome::Fail, headline)
            }
        };
        Verdict { outcome, class: class.to_owned(), headline }
    }

    /// All of it as a document.
    pub fn document(&self, class: &str, meta: Meta) -> Document {
        let test = &self.test;
        let advised = self.advice.document(&test.site, meta.clone());
        let as_used = match test.connections.cmp(&test.replication_connections) {
            std::cmp::Ordering::Equal => "as replication uses".to_owned(),
            _ => format!("replication uses {}", test.replication_connections),
        };
        let subtitle = format!("{}, {as_used}", counted(test.connections.into(), "connection"));
        let mut document = Document::new(format!("Line to {}", test.site), subtitle, meta);
        document.verdict = Some(self.verdict(class));
        for path in &test.paths {
            if let Some(reason) = &path.not_measured {
                let text =
                    format!("{} was not measured, and the rest is judged alone: {reason}.", path.address);
                document.finding(Severity::Warning, text, "");
            }
        }
        for finding in advised.findings {
            document.finding(finding.severity, finding.text, finding.source);
        }
        document.section(self.figures());
        document.section(self.rules());
        let mut said = Section::new("Not looked at", "");
        said = said.paragraph(format!("{}.", self.not_looked_at.join("; ")));
        document.section(said);
        document
    }

    fn figures(&self) -> Section {
        let test = &self.test;
        let mut section = Section::new("Measured", "");
        let columns = [
            Column::text("Path"),
            Column::text("Round trip"),
            Column::number("Median", Unit::Milliseconds),
            Column::number("99 of 100", Unit::Milliseconds),
        ];
        let mut trips = Table::new("", columns);
        let mbit = || Unit::Named("Mb/s".to_owned());
        let all = match test.connections {
            1 => "all connections".to_owned(),
            count => format!("{count} connections"),
        };
        let columns = [
            Column::text("Path"),
            Column::text("Direction"),
            Column::number("1 connection", mbit()),
            Column::number(all, mbit()),
        ];
        let mut rates = Table::new("", columns);
        for LinePathRow { address, figures, .. } in &test.paths {
            let Some(figures) = figures else { continue };
            let loads = [
                ("idle", Some(figures.round_trip_idle)),
                ("while sending", figures.round_trip_sending),
                ("while receiving", figures.round_trip_receiving),
            ];
            for (load, trip) in loads {
                let ms = |value: Option<f64>| {
                    value.map_or(Cell::Empty, |ms| Cell::number(ms, Unit::Milliseconds, 1))
                };
                let (median, p99) = (trip.map(|trip| trip.median_ms), trip.map(|trip| trip.p99_ms));
                trips.push([Cell::text(address.as_str()), Cell::text(load), ms(median), ms(p99)]);
            }
            for (direction, rate) in [
                (format!("to {}", test.site), figures.sent),
                (format!("from {}", test.site), figures.received),
            ] {
                let cell = |value: f64| Cell::number(value, mbit(), 1);
                let cells = [
                    Cell::text(address.as_str()),
                    Cell::text(direction),
                    cell(rate.one_mbit),
                    cell(rate.all_mbit),
                ];
                rates.push(cells);
            }
        }
        section = section.block(trips).block(rates);
        match &self.line {
            None => section,
            Some(RatedLine { name, rated_mbit, measured_percent }) => section.paragraph(format!(
                "The line {name} is rated {} Mb/s; {measured_percent} % of that were measured.",
                rate_text(*rated_mbit)
            )),
        }
    }

    fn rules(&self) -> Section {
        let mut table =
            Table::new("", [Column::text("Rule of advise"), Column::text("Result"), Column::text("By")]);
        let paths = counted(self.paths.unwrap_or(1).into(), "path");
        let by = |id: &str| match id {
            "round-trip" => {
                format!("{:.1} ms, {}", self.rtt_ms, counted(self.storage_groups, "storage group"))
            }
            "write-history-room" => "the site file".to_owned(),
            "link-redundant" => paths.clone(),
            _ => match self.needed_mbit {
                Some(needed) => format!(
                    "{paths} of {} Mb/s, {} Mb/s needed",
                    rate_text(self.mbit_each),
                    rate_text(needed)
                ),
                None => "the needed rate is not said".to_owned(),
            },
        };
        for id in plan::advice::LINE_RULES {
            let is_broken = self.advice.findings.iter().any(|finding| finding.id == id);
            let mark = match (is_broken, self.advice.passed.iter().any(|passed| passed == id)) {
                (true, _) if id == "link-redundant" => Mark::Warning,
                (true, _) => Mark::Fail,
                (false, true) => Mark::Pass,
                (false, false) => Mark::NotJudged,
            };
            let judged = if mark == Mark::NotJudged { String::new() } else { by(id) };
            table.push([Cell::text(id), Cell::mark(mark), Cell::text(judged)]);
        }
        Section::new("Judged", "").block(table)
    }
}

/// A rate with as many digits as are of use.
fn rate_text(mbit: f64) -> String {
    match mbit {
        mbit if mbit.fract() == 0.0 => format!("{mbit:.0}"),
        mbit if mbit >= 1000.0 => format!("{mbit:.0}"),
        mbit => format!("{mbit:.1}"),
    }
}

//! Reads figures out of the report that `spindle prove --json` prints, as any other program would: by section,
//! row and column title.

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Key figures of a report.
pub(crate) struct ProveReport(Value);

impl ProveReport {
    /// Takes what the program printed.
    pub fn parse(printed: &str) -> Result<Self> {
        let all: Value = serde_json::from_str(printed).context("the JSON of spindle prove")?;
        Ok(Self(all["document"].clone()))
    }

    /// The verdict's headline.
    pub fn headline(&self) -> &str {
        self.0["verdict"]["headline"].as_str().unwrap_or_default()
    }

    /// A figure of a list of keys and values.
    pub fn value(&self, section: &str, key: &str) -> Result<f64> {
        let mut rows = self.blocks(section, "key_values")?.flat_map(|block| array(&block["rows"]));
        let row = rows.find(|row| row["key"] == key).with_context(|| missing(section, key))?;
        number(&row["value"]).with_context(|| missing(section, key))
    }

    /// A figure of a table: the row that has all of `words` among its texts, the column of that title.
    pub fn cell(&self, section: &str, words: &[&str], column: &str) -> Result<f64> {
        let what = format!("{} of {}", column, words.join(", "));
        for block in self.blocks(section, "table")? {
            let titles = array(&block["columns"]);
            let Some(index) = titles.iter().position(|found| found["title"] == column) else { continue };
            let has = |row: &&Value, word: &str| array(row).iter().any(|cell| cell["text"] == word);
            let mut rows = array(&block["rows"]).iter();
            if let Some(row) = rows.find(|row| words.iter().all(|word| has(row, word))) {
                return number(&row[index]).with_context(|| missing(section, &what));
            }
        }
        bail!(missing(section, &what))
    }

    /// The numbers of a column, in the order of its rows; `None` where nothing was measured.
    pub fn column(&self, section: &str, column: &str) -> Result<Vec<Option<f64>>> {
        Ok(self.cells(section, column)?.map(number).collect())
    }

    /// The texts of a column, in the order of its rows.
    pub fn texts(&self, section: &str, column: &str) -> Result<Vec<&str>> {
        Ok(self.cells(section, column)?.map(|cell| cell["text"].as_str().unwrap_or_default()).collect())
    }

    /// The cells of a column, of the first table that has it.
    fn cells(&self, section: &str, column: &str) -> Result<impl Iterator<Item = &Value>> {
        let mut tables = self.blocks(section, "table")?.filter_map(|block| {
            let at = array(&block["columns"]).iter().position(|found| found["title"] == column)?;
            Some((block, at))
        });
        let (block, at) = tables.next().with_context(|| missing(section, column))?;
        Ok(array(&block["rows"]).iter().map(move |row| &row[at]))
    }

    /// Average of a column over the volumes of a section, for one kind of I/O, by their rates.
    pub fn weighted(&self, section: &str, kind: &str, column: &str) -> Result<f64> {
        let (mut sum, mut rates) = (0.0, 0.0);
        for block in self.blocks(section, "table")? {
            let titles = array(&block["columns"]);
            let at = |title: &str| titles.iter().position(|found| found["title"] == title);
            let (Some(value), Some(rate)) = (at(column), at("Rate")) else { continue };
            let of_kind = |row: &&Value| array(row).iter().any(|cell| cell["text"] == kind);
            for row in array(&block["rows"]).iter().filter(of_kind) {
                if let (Some(value), Some(rate)) = (number(&row[value]), number(&row[rate])) {
                    (sum, rates) = (sum + value * rate, rates + rate);
                }
            }
        }
        if rates == 0.0 {
            bail!(missing(section, &format!("{column} of {kind}")));
        }
        Ok(sum / rates)
    }

    /// Points of a chart's series within a time of the run, in seconds.
    pub fn chart(&self, section: &str, title: &str, series: &str, within: (f64, f64)) -> Result<Vec<f64>> {
        let mut charts = self.blocks(section, "line_chart")?.filter(|block| block["title"] == title);
        let chart = charts.next().with_context(|| missing(section, title))?;
        let found = array(&chart["series"]).iter().find(|found| found["name"] == series);
        let points = array(&found.with_context(|| missing(section, series))?["points"]);
        let is_within = |point: &&Value| point[0].as_f64().is_some_and(|at| at > within.0 && at <= within.1);
        Ok(points.iter().filter(is_within).filter_map(|point| point[1].as_f64()).collect())
    }

    fn blocks<'a>(&'a self, section: &str, kind: &'a str) -> Result<impl Iterator<Item = &'a Value>> {
        let found = array(&self.0["sections"]).iter().find(|found| found["title"] == section);
        let found = found.with_context(|| format!("the report has no section {section}"))?;
        Ok(array(&found["blocks"]).iter().filter(move |block| block["kind"] == kind))
    }
}

fn missing(section: &str, what: &str) -> String {
    format!("the report's section {section} has no figure {what}")
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Numbers, byte counts and durations each have a field of their own; nothing measured counts as none.
fn number(cell: &Value) -> Option<f64> {
    match cell["kind"].as_str()? {
        "number" => cell["value"].as_f64(),
        "bytes" => cell["bytes"].as_f64(),
        "duration" => cell["seconds"].as_f64(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"document": {"sections": [
        {"title": "Host", "blocks": [{"kind": "key_values", "rows": [
            {"key": "Memory", "value": {"kind": "bytes", "bytes": 4096}},
            {"key": "Making", "value": {"kind": "duration", "seconds": 1.5}}]}]},
        {"title": "I/O", "blocks": [{"kind": "paragraph"}, {"kind": "table",
            "columns": [{"title": "I/O"}, {"title": "Rate"}], "rows": [
            [{"kind": "text", "text": "reads"}, {"kind": "number", "value": 10.5}],
            [{"kind": "text", "text": "writes"}, {"kind": "number", "value": null}]]}]}]}}"#;

    #[test]
    fn figures_are_found_by_section_row_and_column() {
        let report = ProveReport::parse(REPORT).unwrap();
        assert_eq!(report.value("Host", "Memory").unwrap(), 4096.0);
        assert_eq!(report.value("Host", "Making").unwrap(), 1.5);
        assert_eq!(report.cell("I/O", &["reads"], "Rate").unwrap(), 10.5);
        assert_eq!(report.column("I/O", "Rate").unwrap(), [Some(10.5), None]);
        assert_eq!(report.texts("I/O", "I/O").unwrap(), ["reads", "writes"]);
        assert!(report.column("I/O", "Average").is_err());
    }

    #[test]
    fn averages_count_by_rate_and_charts_by_time() {
        let report = ProveReport::parse(
            r#"{"document": {"sections": [{"title": "Log", "blocks": [{"kind": "table",
                "columns": [{"title": "I/O"}, {"title": "Rate"}, {"title": "Average"}], "rows": [
                [{"kind": "text", "text": "writes"}, {"kind": "number", "value": 30.0}, {"kind": "number", "value": 2.0}],
                [{"kind": "text", "text": "writes"}, {"kind": "number", "value": 10.0}, {"kind": "number", "value": 6.0}],
                [{"kind": "text", "text": "reads"}, {"kind": "number", "value": 0.0}, {"kind": "number", "value": null}]]},
                {"kind": "line_chart", "title": "Latency", "series": [
                {"name": "writes", "points": [[1.0, 4.0], [2.0, null], [3.0, 5.0], [4.0, 9.0]]}]}]}]}}"#,
        )
        .unwrap();
        assert_eq!(report.weighted("Log", "writes", "Average").unwrap(), 3.0);
        assert!(report.weighted("Log", "reads", "Average").is_err());
        assert_eq!(report.chart("Log", "Latency", "writes", (1.0, 3.5)).unwrap(), [5.0]);
    }

    #[test]
    fn a_missing_figure_is_named() {
        let report = ProveReport::parse(REPORT).unwrap();
        let told = |result: Result<f64>| result.unwrap_err().to_string();
        assert_eq!(told(report.value("CPU", "Memory")), "the report has no section CPU");
        assert_eq!(told(report.value("Host", "Speed")), "the report's section Host has no figure Speed");
        let wanted = "the report's section I/O has no figure Rate of writes";
        assert_eq!(told(report.cell("I/O", &["writes"], "Rate")), wanted);
    }
}

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

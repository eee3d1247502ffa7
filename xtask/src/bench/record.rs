//! The raw figures of one bench, kept for good: `bench/runs/<date>-<host>/<bench>.json`.

use super::{machine, machine_speed::MachineSpeed, row::Row};
use crate::status;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
};
use time::OffsetDateTime;

/// A result in the making.
pub(crate) struct Record {
    bench: &'static str,
    began: OffsetDateTime,
    /// The folder that holds everything the bench makes.
    path: PathBuf,
    head: Value,
    /// Method behind each figure, in words.
    methods: Vec<String>,
}

impl Record {
    /// Begins a result; the machine and the commit are as of now.
    pub fn new(bench: &'static str, quick: bool, path: &Path, fio_version: &str) -> Result<Self> {
        let began = OffsetDateTime::now_utc();
        let head = json!({
            "bench": bench, "quick": quick, "commit": status::commit()?, "machine": machine::facts(path)?,
            "fio": fio_version,
        });
        Ok(Self { bench, began, path: path.to_owned(), head, methods: Vec::new() })
    }

    /// Adds the speed of the machine before the bench.
    pub fn machine_speed(&mut self, speed: &MachineSpeed) {
        self.head["machine_speed"] = speed.to_json();
    }

    /// Adds how something was measured.
    pub fn method(&mut self, text: impl Into<String>) {
        self.methods.push(text.into());
    }

    /// Writes the file and names it. A result of the same day is left alone: the new one gets the time in its
    /// name.
    pub fn write(&self, rows: &[Row], runs: &Path) -> Result<PathBuf> {
        let (date, time) = (self.began.date(), self.began.time());
        let day = format!("{:04}-{:02}-{:02}", date.year(), u8::from(date.month()), date.day());
        let (hour, minute, second) = time.as_hms();
        let folder = runs.join(format!("{day}-{}", machine::host()));
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let first = folder.join(format!("{}.json", self.bench));
        let file = match first.exists() {
            false => first,
            true => folder.join(format!("{}-{hour:02}{minute:02}{second:02}.json", self.bench)),
        };
        let mut all = self.head.clone();
        all["began_utc"] = json!(format!("{day} {hour:02}:{minute:02}:{second:02}"));
        all["took_s"] = json!((OffsetDateTime::now_utc() - self.began).as_seconds_f64().round());
        all["load_average_after"] = json!(machine::load_average());
        all["methods"] = json!(self.methods);
        all["rows"] = rows.iter().map(Row::to_json).collect();
        let text = without_folder(&serde_json::to_string_pretty(&all)?, &self.path) + "\n";
        fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
        Ok(file)
    }
}

/// The text with absolute paths below `folder` as seen from there: where a machine keeps it is of no interest.
fn without_folder(text: &str, folder: &Path) -> String {
    if folder.is_absolute() { text.replace(&format!("{}/", folder.display()), "") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_paths_below_the_folder_of_the_bench() {
        let text = "pool_load /mnt/a/spindle-bench.tmp/aged age 2";
        assert_eq!(without_folder(text, Path::new("/mnt/a")), "pool_load spindle-bench.tmp/aged age 2");
        assert_eq!(without_folder(text, Path::new("a")), text);
    }
}

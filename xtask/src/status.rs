//! The result of the last `cargo xtask test --full`: its table in docs/status.md, its notes in bench/full-run.md, each in a
//! marked block.

use crate::{step, test_output::Tally};
use anyhow::{Context, Result, bail};
use std::{fmt::Write, fs, process::Command, time::Duration};
use time::OffsetDateTime;

const BEGIN: &str = "<!-- full-run:begin (written by cargo xtask test --full) -->";
const END: &str = "<!-- full-run:end -->";

/// One run with the large counts, and what it ran on.
pub(crate) struct FullRun {
    date: String,
    commit: String,
    machine: String,
    summary: String,
    notes: Vec<String>,
    took: Duration,
}

impl FullRun {
    /// The run that has just ended, on this machine and this commit.
    pub fn now(tally: &Tally, took: Duration) -> Result<Self> {
        let today = OffsetDateTime::now_utc().date();
        Ok(Self {
            date: format!("{:04}-{:02}-{:02}", today.year(), u8::from(today.month()), today.day()),
            commit: commit()?,
            machine: machine()?,
            summary: tally.summary(),
            notes: tally.notes.clone(),
            took,
        })
    }

    fn table(&self) -> String {
        let mut text = String::from("| | |\n|---|---|\n");
        let rows = [
            ("date", self.date.clone()),
            ("commit", self.commit.clone()),
            ("machine", self.machine.clone()),
            ("result", self.summary.clone()),
            ("time", step::seconds(self.took)),
        ];
        for (name, value) in rows {
            writeln!(text, "| {name} | {value} |").expect("writing to a string");
        }
        text
    }

    /// One line a note, in the order of the tests.
    fn notes(&self) -> String {
        format!("```text\n{}```\n", self.notes.iter().map(|note| format!("{note}\n")).collect::<String>())
    }
}

/// Puts `run` in place of the one before it.
pub fn write(run: &FullRun) -> Result<()> {
    for (page, block) in [("docs/status.md", run.table()), ("bench/full-run.md", run.notes())] {
        let path = step::workspace_root().join(page);
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let text = replace_block(&text, &block).with_context(|| format!("in {page}"))?;
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn replace_block(page: &str, block: &str) -> Result<String> {
    let (before, rest) = page.split_once(BEGIN).context("the page has no begin mark")?;
    let (_, after) = rest.split_once(END).context("the page has no end mark")?;
    if before.contains(END) || after.contains(BEGIN) || after.contains(END) {
        bail!("the page has more than one block for the full run");
    }
    Ok(format!("{before}{BEGIN}\n{block}{END}{after}"))
}

/// The short commit, with a word if the tree differs from it.
pub fn commit() -> Result<String> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        step::output(command.current_dir(step::workspace_root()).args(arguments))
    };
    let id = git(&["rev-parse", "--short", "HEAD"])?;
    let clean = git(&["status", "--porcelain", "--untracked-files=no"])?.trim().is_empty();
    Ok(format!("{}{}", id.trim(), if clean { "" } else { ", changed" }))
}

/// Processor, its count, and memory: enough to compare two results, nothing that names the host.
fn machine() -> Result<String> {
    let processors = fs::read_to_string("/proc/cpuinfo").context("reading /proc/cpuinfo")?;
    let memory = fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
    let value = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let model = value(&processors, "model name").unwrap_or_else(|| "unnamed processor".to_owned());
    let count = std::thread::available_parallelism()?;
    let memory_kib: u64 = value(&memory, "MemTotal")
        .and_then(|text| text.trim_end_matches(" kB").parse().ok())
        .context("/proc/meminfo has no MemTotal")?;
    Ok(format!("{count} × {model}, {} GiB", memory_kib.div_ceil(1024 * 1024)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_full_run_replaces_the_block_and_nothing_else() {
        let run = FullRun {
            date: "2026-11-21".to_owned(),
            commit: "abc1234".to_owned(),
            machine: "2 × Some CPU, 24 GiB".to_owned(),
            summary: "10 passed, 0 failed".to_owned(),
            notes: vec!["2000 kills [recovery]".to_owned()],
            took: Duration::from_millis(61_250),
        };
        let page = format!("# Status\n\n{BEGIN}\nold\n{END}\n\nAfter.\n");
        let page = replace_block(&page, &run.table()).unwrap();
        expect![[r#"
            # Status

            <!-- full-run:begin (written by cargo xtask test --full) -->
            | | |
            |---|---|
            | date | 2026-11-21 |
            | commit | abc1234 |
            | machine | 2 × Some CPU, 24 GiB |
            | result | 10 passed, 0 failed |
            | time | 61.2 s |
            <!-- full-run:end -->

            After.
        "#]]
        .assert_eq(&page);
        assert_eq!(run.notes(), "```text\n2000 kills [recovery]\n```\n");
    }

    #[test]
    fn a_page_without_exactly_one_block_is_refused() {
        assert!(replace_block("# Status\n", "").is_err());
        assert!(replace_block(&format!("{BEGIN}\n{END}\n{BEGIN}\n{END}\n"), "").is_err());
    }

    #[test]
    fn both_pages_have_their_block() {
        for page in ["docs/status.md", "bench/full-run.md"] {
            let page = fs::read_to_string(step::workspace_root().join(page)).unwrap();
            assert!(replace_block(&page, "").is_ok());
        }
    }
}

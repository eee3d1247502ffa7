//! The peer: fio with io_uring and O_DIRECT, one job file a run, its figures out of its JSON.

use super::{latency::Latency, row::Measurement};
use crate::step;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::{fmt::Write, fs, path::Path, process::Command};

/// A job file in the making. Every job uses io_uring past the page cache, random places without a map of those
/// visited, as our programs do.
pub(crate) struct Jobs {
    text: String,
}

/// Result of one job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct JobResult {
    /// Reads a second.
    pub read_iops: f64,
    /// Writes a second.
    pub write_iops: f64,
    /// Bytes read a second.
    pub read_bytes_s: f64,
    /// Bytes written a second.
    pub write_bytes_s: f64,
    /// Seconds it took.
    pub seconds: f64,
    /// Of all commands; `None` for reads and writes that fio did not report together.
    pub latency: Option<Latency>,
}

/// One run of fio.
pub(crate) struct FioResult {
    /// Its jobs by name, in the order of the file.
    pub jobs: Vec<(String, JobResult)>,
    /// For the record: the job file and the figures taken from it.
    pub raw: Value,
}

impl Jobs {
    /// No jobs yet. Without `seconds` a job ends when it has gone through its file once.
    pub fn new(seconds: Option<f64>) -> Self {
        let mut text =
            "[global]\nioengine=io_uring\ndirect=1\nnorandommap=1\nrandrepeat=0\nthread=1\n".to_owned();
        if let Some(seconds) = seconds {
            let ms = (seconds * 1000.0).round() as u64;
            writeln!(text, "time_based=1\nruntime={ms}ms").expect("writing to a string");
        }
        Self { text }
    }

    /// No jobs yet, on an export of an NBD server.
    pub fn nbd(seconds: f64, uri: &str) -> Self {
        let ms = (seconds * 1000.0).round() as u64;
        let Self { mut text } = Self::nbd_once(uri);
        write!(text, "time_based=1\nruntime={ms}ms\n").expect("writing to a string");
        Self { text }
    }

    /// The same; a job ends when it has gone through the export once.
    pub fn nbd_once(uri: &str) -> Self {
        Self { text: format!("[global]\nioengine=nbd\nuri={uri}\nnorandommap=1\nrandrepeat=0\nthread=1\n") }
    }

    /// Adds a job: its options, one a line, on `file`.
    pub fn job(mut self, name: &str, file: &Path, options: &str) -> Self {
        write!(self.text, "[{name}]\nfilename={}\n", file.display()).expect("writing to a string");
        self.options(options)
    }

    /// Adds a job on what the engine names.
    pub fn job_without_file(mut self, name: &str, options: &str) -> Self {
        writeln!(self.text, "[{name}]").expect("writing to a string");
        self.options(options)
    }

    fn options(mut self, options: &str) -> Self {
        for option in options.split_whitespace() {
            writeln!(self.text, "{option}").expect("writing to a string");
        }
        self
    }

    /// Keeps the moment of each answer in files whose names begin so, one for each job (fio's `write_lat_log`).
    pub fn with_latency_log(mut self, prefix: &Path) -> Self {
        let options = format!("write_lat_log={}\nlog_unix_epoch=1\n", prefix.display());
        self.text.insert_str("[global]\n".len(), &options);
        self
    }

    /// True if the job of that number, from 1, has that name.
    pub fn is_job(&self, number: usize, name: &str) -> bool {
        let mut sections = self.text.lines().filter(|line| line.starts_with('['));
        sections.nth(number).is_some_and(|section| section == format!("[{name}]"))
    }

    /// The job file.
    #[cfg(test)]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Runs it; the job file lies in `folder`.
    pub fn run(&self, folder: &Path) -> Result<FioResult> {
        self.run_by(Command::new("fio"), folder)
    }

    /// Runs it by a command that is fio, or leads to it.
    pub fn run_by(&self, mut command: Command, folder: &Path) -> Result<FioResult> {
        let file = folder.join("peer.fio");
        fs::write(&file, &self.text).with_context(|| format!("writing {}", file.display()))?;
        let printed = step::output(command.arg("--output-format=json").arg(&file))?;
        // Warnings may come before the document.
        let begin = printed.find('{').context("fio printed no JSON")?;
        let document: Value = serde_json::from_str(&printed[begin..]).context("the JSON of fio")?;
        let jobs = results(&document)?;
        let figures: Vec<Value> = jobs.iter().map(|(name, job)| job.to_json(name)).collect();
        let job_file: Vec<&str> = self.text.lines().filter(|line| !line.starts_with("filename=")).collect();
        Ok(FioResult { jobs, raw: json!({ "job_file": job_file, "jobs": figures }) })
    }
}

impl FioResult {
    /// The run as a measured figure.
    pub fn measured(self, value: f64) -> Measurement {
        Measurement { value, raw: self.raw }
    }

    /// All I/O of all jobs a second.
    pub fn total_iops(&self) -> f64 {
        self.jobs.iter().map(|(_, job)| job.read_iops + job.write_iops).sum()
    }
}

impl JobResult {
    fn to_json(self, name: &str) -> Value {
        json!({
            "job": name, "read_iops": self.read_iops, "write_iops": self.write_iops,
            "read_bytes_s": self.read_bytes_s, "write_bytes_s": self.write_bytes_s, "seconds": self.seconds,
            "latency": self.latency.map(Latency::to_json),
        })
    }
}

fn results(document: &Value) -> Result<Vec<(String, JobResult)>> {
    let jobs = document["jobs"].as_array().context("fio names no jobs")?;
    let number = |value: &Value| value.as_f64().context("fio left out a figure");
    jobs.iter()
        .map(|job| {
            let name = job["jobname"].as_str().context("a job of fio without a name")?.to_owned();
            let result = JobResult {
                read_iops: number(&job["read"]["iops"])?,
                write_iops: number(&job["write"]["iops"])?,
                read_bytes_s: number(&job["read"]["bw_bytes"])?,
                write_bytes_s: number(&job["write"]["bw_bytes"])?,
                seconds: number(&job["job_runtime"])? / 1000.0,
                latency: Latency::from_fio(job),
            };
            Ok((name, result))
        })
        .collect()
}

/// Makes a file of `bytes` whose every byte has been written, so that neither side meets space that was only
/// promised.
pub fn lay_out(file: &Path, bytes: u64, folder: &Path) -> Result<()> {
    let options = format!("rw=write bs=1m iodepth=8 size={bytes} end_fsync=1");
    Jobs::new(None).job("lay-out", file, &options).run(folder).map(drop)
}

/// Random reads a second of `bytes` each.
pub fn random_read(file: &Path, bytes: u64, depth: u32, seconds: f64, folder: &Path) -> Result<Measurement> {
    let options = format!("rw=randread bs={bytes} iodepth={depth}");
    let outcome = Jobs::new(Some(seconds)).job("reads", file, &options).run(folder)?;
    let value = outcome.total_iops();
    Ok(outcome.measured(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_job() {
        let side = |iops: f64| json!({ "iops": iops, "bw_bytes": iops * 4096.0 });
        let document = json!({ "jobs": [
            { "jobname": "database", "read": side(100.0), "write": side(50.0), "job_runtime": 1500 },
            { "jobname": "log", "read": side(0.0), "write": side(10.0), "job_runtime": 1500 },
        ]});
        let jobs = results(&document).unwrap();
        assert_eq!(jobs[1].0, "log");
        assert_eq!((jobs[1].1.write_bytes_s, jobs[0].1.seconds), (40960.0, 1.5));
        assert_eq!(FioResult { jobs, raw: Value::Null }.total_iops(), 160.0);
        assert!(results(&json!({ "jobs": [{ "jobname": "cut short" }] })).is_err());
    }

    #[test]
    fn a_job_file_names_its_options_a_line_each() {
        let jobs = Jobs::new(Some(1.5)).job("reads", Path::new("/f"), "rw=randread bs=4096");
        assert!(jobs.text.contains("runtime=1500ms\n[reads]\nfilename=/f\nrw=randread\nbs=4096\n"));
        let jobs = jobs.with_latency_log(Path::new("/t/answers"));
        assert!(jobs.text.starts_with("[global]\nwrite_lat_log=/t/answers\nlog_unix_epoch=1\nioengine="));
        assert!(jobs.is_job(1, "reads") && !jobs.is_job(2, "reads") && !jobs.is_job(1, "read"));
    }
}

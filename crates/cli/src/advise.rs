//! `spindle advise`: what is wrong with a site.

use crate::{
    arguments::AdviseArguments, command_line::own_command, console::Console, exit_status::ExitStatus,
};
use ::plan::advice::{Advice, RunFacts, Severity, advise as advice_for};
use report::{Meta, Refusal, html, text};
use runs::{outputs::check_new_file, record_reader, site};
use serde::Serialize;
use std::path::{Path, PathBuf};
use workload::database::{
    meter::Role,
    results::{HostSample, RunResults, VolumeResults},
    verdict::{Answer, Verdict},
};
use world::real::host_files::{self, PathKind};

/// The answer as JSON.
#[derive(Serialize)]
struct AdviceAnswer<'a> {
    site: &'a str,
    run: Option<&'a Path>,
    errors: usize,
    warnings: usize,
    notes: usize,
    #[serde(flatten)]
    advice: &'a Advice,
}

/// Runs the verb to its end.
pub fn advise(arguments: &AdviseArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.json, arguments.quiet);
    if arguments.template {
        console.say_always(::plan::site::template().trim_end());
        return console.finish(ExitStatus::Pass);
    }
    let name = arguments.site.as_deref().expect("the arguments have a site, or ask for a template");
    if let Some(html) = &arguments.html {
        check_new_file("--html", html)?;
    }
    let site = site::read("SITE", name)?;
    let run = match &arguments.run {
        Some(path) => Some(facts(&record_reader::read(&record_of(path))?.results)?),
        None => None,
    };
    let advice = advice_for(&site, run.as_ref());
    let meta = Meta {
        generator: concat!("spindle ", env!("CARGO_PKG_VERSION")).to_owned(),
        command: Some(own_command()),
        ..Meta::default()
    };
    let document = advice.document(name, meta);
    if let Some(path) = &arguments.html {
        host_files::write_atomically(path, html::render(&document).as_bytes())
            .map_err(|error| Refusal::new(format!("{} could not be written: {error}", path.display()), ""))?;
    }
    if console.is_quiet() {
        console.say_always(&advice.in_short());
    } else {
        let options = text::TextOptions { width: console.width, colour: console.colour };
        console.say(text::render(&document, options).trim_end());
    }
    arguments.html.iter().for_each(|path| console.say_always(&format!("Advice: {}", path.display())));
    if arguments.json {
        console.json_of(&AdviceAnswer {
            site: name,
            run: arguments.run.as_deref(),
            errors: advice.count(Severity::Error),
            warnings: advice.count(Severity::Warning),
            notes: advice.count(Severity::Note),
            advice: &advice,
        })?;
    }
    console.finish(if advice.has_errors() { ExitStatus::Fail } else { ExitStatus::Pass })
}

/// The record that `given` means: itself, or the one beside a report.
fn record_of(given: &Path) -> PathBuf {
    let is_report = given.extension().is_some_and(|extension| extension == "json" || extension == "html");
    let record = given.with_extension(record_reader::EXTENSION);
    match is_report && matches!(host_files::kind(&record), Ok(PathKind::File)) {
        true => record,
        false => given.to_owned(),
    }
}

/// The facts of a run that rules of advice need.
fn facts(results: &RunResults) -> Result<RunFacts, Refusal> {
    let verdict = Verdict::of(results).map_err(|error| Refusal::new(error.to_string(), ""))?;
    let slowest = |role: Role, of: fn(&VolumeResults) -> Option<f64>| {
        results.in_role(role).filter_map(of).max_by(f64::total_cmp)
    };
    let bytes: u64 = results.databases.iter().map(|database| database.bytes_before).sum();
    let shared = results.plan.volumes.iter().filter(|volume| volume.databases && volume.logs);
    Ok(RunFacts {
        passed: match verdict.answer {
            Answer::Pass => Some(true),
            Answer::Fail => Some(false),
            Answer::Incomplete => None,
        },
        seconds: results.measured_s.round(),
        databases: results.databases.len() as u64,
        gb: bytes as f64 / (1_u64 << 30) as f64,
        iops: results.achieved_iops(),
        database_read_ms: slowest(Role::Database, VolumeResults::judged_read_ms),
        database_read_window_ms: slowest(Role::Database, |volume| volume.read_worst_window_ms),
        database_write_ms: slowest(Role::Database, VolumeResults::judged_write_ms),
        log_write_ms: slowest(Role::Log, VolumeResults::judged_write_ms),
        damage: (results.failure_counts.checksum + results.failure_counts.content) as f64,
        processor_percent: processor_percent(&results.host_samples, results.host.processor_count),
        shared_volumes: shared.count() as u64,
    })
}

/// Processor time of all programs between the first and the last reading, as a share of what there was.
fn processor_percent(samples: &[HostSample], processor_count: u32) -> Option<f64> {
    let (first, last) = (samples.first()?, samples.last()?);
    let there_was = (last.at_s - first.at_s) * f64::from(processor_count);
    (there_was > 0.0).then(|| (last.system_cpu_s - first.system_cpu_s) / there_was * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_a_share_of_what_there_was() {
        let sample = |at_s, system_cpu_s| HostSample { at_s, system_cpu_s, ..HostSample::default() };
        assert_eq!(processor_percent(&[sample(1.0, 5.0), sample(11.0, 15.0)], 2), Some(50.0));
        assert_eq!(processor_percent(&[sample(1.0, 5.0)], 2), None);
        assert_eq!(processor_percent(&[sample(1.0, 5.0), sample(2.0, 5.0)], 0), None);
    }
}

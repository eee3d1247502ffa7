//! The report of a run, in the sections of Jetstress (AMI 2008's appendix): summary, sizing and throughput,
//! system parameters, database configuration, transactional I/O, background scan, log, total I/O, host,
//! verification, test log.
//!
//! The report contains measured values only: an absent value is a dash. It judges nothing.

mod anomalies;
mod averages;
mod backups;
mod charts;
mod io;
mod mailboxes;
mod pools;
mod search;
mod sections;
mod sources;

use crate::{
    database::{
        load::operation::FailureKind,
        plan::LoadPlan,
        results::{
            CutOff, RunResults, VolumeResults, mailboxes::Mailboxes, search::SearchResults, test_log::Phase,
            verdict::generator_missed_target,
        },
    },
    measure::processor::{self, BusiestThread},
    meter::VolumeRole,
    time_span::TimeSpan,
    verdict::{
        RunVerdict, VerdictRow,
        judged_part::{JudgedPart, TimeRange},
        limits::Measure,
    },
};
use maildb::PageStampMode;
use report::{
    Cell, Document, LimitCheck, LimitTable, Meta, Relation, Section, Severity, Unit, VerdictOutcome,
    prose::{counted, number},
};
use time::{OffsetDateTime, format_description::StaticFormatDescription, macros::format_description};
use world::ByteCount;

const DAY_AND_TIME: StaticFormatDescription =
    format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");

/// Outstanding device operations of this age, in seconds, cause a warning.
const LATE_WARNED_S: f64 = 1.0;

/// Builds the report of `results`, judged by `verdict`.
pub fn document(results: &RunResults, verdict: &RunVerdict) -> Document {
    let meta = Meta {
        generator: results.generator.clone(),
        created_utc: format!("{} UTC", utc(results.ended_unix_s)),
        machine: results.host.name.clone(),
        seed: Some(results.plan.seed.to_string()),
        command: None,
    };
    let class = verdict.class.title();
    let mailboxes = Mailboxes::of(results, verdict);
    let mut document = Document::new(format!("Spindle {}", class.to_lowercase()), subtitle(results), meta);
    document.verdict = Some(report::Verdict {
        outcome: verdict.answer,
        class: format!("{class}, {}", measured(results)),
        headline: headline(results, verdict, mailboxes.as_ref()),
    });
    if let Some(mailboxes) = &mailboxes {
        mailboxes::add_highlight(&mut document, mailboxes);
    }
    add_highlights(&mut document, results);
    pools::add_highlight(&mut document, results, verdict);
    add_closest_limit(&mut document, verdict);
    add_findings(&mut document, results, verdict);
    document.section(summary(results, verdict));
    document.section(mailboxes::section(results, mailboxes.as_ref()));
    if let Some(found) = &results.search {
        document.section(search::section(results, found));
    }
    if !results.pools.is_empty() {
        document.section(pools::section(results, verdict));
    }
    if !results.backups.is_empty() {
        document.section(backups::section(results));
    }
    sections::add_sections(&mut document, results);
    document.section(sources::sources());
    document
}

/// `2 h measured`, or `4 h judged of 8 h measured`.
fn measured(results: &RunResults) -> String {
    let span = |seconds: f64| TimeSpan(seconds.round() as u64);
    match results.plan.judged {
        JudgedPart::All => format!("{} measured", span(results.measured_s)),
        _ => format!("{} judged of {} measured", span(results.measured_s), span(results.load_s)),
    }
}

/// Formats seconds since 1970: `2026-01-31 12:00:00`.
fn utc(unix_s: i64) -> String {
    let moment = OffsetDateTime::from_unix_timestamp(unix_s).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    moment.format(&DAY_AND_TIME).expect("every moment has a day and a time")
}

fn subtitle(results: &RunResults) -> String {
    let plan = &results.plan;
    let databases = counted(plan.database_count(), "database");
    let size = ByteCount(plan.database_bytes);
    let load = match plan.load {
        LoadPlan::Threads { per_group } => format!("{} a group", counted(per_group.into(), "thread")),
        LoadPlan::Mailboxes { count, iops_each } => {
            format!("{} at {iops_each} IOPS", counted(count, "mailbox"))
        }
        LoadPlan::Maximum { .. } => "the highest rate within limits".to_owned(),
        LoadPlan::TunedThreads { .. } => "the best number of threads".to_owned(),
    };
    format!("{}, {databases} of {size}, {load}", plan.profile.name)
}

fn headline(results: &RunResults, verdict: &RunVerdict, mailboxes: Option<&Mailboxes>) -> String {
    let rate = format!("{} database IOPS", number(results.achieved_iops(), 0));
    let rate = match mailboxes {
        Some(mailboxes) => format!("{}: {rate}", capitalised(&mailboxes.headline())),
        None => rate,
    };
    let limiting =
        limiting_thread(results, verdict).map(|thread| format!("; {}", processor::describe_limit(thread)));
    let by_processor = limiting.unwrap_or_default();
    match verdict.answer {
        VerdictOutcome::Pass => {
            let intact = match results.transactions.records_checked {
                0 => "every page intact",
                _ => "every page and record intact",
            };
            let unseen = match results.plan.profile.page_stamps() {
                PageStampMode::Off => ", but lost writes were not checked",
                PageStampMode::WhileOpen | PageStampMode::Durable => "",
            };
            format!("{rate} within every limit, and {intact}{unseen}{by_processor}.")
        }
        VerdictOutcome::Incomplete if results.measured_s <= 0.0 => {
            "The run ended before anything was measured.".to_owned()
        }
        VerdictOutcome::Incomplete if let Some(row) = verdict.broken().next() => {
            format!("{rate}, but beyond a limit: {}{by_processor}.", broken(row))
        }
        VerdictOutcome::Incomplete if generator_missed_target(results) && !results.verified.is_empty() => {
            format!("{rate} within every limit, but the load generator missed the target.")
        }
        VerdictOutcome::Incomplete if let Some(cut_off) = &results.cut_off => {
            let phase = cut_off.during.title();
            let how =
                if cut_off.cause.is_some() { "The run failed in phase" } else { "The record ends in phase" };
            format!("{how} {phase}: {rate} within every limit until then; {}.", not_verified(results))
        }
        VerdictOutcome::Incomplete => {
            format!("The run ended early: {rate} within every limit until then; {}.", not_verified(results))
        }
        VerdictOutcome::Fail => match verdict.broken().next() {
            Some(row) => format!("{rate}, but beyond a limit: {}.", broken(row)),
            None => "The database engine failed.".to_owned(),
        },
    }
}

/// The saturated thread that limited the run or broke a limit, if one did.
fn limiting_thread(results: &RunResults, verdict: &RunVerdict) -> Option<BusiestThread> {
    let of_search = results.search.as_ref().and_then(SearchResults::limiting_thread);
    let excuses = verdict.answer == VerdictOutcome::Incomplete && verdict.broken().next().is_some();
    let of_run = results.busiest_thread().filter(|thread| excuses && thread.is_the_limit());
    of_run.or(of_search.filter(|_| verdict.answer == VerdictOutcome::Pass))
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Describes an incomplete run and what that means for its figures.
fn cut_off_in_words(results: &RunResults, cut_off: &CutOff) -> (Severity, String) {
    let (after, phase) = (TimeSpan(cut_off.after_s.round() as u64), cut_off.during.title());
    let phase = match cut_off.created.filter(|_| cut_off.during == Phase::Create) {
        Some((done, all)) => {
            format!("{phase}, {} of {} ({} %)", ByteCount(done), ByteCount(all), percent_of(done, all))
        }
        None => phase.to_owned(),
    };
    let known = format!("The report covers what was recorded until then, and {}", not_verified(results));
    match &cut_off.cause {
        Some(cause) => (
            Severity::Error,
            format!("The run ended without results after {after}, in phase {phase}: {cause}. {known}."),
        ),
        None => (
            Severity::Warning,
            format!(
                "The record ends without the end of the run, {after} after it began, in phase {phase}: \
                 Spindle or the machine died, or the run is still going. {known}; percentiles are up to 1.6 % \
                 too long."
            ),
        ),
    }
}

/// Percent, rounded down: 100 only for the whole.
fn percent_of(part: u64, whole: u64) -> u64 {
    (u128::from(part) * 100 / u128::from(whole.max(1))) as u64
}

/// Describes the verification that an early end left out.
fn not_verified(results: &RunResults) -> String {
    let groups = results.plan.groups as usize;
    match (results.verified.len(), results.databases.len() + groups) {
        (0, _) => "the files were not verified".to_owned(),
        (1, total) if total > 1 => format!("only 1 of {total} files was verified"),
        (done, total) if done < total => format!("only {done} of {total} files were verified"),
        _ => "the files were verified".to_owned(),
    }
}

fn broken(row: &VerdictRow) -> String {
    let (unit, decimals) = unit_of(row.measure);
    let space = if unit == Unit::One { "" } else { " " };
    let place = row.place.as_ref().map(|place| format!(" on {place}")).unwrap_or_default();
    let side = if row.measure.is_floor() { "at least" } else { "at most" };
    let title = row.measure.title();
    let measured = number(row.measured.unwrap_or(f64::NAN), decimals);
    format!("{title} {measured}{space}{unit}{place}, {side} {}{space}{unit}", row.limit)
}

/// Unit and sensible number of decimals of a metric.
fn unit_of(measure: Measure) -> (Unit, u8) {
    match measure {
        Measure::DatabaseReadAverageMs
        | Measure::DatabaseReadWindowMaximumMs
        | Measure::DatabaseWriteAverageMs
        | Measure::LogWriteAverageMs
        | Measure::LogWriteWindowMaximumMs => (Unit::Milliseconds, 2),
        Measure::PageFaultStallsPerSecond => (Unit::PerSecond, 2),
        Measure::AchievedPercentOfTarget => (Unit::Percent, 1),
        Measure::ChecksumErrors
        | Measure::ContentErrors
        | Measure::IoErrors
        | Measure::LongOperations
        | Measure::HungOperations => (Unit::One, 0),
    }
}

fn limit_check(row: &VerdictRow) -> LimitCheck {
    let (unit, decimals) = unit_of(row.measure);
    let place = row.place.as_ref().map(|place| format!(" ({place})")).unwrap_or_default();
    LimitCheck {
        what: format!("{}{place}", row.measure.title()),
        measured: row.measured.into(),
        relation: if row.measure.is_floor() { Relation::AtLeast } else { Relation::AtMost },
        limit: row.limit.into(),
        unit,
        decimals,
        passed: row.passed,
        source: row.source.clone(),
    }
}

fn add_highlights(document: &mut Document, results: &RunResults) {
    if results.measured_s <= 0.0 {
        return;
    }
    let target = results.target_iops();
    let note = target.map(|target| format!("target {}", number(target, 0))).unwrap_or_default();
    document.highlight("Database I/O", Cell::number(results.achieved_iops(), Unit::IoPerSecond, 0), note);
    for (role, what) in [(VolumeRole::Database, "Database read"), (VolumeRole::Log, "Log write")] {
        let judged = |volume: &VolumeResults| match role {
            VolumeRole::Database => (volume.judged_read_ms(), volume.read.p99_ms),
            VolumeRole::Log => (volume.judged_write_ms(), volume.write.p99_ms),
        };
        let slowest = results
            .in_role(role)
            .map(judged)
            .max_by(|one, other| one.0.partial_cmp(&other.0).expect("latencies are numbers"));
        if let Some((average_ms, p99_ms)) = slowest {
            let note = p99_ms.map(|p99| format!("99 % within {p99:.2} ms")).unwrap_or_default();
            document.highlight(what, Cell::number(average_ms, Unit::Milliseconds, 2), note);
        }
    }
    if results.pacing.is_some() {
        let p99 = Cell::number(results.all_operations.p99_ms, Unit::Milliseconds, 2);
        document.highlight("Operation, from intended start: p99", p99, "includes the wait to start");
    }
    let checked = results.transactions.records_checked;
    if checked > 0 {
        document.highlight("Records checked", Cell::count(checked), "read back and right");
    }
}

/// Adds the limit with the highest measured value relative to it.
fn add_closest_limit(document: &mut Document, verdict: &RunVerdict) {
    let share = |row: &VerdictRow| match (row.measured, row.measure.is_floor()) {
        (Some(measured), false) if row.limit > 0.0 => Some(measured / row.limit * 100.0),
        _ => None,
    };
    let shares = verdict.rows.iter().filter_map(|row| Some((share(row)?, row)));
    let Some((percent, row)) = shares.max_by(|(one, _), (other, _)| one.total_cmp(other)) else { return };
    let (unit, decimals) = unit_of(row.measure);
    let place = row.place.as_ref().map(|place| format!(" on {place}")).unwrap_or_default();
    let measured = number(row.measured.expect("it has a share"), decimals);
    let title = row.measure.title();
    let title = title
        .chars()
        .next()
        .map(|first| first.to_lowercase().chain(title.chars().skip(1)).collect::<String>());
    let note = format!("{}{place}: {measured} of {} {unit}", title.unwrap_or_default(), row.limit);
    document.highlight("Closest to its limit", Cell::number(percent, Unit::Percent, 0), note);
}

fn add_findings(document: &mut Document, results: &RunResults, verdict: &RunVerdict) {
    for row in verdict.broken() {
        document.finding(Severity::Error, format!("{}.", broken(row)), row.source.clone());
    }
    for failure in &results.failures {
        let what = match failure.kind {
            FailureKind::Io => "I/O error",
            FailureKind::Checksum => "damage",
            FailureKind::Content => "wrong record",
            FailureKind::Engine => "engine failure",
        };
        document.finding(Severity::Error, format!("{what}: {}", failure.text), "");
    }
    if let Some(cut_off) = &results.cut_off {
        let (severity, text) = cut_off_in_words(results, cut_off);
        document.finding(severity, text, "");
    } else if results.interrupted {
        let text = format!("The run was ended early: the report is partial, and {}.", not_verified(results));
        document.finding(Severity::Warning, text, "");
    }
    anomalies::add_findings(document, results);
    averages::add_findings(document, results);
    pools::add_findings(document, results);
    backups::add_findings(document, results);
    let late = results.late;
    if late.longest_s() > LATE_WARNED_S {
        let after = match late.unanswered {
            0 => format!("none was unanswered {:.1} s later", late.waited_s),
            unanswered => {
                format!("{} unanswered {:.0} s later", number(unanswered as f64, 0), late.waited_s)
            }
        };
        let text = format!(
            "Outstanding when measuring ended: {}, the oldest for {:.1} s; {after}.",
            counted(late.count, "device operation"),
            late.oldest_s
        );
        document.finding(Severity::Warning, text, "");
    }
    if results.unfinished_operations > 0 {
        let text = format!(
            "{} arrived in the measured time and did not finish in it or shortly after; they count with the time \
             waited so far.",
            counted(results.unfinished_operations, "operation")
        );
        document.finding(Severity::Warning, text, "");
    }
    if !results.fill.reached && results.measured_s > 0.0 {
        let text = format!(
            "Measuring began before the cache was 90 % full, with {}.",
            ByteCount(results.fill.cache_bytes)
        );
        document.finding(Severity::Warning, text, "AMI 2008, test log: cache size, lower bound");
    }
    if !results.fill.settled && results.measured_s > 0.0 {
        let text = format!(
            "Measuring began after {:.0} s of load, before database writes had reached their usual level: \
             their measured rate is too low.",
            results.fill.seconds
        );
        document.finding(Severity::Warning, text, "");
    }
    if let Some(text) = sections::unjudged(results) {
        document.finding(Severity::Warning, text, "");
    }
    add_setup(document, results);
    for caveat in results.plan.caveats() {
        let severity = if caveat.is_note() { Severity::Note } else { Severity::Warning };
        document.finding(severity, caveat.to_string(), caveat.source());
    }
    if let Some(text) = grown_full(results) {
        document.finding(Severity::Note, text, "");
    }
    if let Some(thread) = results.busiest_thread().filter(|thread| thread.is_the_limit()) {
        let text = format!(
            "The thread of group {} used {:.0} % of its processor: it causes delays as much as the storage, \
             which may carry more. Use more groups; each has a thread of its own.",
            thread.group + 1,
            thread.percent
        );
        document.finding(Severity::Warning, text, "");
    }
    if generator_missed_target(results) {
        let text = format!(
            "The load generator missed the target: {} IOPS of {}, although nothing waited. This says \
             nothing about the storage; run the test again, or longer.",
            number(results.achieved_iops(), 1),
            number(results.target_iops().unwrap_or(f64::NAN), 1)
        );
        document.finding(Severity::Warning, text, "");
    }
    if let Some(pacing) = results.pacing
        && pacing.backlog_max as f64 > pacing.operations_per_second
    {
        let text = format!(
            "Up to {} waited to start, more than a second's arrivals ({}): the storage did not always keep \
             up.",
            counted(pacing.backlog_max, "operation"),
            number(pacing.operations_per_second, 0)
        );
        document.finding(Severity::Warning, text, "");
    }
    if let Some(pacing) = results.pacing
        && pacing.shed > 0
    {
        let text = format!(
            "Dropped because a minute's arrivals were already waiting: {}.",
            counted(pacing.shed, "operation")
        );
        document.finding(Severity::Warning, text, "");
    }
    let judged = results.judged_samples();
    let stalls = judged.iter().filter(|sample| sample.page_fault_stalls > 0).count();
    if stalls > 0 {
        let all = judged.len();
        let text = format!("Page faults found no free cache page in {stalls} of {all} samples.");
        document.finding(Severity::Note, text, "AMI 2008 counts samples higher than 0");
    }
}

/// One note about all databases that reached their maximum size.
fn grown_full(results: &RunResults) -> Option<String> {
    let mut full = results.databases.iter().filter(|database| database.became_full);
    let (first, others) = (full.next()?, full.count());
    let who = match others {
        0 => format!("{} grew to its limit", first.name),
        others if others + 1 == results.databases.len() => {
            format!("All {} grew to their limit", counted(others as u64 + 1, "database"))
        }
        others => {
            format!("{} and {} grew to their limit", first.name, counted(others as u64, "more database"))
        }
    };
    Some(format!("{who}; from then on as many records were deleted as inserted."))
}

/// Adds the published test the run follows, with the differences.
fn add_setup(document: &mut Document, results: &RunResults) {
    let Some(setup) = &results.plan.setup else { return };
    let differences = setup.differences(&results.plan);
    let text = match differences.as_slice() {
        [] => format!("Run as set-up {} says: {}.", setup.name, setup.summary),
        differences => format!(
            "Set-up {} ({}), but not as published: {}.",
            setup.name,
            setup.summary,
            differences.join("; ")
        ),
    };
    document.finding(Severity::Note, text, setup.source.as_str());
}

fn summary(results: &RunResults, verdict: &RunVerdict) -> Section {
    let mut rows = report::KeyValues::default()
        .row("Overall result", Cell::text(verdict.answer.word()))
        .row("Machine", results.host.name.as_str())
        .row("Operating system", results.host.operating_system.as_str())
        .row("Began (UTC)", utc(results.began_unix_s))
        .row("Ended (UTC)", utc(results.ended_unix_s))
        .row("Measured", Cell::seconds(results.load_s.max(results.measured_s)));
    if results.plan.judged != JudgedPart::All {
        let TimeRange { from_s, to_s } = results.plan.judged_part();
        rows = rows.row_with_note(
            "Judged part",
            Cell::seconds(results.measured_s),
            format!(
                "{}: from {} to {}; rates, averages and worst windows are of this part; charts, I/O errors and \
                 verification cover everything",
                results.plan.judged,
                TimeSpan(from_s),
                TimeSpan(to_s)
            ),
        );
    }
    let rows = rows.row("Program", results.generator.as_str()).row_with_note(
        "Profile",
        results.plan.profile.name.as_str(),
        results.plan.profile.summary.as_str(),
    );
    Section::new("Test summary", "")
        .block(rows)
        .block(LimitTable { checks: verdict.rows.iter().map(limit_check).collect() })
        .paragraph(
            "Latencies are those of device operations under the database engine. As Jetstress sampled, an average \
             is the mean of averages over 15 seconds, so that slow time counts by its length, and a maximum is the \
             highest of them. The tables below also have averages over operations and the slowest single \
             operations; these are not judged.",
        )
}

//! The summary of a planned run: its locations, its settings, and the resources it takes.

use crate::{
    location::{LocationFacts, RunLocation},
    manifest::DatabaseAction,
    planning::PlannedRun,
    pristine::CopyTask,
    sizing::{ResourceNeeds, show_decimal},
    survey::StorageSurvey,
};
use report::{
    duration::{show_duration, show_estimate},
    prose::counted,
};
use std::time::Duration;
use workload::{
    database::plan::{LoadPlan, RunPlan},
    verdict::judged_part::JudgedPart,
};
use world::ByteCount;

/// Appearance of the summary.
#[derive(Clone, Copy, Debug, Default)]
pub struct SummaryStyle {
    /// Columns to wrap at; `None` for long lines.
    pub width: Option<usize>,
    /// The title is bold, by an ANSI code.
    pub bold: bool,
}

const TITLE: &str = "spindle prove";
/// Column of a row's text, after its indented name.
const TEXT_COLUMN: usize = 13;
/// Text is not wrapped narrower than this.
const TEXT_WIDTH_MIN: usize = 20;

/// The settings and needs of a run.
struct RunSummary<'a> {
    pub plan: &'a RunPlan,
    /// `None` without pools.
    pub array: Option<&'a str>,
    /// Initial databases: `new databases`, `the databases that are there`…
    pub beginning: &'a str,
    pub needs: &'a ResourceNeeds,
}

/// The summary of a planned run.
pub fn summary_lines(style: SummaryStyle, planned: &PlannedRun, survey: &StorageSurvey) -> Vec<String> {
    let locations = &survey.locations;
    let of = |indices: &[usize]| indices.iter().map(|&index| &locations.all[index]).collect::<Vec<_>>();
    let beginning = match planned.action {
        DatabaseAction::Attach if planned.copies == CopyTask::Restore => {
            "by putting back the pristine copies of an earlier run".to_owned()
        }
        DatabaseAction::Create => "with new databases".to_owned(),
        DatabaseAction::Attach if planned.needs.missing > ByteCount(0) => format!(
            "with the databases that are there; {} of them are still to be made",
            planned.needs.missing
        ),
        DatabaseAction::Attach => "with the databases that are there".to_owned(),
        DatabaseAction::Replace => "by removing what an earlier run made, then with new databases".to_owned(),
    };
    let beginning = match planned.copies {
        CopyTask::Keep => format!("{beginning}, of which pristine copies are kept"),
        CopyTask::Forget => format!("{beginning}; pristine copies that were never finished are removed"),
        CopyTask::Leave | CopyTask::Restore => beginning,
    };
    let array = planned.pools.as_ref().map(|pools| pools.in_words(locations));
    let summary = RunSummary {
        plan: &planned.plan,
        array: array.as_deref(),
        beginning: &beginning,
        needs: &planned.needs,
    };
    lines(style, &summary, &of(&locations.databases), &of(&locations.logs))
}

/// Warnings about a planned run: busy or volatile storage, I/O that the page cache may answer, or without io_uring.
pub fn warnings(planned: &PlannedRun, survey: &StorageSurvey) -> Vec<String> {
    let of_locations = survey.locations.all.iter().flat_map(RunLocation::warnings);
    of_locations.chain(io_warnings(planned)).chain(survey.io_notice.clone()).collect()
}

/// Volumes whose I/O the page cache may answer, which would flatter the result.
fn io_warnings(planned: &PlannedRun) -> Vec<String> {
    let indirect = planned.plan.volumes.iter().filter(|volume| !volume.direct);
    indirect.map(|volume| format!("{} is reached by {}", volume.name, volume.io)).collect()
}

fn lines(
    style: SummaryStyle,
    summary: &RunSummary<'_>,
    databases: &[&RunLocation],
    logs: &[&RunLocation],
) -> Vec<String> {
    let plan = summary.plan;
    let load = match plan.load {
        LoadPlan::Threads { per_group } => format!("{} each", counted(per_group.into(), "thread")),
        LoadPlan::Mailboxes { count, iops_each } => {
            format!("{} at {iops_each} IOPS", counted(count, "mailbox"))
        }
        LoadPlan::Maximum { .. } => "the highest rate within limits".to_owned(),
        LoadPlan::TunedThreads { .. } => "the best number of threads".to_owned(),
    };
    let width_after = |column: usize| style.width.map_or(usize::MAX, |width| width.saturating_sub(column));
    let head = if style.bold { format!("\x1b[1m{TITLE}\x1b[0m") } else { TITLE.to_owned() };
    let title = format!(
        "profile {}, {} of {}, {load}, seed {}",
        plan.profile.name,
        counted(plan.groups.into(), "group"),
        counted(plan.databases_per_group.into(), "database"),
        plan.seed,
    );
    let mut lines = Vec::new();
    for (index, part) in wrapped(&title, width_after(TITLE.len() + 2)).into_iter().enumerate() {
        lines.push(match index {
            0 => format!("{head}: {part}"),
            _ => format!("{:1$}{part}", "", TITLE.len() + 2),
        });
    }
    lines.push(String::new());
    let mut row = |name: &str, text: String| {
        for (index, part) in wrapped(&text, width_after(TEXT_COLUMN)).into_iter().enumerate() {
            let name = if index == 0 { name } else { "" };
            lines.push(format!("  {name:<10} {part}").trim_end().to_owned());
        }
    };
    for (index, location) in databases.iter().enumerate() {
        row(if index == 0 { "databases" } else { "" }, describe(location));
    }
    for (index, location) in logs.iter().enumerate() {
        row(if index == 0 { "logs" } else { "" }, describe(location));
    }
    if logs.is_empty() {
        row("logs", "beside the databases".to_owned());
    }
    if let Some(array) = summary.array {
        row("array", array.to_owned());
    }
    if let Some(setup) = &plan.setup {
        row("as in", format!("{} ({})", setup.summary, setup.source));
        let differences = setup.differences(plan);
        if !differences.is_empty() {
            row("but", differences.join("; "));
        }
        for sweep in &setup.sweeps {
            row("varied", format!("{}: {}", sweep.sweep, sweep.shows));
        }
    }
    let needs = summary.needs;
    row("begins", summary.beginning.to_owned());
    row(
        "space",
        match summary.array {
            None => {
                format!("at most {}: databases of {} together, room to grow, logs", needs.space, needs.size)
            }
            Some(_) => format!(
                "at most {}: databases of {} together, room to grow, logs, and the drives of the pools",
                needs.space, needs.size
            ),
        },
    );
    row("memory", format!("about {}, of it {} of cache for each group", needs.memory, needs.cache));
    row(
        "writes",
        format!(
            "about {}; at {} the run ends, with a partial report",
            about(needs.writes),
            show_decimal(needs.writes_max)
        ),
    );
    if let Some(probe) = plan.load.probe() {
        row(
            "search",
            format!(
                "at most {} loads of {} each, then the highest that kept every limit is held; if it does not \
                 then, less is, at most {} times",
                probe.probes_max,
                show_duration(Duration::from_secs(probe.probe_s())),
                probe.holds_max.saturating_sub(1),
            ),
        );
    }
    row("time", time(plan, needs));
    lines
}

/// Time of the run, and of its parts.
fn time(plan: &RunPlan, needs: &ResourceNeeds) -> String {
    let judged = match plan.judged {
        JudgedPart::All => String::new(),
        part => format!(", {part} judged"),
    };
    let measured = format!("{} measured{judged}", show_duration(plan.duration()));
    match plan.load.probe() {
        None => format!("{}, of it {measured}", show_estimate(needs.time)),
        Some(probe) => format!(
            "{} at most, of it {} searched, {measured}, and {} for more holds if the first is not kept",
            show_estimate(needs.time),
            show_duration(Duration::from_secs(probe.seconds_max())),
            show_duration(Duration::from_secs(probe.further_holds_s(plan.duration_s))),
        ),
    }
}

/// `text` in lines of at most `width` columns, broken between words; a longer word stays whole.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(TEXT_WIDTH_MIN);
    let mut lines = vec![String::new()];
    // Double blanks within a line stay.
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        let fits = line.chars().count() + 1 + word.chars().count() <= width;
        match (line.is_empty(), fits) {
            (true, _) => line.push_str(word),
            (false, true) => {
                line.push(' ');
                line.push_str(word);
            }
            (false, false) => {
                line.truncate(line.trim_end().len());
                lines.push(word.to_owned());
            }
        }
    }
    lines
}

/// One location in a line: path, device, model, filesystem, space.
fn describe(location: &RunLocation) -> String {
    format!("{}  {}", location.given.display(), description(location))
}

/// Filesystem and device, model, space of a location.
pub fn description(location: &RunLocation) -> String {
    let (name, space) = match &location.facts {
        LocationFacts::Folder(folder) => (
            format!("{} on {}", folder.filesystem, folder.source),
            format!("{} free of {}", folder.free, folder.total),
        ),
        LocationFacts::Device(device) => {
            let name = if device.remote.is_some() { "device elsewhere" } else { "raw device" };
            (name.to_owned(), device.size.to_string())
        }
    };
    let drive = location.drive();
    let kind = drive.rotational.map(|rotational| if rotational { "spinning disk" } else { "flash" });
    let details: Vec<&str> = drive.model.as_deref().into_iter().chain(kind).collect();
    if details.is_empty() {
        format!("{name}, {space}")
    } else {
        format!("{name} ({}), {space}", details.join(", "))
    }
}

/// An estimate of bytes, rounded up to few digits.
fn about(bytes: ByteCount) -> ByteCount {
    let step = match bytes.0 {
        0..1_073_741_824 => 1 << 20,
        1_073_741_824..107_374_182_400 => 1 << 30,
        _ => 10 << 30,
    };
    ByteCount(bytes.0.div_ceil(step) * step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{location::tests::folder, sizing::tests::request};
    use expect_test::expect;
    use std::time::Duration;

    #[test]
    fn a_narrow_terminal_breaks_rows_between_words() {
        let text = "/mnt/db  ext4 on /dev/sda1 (WDC WD40, spinning disk), 80.0 GiB free of 100 GiB";
        assert_eq!(wrapped(text, usize::MAX), [text]);
        assert_eq!(
            wrapped(text, 47),
            ["/mnt/db  ext4 on /dev/sda1 (WDC WD40, spinning", "disk), 80.0 GiB free of 100 GiB"]
        );
        assert_eq!(
            wrapped("/a/path/longer/than/the/terminal x", 3),
            ["/a/path/longer/than/the/terminal", "x"]
        );
    }

    #[test]
    fn the_screen_names_path_device_space_memory_writes_and_minutes() {
        let needs = ResourceNeeds {
            size: ByteCount::gib(1),
            cache: ByteCount::mib(51),
            space: ByteCount::mib(1_330),
            memory: ByteCount::mib(120),
            missing: ByteCount(0),
            writes: ByteCount::mib(7_400),
            writes_max: ByteCount(1_000_000_000_000),
            time: Duration::from_secs(89),
        };
        let mut facts = folder("/mnt/db");
        facts.drive.model = Some("WDC WD40".to_owned());
        facts.drive.rotational = Some(true);
        let location = RunLocation { given: "/mnt/db".into(), facts: LocationFacts::Folder(facts) };
        let plan = request().plan;
        let summary = RunSummary { plan: &plan, array: None, beginning: "new databases", needs: &needs };
        expect![[r#"
            spindle prove: profile exchange-2010, 1 group of 1 database, 4 threads each, seed 1

              databases  /mnt/db  ext4 on /dev/sda1 (WDC WD40, spinning disk), 80.0 GiB free of 100 GiB
              logs       beside the databases
              begins     new databases
              space      at most 1.30 GiB: databases of 1.00 GiB together, room to grow, logs
              memory     about 120 MiB, of it 51.0 MiB of cache for each group
              writes     about 8.00 GiB; at 1 TB the run ends, with a partial report
              time       about 1 min 30 s, of it 1 min measured"#]]
        .assert_eq(&lines(SummaryStyle::default(), &summary, &[&location], &[]).join("\n"));
    }
}

//! The screen before the first byte: where, what on, how much, how long.

use super::{
    place::{Ground, Place},
    sizing::{Needs, show_decimal},
};
use crate::{
    console::Console,
    quantity::{show_duration, show_estimate},
};
use report::prose::counted;
use std::time::Duration;
use workload::database::{
    judged::Judged,
    plan::{Load, RunPlan},
};
use world::ByteCount;

/// What is being done, at the head of the screen.
const TITLE: &str = "spindle prove";
/// Where the text of a row begins, after its indented name.
const TEXT_COLUMN: usize = 13;
/// Text is not wrapped narrower than this.
const TEXT_WIDTH_MIN: usize = 20;

/// What the screen says beside the places.
pub struct Intent<'a> {
    /// What is to be done.
    pub plan: &'a RunPlan,
    /// The pools, if there are to be any.
    pub array: Option<&'a str>,
    /// What begins: `new databases`, `the databases that are there`…
    pub beginning: &'a str,
    /// What it all takes.
    pub needs: &'a Needs,
}

/// The lines of the screen.
pub fn lines(console: &Console, intent: &Intent<'_>, databases: &[&Place], logs: &[&Place]) -> Vec<String> {
    let plan = intent.plan;
    let load = match plan.load {
        Load::Threads { per_group } => format!("{} each", counted(per_group.into(), "thread")),
        Load::Mailboxes { count, iops_each } => {
            format!("{} at {iops_each} IOPS", counted(count, "mailbox"))
        }
        Load::Maximum { .. } => "the highest rate within limits".to_owned(),
        Load::TunedThreads { .. } => "the best number of threads".to_owned(),
    };
    let width_after = |column: usize| match console.wraps {
        true => console.width.saturating_sub(column),
        false => usize::MAX,
    };
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
            0 => format!("{}: {part}", console.paint(TITLE, "1")),
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
    for (index, place) in databases.iter().enumerate() {
        row(if index == 0 { "databases" } else { "" }, describe(place));
    }
    for (index, place) in logs.iter().enumerate() {
        row(if index == 0 { "logs" } else { "" }, describe(place));
    }
    if logs.is_empty() {
        row("logs", "beside the databases".to_owned());
    }
    if let Some(array) = intent.array {
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
    let needs = intent.needs;
    row("begins", intent.beginning.to_owned());
    row(
        "space",
        match intent.array {
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

/// How long it takes, and what of it is what.
fn time(plan: &RunPlan, needs: &Needs) -> String {
    let judged = match plan.judged {
        Judged::All => String::new(),
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
    // Double blanks within a line are kept.
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

/// One place in a line: path, device, model, filesystem, space.
fn describe(place: &Place) -> String {
    format!("{}  {}", place.given.display(), description(place))
}

/// What a place is: filesystem and device, model, space.
pub fn description(place: &Place) -> String {
    let (name, space) = match &place.ground {
        Ground::Folder(folder) => (
            format!("{} on {}", folder.filesystem, folder.source),
            format!("{} free of {}", folder.free, folder.total),
        ),
        Ground::Device(device) => {
            let name = if device.remote.is_some() { "device elsewhere" } else { "raw device" };
            (name.to_owned(), device.size.to_string())
        }
    };
    let drive = place.drive();
    let kind = drive.rotational.map(|rotational| if rotational { "spinning disk" } else { "flash" });
    let details: Vec<&str> = drive.model.as_deref().into_iter().chain(kind).collect();
    match details.is_empty() {
        true => format!("{name}, {space}"),
        false => format!("{name} ({}), {space}", details.join(", ")),
    }
}

/// An estimate of bytes with no more digits than it knows.
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
    use crate::prove::{place::tests::folder, sizing::tests::wanted};
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
        let console = Console::plain();
        let needs = Needs {
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
        let place = Place { given: "/mnt/db".into(), ground: Ground::Folder(facts) };
        let plan = wanted().plan;
        let intent = Intent { plan: &plan, array: None, beginning: "new databases", needs: &needs };
        expect![[r#"
            spindle prove: profile exchange-2010, 1 group of 1 database, 4 threads each, seed 1

              databases  /mnt/db  ext4 on /dev/sda1 (WDC WD40, spinning disk), 80.0 GiB free of 100 GiB
              logs       beside the databases
              begins     new databases
              space      at most 1.30 GiB: databases of 1.00 GiB together, room to grow, logs
              memory     about 120 MiB, of it 51.0 MiB of cache for each group
              writes     about 8.00 GiB; at 1 TB the run ends, with a partial report
              time       about 1 min 30 s, of it 1 min measured"#]]
        .assert_eq(&lines(&console, &intent, &[&place], &[]).join("\n"));
    }
}

//! The screen before the first byte: where, what on, how much, how long.

use super::{
    place::{Ground, Place},
    sizing::{Load, Needs},
};
use crate::{
    console::Console,
    quantity::{show_duration, show_estimate},
};
use std::time::Duration;
use world::ByteCount;

/// What the screen says beside the places.
pub struct Intent<'a> {
    /// Name of the profile.
    pub profile: &'a str,
    /// Storage groups.
    pub groups: u32,
    /// Databases in each.
    pub databases: u32,
    /// What drives them.
    pub load: Load,
    /// Measured time.
    pub duration: Duration,
    /// What begins: `new databases`, `the databases that are there`…
    pub beginning: &'a str,
    /// Seed of everything random.
    pub seed: u64,
    /// What it all takes.
    pub needs: &'a Needs,
}

/// The lines of the screen.
pub fn lines(console: &Console, intent: &Intent<'_>, databases: &[&Place], logs: &[&Place]) -> Vec<String> {
    let load = match intent.load {
        Load::Threads(threads) => plural(threads, "thread"),
        Load::Rate(rate) => format!("a held rate of {rate:.0} I/O a second"),
    };
    let mut lines = vec![
        format!(
            "{}: profile {}, {} of {}, {load}, seed {}",
            console.paint("spindle prove", "1"),
            intent.profile,
            plural(intent.groups, "group"),
            plural(intent.databases, "database"),
            intent.seed,
        ),
        String::new(),
    ];
    let mut row = |name: &str, text: String| lines.push(format!("  {name:<10} {text}").trim_end().to_owned());
    for (index, place) in databases.iter().enumerate() {
        row(if index == 0 { "databases" } else { "" }, describe(place));
    }
    for (index, place) in logs.iter().enumerate() {
        row(if index == 0 { "logs" } else { "" }, describe(place));
    }
    if logs.is_empty() {
        row("logs", "beside the databases".to_owned());
    }
    let needs = intent.needs;
    row("begins", intent.beginning.to_owned());
    row(
        "space",
        format!("at most {}: databases of {} together, room to grow, logs", needs.space, needs.size),
    );
    row("memory", format!("about {}, of it {} of database cache a group", needs.memory, needs.cache));
    row("writes", format!("about {}", about(needs.writes)));
    row("time", format!("{}, of it {} measured", show_estimate(needs.time), show_duration(intent.duration)));
    lines
}

/// One place in a line: path, device, model, filesystem, space.
fn describe(place: &Place) -> String {
    let mut parts = Vec::new();
    let (name, space) = match &place.ground {
        Ground::Folder(folder) => (
            format!("{} on {}", folder.filesystem, folder.source),
            format!("{} free of {}", folder.free, folder.total),
        ),
        Ground::Device(device) => ("raw device".to_owned(), device.size.to_string()),
    };
    let drive = place.drive();
    let mut model = drive.model.clone().unwrap_or_default();
    if let Some(rotational) = drive.rotational {
        let kind = if rotational { "spinning disk" } else { "no spinning disk" };
        model = if model.is_empty() { kind.to_owned() } else { format!("{model}, {kind}") };
    }
    parts.push(if model.is_empty() { name } else { format!("{name} ({model})") });
    parts.push(space);
    format!("{}  {}", place.given.display(), parts.join(", "))
}

/// `1 group`, `2 groups`.
pub fn plural(count: u32, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
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
    use crate::prove::place::tests::folder;
    use expect_test::expect;

    #[test]
    fn the_screen_names_path_device_space_memory_writes_and_minutes() {
        let console = Console::plain();
        let needs = Needs {
            size: ByteCount::gib(1),
            cache: ByteCount::mib(256),
            space: ByteCount::mib(1_254),
            memory: ByteCount::mib(304),
            writes: ByteCount::mib(7_400),
            time: Duration::from_secs(89),
        };
        let mut facts = folder("/mnt/db");
        facts.drive.model = Some("WDC WD40".to_owned());
        facts.drive.rotational = Some(true);
        let place = Place { given: "/mnt/db".into(), ground: Ground::Folder(facts) };
        let intent = Intent {
            profile: "exchange-2010",
            groups: 1,
            databases: 2,
            load: Load::Threads(4),
            duration: Duration::from_secs(60),
            beginning: "new databases",
            seed: 7,
            needs: &needs,
        };
        expect![[r#"
            spindle prove: profile exchange-2010, 1 group of 2 databases, 4 threads, seed 7

              databases  /mnt/db  ext4 on /dev/sda1 (WDC WD40, spinning disk), 80.0 GiB free of 100 GiB
              logs       beside the databases
              begins     new databases
              space      at most 1.22 GiB: databases of 1.00 GiB together, room to grow, logs
              memory     about 304 MiB, of it 256 MiB of database cache a group
              writes     about 8.00 GiB
              time       about 1 min 30 s, of it 1 min measured"#]]
        .assert_eq(&lines(&console, &intent, &[&place], &[]).join("\n"));
    }
}

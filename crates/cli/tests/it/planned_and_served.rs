//! One file from users to a test: planned for Spindle's array, given its devices, served, proved and advised on.

use crate::{
    exported::Exported,
    pool_drives::done,
    sites_served::Served,
    spindle::{Bench, answered, json_of},
};
use std::fs;

const MIB: u64 = 1 << 20;
const USERS: [&str; 8] = ["plan", "--users", "20", "--quota", "10MB", "--messages", "10", "--max-db-size"];

/// The value of a key of a table.
fn value(table: &str, key: &str) -> usize {
    let start = format!("\n{key} = ");
    let text = table.split(&start).nth(1).unwrap_or_else(|| panic!("{key} of {table}"));
    text.lines().next().unwrap().parse().unwrap()
}

#[test]
fn a_plan_for_spindle_gets_devices_and_is_served_proved_and_advised_on() {
    let bench = Bench::new();
    let plan = [&USERS[..], &["1GB", "--array", "spindle", "--site", "site.toml", "--quiet"]].concat();
    done(&bench.run(&plan));
    let planned = fs::read_to_string(bench.path("site.toml")).unwrap();
    assert!(planned.contains("array = \"Spindle\"") && !planned.contains("raid5"), "{planned}");
    let refused = bench.refused(&[&USERS[..], &["1GB", "--array", "spindle", "--raid", "raid50"]].concat());
    assert!(
        refused.contains(
            "Spindle's pools do not have raid50 yet: the nearest is raid10 (--raid raid10), which takes "
        ),
        "{refused}"
    );

    // Disks of another machine, as many as each group says.
    let tables: Vec<&str> = planned.split("[[group]]").collect();
    let counts: Vec<usize> =
        tables[1..].iter().map(|table| value(table, "drives") + value(table, "spares")).collect();
    let names: Vec<String> = (0..counts.iter().sum()).map(|number| format!("disk{number}")).collect();
    for name in &names {
        fs::File::create(bench.path(name)).unwrap().set_len(160 * MIB).unwrap();
    }
    let arguments: Vec<&str> = names.iter().map(String::as_str).chain(["--nbd", "127.0.0.1:0"]).collect();
    let disks = Exported::begin(&bench, &arguments);
    let mut uris = disks.uris.iter();
    let mut filled = tables[0].to_owned();
    for (table, count) in tables[1..].iter().zip(counts) {
        let devices: Vec<&String> = uris.by_ref().take(count).collect();
        filled += &format!("[[group]]\ndevices = {devices:?}{table}");
    }
    let volumes = ["db01", "db01-log"];
    for volume in volumes {
        filled += &format!("\n[[nbd]]\nname = \"{volume}\"\nvolume = \"{volume}\"\n");
    }
    filled += "\n[serve]\nnbd = \"127.0.0.1:0\"\niscsi = \"none\"\n";
    bench.make_file("site.toml", filled.as_bytes());
    let served = Served::begin(&bench);
    assert_eq!(
        served.changes.iter().filter(|change| change.starts_with("create pool ")).count(),
        3,
        "{:?}",
        served.changes
    );

    // Where hosts find the volumes is told to prove; serve does not mind.
    for volume in volumes {
        let uri = served.uri(&format!("/{volume}"));
        let table = format!("[[volume]]\nname = \"{volume}\"\n");
        filled = filled.replace(&table, &format!("{table}path = \"{uri}\"\n"));
    }
    bench.make_file("site.toml", filled.as_bytes());
    let said = bench.run(&["apply", "site.toml", "--state", "state", "--dry-run"]);
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    let prove = ["prove", "--site", "site.toml", "--duration", "1s", "--size", "8MiB", "--threads", "1"];
    let proved = bench.run(&[&prove[..], &["--report", "run"]].concat());
    answered(&proved);
    let said = bench.run(&["advise", "site.toml", "--run", "run.run", "--json"]);
    // On a busy machine a log write may take longer than the limit, which is advised on then.
    if proved.code == Some(0) {
        assert_eq!(
            (said.code, &json_of(&said.stdout)["errors"]),
            (Some(0), &0.into()),
            "{}{}",
            said.stdout,
            said.stderr
        );
    }
    let findings = json_of(&said.stdout)["findings"].to_string();
    assert!(!findings.contains("backup-raid"), "nothing is advised that the array has not: {findings}");
    served.end();
    disks.end();
}

//! `spindle report --from`: the performance over time of a server as a report, and as a profile that `prove` runs.

use crate::{
    pool_drives::done,
    sites_served::Served,
    spindle::{Bench, answered, json_of},
};
use std::fs;

const SITE: &str =
    "[serve]\nnbd = 'none'\niscsi = 'none'\n[[group]]\nname = 'post'\ndrives = 2\ndrive_gb = 0.1\n";

/// A day of a server: a volume of 1 GiB that worked from 8 to 18 h.
fn golden_day() -> Vec<u8> {
    let text = include_str!("../../../control/tests/it/golden/history-day-1.hex");
    text.split_whitespace().map(|word| u8::from_str_radix(word, 16).unwrap()).collect()
}

#[test]
fn a_day_of_a_server_becomes_a_report_and_a_profile_that_prove_runs() {
    let bench = Bench::new();
    bench.make_file("site.toml", SITE.as_bytes());
    fs::write(bench.make_folder("state/history").join("2026-11-28.day"), golden_day()).unwrap();
    let served = Served::begin(&bench);
    let day = ["report", "--from", "2026-11-28", "--to", "2026-11-29", "--state", "state"];
    let with = |more: &[&str]| bench.run(&[&day[..], more].concat());

    let said = with(&["--report", "day", "--mailboxes", "500"]);
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    assert!(said.stdout.contains("Busiest hour") && said.stdout.contains("day.toml"), "{}", said.stdout);
    assert!(said.stdout.contains("14 h of this time were not recorded"), "{}", said.stdout);
    let next = said.stdout.lines().find(|line| line.starts_with("Next: ")).expect("a command").to_owned();
    let report = json_of(&fs::read_to_string(bench.path("day.json")).unwrap())["document"].take();
    let of_highlight = |key: &str| {
        let all = report["highlights"].as_array().unwrap().clone();
        all.into_iter().find(|row| row["key"] == key).unwrap()["value"]["value"].as_f64().unwrap()
    };
    // 310 reads and 155 writes a second in each hour, off by 4.4 % at most.
    let (rate, reads) = (of_highlight("Busiest hour"), of_highlight("Reads in it"));
    assert!((rate / 465.0 - 1.0).abs() < 0.05 && (reads - 66.7).abs() < 2.0, "{rate} IOPS, {reads} %");
    assert!(fs::read_to_string(bench.path("day.html")).unwrap().contains("mail/store1"));

    // The command as it is said, on a short run.
    let words: Vec<String> = next.split_whitespace().skip(3).map(str::to_owned).collect();
    assert_eq!((words[0].as_str(), words[1].as_str(), words[2].as_str()), ("PATH", "--server", "day.toml"));
    let iops: f64 = words[words.iter().position(|word| word == "--iops").unwrap() + 1].parse().unwrap();
    assert!((iops / 0.93 - 1.0).abs() < 0.05, "{next}");
    bench.make_folder("databases");
    let run = ["prove", "databases", "--server", "day.toml", "--mailboxes", "20", "--iops", "0.5"];
    let run = bench.run(&[&run[..], &["--size", "64MiB", "--duration", "2s", "--report", "run"]].concat());
    answered(&run);
    let run = fs::read_to_string(bench.path("run.json")).unwrap();
    assert!(run.contains("of the operations of hosts were reads"), "its sources are in the report");

    // Refusals leave nothing.
    let refused = |more: &[&str]| {
        let said = with(more);
        assert_eq!(said.code, Some(2), "{}", said.stdout);
        said.stderr
    };
    assert!(refused(&["--report", "day"]).contains("day.html"), "a report is not replaced");
    let missing = refused(&["--report", "other", "--volume", "mail/store2"]);
    assert!(missing.contains("mail/store2 had no I/O") && missing.contains("mail/store1"), "{missing}");
    assert!(refused(&["--report", "other", "--base", "exchange-2017"]).contains("exchange-2007"));
    let early =
        ["report", "--from", "2026-10-01", "--to", "2026-10-02", "--state", "state", "--report", "other"];
    assert!(bench.run(&early).stderr.contains("no volume had I/O"));
    assert!(bench.run(&["report"]).stderr.contains("<RUN>"));
    assert!(!bench.path("other.html").exists() && !bench.path("other.toml").exists());

    let json = done(&with(&["--report", "again", "--volume", "mail/store1", "--json"]));
    assert_eq!(json_of(&json)["document"]["title"], "What hosts did");
    served.end();
}

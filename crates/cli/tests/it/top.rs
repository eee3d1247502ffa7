//! `spindle top` beside a load of known size.

use crate::{
    pool_drives::done,
    sites_served::{SITE, Served},
    spindle::{Bench, is_full_run, json_of},
};
use std::{
    process::{Command, Stdio},
    thread,
    time::Duration,
};

/// Operations that fio is held to, in a second, of reads and of writes each.
const RATE: f64 = 200.0;

#[test]
fn rates_are_those_of_fio_on_each_side_of_the_pool() {
    if !is_full_run("fio beside the rates of top") {
        return;
    }
    if Command::new("fio").arg("--version").output().is_err() {
        eprintln!("skipped: fio is not installed");
        return;
    }
    let bench = Bench::new();
    bench.make_file("site.toml", SITE.as_bytes());
    let served = Served::begin(&bench);
    let mut fio = Command::new("fio")
        .current_dir(bench.path("."))
        .args([
            "--name=load",
            "--ioengine=nbd",
            "--rw=randrw",
            "--bs=8k",
            "--size=8M",
            "--iodepth=4",
            "--time_based",
        ])
        .args([
            &format!("--rate_iops={RATE},{RATE}"),
            "--runtime=9",
            &format!("--uri={}", served.uri("/store")),
        ])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_secs(2));
    let once = ["top", "--once", "--interval", "4", "--state", "state"];
    let rates = json_of(&done(&bench.run(&[&once[..], &["--json"]].concat())));
    let plain = done(&bench.run(&["top", "--once", "--interval", "1", "--state", "state"]));
    assert!(fio.wait().unwrap().success());
    let figure =
        |row: &serde_json::Value, name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
    let is_near = |value: f64, wanted: f64| (value / wanted - 1.0).abs() < 0.1;
    let store = &rates["volumes"][0];
    assert_eq!(
        (&store["pool"], &store["name"]),
        (&"mail".into(), &"store".into()),
        "the busiest first: {rates}"
    );
    for (name, wanted) in [
        ("reads_per_second", RATE),
        ("writes_per_second", RATE),
        ("read_bytes_per_second", RATE * 8192.0),
        ("written_bytes_per_second", RATE * 8192.0),
    ] {
        assert!(is_near(figure(store, name), wanted), "{name}: {store}");
        assert_eq!(store[name], rates["pools"][0][name], "the only volume with I/O");
    }
    assert!(figure(store, "write_milliseconds") > 0.0, "{store}");
    for drive in rates["drives"].as_array().unwrap().iter().filter(|drive| drive["pool"] == "mail") {
        assert!(
            figure(drive, "written_bytes_per_second") > RATE * 8192.0 * 0.9,
            "each write has two copies: {drive}"
        );
    }
    let pool = &rates["pools"][0];
    assert_eq!((&pool["name"], &pool["is_up"]), (&"mail".into(), &true.into()));
    assert!(pool["stage_milliseconds"].as_array().unwrap().iter().all(|stage| stage.is_number()), "{pool}");
    let lines: Vec<&str> = plain.lines().collect();
    assert!(lines[0].starts_with("pool  full  clients  read/s") && lines[1].starts_with("mail  "), "{plain}");
    assert!(lines.iter().any(|line| line.starts_with("mail  store ")), "{plain}");
    // Without a terminal there is no screen.
    let refused = bench.run(&["top", "--state", "state"]);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("'spindle top' needs a terminal; say --once for plain text"),
        "{}",
        refused.stderr
    );
    served.end();
    let refused = bench.run(&once);
    assert_eq!(refused.code, Some(2), "{}", refused.stdout);
}

//! The units of the package, as systemd reads them.

use crate::{
    exported::is_installed,
    spindle::{Bench, PROGRAM},
};
use std::{fs, path::PathBuf, process::Command};

const UNITS: [&str; 2] = ["spindle.service", "spindle-protect@.service"];
/// Most points of `systemd-analyze security` for the server; 10 is no sandbox at all.
const EXPOSURE_MAX: f64 = 2.0;

fn unit(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd").join(name)
}

#[test]
fn systemd_finds_no_fault_in_the_units() {
    if !is_installed("systemd-analyze", "systemd") {
        return;
    }
    let bench = Bench::new();
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "--man=no"]);
    for name in UNITS {
        // The program is not installed here.
        let text = fs::read_to_string(unit(name)).unwrap().replace("/usr/bin/spindle", PROGRAM);
        command.arg(bench.make_file(name, text.as_bytes()));
    }
    let judged = command.output().unwrap();
    assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stderr));
    assert_eq!(String::from_utf8_lossy(&judged.stderr), "", "nor anything to warn of");
}

#[test]
fn the_server_is_kept_from_what_it_does_not_need_and_has_raw_drives_and_io_uring() {
    let text = fs::read_to_string(unit("spindle.service")).unwrap();
    let has = |line: &str| text.lines().any(|said| said == line);
    assert!(has("DeviceAllow=block-* rw") && has("SupplementaryGroups=disk"), "raw drives");
    assert!(has("SystemCallFilter=@system-service"), "io_uring is in it");
    if !is_installed("systemd-analyze", "systemd") {
        return;
    }
    let mut command = Command::new("systemd-analyze");
    command.args(["security", "--offline=true", "--no-pager"]).arg(unit("spindle.service"));
    let judged = command.output().unwrap();
    let report = String::from_utf8_lossy(&judged.stdout);
    let last = report.lines().last().unwrap_or_default();
    let (_, level) = last.split_once(": ").unwrap_or_else(|| panic!("no level: {report}"));
    let points: f64 = level.split(' ').next().unwrap().parse().unwrap();
    assert!(points <= EXPOSURE_MAX, "{report}");
    let mut filter = Command::new("systemd-analyze");
    let calls = filter.args(["syscall-filter", "--no-pager", "@system-service", "@aio"]).output().unwrap();
    let calls = String::from_utf8_lossy(&calls.stdout).into_owned();
    assert!(calls.contains("    @aio\n") && calls.contains("    io_uring_setup\n"), "{calls}");
}

//! Drives and what stands in for one: raw devices, failing ones, memory.

use crate::{
    spindle::{Bench, Watchdog, answered, is_full_run, json_of, short, wait_for_line},
    storage::{LoopDevice, Mount, may_mount},
};
use std::{
    fs,
    io::BufRead,
    process::Stdio,
    sync::atomic::{AtomicBool, Ordering},
};

#[test]
fn a_raw_device_is_worked_on_and_blank_again_after_cleaning() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    let Some(device) = LoopDevice::new(256 << 20) else { return };
    let path = device.path().display().to_string();
    answered(&bench.run(&short(&[&path, "--quiet", "--report", "one"])));
    answered(&bench.run(&short(&[&path, "--quiet", "--report", "two", "--attach"])));
    let said = bench.run(&["prove", &path, "--clean"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stdout.trim_end().ends_with(", the device is blank again"), "{}", said.stdout);
    answered(&bench.run(&short(&[&path, "--quiet", "--report", "three"])));
}

#[test]
fn what_the_kernel_says_of_a_failing_drive_is_in_the_report_and_fails_the_run() {
    if !is_full_run("a failing drive in the kernel's log") {
        return;
    }
    if !may_mount() {
        return;
    }
    if fs::File::open("/dev/kmsg").is_err() {
        return eprintln!("skipped: the kernel log cannot be read");
    }
    // The kernel drops such lines beyond ten in five seconds, whichever device they are of.
    for _ in 0..4 {
        let bench = Bench::new();
        let Some(device) = LoopDevice::new(256 << 20) else { return };
        let name = device.path().file_name().expect("a name").to_string_lossy().into_owned();
        let said = prove_on_failing(&bench, &device);
        let is_of_device = |line: &str| line.contains(&format!("dev {name}, sector"));
        if said.iter().any(|line| line.contains("kernel: I/O error: ") && is_of_device(line)) {
            let json = json_of(&fs::read_to_string(bench.path("result.json")).expect("a report"));
            let findings = json["document"]["findings"].to_string();
            assert!(
                findings.contains("in the kernel log about faults of the devices under test"),
                "{findings}"
            );
            return;
        }
        std::thread::sleep(std::time::Duration::from_secs(6));
    }
    panic!("nothing of the kernel's lines was said in four runs");
}

/// Runs `prove` on a device that fails while it is measured; the run must fail. Returns what was said from then on.
fn prove_on_failing(bench: &Bench, device: &LoopDevice) -> Vec<String> {
    let path = device.path().display().to_string();
    let arguments =
        ["prove", &path, "--size", "64MiB", "--cache", "4MiB", "--duration", "5s", "--report", "result"];
    let mut child =
        bench.command(&arguments).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("starts");
    let watch = Watchdog::over(&child);
    let reader = wait_for_line(&mut child, "measuring begins");
    // Again and again: a write behind the end makes the file below long again, and its holes read as zeroes.
    let has_ended = AtomicBool::new(false);
    let rest: Vec<String> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) {
                device.cut_off(4 << 20);
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        });
        let rest = reader.lines().map_while(Result::ok).collect();
        has_ended.store(true, Ordering::Relaxed);
        rest
    });
    assert_eq!(child.wait().expect("ends").code(), Some(1), "{rest:?}");
    watch.call_off();
    rest
}

#[test]
fn a_filesystem_in_memory_and_a_way_of_io_that_flatters_are_named() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    let _mount = Mount::tmpfs(&bench, "db", "size=256m");
    let said = bench.run(&short(&["db", "--quiet", "--report", "result", "--plain-io"]));
    answered(&said);
    assert!(
        said.stderr.contains("warning: db lies in memory (tmpfs): this proves nothing about a drive"),
        "{}",
        said.stderr
    );
    assert!(said.stderr.contains("warning: db is reached by helper threads, page cache"), "{}", said.stderr);
}

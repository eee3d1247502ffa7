//! Provenance of a result: machine, system, commit, date.

use crate::step;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::{fs, path::Path, process::Command};

/// Processor, its count, memory, kernel, and what the path lies on.
pub fn facts(path: &Path) -> Result<Value> {
    let read = |name: &str| fs::read_to_string(name).with_context(|| format!("reading {name}"));
    let processors = read("/proc/cpuinfo")?;
    let memory = read("/proc/meminfo")?;
    let value = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let filesystem =
        step::output(Command::new("df").args(["--output=source,fstype,size"]).arg(path)).unwrap_or_default();
    Ok(json!({
        "host": host(),
        "processor": value(&processors, "model name"),
        "processors": std::thread::available_parallelism()?.get(),
        "memory": value(&memory, "MemTotal"),
        "kernel": read("/proc/sys/kernel/osrelease")?.trim(),
        "filesystem": filesystem.lines().last().map(|line| {
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        }),
        "load_average_before": read("/proc/loadavg")?.trim(),
    }))
}

/// The name of the machine.
pub fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// Load of the machine, as the kernel says it.
pub fn load_average() -> String {
    fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()
}

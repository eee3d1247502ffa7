//! Processors, memory, kernel, and this process's use of them.

use super::fact;
use crate::ByteCount;
use std::{fs, thread, time::Duration};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    pub hostname: String,
    /// Kernel name and release: `Linux 6.12.9`.
    pub kernel: String,
    /// The distribution's name for itself, from os-release.
    pub system: Option<String>,
    /// Model name of the first processor.
    pub cpu_model: Option<String>,
    /// Processors this process may run on.
    pub cpu_count: usize,
    /// Total memory the kernel manages; less if a container's limit is lower.
    pub memory_total: ByteCount,
    /// Memory available without swapping, by the kernel's estimate and within the container's limit.
    pub memory_available: ByteCount,
}

/// Reads the current facts.
pub fn machine() -> Machine {
    let name = rustix::system::uname();
    let memory = fact("/proc/meminfo").unwrap_or_default();
    let limit = container_memory();
    let total = meminfo_field(&memory, "MemTotal").unwrap_or_default();
    let available = meminfo_field(&memory, "MemAvailable").unwrap_or_default();
    Machine {
        hostname: name.nodename().to_string_lossy().into_owned(),
        kernel: format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy()),
        system: fact("/etc/os-release").and_then(|text| os_name(&text)),
        cpu_model: fact("/proc/cpuinfo").and_then(|text| cpu_model(&text)),
        cpu_count: thread::available_parallelism().map_or(1, usize::from),
        memory_total: ByteCount(limit.map_or(total, |(limit, _)| total.min(limit))),
        memory_available: ByteCount(
            limit.map_or(available, |(limit, used)| available.min(limit.saturating_sub(used))),
        ),
    }
}

/// Limit and use, in bytes, of the memory control group that this process sees as its root; `None` without a
/// limit (version 2, then version 1).
fn container_memory() -> Option<(u64, u64)> {
    let read = |limit, used| Some((super::number(limit)?, super::number(used)?));
    read("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current").or_else(|| {
        read("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes")
    })
}

fn meminfo_field(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn os_name(text: &str) -> Option<String> {
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

/// x86 says "model name"; ARM machines name themselves in "Model" or "Hardware".
fn cpu_model(text: &str) -> Option<String> {
    ["model name", "Model", "Hardware", "cpu"].iter().find_map(|field| {
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.trim_start().strip_prefix(':'))?;
        Some(line.trim().to_owned())
    })
}

/// Resources this process has used since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUse {
    /// Processor time in user mode, all threads.
    pub cpu_user: Duration,
    /// Processor time in kernel mode, all threads.
    pub cpu_system: Duration,
    /// Peak resident memory.
    pub memory_peak: ByteCount,
    /// Current resident memory.
    pub memory_now: ByteCount,
}

impl ProcessUse {
    /// Processor time in user and kernel mode.
    pub fn cpu(&self) -> Duration {
        self.cpu_user + self.cpu_system
    }
}

/// Reads the current resource use.
pub fn process_use() -> ProcessUse {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let (user, system) = fact("/proc/self/stat").and_then(|text| cpu_ticks(&text)).unwrap_or_default();
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    let span = |ticks: u64| Duration::from_micros(ticks * 1_000_000 / ticks_per_second);
    ProcessUse {
        cpu_user: span(user),
        cpu_system: span(system),
        memory_peak: ByteCount(meminfo_field(&status, "VmHWM").unwrap_or_default()),
        memory_now: ByteCount(meminfo_field(&status, "VmRSS").unwrap_or_default()),
    }
}

/// Fields 14 and 15 of /proc/self/stat; the second field may contain blanks and parentheses.
fn cpu_ticks(text: &str) -> Option<(u64, u64)> {
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_files_are_understood() {
        assert_eq!(meminfo_field("MemTotal:  24 kB\nMemFree: 7 kB", "MemFree"), Some(7168));
        assert_eq!(meminfo_field("MemTotalX: 24 kB", "MemTotal"), None);
        assert_eq!(cpu_ticks("7 (a) b) S 1 2 3 4 5 6 7 8 9 10 111 222 0"), Some((111, 222)));
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Xeon\n"), Some("Xeon".to_owned()));
        assert_eq!(os_name("ID=debian\nPRETTY_NAME=\"Debian 12\"\n"), Some("Debian 12".to_owned()));
    }

    #[test]
    fn this_machine_has_a_processor_and_memory_and_we_use_some() {
        let machine = machine();
        assert!(machine.cpu_count > 0 && machine.kernel.starts_with("Linux "), "{machine:?}");
        assert!(ByteCount::mib(1) < machine.memory_available, "{machine:?}");
        assert!(machine.memory_available <= machine.memory_total, "{machine:?}");
        let used = process_use();
        assert!(used.memory_peak >= used.memory_now && used.memory_now > ByteCount(0), "{used:?}");
    }
}

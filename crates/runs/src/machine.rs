//! Facts of the host and its drives, in the form a run needs.

use crate::{location::DriveFacts, sizing::Memory};
use std::{collections::BTreeMap, path::Path, time::Duration};
use workload::database::results::{HostFacts, HostSample};
use world::{
    World,
    real::{
        host::{self, DriveInfo},
        host_files,
    },
};

/// Time drives are watched for the load of others.
const WATCH: Duration = Duration::from_millis(200);
/// Unit of the times in /proc/stat: USER_HZ, 100 a second on every Linux in use (proc_stat(5)).
const TICKS_PER_SECOND: f64 = 100.0;

pub fn memory() -> Memory {
    let machine = host::machine();
    Memory { total: machine.memory_total, available: machine.memory_available }
}

/// The machine, for the report.
pub fn host_facts() -> HostFacts {
    let machine = host::machine();
    let system = machine.system.unwrap_or_else(|| "Linux".to_owned());
    let model = machine.cpu_model.unwrap_or_else(|| "of an unknown model".to_owned());
    HostFacts {
        name: machine.hostname,
        operating_system: format!("{system}, {}", machine.kernel),
        processors: format!("{} × {model}", machine.cpu_count),
        processor_count: machine.cpu_count as u32,
        memory_bytes: machine.memory_total.0,
    }
}

/// The host's counters now; the driver adds the time.
pub fn read_host() -> HostSample {
    let process = host::process_use();
    HostSample {
        process_cpu_s: (process.cpu_user + process.cpu_system).as_secs_f64(),
        system_cpu_s: host_files::read_to_string(Path::new("/proc/stat"))
            .ok()
            .and_then(|text| busy_seconds(&text))
            .unwrap_or(0.0),
        available_bytes: host::machine().memory_available.0,
        resident_bytes: process.memory_now.0,
        at_s: 0.0,
    }
}

/// Processor time spent on anything but waiting, from the first line of /proc/stat: user, nice,
/// system, idle, iowait, irq, softirq, steal.
fn busy_seconds(text: &str) -> Option<f64> {
    let first = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<f64> = first.split_whitespace().map_while(|field| field.parse().ok()).collect();
    let busy = ticks.iter().take(7).sum::<f64>() - ticks.get(3)? - ticks.get(4)?;
    Some(busy / TICKS_PER_SECOND)
}

/// Facts of a drive, except for its load.
pub fn drive_facts(drive: DriveInfo) -> DriveFacts {
    // A virtual drive reports rotational unless its host sets otherwise, so its flag means nothing.
    let is_virtual = ["vd", "xvd", "loop"].iter().any(|prefix| drive.name.starts_with(prefix));
    DriveFacts {
        name: Some(drive.name),
        model: drive.model,
        serial: drive.serial,
        rotational: drive.rotational.filter(|_| !is_virtual),
        write_cache: drive.write_cache,
        busy_percent: None,
    }
}

/// Measures the load of drives for a moment, all at once, in percent of time.
pub async fn busy_percents(world: &World, names: Vec<String>) -> BTreeMap<String, f64> {
    let watches: Vec<_> = names
        .into_iter()
        .map(|name| {
            let inner = world.clone();
            world.spawn("drive watch", async move {
                let activity = host::drive_activity(&inner, &name, WATCH).await;
                (name, activity)
            })
        })
        .collect();
    let mut percents = BTreeMap::new();
    for watch in watches {
        if let (name, Some(activity)) = watch.await {
            percents.insert(name, activity.busy_percent());
        }
    }
    percents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_excludes_idle_and_waiting() {
        let text = "cpu  100 20 30 4000 500 6 7 8 0 0\ncpu0 1 2 3 4\n";
        assert_eq!(busy_seconds(text), Some(1.63));
        assert_eq!(busy_seconds("intr 1 2"), None);
    }
}

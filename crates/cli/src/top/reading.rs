//! One reading of a server's metrics: the counters that rates are made of.

use std::{borrow::Cow, collections::BTreeMap};

/// Counters of the I/O of a volume or a drive, since its pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct IoReading {
    pub reads: f64,
    pub writes: f64,
    /// Flushes, discards and zeroes.
    pub others: f64,
    pub read_bytes: f64,
    pub written_bytes: f64,
    /// Sums of latencies.
    pub read_seconds: f64,
    pub write_seconds: f64,
    pub errors: f64,
    pub in_flight: f64,
}

/// Counters and state of a pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolReading {
    pub is_up: bool,
    pub used_bytes: f64,
    pub usable_bytes: f64,
    pub nbd_clients: f64,
    pub iscsi_sessions: f64,
    /// Time of its figures, in seconds since 1970.
    pub counted_at: f64,
    /// Sum and number of latencies by stage.
    pub stages: BTreeMap<String, (f64, f64)>,
    /// By name.
    pub volumes: BTreeMap<String, IoReading>,
    /// By name.
    pub drives: BTreeMap<String, IoReading>,
}

/// The pools of a server by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerReading {
    pub pools: BTreeMap<String, PoolReading>,
}

impl ServerReading {
    /// Reads Prometheus's text format. Metrics that are not known are passed over.
    pub fn parse(text: &str) -> Self {
        let mut reading = Self::default();
        for line in text.lines() {
            // Most lines are of buckets.
            let Some((name, rest)) = line.split_once('{').filter(|(name, _)| !name.ends_with("_bucket"))
            else {
                continue;
            };
            let Some(name) = name.strip_prefix("spindle_") else { continue };
            let Some((labels, value)) = labels_of(rest) else { continue };
            let (Some(pool), Ok(value)) = (labels.get("pool"), value.trim().parse::<f64>()) else { continue };
            if !reading.pools.contains_key(&**pool) {
                reading.pools.insert(pool.to_string(), PoolReading::default());
            }
            let pool = reading.pools.get_mut(&**pool).expect("it was put there");
            pool.add(name, &labels, value);
        }
        reading
    }
}

type Labels<'l> = BTreeMap<&'l str, Cow<'l, str>>;

impl PoolReading {
    fn add(&mut self, name: &str, labels: &Labels<'_>, value: f64) {
        let label = |name: &str| labels.get(name).map(|label| label.to_string());
        if let Some(name) = name.strip_prefix("pool_") {
            match name {
                "up" => self.is_up = value == 1.0,
                "used_bytes" => self.used_bytes = value,
                "usable_bytes" => self.usable_bytes = value,
                "nbd_clients" => self.nbd_clients = value,
                "iscsi_sessions" => self.iscsi_sessions = value,
                "figures_timestamp_seconds" => self.counted_at = value,
                "stage_seconds_sum" => {
                    self.stages.entry(label("stage").unwrap_or_default()).or_default().0 = value
                }
                "stage_seconds_count" => {
                    self.stages.entry(label("stage").unwrap_or_default()).or_default().1 = value
                }
                _ => {}
            }
            return;
        }
        let (devices, name) = match name.split_once('_') {
            Some(("volume", name)) => (label("volume").map(|device| self.volumes.entry(device)), name),
            Some(("drive", name)) => (label("drive").map(|device| self.drives.entry(device)), name),
            _ => return,
        };
        let is_counted = [
            "operations_total",
            "io_bytes_total",
            "io_time_seconds_total",
            "io_seconds_sum",
            "errors_total",
            "in_flight",
        ]
        .contains(&name);
        let Some(device) = devices.filter(|_| is_counted) else { return };
        device.or_default().add(name, labels.get("op").map_or("", |op| op), value);
    }
}

impl IoReading {
    fn add(&mut self, name: &str, operation: &str, value: f64) {
        match (name, operation) {
            ("operations_total", "read") => self.reads = value,
            ("operations_total", "write") => self.writes = value,
            ("operations_total", _) => self.others += value,
            ("io_bytes_total", "read") => self.read_bytes = value,
            ("io_bytes_total", "write") => self.written_bytes = value,
            // Volumes have the sum apart from the histogram, which few have.
            ("io_time_seconds_total" | "io_seconds_sum", "read") => self.read_seconds = value,
            ("io_time_seconds_total" | "io_seconds_sum", "write") => self.write_seconds = value,
            // Volumes have one sum, drives one for each operation.
            ("errors_total", _) => self.errors += value,
            ("in_flight", _) => self.in_flight = value,
            _ => {}
        }
    }
}

/// The labels in front of `}`, and the value behind it.
fn labels_of(text: &str) -> Option<(Labels<'_>, &str)> {
    let (mut labels, mut rest) = (Labels::new(), text);
    loop {
        if let Some(value) = rest.strip_prefix('}') {
            return Some((labels, value));
        }
        let (name, after) = rest.split_once("=\"")?;
        let end = end_of_value(after)?;
        let value = &after[..end];
        labels.insert(name, if value.contains('\\') { unescaped(value).into() } else { value.into() });
        rest = &after[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

/// The place of the quote that ends a label's value.
fn end_of_value(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    })
}

fn unescaped(value: &str) -> String {
    let (mut text, mut characters) = (String::new(), value.chars());
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some('n') => text.push('\n'),
                Some(other) => text.push(other),
                None => {}
            },
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_pool_and_device_and_everything_else_is_passed_over() {
        let reading = ServerReading::parse(
            r#"# HELP spindle_pool_up 1 if the pool is open
spindle_build_info{version="0.1.0"} 1
spindle_pool_up{pool="mail"} 1
spindle_pool_up{pool="logs"} 0
spindle_pool_used_bytes{pool="mail"} 4096
spindle_pool_stage_seconds_sum{pool="mail",stage="log"} 0.5
spindle_pool_stage_seconds_count{pool="mail",stage="log"} 100
spindle_pool_stage_seconds_bucket{pool="mail",stage="log",le="+Inf"} 100
spindle_volume_info{pool="mail",volume="a\"b\\c",uuid="x"} 1
spindle_volume_operations_total{pool="mail",volume="a\"b\\c",op="read"} 7
spindle_volume_operations_total{pool="mail",volume="a\"b\\c",op="flush"} 2
spindle_volume_operations_total{pool="mail",volume="a\"b\\c",op="discard"} 1
spindle_volume_io_time_seconds_total{pool="mail",volume="a\"b\\c",op="write"} 0.25
spindle_drive_errors_total{pool="mail",drive="S1",op="read"} 1
spindle_drive_errors_total{pool="mail",drive="S1",op="write"} 2
spindle_drive_in_flight{pool="mail",drive="S2"} 2
spindle_other{pool
"#,
        );
        let mail = &reading.pools["mail"];
        assert_eq!((mail.is_up, mail.used_bytes, reading.pools["logs"].is_up), (true, 4096.0, false));
        assert_eq!(mail.stages["log"], (0.5, 100.0));
        let volume = &mail.volumes["a\"b\\c"];
        assert_eq!((volume.reads, volume.others, volume.write_seconds), (7.0, 3.0, 0.25));
        assert_eq!(mail.drives.keys().collect::<Vec<_>>(), ["S1", "S2"]);
        assert_eq!(mail.drives["S1"].errors, 3.0);
    }
}

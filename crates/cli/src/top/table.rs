//! Rows of rates as words: the same on the screen and in plain text.

use super::rates::{DeviceRates, IoRates, PoolRates, STAGES, ServerRates};
use world::ByteCount;

/// A table of words. The first columns are names, to the left; all others are figures.
pub struct WordTable {
    pub title: &'static str,
    /// Columns of names.
    pub names: usize,
    pub head: Vec<&'static str>,
    pub rows: Vec<ScreenRow>,
}

/// A row of words.
pub struct ScreenRow {
    pub cells: Vec<String>,
    /// It needs somebody: a pool that is down, errors.
    pub is_bad: bool,
}

/// First the columns that most people look for: on a narrow terminal the last columns are left out.
const IO_HEAD: [&str; 8] =
    ["read/s", "write/s", "read ms", "write ms", "read", "written", "other/s", "active"];

impl WordTable {
    pub fn of_pools(rates: &ServerRates) -> Self {
        let mut head = vec!["pool", "full", "clients"];
        head.extend(IO_HEAD);
        head.extend(STAGES.map(|stage| match stage {
            "queue" => "queue ms",
            "log" => "log ms",
            "device" => "device ms",
            _ => "reply ms",
        }));
        let row = |pool: &PoolRates| {
            let full = if pool.usable_bytes > 0.0 {
                format!("{:.0} %", pool.used_bytes / pool.usable_bytes * 100.0)
            } else {
                "-".to_owned()
            };
            let state = if pool.is_up { full } else { "down".to_owned() };
            let clients = format!("{}", pool.nbd_clients + pool.iscsi_sessions);
            let mut cells = vec![pool.name.clone(), state, clients];
            cells.extend(io_cells(&pool.io));
            cells.extend(pool.stage_milliseconds.iter().map(|stage| milliseconds(*stage)));
            ScreenRow { cells, is_bad: !pool.is_up || pool.io.errors_per_second > 0.0 }
        };
        Self { title: "Pools", names: 1, head, rows: rates.pools.iter().map(row).collect() }
    }

    pub fn of_volumes(rates: &ServerRates) -> Self {
        Self::of_devices(("Volumes", "volume"), &rates.volumes)
    }

    pub fn of_drives(rates: &ServerRates) -> Self {
        Self::of_devices(("Drives", "drive"), &rates.drives)
    }

    fn of_devices((title, word): (&'static str, &'static str), rows: &[DeviceRates]) -> Self {
        let mut head = vec!["pool", word];
        head.extend(IO_HEAD);
        head.push("errors/s");
        let row = |device: &DeviceRates| {
            let mut cells = vec![device.pool.clone(), device.name.clone()];
            cells.extend(io_cells(&device.io));
            cells.push(per_second(device.io.errors_per_second));
            ScreenRow { cells, is_bad: device.io.errors_per_second > 0.0 }
        };
        Self { title, names: 2, head, rows: rows.iter().map(row).collect() }
    }

    /// The widest word of each column.
    pub fn widths(&self) -> Vec<usize> {
        let width = |text: &str| text.chars().count();
        let mut widths: Vec<usize> = self.head.iter().map(|word| width(word)).collect();
        for row in &self.rows {
            for (widest, cell) in widths.iter_mut().zip(&row.cells) {
                *widest = (*widest).max(width(cell));
            }
        }
        widths
    }

    /// As plain text, a line each, without a blank at the end.
    pub fn lines(&self) -> Vec<String> {
        let widths = self.widths();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut text = String::new();
            for (column, (cell, width)) in cells.zip(&widths).enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                text += &match column < self.names {
                    true => format!("{gap}{cell:<width$}"),
                    false => format!("{gap}{cell:>width$}"),
                };
            }
            text.trim_end().to_owned()
        };
        let mut lines = vec![line(&mut self.head.iter().copied())];
        lines.extend(self.rows.iter().map(|row| line(&mut row.cells.iter().map(String::as_str))));
        lines
    }
}

fn io_cells(io: &IoRates) -> Vec<String> {
    vec![
        per_second(io.reads_per_second),
        per_second(io.writes_per_second),
        milliseconds(io.read_milliseconds),
        milliseconds(io.write_milliseconds),
        bytes(io.read_bytes_per_second),
        bytes(io.written_bytes_per_second),
        per_second(io.others_per_second),
        format!("{}", io.in_flight),
    ]
}

fn per_second(rate: f64) -> String {
    match rate {
        0.0 => "0".to_owned(),
        ..10.0 => format!("{rate:.1}"),
        _ => format!("{rate:.0}"),
    }
}

fn bytes(rate: f64) -> String {
    if rate == 0.0 { "0".to_owned() } else { format!("{}/s", ByteCount(rate as u64)) }
}

fn milliseconds(mean: Option<f64>) -> String {
    match mean {
        None => "-".to_owned(),
        Some(mean) if mean < 10.0 => format!("{mean:.2}"),
        Some(mean) => format!("{mean:.0}"),
    }
}

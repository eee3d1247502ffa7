//! The page of metrics, made from their table.

use super::families::{MetricFamily, MetricKind, families};
use crate::page_lines::page_lines;

const HEAD: &str = "\
# Metrics

The daemon shows these metrics to Prometheus, in OpenMetrics or in the classic text format, as the scraper
asks. Counters count since the pool was opened, unless the help says otherwise.

I/O is counted on two sides. `spindle_volume_…` is what hosts ask for, over NBD and iSCSI together, and
`spindle_drive_…` is what the pool does on its drives; caches, copies and cleaning lie between them. An
operation is `read`, `write`, `flush`, `discard` or `write_zeroes` (label `op`); the last two are shown once
there was one. A command of a host may be split into several operations, and `write_zeroes` of a volume counts
once, whatever the pool makes of it. A volume is shown with I/O once it was served; a snapshot that is served
is the volume `VOLUME@SNAPSHOT`.

Latency histograms have buckets from 16 µs to 17 s, each twice the one before. Their sums are exact, so
`_sum / _count` is the mean. They are shown of the first 256 volumes that are served, or of those that the
site file selects; counters, and with them mean latencies of reads and writes, of all:

```toml
[metrics]
histograms = ['mail/store', 'logs/*']
```

A dashboard for Grafana and alert rules are in [`docs/monitoring`](monitoring/README.md).

This page is generated from the table (`crates/control/src/metrics/families.rs`); a test checks that both
agree.
";

/// The page `docs/metrics.md`.
pub fn listing() -> String {
    let mut page = HEAD.to_owned();
    let mut area = "";
    for family in families() {
        let now = area_of(family);
        if now != area {
            area = now;
            page += &format!("\n## {area}\n\n");
        }
        page += &shown(family);
    }
    page
}

fn area_of(family: &MetricFamily) -> &'static str {
    match family.labels() {
        ["version"] => "Program",
        ["pool", "volume", ..] => "Volumes: I/O of hosts",
        ["pool", "drive", ..] => "Drives: I/O of pools",
        ["pool", "group", ..] => "DR groups",
        ["site"] => "Paired sites",
        _ => "Pools",
    }
}

fn shown(family: &MetricFamily) -> String {
    let kind = match family.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
        MetricKind::Info => "info, always 1",
    };
    let labels = family.labels().join(", ");
    format!(
        "* **`{}`** ({kind}; {labels})\n{}",
        family.sample_name(),
        page_lines(family.help, ("  ", "  "), 110)
    )
}

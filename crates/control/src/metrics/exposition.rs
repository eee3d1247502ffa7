//! Figures of a site as text: OpenMetrics, or Prometheus's classic format.

use super::{
    families::{MetricKind, MetricSource, MetricUnit, PoolSide, SampleValue, families},
    selection::VolumeSelection,
};
use crate::dr::{PeerView, group_view::DrGroupView};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text, text},
    metrics::MetricType,
    registry::{Registry, Unit},
};
use serving::figures::{DriveTraffic, JobFigures, PoolFigures, VolumeTraffic};
use std::{fmt, sync::Arc};
use world::{DeviceCounts, DeviceOperation, LatencyCounts};

/// Volumes with histograms, unless they are listed.
pub const HISTOGRAMS_MAX: usize = 256;

/// Bounds of the buckets, as powers of two of nanoseconds: 16 µs to 17 s.
const BOUNDS: [u32; 21] =
    [14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34];

/// A text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus's text format 0.0.4.
    Classic,
}

impl MetricsFormat {
    /// The format that a client asks for in its `Accept` header.
    pub fn accepted(accept: Option<&str>) -> Self {
        match accept {
            Some(accept) if accept.contains("application/openmetrics-text") => Self::OpenMetrics,
            _ => Self::Classic,
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Classic => prometheus_text::CONTENT_TYPE,
        }
    }
}

/// The figures of a pool by its name.
#[derive(Clone, Debug)]
pub struct NamedFigures {
    pub pool: String,
    /// `None` if it is not open.
    pub figures: Option<Arc<PoolFigures>>,
}

/// A DR group, with what it does not know itself.
#[derive(Clone, Debug)]
pub struct MeteredDrGroup {
    pub pool: String,
    /// Name of its other site.
    pub peer: String,
    pub view: DrGroupView,
}

/// Pools, DR groups and paired sites.
#[derive(Clone, Debug, Default)]
pub struct MeteredSite {
    pub pools: Vec<NamedFigures>,
    pub groups: Vec<MeteredDrGroup>,
    pub peers: Vec<PeerView>,
}

/// Choice of what is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsSetting {
    /// Volumes with histograms; the first [`HISTOGRAMS_MAX`] that are served if none are selected.
    pub histograms: VolumeSelection,
}

/// All metrics of these pools as text.
pub fn render(pools: &[NamedFigures], setting: &MetricsSetting, format: MetricsFormat) -> String {
    render_site(MeteredSite { pools: pools.to_vec(), ..MeteredSite::default() }, setting, format)
}

/// All metrics of a site as text.
pub fn render_site(site: MeteredSite, setting: &MetricsSetting, format: MetricsFormat) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Exposition { site, setting: setting.clone() }));
    let mut text = String::new();
    let done = match format {
        MetricsFormat::OpenMetrics => text::encode(&mut text, &registry),
        MetricsFormat::Classic => prometheus_text::encode(&mut text, &registry),
    };
    done.expect("a string takes everything");
    text
}

#[derive(Debug)]
struct Exposition {
    site: MeteredSite,
    setting: MetricsSetting,
}

/// A volume that was served, or a drive.
struct DeviceRow<'f> {
    pool: &'f str,
    name: &'f str,
    counts: &'f DeviceCounts,
    has_histogram: bool,
}

/// Those of all pools.
struct DeviceRows<'f> {
    volumes: Vec<DeviceRow<'f>>,
    drives: Vec<DeviceRow<'f>>,
}

type Label<'l> = (&'static str, &'l str);

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let rows = DeviceRows { volumes: self.volume_rows(), drives: self.drive_rows() };
        for family in families() {
            let unit = family.unit.map(unit_of);
            let name = match family.unit {
                Some(unit) => family.name.strip_suffix(unit.word()).and_then(|name| name.strip_suffix('_')),
                None => Some(family.name),
            };
            let name = name.expect("a name ends with its unit");
            let kind = family.kind;
            let encoder = encoder.encode_descriptor(name, family.help, unit.as_ref(), type_of(kind))?;
            let mut samples = Samples { encoder, kind };
            self.encode_pools(&mut samples, &family.source)?;
            self.encode_dr(&mut samples, &family.source)?;
            rows.encode(&mut samples, &family.source)?;
        }
        Ok(())
    }
}

impl Exposition {
    fn figures(&self) -> impl Iterator<Item = (&str, &PoolFigures)> {
        self.site.pools.iter().filter_map(|pool| Some((pool.pool.as_str(), &**pool.figures.as_ref()?)))
    }

    fn volumes(&self) -> impl Iterator<Item = (&str, &VolumeTraffic)> {
        self.figures().flat_map(|(pool, figures)| figures.volumes.iter().map(move |row| (pool, row)))
    }

    fn drives(&self) -> impl Iterator<Item = (&str, &DriveTraffic)> {
        self.figures().flat_map(|(pool, figures)| figures.drives.iter().map(move |row| (pool, row)))
    }

    fn jobs(&self) -> impl Iterator<Item = (&str, &JobFigures)> {
        self.figures().flat_map(|(pool, figures)| figures.jobs.iter().map(move |job| (pool, job)))
    }

    fn volume_rows(&self) -> Vec<DeviceRow<'_>> {
        let listed = &self.setting.histograms;
        let mut rows = Vec::new();
        for (pool, VolumeTraffic { name, counts, .. }) in self.volumes() {
            let Some(counts) = counts else { continue };
            let has_histogram = match listed.is_empty() {
                true => rows.len() < HISTOGRAMS_MAX,
                false => listed.selects(pool, name),
            };
            rows.push(DeviceRow { pool, name, counts, has_histogram });
        }
        rows
    }

    fn drive_rows(&self) -> Vec<DeviceRow<'_>> {
        let mut rows = Vec::new();
        for (pool, DriveTraffic { label, counts, .. }) in self.drives() {
            rows.push(DeviceRow { pool, name: &label.name, counts, has_histogram: true });
        }
        rows
    }

    /// Samples of a family that are not of the counts of a device.
    fn encode_pools(&self, samples: &mut Samples<'_>, source: &MetricSource) -> fmt::Result {
        match source {
            MetricSource::Build => samples.info(&[("version", env!("CARGO_PKG_VERSION"))])?,
            MetricSource::PoolUp => {
                for pool in &self.site.pools {
                    let is_up = pool.figures.as_ref().is_some_and(|figures| !figures.is_stopped);
                    samples.add(&[("pool", &pool.pool)], Some(SampleValue::Count(u64::from(is_up))))?;
                }
            }
            MetricSource::Pool(of) => {
                for (pool, figures) in self.figures() {
                    samples.add(&[("pool", pool)], of(figures))?;
                }
            }
            MetricSource::Job(of) => {
                for (pool, job) in self.jobs() {
                    samples.add(&[("pool", pool), ("job", job.name)], of(job))?;
                }
            }
            MetricSource::VolumeInfo => {
                for (pool, row) in self.volumes() {
                    let uuid = row.volume.to_string();
                    samples.info(&[("pool", pool), ("volume", &row.name), ("uuid", &uuid)])?;
                }
            }
            MetricSource::Volume(of) => {
                for (pool, row) in self.volumes() {
                    samples.add(&[("pool", pool), ("volume", &row.name)], Some(of(row)))?;
                }
            }
            MetricSource::DriveInfo => {
                for (pool, DriveTraffic { label, .. }) in self.drives() {
                    samples.info(&[
                        ("pool", pool),
                        ("drive", &label.name),
                        ("uuid", &label.drive.to_string()),
                        ("model", label.model.as_deref().unwrap_or_default()),
                        ("bay", label.bay.as_deref().unwrap_or_default()),
                        ("path", &label.path),
                    ])?;
                }
            }
            MetricSource::Drive(of) => {
                for (pool, row) in self.drives() {
                    samples.add(&[("pool", pool), ("drive", &row.label.name)], Some(of(row)))?;
                }
            }
            MetricSource::Stages => {
                for (pool, figures) in self.figures() {
                    for (stage, latencies) in figures.stages.iter().filter(|(_, counts)| counts.count() > 0) {
                        samples.add_latencies(&[("pool", pool), ("stage", stage)], latencies)?;
                    }
                }
            }
            MetricSource::Device(..) | MetricSource::Operations(..) | MetricSource::Latencies(_) => {}
            // `encode_dr` has them.
            MetricSource::DrGroupInfo
            | MetricSource::DrGroupState
            | MetricSource::DrGroup(_)
            | MetricSource::DrSite(_) => {}
        }
        Ok(())
    }

    /// Samples of a family that are of DR groups or paired sites.
    fn encode_dr(&self, samples: &mut Samples<'_>, source: &MetricSource) -> fmt::Result {
        for MeteredDrGroup { pool, peer, view } in &self.site.groups {
            let (pool, group) = (("pool", pool.as_str()), ("group", view.name.as_str()));
            match source {
                MetricSource::DrGroupInfo => {
                    samples.info(&[pool, group, ("uuid", &view.group.to_string()), ("peer", peer)])?;
                }
                MetricSource::DrGroupState => {
                    samples.add(&[pool, group, ("state", view.state)], Some(SampleValue::Count(1)))?;
                }
                MetricSource::DrGroup(of) => samples.add(&[pool, group], of(view))?,
                _ => {}
            }
        }
        if let MetricSource::DrSite(of) = source {
            for peer in &self.site.peers {
                samples.add(&[("site", &peer.name)], of(peer))?;
            }
        }
        Ok(())
    }
}

impl DeviceRows<'_> {
    /// Samples of a family that are of the counts of devices.
    fn encode(&self, samples: &mut Samples<'_>, source: &MetricSource) -> fmt::Result {
        let rows = |side: &PoolSide| match side {
            PoolSide::Volumes => ("volume", &self.volumes),
            PoolSide::Drives => ("drive", &self.drives),
        };
        match source {
            MetricSource::Device(side, of) => {
                let (label, rows) = rows(side);
                for row in rows {
                    samples.add(&[("pool", row.pool), (label, row.name)], Some(of(row.counts)))?;
                }
            }
            MetricSource::Operations(side, operations, of) => {
                let (label, rows) = rows(side);
                for row in rows {
                    for &operation in operations.iter().filter(|operation| is_shown(row.counts, **operation))
                    {
                        let labels = [("pool", row.pool), (label, row.name), ("op", word(operation))];
                        samples.add(&labels, Some(of(row.counts.of(operation))))?;
                    }
                }
            }
            MetricSource::Latencies(side) => {
                let (label, rows) = rows(side);
                for row in rows.iter().filter(|row| row.has_histogram) {
                    for operation in DeviceOperation::ALL {
                        let labels = [("pool", row.pool), (label, row.name), ("op", word(operation))];
                        // Nothing if there was no such operation.
                        if let Some(latencies) = row.counts.of(operation).latencies() {
                            samples.add_latencies(&labels, latencies)?;
                        }
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Operations that few devices see are shown once there was one.
fn is_shown(counts: &DeviceCounts, operation: DeviceOperation) -> bool {
    let is_usual =
        matches!(operation, DeviceOperation::Read | DeviceOperation::Write | DeviceOperation::Flush);
    is_usual || counts.of(operation).latencies().is_some()
}

/// The samples of one family.
struct Samples<'e> {
    encoder: MetricEncoder<'e>,
    kind: MetricKind,
}

impl Samples<'_> {
    /// Nothing if there is no value.
    fn add(&mut self, labels: &[Label<'_>], value: Option<SampleValue>) -> fmt::Result {
        let Some(value) = value else { return Ok(()) };
        let mut one = self.encoder.encode_family(&labels)?;
        match (self.kind, value) {
            (MetricKind::Counter, SampleValue::Count(value)) => {
                one.encode_counter::<NoLabelSet, _, f64>(&value, None)
            }
            (MetricKind::Counter, SampleValue::Number(value)) => {
                one.encode_counter::<NoLabelSet, _, f64>(&value, None)
            }
            (_, SampleValue::Count(value)) => one.encode_gauge(&value),
            (_, SampleValue::Number(value)) => one.encode_gauge(&value),
        }
    }

    fn info(&mut self, labels: &[Label<'_>]) -> fmt::Result {
        self.encoder.encode_info(&labels)
    }

    fn add_latencies(&mut self, labels: &[Label<'_>], latencies: &LatencyCounts) -> fmt::Result {
        let ends = BOUNDS.iter().map(|&bits| (1_u64 << bits) as f64 / 1e9).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = ends.zip(latencies.between(&BOUNDS)).collect();
        let sum = latencies.total().as_secs_f64();
        let mut one = self.encoder.encode_family(&labels)?;
        one.encode_histogram::<NoLabelSet>(sum, latencies.count(), &buckets, None)
    }
}

fn word(operation: DeviceOperation) -> &'static str {
    match operation {
        DeviceOperation::Read => "read",
        DeviceOperation::Write => "write",
        DeviceOperation::Flush => "flush",
        DeviceOperation::Discard => "discard",
        DeviceOperation::WriteZeroes => "write_zeroes",
    }
}

fn unit_of(unit: MetricUnit) -> Unit {
    match unit {
        MetricUnit::Bytes => Unit::Bytes,
        MetricUnit::Seconds => Unit::Seconds,
        MetricUnit::Ratio => Unit::Other(unit.word().to_owned()),
    }
}

fn type_of(kind: MetricKind) -> MetricType {
    match kind {
        MetricKind::Counter => MetricType::Counter,
        MetricKind::Gauge => MetricType::Gauge,
        MetricKind::Histogram => MetricType::Histogram,
        MetricKind::Info => MetricType::Info,
    }
}

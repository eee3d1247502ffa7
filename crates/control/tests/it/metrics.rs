//! Metrics: the counts of a simulated pool as text, against what its drives and hosts saw; and the page of the table.

use crate::dr_views::with_groups;
use array::{
    format::{DriveId, PoolId, SparingLevel, VolumeId},
    pool::{NewDrive, NewPool, NewVolume, OpenSetting, Pool, create, open},
    volume::VolumeDevice,
};
use control::metrics::{
    HISTOGRAMS_MAX, MetricsFormat, MetricsSetting, NamedFigures, listing, render, render_site,
};
use expect_test::expect_file;
use serving::figures::{DriveLabel, FiguresCollector, MeteredDrive, PoolFigures, PoolMeters, VolumeTraffic};
use std::{collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, DeviceMeter, MeteredDevice, Stability, World,
    sim::{DriveOptions, ServiceTime, SimDrive, SimLimits, Simulation},
};

const MIB: u64 = 1 << 20;

/// A pool of two simulated drives with the volume "store", and its meters.
pub struct MeteredPool {
    pub pool: Rc<Pool>,
    meters: Rc<PoolMeters>,
    collector: FiguresCollector,
    /// As a host sees the volume.
    pub store: Rc<dyn BlockDevice>,
}

impl MeteredPool {
    pub async fn make(world: &World, drives: &[Rc<SimDrive>]) -> Self {
        let meters = PoolMeters::new(world);
        let mut devices: Vec<Rc<dyn BlockDevice>> = Vec::new();
        for (number, drive) in (1..).zip(drives) {
            let meter = DeviceMeter::new(world);
            devices.push(MeteredDevice::new(Rc::clone(drive) as Rc<dyn BlockDevice>, &meter));
            let label = DriveLabel {
                drive: DriveId([number; 16]),
                name: "S1".to_owned(),
                model: Some("a \"quoted\" model".to_owned()),
                bay: None,
                path: format!("/dev/sd{number}"),
            };
            meters.add_drive(MeteredDrive { label, meter });
        }
        let new = NewPool {
            pool: PoolId([1; 16]),
            name: "mail".to_owned(),
            slot_bytes: MIB as u32,
            sparing: SparingLevel::None,
        };
        let new_drives = (1..).zip(&devices).map(|(number, device)| NewDrive {
            drive: DriveId([number; 16]),
            serial: format!("S{number}"),
            domain: None,
            device: Rc::clone(device),
        });
        create(world, &new, &new_drives.collect::<Vec<_>>()).await.unwrap();
        let pool = open(world, &devices, OpenSetting::default()).await.unwrap();
        let volume = NewVolume {
            name: "store".to_owned(),
            volume: VolumeId([7; 16]),
            size_bytes: 8 * MIB,
            setting: Default::default(),
        };
        pool.create_volume(&volume).await.unwrap();
        let device = Rc::new(VolumeDevice(pool.volume("store").unwrap()));
        let (store, _) = meters.meter((VolumeId([7; 16]), None), (device, None));
        let collector = FiguresCollector::new(world, &pool, &meters);
        Self { pool, meters, collector, store }
    }

    pub async fn figures(&mut self) -> Arc<PoolFigures> {
        Arc::new(self.collector.collect().await)
    }

    pub async fn rendered(&mut self, format: MetricsFormat) -> String {
        let figures = Some(self.figures().await);
        render(&[NamedFigures { pool: "mail".to_owned(), figures }], &MetricsSetting::default(), format)
    }
}

pub fn with_pool<F: Future<Output = ()> + 'static>(
    change: impl FnOnce(&mut DriveOptions),
    test: impl FnOnce(World, Vec<Rc<SimDrive>>) -> F,
) {
    let mut simulation = Simulation::new(11);
    let mut options = DriveOptions::new(ByteCount(65 * MIB));
    change(&mut options);
    let drives: Vec<_> = (0..2).map(|_| simulation.add_drive(options.clone())).collect();
    simulation.run(SimLimits::generous(), |world| test(world, drives)).completed();
}

/// Samples by name and labels.
fn samples(text: &str) -> BTreeMap<&str, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect()
}

pub async fn write(device: &Rc<dyn BlockDevice>, count: u64, bytes: usize) {
    for number in 0..count {
        let data = vec![Arc::new(Buffer::zeroed(bytes))];
        device.write(ByteOffset(number * bytes as u64), data, Stability::Volatile).await.unwrap();
    }
}

#[test]
fn counts_and_bytes_are_those_of_hosts_and_drives() {
    with_pool(
        |_| (),
        |world, drives| async move {
            let mut pool = MeteredPool::make(&world, &drives).await;
            write(&pool.store, 20, 8192).await;
            for _ in 0..5 {
                pool.store.read(ByteOffset(0), vec![Buffer::zeroed(4096)]).await.unwrap();
            }
            pool.store.flush().await.unwrap();
            pool.pool.checkpoint().await.unwrap();
            let text = pool.rendered(MetricsFormat::Classic).await;
            let samples = samples(&text);
            let of = |name: &str, op: &str| {
                samples[&*format!("{name}{{pool=\"mail\",volume=\"store\",op=\"{op}\"}}")]
            };
            assert_eq!(of("spindle_volume_operations_total", "write"), 20.0);
            assert_eq!(of("spindle_volume_io_bytes_total", "write"), 20.0 * 8192.0);
            assert_eq!(of("spindle_volume_operations_total", "read"), 5.0);
            assert_eq!(of("spindle_volume_io_bytes_total", "read"), 5.0 * 4096.0);
            assert_eq!(of("spindle_volume_operations_total", "flush"), 1.0);
            assert_eq!(of("spindle_volume_io_seconds_count", "read"), 5.0);
            for (drive, uuid) in drives.iter().zip(["01010101", "02020202"]) {
                // Both have one name, so the UUIDs tell them apart.
                let of = |op: &str| {
                    let name = format!(
                        "spindle_drive_operations_total{{pool=\"mail\",drive=\"S1-{uuid}\",op=\"{op}\"}}"
                    );
                    samples[&*name] as u64
                };
                let seen = drive.statistics();
                assert_eq!((of("read"), of("write"), of("flush")), (seen.reads, seen.writes, seen.flushes));
            }
            assert_eq!(samples["spindle_pool_up{pool=\"mail\"}"], 1.0);
            assert_eq!(samples["spindle_pool_drives_in_use{pool=\"mail\"}"], 2.0);
            assert!(samples["spindle_pool_checkpoints_total{pool=\"mail\"}"] >= 1.0);
            assert!(samples["spindle_pool_used_bytes{pool=\"mail\"}"] >= 20.0 * 8192.0);
        },
    );
}

#[test]
fn a_drive_slowed_by_20_ms_shows_it_and_so_does_the_volume() {
    let slow = |options: &mut DriveOptions| {
        // A stable write pays for a flush, too: that is not slowed.
        for time in [&mut options.read, &mut options.write] {
            *time = ServiceTime { least: time.least + Duration::from_millis(20), ..*time };
        }
    };
    with_pool(slow, |world, drives| async move {
        let mut pool = MeteredPool::make(&world, &drives).await;
        let before = pool.rendered(MetricsFormat::Classic).await;
        write(&pool.store, 100, 4096).await;
        let after = pool.rendered(MetricsFormat::Classic).await;
        let (before, after) = (samples(&before), samples(&after));
        let mean_ms = |device: &str, side: &str| {
            let since = |part: &str| {
                let name = format!("spindle_{side}_io_seconds_{part}{{pool=\"mail\",{device},op=\"write\"}}");
                after[&*name] - before.get(&*name).unwrap_or(&0.0)
            };
            since("sum") / since("count") * 1e3
        };
        for drive in ["drive=\"S1-01010101\"", "drive=\"S1-02020202\""] {
            let mean = mean_ms(drive, "drive");
            assert!((20.0..21.0).contains(&mean), "{drive}: {mean} ms");
        }
        let host = mean_ms("volume=\"store\"", "volume");
        assert!(host >= 20.0);
        // Where it is lost: on the drives. The stages of a command are all of its time.
        let stage_ms = |stage: &str| {
            let since = |part: &str| {
                let name = format!("spindle_pool_stage_seconds_{part}{{pool=\"mail\",stage=\"{stage}\"}}");
                after[&*name] - before.get(&*name).unwrap_or(&0.0)
            };
            assert!((14.0..=15.0).contains(&since("count")), "one of seven");
            since("sum") / since("count") * 1e3
        };
        let [queue, log, device] = ["queue", "log", "device"].map(stage_ms);
        assert!(
            (20.0..host + 1.0).contains(&device) && queue < 0.1 && log < 1.0,
            "{queue}, {log}, {device} ms"
        );
        let all = queue + log + device;
        assert!((all - host).abs() < host * 0.02, "{all} ms in stages, {host} ms at the volume");
    });
}

#[test]
fn figures_do_not_change_without_io() {
    with_pool(
        |_| (),
        |world, drives| async move {
            let mut pool = MeteredPool::make(&world, &drives).await;
            write(&pool.store, 3, 4096).await;
            let one = pool.collector.collect().await;
            let same = pool.collector.collect().await;
            assert_eq!(one, same);
            assert!(Arc::ptr_eq(&one.volumes, &same.volumes), "rows are made again only after changes");
            // A volume that is served again counts on.
            let device = Rc::new(VolumeDevice(pool.pool.volume("store").unwrap()));
            let (again, _) = pool.meters.meter((VolumeId([7; 16]), None), (device, None));
            write(&again, 1, 4096).await;
            let text = pool.rendered(MetricsFormat::Classic).await;
            let written = "spindle_volume_operations_total{pool=\"mail\",volume=\"store\",op=\"write\"}";
            assert_eq!(samples(&text)[written], 4.0);
        },
    );
}

/// Figures of a pool with that many volumes, all of which were read and written.
fn large(volumes: usize) -> NamedFigures {
    let mut simulation = Simulation::new(3);
    let drive = simulation.add_drive(DriveOptions::new(ByteCount(MIB)));
    let (tell, told) = std::sync::mpsc::channel();
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let meter = DeviceMeter::new(&world);
        let device: Rc<dyn BlockDevice> = MeteredDevice::new(drive, &meter);
        write(&device, 100, 8192).await;
        device.read(ByteOffset(0), vec![Buffer::zeroed(8192)]).await.unwrap();
        device.flush().await.unwrap();
        tell.send(meter.counts()).unwrap();
    });
    run.completed();
    let counts = Arc::new(told.recv().unwrap());
    let row = |number: usize| VolumeTraffic {
        name: format!("store-{number:04}").into(),
        volume: VolumeId((number as u128).to_be_bytes()),
        snapshot: None,
        size_bytes: 1 << 40,
        counts: Some(Arc::clone(&counts)),
    };
    let volumes = Arc::new((0..volumes).map(row).collect());
    let figures = PoolFigures { volumes, ..PoolFigures::default() };
    NamedFigures { pool: "mail".to_owned(), figures: Some(Arc::new(figures)) }
}

#[test]
fn four_thousand_volumes_fit_into_6_mb() {
    let pools = [large(4096)];
    for format in [MetricsFormat::OpenMetrics, MetricsFormat::Classic] {
        let text = render(&pools, &MetricsSetting::default(), format);
        println!("{format:?}: {} bytes", text.len());
        assert!(text.len() < 6_000_000, "{format:?}: {} bytes", text.len());
        let volumes = text.matches("spindle_volume_io_seconds_count{").count();
        assert_eq!(volumes, HISTOGRAMS_MAX * 3);
        assert_eq!(text.matches("spindle_volume_errors_total{").count(), 4096);
    }
    let listed = MetricsSetting { histograms: ["mail/store-4000".to_owned()].into() };
    let text = render(&pools, &listed, MetricsFormat::Classic);
    assert_eq!(text.matches("spindle_volume_io_seconds_count{").count(), 3);
}

#[test]
fn a_pool_that_is_not_open_is_down_and_has_no_other_samples() {
    let stopped = NamedFigures { pool: "archive".to_owned(), figures: None };
    let text = render(&[stopped], &MetricsSetting::default(), MetricsFormat::OpenMetrics);
    let samples = samples(&text);
    assert_eq!(samples["spindle_pool_up{pool=\"archive\"}"], 0.0);
    assert_eq!(samples.len(), 2, "{samples:?}");
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn a_scraper_gets_the_format_that_it_asks_for() {
    let prometheus = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    assert_eq!(MetricsFormat::accepted(Some(prometheus)), MetricsFormat::OpenMetrics);
    for accept in [None, Some("text/plain"), Some("*/*")] {
        assert_eq!(MetricsFormat::accepted(accept), MetricsFormat::Classic);
    }
}

#[test]
fn the_page_of_metrics_is_made_from_the_table() {
    expect_file!["../../../../docs/metrics.md"].assert_eq(&listing());
}

#[test]
fn dr_groups_and_paired_sites_have_samples_of_their_roles() {
    let site = with_groups(Vec::new());
    let text = render_site(site, &MetricsSetting::default(), MetricsFormat::OpenMetrics);
    let samples = samples(&text);
    let of = |name: &str, group: &str| {
        samples.get(&*format!("spindle_dr_group_{name}{{pool=\"mail\",group=\"{group}\"}}")).copied()
    };
    assert_eq!((of("primary", "sg1"), of("primary", "sg2")), (Some(1.0), Some(0.0)));
    assert_eq!((of("alone", "sg1"), of("alone", "sg2")), (Some(1.0), None));
    assert_eq!((of("in_sync", "sg1"), of("connected", "sg1")), (Some(0.0), Some(0.0)));
    assert_eq!((of("unconfirmed_bytes", "sg1"), of("unconfirmed_seconds", "sg1")), (Some(4096.0), Some(1.5)));
    assert_eq!(
        (of("sent_bytes_total", "sg1"), of("received_bytes_total", "sg2")),
        (Some(8192.0), Some(12_288.0))
    );
    assert_eq!(of("last_word_timestamp_seconds", "sg2"), Some(1_795_780_800.5));
    assert_eq!(samples["spindle_dr_group_state{pool=\"mail\",group=\"sg2\",state=\"following\"}"], 1.0);
    assert_eq!(samples["spindle_dr_site_connected{site=\"denver\"}"], 1.0);
    assert_eq!(samples["spindle_dr_site_round_trip_seconds{site=\"denver\"}"], 0.012);
}

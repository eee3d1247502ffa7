//! A volume of an aged pool over both protocols, beside peers that serve one file without copies.
//!
//! The pool is filled once and overwritten at random before, so that its log is cleaned during the measurement.
//! The peer's file is laid out once: on the same filesystem, and on btrfs, which has copies and checksums too.

use super::{
    super::{
        array,
        btrfs::Btrfs,
        record::Record,
        row::{Goal, Row},
    },
    load::{Bench, LoadRows, Point, Protocol, in_turn},
    servers::{Server, Writes},
    steps::{StepLog, StepRows},
    volumes::TGT_CPU_SHARE,
};
use crate::step;
use anyhow::Result;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const POINTS: [Point; 3] = [
    Point { read_percent: 70, kib: 4, depth: 32 },
    Point { read_percent: 70, kib: 8, depth: 32 },
    Point { read_percent: 70, kib: 32, depth: 32 },
];
const FULL_PERCENT: u32 = 66;
/// Random overwrites of the whole volume, after it was filled.
const OVERWRITES: u32 = 2;

/// Goals of IOPS, as multiples of the peer's.
const PLAIN_TIMES: f64 = 1.2;
const BTRFS_TIMES: f64 = 2.5;
/// Goal of p99, as a multiple of the peer's.
const P99_TIMES: f64 = 1.0;

/// A load on the volume, beside a peer with a write cache.
#[derive(Clone, Copy)]
struct AgedLoad {
    protocol: Protocol,
    point: Point,
    ours: Writes,
}

impl AgedLoad {
    fn name(self) -> String {
        let writes = match self.ours {
            Writes::Cached => "both cached",
            Writes::Stable => "stable beside cached",
        };
        format!("aged volume, {}, {}, {writes}", self.protocol, self.point.name())
    }
}

/// Measures all rows.
pub fn rows(bench: &Bench<'_>, record: &mut Record) -> Result<Vec<Row>> {
    let wanted = |ours: Writes| -> Vec<AgedLoad> {
        let protocols = [Protocol::Iscsi, Protocol::Nbd].into_iter();
        let loads = protocols.flat_map(|protocol| POINTS.map(|point| AgedLoad { protocol, point, ours }));
        loads.filter(|load| bench.setting.wants(&load.name())).collect()
    };
    let loads = [Writes::Cached, Writes::Stable].map(|writes| (writes, wanted(writes)));
    let points: Vec<Point> =
        POINTS.into_iter().filter(|&point| bench.setting.wants(&btrfs_name(point))).collect();
    if points.is_empty() && loads.iter().all(|(_, loads)| loads.is_empty()) {
        return Ok(Vec::new());
    }
    let pool = AgedPool::make(bench, record)?;
    let mut rows = Vec::new();
    for (writes, loads) in loads.into_iter().filter(|(_, loads)| !loads.is_empty()) {
        let (own, mut steps) = bench.own_timed(&pool.volume(), writes)?;
        for load in loads {
            rows.extend(beside_plain_file(bench, (&own, &mut steps), load)?);
        }
        own.end()?;
    }
    if !points.is_empty() {
        rows.extend(beside_btrfs(bench, &pool, &points)?);
    }
    Ok(rows)
}

fn beside_plain_file(
    bench: &Bench<'_>,
    (own, steps): (&Server, &mut StepLog),
    load: AgedLoad,
) -> Result<Vec<Row>> {
    let AgedLoad { protocol, point, .. } = load;
    println!("   {}", load.name());
    let peer = bench.peer(protocol, Writes::Cached)?;
    let cpu = match protocol {
        Protocol::Iscsi => Goal::AtMostOfPeer(TGT_CPU_SHARE),
        Protocol::Nbd => Goal::None,
    };
    let note = "aged volume: of a pool of eight drives that are files, everything twice, with checksums, two thirds full and \
                twice overwritten at random; peer: tgt (the better of rdwr and aio) or qemu-storage-daemon on one plain file \
                of the volume's size, with a write cache";
    let mut rows = LoadRows::new(&load.name(), Goal::OfPeer(PLAIN_TIMES), cpu, note)
        .with_p99(Goal::AtMostOfPeer(P99_TIMES));
    let mut step_rows = StepRows::new(&load.name());
    for round in 0..bench.scale.rounds {
        let own = || {
            drop(steps.take()?);
            let ran = bench.run_own(own, protocol, point)?;
            step_rows.add(&steps.take()?)?;
            Ok(ran)
        };
        let (own, peer) = in_turn(round, own, || bench.run_peer(&peer, protocol, point))?;
        rows.add(own, peer);
    }
    Ok(rows.into_rows().into_iter().chain(step_rows.into_rows()).collect())
}

fn btrfs_name(point: Point) -> String {
    format!("aged volume, {}, {}, beside btrfs", Protocol::Nbd, point.name())
}

/// Rows beside qemu-storage-daemon on a file of btrfs. Where there can be no btrfs they have no figures, and a
/// note says why.
fn beside_btrfs(bench: &Bench<'_>, pool: &AgedPool, points: &[Point]) -> Result<Vec<Row>> {
    let (bytes, folder) = (bench.scale.file_mib << 20, bench.setting.folder.join("btrfs"));
    // Twice as much as the file has, for what is written before the old is given back.
    let btrfs = match Btrfs::obstacle(bench.setting)? {
        Some(why) => Err(why),
        None => Btrfs::make(&folder, bytes * 2).map_err(|error| error.to_string()),
    };
    let btrfs = match btrfs {
        Ok(btrfs) => btrfs,
        Err(why) => {
            let note = format!("btrfs: not measured: {why}");
            let row = |&point: &Point| Row::new(btrfs_name(point), "IOPS", Goal::None, note.clone());
            return Ok(points.iter().map(row).collect());
        }
    };
    let file = btrfs.mount().join("disk");
    btrfs.lay_out(&file, bytes, &bench.setting.folder)?;
    let own = bench.own(&pool.volume(), Writes::Cached)?;
    let peer = Server::qemu(btrfs.command("qemu-storage-daemon"), &file)?;
    let note = "beside btrfs: qemu-storage-daemon on a file with checksums, RAID 10 on eight loop devices (O_DIRECT asked \
                for on all levels; this kernel's btrfs may read and write such files through its cache); both with a write \
                cache; the kernel's threads of btrfs are not in the processor time";
    let mut rows = Vec::new();
    for &point in points {
        println!("   {}", btrfs_name(point));
        let mut of_point = LoadRows::new(&btrfs_name(point), Goal::OfPeer(BTRFS_TIMES), Goal::None, note)
            .with_p99(Goal::AtMostOfPeer(P99_TIMES));
        for round in 0..bench.scale.rounds {
            let on_btrfs = || {
                let ran = bench.run_peer(&peer, Protocol::Nbd, point)?;
                // The next turn would pay for what it left in the page cache.
                btrfs.sync()?;
                Ok(ran)
            };
            let (own, peer) = in_turn(round, || bench.run_own(&own, Protocol::Nbd, point), on_btrfs)?;
            of_point.add(own, peer);
        }
        rows.extend(of_point.into_rows());
    }
    own.end()?;
    Ok(rows)
}

/// A pool of drives that are files, full and overwritten, which a server can open; removed when it is dropped.
struct AgedPool {
    folder: PathBuf,
}

impl AgedPool {
    fn make(bench: &Bench<'_>, record: &mut Record) -> Result<Self> {
        let bytes = bench.scale.file_mib << 20;
        println!("   age a pool: {} MiB, {FULL_PERCENT} % full", bench.scale.file_mib);
        let pool = Self { folder: bench.setting.folder.join("aged") };
        array::make_pool(bench.ours, &pool.folder, bytes, FULL_PERCENT)?;
        let aging = array::age_pool(bench.ours, &pool.folder, overwritten(FULL_PERCENT, OVERWRITES))?;
        record.method(format!("aging of the volume's pool: {aging}"));
        import(&bench.ours.program(), &pool.folder)?;
        Ok(pool)
    }

    fn volume(&self) -> PathBuf {
        self.folder.join(array::VOLUME)
    }
}

impl Drop for AgedPool {
    fn drop(&mut self) {
        // The bench's folder goes at its end, with all there is in it.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Bytes of so many overwrites of a volume, as a multiple of what its pool can store.
fn overwritten(full_percent: u32, times: u32) -> f64 {
    f64::from(full_percent * times) / 100.0
}

/// Writes the record of a pool whose drives are files in its folder: `spindle` opens pools by it.
fn import(program: &Path, folder: &Path) -> Result<()> {
    step::output(Command::new(program).args(["pool", "import"]).arg(folder)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overwrites_are_counted_in_pools() {
        assert_eq!(overwritten(66, 2), 1.32);
        assert_eq!(overwritten(100, 2), 2.0);
    }

    #[test]
    fn a_load_names_protocol_size_and_durability() {
        let load = AgedLoad { protocol: Protocol::Nbd, point: POINTS[1], ours: Writes::Stable };
        assert_eq!(load.name(), "aged volume, NBD, mixed 8 KiB, depth 32, stable beside cached");
        assert_eq!(btrfs_name(POINTS[2]), "aged volume, NBD, mixed 32 KiB, depth 32, beside btrfs");
    }
}

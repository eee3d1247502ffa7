//! The program where a seccomp filter refuses io_uring, as filters of containers do: helper threads do its I/O,
//! everything works, and it says so with the reason.
//!
//! A thread installs the filter, which programs that it starts inherit.

use crate::{
    exported::noise,
    exports_iscsi::Serving,
    sites_served::{SITE, Served},
    spindle::{Bench, answered, json_of, short},
    volumes::{connect, done, while_exported},
};
use iscsi::initiator::{Initiator, InitiatorOptions};
use rustix::io::Errno;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use std::{fs, rc::Rc, sync::Arc, thread};
use world::{
    BlockDevice, Buffer, ByteOffset, Stability, World,
    real::{self, RealOptions, Sockets},
};

/// System calls by their numbers, which are the same on all architectures.
const SETUP: i64 = 425;
const ENTER: i64 = 426;
const REGISTER: i64 = 427;

const BLOCK_BYTES: usize = 32 << 10;
const BLOCKS: u64 = 40;

/// A filter that answers `calls` with `errno`.
struct CallFilter {
    calls: &'static [i64],
    errno: Errno,
    /// The kernel's words for `errno`.
    words: &'static str,
}

/// Docker's refusal, that of an old kernel, and one that a program meets only after the setup.
const FILTERS: [CallFilter; 3] = [
    CallFilter { calls: &[SETUP, ENTER, REGISTER], errno: Errno::PERM, words: "Operation not permitted" },
    CallFilter { calls: &[SETUP, ENTER, REGISTER], errno: Errno::NOSYS, words: "Function not implemented" },
    CallFilter { calls: &[ENTER], errno: Errno::PERM, words: "Operation not permitted" },
];

impl CallFilter {
    fn notice(&self) -> String {
        format!("io_uring is unavailable ({}): helper threads do the I/O", self.words)
    }

    /// Does `work`, and whatever the programs do that it starts, under the filter.
    fn around<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let rules = self.calls.iter().map(|&call| (call, Vec::new())).collect();
        let errno = u32::try_from(self.errno.raw_os_error()).expect("positive");
        let architecture = std::env::consts::ARCH.try_into().expect("an architecture with seccomp");
        let filter =
            SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), architecture);
        let program: BpfProgram = filter.expect("rules").try_into().expect("a short program");
        thread::scope(|scope| {
            let filtered = scope.spawn(|| {
                apply_filter(&program).expect("a thread may restrict itself");
                work()
            });
            filtered.join().expect("the work under the filter")
        })
    }
}

/// Writes all of a device's blocks at once, and returns their bytes.
async fn write_all(world: &World, device: &Rc<dyn BlockDevice>, seed: u64) -> Vec<u8> {
    let bytes = noise(BLOCKS as usize * BLOCK_BYTES, seed);
    let writes: Vec<_> = (0_u64..)
        .zip(bytes.chunks(BLOCK_BYTES))
        .map(|(block, data)| {
            let (device, data) = (Rc::clone(device), vec![Arc::new(Buffer::copy_of(data))]);
            let at = ByteOffset(block * BLOCK_BYTES as u64);
            let stability = if block % 2 == 0 { Stability::Stable } else { Stability::Volatile };
            world.spawn("write", async move { device.write(at, data, stability).await })
        })
        .collect();
    for write in writes {
        write.await.unwrap();
    }
    device.flush().await.unwrap();
    bytes
}

async fn read_all(world: &World, device: &Rc<dyn BlockDevice>) -> Vec<u8> {
    let reads: Vec<_> = (0..BLOCKS)
        .map(|block| {
            let (device, at) = (Rc::clone(device), ByteOffset(block * BLOCK_BYTES as u64));
            world.spawn("read", async move { device.read(at, vec![Buffer::zeroed(BLOCK_BYTES)]).await })
        })
        .collect();
    let mut bytes = Vec::new();
    for read in reads {
        bytes.extend_from_slice(&read.await.unwrap()[0]);
    }
    bytes
}

async fn over_nbd(world: &World, uri: &str) -> Rc<dyn BlockDevice> {
    Rc::new(connect(world, uri.parse().unwrap()).await)
}

async fn over_iscsi(world: &World, uri: &str) -> Rc<dyn BlockDevice> {
    let options = InitiatorOptions::default();
    let unit = Initiator::connect(world, Rc::new(Sockets), uri.parse().unwrap(), options).await;
    Rc::new(unit.unwrap())
}

#[test]
fn a_file_and_a_volume_are_served_over_both_protocols() {
    for (filter, seed) in FILTERS.iter().zip(1..) {
        let bench = Bench::new();
        done(&bench.run(&["pool", "create", "pool", "--drives", "3", "--size", "96MiB"]));
        done(&bench.run(&["volume", "create", "pool/store", "16MiB"]));
        let arguments = ["disk.img", "pool/store", "--create", "4MiB", "--nbd", "127.0.0.1:0"];
        let serving = filter.around(|| Serving::begin(&bench, &arguments));
        let said = fs::read_to_string(bench.path("log")).unwrap();
        let nbd: Vec<&str> = said.lines().filter(|line| line.starts_with("nbd://")).collect();
        let nbd: Vec<&str> = nbd.iter().filter_map(|line| line.split(' ').next()).collect();
        let mut written = Vec::new();
        real::run(seed, RealOptions::default(), async |world: World| {
            for (index, (nbd, iscsi)) in nbd.iter().zip(&serving.uris).enumerate() {
                let nbd = over_nbd(&world, nbd).await;
                let iscsi = over_iscsi(&world, iscsi).await;
                let (writer, reader) = if index == 0 { (&nbd, &iscsi) } else { (&iscsi, &nbd) };
                let bytes = write_all(&world, writer, 10 * seed + index as u64).await;
                assert!(read_all(&world, reader).await == bytes, "{}: export {index}", filter.notice());
                written.push(bytes);
            }
        });
        let said = serving.end(&bench);
        assert!(said.contains(&filter.notice()), "{said}");
        assert!(said.contains("ended; all acknowledged writes are stable"), "{said}");
        assert_eq!(written.len(), 2, "{said}");
        assert!(fs::read(bench.path("disk.img")).unwrap().starts_with(&written[0]), "the file holds it");
        // With io_uring, if there is any: the pool is the same.
        while_exported(&bench, &["pool/store"], async |world, uri| {
            let volume: Rc<dyn BlockDevice> = Rc::new(connect(&world, uri("store")).await);
            assert!(read_all(&world, &volume).await == written[1], "the pool holds it");
        });
    }
}

#[test]
fn a_run_warns_and_its_report_names_helper_threads_with_the_reason() {
    for filter in &FILTERS[..2] {
        let bench = Bench::new();
        let said = filter.around(|| bench.run(&short(&["--report", "r"])));
        answered(&said);
        assert!(said.stderr.contains(&filter.notice()), "{}", said.stderr);
        let report = fs::read_to_string(bench.path("r.json")).unwrap();
        let text = json_of(&report).to_string();
        let cell = format!("helper threads, O_DIRECT (io_uring unavailable): {}", filter.words);
        assert!(text.contains(&cell), "no {cell:?} in the report");
    }
}

#[test]
fn a_site_is_made_and_served() {
    for filter in &FILTERS[..2] {
        let bench = Bench::new();
        bench.make_file("site.toml", SITE.as_bytes());
        let served = filter.around(|| Served::begin(&bench));
        assert_eq!(served.uris.len(), 3);
        served.end();
        let said = fs::read_to_string(bench.path("log")).unwrap();
        assert!(said.contains(&filter.notice()), "{said}");
    }
}

#[test]
fn a_server_that_was_told_not_to_use_io_uring_does_not_warn() {
    let bench = Bench::new();
    let serving = Serving::begin(&bench, &["disk.img", "--create", "4MiB", "--plain-io"]);
    let said = serving.end(&bench);
    assert!(!said.contains("io_uring"), "{said}");
}

//! Sizes that are accepted, and sizes that are refused.

use super::*;
use workload::{
    database::plan::{LoadPlan, profile::ServerProfile},
    verdict::judged_part::JudgedPart,
};

/// A run with every setting open but the profile.
pub fn request() -> SizingRequest {
    SizingRequest {
        plan: RunPlan {
            profile: ServerProfile::load("exchange-2010").expect("built in"),
            groups: 1,
            databases_per_group: 1,
            database_bytes: 0,
            database_bytes_max: 0,
            cache_bytes_per_group: 0,
            load: LoadPlan::Threads { per_group: 4 },
            duration_s: BARE_DURATION.as_secs(),
            judged: JudgedPart::All,
            fill_s_max: 15,
            seed: 1,
            volumes: Vec::new(),
            storage_cache_bytes: None,
            setup: None,
            notes: Vec::new(),
            layout: None,
            protection: None,
        },
        size: None,
        cache: None,
        allow_writes: None,
        there: None,
        room_for_copies: false,
        copying: false,
        pools: false,
        guess: SpeedGuess { sequential_bytes_per_second: 100_000_000, random_iops: 1_000 },
    }
}

fn volume(total: ByteCount, free: ByteCount) -> RunVolume {
    RunVolume {
        name: "/mnt/db (ext4 at /mnt)".to_owned(),
        key: "/mnt".to_owned(),
        total,
        free,
        is_filesystem: true,
        databases: 1,
        log_series: 1,
        drives: (0, 0),
    }
}

fn roomy() -> RunVolume {
    volume(ByteCount::gib(100), ByteCount::gib(80))
}

const MEMORY: Memory = Memory { total: ByteCount::gib(16), available: ByteCount::gib(12) };

#[track_caller]
fn refused(change: impl FnOnce(&mut SizingRequest), volume: RunVolume, expected: &str) {
    let mut request = request();
    change(&mut request);
    let refusal = size_run(&request, &[volume], MEMORY).expect_err("refused");
    assert_eq!(refusal.to_string(), expected);
}

#[test]
fn pristine_copies_need_space_and_writes_of_their_own() {
    let sized = |room_for_copies, free_gib| {
        let mut request = request();
        request.size = Some(ByteCount::gib(8));
        (request.room_for_copies, request.copying) = (room_for_copies, room_for_copies);
        size_run(&request, &[volume(ByteCount::gib(40), ByteCount::gib(free_gib))], MEMORY)
    };
    let (_, without) = sized(false, 40).expect("fits");
    let (_, with) = sized(true, 40).expect("fits");
    assert!(with.space.0 - without.space.0 >= ByteCount::gib(8).0, "{with:?}");
    assert_eq!(with.writes.0 - without.writes.0, with.size.0);
    assert!(with.time > without.time);
    assert!(sized(false, 18).is_ok());
    let refusal = sized(true, 18).expect_err("no room for the copies").to_string();
    assert!(refusal.starts_with("no space on /mnt/db (ext4 at /mnt): "), "{refusal}");
    let mut bare = request();
    bare.room_for_copies = true;
    let (_, needs) = size_run(&bare, &[roomy()], MEMORY).expect("fits");
    assert!(needs.space <= BARE_SPACE_MAX, "{needs:?}");
}

#[test]
fn the_bare_run_takes_at_most_4_gib_10_percent_of_free_space_and_25_percent_of_memory() {
    for free_gib in [4, 20, 40, 100, 1_000, 50_000] {
        for total_gib in [free_gib, free_gib * 2, free_gib * 5] {
            for memory_mib in [1_024, 2_048, 65_536] {
                let memory =
                    Memory { total: ByteCount::mib(memory_mib), available: ByteCount::mib(memory_mib) };
                let volumes = [volume(ByteCount::gib(total_gib), ByteCount::gib(free_gib))];
                let (_, needs) = size_run(&request(), &volumes, memory).expect("fits");
                assert!(needs.space <= BARE_SPACE_MAX, "{needs:?}");
                assert!(needs.space.0 <= ByteCount::gib(free_gib).0 / 10, "{free_gib} GiB free: {needs:?}");
                assert!(needs.memory.0 <= memory.total.0 / 4, "{needs:?}");
                assert!(needs.time <= Duration::from_secs(130), "{needs:?}");
            }
        }
    }
}

#[test]
fn the_last_tenth_of_a_filesystem_is_never_taken() {
    refused(
        |w| w.size = Some(ByteCount::gib(15)),
        volume(ByteCount::gib(100), ByteCount::gib(20)),
        "no space on /mnt/db (ext4 at /mnt): 21.0 GiB are needed, 10.0 GiB can be used beyond the 10 % that stay free; give a smaller ⟨size⟩, or a larger volume",
    );
    let mut device = volume(ByteCount::gib(24), ByteCount::gib(24));
    device.is_filesystem = false;
    let mut request = request();
    request.size = Some(ByteCount::gib(15));
    assert!(size_run(&request, &[device], MEMORY).is_ok(), "a raw device is used whole");
}

#[test]
fn a_full_filesystem_refuses_the_bare_run() {
    refused(
        |_| (),
        volume(ByteCount::gib(10), ByteCount::mib(1_060)),
        "no space on /mnt/db (ext4 at /mnt): 61.2 MiB are needed, 36.0 MiB can be used beyond the 10 % that stay free; give a smaller ⟨size⟩, or a larger volume",
    );
}

#[test]
fn absurd_sizes_are_refused() {
    refused(
        |w| w.size = Some(ByteCount::kib(1)),
        roomy(),
        "⟨size⟩ 1.00 KiB is too small: 8.00 MiB is the least for each database; give at least 8.00 MiB",
    );
    refused(
        |w| w.size = Some(ByteCount(u64::MAX)),
        roomy(),
        "no space on /mnt/db (ext4 at /mnt): 16384 PiB are needed, 70.0 GiB can be used beyond the 10 % that stay free; give a smaller ⟨size⟩, or a larger volume",
    );
    refused(
        |w| w.cache = Some(ByteCount(u64::MAX)),
        roomy(),
        "⟨cache⟩ 16384 PiB for each of 1 group is more than this machine's memory (16.0 GiB); give less",
    );
    refused(
        |w| w.cache = Some(ByteCount(1)),
        roomy(),
        "⟨cache⟩ 1 B is too small to hold a path through each database; give at least 4.00 MiB",
    );
    refused(
        |w| w.size = Some(ByteCount(17 << 40)),
        RunVolume { total: ByteCount(1 << 60), free: ByteCount(1 << 60), ..roomy() },
        "size of a database in GiB: 17408 is out of range, 0.00390625 to 16384 make sense",
    );
}

#[test]
fn more_than_a_terabyte_of_writes_needs_the_flag() {
    let long = |w: &mut SizingRequest| w.plan.duration_s = 24 * 3_600;
    refused(
        |w| long(w),
        roomy(),
        "about 1.6 TB would be written in 1 d; if the storage may wear by that much, say ⟨allow-writes⟩ 1.6TB",
    );
    let mut allowed = request();
    long(&mut allowed);
    allowed.allow_writes = Some(ByteCount(1_600_000_000_000));
    assert!(size_run(&allowed, &[roomy()], MEMORY).is_ok());
}

#[test]
fn the_flag_that_the_refusal_names_is_enough() {
    for bytes in (1..400).map(|n: u64| n * n * n * n * n * 7_919) {
        let (number, unit) = decimal(ByteCount(bytes));
        let factor = match unit {
            "TB" => 1e12,
            "GB" => 1e9,
            _ => 1e6,
        };
        let given = ByteCount((number.parse::<f64>().expect("a number") * factor) as u64);
        assert!(given.0 >= bytes, "{bytes}: {number}{unit}");
        assert!(given.0 - bytes <= bytes / 10 + 100_000, "{bytes}: {number}{unit}");
    }
    refused(
        |w| w.allow_writes = Some(ByteCount(5)),
        roomy(),
        "about 3.3 GB would be written in 1 min; if the storage may wear by that much, say ⟨allow-writes⟩ 3.3GB",
    );
}

#[test]
fn a_creation_that_was_cut_short_counts_what_is_left_to_write() {
    let large = RunVolume { total: ByteCount(1 << 50), free: ByteCount(1 << 50), ..roomy() };
    let settled = |there: Option<Vec<ByteCount>>| {
        let request = SizingRequest { size: Some(ByteCount(4 << 40)), there, ..request() };
        size_run(&request, std::slice::from_ref(&large), MEMORY)
    };
    let gib = ByteCount::gib;
    assert!(settled(None).is_err(), "8.8 TB, logs included");
    assert!(settled(Some(vec![gib(1)])).is_err(), "nearly all is left to write");
    let (_, half) = settled(Some(vec![gib(3_800)])).expect("0.6 TB are left");
    assert_eq!(half.missing, gib(296));
    assert!(half.writes > gib(592), "{half:?}");
    let (_, whole) = settled(Some(vec![gib(4_090)])).expect("nothing is left");
    assert_eq!(whole.missing, ByteCount(0));
    assert!(whole.writes < gib(4), "{whole:?}");
    // 4 TiB at 100 MB/s, read once to attach and once to verify.
    assert!(whole.time > Duration::from_secs(2 * 43_000), "{whole:?}");
}

#[test]
fn computed_sizes_fit_the_plans_own_rules() {
    let (plan, needs) = size_run(&request(), &[roomy()], MEMORY).expect("fits");
    assert_eq!((plan.check(), needs.size), (Ok(()), ByteCount::gib(1)));
    let mut small = request();
    small.size = Some(ByteCount::mib(8));
    let (plan, needs) = size_run(&small, &[roomy()], MEMORY).expect("fits");
    assert_eq!((plan.check(), needs.cache), (Ok(()), CACHE_MIN));
}

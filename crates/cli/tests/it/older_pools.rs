//! Pools that an earlier program left when it was killed: two sites' drives of 2026-11-29, format level 1. They are brought
//! back, served as they are, and upgraded by a person's word alone.

use crate::{
    exported::{is_here, judge},
    judged_exports::until,
    pool_drives::{done, json, refused},
    sites_served::Served,
    spindle::Bench,
};
use std::{
    fs,
    io::{Seek, SeekFrom, Write},
    path::Path,
};

/// Each drive, packed; the recovery key of the site's secrets.
const DRIVES: [(&str, &str); 4] = [
    ("mail/drive-1.spindle", include_str!("golden/pool-level-1-mail-1.hex")),
    ("mail/drive-2.spindle", include_str!("golden/pool-level-1-mail-2.hex")),
    ("logs/drive-1.spindle", include_str!("golden/pool-level-1-logs-1.hex")),
    ("logs/drive-2.spindle", include_str!("golden/pool-level-1-logs-2.hex")),
];
const KEY: &str = "H50A-GR92-6EB5-D18W-33FS-06J4-H7ZA-KNGP-SX8P-345A-T48M-5Z6X-VQ35-F0KM\n";
const DRIVE_BYTES: usize = 109_051_904;

/// Unpacks a drive; the holes of its file are holes again.
fn unpack(path: &Path, lines: &str) {
    let digits: Vec<u8> = lines.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let packed: Vec<u8> = digits.chunks(2).map(byte).collect();
    let bytes = zstd::bulk::decompress(&packed, DRIVE_BYTES).unwrap();
    assert_eq!(bytes.len(), DRIVE_BYTES);
    let mut file = fs::File::create(path).unwrap();
    file.set_len(DRIVE_BYTES as u64).unwrap();
    for (at, block) in bytes.chunks(4096).enumerate().filter(|(_, block)| block.iter().any(|byte| *byte != 0))
    {
        file.seek(SeekFrom::Start(4096 * at as u64)).unwrap();
        file.write_all(block).unwrap();
    }
}

/// The site of before, brought back from its drives alone.
fn brought_back() -> Bench {
    let bench = Bench::new();
    for pool in ["mail", "logs"] {
        bench.make_folder(&format!("drives/{pool}"));
    }
    for (name, lines) in DRIVES {
        unpack(&bench.path("drives").join(name), lines);
    }
    bench.make_file("key", KEY.as_bytes());
    let arguments = ["pool", "import", "--all", "drives", "--recovery-key-file", "key", "--state", "state"];
    let found = json(&bench, &[&arguments[..], &["--output", "site.toml"]].concat());
    assert_eq!(found["secrets"][0]["is_restored"], true, "{found}");
    bench
}

fn level_of(bench: &Bench, pool: &str) -> u64 {
    json(bench, &["pool", "show", pool])["format"]["level"].as_u64().unwrap()
}

#[test]
fn pools_of_an_earlier_program_come_back_with_data_rights_and_secrets() {
    if !is_here("qemu-io", "qemu-utils") {
        return;
    }
    let bench = brought_back();
    let site = fs::read_to_string(bench.path("site.toml")).unwrap();
    for part in ["monthly", "iqn.2026-11.org.example:mail1", "mail1", "mail/store"] {
        assert!(site.contains(part), "{part}: {site}");
    }
    let served = Served::begin(&bench);
    let reads = |export: &str, commands: &[&str]| {
        let commands: Vec<&str> = commands.iter().flat_map(|command| ["-c", *command]).collect();
        let said = judge("qemu-io", &[&["-r", "-f", "raw", served.uri(export)], &commands[..]].concat());
        assert!(!said.contains("verification failed"), "{export}: {said}");
    };
    // All that was answered before the program was killed, the part in its log included.
    reads(
        "/store",
        &["read -P 0x22 0 32k", "read -P 0x11 32k 32k", "read -P 0x33 1M 64k", "read -P 0 2M 64k"],
    );
    reads("/log", &["read -P 0x44 64k 64k", "read -P 0 0 64k"]);
    let shown = done(&bench.run(&["pool", "show", "drives/mail"]));
    for part in ["monday", "before the update", "both", "kept", "copy"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    served.end();
}

#[test]
fn an_older_pool_is_served_as_it_is_and_upgraded_when_somebody_says_so() {
    let bench = brought_back();
    bench.make_file("old.img", &[7; 1 << 20]);
    let import = ["volume", "import", "drives/mail/old", "--from", "old.img"];
    let served = Served::begin(&bench);
    let conditions = || done(&bench.run(&["event", "conditions", "--server", "unix:state/spindle.sock"]));
    until("both pools can be upgraded", || {
        let said = conditions();
        ["mail", "logs"]
            .iter()
            .all(|name| said.contains(&format!("'spindle pool upgrade {name}' raises it to 2")))
    });
    refused(&bench, &import, "the pool has format level 1, and this needs level 2: 'spindle pool upgrade'");
    assert_eq!(level_of(&bench, "drives/mail"), 1, "nobody has upgraded it");
    let said = done(&bench.run(&["pool", "upgrade", "drives/mail"]));
    assert!(said.contains("format level 1 → 2") && said.contains("new: volume import"), "{said}");
    done(&bench.run(&import));
    let again = json(&bench, &["pool", "upgrade", "drives/mail"]);
    assert_eq!((again["from"].as_u64(), again["level"].as_u64()), (Some(2), Some(2)), "{again}");
    until("the condition of that pool ends", || !conditions().contains("mail"));
    served.end();
    // The other one is as it was, after three openings.
    assert_eq!(level_of(&bench, "drives/logs"), 1);
    let shown = done(&bench.run(&["pool", "show", "drives/logs"]));
    assert!(shown.contains("format level 1; 'spindle pool upgrade"), "{shown}");
    let upgraded = json(&bench, &["pool", "upgrade", "drives/logs"]);
    assert_eq!(upgraded["brought"][0], "volume import", "{upgraded}");
    assert_eq!(level_of(&bench, "drives/logs"), 2);
    let shown = done(&bench.run(&["pool", "show", "drives/logs"]));
    assert!(!shown.contains("format level"), "{shown}");
}

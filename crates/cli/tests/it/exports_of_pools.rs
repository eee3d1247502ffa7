//! Volumes of several pools behind one address: each pool has a thread of its own.

use crate::{
    exported::{Exported, is_here, judge, judged, lines_of},
    exports_iscsi::libiscsi_is_here,
    pool_drives::done,
    spindle::{Bench, signal},
};
use std::{
    fs,
    io::{BufRead, BufReader},
    process::Stdio,
};

/// Pools "mail" and "logs" with the volumes "store" and "log".
fn pools(bench: &Bench) {
    for (pool, volume) in [("mail", "mail/store"), ("logs", "logs/log")] {
        done(&bench.run(&["pool", "create", pool, "--size", "100MiB", "--drives", "2"]));
        done(&bench.run(&["volume", "create", volume, "8MiB"]));
    }
}

const BOTH: [&str; 2] = ["mail/store", "logs/log"];
const NBD: [&str; 2] = ["--nbd", "127.0.0.1:0"];
const ISCSI: [&str; 2] = ["--iscsi", "127.0.0.1:0"];

fn address(uri: &str) -> &str {
    uri.split('/').nth(2).unwrap()
}

#[test]
fn volumes_of_two_pools_are_found_at_one_address_for_each_protocol_and_survive_a_kill() {
    if !is_here("qemu-io", "qemu-utils") || !is_here("nbdinfo", "libnbd-bin") {
        return;
    }
    let bench = Bench::new();
    pools(&bench);
    let exported = Exported::begin(&bench, &[&BOTH[..], &NBD, &ISCSI].concat());
    let uris = exported.uris.clone();
    assert_eq!(uris.len(), 4, "{uris:?}");
    assert!(uris[0].ends_with("/store") && uris[1].ends_with("/log"), "in the order of the paths: {uris:?}");
    assert_eq!(address(&uris[0]), address(&uris[1]));
    assert_eq!(address(&uris[2]), address(&uris[3]));
    let list = judge("nbdinfo", &["--list", &format!("nbd://{}", address(&uris[0]))]);
    for name in ["export=\"store\"", "export=\"log\""] {
        assert!(list.contains(name), "{list}");
    }
    for (value, uri) in (1..).zip(&uris) {
        // By NBD the first half, by iSCSI the second one.
        let at = if value > 2 { "4M" } else { "0" };
        let write = format!("write -P {value} {at} 4M");
        let said = judge("qemu-io", &["-f", "raw", "-t", "none", "-c", &write, "-c", "flush", uri]);
        assert!(said.contains("wrote 4194304/4194304"), "{said}");
    }
    drop(exported);
    let exported = Exported::begin(&bench, &[&BOTH[..], &NBD].concat());
    for (values, uri) in [[1, 3], [2, 4]].into_iter().zip(&exported.uris) {
        let [first, second] = values;
        let reads = [format!("read -P {first} 0 4M"), format!("read -P {second} 4M 4M")];
        let said = judge("qemu-io", &["-r", "-f", "raw", "-c", &reads[0], "-c", &reads[1], uri]);
        assert!(!said.contains("failed"), "{said}");
    }
    exported.end();
    for pool in ["mail", "logs"] {
        done(&bench.run(&["pool", "scrub", pool]));
    }
}

#[test]
fn what_cannot_be_served_is_refused_in_a_line_and_both_pools_are_closed() {
    let bench = Bench::new();
    pools(&bench);
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    for (flag, other) in [("--nbd", &ISCSI), ("--iscsi", &NBD)] {
        let arguments = [&["export"][..], &BOTH, &[flag, &taken], other].concat();
        let said = bench.refused(&arguments);
        let wanted = format!("end the program that listens there, or choose another address with {flag}");
        assert!(said.contains(&taken) && said.contains(&wanted), "{said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    }
    let refused = bench.run(&["export", "mail/store", "logs/unknown", "--nbd", "127.0.0.1:0"]);
    assert_eq!((refused.code, refused.stderr.lines().count()), (Some(2), 1), "{}", refused.stderr);
    assert!(refused.stderr.contains("logs") && refused.stderr.contains("unknown"), "{}", refused.stderr);
    for pool in ["mail", "logs"] {
        done(&bench.run(&["pool", "scrub", pool]));
    }
}

#[test]
fn rights_hold_across_pools_and_events_name_the_pool() {
    if !libiscsi_is_here() || !is_here("qemu-io", "qemu-utils") {
        return;
    }
    let bench = Bench::new();
    pools(&bench);
    let access = "[[target]]\nname = 'mail'\nunits = ['store']\n[[target]]\nname = 'logs'\nunits = ['log']\n\
        [[initiator]]\nname = 'iqn.2026-11.test:host'\nuses = ['logs']\n";
    fs::write(bench.path("access.toml"), access).unwrap();
    let mut command = bench.command(&[&["export"][..], &BOTH, &ISCSI, &["--access", "access.toml"]].concat());
    let log = fs::File::create(bench.path("log")).unwrap();
    let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    let served: Vec<String> = lines.by_ref().take_while(|line| !line.starts_with("serving")).collect();
    let uris: Vec<&str> = served.iter().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(uris.len(), 2, "{served:?}");
    let portal = format!("iscsi://{}", address(uris[0]));
    let visible = judge("iscsi-ls", &["-i", "iqn.2026-11.test:host", "-s", &portal]);
    assert!(visible.contains(":logs") && !visible.contains(":mail"), "{visible}");
    let open = |uri: &str| {
        let options = format!(
            "driver=iscsi,transport=tcp,portal={},target={},lun=0,initiator-name={}",
            address(uri),
            uri.split('/').nth(3).unwrap(),
            "iqn.2026-11.test:host"
        );
        judged("qemu-io", &["--image-opts", &options, "-c", "write -P 7 0 64k"])
    };
    assert!(open(uris[1]).status.success());
    assert!(!open(uris[0]).status.success(), "it may not use this one");
    signal(&child, "INT");
    assert!(child.wait().unwrap().success());
    let said = fs::read_to_string(bench.path("log")).unwrap();
    assert!(said.lines().any(|line| line.starts_with("logs: ") && line.contains("uses")), "{said}");
    assert!(!said.lines().any(|line| line.starts_with("mail: ") && line.contains("uses")), "{said}");
}

#[test]
fn the_write_cache_of_a_unit_is_shown_for_the_unit_alone() {
    let bench = Bench::new();
    pools(&bench);
    let access = "[[target]]\nname = 'mail'\nunits = [{ export = 'store', write-cache = true }]\n";
    fs::write(bench.path("access.toml"), access).unwrap();
    let arguments = [&BOTH[..], &NBD, &ISCSI, &["--access", "access.toml"]].concat();
    let exported = Exported::begin(&bench, &arguments);
    assert!(exported.uris[2].contains(":mail/"), "{:?}", exported.uris);
    assert_eq!(exported.write_caches, [false, false, true, false], "two over NBD, two over iSCSI");
    exported.end();
    let lines = lines_of(&bench, &arguments);
    let caches: Vec<bool> = lines.iter().map(|line| line.contains("write cache on")).collect();
    assert_eq!(caches, [false, false, true, false], "{lines:?}");
}

//! Points that are presented to one host: libiscsi and QEMU read Monday's bytes, other hosts see nothing, writes are refused, a
//! kill of the server changes nothing, and after the time it is gone.

use crate::{
    exported::{is_here, judge, judged, text},
    judged_exports::until,
    pool_drives::{done, json},
    qemu_io::{QemuIo, initiator_options},
    raw_initiator::RawInitiator,
    sites_served::{Served, qemu_is_here},
    spindle::Bench,
};
use std::fs;
use world::{World, real};

const MAIL1: &str = "iqn.2026-11.org.example:mail1";
const BACKUP1: &str = "iqn.2026-11.org.example:backup1";
const SITE: &str = "
[serve]
nbd = '127.0.0.1:0'
iscsi = '127.0.0.1:0'
[[group]]
name = 'mail'
drives = 2
drive_gb = 0.11
[[volume]]
name = 'store'
gb = 0.0078125
[[target]]
name = 'own'
[[target.unit]]
number = 0
volume = 'store'
[[initiator]]
name = 'iqn.2026-11.org.example:mail1'
uses = ['own']
[[initiator]]
name = 'iqn.2026-11.org.example:backup1'
[[nbd]]
name = 'store'
volume = 'store'
";
const POINT: &str = "state/pools/mail/store@monday";

/// A served site with Monday's point, behind which the volume was written again.
fn served_point(bench: &Bench) -> Served {
    bench.make_file("site.toml", SITE.as_bytes());
    let served = Served::begin(bench);
    let uri = served.uri("/store").to_owned();
    real::run(0, Default::default(), async |world: World| {
        let mut client = QemuIo::begin(bench, &world, "writer", &uri);
        client.says("write -P 1 0 8M", "wrote", 1).await;
        client.says("flush", "qemu-io>", 2).await;
        done(&bench.run(&["volume", "snapshot", POINT]));
        client.says("write -P 2 0 8M", "wrote", 2).await;
        client.end().await;
    });
    bench.make_file("monday.img", &vec![1; 8 << 20]);
    served
}

fn compare(bench: &Bench, uri: &str, host: &str) {
    let monday = format!("driver=raw,file.driver=file,file.filename={}", text(&bench.path("monday.img")));
    let options = initiator_options(uri, host);
    judge("qemu-img", &["compare", "--image-opts", &monday, &options]);
}

#[test]
fn a_stranger_reads_mondays_bytes_alone_until_its_time_is_over() {
    if !qemu_is_here() || !is_here("iscsi-ls", "libiscsi-bin") {
        return;
    }
    let bench = Bench::new();
    let served = served_point(&bench);
    let own = served.uri(":own/0").to_owned();
    let portal = own.split('/').nth(2).unwrap().to_owned();
    let list = |host: &str| {
        let said = judged("iscsi-ls", &["-s", "-i", host, &format!("iscsi://{portal}")]);
        String::from_utf8_lossy(&said.stdout).into_owned()
    };
    let serial = |host: &str, uri: &str| judge("iscsi-inq", &["-e", "1", "-c", "128", "-i", host, uri]);

    let present = ["volume", "present", POINT, "--to", "backup1", "--read-only", "--for"];
    let row = json(&bench, &[&present[..], &["1h"]].concat());
    let target = row["target"].as_str().unwrap();
    assert!(target.starts_with("iqn.2026-11.org.spindle:presented-store-monday."), "{target}");
    let uri = format!("iscsi://{portal}/{target}/{}", row["number"]);
    compare(&bench, &uri, BACKUP1);
    assert!(list(BACKUP1).contains(target) && !list(BACKUP1).contains(":own"), "{}", list(BACKUP1));
    assert!(!list(MAIL1).contains("presented") && list(MAIL1).contains(":own"), "{}", list(MAIL1));
    let refused = judged("iscsi-inq", &["-i", MAIL1, &uri]);
    assert!(!refused.status.success(), "another host reaches it");
    assert_ne!(serial(BACKUP1, &uri), serial(MAIL1, &own), "it is no path to the volume");
    let suite = ["--dataloss", "--test", "ALL.ReadOnly", "-i", BACKUP1, "-I", BACKUP1, &uri, &uri];
    let said = judge("iscsi-test-cu", &suite);
    assert!(
        said.contains("passed") && !said.contains("FAILED"),
        "writes are refused with DATA PROTECT: {said}"
    );

    // It is no part of the site: the printed file changes nothing, and lacks nothing.
    let printed = done(&bench.run(&["site", "--state", "state"]));
    assert!(!printed.contains("presented"), "{printed}");
    bench.make_file("printed.toml", printed.as_bytes());
    let plan = json(&bench, &["apply", "printed.toml", "--state", "state", "--dry-run"]);
    assert_eq!(plan["changes"].as_array().map(Vec::len), Some(0), "{plan}");

    // The point is held.
    let said = bench.run(&["volume", "delete", POINT, "--yes", "monday"]);
    assert!(
        said.code == Some(2) && said.stderr.contains(&format!("presented to {BACKUP1}")),
        "{}",
        said.stderr
    );

    // A kill and a restart change nothing but the server's addresses, which are any here.
    let before = serial(BACKUP1, &uri);
    served.kill();
    let served = Served::begin(&bench);
    let portal = served.uri(":own/0").split('/').nth(2).unwrap().to_owned();
    let uri = format!("iscsi://{portal}/{target}/{}", row["number"]);
    compare(&bench, &uri, BACKUP1);
    assert_eq!(serial(BACKUP1, &uri), before, "the same disk");
    done(&bench.run(&["volume", "withdraw", POINT]));

    // A short one ends under its host.
    let row = json(&bench, &[&present[..], &["6s"]].concat());
    let uri = format!("iscsi://{portal}/{}/0", row["target"].as_str().unwrap());
    let mut host = RawInitiator::begin(&uri, BACKUP1);
    host.test_unit_ready();
    let shown = || done(&bench.run(&["volume", "presentations", "state/pools/mail"]));
    until("its session is shown", || {
        shown().contains("store@monday: read-only") && shown().contains(", 1 session")
    });
    // One that is asked as its target goes connects for ever.
    let inquiry = ["5", "iscsi-inq", "-i", BACKUP1, &uri];
    until("it is over", || !judged("timeout", &inquiry).status.success());
    until("it is not listed", || shown().contains("no point of state/pools/mail is presented"));
    drop(host);
    let told = done(&bench.run(&["event", "--state", "state"]));
    assert!(
        told.contains(
            "is not presented to iqn.2026-11.org.example:backup1 any more: its time is over; logged out: "
        ),
        "{told}"
    );
    served.end();
}

#[test]
fn a_clone_is_written_and_goes_with_its_presentation_or_stays() {
    if !qemu_is_here() {
        return;
    }
    let bench = Bench::new();
    let served = served_point(&bench);
    let portal = served.uri(":own/0").split('/').nth(2).unwrap().to_owned();
    let present = ["volume", "present", POINT, "--to", BACKUP1, "--clone", "--for", "1h"];
    let said = bench.run(&present);
    let told = done(&said);
    for line in [
        "presented as the writable clone store-monday to iqn.2026-11.org.example:backup1 until",
        "iscsiadm -m node -T iqn.2026-11.org.spindle:presented-store-monday.",
        "the clone store-monday and what was written to it are removed then",
        "earlier: spindle volume withdraw state/pools/mail/store@monday",
    ] {
        assert!(told.contains(line), "{told}");
    }
    assert!(said.stderr.contains("has no CHAP secret"), "{}", said.stderr);
    let all = json(&bench, &["volume", "presentations", "state/pools/mail"]);
    let row = &all["presentations"][0];
    let uri = format!("iscsi://{portal}/{}/0", row["target"].as_str().unwrap());
    compare(&bench, &uri, BACKUP1);
    real::run(0, Default::default(), async |world: World| {
        let mut host = QemuIo::begin_as(&bench, &world, "host", (&uri, BACKUP1));
        host.says("write -P 9 0 1M", "wrote", 1).await;
        host.says("read -P 9 0 1M", "read 1048576", 1).await;
        host.end().await;
    });
    // The clone is no volume of the site.
    let printed = done(&bench.run(&["site", "--state", "state"]));
    assert!(!printed.contains("store-monday"), "{printed}");
    bench.make_file("printed.toml", printed.as_bytes());
    let plan = json(&bench, &["apply", "printed.toml", "--state", "state", "--dry-run"]);
    assert_eq!(
        (plan["changes"].as_array(), plan["kept"].as_array()),
        (Some(&vec![]), Some(&vec![])),
        "{plan}"
    );
    // Its clone is removed by name alone.
    let said = bench.run(&["volume", "withdraw", POINT]);
    assert!(said.code == Some(2) && said.stderr.contains("--yes store-monday"), "{}", said.stderr);
    let told = done(&bench.run(&["volume", "withdraw", POINT, "--yes", "store-monday"]));
    assert!(told.contains("its clone store-monday and what was written to it are removed"), "{told}");
    let shown = done(&bench.run(&["pool", "show", "state/pools/mail"]));
    assert!(shown.contains("volume store:") && !shown.contains("store-monday"), "{shown}");
    let keep = [&present[..], &["--name", "lab", "--keep-clone"]].concat();
    done(&bench.run(&keep));
    // A second unit of the same host, by a target of the site.
    done(&bench.run(&[
        "volume",
        "present",
        POINT,
        "--to",
        BACKUP1,
        "--read-only",
        "--target",
        "own",
        "--for",
        "1h",
    ]));
    let said = bench.run(&["volume", "withdraw", POINT]);
    assert!(said.code == Some(2) && said.stderr.contains("is presented 2 times"), "{}", said.stderr);
    done(&bench.run(&["volume", "withdraw", POINT, "--target", "own"]));
    let told = done(&bench.run(&["volume", "withdraw", POINT]));
    assert!(told.contains("its clone lab stays"), "{told}");
    let shown = done(&bench.run(&["pool", "show", "state/pools/mail"]));
    assert!(shown.contains("volume lab:"), "{shown}");
    served.end();
    // Without a server there is nobody to present anything.
    let said = bench.run(&present);
    let line = "no server has state/pools/mail open, and presenting takes one";
    assert!(said.code == Some(2) && said.stderr.contains(line), "{}", said.stderr);
    assert_eq!(said.stderr.trim_end().lines().count(), 1, "{}", said.stderr);
    assert!(fs::metadata(bench.path("state/pools/mail")).is_ok());
}

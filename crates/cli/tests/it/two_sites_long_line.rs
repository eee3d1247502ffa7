//! Two servers whose line is long, or lasts for less than a merge: a busy group is in sync again all the same, and a merge goes
//! on where it was when the other site was killed.

use crate::{
    judged_exports::{Endpoint, JOBS, PART, fio, until},
    line_relay::LineRelay,
    two_sites::{Site, has_clients, pair, pair_over},
};
use std::{thread, time::Duration};

const MIB: f64 = 1024.0 * 1024.0;
/// Of what hosts changed; the line carries a tenth of it a second.
const CHANGED_MIB: f64 = 64.0;
/// Sent before a site was killed, and not stable there.
const LOST_MIB: f64 = 4.0;

fn sent_mib(site: &Site) -> f64 {
    site.row()["sent_bytes"].as_f64().unwrap() / MIB
}

#[test]
fn a_merge_goes_on_where_a_killed_site_stopped() {
    if !has_clients() {
        return;
    }
    let (boston, mut denver) = pair("sync");
    boston.io(&["write -P 17 0 64M"]);
    until("it is in sync", || boston.is("primary", "streaming") && boston.row()["is_alone"] == false);
    boston.verb("dr suspend sg1");
    boston.io(&["write -P 18 0 64M"]);
    let before = sent_mib(&boston);
    boston.verb("dr resume sg1 --merge at-once --rate 5MB/s");
    let mut kills = 0;
    while kills < 3 {
        until("it merges, or has merged", || {
            boston.is("primary", "merging") || boston.is("primary", "streaming")
        });
        if boston.is("primary", "streaming") {
            // A machine that is so slow to look.
            break;
        }
        let begun = sent_mib(&boston);
        until("some of it is sent", || sent_mib(&boston) > begun + 12.0 || boston.is("primary", "streaming"));
        denver.kill();
        denver.start();
        kills += 1;
    }
    assert!(kills > 0, "it merges at 5 MB/s");
    until("it is in sync again", || boston.is("primary", "streaming") && boston.row()["is_alone"] == false);
    let sent = sent_mib(&boston) - before;
    assert!(sent >= CHANGED_MIB, "{sent:.1} MiB are all that changed");
    let most = CHANGED_MIB * 1.05 + f64::from(kills) * LOST_MIB;
    assert!(sent <= most, "{sent:.1} MiB were sent of {CHANGED_MIB} that changed, with {kills} kills");
    boston.verb("failover sg1");
    until("denver serves", || denver.is("primary", "streaming"));
    denver.io(&["read -P 18 0 64M"]);
}

#[test]
fn a_busy_group_is_in_sync_again_over_a_long_line() {
    if !has_clients() {
        return;
    }
    let mut line = None;
    let (boston, _denver) = pair_over("sync", |port| line.insert(LineRelay::to(port)).port);
    let line = line.unwrap();
    line.set(Duration::from_millis(15), None);
    let place = Endpoint::Socket(boston.bench.path("socket"));
    let mut writing =
        fio((&boston.bench, "fio".as_ref()), &place, "do_verify=0\nrate_iops=60", [PART; JOBS as usize])
            .spawn()
            .unwrap();
    until("it is in sync", || boston.row()["is_alone"] == false && boston.row()["sent_bytes"] != 0);
    boston.verb("dr suspend sg1");
    thread::sleep(Duration::from_secs(1));
    boston.verb("dr resume sg1 --merge at-once");
    until("it is in sync again", || boston.is("primary", "streaming") && boston.row()["is_alone"] == false);
    assert!(writing.try_wait().unwrap().is_none(), "fio goes on\n{}", boston.fio_output());
    writing.kill().unwrap();
    writing.wait().unwrap();
}

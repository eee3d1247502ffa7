//! A DR group that gets another mode under fio: hosts go on, the site that follows has the mode before long, and what the new one
//! promises is so when the primary is killed.

use crate::{
    judged_exports::{BLOCK, Endpoint, JOBS, PART, answered_lengths, fio, until},
    two_sites::{Site, has_clients, pair},
    two_sites_periodic::kept,
};
use serde_json::json;
use std::{thread, time::Duration};

fn has_mode(site: &Site, mode: &serde_json::Value) -> bool {
    site.row()["mode"] == *mode
}

#[test]
fn a_group_goes_over_to_sync_under_fio_and_a_killed_primary_loses_nothing() {
    if !has_clients() {
        return;
    }
    let (mut boston, denver) = pair("async");
    boston.io(&["write -P 17 0 4k"]);
    let by = |site: &Site, options: &str, lengths| {
        let place = Endpoint::Socket(site.bench.path("socket"));
        fio((&site.bench, "fio".as_ref()), &place, options, lengths)
    };
    let mut writing = by(&boston, "do_verify=0\nrate_iops=200", [PART; JOBS as usize]).spawn().unwrap();
    until("fio writes", || boston.row()["unconfirmed_bytes"] != 0 || boston.row()["sent_bytes"] != 0);
    boston.refused("dr set sg1", "nothing is said that is to change; say --mode");
    boston.refused("dr set sg1 --hold 5s", "--hold and --failsafe are of groups in sync");
    denver.refused("dr set sg1 --mode sync", "sg1 is secondary here; say it at the site that is primary");
    let said = boston.verb("dr set sg1 --mode sync --hold 10s");
    let change = "sg1: asynchronous, at most 30 s and 256 MiB behind → synchronous, hold 10 s\n";
    assert!(said.starts_with(change), "{said}");
    let sync = json!({"kind": "sync", "hold_ms": 10_000, "failsafe": false});
    until("denver follows its primary", || has_mode(&denver, &sync));
    until("it is in sync", || boston.is("primary", "streaming") && boston.row()["is_alone"] == false);
    assert!(writing.try_wait().unwrap().is_none(), "fio goes on\n{}", boston.fio_output());
    thread::sleep(Duration::from_millis(700));
    boston.kill();
    until("fio hears of it", || writing.try_wait().unwrap().is_some());
    let lengths = answered_lengths(&boston.bench);
    assert!(lengths.iter().sum::<u64>() > 100 * BLOCK, "{lengths:?}");
    until("denver hears of it", || denver.row()["connected_since"].is_null());
    denver.verb("failover sg1 --unplanned --accept-loss 120s");
    denver.verb("volume readmit mail/disk --nbd");
    let verified = by(&denver, "verify_only=1", lengths).status().unwrap();
    assert!(verified.success(), "{}\n{}", denver.fio_output(), denver.log());
    let events = denver.bench.run(&["event", "--state", "state"]).stdout;
    assert!(
        events.contains("goes over from asynchronous") && events.contains("as its primary does"),
        "{events}"
    );

    // The mode is changed where the group is primary now, and outlives a restart of either site.
    boston.start();
    until("boston follows", || boston.is("secondary", "following") && denver.is("primary", "streaming"));
    denver.verb("dr set sg1 --mode periodic --every 1s --keep 2");
    let periodic = json!({"kind": "periodic", "every_ms": 1_000, "keep": 2});
    until("boston follows its primary", || has_mode(&boston, &periodic));
    denver.io(&["write -P 18 0 1M"]);
    until("states are kept at boston", || kept(&boston).len() == 2);
    let mut sites = [boston, denver];
    for site in &mut sites {
        site.kill();
        site.start();
    }
    let [boston, denver] = sites;
    until("both are there", || boston.row()["role"] == "secondary" && denver.row()["role"] == "primary");
    assert!(has_mode(&boston, &periodic) && has_mode(&denver, &periodic), "{}", boston.row());
    until("they are connected", || !denver.row()["connected_since"].is_null());
    let said = denver.verb("dr set sg1 --every 2s");
    assert!(said.contains("→ periodic, every 2 s, 2 states kept"), "{said}");
    denver.verb("failover sg1");
    until("boston is primary", || boston.row()["role"] == "primary" && boston.row()["serves"] == true);
    boston.io(&["read -P 18 0 1M"]);
}

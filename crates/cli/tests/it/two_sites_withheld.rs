//! Failovers that lose what hosts were answered, between two servers: hosts that were connected to the lost one are kept away
//! until they have let go, and know their steps; a kept state is promoted instead of the newest one.

use crate::{
    exported::judge,
    judged_exports::until,
    pool_drives::done,
    raw_initiator::RawInitiator,
    spindle::{is_full_run, json_of},
    two_sites::{EXPORT, Site, VOLUME, has_clients, paired},
    two_sites_hosts::TARGET,
    two_sites_periodic::until_next_point,
};
use std::{thread, time::Duration};

/// A target for everybody on this machine, with the volume as its first unit, which several hosts use.
const ROWS: &str =
    "[[target]]\nname = 'disks'\n[[target.unit]]\nnumber = 0\nvolume = 'mail/disk'\nshared = true\n";
const HOST: &str = "iqn.2026-11.test:host";
/// One that never logs out at the other site.
const LOST_HOST: &str = "iqn.2026-11.test:lost-host";
/// One that logged out before the accident.
const GONE_HOST: &str = "iqn.2026-11.test:gone-host";
/// NOT READY, MANUAL INTERVENTION REQUIRED.
const WITHHELD: [u8; 3] = [2, 4, 3];
/// UNIT ATTENTION, RESET OCCURRED.
const RESET: [u8; 3] = [6, 0x29, 0];
/// Time in which the other site learns who is connected.
const TOLD_WITHIN: Duration = Duration::from_secs(2);

impl Site {
    fn host(&self, name: &str) -> RawInitiator {
        RawInitiator::begin(&format!("iscsi://{}/{TARGET}/0", self.portal()), name)
    }

    fn withheld(&self) -> Vec<String> {
        let row = self.row();
        let hosts = row["withheld"].as_array().cloned().unwrap_or_default();
        hosts.iter().map(|host| host["initiator"].as_str().unwrap_or("all NBD clients").to_owned()).collect()
    }
}

/// True if a host may use its disk.
fn is_served(host: &mut RawInitiator) -> bool {
    (host.test_unit_ready(), host.test_unit_ready()) == (Some(RESET), None)
}

#[test]
fn hosts_of_a_lost_site_are_withheld_from_until_they_have_let_go() {
    let (mut boston, denver) = paired();
    boston.write("boston", &format!("{VOLUME}{EXPORT}{ROWS}"));
    boston.verb("apply site.toml");
    boston.verb("dr create sg1 mail/disk --to denver --mode async");
    until("the first copy is complete", || boston.is("primary", "streaming"));
    until("the target came with the group", || denver.row()["rows"].to_string().contains("unit disks/0"));
    let (mut host, mut lost, gone) = (boston.host(HOST), boston.host(LOST_HOST), boston.host(GONE_HOST));
    assert!(is_served(&mut host) && is_served(&mut lost));
    thread::sleep(TOLD_WITHIN);
    gone.log_out();
    thread::sleep(TOLD_WITHIN);
    denver.refused("failover sg1 --unplanned --accept-loss all", "is connected: nothing has to be lost");
    boston.kill();
    until("denver hears of it", || denver.row()["connected_since"].is_null());
    denver.refused("failover sg1 --unplanned", "may be lost");
    denver.refused("failover sg1 --accept-loss all", "are of unplanned failovers");
    assert!(denver.withheld().is_empty(), "a failover that was refused withholds from nobody");
    let said = denver.verb("failover sg1 --unplanned --accept-loss 120s");
    assert_eq!(denver.withheld(), [HOST, LOST_HOST]);
    for host in [HOST, LOST_HOST] {
        let steps = &said[said.find(&format!("  {host} (mail/disk)")).expect("it is named")..];
        let readmit = format!("volume readmit mail/disk --initiator {host}");
        let mut from = 0;
        for step in ["1. stop", "2. unmount", "3. log out", &readmit, "5. log in", "6. check", "7. mount"] {
            from += steps[from..].find(step).unwrap_or_else(|| panic!("{step}: {said}"));
        }
    }
    assert!(
        !said.contains(GONE_HOST) && said.contains("after the line was lost is not known here"),
        "{said}"
    );
    let status = denver.bench.run(&["dr", "status", "--state", "state"]);
    assert!(status.stdout.contains("withheld since") && status.code == Some(1), "{}", status.stdout);
    until("it is a condition", || {
        let open = ["event", "conditions", "--server", "unix:state/spindle.sock"];
        denver.bench.run(&open).stdout.contains("sg1 is withheld since")
    });
    // With the same nexus, and after its session broke once more.
    for _ in 0..2 {
        assert_eq!(denver.host(HOST).test_unit_ready(), Some(WITHHELD));
    }
    assert!(is_served(&mut denver.host(GONE_HOST)), "it had let go");
    denver.host(HOST).log_out();
    until("it has let go", || denver.withheld() == [LOST_HOST]);
    assert!(is_served(&mut denver.host(HOST)));
    denver.verb(&format!("volume readmit mail/disk --initiator {LOST_HOST}"));
    assert!(is_served(&mut denver.host(LOST_HOST)));
    until("nobody is left", || denver.withheld().is_empty());
    // A planned failover withholds from nobody.
    boston.start();
    until("boston follows", || boston.is("secondary", "following") && denver.is("primary", "streaming"));
    denver.verb("failover sg1");
    until("boston serves", || boston.is("primary", "streaming"));
    assert!(boston.withheld().is_empty() && is_served(&mut boston.host(HOST)));
}

#[test]
fn a_kept_state_is_promoted_and_the_newest_stays_as_a_fork() {
    if !is_full_run("a kept state that is promoted") {
        return;
    }
    if !has_clients() {
        return;
    }
    let (mut boston, denver) = paired();
    boston.io(&["write -P 17 0 1M"]);
    boston.verb("dr create sg1 mail/disk --to denver --mode periodic --every 1s --keep 16");
    until("it waits for its clock", || boston.is("primary", "waiting"));
    let state = until_next_point(&denver);
    boston.io(&["write -P 18 0 64k", "write -P 18 2M 64k"]);
    let newest = until_next_point(&denver);
    let all = "--accept-loss all";
    denver.refused(&format!("failover sg1 --at last-proven {all}"), "was proven by a rehearsal");
    denver.refused(&format!("failover sg1 --at nothing {all}"), "there is no state \"nothing\"");
    denver.refused(&format!("failover sg1 --at {newest} {all}"), "is connected, and has what is newer");
    let proven = denver.verb(&format!("failover sg1 --rehearse --at {state} --check true"));
    assert!(proven.contains("Pass") || proven.contains("pass"), "{proven}");
    assert_eq!(denver.row()["last_rehearsal"]["last_proven"], state);
    boston.kill();
    until("denver hears of it", || denver.row()["connected_since"].is_null());
    denver.refused("failover sg1 --at last-proven", &format!("the time of {state}, is lost: "));
    assert!(denver.row()["role"] == "secondary" && denver.row()["forks"].as_array().unwrap().is_empty());
    denver.verb(&format!("failover sg1 --at last-proven {all}"));
    let fork = VOLUME.replace("disk", "disk-fork1");
    let newest = "[[nbd]]\nname = 'newest'\nvolume = 'mail/disk-fork1'\n";
    denver.write("denver", &format!("{VOLUME}{EXPORT}{fork}{newest}"));
    denver.verb("apply site.toml");
    denver.io(&["read -P 17 0 1M", "read -P 0 2M 64k", "write -P 19 4M 64k"]);
    let fork = denver.uri().replace("/disk?", "/newest?");
    let read = ["-r", "-f", "raw", "-c", "read -P 18 0 64k", "-c", "read -P 18 2M 64k", &fork];
    let said = judge("qemu-io", &read);
    assert!(!said.contains("failed") && !said.contains("Pattern"), "{said}");
    let forks = json_of(&done(&denver.bench.run(&denver.words("dr fork list --json"))));
    assert_eq!(forks["forks"][0]["name"], "disk-fork1", "{forks}");
    // The old primary has answered what is newer: a person says whose history counts.
    boston.start();
    until("boston stands down", || boston.row()["role"] == "secondary");
    until("a person has to choose", || denver.row()["state"] == "awaiting choice");
    boston.verb("dr give-way sg1 --yes sg1");
    until("boston follows", || boston.row()["role"] == "secondary" && denver.is("primary", "waiting"));
    until("boston has everything", || boston.row()["is_complete"] == true);
    denver.verb("failover sg1");
    until("boston serves", || boston.is("primary", "waiting"));
    boston.io(&["read -P 17 0 1M", "read -P 0 2M 64k", "read -P 19 4M 64k"]);
}

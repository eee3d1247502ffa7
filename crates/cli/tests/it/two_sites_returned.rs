//! A failover that lost something, between two servers: the old primary returns with more before a host wrote at the other
//! site, and a person chooses.

use crate::{
    judged_exports::until,
    pool_drives::done,
    spindle::json_of,
    two_sites::{Site, has_clients, pair},
};

#[test]
fn an_old_primary_that_returns_with_more_is_diverged_at_once_and_its_writes_become_a_fork() {
    if !has_clients() {
        return;
    }
    let (mut boston, mut denver) = pair("async");
    boston.io(&["write -P 17 0 1M"]);
    boston.wait_until_confirmed();
    denver.kill();
    until("boston hears of it", || boston.row()["connected_since"].is_null());
    boston.io(&["write -P 18 0 64k"]);
    boston.kill();
    denver.start();
    denver.verb("failover sg1 --unplanned --accept-loss all");
    readmit_clients(&denver);
    // A host that reads has seen the volume without what boston has.
    denver.io(&["read -P 17 0 1M"]);
    boston.start();
    until("a person has to choose", || denver.row()["state"] == "awaiting choice");
    until("boston stands down", || boston.row()["role"] == "secondary");
    let said = denver.bench.run(&["dr", "status", "--state", "state"]).stdout;
    assert!(said.contains("both sites have writes that the other lacks"), "{said}");
    assert!(said.contains("say 'spindle dr give-way sg1' at the site whose writes are to become"), "{said}");
    denver.io(&["read -P 17 0 1M"]);
    boston.verb("dr give-way sg1 --yes sg1");
    until("boston follows", || denver.is("primary", "streaming") && boston.is("secondary", "following"));
    let forks = json_of(&done(&boston.bench.run(&boston.words("dr fork list --json"))));
    assert_eq!(forks["forks"][0]["name"], "disk-fork1", "{forks}");
    denver.verb("failover sg1");
    until("boston serves", || boston.is("primary", "streaming"));
    readmit_clients(&boston);
    boston.io(&["read -P 17 0 1M"]);
}

/// A command of a host that ended just before the other site did may be remembered there as a client.
fn readmit_clients(site: &Site) {
    site.bench.run(&site.words("volume readmit mail/disk --nbd"));
}

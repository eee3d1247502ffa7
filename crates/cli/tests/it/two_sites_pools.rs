//! A DR group with volumes in two pools of each site: made, moved, taken over after a kill, suspended, compared and removed as
//! one.

use crate::{
    judged_exports::until,
    two_sites::{Site, has_clients, paired_with_both},
};

/// Databases in one pool and logs in the other.
const LOGS: &str = "[[group]]\nname = 'logs'\ndrives = 2\ndrive_gb = 0.4\n";
const VOLUMES: &str = "[[volume]]\nname = 'disk'\ngroup = 'mail'\ngb = 0.125\n\
                       [[volume]]\nname = 'log'\ngroup = 'logs'\ngb = 0.125\n\
                       [[nbd]]\nname = 'disk'\nvolume = 'mail/disk'\n[[nbd]]\nname = 'log'\nvolume = 'logs/log'\n";

/// The rows of both parts.
fn rows(site: &Site) -> Vec<serde_json::Value> {
    let rows = site.rows();
    assert_eq!(rows.len(), 2, "{rows:?}");
    rows
}

fn are(site: &Site, role: &str, state: &str) -> bool {
    rows(site).iter().all(|row| row["role"] == role && row["state"] == state)
}

/// Both parts stream in sync, and the other site shows what it has.
fn are_together(site: &Site) -> bool {
    let is_so = |row: &serde_json::Value| {
        row["part"]["is_together"] == true && row["is_alone"] == false && row["serves"] == true
    };
    are(site, "primary", "streaming") && rows(site).iter().all(is_so)
}

#[test]
fn a_group_of_two_pools_is_made_moved_and_taken_over_as_one() {
    if !has_clients() {
        return;
    }
    let (mut boston, denver) = paired_with_both((&format!("{LOGS}{VOLUMES}"), LOGS));
    boston.refused(
        "dr create sg1 mail/disk logs/log --to denver --mode async",
        "such a group is in sync today",
    );
    boston.refused(
        "dr create sg1 mail/disk logs/log --to denver --mode sync --pool mail",
        "one pool there is named",
    );
    boston.refused(
        "dr create sg1 mail/disk logs/log --to denver --mode sync --auto --witness 192.0.2.30",
        "has no witness today",
    );
    boston.verb("dr create sg1 mail/disk logs/log --to denver --mode sync");
    boston.io(&["write -P 17 0 1M"]);
    boston.io_of("log", &["write -P 27 0 1M"]);
    until("both parts are in sync", || are_together(&boston));
    assert!(
        rows(&boston)[0]["summary"].as_str().unwrap().contains("would lose nothing"),
        "{:?}",
        rows(&boston)
    );
    let said = boston.verb("dr status");
    assert!(
        said.contains("sg1 (1 of 2): primary here") && said.contains("sg1 (2 of 2): primary here"),
        "{said}"
    );
    denver.refused("failover sg1 --unplanned --accept-loss all", "is connected: nothing has to be lost");
    let said = boston.verb("dr verify sg1");
    assert_eq!(said.matches("both sites are alike").count(), 2, "{said}");

    // There and back, from either side.
    boston.verb("failover sg1");
    until("denver serves", || are_together(&denver) && are(&boston, "secondary", "following"));
    boston.is_closed();
    denver.io(&["read -P 17 0 1M", "write -P 18 0 4k"]);
    denver.io_of("log", &["read -P 27 0 1M", "write -P 28 0 4k"]);
    boston.verb("failover sg1");
    until("boston serves", || are_together(&boston) && are(&denver, "secondary", "following"));
    boston.io(&["read -P 18 0 4k"]);

    // Suspended and resumed as one: hosts go on.
    boston.verb("dr suspend sg1");
    assert!(are(&boston, "primary", "suspended"), "{:?}", rows(&boston));
    boston.io_of("log", &["write -P 29 0 4k"]);
    boston.io(&["write -P 19 0 4k"]);
    boston.verb("dr resume sg1");
    until("the parts are together again", || are_together(&boston));

    // The site is lost: the other one takes over with both.
    boston.kill();
    until("denver hears of it", || rows(&denver).iter().all(|row| row["connected_since"].is_null()));
    denver.verb("failover sg1 --unplanned --accept-loss all");
    until("denver serves both", || rows(&denver).iter().all(|row| row["serves"] == true));
    denver.io(&["read -P 19 0 4k", "write -P 20 0 4k"]);
    denver.io_of("log", &["read -P 29 0 4k", "write -P 30 0 4k"]);
    boston.start();
    until("boston follows with both", || are(&boston, "secondary", "following") && are_together(&denver));
    denver.verb("failover --all");
    until("boston serves again", || are_together(&boston));
    boston.io(&["read -P 20 0 4k"]);
    boston.io_of("log", &["read -P 30 0 4k"]);
    for site in [&boston, &denver] {
        site.verb("dr remove sg1 --yes sg1");
    }
    assert!(boston.rows().is_empty() && denver.rows().is_empty());
}

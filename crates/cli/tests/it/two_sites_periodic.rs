//! A group whose other site gets what changed by the clock: states that it keeps, a planned move, and a lost primary.

use crate::{
    exported::judge,
    judged_exports::until,
    pool_drives::done,
    spindle::{is_full_run, json_of},
    two_sites::{EXPORT, Site, VOLUME, has_clients, paired},
};

/// Names of the states that denver keeps, the oldest first.
pub fn kept(denver: &Site) -> Vec<String> {
    let words = ["pool", "show", "mail", "--json", "--server", "unix:state/spindle.sock"];
    let shown = json_of(&done(&denver.bench.run(&words)));
    let volumes = shown["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|volume| volume["name"] == "disk").unwrap();
    let names = volume["snapshots"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned());
    names.filter(|name| name.starts_with("replica~")).collect()
}

fn number(name: &str) -> u64 {
    name.strip_prefix("replica~").unwrap().parse().unwrap()
}

/// Waits until a pass has brought what was written before.
pub fn until_next_point(denver: &Site) -> String {
    let newest = || kept(denver).last().map_or(0, |name| number(name));
    // The one under way may have begun before.
    let before = newest();
    until("two passes have ended", || newest() >= before + 2);
    kept(denver).pop().unwrap()
}

#[test]
fn states_are_kept_by_the_clock_and_a_planned_move_loses_nothing() {
    if !is_full_run("a periodic group by the clock") {
        return;
    }
    if !has_clients() {
        return;
    }
    let (mut boston, denver) = paired();
    boston.refused("dr create sg1 mail/disk --to denver --mode periodic --hold 5s", "of groups in sync");
    boston.refused("dr create sg1 mail/disk --to denver --mode sync --keep 5", "of periodic groups");
    boston.refused("dr create sg1 mail/disk --to denver --mode periodic --keep 65", "from 1 to 64");
    boston.refused("dr create sg1 mail/disk --to denver --mode periodic --every 1ms", "from 1 s to 7 d");
    boston.io(&["write -P 17 0 8M"]);
    boston.verb("dr create sg1 mail/disk --to denver --mode periodic --every 2s --keep 2");
    until("it waits for its clock", || boston.is("primary", "waiting"));
    let said = boston.row()["summary"].as_str().unwrap().to_owned();
    assert!(said.contains("the next pass begins at"), "{said}");
    boston.io(&["write -P 18 1M 1M"]);
    let point = until_next_point(&denver);
    assert_eq!(kept(&denver).len(), 2);
    // A kept state is read there while the group goes on.
    let export = format!("[[nbd]]\nname = 'disk'\nvolume = 'mail/disk@{point}'\n");
    denver.write("denver", &format!("{VOLUME}{export}"));
    denver.verb("apply site.toml");
    let reads = ["-r", "-f", "raw", "-c", "read -P 17 0 1M", "-c", "read -P 18 1M 1M", &denver.uri()];
    let read = judge("qemu-io", &reads);
    assert!(!read.contains("failed") && !read.contains("Pattern"), "{read}");
    denver.write("denver", &format!("{VOLUME}{EXPORT}"));
    denver.verb("apply site.toml");
    // There and back, each with something that no pass has brought.
    boston.io(&["write -P 19 2M 1M"]);
    boston.verb("failover sg1");
    until("denver serves", || denver.is("primary", "waiting") && boston.row()["role"] == "secondary");
    denver.io(&["read -P 17 0 1M", "read -P 18 1M 1M", "read -P 19 2M 1M", "write -P 20 3M 1M"]);
    boston.verb("failover sg1");
    until("boston serves", || boston.is("primary", "waiting") && denver.row()["role"] == "secondary");
    boston.io(&["read -P 19 2M 1M", "read -P 20 3M 1M", "write -P 21 4M 1M"]);
    until_next_point(&denver);
    boston.kill();
    until("denver hears of it", || denver.row()["connected_since"].is_null());
    denver.refused("failover sg1 --unplanned", "may be lost");
    denver.verb("failover sg1 --unplanned --accept-loss all");
    denver.io(&["read -P 20 3M 1M", "read -P 21 4M 1M", "write -P 22 5M 1M"]);
    boston.start();
    until("boston follows", || denver.is("primary", "waiting") && boston.row()["role"] == "secondary");
    boston.verb("failover sg1");
    until("boston serves", || boston.is("primary", "waiting"));
    boston.io(&["read -P 21 4M 1M", "read -P 22 5M 1M"]);
}

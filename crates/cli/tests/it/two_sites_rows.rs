//! Snapshots, sizes and rollbacks of a volume in a DR group, under QEMU's client: they are at the other site, also after the
//! line was down, and after a failover.

use crate::{
    judged_exports::until,
    pool_drives::done,
    spindle::json_of,
    two_sites::{Site, has_clients, pair},
};

/// The snapshots of the volume that people took, with their notes left out.
fn snapshots(site: &Site) -> Vec<String> {
    let said =
        site.bench.run(&["volume", "show", "mail/disk", "--json", "--server", "unix:state/spindle.sock"]);
    let volume = json_of(&said.stdout);
    let all = volume["snapshots"].as_array().or_else(|| volume["volume"]["snapshots"].as_array());
    let all = all.unwrap_or_else(|| panic!("{volume}"));
    all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

fn have_all((boston, denver): (&Site, &Site)) {
    until("denver has everything", || {
        let (primary, secondary) = (boston.row(), denver.row());
        primary["state"] == "streaming"
            && primary["unconfirmed_bytes"] == 0
            && secondary["state"] == "following"
    });
}

#[test]
fn snapshots_sizes_and_rollbacks_are_at_the_other_site_also_after_the_line_was_down() {
    if !has_clients() {
        return;
    }
    let (boston, mut denver) = pair("async");
    boston.io(&["write -P 17 0 4M"]);
    boston.verb("volume snapshot mail/disk@monday");
    boston.io(&["write -P 18 0 2M"]);
    boston.verb("volume resize mail/disk 192MiB");
    boston.io(&["write -P 19 150M 1M"]);
    boston.verb("volume snapshot mail/disk@tuesday");
    have_all((&boston, &denver));
    until("both snapshots are there", || snapshots(&denver) == ["monday", "tuesday"]);
    // A replica's snapshots are those of its primary.
    denver.refused("volume delete mail/disk@monday --yes monday", "replica");
    // The other site is down: what happens meanwhile comes later, snapshots with the bytes that they had.
    denver.kill();
    boston.verb("volume delete mail/disk@monday --yes monday");
    boston.io(&["write -P 20 0 1M"]);
    boston.verb("volume snapshot mail/disk@wednesday");
    boston.io(&["write -P 21 0 8M"]);
    boston.verb("volume rollback mail/disk@tuesday --yes disk --force");
    boston.io(&["read -P 18 0 2M", "read -P 17 2M 2M", "read -P 19 150M 1M", "write -P 22 8M 1M"]);
    denver.start();
    have_all((&boston, &denver));
    until("its snapshots are the same", || snapshots(&denver) == ["tuesday", "wednesday"]);
    boston.verb("failover sg1");
    until("denver serves", || denver.row()["serves"] == true);
    denver.io(&["read -P 18 0 2M", "read -P 17 2M 2M", "read -P 22 8M 1M", "read -P 19 150M 1M"]);
    // A state of while the line was down, at the site that was down.
    denver.verb("volume clone mail/disk@wednesday mail/look");
    let said = denver.bench.run(&["volume", "list", "mail", "--json", "--server", "unix:state/spindle.sock"]);
    assert!(done(&said).contains("look"), "{}", said.stdout);
    denver.verb("volume rollback mail/disk@wednesday --yes disk --force");
    denver.io(&["read -P 20 0 1M", "read -P 18 1M 1M", "read -P 17 2M 2M"]);
    denver.verb("failover sg1");
    until("boston serves", || boston.row()["serves"] == true);
    boston.io(&["read -P 20 0 1M", "read -P 18 1M 1M", "read -P 17 2M 2M"]);
}

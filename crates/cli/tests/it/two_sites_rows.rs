//! Snapshots, sizes and rollbacks of a volume in a DR group, under QEMU's client: they are at the other site, also after the
//! line was down, and after a failover.

use crate::{
    judged_exports::until,
    spindle::json_of,
    two_sites::{Site, has_clients, pair},
};

/// The snapshots of the volume that people took.
fn snapshots(site: &Site) -> Vec<String> {
    let said = site.bench.run(&["pool", "show", "mail", "--json", "--server", "unix:state/spindle.sock"]);
    let pool = json_of(&said.stdout);
    let volumes = pool["volumes"].as_array().unwrap_or_else(|| panic!("{pool}"));
    let disk = volumes.iter().find(|volume| volume["name"] == "disk").unwrap_or_else(|| panic!("{pool}"));
    let all = disk["snapshots"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned());
    all.filter(|name| !name.starts_with('~')).collect()
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
    boston.verb("volume readmit mail/disk --nbd");
    boston.io(&["read -P 18 0 2M", "read -P 17 2M 2M", "read -P 19 150M 1M", "write -P 22 8M 1M"]);
    denver.start();
    have_all((&boston, &denver));
    until("its snapshots are the same", || snapshots(&denver) == ["tuesday", "wednesday"]);
    boston.verb("failover sg1");
    until("denver serves", || denver.row()["serves"] == true);
    denver.io(&["read -P 18 0 2M", "read -P 17 2M 2M", "read -P 22 8M 1M", "read -P 19 150M 1M"]);
    // A state of while the line was down, at the site that was down.
    denver.verb("volume clone mail/disk@wednesday mail/look");
    denver.verb("volume rollback mail/disk@wednesday --yes disk --force");
    denver.verb("volume readmit mail/disk --nbd");
    denver.io(&["read -P 20 0 1M", "read -P 18 1M 1M", "read -P 17 2M 2M"]);
    denver.verb("failover sg1");
    until("boston serves", || boston.row()["serves"] == true);
    boston.io(&["read -P 20 0 1M", "read -P 18 1M 1M", "read -P 17 2M 2M"]);
}

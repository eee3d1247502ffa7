//! Two servers whose groups are suspended and resumed by hand: over restarts, in turns, at a rate; and what a site gave up,
//! listed until it is dropped.

use crate::{
    judged_exports::until,
    spindle::{is_full_run, json_of},
    two_sites::{EXPORT, Site, VOLUME, has_clients, paired_with},
};
use std::time::{Duration, Instant};

const SECOND: &str =
    "[[volume]]\nname = 'more'\ngroup = 'mail'\ngb = 0.125\n[[nbd]]\nname = 'more'\nvolume = 'mail/more'\n";

/// The row of one group.
fn row(site: &Site, name: &str) -> serde_json::Value {
    let said = site.bench.run(&["dr", "status", name, "--state", "state", "--json"]);
    json_of(&said.stdout)["groups"][0].clone()
}

fn is(site: &Site, name: &str, role: &str, state: &str) -> bool {
    let row = row(site, name);
    row["role"] == role && row["state"] == state
}

/// Writes to the second volume.
fn write_more(site: &Site, command: &str) {
    let uri = site.uri().replace("///disk", "///more");
    let said = crate::exported::judge("qemu-io", &["-f", "raw", "-t", "none", "-c", command, &uri]);
    assert!(!said.contains("failed") && !said.contains("Pattern"), "{said}");
}

#[test]
fn groups_are_suspended_over_a_restart_and_merge_in_turns_at_a_rate() {
    if !is_full_run("groups that are suspended over a restart") {
        return;
    }
    if !has_clients() {
        return;
    }
    let (mut boston, denver) = paired_with(&format!("{VOLUME}{EXPORT}{SECOND}"));
    denver.refused("dr suspend --all", "no DR group is primary here");
    boston.refused("dr suspend sg1", "there is no DR group \"sg1\" here");
    for (group, volume) in [("sg1", "mail/disk"), ("sg2", "mail/more")] {
        boston.verb(&format!("dr create {group} {volume} --to denver --mode sync --hold 1s"));
        until("the first copy is complete", || is(&boston, group, "primary", "streaming"));
    }
    denver.refused("dr suspend sg1", "is secondary here");
    boston.refused("dr resume sg1 --merge soon", "at-once");
    boston.refused("dr resume sg1 --merge window=25:00-05:00", "no time of each day");

    boston.verb("dr suspend --all");
    for group in ["sg1", "sg2"] {
        until("it is suspended", || is(&boston, group, "primary", "suspended"));
        let row = row(&boston, group);
        assert_eq!(row["suspended"]["reason"], "person", "{row}");
        assert!(row["summary"].as_str().unwrap().contains(&format!("'spindle dr resume {group}'")), "{row}");
    }
    boston.io(&["write -P 17 0 16M"]);
    write_more(&boston, "write -P 18 0 16M");
    until("denver says why", || {
        let summary = row(&denver, "sg1")["summary"].as_str().unwrap().to_owned();
        summary.contains("suspended at its primary")
    });
    boston.refused("failover sg1", "is not connected");
    // It outlives a restart: boston compares, serves its hosts, and sends nothing.
    let received = row(&denver, "sg1")["received_bytes"].clone();
    boston.kill();
    boston.start();
    until("it serves", || row(&boston, "sg1")["serves"] == true);
    until("it is suspended again", || is(&boston, "sg1", "primary", "suspended"));
    boston.io(&["read -P 17 0 16M", "write -P 19 16M 4M"]);
    assert_eq!(row(&denver, "sg1")["received_bytes"], received);
    until("the condition is open again", || {
        let said = boston.bench.run(&["event", "conditions", "--state", "state"]).stdout;
        said.contains("sg1 is not copied since") && said.contains("a person suspended it")
    });

    let begun = Instant::now();
    boston.verb("dr resume --all --merge staggered=1 --rate 4MB/s");
    let mut has_waited = false;
    until("both stream", || {
        // Both as of one moment.
        let said = boston.bench.run(&["dr", "status", "--state", "state", "--json"]);
        let rows = json_of(&said.stdout)["groups"].as_array().unwrap().clone();
        let merging = rows.iter().filter(|row| row["state"] == "merging" && row["standstill"].is_null());
        let sending = merging.filter(|row| row["merge"]["done_bytes"].as_u64() > Some(0)).count();
        assert!(sending < 2, "two merge at one time: {rows:?}");
        // The one that is connected first may begin.
        let waits = |row: &serde_json::Value| {
            row["standstill"].as_str().is_some_and(|why| why.contains("its turn, behind sg"))
        };
        has_waited |= rows.iter().any(waits);
        rows.iter().all(|row| row["state"] == "streaming")
    });
    let took = begun.elapsed();
    println!("36 MiB of two groups, one after the other, at 4 MB/s: {took:?}");
    assert!(has_waited, "one of both waited for its turn");
    assert!(took > Duration::from_millis(8_400), "36 MiB at 4 MB/s: {took:?}");
    denver.write("denver", &format!("{VOLUME}{EXPORT}{SECOND}"));
    denver.verb("apply site.toml");
    boston.verb("failover sg1");
    until("denver serves", || row(&denver, "sg1")["serves"] == true);
    denver.io(&["read -P 17 0 16M", "read -P 19 16M 4M"]);
}

#[test]
fn a_fork_is_listed_with_its_blocks_until_it_is_dropped() {
    if !has_clients() {
        return;
    }
    let (mut boston, denver) = crate::two_sites::pair("sync --hold 1s");
    boston.io(&["write -P 17 0 1M"]);
    until("it is in sync", || boston.row()["is_alone"] == false);
    boston.verb("dr suspend sg1");
    boston.io(&["write -P 18 8k 12k", "write -P 19 1M 4k"]);
    boston.kill();
    until("denver hears of it", || denver.row()["connected_since"].is_null());
    denver.verb("failover sg1 --unplanned --accept-loss all");
    // The other site may not have heard that the last client had gone.
    denver.verb("volume readmit mail/disk --all");
    denver.io(&["write -P 20 2M 4k"]);
    boston.start();
    until("boston stands down", || boston.row()["role"] == "secondary");
    assert!(boston.verb("dr fork list").contains("no forks"));
    until("a person has to choose", || denver.row()["state"] == "awaiting choice");
    boston.verb("dr give-way sg1 --yes sg1");
    until("boston follows", || boston.is("secondary", "following"));
    let listed = |site: &Site| json_of(&site.verb("dr fork list --json"))["forks"].clone();
    until("it is listed", || listed(&boston).as_array().unwrap().len() == 1);
    let fork = listed(&boston)[0].clone();
    assert_eq!(
        (&fork["name"], &fork["volume"], &fork["group_name"]),
        (&"disk-fork1".into(), &"disk".into(), &"sg1".into())
    );
    assert_eq!((fork["blocks"].as_u64(), fork["bytes"].as_u64()), (Some(4), Some(16_384)), "{fork}");
    assert!(fork["kept"].is_string(), "{fork}");
    // Figures outlive a restart, and the fork a failover.
    boston.kill();
    boston.start();
    until("it is listed again", || listed(&boston).as_array().unwrap().len() == 1);
    assert_eq!(listed(&boston)[0], fork);
    boston.refused("dr fork drop disk --yes disk", "there is no fork \"disk\" here");
    boston.refused("dr fork drop disk-fork1 --yes other", "another name");
    boston.verb("dr fork drop disk-fork1 --yes disk-fork1");
    until("it is gone", || listed(&boston).as_array().unwrap().is_empty());
    assert_eq!(boston.row()["forks"].as_array().map(Vec::len), Some(0));
}

/// Reserves as much of a site's pool as it can.
fn fill_pool(site: &Site) {
    let made = (2..40).rev().find(|tens| {
        let size = format!("{tens}0MiB");
        let verb = format!("volume create mail/filler {size} --reserve {size}");
        site.bench.run(&site.words(&verb)).code == Some(0)
    });
    println!("{} MiB are reserved", made.unwrap() * 10);
}

#[test]
fn a_full_pool_at_the_other_site_suspends_the_group_until_it_has_room() {
    if !is_full_run("a full pool at the other site") {
        return;
    }
    if !has_clients() {
        return;
    }
    let (boston, denver) = crate::two_sites::pair("sync --hold 1s");
    boston.io(&["write -P 17 0 1M"]);
    until("it is in sync", || boston.row()["is_alone"] == false);
    fill_pool(&denver);
    // More than is left there: hosts see no error, and wait no longer than the hold.
    boston.io(&["write -P 18 1M 63M", "write -P 19 64M 64M"]);
    until("it is suspended", || boston.row()["suspended"]["reason"] == "target-full");
    let row = boston.row();
    assert_eq!(row["state"], "suspended: the other site is full", "{row}");
    assert!(row["summary"].as_str().unwrap().contains("make room there"), "{row}");
    let since = row["suspended"]["since"].clone();
    until("both have a condition", || {
        let open = |site: &Site| site.bench.run(&["event", "conditions", "--state", "state"]).stdout;
        open(&boston).contains("the pool at denver is full") && open(&denver).contains("no room left")
    });
    let begun = Instant::now();
    boston.io(&["write -P 20 0 1M", "read -P 19 64M 64M"]);
    assert!(begun.elapsed() < Duration::from_secs(5), "hosts are unharmed: {:?}", begun.elapsed());
    assert_eq!(boston.row()["suspended"]["since"], since, "it is the same suspension");
    assert!(boston.log().matches("the pool at the other site is full").count() < 3, "{}", boston.log());
    denver.verb("volume delete mail/filler --yes filler");
    let begun = Instant::now();
    until("it goes on without a command", || boston.is("primary", "streaming"));
    println!("it streams {:?} after there was room", begun.elapsed());
    until("it is in sync", || boston.row()["is_alone"] == false && boston.row()["suspended"].is_null());
    boston.verb("failover sg1");
    until("denver serves", || denver.is("primary", "streaming"));
    denver.io(&["read -P 20 0 1M", "read -P 18 1M 63M", "read -P 19 64M 64M"]);
}

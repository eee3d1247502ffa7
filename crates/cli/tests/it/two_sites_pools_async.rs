//! A DR group with volumes in two pools of each site that is not in sync: a killed primary under a host that writes to both in
//! order, a planned move that loses nothing, and the way into sync and out of it.

use crate::{
    judged_exports::until,
    two_sites::{Site, has_clients, paired_with_both},
    two_sites_pools::{LOGS, OrderedHost, VOLUMES, are, are_together, rows, writes_at},
};
use std::{thread, time::Duration};

/// The pause of the host between two writes, and the writes that it makes in three seconds at most.
const PAUSE: Duration = Duration::from_millis(2);
const LOST_MAX: u64 = 1_500;

fn kill_under_ordered_host(round: u64) {
    let (mut boston, denver) = paired_with_both((&format!("{LOGS}{VOLUMES}"), LOGS));
    boston.verb("dr create sg1 mail/disk logs/log --to denver --mode async --behind 10s,64MiB");
    until("both parts stream", || {
        are(&boston, "primary", "streaming") && are(&denver, "secondary", "following")
    });
    let mut host = OrderedHost::at(&boston, 0);
    host.pause = PAUSE;
    let writing = thread::spawn(move || host.write(20_000));
    thread::sleep(Duration::from_millis(1_500));
    let shown = || rows(&denver).iter().map(|row| row["complete_until"].to_string()).collect::<Vec<_>>();
    let before = shown();
    until("denver shows a later moment of both pools", || {
        shown().iter().zip(&before).all(|(now, then)| now != then)
    });
    thread::sleep(Duration::from_millis(500 + round * 137 % 1_000));
    boston.kill();
    let answered = writing.join().unwrap();
    until("denver hears of it", || rows(&denver).iter().all(|row| row["connected_since"].is_null()));
    denver.refused("failover sg1 --unplanned --accept-loss 0s", "may be lost");
    denver.verb("failover sg1 --unplanned --accept-loss 60s");
    for volume in ["mail/disk", "logs/log"] {
        denver.bench.run(&denver.words(&format!("volume readmit {volume} --nbd")));
    }
    until("denver serves both", || rows(&denver).iter().all(|row| row["serves"] == true));
    // It panics if one is there without those before it.
    let there = writes_at(&denver);
    println!("round {round}: of {answered} answered denver has {there}");
    assert!(there <= answered + 1 && there + LOST_MAX > answered && there > 0, "{there} of {answered}");

    // Later writes of boston become forks; then the group moves back in order, and loses nothing.
    boston.start();
    let follows = || are(&boston, "secondary", "following") && are(&denver, "primary", "streaming");
    until("boston follows, or a person has to choose", || {
        follows() || rows(&denver).iter().all(awaits_choice)
    });
    if !follows() {
        boston.verb("dr give-way sg1 --yes sg1");
    }
    until("boston follows", follows);
    assert_eq!(OrderedHost::at(&denver, there).write(there + 60), there + 60);
    denver.verb("failover sg1");
    until("boston serves both", || rows(&boston).iter().all(|row| row["serves"] == true));
    assert_eq!(writes_at(&boston), there + 60, "a planned move loses nothing");
    into_sync_and_out(&boston, &denver);
}

fn awaits_choice(row: &serde_json::Value) -> bool {
    row["state"] == "awaiting choice"
}

fn into_sync_and_out(boston: &Site, denver: &Site) {
    boston.refused("dr set sg1 --mode periodic", "such a group is not periodic today");
    boston.verb("dr set sg1 --mode sync");
    until("it is in sync", || are_together(boston) && are(denver, "secondary", "following"));
    let is_sync = |site: &Site| rows(site).iter().all(|row| row["mode"]["kind"] == "sync");
    until("both sites say so", || is_sync(boston) && is_sync(denver));
    boston.verb("dr set sg1 --mode async");
    until("both parts stream", || are(boston, "primary", "streaming") && !is_sync(denver));
    boston.io(&["write -P 99 0 4k"]);
}

#[test]
fn pools_that_are_not_in_sync_are_taken_over_in_one_state_and_moved_without_a_loss() {
    if !has_clients() {
        return;
    }
    let rounds = if std::env::var_os("SPINDLE_FULL").is_some() { 20 } else { 1 };
    (0..rounds).for_each(kill_under_ordered_host);
}

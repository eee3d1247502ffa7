//! A DR group with volumes in two pools of each site and a witness: the other site takes over both parts without a person, from
//! a primary that was killed, and from one that comes back without one of its pools.

use crate::{
    judged_exports::until,
    spindle::is_full_run,
    two_sites::{Site, has_clients, paired_with_both},
    two_sites_auto::Witness,
    two_sites_pools::{LOGS, OrderedHost, VOLUMES, are, are_together, rows, writes_at},
};
use std::{
    fs, thread,
    time::{Duration, Instant},
};

/// The other site would take over both parts.
fn are_protected(site: &Site) -> bool {
    are_together(site) && rows(site).iter().all(|row| row["witness"]["takes_over"] == true)
}

fn both_serve(site: &Site) -> bool {
    rows(site).iter().all(|row| row["serves"] == true)
}

/// Boston and Denver with two pools each, in sync and watched by a witness.
fn watched(witness: &Witness) -> (Site, Site) {
    let (boston, denver) = paired_with_both((&format!("{LOGS}{VOLUMES}"), LOGS));
    let mode = witness.mode("2s");
    boston.verb(&format!("dr create sg1 mail/disk logs/log --to denver --mode {mode}"));
    until("denver would take over both parts", || are_protected(&boston));
    (boston, denver)
}

/// Kills the primary under a host that writes to both pools in order. Returns the time after which both were served again.
fn kill_the_primary(round: u64) -> Duration {
    let witness = Witness::begin();
    let (mut boston, denver) = watched(&witness);
    let host = OrderedHost::at(&boston, 0);
    let writing = thread::spawn(move || host.write(10_000));
    thread::sleep(Duration::from_millis(700 + round * 137 % 500));
    boston.kill();
    let killed = Instant::now();
    until("denver serves both parts", || both_serve(&denver));
    let took = killed.elapsed();
    let answered = writing.join().unwrap();
    let there = writes_at(&denver);
    assert!(answered > 20 && there >= answered, "{answered} were answered, and {there} are there");
    let took_over = || denver.log().matches("this site took over without a person").count();
    until("the log says so of both parts", || took_over() == 2);

    // The old primary returns and follows; then all goes back in order.
    boston.start();
    until("boston follows with both", || are(&boston, "secondary", "following") && are_protected(&denver));
    denver.verb("failover sg1");
    until("boston serves both", || are_protected(&boston) && are(&denver, "secondary", "following"));
    assert!(writes_at(&boston) >= answered);
    took
}

#[test]
fn both_parts_of_a_killed_primary_are_taken_over_without_a_person() {
    if !has_clients() {
        return;
    }
    let rounds = if std::env::var_os("SPINDLE_FULL").is_some() { 20 } else { 1 };
    for round in 0..rounds {
        println!("round {round}: both parts served again {:?} after the kill", kill_the_primary(round));
    }
}

#[test]
fn a_primary_that_returns_without_one_of_its_pools_leaves_both_parts_to_the_other_site() {
    if !is_full_run("a primary without one of its pools") {
        return;
    }
    if !has_clients() {
        return;
    }
    let witness = Witness::begin();
    let (mut boston, denver) = watched(&witness);
    assert_eq!(OrderedHost::at(&boston, 0).write(200), 200);
    boston.kill();
    let (pool, away) = (boston.bench.path("state/pools/logs"), boston.bench.path("away"));
    fs::rename(&pool, &away).unwrap();
    // It is back before its right has ended.
    boston.start();
    until("denver serves both parts", || both_serve(&denver));
    assert!(writes_at(&denver) >= 200);
    assert_eq!(OrderedHost::at(&denver, 200).write(300), 300);
    fs::rename(&away, &pool).unwrap();
    until("boston follows with both", || boston.rows().len() == 2 && are(&boston, "secondary", "following"));
    until("denver is protected again", || are_protected(&denver));
    denver.verb("failover sg1");
    until("boston serves both", || both_serve(&boston));
    assert!(writes_at(&boston) >= 300);
}

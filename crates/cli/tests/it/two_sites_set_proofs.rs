//! A set in a DR group with two real servers: its backups are proven by the server that follows, and what would leave the other
//! site without a volume is refused.

use crate::{
    judged_exports::until,
    pool_drives::done,
    spindle::{answered, is_full_run, json_of, short},
    two_sites::{EXPORT, Site, VOLUME, has_clients, paired_with},
};
use serde_json::Value;
use std::{thread, time::Duration};

const SET: &str = "[[protect]]\nset = 'mail'\nvolumes = ['disk']\nschedules = ['24x1h']\n\
                   verify = { level = 'recover', at = 'replica' }\n";
const STORES: &str = "[[volume]]\nname = 'store'\ngroup = 'mail'\ngb = 0.0625\n\
                      [[volume]]\nname = 'log'\ngroup = 'mail'\ngb = 0.125\n\
                      [[nbd]]\nname = 'store'\nvolume = 'mail/store'\n[[nbd]]\nname = 'log'\nvolume = 'mail/log'\n\
                      [[protect]]\nset = 'post'\nvolumes = ['store', 'log']\nlogs = ['log']\nschedules = ['24x1h']\n";

fn back_up(site: &Site, set: &str) -> u64 {
    json_of(&site.verb(&format!("protect now {set} --hold audit --json")))["number"].as_u64().unwrap()
}

fn set(site: &Site) -> Value {
    json_of(&site.verb("protect list mail --json"))
}

fn backup(site: &Site, number: u64) -> Value {
    let set = set(site);
    let found = set["backups"].as_array().unwrap().iter().find(|backup| backup["number"] == number);
    found.cloned().unwrap_or_else(|| panic!("backup {number} is gone: {set}"))
}

fn is_proven_at(site: &Site, number: u64, place: &str) -> bool {
    let backup = backup(site, number);
    let by = backup["verified_by"].as_str().unwrap_or_default();
    backup["proof"] == "proven" && by.starts_with(&format!("site {place}: "))
}

#[test]
fn a_set_is_verified_by_the_server_that_follows() {
    if !is_full_run("a set that is verified at the other site") || !has_clients() {
        return;
    }
    let (boston, mut denver) = paired_with(&format!("{VOLUME}{EXPORT}"));
    let tables = format!("{VOLUME}{EXPORT}{SET}");
    boston.write("boston", &tables);
    boston.refused("apply site.toml", "verify: at = \"replica\": its volumes lie in no DR group");
    boston.verb("dr create sg1 mail/disk --to denver --mode sync");
    until("the first copy is complete", || boston.is("primary", "streaming"));
    boston.verb("apply site.toml");
    denver.write("denver", &tables);
    denver.verb("apply site.toml");
    answered(&boston.bench.run(&short(&[&boston.uri()])));
    let first = back_up(&boston, "mail");
    until("denver proves it", || is_proven_at(&boston, first, "denver"));
    until("denver hears that it counts", || is_proven_at(&denver, first, "denver"));
    let report = json_of(&boston.verb("protect report mail --since 1d --json"));
    let text = report["backups"].to_string();
    assert!(text.contains("\"by\":\"site denver: "), "{report}");
    // While it is away nothing is verified here, and the reason is said.
    denver.kill();
    // Hosts, and cuts, are held for 15 s.
    let mut second = None;
    until("boston goes on alone", || {
        let made = boston.bench.run(&boston.words("protect now mail --hold audit --json"));
        second = (made.code == Some(0)).then(|| json_of(&made.stdout)["number"].as_u64().unwrap());
        second.is_some()
    });
    let second = second.expect("it was made");
    until("it waits", || {
        let why = backup(&boston, second)["not_verified"].as_str().unwrap_or_default().to_owned();
        why.starts_with("site denver, which verifies, is not connected since")
    });
    thread::sleep(Duration::from_secs(5));
    assert_eq!(backup(&boston, second)["proof"], "unproven");
    denver.start();
    until("denver proves what waited", || is_proven_at(&boston, second, "denver"));
    // The roles turn.
    boston.verb("failover sg1");
    until("denver keeps it", || set(&denver)["replication"]["role"] == "keeps");
    let third = back_up(&denver, "mail");
    until("boston proves it", || is_proven_at(&denver, third, "boston"));
    println!("{}\n{}", denver.verb("protect list mail"), boston.verb("protect list mail"));
}

#[test]
fn what_would_leave_the_other_site_without_a_volume_is_refused_before_anything_is_made() {
    if !is_full_run("restores in a DR group") || !has_clients() {
        return;
    }
    let (boston, _denver) = paired_with(STORES);
    boston.verb("dr create sg1 mail/store mail/log --to denver --mode sync");
    until("the first copy is complete", || boston.is("primary", "streaming"));
    let (store, log) = (boston.uri_of("store"), boston.uri_of("log"));
    let prove = |options: &[&'static str]| -> Vec<String> {
        let run = ["prove", &store, "--logs", &log, "--size", "16MiB", "--cache", "4MiB", "--seed", "9"];
        run.iter().chain(options).map(|word| (*word).to_owned()).collect()
    };
    let words = prove(&["--duration", "1s"]);
    answered(&boston.bench.run(&words.iter().map(String::as_str).collect::<Vec<_>>()));
    let number = back_up(&boston, "post");
    // Ended in an orderly way, so that no client may come back with what it cached.
    let words = prove(&["--mailboxes", "60", "--iops", "1", "--duration", "4s"]);
    answered(&boston.bench.run(&words.iter().map(String::as_str).collect::<Vec<_>>()));
    let looked_at =
        json_of(&boston.verb(&format!("protect restore post {number} --logs all --dry-run --json")));
    assert!(looked_at["logs"][0]["commits"].as_u64().is_some_and(|commits| commits > 0), "{looked_at}");
    let volumes = || {
        let pool = json_of(&done(&boston.bench.run(&["pool", "show", "state/pools/mail", "--json"])));
        let rows = pool["volumes"].as_array().unwrap().clone();
        rows.iter().map(|row| format!("{}: {}", row["name"], row["snapshots"])).collect::<Vec<_>>()
    };
    let before = volumes();
    let why = "is in DR group sg1, whose other site has no clone that takes its place: nothing was changed";
    boston.refused(&format!("protect restore post {number} --yes post"), why);
    boston.refused("protect dial-tone post --yes post", why);
    boston.refused("protect merge post --from old --yes post", why);
    assert_eq!(volumes(), before, "nothing was made");
    // Without the log it goes back to the backup, and the other site with it.
    let restored = boston.verb(&format!("protect restore post {number} --logs none --yes post"));
    assert!(restored.contains("restored"), "{restored}");
}

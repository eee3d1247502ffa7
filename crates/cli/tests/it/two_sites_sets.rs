//! A set whose volume lies in a DR group, with two real servers: kept where the group is primary, and taken along.

use crate::{
    judged_exports::until,
    spindle::{is_full_run, json_of},
    two_sites::{EXPORT, Site, VOLUME, has_clients, paired_with},
};
use serde_json::Value;

const SET: &str = "[[protect]]\nset = 'mail'\nvolumes = ['disk']\nschedules = ['3x1min']\n";
const NOT_SEEN: &str = "catalogue of boston not seen";

fn set(site: &Site) -> Value {
    let said = site.bench.run(&["protect", "list", "mail", "--state", "state", "--json"]);
    json_of(&said.stdout)
}

fn role(site: &Site) -> String {
    set(site)["replication"]["role"].as_str().unwrap_or("none").to_owned()
}

fn numbers(site: &Site) -> Vec<u64> {
    let set = set(site);
    set["backups"].as_array().unwrap().iter().map(|backup| backup["number"].as_u64().unwrap()).collect()
}

fn backup(site: &Site, number: u64) -> Value {
    let set = set(site);
    let found = set["backups"].as_array().unwrap().iter().find(|backup| backup["number"] == number);
    found.cloned().unwrap_or_else(|| panic!("backup {number} is gone: {set}"))
}

fn is_held(site: &Site, number: u64, hold: &str) -> bool {
    backup(site, number)["holds"].as_array().unwrap().iter().any(|known| known == hold)
}

#[test]
fn a_set_is_kept_by_the_primary_and_goes_on_after_failovers() {
    if !is_full_run("a set in a DR group") || !has_clients() {
        return;
    }
    let (mut boston, denver) = paired_with(&format!("{VOLUME}{EXPORT}{SET}"));
    boston.verb("dr create sg1 mail/disk --to denver --mode sync");
    until("the first copy is complete", || boston.is("primary", "streaming"));
    denver.write("denver", &format!("{VOLUME}{EXPORT}{SET}"));
    denver.verb("apply site.toml");
    boston.io(&["write -P 17 0 1M"]);
    let made = json_of(&boston.verb("protect now mail --hold audit --json"))["number"].as_u64().unwrap();
    until("denver follows", || role(&denver) == "follows" && numbers(&denver).contains(&made));
    until("denver hears of the hold", || is_held(&denver, made, "audit"));
    until("boston hears that denver has it", || {
        backup(&boston, made)["sites"] == serde_json::json!(["here", "denver"])
    });
    // Clones take no places there: what a DR group has is the other site's, too.
    for (verb, remedy) in [
        ("protect dial-tone mail --yes mail", "let the other site take over"),
        ("protect dial-tone mail --dry-run", "let the other site take over"),
        ("protect merge mail --from old --yes mail", "spindle dr remove"),
    ] {
        boston.refused(
            verb,
            "mail/disk is in DR group sg1, whose other site has no clone that takes its place",
        );
        boston.refused(verb, remedy);
    }
    assert!(boston.is("primary", "streaming"), "nothing was changed");
    denver.refused(
        "protect now mail",
        "set mail is not kept here: DR group sg1 is secondary here, and site boston keeps",
    );
    denver.refused(&format!("protect delete mail {made}"), "give the order at site boston");
    let said = denver.verb("protect list mail");
    assert!(said.contains("not kept here: DR group sg1 is secondary here"), "{said}");
    assert!(said.contains("at here and boston"), "{said}");
    // There: numbers and holds go on.
    boston.verb("failover sg1");
    until("denver keeps it", || role(&denver) == "keeps" && role(&boston) == "follows");
    assert!(is_held(&denver, made, "audit") && !is_held(&denver, made, NOT_SEEN), "{}", set(&denver));
    let second = json_of(&denver.verb("protect now mail --json"))["number"].as_u64().unwrap();
    assert!(second > made && second < made + 10, "{second} after {made}");
    // Back, and Boston is lost with a hold that Denver never hears of.
    denver.verb("failover sg1");
    until("boston keeps it", || role(&boston) == "keeps" && role(&denver) == "follows");
    let third = json_of(&boston.verb("protect now mail --json"))["number"].as_u64().unwrap();
    assert!(third > second, "{third} after {second}");
    until("denver has it", || numbers(&denver).contains(&third));
    boston.kill();
    until("denver hears of it", || denver.row()["connected_since"].is_null());
    denver.verb("failover sg1 --unplanned --accept-loss all");
    until("denver keeps it", || role(&denver) == "keeps");
    assert!(is_held(&denver, third, NOT_SEEN) && is_held(&denver, made, "audit"), "{}", set(&denver));
    let fourth = json_of(&denver.verb("protect now mail --json"))["number"].as_u64().unwrap();
    assert!(fourth > third + 900, "{fourth} after {third}");
    denver.refused(&format!("protect delete mail {third}"), NOT_SEEN);
    boston.start();
    until("boston follows", || role(&boston) == "follows");
    until("its catalogue is seen", || !is_held(&denver, third, NOT_SEEN));
    assert!(is_held(&denver, made, "audit"), "{}", set(&denver));
    println!("{}\n{}", denver.verb("protect list mail"), boston.verb("protect list mail"));
}

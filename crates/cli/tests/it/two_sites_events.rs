//! Two paired servers say what happens to them: conditions that go up with a lost site and down with its return, and events.

use crate::{
    judged_exports::until,
    spindle::{is_full_run, json_of},
    two_sites::{Site, pair},
};

/// Ids of the conditions that are open at a site.
fn conditions(site: &Site) -> Vec<String> {
    let said = site.bench.run(&["event", "conditions", "--json", "--state", "state"]);
    let open = json_of(&said.stdout);
    open.as_array().unwrap().iter().map(|open| open["id"].as_str().unwrap().to_owned()).collect()
}

/// Names of the events that a site has kept.
fn events(site: &Site) -> String {
    site.bench.run(&["event", "--json", "--state", "state"]).stdout
}

#[test]
fn a_lost_site_is_a_condition_until_it_returns() {
    if !is_full_run("the conditions of a lost site") {
        return;
    }
    let (mut boston, mut denver) = pair("sync --hold 1s");
    until("it is in sync", || boston.row()["is_alone"] == false);
    until("both are well", || conditions(&boston).is_empty() && conditions(&denver).is_empty());
    assert!(events(&boston).contains("dr_site_paired"), "{}", events(&boston));

    denver.kill();
    until("boston says that the site is lost, and that the group is alone", || {
        conditions(&boston) == ["dr:mail:sg1", "dr_site:link:denver"]
    });
    let said = boston.bench.run(&["event", "conditions", "--state", "state"]).stdout;
    assert!(said.contains("sg1 goes on alone, mail unharmed"), "{said}");
    let status = boston.bench.run(&["dr", "status", "--state", "state"]).stdout;
    assert!(status.contains("denver: not reached since") && status.contains("alone since"), "{status}");
    // They outlive a restart of the one that said them.
    boston.kill();
    boston.start();
    assert!(conditions(&boston).contains(&"dr_site:link:denver".to_owned()));

    denver.start();
    until("all is over", || conditions(&boston).is_empty());
    until("it is in sync", || boston.is("primary", "streaming") && boston.row()["is_alone"] == false);
    boston.verb("failover sg1");
    until("both say what they did", || {
        events(&boston).contains("dr_handed_over") && events(&denver).contains("dr_took_over")
    });
    assert!(events(&boston).contains("asked for a planned failover"), "{}", events(&boston));
}

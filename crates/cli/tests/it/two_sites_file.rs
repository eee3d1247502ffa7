//! DR groups of a site file: made by an apply once the other site is there, printed, and the same at either role.

use crate::{
    judged_exports::until,
    pool_drives::{done, refused},
    spindle::signal,
    two_sites::{EXPORT, Site, VOLUME, paired_with, paired_with_both},
    two_sites_pools::{LOGS, VOLUMES, are, are_together},
};

const GROUP: &str =
    "[[replication.dr_group]]\nname = 'sg1'\nvolumes = ['mail/disk']\nto = 'denver'\nkind = 'synchronous'\n";
const SECOND: &str = "[[volume]]\nname = 'more'\ngroup = 'mail'\ngb = 0.0625\n[[replication.dr_group]]\nname = 'sg2'\n\
                      volumes = ['more']\nto = 'denver'\nkind = 'periodic'\nevery_minutes = 10\nkeep = 2\n";

/// The plan of a file in words; it has nothing to change.
fn empty_plan(site: &Site, file: &str) -> String {
    let said = site.bench.run(&["apply", file, "--state", "state", "--dry-run"]);
    done(&said);
    assert!(said.stdout.contains("nothing to change"), "{}", said.stdout);
    said.stdout + &said.stderr
}

/// The site as it is printed, whose plan is empty.
fn printed(site: &Site) -> String {
    let text = site.verb("site");
    site.bench.make_file("printed.toml", text.as_bytes());
    let said = empty_plan(site, "printed.toml");
    assert!(!said.contains("not in the file"), "{said}");
    text
}

/// The tables of DR groups in a printed site.
fn groups(text: &str) -> Vec<&str> {
    text.split("[[").filter(|table| table.starts_with("replication.dr_group]]")).map(str::trim_end).collect()
}

fn conditions(site: &Site) -> String {
    site.bench.run(&["event", "conditions", "--state", "state"]).stdout
}

fn has(site: &Site, group: &str, role: &str) -> bool {
    let said = site.bench.run(&["dr", "status", group, "--state", "state"]).stdout;
    let streams =
        said.contains(", streaming,") || said.contains(", following,") || said.contains(", waiting,");
    said.contains(&format!("{group}: {role} here")) && streams
}

#[test]
fn groups_follow_the_file_and_their_roles_do_not() {
    let (boston, denver) = paired_with(&format!("{VOLUME}{EXPORT}{GROUP}"));
    // It started before it was paired: all but the group was made, and the log says why.
    let not_made = "DR group sg1 is not made: this site is not paired with \"denver\"";
    until("the log says so", || boston.log().contains(not_made));
    assert!(conditions(&boston).contains("DR group sg1 is not made"), "{}", conditions(&boston));
    assert_eq!(groups(&printed(&boston)), [""; 0], "it is not there");
    // Denver's file may name volume and group before they come: it makes neither.
    denver.write("denver", &format!("{VOLUME}{GROUP}"));
    let said = empty_plan(&denver, "site.toml");
    assert!(
        said.contains("mail/disk: it is not made here, for it comes with the DR group \"sg1\""),
        "{said}"
    );
    denver.verb("apply site.toml");

    let said = boston.verb("apply site.toml");
    assert!(said.contains("+ DR group sg1: mail/disk to denver, synchronous, hold 15 s"), "{said}");
    until("it streams", || has(&boston, "sg1", "primary") && has(&denver, "sg1", "secondary"));
    assert!(!conditions(&boston).contains("is not made"));
    for site in [&boston, &denver] {
        let said = empty_plan(site, "site.toml");
        assert!(!said.contains("sg1"), "{said}");
    }
    let table = "replication.dr_group]]\nname = \"sg1\"\nvolumes = [\"mail/disk\"]\nto = \"denver\"\nkind = \"synchronous\"";
    assert_eq!(groups(&printed(&boston)), [table]);
    assert_eq!(groups(&printed(&denver)), [table]);

    // A group more, by a signal; what is fixed is refused, another mode is taken, and what the file lacks stays.
    boston.write("boston", &format!("{VOLUME}{EXPORT}{GROUP}{SECOND}"));
    signal(boston.server(), "HUP");
    until("sg2 waits for its clock", || has(&boston, "sg2", "primary") && has(&denver, "sg2", "secondary"));
    let watched = GROUP.replace("to =", "witness = ['192.0.2.1']\nto =");
    boston.write("boston", &format!("{VOLUME}{EXPORT}{watched}{SECOND}"));
    let why =
        "DR group \"sg1\" has witness = [], which is fixed for its life, and the file says [\"192.0.2.1\"]";
    refused(&boston.bench, &["apply", "site.toml", "--state", "state"], why);
    let longer = GROUP.replace("to =", "hold_seconds = 20\nto =");
    boston.write("boston", &format!("{VOLUME}{EXPORT}{longer}{SECOND}"));
    let said = boston.verb("apply site.toml");
    assert!(said.contains("~ DR group sg1: synchronous, hold 15 s → synchronous, hold 20 s"), "{said}");
    let hold =
        |site: &Site| site.rows().iter().find(|row| row["name"] == "sg1").unwrap()["mode"]["hold_ms"].clone();
    until("both sites have it", || hold(&boston) == 20_000 && hold(&denver) == 20_000);
    empty_plan(&boston, "site.toml");
    boston.verb("dr set sg1 --hold 15s");
    until("both sites have it", || hold(&boston) == 15_000 && hold(&denver) == 15_000);
    boston.write("boston", &format!("{VOLUME}{EXPORT}{GROUP}"));
    let said = empty_plan(&boston, "site.toml");
    assert!(
        said.contains("not in the file: DR group sg2, with denver: it stays; 'spindle dr remove sg2'"),
        "{said}"
    );
    let destroyed = ["apply", "site.toml", "--state", "state", "--destroy", "sg2"];
    refused(
        &boston.bench,
        &destroyed,
        "sg2 is a DR group, and holds no data of its own; 'spindle dr remove sg2'",
    );

    // A group that no file of Denver names is printed there, too; its volume comes with it.
    let before = [&boston, &denver].map(printed);
    let second = "replication.dr_group]]\nname = \"sg2\"\nvolumes = [\"mail/more\"]\nto = \"boston\"\nkind = \"periodic\"\n\
                  every_minutes = 10.0\nkeep = 2";
    assert_eq!(groups(&before[1]), [table, second]);
    boston.verb("failover sg1");
    until("it has moved", || has(&boston, "sg1", "secondary") && has(&denver, "sg1", "primary"));
    assert_eq!([&boston, &denver].map(printed), before, "roles are no configuration");
    for site in [&boston, &denver] {
        empty_plan(site, "site.toml");
    }
}

#[test]
fn a_group_in_two_pools_is_made_by_the_file_and_printed_at_both_sites() {
    let group = "[[replication.dr_group]]\nname = 'sg1'\nvolumes = ['mail/disk', 'logs/log']\nto = 'denver'\n\
                 to_groups = ['logs=journals']\nkind = 'synchronous'\n";
    let journals = LOGS.replace("'logs'", "'journals'");
    let (boston, denver) = paired_with_both((&format!("{LOGS}{VOLUMES}"), &journals));
    let of_kind = |kind: &str| format!("{LOGS}{VOLUMES}{}", group.replace("'synchronous'", kind));
    boston.write("boston", &of_kind("'periodic'"));
    let why = "its volumes lie in the pools mail and logs, and such a group is not periodic today";
    refused(&boston.bench, &["apply", "site.toml", "--state", "state"], why);
    boston.write("boston", &format!("{LOGS}{VOLUMES}{group}"));
    signal(boston.server(), "HUP");
    until("both parts are made", || [&boston, &denver].iter().all(|site| site.rows().len() == 2));
    until("it streams", || are_together(&boston) && are(&denver, "secondary", "following"));
    empty_plan(&boston, "site.toml");
    let before = [&boston, &denver].map(printed);
    let table = |site: usize| groups(&before[site]).join("\n");
    for (site, volumes, of) in
        [(0, "\"logs/log\"", "to_groups = [\"logs=journals\"]"), (1, "\"journals/log\"", "to = \"boston\"")]
    {
        let table = table(site);
        assert!(table.contains("\"mail/disk\"") && table.contains(volumes) && table.contains(of), "{table}");
    }
    // The same plan at either role.
    boston.verb("failover sg1");
    until("it has moved", || are_together(&denver) && are(&boston, "secondary", "following"));
    assert_eq!([&boston, &denver].map(printed), before, "roles are no configuration");
    empty_plan(&boston, "site.toml");
    let longer = group.replace("to =", "hold_seconds = 20\nto =");
    boston.write("boston", &format!("{LOGS}{VOLUMES}{longer}"));
    refused(
        &boston.bench,
        &["apply", "site.toml", "--state", "state"],
        "DR group sg1 is not changed: sg1 is secondary here; say it at the site that is primary",
    );
    boston.verb("failover sg1");
    until("it is back", || are_together(&boston) && are(&denver, "secondary", "following"));
    boston.verb("apply site.toml");
    let is_longer = |site: &Site| site.rows().iter().all(|row| row["mode"]["hold_ms"] == 20_000);
    until("both parts have it at both sites", || is_longer(&boston) && is_longer(&denver));
    empty_plan(&boston, "site.toml");
}

#[test]
fn a_group_whose_other_site_is_away_is_made_once_that_is_connected() {
    let (mut boston, mut denver) = paired_with(&format!("{VOLUME}{EXPORT}"));
    let waits = |site: &Site, group: &str| {
        let said = site.bench.run(&["dr", "status", "--state", "state"]);
        let line = format!("{group}: not made yet; this server makes it once denver is connected");
        (said.code == Some(1) && said.stdout.contains(&line)).then_some(said.stdout)
    };
    let is_lost =
        |site: &Site| site.bench.run(&["dr", "status", "--state", "state"]).stdout.contains("denver: not");
    denver.kill();
    until("boston hears of it", || is_lost(&boston));
    boston.write("boston", &format!("{VOLUME}{EXPORT}{GROUP}"));
    let why = "DR group sg1 is not made: site denver is not connected; see 'spindle dr status'; this server makes it once denver is \
               connected";
    refused(&boston.bench, &["apply", "site.toml", "--state", "state"], why);
    assert!(
        waits(&boston, "sg1").is_some() && conditions(&boston).contains("this server makes it once denver")
    );
    denver.start();
    until("it streams", || has(&boston, "sg1", "primary") && has(&denver, "sg1", "secondary"));
    until("nothing is left", || !conditions(&boston).contains("is not made"));
    assert!(waits(&boston, "sg1").is_none());
    // So it is at a start.
    denver.kill();
    boston.kill();
    boston.write("boston", &format!("{VOLUME}{EXPORT}{GROUP}{SECOND}"));
    boston.start();
    until("the second one waits", || waits(&boston, "sg2").is_some());
    denver.start();
    until("it is made", || has(&boston, "sg2", "primary") && has(&denver, "sg2", "secondary"));
    empty_plan(&boston, "site.toml");
}

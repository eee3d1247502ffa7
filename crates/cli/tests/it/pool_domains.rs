//! Failure domains of a pool: said at creation and later, and what the loss of one would lose.

use crate::{
    pool_drives::{done, has_letters, json, refused, used_pool},
    spindle::Bench,
};
use expect_test::expect;
use std::fs;

/// `pool create mail` with six drives in three domains.
fn in_three_shelves(bench: &Bench) {
    let domains = ["shelf-1=1,2", "shelf-2=3,drive-4.spindle", "shelf-3=5,6"];
    let domains = domains.iter().flat_map(|domain| ["--domain", domain]);
    let create = ["pool", "create", "mail", "--size", "60MiB", "--drives", "6"];
    done(&bench.run(&create.into_iter().chain(domains).collect::<Vec<_>>()));
}

/// The lines of `pool show` about domains.
fn domain_lines(bench: &Bench) -> String {
    let shown = done(&bench.run(&["pool", "show", "mail"]));
    shown.lines().filter(|line| line.contains("domain")).map(|line| format!("{}\n", line.trim())).collect()
}

#[test]
fn domains_are_given_at_creation_and_shown_with_what_their_loss_loses() {
    let bench = Bench::new();
    in_three_shelves(&bench);
    expect![[r#"
        domain shelf-1: drive-1.spindle, drive-2.spindle; its loss loses nothing
        domain shelf-2: drive-3.spindle, drive-4.spindle; its loss loses nothing
        domain shelf-3: drive-5.spindle, drive-6.spindle; its loss loses nothing
    "#]]
    .assert_eq(&domain_lines(&bench));
    let shown = json(&bench, &["pool", "show", "mail"]);
    let first = &shown["domains"][0];
    assert_eq!((&first["name"], &first["loss"]), (&"shelf-1".into(), &"survived".into()), "{shown}");
    assert_eq!(first["drives"].as_array().unwrap().len(), 2, "{shown}");
    assert_eq!((&first["shared_segments"], &first["lost_bytes"]), (&0.into(), &0.into()), "{shown}");
    for number in [3, 4] {
        fs::remove_file(bench.path(&format!("mail/drive-{number}.spindle"))).unwrap();
    }
    let lines = domain_lines(&bench);
    assert!(
        lines.contains(
            "domain shelf-2: 2 missing; what lies there is copied to the other drives unless they come back"
        ),
        "{lines}"
    );
}

#[test]
fn domains_that_cannot_be_are_refused_and_nothing_is_made() {
    let bench = Bench::new();
    let create = |more: &[&str], told: &str| {
        refused(&bench, &[&["pool", "create", "mail", "--size", "60MiB"], more].concat(), told);
        assert!(!bench.path("mail").exists(), "nothing was made");
    };
    create(&["--domain", "a=4"], "domain a: the pool has no drive 4");
    create(&["--domain", "a=1", "--domain", "b=2,1"], "drive 1 is in domain a and in domain b");
    create(&["--domain", "the first shelf=1"], "the name of a domain is 1 to 12 letters");
    create(&["--domain", "a"], "expected NAME=DRIVE,DRIVE");
    in_three_shelves(&bench);
    let before = domain_lines(&bench);
    refused(&bench, &["pool", "set", "mail", "--domain", "a=drive-9.spindle"], "the pool has no drive");
    let twice = ["pool", "set", "mail", "--domain", "a=drive-1.spindle", "--no-domain", "drive-1.spindle"];
    refused(&bench, &twice, "is named twice");
    let both = ["pool", "set", "mail", "--no-domain", "drive-9.spindle", "--sparing", "double"];
    refused(&bench, &both, "the pool has no drive");
    assert_eq!(domain_lines(&bench), before);
    assert_eq!(json(&bench, &["pool", "show", "mail"])["sparing"]["level"], "none");
}

#[test]
fn drives_get_other_domains_and_their_copies_are_moved_apart() {
    let bench = Bench::new();
    used_pool(&bench, "4", 60);
    let shelf = |name: &str, first: u8| format!("{name}=drive-{first}.spindle,drive-{}.spindle", first + 1);
    let (one, two) = (shelf("one", 1), shelf("two", 3));
    let said = done(&bench.run(&["pool", "set", "mail", "--domain", &one, "--domain", &two]));
    assert!(said.contains("domain one: drive-1.spindle, drive-2.spindle; its loss loses "), "{said}");
    assert!(said.contains("segments lie in one domain with all copies: they are moved apart"), "{said}");
    let said = json(&bench, &["pool", "level", "mail"]);
    assert_eq!(said["outcome"], "level", "{said}");
    let needs_force =
        "its loss loses nothing; opening the pool without it then takes 'spindle pool force-open'";
    let lines = domain_lines(&bench);
    assert_eq!(lines.matches(needs_force).count(), 2, "{lines}");
    // Another drive, and one in the place of another.
    done(&bench.run(&["pool", "add-drive", "mail", "--size", "200MiB", "--domain", "three"]));
    done(&bench.run(&["pool", "replace", "mail", "drive-1.spindle", "--size", "200MiB"]));
    let shown = json(&bench, &["pool", "show", "mail"]);
    let names: Vec<_> = shown["domains"].as_array().unwrap().iter().map(|domain| &domain["name"]).collect();
    assert_eq!(names, ["one", "three", "two"], "{shown}");
    assert_eq!(shown["domains"][0]["drives"].as_array().unwrap().len(), 2, "{shown}");
    let none: Vec<_> = (2..=6).map(|number| format!("drive-{number}.spindle")).collect();
    let none: Vec<&str> = none.iter().flat_map(|drive| ["--no-domain", drive]).collect();
    done(&bench.run(&[&["pool", "set", "mail"], &none[..]].concat()));
    // The one that was replaced is forgotten in the background.
    let are_gone = (0..20)
        .any(|_| domain_lines(&bench).is_empty() || done(&bench.run(&["pool", "scrub", "mail"])).is_empty());
    assert!(are_gone, "{}", domain_lines(&bench));
    has_letters(&bench, 60);
}

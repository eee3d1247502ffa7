//! `site.toml`: what is written reads back, and what is not understood is refused in one line.

use crate::needs::{dell_as_printed, needs};
use expect_test::{Expect, expect};
use plan::{
    catalogue::Catalogue,
    demand::{Mode, Needs},
    fit::{Wishes, choices},
    layout::lay_out,
    site::{Site, Users},
};

fn planned(needs: &Needs) -> Site {
    let users = Users {
        mailboxes: Some(needs.users),
        iops_each: Some(0.15),
        rules: "exchange-2010".to_owned(),
        ..Users::default()
    };
    let wishes = Wishes::default();
    let choice = choices(needs, &Catalogue::built_in(), &wishes).unwrap().choices.remove(0);
    Site::planned(users, needs, &choice, lay_out(needs, &choice, &wishes))
}

#[track_caller]
fn refused(text: &str, expected: Expect) {
    let said = Site::from_toml(text).expect_err("refused").to_string();
    assert!(!said.contains('\n'), "{said}");
    expected.assert_eq(&said);
}

#[test]
fn what_is_written_reads_back_the_same() {
    for needs in [dell_as_printed(), needs(Mode::StandAlone, 800.0)] {
        let site = planned(&needs);
        let text = site.to_toml();
        assert_eq!(Site::from_toml(&text), Ok(site), "{text}");
    }
}

#[test]
fn an_empty_file_is_a_site() {
    assert_eq!(Site::from_toml(""), Ok(Site::default()));
}

#[test]
fn unknown_words_are_refused_with_the_nearest_known_one() {
    refused(
        "[users]\nmailboxs = 5",
        expect![[r#"line 2: no key is called "mailboxs" here; did you mean "mailboxes"?"#]],
    );
    refused(
        "\n\n[[gruop]]\nname = \"a\"",
        expect![[r#"line 3: no key is called "gruop" here; did you mean "group"?"#]],
    );
    refused(
        "[[volume]]\nname = \"a\"\nrole = \"databse\"",
        expect![[r#"line 3: no value is called "databse" here; did you mean "database"?"#]],
    );
    refused("[users\nmailboxes = 5", expect!["line 1: unclosed table, expected `]`"]);
    refused("users = 5", expect!["line 1: invalid type: integer `5`, expected struct Users"]);
}

#[test]
fn what_does_not_hold_together_is_refused() {
    refused("version = 2", expect!["it is of version 2, and this program knows 1"]);
    refused("[users]\nquota_mb = -3", expect!["users.quota_mb: -3 makes no sense; give a number from 0 on"]);
    refused(
        "[users]\nquota_mb = inf",
        expect!["users.quota_mb: inf makes no sense; give a number from 0 on"],
    );
    refused("[[group]]\nname = \"a\"\n[[group]]\nname = \"a\"", expect![[r#"two groups are called "a""#]]);
    refused("[[volume]]\ngb = 1", expect!["a volume has no name"]);
    refused(
        "[[volume]]\nname = \"a\"\ncopy = 0",
        expect![[r#"volume "a" is of copy 0; the active one is 1"#]],
    );
    refused(
        "[[volume]]\nname = \"a\"\ngroup = \"b\"",
        expect![[r#"volume "a" lies in group "b", which is not there"#]],
    );
    refused(
        "[[server]]\nname = \"a\"\nsystem_group = \"b\"",
        expect![[r#"the system of "a" lies in group "b", which is not there"#]],
    );
}

#[test]
fn a_site_is_the_settings_of_a_test_with_its_headroom() {
    let proving = planned(&dell_as_printed()).proving();
    assert_eq!((proving.groups, proving.databases), (Some(12), Some(1)));
    assert_eq!((proving.mailboxes, proving.iops_each), (Some(5000), Some(0.18)), "0.15 and 20 %");
    assert_eq!(proving.profile.as_deref(), Some("exchange-2010"));
    assert!(proving.paths.is_empty() && proving.left_out.is_empty());
}

#[test]
fn a_site_too_large_for_one_test_is_tested_in_part_with_that_part_of_its_mailboxes() {
    let mut site = planned(&dell_as_printed());
    site.databases.count = Some(128);
    site.databases.storage_groups = Some(128);
    let proving = site.proving();
    assert_eq!((proving.groups, proving.databases, proving.mailboxes), (Some(64), Some(1), Some(2500)));
    assert_eq!(proving.left_out, ["64 of 128 databases are tested, with their share of mailboxes"]);
}

#[test]
fn a_test_runs_where_the_active_copies_lie() {
    let text = r#"
        [[volume]]
        name = "db1"
        path = "/mnt/db1"
        [[volume]]
        name = "db1-copy2"
        copy = 2
        path = "/mnt/elsewhere"
        [[volume]]
        name = "log1"
        role = "log"
        path = "/mnt/log1"
    "#;
    let proving = Site::from_toml(text).unwrap().proving();
    assert_eq!((proving.paths, proving.logs), (vec!["/mnt/db1".to_owned()], vec!["/mnt/log1".to_owned()]));
}

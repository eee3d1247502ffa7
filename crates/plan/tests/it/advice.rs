//! Advice on planned sites, and the page that lists the rules.

use crate::needs::{dell_as_printed, needs};
use expect_test::expect_file;
use plan::{
    advice::{RunFacts, Severity, advise, listing},
    catalogue::Catalogue,
    demand::{Mode, Needs},
    fit::{Wishes, choices},
    layout::lay_out,
    site::{Site, Users},
    units::{Gib, HostIops},
};

fn planned(needs: &Needs, wishes: &Wishes, choice: usize) -> Option<Site> {
    let users = Users { mailboxes: Some(needs.users), rules: "exchange-2010".to_owned(), ..Users::default() };
    let choice = choices(needs, &Catalogue::built_in(), wishes).unwrap().choices.into_iter().nth(choice)?;
    let layout = lay_out(needs, &choice, wishes);
    Some(Site::planned(users, needs, &choice, layout))
}

#[test]
fn the_page_of_rules_is_made_from_the_rules() {
    expect_file!["../../../../docs/advice.md"].assert_eq(&listing());
}

#[test]
fn the_page_of_site_files_is_made_from_what_reads_them() {
    expect_file!["../../../../docs/site.md"].assert_eq(&plan::site::listing());
}

#[test]
fn no_choice_is_planned_into_a_site_with_errors() {
    let mut alone = needs(Mode::StandAlone, 800.0);
    alone.database = Gib::new(150.0);
    alone.database_volume = Gib::new(200.0);
    alone.log_iops = HostIops::new(200.0);
    alone.backup_capacity = Gib::new(2_000.0);
    for needs in [dell_as_printed(), alone] {
        for index in 0.. {
            let Some(site) = planned(&needs, &Wishes::default(), index) else { break };
            let advice = advise(&site, None);
            let errors: Vec<_> = advice
                .findings
                .iter()
                .filter(|finding| finding.severity == Severity::Error)
                .map(|finding| (&finding.id, &finding.places))
                .collect();
            assert!(errors.is_empty(), "{}: {errors:?}", site.groups[0].drive);
        }
    }
}

#[test]
fn a_site_that_was_never_tested_is_told_so_and_a_failed_test_is_an_error() {
    let site = planned(&dell_as_printed(), &Wishes::default(), 0).unwrap();
    let ids = |run: Option<&RunFacts>| -> Vec<String> {
        advise(&site, run).findings.into_iter().map(|finding| finding.id).collect()
    };
    assert!(ids(None).contains(&"tested".to_owned()));
    let failed = RunFacts { passed: Some(false), ..RunFacts::default() };
    let with_run = ids(Some(&failed));
    assert!(with_run.contains(&"test-passed".to_owned()) && !with_run.contains(&"tested".to_owned()));
}

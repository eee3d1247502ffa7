//! Whole plans: their site, their page, and that the room's own advice finds nothing wrong with them.

use crate::planned::{DELL, users};
use plan::{
    advice::{Severity, advise},
    answer::{NoSite, StoragePlan},
    catalogue::Catalogue,
    profile::Profile,
    rules::Rules,
    site::Site,
};
use report::{Meta, html, text};

fn answer(profile: &str) -> StoragePlan {
    let profile = Profile::parse(profile).expect("a profile");
    let rules = Rules::named(&profile.rules).expect("a rule set");
    StoragePlan::of(profile, rules, &Catalogue::built_in()).expect("a plan")
}

#[test]
fn advice_finds_nothing_wrong_with_what_is_planned() {
    for rules in Rules::names() {
        for more in ["", "copies = 2", "copies = 3\nlink = \"1GbE\"", "mode = \"backup-window\""] {
            let site = answer(&users(rules, 3000, "500MB", 100, more)).site().expect("a site");
            let advice = advise(&site, None);
            let wrong = advice.findings.iter().filter(|finding| finding.severity != Severity::Note);
            let wrong: Vec<_> = wrong.map(|finding| format!("{}: {}", finding.id, finding.finding)).collect();
            assert!(wrong.is_empty(), "{rules} {more:?}: {wrong:?}");
        }
    }
}

/// A rating measured with logs and maintenance is not charged for them again; and two arrays of one model
/// are two.
#[test]
fn advice_counts_io_as_the_plan_of_a_measured_array_does() {
    let profile =
        users("exchange-2010", 9600, "10MB", 150, "copies = 2\narray = \"PS6000XV\"\nraid = \"raid50\"");
    let answer = answer(&profile);
    let group = &answer.first().expect("it fits").groups[0];
    assert_eq!((group.units, group.iops.get()), (1, 1745.0), "Dell 2010, table 12");
    // 1,728 of databases; beside it 726 of logs, and the maintenance of one database.
    assert_eq!([group.iops_needed, group.iops_beside].map(|iops| iops.get().round()), [1728.0, 746.0]);
    let site = answer.site().expect("a site");
    assert_eq!((site.groups[0].host_iops, site.groups[0].iops_beside), (Some(1745.0), Some(746.0)));
    let found = advise(&site, None).findings;
    let wrong: Vec<_> = found.iter().filter(|finding| finding.severity != Severity::Note).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Storage that replicates over a line with too long a round trip: the site says all that was said, and advice sees it.
#[test]
fn a_site_has_the_line_it_was_planned_with() {
    let site = |rtt: &str| {
        let more = format!("link = \"OC3\"\nset = {{ link_rtt = {rtt}, outage_hours = 2 }}");
        answer(&users("exchange-2003", 2000, "100MB", 105, &more)).site().expect("a site")
    };
    let errors = |site: &Site| {
        let found = advise(site, None).findings.into_iter();
        found.filter(|one| one.severity == Severity::Error).map(|one| one.id).collect::<Vec<_>>()
    };
    let (short, long) = (site("5"), site("9"));
    assert_eq!((errors(&short), errors(&long)), (vec![], vec!["round-trip".to_owned()]));
    let link = &long.links[0];
    assert_eq!((link.mbit_each, link.rtt_ms, link.to.as_str()), (Some(155.52), Some(9.0), "remote"));
    let replication = long.replication.as_ref().expect("there is a link");
    assert_eq!((replication.link.as_str(), replication.outage_hours), ("link", Some(2.0)));
    let (change, room) =
        (replication.change_gb_per_hour.expect("said"), replication.write_history_gb.expect("said"));
    assert!(change > 1.0 && (change * 2.0 - room).abs() < 0.01, "{change} {room}");
    assert_eq!(Site::from_toml(&long.to_toml()).expect("it reads"), long);
}

#[test]
fn a_site_reads_back_as_it_was_planned_with_snapshots_and_their_reserve() {
    let site = answer(DELL).site().expect("a site");
    assert_eq!(Site::from_toml(&site.to_toml()).expect("it reads"), site);
    assert_eq!((site.users.iops_each, site.demand.log_days), (Some(0.15), Some(3.0)));
    let schedule = &site.snapshots[0];
    assert_eq!(
        (schedule.every_hours, schedule.keep, schedule.retention_days),
        (Some(2.0), Some(24), Some(2.0))
    );
    for name in &schedule.groups {
        assert_eq!(site.group(name).expect("there").snapshot_reserve_percent, Some(20.0));
    }
}

#[test]
fn the_page_has_every_number_with_its_formula_and_source() {
    let answer = answer(&format!("{DELL}\n[[tier]]\nname = \"<b>\"\nusers = 3\n"));
    let document = answer.document(Meta::default());
    let page = html::render(&document);
    let words =
        text::render(&document, text::TextOptions { width: 4000, colour: false }).replace('\u{a0}', " ");
    for one in answer.demand.sheet.all() {
        let all = [one.id, one.title, &one.source, &one.formula];
        assert!(all.iter().all(|text| words.contains(*text)), "{all:?}");
        assert!(words.contains(&one.shown()), "{}", one.shown());
    }
    assert!(page.contains("&lt;b&gt;") && !page.contains("(<b>)"), "names are escaped");
}

#[test]
fn a_plan_that_nothing_carries_or_nobody_reads_has_no_site() {
    let of = |text: &str| answer(text).site().unwrap_err();
    let nothing = of(&users("exchange-2010", 2_000_000_000, "100GB", 150, "max-database = \"2TB\""));
    assert!(matches!(nothing, NoSite::NothingFits(_)), "{nothing}");
    let too_large = of(&users("exchange-2010", 10_000_000, "2GB", 150, ""));
    assert_eq!(
        too_large.to_string(),
        "276,112 database copies; at most 20,000 are laid out: plan a part of the users"
    );
}

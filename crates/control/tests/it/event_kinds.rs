//! The table of kinds: complete, its page, and every message in a golden file.

use control::kinds::{CLEARED, CONDITION, RAISED, STATE, kind, kinds, listing, message};
use expect_test::expect_file;
use serving::pool::events::{EVENT_NAMES, EventReport};
use std::collections::BTreeSet;

fn sample(name: &str) -> &'static str {
    match name {
        "space_80" => "81 % full: 810 GiB used of 1.00 TiB",
        "space_90" => "90 % full: 922 GiB used of 1.00 TiB",
        "space_95" => "95 % full: 973 GiB used of 1.00 TiB",
        "drive_failed" => "drive bay 3 (WD4000, WX11A) is not in use: reading it: Input/output error",
        "drive_slow" => "drive WX11A is slow: 84 ms for a read or write, the median drive 9 ms",
        "drive_warned" => "drive WX11A: 24 pending sectors",
        "redundancy_reduced" => "412 segments have fewer than 2 copies",
        "certificate_expiring" => {
            "the certificate /etc/spindle/server-cert.pem expires 2026-12-20 00:00:00 UTC"
        }
        "notifier_failing" => {
            "notifier ops does not deliver: connecting to 127.0.0.1:8080: Connection refused"
        }
        "server_killed" => "the server has started; it had not ended in order before",
        _ => "what happened, as the event says it",
    }
}

fn report(name: &str, state: Option<&str>) -> EventReport {
    let known = kind(name).unwrap();
    let mut details = serde_json::Map::new();
    if let Some(state) = state {
        details.insert(STATE.to_owned(), state.into());
        details.insert(CONDITION.to_owned(), format!("{}:mail", known.topic().unwrap()).into());
    }
    EventReport {
        event: name.to_owned(),
        severity: known.severity,
        time: "2026-11-27T02:00:00Z".to_owned(),
        pool: "mail".to_owned(),
        text: sample(name).to_owned(),
        next_step: String::new(),
        details,
    }
}

#[test]
fn the_page_is_the_table() {
    expect_file!["../../../../docs/events.md"].assert_eq(&listing());
}

#[test]
fn every_message_is_as_it_was_agreed() {
    let mut all = String::new();
    for known in kinds() {
        let state = known.topic().map(|_| RAISED);
        all += &format!("===== {}\n{}\n", known.name, message(&report(known.name, state)));
    }
    all += &format!("===== space_80, cleared\n{}", message(&report("space_80", Some(CLEARED))));
    expect_file!["messages.txt"].assert_eq(&all);
}

#[test]
fn every_event_of_a_pool_is_in_the_table_and_none_twice() {
    let names: Vec<&str> = kinds().map(|kind| kind.name).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    let missing: Vec<_> = EVENT_NAMES.into_iter().filter(|name| !names.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let topics: BTreeSet<&str> = kinds().filter_map(|kind| kind.topic()).collect();
    let unknown: Vec<_> =
        kinds().filter_map(|kind| kind.covered_by).filter(|topic| !topics.contains(topic)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn every_kind_says_all_its_parts() {
    for known in kinds() {
        for words in [known.when, known.for_mail, known.spindle, known.until, known.next_step] {
            assert!(words.ends_with(['.', '!']) && words.len() > 6, "{}: {words:?}", known.name);
            assert!(words.starts_with(|first: char| first.is_uppercase() || first == '\''), "{words:?}");
        }
    }
}

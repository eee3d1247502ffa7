//! Conditions and occurrences of DR groups: when they are, and their words.

use super::{
    board::{ConditionBoard, ConditionClaim},
    dr_claims::{group_claims, site_claims},
};
use crate::{
    dr::{
        LinkView, PeerView,
        group_report::{DrGroupReport, DrMerge},
        group_view::{DamagedDrGroup, DrGroupView, DrGroups, DrRole, GroupHostsView},
        held_views::HeldDrSnapshot,
    },
    site::handle::SiteView,
};
use array::format::{GroupId, SiteId, SnapshotId, VolumeId};
use replication::{
    secondary::ForkVolume,
    session::{BoundPolicy, ReplicationMode},
};
use std::time::Duration;
use world::WallTime;

const DENVER: SiteId = SiteId([7; 16]);

fn at(seconds: i64) -> WallTime {
    WallTime { seconds: 1_795_782_896 + seconds, nanos: 0 }
}

fn link(connected_since: Option<i64>, lost_since: Option<i64>) -> LinkView {
    let peer = PeerView {
        site: DENVER,
        name: "denver".to_owned(),
        addresses: Vec::new(),
        connected_since: connected_since.map(at),
        lost_since: lost_since.map(at),
        connections: Vec::new(),
        last_error: lost_since.map(|_| (at(0), "connection refused".to_owned())),
    };
    LinkView {
        site: SiteId([1; 16]),
        name: "boston".to_owned(),
        address: "a:1".to_owned(),
        peers: vec![peer],
    }
}

/// A group in sync that is well.
fn well() -> DrGroupView {
    DrGroupView {
        group: GroupId([3; 16]),
        name: "sg1".to_owned(),
        peer: DENVER,
        mode: ReplicationMode::Sync { hold: Duration::from_secs(15), is_failsafe: false },
        volumes: vec![VolumeId([9; 16])],
        role: DrRole::Primary,
        state: "streaming",
        serves: true,
        is_alone: false,
        is_behind: false,
        next_pass: None,
        is_pushing_back: false,
        peer_silence_ms: 0,
        is_complete: true,
        unconfirmed_bytes: 0,
        unconfirmed_ms: 0,
        connected_since: Some(at(-900)),
        last_end: None,
        complete_until: None,
        witness: None,
        joint: None,
        report: DrGroupReport { kept_log_bytes: Some(64 << 20), ..DrGroupReport::default() },
        hosts: GroupHostsView::default(),
    }
}

/// The same, without its peer since `since`.
fn cut(since: i64) -> DrGroupView {
    let last_end = Some((at(since), "lost".to_owned()));
    DrGroupView { state: "connecting", connected_since: None, last_end, ..well() }
}

fn claims(group: DrGroupView, link: &LinkView, now: i64) -> Vec<ConditionClaim> {
    group_claims("mail", &DrGroups { groups: vec![group], damaged: Vec::new() }, Some(link), at(now))
}

/// Kinds and texts.
fn said(claims: &[ConditionClaim]) -> Vec<(&str, &str)> {
    claims.iter().map(|claim| (claim.kind, claim.text.as_str())).collect()
}

#[test]
fn a_group_that_is_well_has_no_condition_and_one_alone_has_one_with_its_figures() {
    let (there, lost) = (link(Some(-900), None), link(None, Some(0)));
    assert!(claims(well(), &there, 0).is_empty());
    // In the hold hosts wait, and that is no condition of the group.
    assert!(claims(cut(0), &lost, 10).is_empty());
    let alone = |now: i64| {
        let report = DrGroupReport { alone_since: Some(at(15)), ..well().report };
        let group = DrGroupView { is_alone: true, unconfirmed_bytes: 1 << 30, report, ..cut(0) };
        claims(group, &lost, now)
    };
    assert!(alone(17).is_empty(), "a merge of a moment is none");
    assert_eq!(
        said(&alone(1800)),
        [(
            "dr_alone",
            "sg1 goes on alone since 2026-11-27 12:35:11 UTC, mail unharmed; denver lacks 1.00 GiB, which a disaster here now \
             would lose; the log for it grows 2.00 GiB/h, room for about 2 h"
        )]
    );
    let report = DrGroupReport { alone_since: Some(at(15)), ..well().report };
    let silent = DrGroupView { is_alone: true, peer_silence_ms: 16_000, report, ..well() };
    let text = claims(silent, &there, 31).remove(0).text;
    assert!(
        text.contains("; denver is connected and has confirmed nothing for 16 s: look at its drives"),
        "{text}"
    );
    let merge = DrMerge {
        is_first_copy: false,
        since: at(1800),
        done_bytes: 1 << 28,
        remaining_bytes: 3 << 28,
        rate: 64 << 20,
    };
    let report = DrGroupReport { alone_since: Some(at(15)), merge: Some(merge), ..well().report };
    let merging =
        DrGroupView { state: "merging", is_alone: true, unconfirmed_bytes: 3 << 28, report, ..well() };
    let text = claims(merging, &there, 1810).remove(0).text;
    assert!(
        text.ends_with("merging, 768 MiB left at 64.0 MiB/s, done about 2026-11-27 13:05:18 UTC"),
        "{text}"
    );
}

#[test]
fn hosts_that_wait_are_said_with_the_reason() {
    let lost = link(None, Some(0));
    let held = |group: DrGroupView| {
        let report = DrGroupReport { unserved_since: Some(at(20)), ..group.report.clone() };
        let claims = claims(DrGroupView { serves: false, report, ..group }, &lost, 30);
        (claims[0].kind, claims[0].text.clone())
    };
    let (kind, text) = held(cut(0));
    assert_eq!(kind, "dr_hosts_wait");
    assert!(text.ends_with("denver is not reached, and may have writes that this site lacks"), "{text}");
    let mode = ReplicationMode::Sync { hold: Duration::from_secs(15), is_failsafe: true };
    assert!(held(DrGroupView { mode, ..cut(0) }).1.ends_with("it may not go on alone (failsafe)"));
    let silent = held(DrGroupView { mode, peer_silence_ms: 20_000, ..well() }).1;
    assert!(
        silent.contains("denver is connected and has confirmed nothing for 20 s, and it may not go"),
        "{silent}"
    );
    assert!(held(DrGroupView { state: "refused", ..well() }).1.contains("both sites were made primary"));
    // A secondary whose primary is one no more: it is connected, and hears nothing.
    let there = link(Some(0), None);
    let report = |word: Option<i64>| DrGroupReport { last_word: word.map(at), ..DrGroupReport::default() };
    let follows = |word: Option<i64>| {
        let (role, connected_since) = (DrRole::Secondary, Some(at(0)));
        DrGroupView {
            role,
            state: "following",
            serves: false,
            connected_since,
            report: report(word),
            ..well()
        }
    };
    assert!(claims(follows(Some(99)), &there, 100).is_empty());
    assert_eq!(said(&claims(follows(None), &there, 100))[0].0, "dr_hosts_wait");
}

#[test]
fn each_course_of_a_group_is_a_condition_of_its_own_and_the_worst_is_said() {
    let there = link(Some(-900), None);
    let kind_of = |group: DrGroupView, link: &LinkView| {
        let claims = claims(group, link, 0);
        assert!(claims.len() < 2, "{claims:?}");
        claims.first().map(|claim| claim.kind)
    };
    let over = BoundPolicy::Behind;
    let mode = ReplicationMode::Async { behind_max: Duration::from_secs(1), behind_bytes_max: 1, over };
    assert_eq!(kind_of(DrGroupView { mode, is_behind: true, ..well() }, &there), Some("dr_behind"));
    assert_eq!(kind_of(DrGroupView { state: "awaiting choice", ..well() }, &there), Some("dr_diverged"));
    assert_eq!(kind_of(DrGroupView { state: "suspended", ..well() }, &there), Some("dr_stopped"));
    assert_eq!(kind_of(DrGroupView { state: "refused", ..well() }, &there), Some("dr_stopped"));
    assert_eq!(kind_of(cut(-60), &there), Some("dr_stopped"), "the site is there, without the group");
    assert_eq!(kind_of(cut(-60), &LinkView { peers: Vec::new(), ..there.clone() }), Some("dr_stopped"));
    let lacking = DrGroupReport { is_first_copy_lacking: true, alone_since: Some(at(-60)), ..well().report };
    assert_eq!(
        kind_of(DrGroupView { is_alone: true, report: lacking, ..well() }, &there),
        Some("dr_first_copy")
    );
    let (volume, source) = (VolumeId([8; 16]), VolumeId([9; 16]));
    let fork = ForkVolume { volume, name: "store-fork1".to_owned(), source, kept: None };
    let forked = DrGroupReport { forks: vec![fork], ..well().report };
    let fork = claims(DrGroupView { report: forked, ..well() }, &there, 0).remove(0);
    assert_eq!(
        (fork.kind, fork.text.as_str()),
        ("dr_fork_kept", "sg1: mail/store-fork1 keeps what this site gave up of it")
    );
    let held = |name: &str, until: Option<i64>| HeldDrSnapshot {
        volume,
        snapshot: SnapshotId([7; 16]),
        name: name.to_owned(),
        since_unix_s: at(0).seconds,
        until_unix_s: until.map(|until| at(until).seconds),
    };
    let of = |held: Vec<HeldDrSnapshot>| DrGroupView {
        role: DrRole::Secondary,
        state: "following",
        serves: false,
        report: DrGroupReport { held, last_word: Some(at(0)), ..DrGroupReport::default() },
        ..well()
    };
    assert!(claims(of(vec![held("mail-17", Some(60))]), &there, 0).is_empty(), "clocks differ");
    // A snapshot of two volumes is one.
    let both = vec![held("mail-17", Some(86_400)), held("mail-17", Some(86_400)), held("mail-18", None)];
    assert_eq!(
        said(&claims(of(both), &there, 0)),
        [(
            "dr_snapshots_held",
            "sg1: site denver deleted snapshots of backups that are locked, and they stay here: mail-17 until 2026-11-28 12:34:56 \
             UTC, mail-18, whose note is of a newer program"
        )]
    );
    let damaged =
        vec![DamagedDrGroup { group: GroupId([4; 16]), problem: "its checksum is wrong".to_owned() }];
    let claims = group_claims("mail", &DrGroups { groups: Vec::new(), damaged }, None, at(0));
    assert_eq!(claims[0].kind, "dr_record_damaged");
}

#[test]
fn a_site_is_reported_after_three_seconds_and_goes_down_with_its_return() {
    let site = SiteView { is_open: true, ..SiteView::default() };
    let mut board = ConditionBoard::default();
    let mut look = |link: &LinkView, now: i64| {
        let claims = site_claims(&site, link, at(now));
        board.evaluate(|_| true, &claims, at(now)).into_iter().map(|event| event.text).collect::<Vec<_>>()
    };
    let lost = link(None, Some(0));
    assert!(look(&lost, 2).is_empty());
    let text = "denver not reached since 2026-11-27 12:34:56 UTC: no DR group is with it";
    assert_eq!(look(&lost, 3), [text]);
    assert!(look(&lost, 4).is_empty());
    assert_eq!(look(&link(Some(5), None), 5), [text], "its end");
}

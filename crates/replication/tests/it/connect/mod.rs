//! Connect outcomes, after all small histories of two sites, against sites that remember every write.

mod model;

use model::{Sites, Step, Write};
use replication::{
    connect::{ConnectFinding, HostService, WayBack},
    lineage::Side,
};
use std::collections::BTreeSet;

/// Visits all states that so many steps reach.
fn visit(first: Sites, depth: usize, check: &mut impl FnMut(&Sites)) -> usize {
    let mut seen = BTreeSet::from([first.clone()]);
    let mut edge = vec![first];
    for _ in 0..depth {
        let mut next = Vec::new();
        for sites in &edge {
            for step in sites.steps() {
                let mut after = sites.clone();
                if !after.apply(step) || seen.contains(&after) {
                    continue;
                }
                check_step(sites, step, &after);
                check(&after);
                seen.insert(after.clone());
                next.push(after);
            }
        }
        edge = next;
    }
    seen.len()
}

fn told_of(sites: &Sites, at: usize) -> BTreeSet<(usize, Write)> {
    let parts = sites.sites[at].writes.iter().enumerate();
    let all = parts.flat_map(|(part, writes)| writes.iter().map(move |write| (part, *write)));
    all.filter(|write| sites.truth.contains(write)).collect()
}

/// The outcome in this state is right.
fn check_outcome(sites: &Sites) {
    let (ours, theirs) = (sites.introduction(0), sites.introduction(1));
    assert_eq!((ours.check(), theirs.check()), (Ok(()), Ok(())), "{sites:?}");
    let outcome = sites.outcome();
    let mirrored = replication::connect::decide(&theirs, &ours);
    assert_eq!(outcome.mirrored(), mirrored, "{sites:?}");
    if let Some(common) = &outcome.common {
        for part in 0..ours.has.parts() {
            let stamp = common.cut.stamps()[part];
            let prefix = sites.common(part).len();
            for site in &sites.sites {
                let (below, above) = site.writes[part].split_at(prefix);
                assert!(below.iter().all(|(_, other)| *other <= stamp), "{outcome:?} {sites:?}");
                assert!(above.iter().all(|(_, other)| *other > stamp), "{outcome:?} {sites:?}");
            }
        }
    }
    let told = [0, 1].map(|at| told_of(sites, at));
    let lacks = |at: usize| !told[1 - at].is_subset(&told[at]);
    match outcome.finding {
        ConnectFinding::Diverged => assert!(outcome.transfers.is_empty(), "{sites:?}"),
        ConnectFinding::TailNeverAcknowledged(side) => {
            let at = usize::from(side == Side::Theirs);
            assert!(!lacks(1 - at), "an answered write would be in a fork: {sites:?}");
        }
        _ => {}
    }
    if let HostService::AtOnce(side) = outcome.service
        && outcome.finding != ConnectFinding::Diverged
    {
        let at = usize::from(side == Side::Theirs);
        assert!(!lacks(at), "it serves without an answered write: {outcome:?} {sites:?}");
    }
    if let HostService::AtOnce(side) | HostService::AfterTransfer(side) = outcome.service {
        let other = [&theirs, &ours][usize::from(side == Side::Theirs)];
        let stands_down = (other.role == replication::connect::SiteRole::Primary).then_some(side.other());
        assert_eq!(outcome.stands_down, stands_down, "one side is primary: {outcome:?} {sites:?}");
    }
    let forks = matches!(outcome.finding, ConnectFinding::TailNeverAcknowledged(_));
    assert!(
        outcome.transfers.iter().all(|transfer| (transfer.way_back != WayBack::NotNeeded) == forks),
        "{outcome:?}"
    );
}

/// Checks a step, a connection in particular.
fn check_step(before: &Sites, step: Step, after: &Sites) {
    let kept: BTreeSet<_> = after.sites.iter().flat_map(|site| site.forks.clone()).collect();
    let there: BTreeSet<_> = [0, 1].into_iter().flat_map(|at| told_of(after, at)).collect();
    let is_kept = |write: &(usize, Write)| there.contains(write) || kept.contains(write);
    assert!(after.truth.iter().all(is_kept), "{step:?} lost an answered write: {before:?} {after:?}");
    if !matches!(step, Step::Connect | Step::Choose { .. }) {
        return;
    }
    let serving = after.sites.iter().filter(|site| site.is_serving).count();
    let finding = before.outcome().finding;
    let is_settled = matches!(step, Step::Choose { .. })
        || matches!(
            finding,
            ConnectFinding::Equal
                | ConnectFinding::Behind(_)
                | ConnectFinding::ReturnedWithLess(_)
                | ConnectFinding::Crossed(_)
                | ConnectFinding::TailNeverAcknowledged(_)
        );
    if is_settled {
        assert_eq!(after.sites[0].writes, after.sites[1].writes, "{finding:?} {before:?}");
        assert!(serving <= 1, "{before:?}");
    }
    let is_taken_back = after.truth.iter().any(|write| !there.contains(write));
    let was_taken_back = before
        .truth
        .iter()
        .any(|write| before.sites.iter().all(|site| !site.writes[write.0].contains(&write.1)));
    assert!(
        !is_taken_back || was_taken_back || matches!(step, Step::Choose { .. }),
        "{finding:?} took an answered write back: {before:?}"
    );
}

#[test]
fn all_small_histories_of_one_pool_come_to_the_right_outcome() {
    let mut found = BTreeSet::new();
    let mut count = 0;
    for (is_sync, is_new) in [(false, false), (true, false), (false, true)] {
        let depth = if is_new { 5 } else { 7 };
        count += visit(Sites::new(1, is_sync, is_new), depth, &mut |sites| {
            check_outcome(sites);
            found.insert(sites.outcome().finding);
        });
    }
    use ConnectFinding::*;
    for finding in [
        Equal,
        Behind(Side::Ours),
        Behind(Side::Theirs),
        ReturnedWithLess(Side::Ours),
        TailNeverAcknowledged(Side::Ours),
        TailNeverAcknowledged(Side::Theirs),
        Diverged,
        FirstCopy(Side::Theirs),
        TwoPrimaries,
    ] {
        assert!(found.contains(&finding), "{finding:?} is reached: {found:?}");
    }
    assert!(count > 10_000, "{count} states");
}

#[test]
fn all_small_histories_of_two_pools_come_to_the_right_outcome() {
    let mut found = BTreeSet::new();
    for is_sync in [false, true] {
        visit(Sites::new(2, is_sync, false), 6, &mut |sites| {
            check_outcome(sites);
            found.insert(sites.outcome().finding);
        });
    }
    assert!(found.contains(&ConnectFinding::Crossed(Side::Ours)), "{found:?}");
    assert!(found.contains(&ConnectFinding::ReturnedWithLess(Side::Ours)), "{found:?}");
}

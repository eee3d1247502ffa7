//! The outcome of a connection: two sides introduce themselves, and each computes from both introductions who
//! serves hosts, and what is sent to whom.
//!
//! Invariants of an outcome:
//!
//! 1. The outcomes of the two sides are mirror images of each other.
//! 2. At most one side serves, and never one that lacks an answered write of the other, unless both have such
//!    writes and a person has to choose.
//! 3. Nothing that was told to a host is taken back: it is in what the receiver has afterwards, or, once a person
//!    has chosen, in a fork.
//! 4. No more is sent than what either side changed above the common cut, except to a new replica.

use crate::{
    cut::GroupCut,
    lineage::{CommonCut, CopyRelation, GroupCopy, Lineage, Side, compare},
};
use array::format::{Fence, GroupId};

/// The role of a side in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SiteRole {
    /// It serves the group's hosts, or did when it was last open.
    Primary,
    Secondary,
}

/// A pass that was interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedPass {
    /// The cut it began at; what the receiver shows.
    pub since: GroupCut,
    /// The cut it would have ended at. Blocks that it brought have these stamps.
    pub until: GroupCut,
}

/// State of one group at a side, as it is said when a connection begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    pub group: GroupId,
    pub role: SiteRole,
    /// The highest fencing epoch that it knows of.
    pub fence: Fence,
    /// None: a new replica, which has nothing.
    pub lineage: Option<Lineage>,
    /// Everything that it has stable, without what an unfinished pass brought.
    pub has: GroupCut,
    /// The answers that hosts may have got, as far as this side knows. After a restart of a primary, all that it
    /// has.
    pub told: GroupCut,
    /// It is primary in sync, and has not recorded that it goes on alone: hosts were answered nothing that this
    /// peer did not have.
    pub is_in_sync: bool,
    /// Points that it keeps and could send a difference from, or go back to; ascending.
    pub points: Vec<GroupCut>,
    /// All records above this cut can be read from its pinned log. `has` if none can.
    pub log_from: GroupCut,
    /// It was opened after a crash, which may have left a part of the last command that it has.
    pub last_in_doubt: bool,
    pub unfinished: Option<UnfinishedPass>,
}

/// A contradiction within an introduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IntroductionFault {
    #[error("its cuts have different numbers of parts")]
    Parts,
    #[error("it has less than the fork of its current epoch")]
    Position,
    #[error("it was told of more than it has")]
    Told,
    #[error("its points do not ascend up to what it has")]
    Points,
    #[error("its log ends above what it has")]
    Log,
    #[error("a primary has a lineage and no unfinished pass, and it alone answers in sync")]
    Primary,
    #[error("a new replica has something")]
    New,
    #[error("its unfinished pass does not begin at what it has")]
    Unfinished,
}

impl Introduction {
    /// Checks the fields against each other. To be called for what a peer said, before [`decide`].
    ///
    /// # Errors
    ///
    /// The first contradiction.
    pub fn check(&self) -> Result<(), IntroductionFault> {
        let parts = self.has.parts();
        let cuts = self.points.iter().chain([&self.told, &self.log_from]);
        let of_pass = self.unfinished.iter().flat_map(|pass| [&pass.since, &pass.until]);
        let of_lineage = self.lineage.as_ref().map_or(parts, Lineage::parts);
        if of_lineage != parts || cuts.chain(of_pass).any(|cut| cut.parts() != parts) {
            return Err(IntroductionFault::Parts);
        }
        match &self.lineage {
            Some(lineage) if !lineage.ends_at(&self.has) => return Err(IntroductionFault::Position),
            None if self.has != GroupCut::zero(parts) || !self.points.is_empty() => {
                return Err(IntroductionFault::New);
            }
            _ => {}
        }
        if !self.told.is_within(&self.has) {
            return Err(IntroductionFault::Told);
        }
        let ascend = self.points.windows(2).all(|pair| pair[0].is_within(&pair[1]) && pair[0] != pair[1]);
        if !ascend || self.points.last().is_some_and(|last| !last.is_within(&self.has)) {
            return Err(IntroductionFault::Points);
        }
        if !self.log_from.is_within(&self.has) {
            return Err(IntroductionFault::Log);
        }
        let is_valid = match self.role {
            SiteRole::Primary => self.lineage.is_some() && self.unfinished.is_none(),
            SiteRole::Secondary => !self.is_in_sync,
        };
        if !is_valid {
            return Err(IntroductionFault::Primary);
        }
        let begins_here = |pass: &UnfinishedPass| pass.since == self.has && pass.since.is_within(&pass.until);
        if self.unfinished.as_ref().is_some_and(|pass| !begins_here(pass)) {
            return Err(IntroductionFault::Unfinished);
        }
        Ok(())
    }

    fn copy<'a>(&'a self, lineage: &'a Lineage) -> GroupCopy<'a> {
        GroupCopy { lineage, has: &self.has, acknowledged: &self.told }
    }
}

/// The row of the table of outcomes that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConnectFinding {
    Equal,
    /// This side lacks what the other one has.
    Behind(Side),
    /// This side is the primary of the last epoch, and lost what it had sent.
    ReturnedWithLess(Side),
    /// Each lacks records of another part; this side is the one that goes on as the writer, and gets what it
    /// lacks first.
    Crossed(Side),
    /// Each has writes that the other lacks. Those of this side were never answered, and become a fork.
    TailNeverAcknowledged(Side),
    Diverged,
    /// This side is a new replica.
    FirstCopy(Side),
    /// Both were made primary, under equal fences, and neither wrote anything: a person must choose, and nothing
    /// will be lost.
    TwoPrimaries,
    Unrelated,
    /// Another group, or another number of parts.
    OtherShape,
}

/// The way in which a side gets what it lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransferWay {
    /// Records from the sender's log, in order.
    Log,
    /// The difference to a point that the sender keeps.
    Point,
    /// Blocks born since the common cut, and a list of what is mapped.
    BornSince,
    /// All that is mapped.
    Everything,
}

/// The way in which a receiver gives up its own changes above the common cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WayBack {
    /// It has none.
    NotNeeded,
    /// It keeps a point at the common cut: it rolls back to it, and what it had becomes a fork.
    ToPoint,
    /// It makes a fork of what it has, and names the blocks that it changed, and the sender sends them, too.
    ByBlocks,
}

/// A transfer from one side to the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Transfer {
    pub to: Side,
    /// Everything above is sent.
    pub since: GroupCut,
    pub way: TransferWay,
    pub way_back: WayBack,
    /// True if an unfinished pass of the receiver goes on: the sender still keeps the cut at which it ends.
    pub resumes: bool,
}

/// The service of hosts after a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostService {
    Nobody,
    AtOnce(Side),
    /// This side, once the first transfer is done: it lacks something.
    AfterTransfer(Side),
    /// Both go on as before, each with its own history.
    EachAlone,
}

/// The outcome of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectOutcome {
    pub finding: ConnectFinding,
    /// None if nothing may be sent.
    pub common: Option<CommonCut>,
    /// In this order: the second begins when the first is done.
    pub transfers: Vec<Transfer>,
    pub service: HostService,
    /// This side claimed to be primary, and has to stop serving and be secondary: the right is the other one's.
    pub stands_down: Option<Side>,
}

impl ConnectFinding {
    /// The same finding, as the other side names it.
    #[must_use]
    pub fn mirrored(self) -> Self {
        match self {
            Self::Behind(side) => Self::Behind(side.other()),
            Self::ReturnedWithLess(side) => Self::ReturnedWithLess(side.other()),
            Self::Crossed(side) => Self::Crossed(side.other()),
            Self::TailNeverAcknowledged(side) => Self::TailNeverAcknowledged(side.other()),
            Self::FirstCopy(side) => Self::FirstCopy(side.other()),
            Self::Equal | Self::Diverged | Self::TwoPrimaries | Self::Unrelated | Self::OtherShape => self,
        }
    }
}

impl ConnectOutcome {
    /// The same outcome, as the other side names it.
    #[must_use]
    pub fn mirrored(&self) -> Self {
        let mut mirrored = self.clone();
        mirrored.finding = self.finding.mirrored();
        mirrored.transfers.iter_mut().for_each(|transfer| transfer.to = transfer.to.other());
        mirrored.service = match self.service {
            HostService::AtOnce(side) => HostService::AtOnce(side.other()),
            HostService::AfterTransfer(side) => HostService::AfterTransfer(side.other()),
            HostService::Nobody | HostService::EachAlone => self.service,
        };
        mirrored.stands_down = self.stands_down.map(Side::other);
        mirrored
    }

    /// Nothing is sent, and each side goes on as before.
    fn refused(finding: ConnectFinding) -> Self {
        Self {
            finding,
            common: None,
            transfers: Vec::new(),
            service: HostService::EachAlone,
            stands_down: None,
        }
    }
}

/// Two introductions, by side.
#[derive(Clone, Copy)]
struct Introductions<'i> {
    ours: &'i Introduction,
    theirs: &'i Introduction,
}

impl<'i> Introductions<'i> {
    fn of(&self, side: Side) -> &'i Introduction {
        match side {
            Side::Ours => self.ours,
            Side::Theirs => self.theirs,
        }
    }

    fn claims(&self, side: Side) -> bool {
        self.of(side).role == SiteRole::Primary
    }

    /// The sides that claim to be primary, and have a right to that: the fence of the other one is not higher.
    fn rightful(&self) -> Vec<Side> {
        let is_rightful =
            |side: &Side| self.claims(*side) && self.of(*side).fence >= self.of(side.other()).fence;
        [Side::Ours, Side::Theirs].into_iter().filter(is_rightful).collect()
    }

    /// The side that stands down if this one is primary.
    fn stands_down(&self, primary: Option<Side>) -> Option<Side> {
        [Side::Ours, Side::Theirs].into_iter().find(|&side| self.claims(side) && primary != Some(side))
    }

    /// The side that is preferred where the histories do not decide: the primary, else the one with the higher
    /// fence, else the one that has more. Both sides must name the same one.
    fn preferred(&self, primary: Option<Side>) -> Side {
        let rank = |side: Side| {
            let said = self.of(side);
            let current = said.lineage.as_ref().map(|lineage| lineage.current().epoch);
            (primary == Some(side), said.fence, &said.has, &said.told, current, &said.log_from, &said.points)
        };
        if rank(Side::Ours) >= rank(Side::Theirs) { Side::Ours } else { Side::Theirs }
    }

    /// The cheapest possible transfer.
    fn transfer(&self, to: Side, since: &GroupCut, receiver_forks: bool) -> Transfer {
        let (sender, receiver) = (self.of(to.other()), self.of(to));
        let way_back = match receiver_forks {
            false => WayBack::NotNeeded,
            true if receiver.points.contains(since) => WayBack::ToPoint,
            true => WayBack::ByBlocks,
        };
        let resumes = |pass: &UnfinishedPass| pass.since == *since && sender.points.contains(&pass.until);
        let resumes = !receiver_forks && receiver.unfinished.as_ref().is_some_and(resumes);
        // Of a command in doubt the receiver may have other blocks than the sender, which records do not show.
        let has_log =
            has_log_for(sender, receiver, since) && way_back != WayBack::ByBlocks && !sender.last_in_doubt;
        let way = match has_log {
            // Blocks that the pass brought already need not come as records again.
            true if !resumes => TransferWay::Log,
            _ if sender.points.contains(since) => TransferWay::Point,
            _ => TransferWay::BornSince,
        };
        Transfer { to, since: since.clone(), way, way_back, resumes }
    }
}

/// True if the sender's log has every record that the receiver needs: those above what both have, and its last command if
/// that is in doubt.
fn has_log_for(sender: &Introduction, receiver: &Introduction, since: &GroupCut) -> bool {
    match receiver.last_in_doubt {
        true => sender.log_from.is_within(&since.before_last()),
        false => sender.log_from.is_within(since),
    }
}

/// Computes the outcome of a connection. Both introductions have passed [`Introduction::check`].
///
/// # Panics
///
/// If an introduction contradicts itself.
pub fn decide(ours: &Introduction, theirs: &Introduction) -> ConnectOutcome {
    let both = Introductions { ours, theirs };
    if ours.group != theirs.group || ours.has.parts() != theirs.has.parts() {
        return ConnectOutcome::refused(ConnectFinding::OtherShape);
    }
    let rightful = both.rightful();
    let (our_lineage, their_lineage) = match (&ours.lineage, &theirs.lineage) {
        (Some(ours), Some(theirs)) => (ours, theirs),
        (None, None) => return ConnectOutcome::refused(ConnectFinding::Unrelated),
        (Some(_), None) => return first_copy(both, Side::Theirs, rightful.first().copied()),
        (None, Some(_)) => return first_copy(both, Side::Ours, rightful.first().copied()),
    };
    let found = compare(ours.copy(our_lineage), theirs.copy(their_lineage));
    let Some(common) = found.common else {
        return ConnectOutcome::refused(ConnectFinding::Unrelated);
    };
    // Two with equal fences were promoted apart, by persons. The histories say whose right it is.
    let contenders = (rightful.len() == 2).then_some(());
    let primary = if contenders.is_some() { None } else { rightful.first().copied() };
    let preferred = both.preferred(primary);
    let finding = match found.standing {
        CopyRelation::Equal if contenders.is_some() => ConnectFinding::TwoPrimaries,
        CopyRelation::Equal => ConnectFinding::Equal,
        CopyRelation::Behind | CopyRelation::Ahead => {
            let behind = if found.standing == CopyRelation::Behind { Side::Ours } else { Side::Theirs };
            let has_lost = primary == Some(behind) && our_lineage == their_lineage;
            if has_lost { ConnectFinding::ReturnedWithLess(behind) } else { ConnectFinding::Behind(behind) }
        }
        CopyRelation::Crossed => ConnectFinding::Crossed(preferred),
        CopyRelation::TailNeverAcknowledged(_) | CopyRelation::Diverged => {
            let was_never_told = |side: Side| {
                let said = both.of(side);
                said.is_in_sync || said.told.is_within(&common.cut)
            };
            match [Side::Ours, Side::Theirs].map(was_never_told) {
                [true, true] => ConnectFinding::TailNeverAcknowledged(preferred.other()),
                [true, false] => ConnectFinding::TailNeverAcknowledged(Side::Ours),
                [false, true] => ConnectFinding::TailNeverAcknowledged(Side::Theirs),
                [false, false] => ConnectFinding::Diverged,
            }
        }
        CopyRelation::Unrelated => unreachable!("they have something in common"),
    };
    let (receivers, forks) = match finding {
        ConnectFinding::Behind(side) | ConnectFinding::ReturnedWithLess(side) => (vec![side], false),
        ConnectFinding::TailNeverAcknowledged(side) => (vec![side], true),
        ConnectFinding::Crossed(writer) => (vec![writer, writer.other()], false),
        _ => (Vec::new(), false),
    };
    let primary = match finding {
        ConnectFinding::Behind(side) | ConnectFinding::TailNeverAcknowledged(side) => {
            primary.or(contenders.map(|()| side.other()))
        }
        ConnectFinding::Crossed(writer) => primary.or(contenders.map(|()| writer)),
        _ => primary,
    };
    let service = match primary {
        None if finding == ConnectFinding::Diverged && contenders.is_some() => HostService::EachAlone,
        None => HostService::Nobody,
        Some(side) if receivers.first() == Some(&side) => HostService::AfterTransfer(side),
        // In a divergence it goes on alone until a person has chosen.
        Some(side) => HostService::AtOnce(side),
    };
    let stands_down = match service {
        HostService::EachAlone => None,
        // Both stop serving, and neither is secondary before a person has chosen.
        HostService::Nobody if contenders.is_some() => None,
        _ => both.stands_down(primary),
    };
    let mut transfers: Vec<_> =
        receivers.iter().map(|&side| both.transfer(side, &common.cut, forks)).collect();
    // The primary's version of a command in doubt counts: if its host was answered, it has all of it.
    // One that the secondary has in doubt comes again, by a pass if the log does not have it.
    if let (ConnectFinding::Equal, HostService::AtOnce(side)) = (finding, service)
        && (both.of(side).last_in_doubt || !has_log_for(both.of(side), both.of(side.other()), &common.cut))
    {
        transfers.push(both.transfer(side.other(), &common.cut, false));
    }
    ConnectOutcome { finding, common: Some(common), transfers, service, stands_down }
}

/// A new replica gets everything, from the primary alone.
fn first_copy(both: Introductions<'_>, to: Side, primary: Option<Side>) -> ConnectOutcome {
    let from = to.other();
    let is_sent = primary == Some(from);
    let resumes = |pass: &UnfinishedPass| both.of(from).points.contains(&pass.until);
    let transfer = Transfer {
        to,
        since: GroupCut::zero(both.of(to).has.parts()),
        way: TransferWay::Everything,
        way_back: WayBack::NotNeeded,
        resumes: both.of(to).unfinished.as_ref().is_some_and(resumes),
    };
    ConnectOutcome {
        finding: ConnectFinding::FirstCopy(to),
        common: None,
        transfers: if is_sent { vec![transfer] } else { Vec::new() },
        service: if is_sent { HostService::AtOnce(from) } else { HostService::Nobody },
        stands_down: both.stands_down(primary),
    }
}

/// The outcome for two sides that diverged, once a person has chosen the winner: the loser becomes a fork and
/// gets what either side changed. The winner is primary from then on.
///
/// # Panics
///
/// If they have not diverged.
pub fn decide_with_winner(ours: &Introduction, theirs: &Introduction, winner: Side) -> ConnectOutcome {
    let mut outcome = decide(ours, theirs);
    assert_eq!(outcome.finding, ConnectFinding::Diverged, "a person chooses between two histories");
    let common = outcome.common.as_ref().expect("they have diverged from something");
    let both = Introductions { ours, theirs };
    outcome.transfers = vec![both.transfer(winner.other(), &common.cut, true)];
    // The choice is the winner's right.
    outcome.service = HostService::AtOnce(winner);
    outcome.stands_down = both.claims(winner.other()).then_some(winner.other());
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use array::format::{EpochId, Stamp};

    const A: EpochId = EpochId([0xa; 16]);

    fn at(stamp: u64) -> GroupCut {
        GroupCut::new(vec![Stamp(stamp)])
    }

    fn side(role: SiteRole, has: u64) -> Introduction {
        Introduction {
            group: GroupId([1; 16]),
            role,
            fence: Fence(1),
            lineage: Some(Lineage::new(A, 1)),
            has: at(has),
            told: at(0),
            is_in_sync: false,
            points: Vec::new(),
            log_from: at(has),
            last_in_doubt: false,
            unfinished: None,
        }
    }

    fn new_replica() -> Introduction {
        Introduction { lineage: None, ..side(SiteRole::Secondary, 0) }
    }

    #[track_caller]
    fn way(ours: &Introduction, theirs: &Introduction) -> (TransferWay, WayBack, bool) {
        assert_eq!((ours.check(), theirs.check()), (Ok(()), Ok(())));
        let outcome = decide(ours, theirs);
        assert_eq!(outcome.mirrored(), decide(theirs, ours));
        let [transfer] = &outcome.transfers[..] else { panic!("one transfer: {outcome:?}") };
        (transfer.way, transfer.way_back, transfer.resumes)
    }

    #[test]
    fn the_cheapest_way_that_is_possible_is_taken() {
        let target = side(SiteRole::Secondary, 500);
        let source = side(SiteRole::Primary, 900);
        assert_eq!(way(&source, &target), (TransferWay::BornSince, WayBack::NotNeeded, false));
        let with_point = Introduction { points: vec![at(400), at(500)], ..source.clone() };
        assert_eq!(way(&with_point, &target).0, TransferWay::Point);
        let with_other = Introduction { points: vec![at(499), at(501)], ..source.clone() };
        assert_eq!(way(&with_other, &target).0, TransferWay::BornSince);
        let with_log = Introduction { log_from: at(500), ..with_point };
        assert_eq!(way(&with_log, &target).0, TransferWay::Log);
        let too_late = Introduction { log_from: at(501), ..source };
        assert_eq!(way(&too_late, &target).0, TransferWay::BornSince);
        assert_eq!(way(&side(SiteRole::Primary, 900), &new_replica()).0, TransferWay::Everything);
    }

    #[test]
    fn a_command_in_doubt_comes_again() {
        let target = Introduction { last_in_doubt: true, ..side(SiteRole::Secondary, 500) };
        let source = |has, from| Introduction { log_from: at(from), ..side(SiteRole::Primary, has) };
        assert_eq!(way(&source(900, 499), &target).0, TransferWay::Log);
        assert_eq!(way(&source(900, 500), &target).0, TransferWay::BornSince);
        assert_eq!(way(&source(500, 500), &target).0, TransferWay::BornSince);
        let by_log = decide(&source(500, 499), &target);
        assert_eq!((by_log.finding, by_log.transfers.len()), (ConnectFinding::Equal, 0));
    }

    #[test]
    fn an_unfinished_pass_goes_on_if_its_end_is_kept() {
        let pass = UnfinishedPass { since: at(500), until: at(700) };
        let target = Introduction { unfinished: Some(pass), ..side(SiteRole::Secondary, 500) };
        let source = side(SiteRole::Primary, 900);
        assert_eq!(way(&source, &target), (TransferWay::BornSince, WayBack::NotNeeded, false));
        let keeps_end = Introduction { points: vec![at(700)], log_from: at(500), ..source };
        assert_eq!(way(&keeps_end, &target), (TransferWay::BornSince, WayBack::NotNeeded, true));
        let keeps_both = Introduction { points: vec![at(500), at(700)], ..keeps_end };
        assert_eq!(way(&keeps_both, &target), (TransferWay::Point, WayBack::NotNeeded, true));
        let pass = UnfinishedPass { since: at(0), until: at(700) };
        let first = Introduction { unfinished: Some(pass), ..new_replica() };
        assert_eq!(way(&keeps_both, &first), (TransferWay::Everything, WayBack::NotNeeded, true));
    }

    #[test]
    fn a_tail_is_taken_back_to_a_point_or_by_blocks() {
        let mut source = side(SiteRole::Primary, 900);
        source.lineage.as_mut().unwrap().promote(EpochId([0xb; 16]), &at(900)).unwrap();
        source.fence = Fence(2);
        source.log_from = at(800);
        let target = side(SiteRole::Primary, 905);
        assert_eq!(way(&source, &target), (TransferWay::BornSince, WayBack::ByBlocks, false));
        let with_point = Introduction { points: vec![at(900)], ..target };
        assert_eq!(way(&source, &with_point), (TransferWay::Log, WayBack::ToPoint, false));
    }

    #[test]
    fn answers_in_sync_are_known_to_be_at_the_peer() {
        let mut source = side(SiteRole::Primary, 900);
        source.lineage.as_mut().unwrap().promote(EpochId([0xb; 16]), &at(900)).unwrap();
        let start = source.lineage.as_ref().unwrap().current().fork().stamps()[0].0 + (1 << 32);
        source =
            Introduction { fence: Fence(2), has: at(start), told: at(start), log_from: at(start), ..source };
        let returned = Introduction { told: at(905), ..side(SiteRole::Primary, 905) };
        let outcome = decide(&source, &returned);
        assert_eq!(outcome.finding, ConnectFinding::Diverged);
        assert_eq!(outcome.service, HostService::AtOnce(Side::Ours), "the higher fence goes on");
        assert_eq!(outcome.stands_down, Some(Side::Theirs));
        let in_sync = Introduction { is_in_sync: true, ..returned.clone() };
        assert_eq!(decide(&source, &in_sync).finding, ConnectFinding::TailNeverAcknowledged(Side::Theirs));
        for winner in [Side::Ours, Side::Theirs] {
            let chosen = decide_with_winner(&source, &returned, winner);
            assert_eq!(chosen.service, HostService::AtOnce(winner));
            assert_eq!(chosen.stands_down, Some(winner.other()));
            assert_eq!(chosen.transfers[0].to, winner.other());
        }
        let equal_fences = Introduction { fence: Fence(2), ..returned };
        let outcome = decide(&source, &equal_fences);
        assert_eq!((outcome.service, outcome.stands_down), (HostService::EachAlone, None));
    }

    #[test]
    fn strangers_are_refused_and_go_on_as_before() {
        let source = side(SiteRole::Primary, 900);
        let mut other_group = side(SiteRole::Secondary, 900);
        other_group.group = GroupId([2; 16]);
        let mut two_parts = side(SiteRole::Secondary, 0);
        let both = GroupCut::zero(2);
        two_parts.lineage = Some(Lineage::new(A, 2));
        (two_parts.has, two_parts.told, two_parts.log_from) = (both.clone(), both.clone(), both);
        let mut unrelated = side(SiteRole::Secondary, 900);
        unrelated.lineage = Some(Lineage::new(EpochId([0xc; 16]), 1));
        for (other, finding) in [
            (other_group, ConnectFinding::OtherShape),
            (two_parts, ConnectFinding::OtherShape),
            (unrelated, ConnectFinding::Unrelated),
        ] {
            assert_eq!(other.check(), Ok(()));
            let outcome = decide(&source, &other);
            assert_eq!((outcome.finding, outcome.service), (finding, HostService::EachAlone));
            assert!(outcome.transfers.is_empty() && outcome.stands_down.is_none());
        }
        let lone = decide(&side(SiteRole::Secondary, 900), &new_replica());
        assert_eq!(lone.finding, ConnectFinding::FirstCopy(Side::Theirs));
        assert!(lone.transfers.is_empty(), "no first copy of a copy");
    }

    #[test]
    fn introductions_that_contradict_themselves_are_found() {
        use IntroductionFault as F;
        let good = Introduction { points: vec![at(400), at(900)], ..side(SiteRole::Secondary, 900) };
        let check = |change: fn(&mut Introduction), fault| {
            let mut bad = good.clone();
            change(&mut bad);
            assert_eq!(bad.check(), Err(fault));
        };
        assert_eq!(good.check(), Ok(()));
        check(|bad| bad.told = GroupCut::zero(2), F::Parts);
        check(|bad| bad.lineage = Some(Lineage::new(A, 2)), F::Parts);
        check(|bad| bad.lineage = None, F::New);
        check(|bad| bad.told = at(901), F::Told);
        check(|bad| bad.points.swap(0, 1), F::Points);
        check(|bad| bad.points.push(at(901)), F::Points);
        check(|bad| bad.points.push(at(900)), F::Points);
        check(|bad| bad.log_from = at(901), F::Log);
        check(|bad| bad.is_in_sync = true, F::Primary);
        let pass = |since, until| Some(UnfinishedPass { since: at(since), until: at(until) });
        let mut bad = good.clone();
        bad.unfinished = pass(899, 950);
        assert_eq!(bad.check(), Err(F::Unfinished));
        bad.unfinished = pass(900, 899);
        assert_eq!(bad.check(), Err(F::Unfinished));
        bad.unfinished = pass(900, 950);
        assert_eq!(bad.check(), Ok(()));
        bad.role = SiteRole::Primary;
        assert_eq!(bad.check(), Err(F::Primary));
        let mut behind = good.clone();
        behind.lineage.as_mut().unwrap().promote(EpochId([0xb; 16]), &at(901)).unwrap();
        assert_eq!(behind.check(), Err(F::Position));
    }
}

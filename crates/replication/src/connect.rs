//! The outcome of a connection: two sides introduce themselves, and each computes from both introductions who
//! serves hosts, and what is sent to whom.
//!
//! Invariants of an outcome:
//!
//! 1. The outcomes of the two sides are mirror images of each other.
//! 2. At most one side serves, and never one that lacks a write of the other side's history, unless a person
//!    has to choose between both.
//! 3. Nothing that was told to a host is taken back: it is in what the receiver has afterwards, or in its fork.
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

/// What a side says of itself and one group when a connection begins.
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
    /// What it knows that hosts were answered.
    pub told: GroupCut,
    /// Points that it keeps and could send a difference from, or go back to; ascending.
    pub points: Vec<GroupCut>,
    /// All records above this cut can be read from its pinned log. `has` if none can.
    pub log_from: GroupCut,
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
    #[error("a primary has a lineage, and no unfinished pass")]
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
        if self.role == SiteRole::Primary && (self.lineage.is_none() || self.unfinished.is_some()) {
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
    /// Both claim to be primary under one fence: a contradiction.
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

/// How a receiver gets rid of its own changes above the common cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WayBack {
    /// It has none.
    NotNeeded,
    /// It keeps a point at the common cut: it rolls back to it, and what it had becomes a fork.
    ToPoint,
    /// What it has becomes a fork; it names the blocks that it changed, and the sender sends them, too.
    ByBlocks,
}

/// A transfer from one side to the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Transfer {
    pub to: Side,
    /// What is above is sent.
    pub since: GroupCut,
    pub way: TransferWay,
    pub way_back: WayBack,
    /// True if an unfinished pass of the receiver goes on: the sender still keeps the cut at which it ends.
    pub resumes: bool,
}

/// The outcome of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectOutcome {
    pub finding: ConnectFinding,
    /// None if nothing may be sent.
    pub common: Option<CommonCut>,
    /// In this order: the second begins when the first is done.
    pub transfers: Vec<Transfer>,
    /// The primary, if one side is, once all roles are applied.
    pub primary: Option<Side>,
    /// The primary serves hosts from now on; otherwise once the first transfer is done.
    pub serves_at_once: bool,
    /// This side claimed to be primary, and has to stop serving: the other one has a higher fence.
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
        mirrored.primary = self.primary.map(Side::other);
        mirrored.stands_down = self.stands_down.map(Side::other);
        mirrored
    }

    fn refused(finding: ConnectFinding) -> Self {
        Self {
            finding,
            common: None,
            transfers: Vec::new(),
            primary: None,
            serves_at_once: false,
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

    /// The side that is primary, and the one that has to stand down. An error if both claim it with one right.
    fn roles(&self) -> Result<(Option<Side>, Option<Side>), ConnectFinding> {
        let is_deposed = |side: Side| self.of(side).fence < self.of(side.other()).fence;
        let claimants = [Side::Ours, Side::Theirs].into_iter().filter(|&side| self.claims(side));
        let (deposed, rightful): (Vec<Side>, Vec<Side>) = claimants.partition(|&side| is_deposed(side));
        match rightful[..] {
            [_, _] => Err(ConnectFinding::TwoPrimaries),
            [side] => Ok((Some(side), deposed.first().copied())),
            _ => Ok((None, deposed.first().copied())),
        }
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
        let has_log = sender.log_from.is_within(since) && way_back != WayBack::ByBlocks;
        let way = match has_log {
            // What the pass brought already need not come as records again.
            true if !resumes => TransferWay::Log,
            _ if sender.points.contains(since) => TransferWay::Point,
            _ => TransferWay::BornSince,
        };
        Transfer { to, since: since.clone(), way, way_back, resumes }
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
    let (primary, stands_down) = match both.roles() {
        Ok(roles) => roles,
        Err(finding) => return ConnectOutcome::refused(finding),
    };
    let outcome = |finding, common, transfers, serves_at_once| ConnectOutcome {
        finding,
        common,
        transfers,
        primary,
        serves_at_once: serves_at_once && primary.is_some(),
        stands_down,
    };
    let (our_lineage, their_lineage) = match (&ours.lineage, &theirs.lineage) {
        (Some(ours), Some(theirs)) => (ours, theirs),
        (None, None) => return outcome(ConnectFinding::Unrelated, None, Vec::new(), false),
        (known, _) => {
            let to = if known.is_some() { Side::Theirs } else { Side::Ours };
            return first_copy(both, to, outcome(ConnectFinding::FirstCopy(to), None, Vec::new(), true));
        }
    };
    let found = compare(ours.copy(our_lineage), theirs.copy(their_lineage));
    let Some(common) = found.common else {
        return outcome(ConnectFinding::Unrelated, None, Vec::new(), true);
    };
    let (finding, forks) = match found.standing {
        CopyRelation::Equal => (ConnectFinding::Equal, false),
        CopyRelation::Behind | CopyRelation::Ahead => {
            let behind = if found.standing == CopyRelation::Behind { Side::Ours } else { Side::Theirs };
            let has_lost = primary == Some(behind) && our_lineage == their_lineage;
            let finding = if has_lost { ConnectFinding::ReturnedWithLess } else { ConnectFinding::Behind };
            (finding(behind), false)
        }
        CopyRelation::Crossed => (ConnectFinding::Crossed(both.preferred(primary)), false),
        CopyRelation::TailNeverAcknowledged(_) => {
            let was_never_told = |side: Side| both.of(side).told.is_within(&common.cut);
            let side = match [Side::Ours, Side::Theirs].map(was_never_told) {
                [true, true] => both.preferred(primary).other(),
                [true, false] => Side::Ours,
                _ => Side::Theirs,
            };
            (ConnectFinding::TailNeverAcknowledged(side), true)
        }
        // The primary goes on alone until a person has chosen.
        CopyRelation::Diverged => {
            return outcome(ConnectFinding::Diverged, Some(common), Vec::new(), true);
        }
        CopyRelation::Unrelated => unreachable!("they have something in common"),
    };
    let receivers = match finding {
        ConnectFinding::Behind(side)
        | ConnectFinding::ReturnedWithLess(side)
        | ConnectFinding::TailNeverAcknowledged(side) => vec![side],
        ConnectFinding::Crossed(writer) => vec![writer, writer.other()],
        _ => Vec::new(),
    };
    let transfers: Vec<_> =
        receivers.iter().map(|&side| both.transfer(side, &common.cut, forks)).collect();
    let lacks_nothing = primary.is_some_and(|primary| receivers.first() != Some(&primary));
    outcome(finding, Some(common), transfers, lacks_nothing)
}

/// A new replica gets everything, from the primary alone.
fn first_copy(both: Introductions<'_>, to: Side, outcome: ConnectOutcome) -> ConnectOutcome {
    if outcome.primary != Some(to.other()) {
        return ConnectOutcome { serves_at_once: false, ..outcome };
    }
    let since = GroupCut::zero(both.of(to).has.parts());
    let resumes = |pass: &UnfinishedPass| both.of(to.other()).points.contains(&pass.until);
    let resumes = both.of(to).unfinished.as_ref().is_some_and(resumes);
    let (way, way_back) = (TransferWay::Everything, WayBack::NotNeeded);
    ConnectOutcome { transfers: vec![Transfer { to, since, way, way_back, resumes }], ..outcome }
}

/// The outcome for two sides that diverged, once a person has chosen the winner: the loser becomes a fork and
/// gets what either side changed. Everything else as [`decide`] says.
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
    // Hosts of the loser have to stop first: no role changes by itself.
    outcome.serves_at_once = outcome.primary == Some(winner);
    outcome
}

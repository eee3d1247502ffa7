//! Two sites that remember every write and every answer: the slow oracle of connect outcomes.

use array::format::{EpochId, Fence, GroupId, Stamp};
use replication::{
    connect::{
        ConnectFinding, ConnectOutcome, HostService, Introduction, SiteRole, WayBack, decide,
        decide_with_winner,
    },
    cut::GroupCut,
    lineage::{Lineage, Side},
};
use std::collections::BTreeSet;

/// A write: its epoch and its stamp. Two epochs may have equal stamps.
pub type Write = (EpochId, Stamp);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    pub lineage: Option<Lineage>,
    /// In order, for each part.
    pub writes: Vec<Vec<Write>>,
    pub told: GroupCut,
    pub role: SiteRole,
    pub fence: u64,
    pub is_serving: bool,
    /// The epoch that it may write, without a new one.
    owned: Option<EpochId>,
    /// It recorded that it answers without the other one.
    is_alone: bool,
    points: Vec<GroupCut>,
    /// Writes that only forks have.
    pub forks: BTreeSet<(usize, Write)>,
}

impl Site {
    pub fn has(&self) -> GroupCut {
        let part = |(index, writes): (usize, &Vec<Write>)| {
            let fork = self.lineage.as_ref().map_or(Stamp(0), |lineage| lineage.current().spans[index].fork);
            writes.last().map_or(fork, |(_, stamp)| fork.max(*stamp))
        };
        GroupCut::new(self.writes.iter().enumerate().map(part).collect())
    }

    fn all(&self) -> BTreeSet<(usize, Write)> {
        let parts = self.writes.iter().enumerate();
        parts.flat_map(|(part, writes)| writes.iter().map(move |write| (part, *write))).collect()
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Write {
        at: usize,
        part: usize,
    },
    /// Answers all that may be answered.
    Answer {
        at: usize,
    },
    /// In sync: records that it goes on alone.
    GoAlone {
        at: usize,
    },
    /// Sends one record.
    Send {
        part: usize,
    },
    /// Loses the last write of a part, if nobody was told of it, and restarts.
    Crash {
        at: usize,
        part: usize,
    },
    Promote {
        at: usize,
    },
    /// Keeps a point.
    Keep {
        at: usize,
    },
    Connect,
    Choose {
        winner: Side,
    },
}

/// Both sites, and what hosts were told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sites {
    pub sites: [Site; 2],
    pub truth: BTreeSet<(usize, Write)>,
    epochs: u8,
    is_sync: bool,
}

fn epoch(number: u8) -> EpochId {
    EpochId([number; 16])
}

fn index(side: Side) -> usize {
    usize::from(side == Side::Theirs)
}

impl Sites {
    pub fn new(parts: usize, is_sync: bool, is_new: bool) -> Self {
        let site = |role, lineage| Site {
            lineage,
            writes: vec![Vec::new(); parts],
            told: GroupCut::zero(parts),
            role,
            fence: 1,
            is_serving: role == SiteRole::Primary,
            owned: (role == SiteRole::Primary).then_some(epoch(1)),
            is_alone: !is_sync,
            points: Vec::new(),
            forks: BTreeSet::new(),
        };
        let lineage = Lineage::new(epoch(1), parts);
        let replica = (!is_new).then_some(lineage.clone());
        let sites = [site(SiteRole::Primary, Some(lineage)), site(SiteRole::Secondary, replica)];
        Self { sites, truth: BTreeSet::new(), epochs: 1, is_sync }
    }

    pub fn steps(&self) -> Vec<Step> {
        let parts = self.sites[0].writes.len();
        let mut steps = vec![Step::Connect];
        for at in [0, 1] {
            for part in 0..parts {
                steps.push(Step::Write { at, part });
                steps.push(Step::Crash { at, part });
            }
            steps.extend([Step::Answer { at }, Step::Promote { at }, Step::Keep { at }]);
            if self.is_sync {
                steps.push(Step::GoAlone { at });
            }
        }
        steps.extend((0..parts).map(|part| Step::Send { part }));
        steps.extend([Side::Ours, Side::Theirs].map(|winner| Step::Choose { winner }));
        steps
    }

    pub fn introduction(&self, at: usize) -> Introduction {
        let site = &self.sites[at];
        Introduction {
            group: GroupId([9; 16]),
            role: site.role,
            fence: Fence(site.fence),
            lineage: site.lineage.clone(),
            has: site.has(),
            told: site.told.clone(),
            is_in_sync: site.role == SiteRole::Primary && !site.is_alone,
            points: site.points.clone(),
            log_from: site.has(),
            last_in_doubt: false,
            unfinished: None,
        }
    }

    pub fn outcome(&self) -> ConnectOutcome {
        decide(&self.introduction(0), &self.introduction(1))
    }

    /// The common prefix of a part.
    pub fn common(&self, part: usize) -> &[Write] {
        let [one, other] = self.sites.each_ref().map(|site| &site.writes[part]);
        let count = one.iter().zip(other).take_while(|(one, other)| one == other).count();
        &one[..count]
    }

    /// Does a step. False if it is not possible.
    pub fn apply(&mut self, step: Step) -> bool {
        match step {
            Step::Write { at, part } => self.write(at, part),
            Step::Answer { at } => self.answer(at),
            Step::GoAlone { at } => {
                let site = &mut self.sites[at];
                site.is_serving && !std::mem::replace(&mut site.is_alone, true)
            }
            Step::Send { part } => self.send(part),
            Step::Crash { at, part } => self.crash(at, part),
            Step::Promote { at } => {
                let site = &mut self.sites[at];
                if site.fence > 3 || site.is_serving || site.lineage.is_none() {
                    return false;
                }
                site.fence += 1;
                (site.role, site.is_serving, site.is_alone, site.owned) =
                    (SiteRole::Primary, true, true, None);
                true
            }
            Step::Keep { at } => {
                let site = &mut self.sites[at];
                let has = site.has();
                let is_new = site.lineage.is_some() && site.points.is_empty();
                if is_new {
                    site.points.push(has);
                }
                is_new
            }
            Step::Connect => {
                self.connect(&self.outcome());
                true
            }
            Step::Choose { winner } => {
                if self.outcome().finding != ConnectFinding::Diverged {
                    return false;
                }
                self.connect(&decide_with_winner(&self.introduction(0), &self.introduction(1), winner));
                true
            }
        }
    }

    fn write(&mut self, at: usize, part: usize) -> bool {
        let site = &mut self.sites[at];
        if !site.is_serving || site.writes[part].len() > 2 {
            return false;
        }
        let has = site.has();
        let lineage = site.lineage.as_mut().expect("a primary has a lineage");
        if site.owned != Some(lineage.current().epoch) {
            self.epochs += 1;
            lineage.promote(epoch(self.epochs), &has).expect("stamps are left");
            site.owned = Some(epoch(self.epochs));
        }
        let current = lineage.current();
        let stamp = current.spans[part].start.max(Stamp(has.stamps()[part].0 + 1));
        let write = (current.epoch, stamp);
        site.writes[part].push(write);
        true
    }

    fn answer(&mut self, at: usize) -> bool {
        if !self.sites[at].is_serving {
            return false;
        }
        let before = self.truth.len();
        if self.sites[at].is_alone {
            let site = &mut self.sites[at];
            self.truth.extend(site.all());
            site.told = site.has();
        } else {
            for part in 0..self.sites[at].writes.len() {
                let answered = self.common(part).to_vec();
                let last = answered.last().map_or(Stamp(0), |(_, stamp)| *stamp);
                let told = &mut self.sites[at].told;
                told.set(part, told.stamps()[part].max(last));
                self.truth.extend(answered.into_iter().map(|write| (part, write)));
            }
        }
        self.truth.len() > before
    }

    fn send(&mut self, part: usize) -> bool {
        let Some(from) = self.sites.iter().position(|site| site.is_serving) else { return false };
        let receiver = [Side::Ours, Side::Theirs][1 - from];
        let is_behind = self.outcome().finding == ConnectFinding::Behind(receiver);
        if !is_behind || self.sites[1 - from].role == SiteRole::Primary {
            return false;
        }
        let source = self.sites[from].clone();
        let target = &mut self.sites[1 - from];
        let Some(&write) = source.writes[part].get(target.writes[part].len()) else { return false };
        let lineage = target.lineage.as_ref().expect("it is behind in one");
        if lineage.current().epoch != write.0 {
            let epochs = source.lineage.as_ref().expect("a primary has one").epochs();
            let end = epochs.iter().position(|epoch| epoch.epoch == write.0).expect("its own") + 1;
            let next = Lineage::from_epochs(epochs[..end].to_vec()).expect("a prefix of a lineage");
            // An epoch begins at a cut: nothing of it is sent before all parts have their fork.
            if !next.ends_at(&target.has()) {
                return false;
            }
            target.lineage = Some(next);
        }
        target.writes[part].push(write);
        target.told = target.told.union(&source.told.common(&target.has()));
        true
    }

    fn crash(&mut self, at: usize, part: usize) -> bool {
        let site = &mut self.sites[at];
        let Some(lineage) = &site.lineage else { return false };
        let fork = lineage.current().spans[part].fork;
        let last = site.writes[part].last().copied();
        let is_lost = last.is_some_and(|write| {
            write.1 > fork && site.role == SiteRole::Primary && !self.truth.contains(&(part, write))
        });
        if is_lost {
            site.writes[part].pop();
        }
        let was_serving = std::mem::replace(&mut site.is_serving, false);
        if site.role == SiteRole::Primary {
            // It forgot up to where it had answered.
            site.told = site.has();
        } else {
            site.told = site.told.common(&site.has());
        }
        let has = site.has();
        site.points.retain(|point| point.is_within(&has));
        is_lost || was_serving
    }

    fn connect(&mut self, outcome: &ConnectOutcome) {
        let is_refused = matches!(outcome.finding, ConnectFinding::Unrelated | ConnectFinding::OtherShape);
        if is_refused || outcome.service == HostService::EachAlone {
            return;
        }
        let fence = self.sites.iter().map(|site| site.fence).max().unwrap();
        for site in &mut self.sites {
            (site.fence, site.is_serving) = (fence, false);
        }
        if let Some(side) = outcome.stands_down {
            self.sites[index(side)].role = SiteRole::Secondary;
        }
        for transfer in &outcome.transfers {
            self.transfer(index(transfer.to), transfer.way_back != WayBack::NotNeeded);
        }
        if let HostService::AtOnce(side) | HostService::AfterTransfer(side) = outcome.service {
            let at = index(side);
            let is_equal = self.sites[0].writes == self.sites[1].writes;
            let site = &mut self.sites[at];
            (site.role, site.is_serving) = (SiteRole::Primary, true);
            if self.is_sync {
                site.is_alone = !is_equal;
            }
        }
    }

    fn transfer(&mut self, to: usize, forks: bool) {
        let source = self.sites[1 - to].clone();
        let target = &mut self.sites[to];
        if forks {
            let lost = target.all().difference(&source.all()).copied().collect::<Vec<_>>();
            target.forks.extend(lost);
            target.writes.clone_from(&source.writes);
            target.lineage.clone_from(&source.lineage);
            target.told = source.told.clone();
            target.points.clear();
        } else {
            for (own, sent) in target.writes.iter_mut().zip(&source.writes) {
                if sent.len() > own.len() {
                    own.clone_from(sent);
                }
            }
            let count = |lineage: &Option<Lineage>| lineage.as_ref().map_or(0, |one| one.epochs().len());
            if count(&source.lineage) > count(&target.lineage) {
                target.lineage.clone_from(&source.lineage);
            }
            target.told = target.told.union(&source.told.common(&target.has()));
        }
    }
}

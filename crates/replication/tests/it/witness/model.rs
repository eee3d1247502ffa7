//! A model of two sites and a witness: messages are lost, delayed and doubled, processes restart, clocks
//! drift. All small interleavings, and long random ones. Each fault that is put in on purpose must be
//! found.

use array::format::{EpochId, GroupId, SiteId};
use replication::witness::{
    group::{WitnessAction, WitnessCondition, WitnessRefusal, WitnessRequest},
    lease::{LeaseFence, LeaseGuard, LeaseSpan},
    ledger::{WitnessAnswer, WitnessLedger},
};
use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
};
use world::{Moment, Random, WallTime};

const GROUP: GroupId = GroupId([9; 16]);
const HEAD: EpochId = EpochId([7; 16]);
const SITES: [SiteId; 2] = [SiteId([1; 16]), SiteId([2; 16])];
const SPAN_MS: u32 = 500;
/// True time of one step.
const STEP_NS: u64 = 100_000_000;
const MESSAGES_MAX: usize = 3;
/// Rates of the clocks of both sites and of the witness, in 50ths of true time, within the drift allowance.
const RATES: [[u64; 3]; 3] = [[49, 50, 50], [50, 49, 50], [50, 50, 49]];

/// A fault that the model must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlantedFault {
    None,
    HolderCountsFromReceipt,
    NoDriftAllowance,
    RestartDoesNotWait,
    WitnessForgetsAlone,
    WitnessForgetsFence,
    RevisionNotCompared,
    FenceNotCompared,
    AnswersAfterRelease,
    AloneBeforeRecorded,
}

#[derive(Clone, Debug)]
enum Message {
    Request(u64, Moment, WitnessRequest),
    Answer(u64, Moment, WitnessRequest, WitnessAnswer),
}

/// A site as the rules of `witness` have it act.
#[derive(Clone, Debug, Default)]
struct Site {
    guard: LeaseGuard,
    /// The fence under which it acts as holder.
    holds: Option<LeaseFence>,
    fence: LeaseFence,
    revision: u64,
    is_alone: bool,
    /// Answers to requests before this number say nothing about *alone* now.
    sync_number: u64,
    /// Answers to requests before this number went to a process that has ended.
    first_number: u64,
}

#[derive(Clone, Debug)]
struct Model {
    fault: PlantedFault,
    rates: [u64; 3],
    /// True time in steps.
    time: u64,
    witness_started: u64,
    ledger: WitnessLedger,
    sites: [Site; 2],
    messages: Vec<Message>,
    next_number: u64,
    /// The site that answered hosts alone and did not begin to be in sync since.
    alone: Option<usize>,
    fence_granted: LeaseFence,
    was_alone: bool,
    /// Sites that could answer, one after the other.
    holders: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
enum ModelStep {
    Send(usize, u8),
    Deliver(usize, bool),
    Lose(usize),
    RestartWitness,
    RestartSite(usize),
    Pass(u64),
}

impl Model {
    fn new(fault: PlantedFault, rates: [u64; 3]) -> Self {
        Self {
            fault,
            rates,
            time: 100,
            witness_started: 0,
            ledger: WitnessLedger::default(),
            sites: Default::default(),
            messages: Vec::new(),
            next_number: 1,
            alone: None,
            fence_granted: LeaseFence(0),
            was_alone: false,
            holders: Vec::new(),
        }
    }

    fn note_reached(&mut self) {
        self.was_alone |= self.alone.is_some();
        for index in 0..2 {
            if self.sites[index].guard.may_answer(self.clock(index)) && self.holders.last() != Some(&index) {
                self.holders.push(index);
            }
        }
    }

    fn clock(&self, party: usize) -> Moment {
        let steps = if party == 2 { self.time - self.witness_started } else { self.time };
        Moment(steps * STEP_NS / 50 * self.rates[party])
    }

    fn steps(&self) -> Vec<ModelStep> {
        let mut steps = vec![ModelStep::RestartWitness, ModelStep::Pass(1), ModelStep::Pass(4)];
        for (index, site) in self.sites.iter().enumerate() {
            steps.push(ModelStep::RestartSite(index));
            if self.messages.len() < MESSAGES_MAX {
                let is_possible = |action: &u8| match action {
                    0 => true,
                    3 => site.holds.is_some() && site.is_alone,
                    4 => site.holds.is_some() && !site.is_alone,
                    _ => site.holds.is_some(),
                };
                steps.extend((0..5).filter(is_possible).map(|action| ModelStep::Send(index, action)));
            }
        }
        for index in 0..self.messages.len() {
            steps.extend([ModelStep::Deliver(index, false), ModelStep::Deliver(index, true)]);
            steps.push(ModelStep::Lose(index));
        }
        steps
    }

    /// Takes a step; an error is a rule that was broken.
    fn step(&mut self, step: ModelStep) -> Result<(), &'static str> {
        match step {
            ModelStep::Pass(steps) => self.time += steps,
            ModelStep::Lose(index) => drop(self.messages.remove(index)),
            ModelStep::RestartSite(index) => {
                self.sites[index] = Site { first_number: self.next_number, ..Site::default() };
            }
            ModelStep::RestartWitness => self.restart_witness(),
            ModelStep::Send(index, action) if self.messages.len() < MESSAGES_MAX => self.send(index, action),
            ModelStep::Send(..) => {}
            ModelStep::Deliver(index, is_doubled) => {
                let message = self.messages[index].clone();
                if !is_doubled {
                    self.messages.remove(index);
                }
                match message {
                    Message::Request(number, sent, request) => self.decide(number, sent, request)?,
                    Message::Answer(number, sent, request, answer) => {
                        self.receive(number, sent, &request, &answer);
                    }
                }
            }
        }
        let may_answer = |index: usize| self.sites[index].guard.may_answer(self.clock(index));
        if may_answer(0) && may_answer(1) { Err("two sites may answer") } else { Ok(()) }
    }

    fn restart_witness(&mut self) {
        let mut groups: std::collections::BTreeMap<_, _> =
            self.ledger.groups().map(|(group, state)| (group, state.clone())).collect();
        if let Some(group) = groups.get_mut(&GROUP) {
            match self.fault {
                PlantedFault::WitnessForgetsAlone => group.condition = WitnessCondition::InSync,
                PlantedFault::WitnessForgetsFence => group.fence = LeaseFence(1),
                _ => {}
            }
        }
        self.witness_started = self.time;
        let waits = self.fault != PlantedFault::RestartDoesNotWait;
        if !waits {
            self.witness_started -= 10;
        }
        self.ledger = WitnessLedger::restarted(groups, Moment(0));
    }

    fn send(&mut self, index: usize, action: u8) {
        let (sent, number) = (self.clock(index), self.next_number);
        self.next_number += 1;
        let site = &mut self.sites[index];
        let action = match action {
            0 => WitnessAction::Acquire {
                span: LeaseSpan::from_ms(SPAN_MS).expect("a valid span"),
                head: HEAD,
                by_person: false,
            },
            1 => WitnessAction::Renew { head: HEAD },
            2 => {
                if self.fault == PlantedFault::AloneBeforeRecorded {
                    (site.is_alone, self.alone) = (true, Some(index));
                }
                WitnessAction::RecordAlone
            }
            3 => {
                (site.is_alone, site.sync_number) = (false, number);
                self.alone = self.alone.filter(|alone| *alone != index);
                WitnessAction::RecordSync
            }
            _ => {
                if self.fault != PlantedFault::AnswersAfterRelease {
                    site.guard.give_up(site.fence);
                }
                site.holds = None;
                WitnessAction::Release { to: SITES[1 - index] }
            }
        };
        let (fence, revision) = (site.fence, site.revision);
        let request = WitnessRequest { group: GROUP, site: SITES[index], fence, revision, action };
        self.messages.push(Message::Request(number, sent, request));
    }

    fn decide(&mut self, number: u64, sent: Moment, request: WitnessRequest) -> Result<(), &'static str> {
        let now = self.clock(2);
        let before = self.ledger.view(GROUP, now).map(|view| view.state);
        let mut decided = request;
        if let Some(before) = &before {
            match self.fault {
                PlantedFault::RevisionNotCompared => decided.revision = before.revision,
                PlantedFault::FenceNotCompared => decided.fence = before.fence,
                _ => {}
            }
        }
        let (answer, _) = self.ledger.apply(&decided, now, WallTime::default());
        let after = answer.view.as_ref().map(|view| &view.state);
        let holder = after.and_then(|state| state.holder);
        let is_acquired = answer.result.is_ok() && matches!(request.action, WitnessAction::Acquire { .. });
        if is_acquired {
            let fence = after.expect("a holder is known").fence;
            if fence <= self.fence_granted {
                return Err("a fence that does not rise");
            }
            self.fence_granted = fence;
            if self.alone.is_some_and(|alone| holder != Some(SITES[alone])) {
                return Err("a grant beside a holder that is alone");
            }
        }
        if self.messages.len() < MESSAGES_MAX {
            self.messages.push(Message::Answer(number, sent, request, answer));
        }
        Ok(())
    }

    fn receive(&mut self, number: u64, sent: Moment, request: &WitnessRequest, answer: &WitnessAnswer) {
        let index = usize::from(request.site == SITES[1]);
        let received = self.clock(index);
        let fault = self.fault;
        let site = &mut self.sites[index];
        let Some(view) = answer.view.as_ref().filter(|_| number >= site.first_number) else { return };
        site.fence = site.fence.max(view.state.fence);
        site.revision = site.revision.max(view.state.revision);
        match (answer.result, request.action) {
            (Ok(()), WitnessAction::Release { .. } | WitnessAction::Look) => {}
            (Ok(()), action) => {
                let counted = if fault == PlantedFault::HolderCountsFromReceipt { received } else { sent };
                let allowed =
                    if fault == PlantedFault::NoDriftAllowance { SPAN_MS * 50 / 49 + 1 } else { SPAN_MS };
                let fence = view.state.fence;
                site.guard.grant(counted, fence, LeaseSpan::from_ms(allowed).expect("a valid span"));
                if matches!(action, WitnessAction::Acquire { .. }) && site.guard.may_answer(received) {
                    site.holds = Some(fence);
                    site.is_alone |= view.state.condition != WitnessCondition::InSync;
                }
                let is_current = site.holds == Some(fence) && number > site.sync_number;
                if action == WitnessAction::RecordAlone && is_current {
                    site.is_alone = true;
                    if site.guard.may_answer(received) {
                        self.alone = Some(index);
                    }
                }
            }
            (Err(WitnessRefusal::NotHolder), _) if site.holds == Some(request.fence) => {
                site.guard.give_up(request.fence);
                site.holds = None;
            }
            (Err(_), _) => {}
        }
    }

    fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        format!("{self:?}").hash(&mut hasher);
        hasher.finish()
    }
}

/// A random step. Messages mostly arrive, and restarts are rare, or no site ever holds a lease for long.
fn draw_step(model: &Model, random: &mut Random) -> ModelStep {
    if !model.messages.is_empty() && random.below(3) == 0 {
        return ModelStep::Deliver(random.below(model.messages.len() as u64) as usize, false);
    }
    let steps = model.steps();
    let step = steps[random.below(steps.len() as u64) as usize];
    let is_rare = matches!(step, ModelStep::RestartWitness | ModelStep::RestartSite(_) | ModelStep::Lose(_));
    if is_rare && random.below(3) > 0 { ModelStep::Send(random.below(2) as usize, 0) } else { step }
}

/// A walk of random steps; the steps up to the broken rule if one breaks.
fn walk(seed: u64, fault: PlantedFault) -> Result<Model, (String, Vec<ModelStep>)> {
    let mut random = Random::new(seed, "witness model");
    let mut model = Model::new(fault, RATES[(seed % 3) as usize]);
    let mut taken = Vec::new();
    for _ in 0..120 {
        let step = draw_step(&model, &mut random);
        taken.push(step);
        model.step(step).map_err(|broken| (broken.to_owned(), taken.clone()))?;
        model.note_reached();
    }
    Ok(model)
}

/// Takes all steps from `model` on, up to `depth` of them.
fn explore(model: &Model, depth: u32, seen: &mut HashSet<(u64, u32)>, path: &mut Vec<ModelStep>) {
    if depth == 0 || !seen.insert((model.key(), depth)) {
        return;
    }
    for step in model.steps() {
        let mut next = model.clone();
        path.push(step);
        if let Err(broken) = next.step(step) {
            panic!("{broken} after {path:?}");
        }
        explore(&next, depth - 1, seen, path);
        path.pop();
    }
}

#[test]
fn long_random_interleavings_break_no_rule() {
    for seed in 0..10_000 {
        if let Err((broken, steps)) = walk(seed, PlantedFault::None) {
            panic!("seed {seed}: {broken} after {steps:?}");
        }
    }
}

#[test]
fn all_small_interleavings_break_no_rule() {
    if !crate::is_full_run("all small interleavings of a witness are of") {
        return;
    }
    let mut states = 0;
    for rates in RATES {
        // From nothing, and from a holder whose lease runs.
        let empty = Model::new(PlantedFault::None, rates);
        let mut held = empty.clone();
        for step in [ModelStep::Send(0, 0), ModelStep::Deliver(0, false), ModelStep::Deliver(0, false)] {
            held.step(step).expect("no rule is broken");
        }
        assert!(held.sites[0].guard.may_answer(held.clock(0)));
        for model in [empty, held] {
            let mut seen = HashSet::new();
            explore(&model, 6, &mut seen, &mut Vec::new());
            states += seen.len();
        }
    }
    assert!(states > 20_000, "the model moves: {states} states");
}

#[test]
fn each_planted_fault_is_found() {
    use PlantedFault::*;
    for fault in [
        HolderCountsFromReceipt,
        NoDriftAllowance,
        RestartDoesNotWait,
        WitnessForgetsAlone,
        WitnessForgetsFence,
        RevisionNotCompared,
        FenceNotCompared,
        AnswersAfterRelease,
        AloneBeforeRecorded,
    ] {
        let found = (0..200_000).find_map(|seed| walk(seed, fault).err());
        assert!(found.is_some(), "{fault:?} was not found");
    }
}

#[test]
fn the_model_reaches_what_it_is_about() {
    let mut runs = [0; 3];
    for seed in 0..1_000 {
        let model = walk(seed, PlantedFault::None).expect("no rule is broken");
        runs[0] += u32::from(model.was_alone);
        runs[1] += u32::from(model.holders.len() > 1);
        runs[2] += u32::from(model.holders.len() > 2);
    }
    assert!(runs.iter().all(|runs| *runs > 20), "alone, one and two changes of the holder: {runs:?}");
}

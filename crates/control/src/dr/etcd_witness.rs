//! A witness that is an etcd cluster: the decisions of the built-in witness, kept by etcd's transactions and leases.
//!
//! Invariants:
//!
//! 1. A decision is written only if the group is as it was read: one transaction compares and writes.
//! 2. The key `held` of a group is attached to a lease of etcd, which is no shorter than the group's. While it is there, the
//!    group's lease may be held; when that has ended, etcd deletes it.
//! 3. A lease counts from before the first byte of the request was sent.

use super::{
    etcd_access::EtcdCluster,
    etcd_gateway::{EtcdGateway, EtcdValue},
};
use array::format::GroupId;
use replication::witness::{
    client::{WitnessReply, WitnessSilence, WitnessStore},
    codec::{decode_group, encode_group},
    group::{LeaseEffect, WitnessAction, WitnessGroup, WitnessRefusal, WitnessRequest},
    ledger::{WitnessAnswer, WitnessView},
};
use std::{cell::RefCell, rc::Rc, time::Duration};
use world::{LocalFuture, Network, World, with_deadline};

/// Time limit of a request at one member.
const ATTEMPT_MAX: Duration = Duration::from_millis(700);
/// Decisions of others that may come between.
const TRIES: usize = 4;
const KEYS: &str = "spindle/dr/";

/// A client of a cluster.
#[derive(Clone)]
pub(super) struct EtcdWitness(Rc<EtcdState>);

struct EtcdState {
    world: World,
    network: Rc<dyn Network>,
    cluster: EtcdCluster,
    /// The connection of the last request that was answered, and its member: it is used again.
    kept: RefCell<Option<(usize, EtcdGateway)>>,
}

/// A group, as etcd has it.
struct KnownGroup {
    state: Option<(WitnessGroup, i64)>,
    /// The lease and the revision of the key that is there while the group's lease may be held.
    held: Option<(i64, i64)>,
}

impl EtcdWitness {
    pub fn new(world: &World, network: Rc<dyn Network>, cluster: EtcdCluster) -> Self {
        assert!(!cluster.members.is_empty(), "a witness has an address");
        Self(Rc::new(EtcdState { world: world.clone(), network, cluster, kept: RefCell::default() }))
    }
}

impl WitnessStore for EtcdWitness {
    fn ask(&self, request: WitnessRequest) -> LocalFuture<Result<WitnessReply, WitnessSilence>> {
        let state = Rc::clone(&self.0);
        Box::pin(async move {
            let sent = state.world.now();
            let answer = state.at_some_member(async |gateway| state.decide(gateway, &request).await).await?;
            Ok(WitnessReply { sent, answer })
        })
    }

    fn list(&self) -> LocalFuture<Result<Vec<WitnessView>, WitnessSilence>> {
        let state = Rc::clone(&self.0);
        Box::pin(async move { state.at_some_member(async |gateway| list(gateway).await).await })
    }
}

impl EtcdState {
    /// Does work at the first member that answers.
    async fn at_some_member<T>(
        &self,
        work: impl AsyncFn(&mut EtcdGateway) -> Result<T, String>,
    ) -> Result<T, WitnessSilence> {
        let mut members: Vec<usize> = (0..self.cluster.members.len()).collect();
        let kept = self.kept.borrow_mut().take();
        if let Some((index, mut gateway)) = kept {
            match self.within_time(work(&mut gateway)).await {
                Some(Ok(done)) => {
                    self.keep(index, gateway);
                    return Ok(done);
                }
                // It may have ended while nobody used it.
                Some(Err(_)) => {}
                // One that hangs is tried last.
                None => members.sort_by_key(|member| *member == index),
            }
        }
        let mut silence = None;
        for index in members {
            let member = &self.cluster.members[index];
            let attempt = async {
                let around = (&self.world, &*self.network);
                let mut gateway = EtcdGateway::connect(around, &self.cluster, member).await?;
                let done = work(&mut gateway).await?;
                Ok((gateway, done))
            };
            let why = match self.within_time(attempt).await {
                Some(Ok((gateway, done))) => {
                    self.keep(index, gateway);
                    return Ok(done);
                }
                Some(Err(reason)) => reason,
                None => format!("no answer in {} ms", ATTEMPT_MAX.as_millis()),
            };
            silence = Some(WitnessSilence { address: format!("{}{member}", self.cluster.scheme()), why });
        }
        Err(silence.expect("a witness has an address"))
    }

    async fn within_time<T>(
        &self,
        attempt: impl Future<Output = Result<T, String>>,
    ) -> Option<Result<T, String>> {
        with_deadline(self.world.sleep(ATTEMPT_MAX), attempt).await
    }

    fn keep(&self, member: usize, gateway: EtcdGateway) {
        *self.kept.borrow_mut() = Some((member, gateway));
    }

    async fn decide(
        &self,
        gateway: &mut EtcdGateway,
        request: &WitnessRequest,
    ) -> Result<WitnessAnswer, String> {
        for _ in 0..TRIES {
            let known = read(gateway, request.group).await?;
            let decided = self.decide_on(&known, request);
            let (mut next, effect) = match decided {
                Ok(decided) => decided,
                Err(refusal) => return Ok(answer(Err(refusal), request.group, &known)),
            };
            let is_same = known.state.as_ref().is_some_and(|(state, _)| *state == next);
            let lease = match effect {
                LeaseEffect::None => None,
                LeaseEffect::Runs => renewed(gateway, &known, &next).await?,
            };
            if is_same && lease.is_none() {
                return Ok(answer(Ok(()), request.group, &known));
            }
            if !is_same {
                next.note_word(request.site, self.world.wall());
            }
            let bytes = encode_group(request.group, &next);
            let [state_key, held_key] = keys(request.group);
            let compared = [
                (state_key.as_str(), known.state.as_ref().map_or(0, |(_, revision)| *revision)),
                (held_key.as_str(), known.held.map_or(0, |(_, revision)| revision)),
            ];
            let mut written = vec![(state_key.as_str(), bytes, 0)];
            written.extend(lease.map(|lease| (held_key.as_str(), Vec::new(), lease)));
            if gateway.write_if_unchanged(&compared, &written).await? {
                let known = KnownGroup { state: Some((next, 0)), held: Some((0, 0)) };
                return Ok(answer(Ok(()), request.group, &known));
            }
        }
        Err("others decided about the group at the same time".to_owned())
    }

    fn decide_on(
        &self,
        known: &KnownGroup,
        request: &WitnessRequest,
    ) -> Result<(WitnessGroup, LeaseEffect), WitnessRefusal> {
        let wall = self.world.wall();
        match (&known.state, request.action) {
            (Some((state, _)), _) => state.decide(request, known.held.is_some(), wall),
            (None, WitnessAction::Acquire { span, head, .. }) => {
                WitnessGroup::new(span, head).decide(request, known.held.is_some(), wall)
            }
            (None, _) => Err(WitnessRefusal::Unknown),
        }
    }
}

/// Extends the lease of a group, if it has one that has not ended; otherwise a new one, to which its key is to be attached.
async fn renewed(
    gateway: &mut EtcdGateway,
    known: &KnownGroup,
    next: &WitnessGroup,
) -> Result<Option<i64>, String> {
    let span = next.span.at_witness();
    if let Some((lease, _)) = known.held
        && gateway.keep_alive(lease).await? >= span
    {
        return Ok(None);
    }
    let (lease, given) = gateway.grant(span).await?;
    if given < span {
        return Err(format!("etcd gave a lease of {} s", given.as_secs()));
    }
    Ok(Some(lease))
}

/// Keys of a group: its state, and the one that is there while its lease may be held.
fn keys(group: GroupId) -> [String; 2] {
    ["state", "held"].map(|key| format!("{KEYS}{group}/{key}"))
}

async fn read(gateway: &mut EtcdGateway, group: GroupId) -> Result<KnownGroup, String> {
    let [state_key, held_key] = keys(group);
    let [state, held] = gateway.read_together([&state_key, &held_key]).await?;
    let state =
        state.map(|value| state_of(group, &value).map(|state| (state, value.revision))).transpose()?;
    Ok(KnownGroup { state, held: held.map(|value| (value.lease, value.revision)) })
}

fn state_of(group: GroupId, value: &EtcdValue) -> Result<WitnessGroup, String> {
    let (of, state) = decode_group(&value.bytes).map_err(|error| format!("its state of {group}: {error}"))?;
    if of == group { Ok(state) } else { Err(format!("its state of {group} is that of {of}")) }
}

fn answer(result: Result<(), WitnessRefusal>, group: GroupId, known: &KnownGroup) -> WitnessAnswer {
    let view = known.state.as_ref().map(|(state, _)| view(group, state, known.held.is_some()));
    WitnessAnswer { result, view }
}

/// Of a lease that may be held the whole is left, at most: etcd does not say it with the key.
fn view(group: GroupId, state: &WitnessGroup, is_held: bool) -> WitnessView {
    WitnessView { group, state: state.clone(), left_ms: if is_held { state.span.ms() } else { 0 } }
}

async fn list(gateway: &mut EtcdGateway) -> Result<Vec<WitnessView>, String> {
    let all = gateway.read_all(KEYS).await?;
    let mut views = Vec::new();
    for (key, value) in &all {
        let Some(name) = key.strip_suffix("/state") else { continue };
        let (group, state) = decode_group(&value.bytes).map_err(|error| format!("its key {key}: {error}"))?;
        let is_held = all.iter().any(|(other, _)| other.strip_suffix("/held") == Some(name));
        views.push(view(group, &state, is_held));
    }
    views.sort_by_key(|view| view.group);
    Ok(views)
}

//! Comparisons of a group with its secondary, begun by a person at the primary.
//!
//! Invariant: a group has one comparison at most; the last one is kept until the next begins, or the pool is closed.

use super::{hosted_group::HostedGroup, pool_groups::PoolDrGroups};
use array::format::{BLOCK_BYTES, GroupId, VolumeId};
use futures_util::future::select;
use replication::{
    primary::PrimaryGroup,
    verification::{ComparisonProgress, VerifyError},
};
use report::Refusal;
use std::{cell::RefCell, pin::pin, rc::Rc, time::Duration};
use tokio::sync::Notify;
use world::{Moment, WallTime};

/// A comparison under way, or the last one.
#[derive(Clone, Debug, PartialEq)]
pub struct VerificationView {
    /// UUID, of the one who asked for it.
    pub verification: [u8; 16],
    pub began: WallTime,
    pub ended: Option<WallTime>,
    pub compared_bytes: u64,
    pub total_bytes: u64,
    /// Time that it still takes at the rate so far.
    pub left: Option<Duration>,
    pub different_blocks: u64,
    /// Volume, offset and length of the first ranges that differ.
    pub different: Vec<(VolumeId, u64, u64)>,
    /// The reason for which it has no answer.
    pub problem: Option<String>,
}

struct Verification {
    verification: [u8; 16],
    began: (Moment, WallTime),
    ended: Option<WallTime>,
    problem: Option<String>,
    progress: Rc<ComparisonProgress>,
    given_up: Rc<Notify>,
}

/// The comparison of one group.
#[derive(Default)]
pub(super) struct VerificationPlace(RefCell<Option<Verification>>);

impl HostedGroup {
    fn begin_verification(self: &Rc<Self>, verification: [u8; 16]) -> Result<(), Refusal> {
        let name = &self.settings().name;
        if let Some(last) = &*self.verification.0.borrow() {
            if last.verification == verification {
                return Ok(());
            }
            if last.ended.is_none() {
                let next = "wait for its end; 'spindle dr status' shows it";
                return Err(Refusal::new(format!("{name} is being compared already"), next));
            }
        }
        let Some(group) = self.leader() else {
            let problem = format!("{name} is secondary here");
            return Err(Refusal::new(problem, "say it at the site that is primary"));
        };
        let (progress, given_up) = (Rc::<ComparisonProgress>::default(), Rc::<Notify>::default());
        *self.verification.0.borrow_mut() = Some(Verification {
            verification,
            began: (self.world.now(), self.world.wall()),
            ended: None,
            problem: None,
            progress: Rc::clone(&progress),
            given_up: Rc::clone(&given_up),
        });
        let own = Rc::clone(self);
        self.world.spawn("comparison of a DR group", async move {
            let compared = {
                let compared = pin!(group.verify(&progress));
                match select(compared, pin!(given_up.notified())).await {
                    futures_util::future::Either::Left((compared, _)) => compared.map_err(Some),
                    futures_util::future::Either::Right(_) => Err(None),
                }
            };
            own.end_verification(&group, compared).await;
        });
        Ok(())
    }

    async fn end_verification(&self, group: &PrimaryGroup, compared: Result<(), Option<VerifyError>>) {
        if let Err(None) = &compared {
            // It was given up within: its cut is left.
            let _ = group.forget_verify_cut().await;
        }
        let problem = compared.err().map(|error| match error {
            Some(error) => error.to_string(),
            None => "it was given up".to_owned(),
        });
        let mut place = self.verification.0.borrow_mut();
        let Some(last) = place.as_mut() else { return };
        let blocks = last.progress.different_blocks.get();
        if blocks > 0 {
            self.warn(format!(
                "{blocks} blocks differ from those of the other site, as of one cut; 'spindle dr verify' names them. See the \
                 drives at both sites; a group that is made again copies everything"
            ));
        }
        (last.ended, last.problem) = (Some(self.world.wall()), problem);
    }

    /// The comparison for people.
    pub(super) fn verification_view(&self) -> Option<VerificationView> {
        let place = self.verification.0.borrow();
        let last = place.as_ref()?;
        let progress = &last.progress;
        let (compared, total) = (progress.compared_bytes.get(), progress.total_bytes.get());
        let elapsed = self.world.now().since(last.began.0);
        let is_known = last.ended.is_none() && compared > 0;
        let left = is_known.then(|| elapsed.mul_f64(total.saturating_sub(compared) as f64 / compared as f64));
        let named = progress.named.borrow();
        let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
        let different = named.iter().map(|range| {
            (range.volume, bytes(range.blocks.start), bytes(range.blocks.end - range.blocks.start))
        });
        Some(VerificationView {
            verification: last.verification,
            began: last.began.1,
            ended: last.ended,
            compared_bytes: compared,
            total_bytes: total,
            left,
            different_blocks: progress.different_blocks.get(),
            different: different.collect(),
            problem: last.problem.clone(),
        })
    }
}

impl PoolDrGroups {
    /// Begins to compare a group that is primary here with the other site's. Repeated with its UUID, it goes on.
    ///
    /// # Errors
    ///
    /// It is secondary here, or being compared.
    pub fn begin_verification(&self, group: GroupId, verification: [u8; 16]) -> Result<(), Refusal> {
        self.find(group)?.begin_verification(verification)
    }

    /// Gives a comparison up.
    pub fn give_up_verification(&self, group: GroupId) -> Result<(), Refusal> {
        let hosted = self.find(group)?;
        let place = hosted.verification.0.borrow();
        place.iter().filter(|last| last.ended.is_none()).for_each(|last| last.given_up.notify_one());
        Ok(())
    }

    /// The comparison of a group, under way or the last one.
    pub fn verification(&self, group: GroupId) -> Result<Option<VerificationView>, Refusal> {
        Ok(self.find(group)?.verification_view())
    }
}

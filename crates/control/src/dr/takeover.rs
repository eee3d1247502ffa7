//! The ways in which the secondary of a group becomes primary without being handed it: a person says so, or the witness
//! gives it the right.
//!
//! Invariants:
//!
//! 1. With a witness, this side is promoted only after that gave it the right, or a person vouched that the other side is
//!    off.
//! 2. Without a person it asks for the right only while no channel runs, and not before its promise to the primary ends.

use super::hosted_group::HostedGroup;
use array::format::{EpochId, Fence};
use replication::{
    secondary::{PromotionError, SecondaryGroup},
    witness::{
        group::WitnessRefusal,
        keeper::{KeeperError, LeaseKeeper},
    },
};
use report::Refusal;
use std::time::Duration;
use world::Moment;

/// Pause between two requests for the right.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// Time beyond a lease for which a person's order waits for the right.
const ASK_BEYOND_LEASE: Duration = Duration::from_secs(1);

/// An order to become primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PromotionOrder {
    /// By the witness, if there is one.
    Ordinary,
    /// A person vouches that the other side is off: the witness is not asked.
    PeerIsOff,
}

impl HostedGroup {
    /// The moment at which this side asks for the right without a person; `None` if it does not.
    pub(super) fn asks_from(&self, group: &SecondaryGroup) -> Option<Moment> {
        group.may_ask_from().map(|from| from.max(self.asks_next.get()))
    }

    /// Asks the witness for the right, and takes over with it. False if the primary may be alive, or went on alone.
    pub(super) async fn try_to_take_over(&self, group: &SecondaryGroup) -> bool {
        self.asks_next.set(self.world.now() + ASK_EVERY);
        let asked = group.ask_for_right().await;
        match asked {
            Ok(()) => {}
            Err(KeeperError::Refused(WitnessRefusal::Alone)) if !self.has_warned.replace(true) => {
                self.warn(
                    "the other site went on alone before it was lost, as the witness says: what it wrote since is not here, so \
                     this site does not take over without a person; see 'spindle dr status'",
                );
                return false;
            }
            Err(_) => return false,
        }
        match self.become_primary(group).await {
            Ok(()) => {
                self.has_warned.set(false);
                self.occurred(
                    "dr_promoted",
                    "this site took over without a person: the primary has not been heard of, and its right has ended. Hosts are \
                     served here, alone, until the other site is back",
                );
                true
            }
            Err(refusal) => {
                self.warn(format!("this site cannot take over: {refusal}"));
                self.give_right_back(group).await;
                false
            }
        }
    }

    /// Makes this side primary, as a person orders it.
    pub(super) async fn promote(&self, group: &SecondaryGroup, order: PromotionOrder) -> Result<(), Refusal> {
        let keeper = self.member.keeper().filter(|_| order == PromotionOrder::Ordinary);
        if let Some(keeper) = keeper {
            self.acquire_for_person(group, &keeper).await?;
        }
        let promoted = self.become_primary(group).await;
        if promoted.is_err() {
            self.give_right_back(group).await;
        }
        promoted
    }

    /// Waits at most until a lease that was given before has ended.
    async fn acquire_for_person(&self, group: &SecondaryGroup, keeper: &LeaseKeeper) -> Result<(), Refusal> {
        let name = &self.settings.name;
        let head = group.member().state().lineage.map(|lineage| lineage.current().epoch);
        let head = head.ok_or_else(|| self.promotion_refusal(PromotionError::Empty))?;
        let until = self.world.now() + keeper.span() + ASK_BEYOND_LEASE;
        loop {
            let error = match keeper.acquire(head, true).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if self.world.now() >= until {
                let (problem, next) = match &error {
                    KeeperError::Refused(WitnessRefusal::Held) => (
                        format!("{name}: the other site holds the right, as the witness says: it is alive"),
                        format!(
                            "'spindle failover {name}' moves the group in order; or stop the server there"
                        ),
                    ),
                    error => (
                        format!("{name}: {error}"),
                        format!(
                            "see that the witness runs; or, if the other site is off for certain, say 'spindle failover {name} \
                             ⟨unplanned⟩ ⟨peer-is-off⟩'"
                        ),
                    ),
                };
                return Err(Refusal::new(problem, next));
            }
            self.world.sleep(ASK_EVERY).await;
        }
    }

    async fn become_primary(&self, group: &SecondaryGroup) -> Result<(), Refusal> {
        let mut epoch = [0; 16];
        self.world.fill_secret(&mut epoch);
        let fence = Fence(self.member.state().fence.0 + 1);
        let promoted = group.promote(EpochId(epoch), fence).await;
        promoted.map(drop).map_err(|error| self.promotion_refusal(error))
    }

    /// The other site may have the right, if it is there.
    async fn give_right_back(&self, group: &SecondaryGroup) {
        if let Some(keeper) = group.member().keeper().filter(|keeper| keeper.is_holder()) {
            // Without an answer the lease ends.
            let _ = keeper.release().await;
        }
    }

    fn promotion_refusal(&self, error: PromotionError) -> Refusal {
        match error {
            PromotionError::Pool(error) => self.refusal(&error),
            error => {
                let next = "wait until the first copy is complete";
                Refusal::new(format!("{}: {error}", self.settings.name), next)
            }
        }
    }
}

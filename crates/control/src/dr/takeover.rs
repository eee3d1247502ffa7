//! The ways in which the secondary of a group becomes primary without being handed it: a person says so, or the witness
//! gives it the right.
//!
//! Invariants:
//!
//! 1. With a witness, this side is promoted only after that gave it the right, or a person vouched that the other side is
//!    off.
//! 2. A promotion that may lose what hosts were answered withholds the volumes from those that were connected at the other
//!    side, before it is recorded. With a witness it may not, unless that side went on alone.
//! 3. Without a person it asks for the right only while no channel runs, and not before its promise to the primary ends.

use super::{
    group_clients::{ClientsOfVolumes, client_names},
    hosted_group::HostedGroup,
};
use crate::planted::{self, DrBug};
use array::format::{EpochId, Fence};
use replication::{
    secondary::{GoingBackError, KeptState, PromotionError, SecondaryGroup},
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

/// An order of a person to become primary.
#[derive(Debug)]
pub(super) struct PromotionOrder {
    /// A person vouches that the other side is off: the witness is not asked.
    pub is_peer_off: bool,
    /// Clients that were connected there: the volumes are withheld from them, unless nothing that hosts were answered is lost.
    pub clients: ClientsOfVolumes,
    /// As of this state, which is kept here: everything newer is lost, and stays as a fork.
    pub at: Option<KeptState>,
}

/// A promotion that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Promoted {
    /// Something that hosts were answered may be lost.
    pub may_have_lost: bool,
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
                group.return_right().await;
                false
            }
        }
    }

    /// Makes this side primary, as a person orders it.
    pub(super) async fn promote(
        &self,
        group: &SecondaryGroup,
        order: PromotionOrder,
    ) -> Result<Promoted, Refusal> {
        let order_at = order.at.as_ref().map(|state| state.name.clone());
        let promoted = self.promote_whole_or_not(group, &order).await;
        match &promoted {
            Ok(Promoted { may_have_lost: true }) => {
                let withheld = match client_names(&order.clients) {
                    names if names.is_empty() => {
                        "no host is known that was connected at the other site".to_owned()
                    }
                    names => format!("withheld from those that were connected there: {names}"),
                };
                let lost = match &order_at {
                    Some(name) => format!("as of state {name}, without everything newer, which is kept as a fork"),
                    None => "that may have lost what hosts were answered".to_owned(),
                };
                let text = format!("primary here, by an unplanned failover {lost}; {withheld}");
                self.occurred("dr_promoted", &text);
            }
            Ok(_) => self.occurred(
                "dr_promoted",
                "primary here, by an unplanned failover; nothing that hosts were answered is lost, as the witness knows",
            ),
            Err(_) => group.return_right().await,
        }
        promoted
    }

    async fn promote_whole_or_not(
        &self,
        group: &SecondaryGroup,
        order: &PromotionOrder,
    ) -> Result<Promoted, Refusal> {
        let keeper = self.member.keeper().filter(|_| !order.is_peer_off);
        if let Some(state) = &order.at {
            group.check_going_back(state).map_err(|error| self.going_back_refusal(state, error))?;
        }
        if let Some(keeper) = &keeper
            && order.at.is_none()
            && self.acquire_for_person(group, keeper, false).await?
        {
            self.become_primary(group).await?;
            return Ok(Promoted { may_have_lost: false });
        }
        if planted::is_in_dr(DrBug::WithheldAfterPromotion) {
            self.become_primary_with_loss(group).await?;
            self.withhold(&order.clients).await?;
            return Ok(Promoted { may_have_lost: true });
        }
        let new = self.withhold(&order.clients).await?;
        let promoted = async {
            if let Some(keeper) = &keeper {
                self.acquire_for_person(group, keeper, true).await?;
            }
            match &order.at {
                Some(state) => self.become_primary_as_of(group, state).await,
                None => self.become_primary_with_loss(group).await,
            }
        };
        match promoted.await {
            Ok(()) => Ok(Promoted { may_have_lost: true }),
            Err(refusal) => {
                self.take_withholding_back(new).await;
                Err(refusal)
            }
        }
    }

    /// Waits at most until a lease that was given before has ended. False if the other site may have answered what is not
    /// here, and the caller does not accept that.
    async fn acquire_for_person(
        &self,
        group: &SecondaryGroup,
        keeper: &LeaseKeeper,
        accepts_loss: bool,
    ) -> Result<bool, Refusal> {
        let name = &self.settings().name;
        let head = group.member().state().lineage.map(|lineage| lineage.current().epoch);
        let head = head.ok_or_else(|| self.promotion_refusal(PromotionError::Empty))?;
        let until = self.world.now() + keeper.span() + ASK_BEYOND_LEASE;
        loop {
            let asked = async {
                keeper.acquire(head, accepts_loss).await?;
                // A person's attempt before this one may have taken the right from a site that was alone.
                let is_whole = keeper.took_whole();
                keeper.record_alone().await?;
                Ok(accepts_loss || is_whole)
            };
            let error = match asked.await {
                Ok(is_given) => return Ok(is_given),
                Err(KeeperError::Refused(WitnessRefusal::Alone | WitnessRefusal::OtherHistory))
                    if !accepts_loss =>
                {
                    return Ok(false);
                }
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
        let (epoch, fence) = self.next_epoch();
        if self.settings().joint.is_some() {
            return self.promote_part(group, (epoch, fence)).await;
        }
        let promoted = group.promote(epoch, fence).await;
        promoted.map(drop).map_err(|error| self.promotion_refusal(error))
    }

    async fn become_primary_with_loss(&self, group: &SecondaryGroup) -> Result<(), Refusal> {
        let (epoch, fence) = self.next_epoch();
        if self.settings().joint.is_some() {
            return self.promote_part(group, (epoch, fence)).await;
        }
        let promoted = group.promote_with_loss(epoch, fence).await;
        promoted.map(drop).map_err(|error| self.promotion_refusal(error))
    }

    async fn promote_part(
        &self,
        group: &SecondaryGroup,
        (epoch, fence): (EpochId, Fence),
    ) -> Result<(), Refusal> {
        let promoted = group.promote_part(epoch, fence).await;
        promoted.map(drop).map_err(|error| match error {
            GoingBackError::Promotion(error) => self.promotion_refusal(error),
            GoingBackError::Pool(error) => self.refusal(&error),
            GoingBackError::Empty | GoingBackError::GivenUp => self.promotion_refusal(PromotionError::Empty),
        })
    }

    async fn become_primary_as_of(&self, group: &SecondaryGroup, state: &KeptState) -> Result<(), Refusal> {
        let promoted = group.promote_as_of(state, self.next_epoch()).await;
        promoted.map(drop).map_err(|error| self.going_back_refusal(state, error))
    }

    fn next_epoch(&self) -> (EpochId, Fence) {
        let mut epoch = [0; 16];
        self.world.fill_secret(&mut epoch);
        (EpochId(epoch), Fence(self.member.state().fence.0 + 1))
    }

    fn going_back_refusal(&self, state: &KeptState, error: GoingBackError) -> Refusal {
        match error {
            GoingBackError::Pool(error) => self.refusal(&error),
            GoingBackError::Promotion(error) => self.promotion_refusal(error),
            GoingBackError::Empty => self.promotion_refusal(PromotionError::Empty),
            GoingBackError::GivenUp => Refusal::new(
                format!("{}: state {} cannot be promoted: {error}", self.settings().name, state.name),
                "choose another one; this one can be cloned or exported",
            ),
        }
    }

    fn promotion_refusal(&self, error: PromotionError) -> Refusal {
        match error {
            PromotionError::Pool(error) => self.refusal(&error),
            PromotionError::PartMissing => Refusal::new(
                format!("{}: {}", self.settings().name, PromotionError::PartMissing),
                "see 'spindle dr status'; parts are promoted together, as they fit",
            ),
            error => {
                let next = "wait until the first copy is complete";
                Refusal::new(format!("{}: {error}", self.settings().name), next)
            }
        }
    }
}

//! Sets as other threads see them, and how those give orders to their keepers.

use super::wanted::WantedSet;
use array::format::SiteId;
use protect::{
    catalogue::{CatalogueExtract, SetId},
    set_keeper::{BackupView, PersonOrder, ReplicaVerdict, ReplicaVerification, SetView},
};
use report::Refusal;
use std::{fmt, sync::Arc};
use tokio::sync::{mpsc, oneshot};

/// Orders that wait for one set; more are refused.
pub(crate) const SET_ORDERS_MAX: usize = 16;

/// A set of the site file, with what its keeper knows.
#[derive(Clone, Debug)]
pub struct ServedSet {
    pub wanted: WantedSet,
    pub keeping: SetKeeping,
}

impl ServedSet {
    /// Seconds for which the backup of this point is locked yet; `None` if it is not, or that is not known here.
    pub(crate) fn locked_for_s(&self, point: &str) -> Option<i64> {
        let SetKeeping::Server { view: Some(view), .. } = &self.keeping else { return None };
        let has_point = |backup: &&BackupView| backup.points.iter().any(|known| known.id == point);
        view.backups.iter().find(has_point)?.locked_for_s
    }
}

/// The keeper of a set.
#[derive(Clone, Debug)]
pub enum SetKeeping {
    /// An agent on the mail host.
    Agent,
    Server {
        /// As of the last look, a minute old at most; `None` before the first one.
        view: Option<Box<SetView>>,
        /// The reason why its catalogue is not open.
        problem: Option<String>,
        orders: SetOrders,
        /// `None` if no volume of it lies in a DR group.
        replication: Option<Box<SetReplication>>,
    },
}

/// The part of a site in the keeping of a set whose volumes lie in DR groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetRole {
    /// It keeps the set: its groups are primary here.
    Keeps,
    /// Another site keeps it.
    Follows,
    /// Nobody keeps it here now; who does is not clear yet.
    Waits,
    /// Its groups are primary at two sites.
    Divided,
}

/// A set whose volumes lie in DR groups.
#[derive(Clone, Debug, PartialEq)]
pub struct SetReplication {
    pub role: SetRole,
    pub peers: Vec<SiteId>,
    /// Names of the peers.
    pub sites: String,
    /// The reason for its role, or what is wrong with it; may be empty.
    pub text: String,
    /// The extract of this site's catalogue, for the others.
    pub extract: Option<Arc<CatalogueExtract>>,
    /// The last one that came from the other site.
    pub told: Option<Arc<CatalogueExtract>>,
    /// The verification that this site wants from the other one.
    pub wanted: Option<Arc<ReplicaVerification>>,
    /// The verification that the other site wants from this one.
    pub asked: Option<Arc<ReplicaVerification>>,
    /// This site's verdict for the other one.
    pub verdict: Option<Arc<ReplicaVerdict>>,
}

impl SetReplication {
    /// The next step of a person whose order is not followed here.
    pub fn next(&self) -> String {
        match self.role {
            SetRole::Follows => {
                format!(
                    "give the order at site {}, or move the group here first: 'spindle failover GROUP'",
                    self.sites
                )
            }
            SetRole::Keeps | SetRole::Waits | SetRole::Divided => "see 'spindle dr status'".to_owned(),
        }
    }
}

impl SetRole {
    /// A word for programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Keeps => "keeps",
            Self::Follows => "follows",
            Self::Waits => "waits",
            Self::Divided => "divided",
        }
    }
}

/// An order about a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetOrder {
    /// A backup now, with holds from its cut on.
    BackUp { holds: Vec<String> },
    /// An order about the backup of this number.
    Follow { number: u64, order: PersonOrder },
}

/// The answer to an order that was followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetOrderAnswer {
    /// The backup of the order.
    pub number: u64,
    /// The set afterwards.
    pub view: SetView,
}

/// The reason for which an order was not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetOrderRefusal {
    /// There is no such backup.
    Unknown(Refusal),
    /// The set does not allow it.
    Refused(Refusal),
    /// The keeper cannot do it now.
    NotNow(Refusal),
}

/// A request on its way to the keeper of a set.
pub(crate) enum SetRequest {
    Order {
        order: SetOrder,
        /// The person who gives it.
        by: String,
        answer: oneshot::Sender<Result<SetOrderAnswer, SetOrderRefusal>>,
    },
    /// For a part of the catalogue's file.
    Catalogue {
        offset: u64,
        compactions: Option<u64>,
        answer: oneshot::Sender<Result<Vec<u8>, SetOrderRefusal>>,
    },
    /// To make the catalogue again from the notes of points; of the one with this identity, if it is given.
    Rebuild { id: Option<SetId>, answer: oneshot::Sender<Result<RebuiltCatalogue, SetOrderRefusal>> },
}

/// A catalogue that was made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebuiltCatalogue {
    pub id: SetId,
    /// Names of the backups in it.
    pub backups: Vec<String>,
    /// Names of those that lack points. They are left as they are.
    pub incomplete: Vec<String>,
    /// Place of the one before, if there was one.
    pub copy: Option<String>,
}

impl SetRequest {
    pub fn refuse(self, refusal: SetOrderRefusal) {
        // The asking thread may have given up.
        match self {
            Self::Order { answer, .. } => drop(answer.send(Err(refusal))),
            Self::Catalogue { answer, .. } => drop(answer.send(Err(refusal))),
            Self::Rebuild { answer, .. } => drop(answer.send(Err(refusal))),
        }
    }
}

/// Gives orders to the keeper of one set.
#[derive(Clone)]
pub struct SetOrders(mpsc::Sender<SetRequest>);

impl fmt::Debug for SetOrders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetOrders").finish_non_exhaustive()
    }
}

impl SetOrders {
    pub(crate) fn channel() -> (Self, mpsc::Receiver<SetRequest>) {
        let (give, take) = mpsc::channel(SET_ORDERS_MAX);
        (Self(give), take)
    }

    /// Gives an order, and waits for its answer however long that takes; dropping the wait ends nothing.
    ///
    /// # Errors
    ///
    /// It is not followed; or the keeper ends before it answers, and what has become of it is not known.
    pub async fn give(&self, order: SetOrder, by: &str) -> Result<SetOrderAnswer, SetOrderRefusal> {
        let by = by.to_owned();
        self.ask(|answer| SetRequest::Order { order, by, answer }).await
    }

    /// Reads a part of the catalogue; an empty one is its end. `compactions` are those of the file whose parts came before.
    ///
    /// # Errors
    ///
    /// The set is not kept now, or the file cannot be read, or is another one since.
    pub async fn read_catalogue(
        &self,
        offset: u64,
        compactions: Option<u64>,
    ) -> Result<Vec<u8>, SetOrderRefusal> {
        self.ask(|answer| SetRequest::Catalogue { offset, compactions, answer }).await
    }

    /// Makes the catalogue again from the notes of points in the pools. The present one is kept as a copy; its own backups become
    /// others'.
    ///
    /// # Errors
    ///
    /// A pool does not answer, there is no lost catalogue or more than one, or the file cannot be written.
    pub async fn rebuild(&self, id: Option<SetId>) -> Result<RebuiltCatalogue, SetOrderRefusal> {
        self.ask(|answer| SetRequest::Rebuild { id, answer }).await
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, SetOrderRefusal>>) -> SetRequest,
    ) -> Result<T, SetOrderRefusal> {
        let (tell, answer) = oneshot::channel();
        self.0.try_send(request(tell)).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => {
                let problem = format!("{SET_ORDERS_MAX} orders wait for the set already");
                SetOrderRefusal::NotNow(Refusal::new(problem, "try again"))
            }
            mpsc::error::TrySendError::Closed(_) => ended(),
        })?;
        answer.await.unwrap_or_else(|_| Err(ended()))
    }
}

fn ended() -> SetOrderRefusal {
    let next = "look at the set again: 'spindle protect list'";
    SetOrderRefusal::NotNow(Refusal::new("the set is not kept any more, or its keeper ended", next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn a_queue_that_is_full_refuses_and_one_that_ends_says_so() {
        let (orders, requests) = SetOrders::channel();
        let back_up = || SetOrder::BackUp { holds: Vec::new() };
        for _ in 0..SET_ORDERS_MAX {
            assert_eq!(orders.give(back_up(), "ada").now_or_never(), None, "it waits");
        }
        let refused = orders.give(back_up(), "ada").now_or_never();
        let Some(Err(SetOrderRefusal::NotNow(refusal))) = refused else { panic!("{refused:?}") };
        assert_eq!(refusal.to_string(), "16 orders wait for the set already; try again");
        drop(requests);
        let refused = orders.give(back_up(), "ada").now_or_never();
        assert!(matches!(refused, Some(Err(SetOrderRefusal::NotNow(why))) if why == refusal_of_end()));
    }

    fn refusal_of_end() -> Refusal {
        let SetOrderRefusal::NotNow(refusal) = ended() else { unreachable!("it is that") };
        refusal
    }
}

//! The state of a group that a site must not forget.

use crate::{
    connect::{SiteRole, UnfinishedPass},
    lineage::Lineage,
};
use array::{
    error::Error,
    format::{Fence, Stamp},
};
use world::LocalFuture;

/// The state of a group at a site, beside the content of its volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupState {
    pub role: SiteRole,
    /// The highest that it knows of.
    pub fence: Fence,
    /// `None` of a new replica.
    pub lineage: Option<Lineage>,
    /// It is primary, and answers without its peer.
    pub is_alone: bool,
    /// A pass that its volumes have a part of.
    pub unfinished: Option<UnfinishedPass>,
    /// It was primary before, and its hosts may have been answered up to here.
    pub told: Stamp,
    /// Its state up to this stamp is kept as a fork.
    pub forked_at: Option<Stamp>,
}

impl GroupState {
    /// A new replica, which has nothing.
    pub fn new_replica() -> Self {
        Self {
            role: SiteRole::Secondary,
            fence: Fence(0),
            lineage: None,
            is_alone: false,
            unfinished: None,
            told: Stamp(0),
            forked_at: None,
        }
    }
}

/// Place of the states of groups.
pub trait GroupRecords {
    /// Keeps a state instead of the one before. Resolves when it is stable.
    fn put(&self, state: &GroupState) -> LocalFuture<Result<(), Error>>;
}

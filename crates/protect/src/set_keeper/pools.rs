//! The pools of a set, as its keeper asks them.

use super::SetVolume;
use crate::{
    backup::{StepError, StepResult},
    catalogue::{CutPoint, FoundPoint, SetId},
};
use std::collections::{BTreeMap, BTreeSet};
use world::{LocalFuture, Moment};

/// Pools that cut volumes at one moment, and keep a note with each point.
pub trait BackupPools {
    /// The points with notes of the set, on whatever volumes of its pools they lie.
    fn points(&self, set: &SetId) -> LocalFuture<PoolsAnswer>;

    /// Cuts volumes at one moment, in all pools or in none, unless that cannot begin before `deadline`. After an error
    /// some of the points may exist.
    fn cut(&self, cut: WantedCut, deadline: Moment) -> LocalFuture<Result<Vec<CutPoint>, StepError>>;

    /// Removes points. Those that are gone already count as removed; after an error some are left.
    fn remove(&self, points: Vec<CutPoint>) -> LocalFuture<StepResult>;

    /// The room of the set's pools, of those that answer.
    fn rooms(&self) -> LocalFuture<Vec<PoolRoom>>;
}

/// The points that pools have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolsAnswer {
    pub found: Vec<FoundPoint>,
    /// Of these, those that a clone, a mount, an export or a restore uses.
    pub in_use: BTreeSet<CutPoint>,
    /// Pools that answered.
    pub asked: BTreeSet<String>,
    /// The others, with the reasons.
    pub silent: BTreeMap<String, String>,
    /// Points of sets with the same name and another catalogue, by that catalogue's identity.
    pub of_others: BTreeMap<String, usize>,
}

/// A cut, and what the pools keep with each of its points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedCut {
    pub name: String,
    pub note: String,
    pub volumes: Vec<SetVolume>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRoom {
    pub pool: String,
    pub used_bytes: u64,
    pub capacity_bytes: u64,
}

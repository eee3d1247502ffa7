//! Cuts over two pools, of single volumes and of a group, while hosts write to both, under power cuts, kills, and drives of one pool that fail.
//!
//! Each host writes numbers to both pools in turn, each after the answer to the one before: so a cut is right
//! only if its two parts have numbers that follow each other ([`Chain`]). After each crash both pools are opened
//! and their cuts settled; then each is in both pools or in none, and those that were acknowledged are there. Between
//! the hosts' times the group is cloned and rolled back, in both pools or in none.

mod administrator;
mod chain;
mod incarnation;
mod ledger;
mod operations;
mod plan;
mod run;

pub use chain::Chain;
pub use ledger::{CutFate, CutTally, KnownOperation, Ledger};
pub use plan::{CutRunOptions, CutRunPlan};
pub use run::{CutRunReport, replay_command, run};

/// The early end of a run: a broken guarantee, in words; or an error that a drive caused.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CutRunError {
    /// A guarantee is broken.
    #[error("{0}")]
    Broken(String),
    /// Drives failed.
    #[error("refused: {0}")]
    Refused(array::error::Error),
}

impl From<array::error::Error> for CutRunError {
    fn from(error: array::error::Error) -> Self {
        Self::Refused(error)
    }
}

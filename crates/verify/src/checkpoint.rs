//! The checkpoint: where recovery begins. Two copies of 4 KiB, of which either may be bad.

use crate::{
    fields::{position_at, signature_at, u32_at},
    finding::{Finding, Part, Place},
};
use maildb::format::{
    checksum::old_xor,
    header::{LogPosition, Signature},
};
use world::ByteOffset;

/// Length of a copy.
const COPY_BYTES: usize = 4096;
/// How much of the file there is to judge.
pub const CHECKPOINT_BYTES: usize = 2 * COPY_BYTES;

/// What a checkpoint says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointFacts {
    /// Where recovery begins.
    pub position: LogPosition,
    /// The birth mark of the log.
    pub log_signature: Signature,
}

/// What came of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointVerdict {
    /// What it says; none if neither copy verifies.
    pub facts: Option<CheckpointFacts>,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// Judges both copies.
pub fn judge_checkpoint(bytes: &[u8]) -> CheckpointVerdict {
    let copies: Vec<Option<CheckpointFacts>> =
        [0, COPY_BYTES].into_iter().map(|at| facts_of(bytes.get(at..)?.get(..COPY_BYTES)?)).collect();
    let Some(facts) = copies.iter().flatten().next().cloned() else {
        // A database is recovered without it too, from its oldest log on.
        let what = "neither copy verifies: recovery must begin with the oldest log there is";
        return CheckpointVerdict { facts: None, findings: vec![Finding::damage(Place::FILE, what)] };
    };
    let bad = (0_u8..).zip(&copies).filter(|(_, facts)| facts.is_none());
    let findings = bad.map(|(copy, _)| {
        let at = ByteOffset(u64::from(copy) * COPY_BYTES as u64);
        Finding::warning(
            Place::new(Part::HeaderCopy(copy), at),
            "it does not verify; the other copy does, and is used",
        )
    });
    CheckpointVerdict { facts: Some(facts), findings: findings.collect() }
}

fn facts_of(copy: &[u8]) -> Option<CheckpointFacts> {
    let is_good = u32_at(copy, 0) == old_xor(copy) && u32_at(copy, 667) == 4;
    is_good
        .then(|| CheckpointFacts { position: position_at(copy, 12), log_signature: signature_at(copy, 20) })
}

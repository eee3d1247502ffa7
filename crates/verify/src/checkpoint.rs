//! The checkpoint file: the position where recovery starts, in two copies of 4 KiB of which one may be bad.

use crate::{
    fields::{position_at, signature_at, u32_at},
    finding::{FileFinding, FileLocation, FilePart},
};
use maildb::format::{
    checksum::old_xor,
    header::{LogPosition, Signature},
};
use world::ByteOffset;

/// Length of a copy.
const COPY_BYTES: usize = 4096;
/// Bytes of the file that are checked.
pub const CHECKPOINT_BYTES: usize = 2 * COPY_BYTES;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointFacts {
    /// Position where recovery starts.
    pub position: LogPosition,
    pub log_signature: Signature,
}

/// The result of checking a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointVerdict {
    /// Contents of a copy that verifies; `None` if neither does.
    pub facts: Option<CheckpointFacts>,
    pub findings: Vec<FileFinding>,
}

/// Checks both copies.
pub fn judge_checkpoint(bytes: &[u8]) -> CheckpointVerdict {
    let copies: Vec<Option<CheckpointFacts>> =
        [0, COPY_BYTES].into_iter().map(|at| facts_of(bytes.get(at..)?.get(..COPY_BYTES)?)).collect();
    let Some(facts) = copies.iter().flatten().next().cloned() else {
        // Recovery also works without a checkpoint, from the oldest log on.
        let what = "neither copy verifies: recovery must start with the oldest log";
        return CheckpointVerdict {
            facts: None,
            findings: vec![FileFinding::damage(FileLocation::FILE, what)],
        };
    };
    let bad = (0_u8..).zip(&copies).filter(|(_, facts)| facts.is_none());
    let findings = bad.map(|(copy, _)| {
        let at = ByteOffset(u64::from(copy) * COPY_BYTES as u64);
        FileFinding::warning(
            FileLocation::new(FilePart::HeaderCopy(copy), at),
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

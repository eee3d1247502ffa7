//! What the files of a folder say together: whether they can be recovered, and what is missing.

use crate::{
    checkpoint::CheckpointFacts, database::DatabaseFacts, finding::Finding, flush_map::FlushMapFacts,
    log::LogFacts,
};

/// What is known of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// Its name, without the folder.
    pub name: String,
    /// What a judge made of it.
    pub facts: Facts,
    /// Whether something in it is damaged.
    pub is_damaged: bool,
}

/// The facts of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Facts {
    /// A database.
    Database(DatabaseFacts),
    /// A log.
    Log(LogFacts),
    /// A log that was prepared and never used: all zero.
    PreparedLog,
    /// A checkpoint.
    Checkpoint(CheckpointFacts),
    /// A flush map.
    FlushMap(FlushMapFacts),
    /// A file of a known kind whose header is gone.
    Headless,
}

/// Whether a database can be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// It was shut down cleanly, and needs no log.
    NotNeeded,
    /// It needs these generations, first and last, and they are there.
    Possible {
        /// First and last.
        required: (u32, u32),
    },
    /// It cannot, and why in plain words.
    Impossible {
        /// Files that are missing.
        missing: Vec<String>,
        /// Why.
        why: String,
    },
}

/// The verdict on one database of the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseRecovery {
    /// Its file.
    pub name: String,
    /// Whether it can be opened.
    pub recovery: Recovery,
}

/// What the files of a folder come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetVerdict {
    /// Each database.
    pub databases: Vec<DatabaseRecovery>,
    /// What is wrong with the set, with the name of the file it is about.
    pub findings: Vec<(String, Finding)>,
}

/// Judges the files of a folder together.
pub fn judge_set(files: &[FileFacts]) -> SetVerdict {
    let _ = files;
    SetVerdict::default()
}

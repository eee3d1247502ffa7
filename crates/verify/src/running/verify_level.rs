//! Levels of a verification.

/// Each level includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum VerifyLevel {
    /// Headers, whole logs and small files; whether the files go together. No page of a database.
    Chain,
    /// The checksum of every page, and page stamps.
    #[default]
    Pages,
    /// Trees of the databases, and records of the logs.
    Deep,
    /// A recovery on trial, with changes kept in memory, and every record read.
    Recover,
}

impl VerifyLevel {
    /// From the least to the most.
    pub const ALL: [Self; 4] = [Self::Chain, Self::Pages, Self::Deep, Self::Recover];

    /// The name for arguments, JSON and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chain => "chain",
            Self::Pages => "pages",
            Self::Deep => "deep",
            Self::Recover => "recover",
        }
    }

    /// True if the records of logs are read.
    pub fn reads_log_records(self) -> bool {
        self >= Self::Deep
    }
}

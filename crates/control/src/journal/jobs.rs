//! Jobs that were asked for, pool by pool: those that were under way go on when their pool is served again.

use super::{DaemonJournal, JournalError};
use crate::job_request::JobRequest;
use array::format::PoolId;
use redb::TableDefinition;

/// The jobs of each pool by its UUID, as JSON.
pub(super) const JOBS: TableDefinition<&str, &str> = TableDefinition::new("jobs");

impl DaemonJournal {
    /// The jobs of a pool that were asked for: under way, or the last ones.
    pub fn jobs(&self, pool: PoolId) -> Result<Vec<JobRequest>, JournalError> {
        let database = &self.0;
        let record = database.read(|transaction| {
            let jobs = transaction.open_table(JOBS)?;
            Ok(jobs.get(&*pool.to_string())?.map(|record| record.value().to_owned()))
        })?;
        let jobs = record.map(|record| database.parsed(&record, "its record of jobs")).transpose()?;
        Ok(jobs.unwrap_or_default())
    }

    /// Records the jobs of a pool, in the place of those that were known.
    pub fn set_jobs(&self, pool: PoolId, jobs: &[JobRequest]) -> Result<(), JournalError> {
        let record = serde_json::to_string(jobs).expect("plain fields");
        self.0.change(|transaction| {
            transaction.open_table(JOBS)?.insert(&*pool.to_string(), record.as_str())?;
            Ok(())
        })
    }
}

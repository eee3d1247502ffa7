//! The format level of a pool, as people see it, and its upgrade.

use super::folder::OpenPool;
use array::{format::FormatLevel, pool::Pool};
use report::Refusal;
use serde::{Deserialize, Serialize};

/// The format level of a pool, and what a newer one brings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormatStatus {
    pub level: u8,
    /// That of this program's new pools.
    pub newest: u8,
    /// Features of the levels between.
    pub brings: Vec<String>,
}

impl FormatStatus {
    pub fn of(pool: &Pool) -> Self {
        let level = pool.format_level();
        let brings = level.brings_after().map(str::to_owned).collect();
        Self { level: level.0, newest: FormatLevel::NEWEST.0, brings }
    }

    /// True if an upgrade would raise it.
    pub fn is_old(&self) -> bool {
        self.level < self.newest
    }

    /// The line that `pool show` prints, if there is something to say. `word` names the pool in a command.
    pub fn text(&self, word: &str) -> Option<String> {
        let Self { level, newest, brings } = self;
        self.is_old().then(|| {
            format!(
                "format level {level}; 'spindle pool upgrade {word}' raises it to {newest}: {}",
                brings.join("; ")
            )
        })
    }
}

/// Raises the format level of a pool to that of new pools. Does nothing if it is there.
///
/// # Errors
///
/// The pool has stopped.
pub async fn upgrade(open: &OpenPool) -> Result<(), Refusal> {
    let upgraded = open.pool.upgrade().await;
    upgraded.map(drop).map_err(|error| open.refusal(&error, "repeat it when the pool serves again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_level_says_what_an_upgrade_brings_and_a_new_one_says_nothing() {
        let status = |level| FormatStatus { level, newest: 2, brings: vec!["volume import".to_owned()] };
        assert_eq!(
            status(1).text("mail").unwrap(),
            "format level 1; 'spindle pool upgrade mail' raises it to 2: volume import"
        );
        // Another program may have upgraded it further.
        assert!(status(2).text("mail").is_none() && status(3).text("mail").is_none());
    }
}

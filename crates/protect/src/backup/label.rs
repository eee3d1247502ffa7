//! Labels of backups, and their evidence.

use crate::planted::{self, BackupBug};
use std::fmt;

/// The guarantee of a frozen thing; the first is worth more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Consistency {
    /// The cut holds exactly what the application had answered.
    Application,
    /// The cut holds whole files as the system had them; the application recovers as after a crash.
    Filesystem,
}

/// The worth of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackupLabel {
    Application,
    Filesystem,
    /// As after a power cut, with the reason why not more.
    Crash(String),
}

impl fmt::Display for BackupLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Application => "application",
            Self::Filesystem => "filesystem",
            Self::Crash(_) => "crash",
        })
    }
}

/// The word of one thing about its freeze.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreezeEvidence {
    /// Its name for people.
    pub what: String,
    pub consistency: Consistency,
    /// `Ok` if it was frozen until it was thawed; else the reason.
    pub held: Result<(), String>,
}

/// The label of a cut that was taken while these things were to be frozen.
pub fn label_of(evidence: &[FreezeEvidence]) -> BackupLabel {
    let failed = evidence.iter().find_map(|one| one.held.as_ref().err().map(|reason| (one, reason)));
    if let Some((one, reason)) = failed
        && !planted::is(BackupBug::LabelledWithoutThaw)
    {
        return BackupLabel::Crash(format!("{}: {reason}", one.what));
    }
    match evidence.iter().map(|one| one.consistency).min() {
        Some(Consistency::Application) => BackupLabel::Application,
        Some(Consistency::Filesystem) => BackupLabel::Filesystem,
        None => BackupLabel::Crash("nothing was to be frozen".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(consistency: Consistency, held: Result<(), &str>) -> FreezeEvidence {
        let held = held.map_err(str::to_owned);
        FreezeEvidence { what: "it".to_owned(), consistency, held }
    }

    #[test]
    fn only_what_was_held_counts_and_an_application_counts_most() {
        use Consistency::{Application, Filesystem};
        let (application, filesystem) = (one(Application, Ok(())), one(Filesystem, Ok(())));
        assert_eq!(label_of(&[application.clone(), filesystem.clone()]), BackupLabel::Application);
        assert_eq!(label_of(&[filesystem]), BackupLabel::Filesystem);
        let late = one(Filesystem, Err("its deadline was first"));
        let crash = BackupLabel::Crash("it: its deadline was first".to_owned());
        assert_eq!(label_of(&[application, late]), crash);
        assert_eq!(label_of(&[]), BackupLabel::Crash("nothing was to be frozen".to_owned()));
    }
}

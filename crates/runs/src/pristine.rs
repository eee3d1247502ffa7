//! Pristine copies: the files of a run as creation left them, to be restored before a later run.
//!
//! Every file a run made is copied (databases, logs, checkpoint, and what lies beside them) after a
//! clean shutdown, because a database is not opened without its own log. A copy lies beside its original as
//! `NAME.pristine`. The record of the run holds the state of the copies at each location, so a
//! process killed at any moment leaves a location whose state is known:
//!
//! | In the record | Originals | Copies |
//! |---|---|---|
//! | nothing | any | none |
//! | keeping | being made, or made and not yet worked on | missing or in part |
//! | kept | any | whole, with these sizes and checksums |
//! | restoring | in part: not to be used | whole |
//!
//! The first two turn into each other before the originals are worked on; `restoring` is written at
//! every location before the first original is removed, `kept` only when all are stable.

use crate::{location::RunLocation, manifest::DatabaseAction};
use report::Refusal;
use serde::{Deserialize, Serialize};

/// Suffix of a copy's name.
const SUFFIX: &str = ".pristine";

/// State of the copies at one location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PristineState {
    /// To be made, or being made.
    Keeping,
    /// Complete.
    Kept,
    /// Complete, and the originals are being made from them.
    Restoring,
}

/// The record's entry about copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pristine {
    #[serde(rename = "stand")]
    pub state: PristineState,
    /// Complete copies.
    pub files: Vec<CopiedFile>,
}

/// One file and its copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedFile {
    /// Name of the original.
    pub name: String,
    pub bytes: u64,
    pub checksum: u32,
}

impl Pristine {
    /// Copies are to be made.
    pub fn keeping() -> Self {
        Self { state: PristineState::Keeping, files: Vec::new() }
    }
}

pub fn copy_of(name: &str) -> String {
    format!("{name}{SUFFIX}")
}

/// The original's name; `None` if `name` is no copy.
pub fn original_of(name: &str) -> Option<&str> {
    name.strip_suffix(SUFFIX).filter(|original| !original.is_empty())
}

/// The user's options for copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyIntent {
    pub keep: bool,
    pub restore: bool,
}

/// Work on copies before the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyTask {
    Leave,
    /// Make the databases, then the copies.
    Keep,
    Restore,
    /// Remove unfinished copies.
    Forget,
}

/// State of the copies over all locations of a run.
pub fn state(locations: &[RunLocation]) -> Option<PristineState> {
    let states: Vec<Option<PristineState>> = locations
        .iter()
        .map(|location| {
            location.manifest().and_then(|manifest| manifest.pristine.as_ref()).map(|found| found.state)
        })
        .collect();
    match states.as_slice() {
        all if all.contains(&Some(PristineState::Restoring)) => Some(PristineState::Restoring),
        all if all.iter().all(|state| *state == Some(PristineState::Kept)) => Some(PristineState::Kept),
        all if all.iter().all(Option::is_none) => None,
        // Interrupted between two locations.
        _ => Some(PristineState::Keeping),
    }
}

/// Chooses the work to do, or refuses. `path` is the first path, as written.
pub fn task(
    intent: CopyIntent,
    state: Option<PristineState>,
    action: DatabaseAction,
    path: &str,
) -> Result<CopyTask, Refusal> {
    let there = (action == DatabaseAction::Attach).then_some(state).flatten();
    match (intent, there) {
        (CopyIntent { restore: true, .. }, Some(PristineState::Kept | PristineState::Restoring)) => {
            Ok(CopyTask::Restore)
        }
        (CopyIntent { restore: true, .. }, _) => Err(Refusal::new(
            format!("{path} holds no pristine copies to restore"),
            "make some first: ⟨fresh⟩ ⟨keep-pristine⟩",
        )),
        (_, Some(PristineState::Restoring)) => Err(Refusal::new(
            format!("{path} holds databases whose restoring was cut short"),
            "give ⟨restore⟩ to do it again, or ⟨fresh⟩ to make new ones",
        )),
        (CopyIntent { keep: true, .. }, Some(PristineState::Kept)) => Ok(CopyTask::Leave),
        (CopyIntent { keep: true, .. }, Some(PristineState::Keeping)) => Ok(CopyTask::Keep),
        (CopyIntent { keep: true, .. }, None) if action == DatabaseAction::Attach => Err(Refusal::new(
            format!("{path} holds databases that a run has worked on: they are not pristine"),
            "give ⟨fresh⟩ as well, to make new ones",
        )),
        (CopyIntent { keep: true, .. }, None) => Ok(CopyTask::Keep),
        (_, Some(PristineState::Keeping)) => Ok(CopyTask::Forget),
        (_, Some(PristineState::Kept) | None) => Ok(CopyTask::Leave),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(
        words: &str,
        state: Option<PristineState>,
        action: DatabaseAction,
        expected: Result<CopyTask, &str>,
    ) {
        let intent = CopyIntent { keep: words.contains("keep"), restore: words.contains("restore") };
        let outcome = task(intent, state, action, "/mnt/db").map_err(|refusal| refusal.to_string());
        assert_eq!(outcome, expected.map_err(str::to_owned), "{words} {state:?} {action:?}");
    }

    #[test]
    fn what_is_done_follows_from_the_wish_and_from_how_the_copies_stand() {
        use DatabaseAction::{Attach, Create, Replace};
        check("", None, Create, Ok(CopyTask::Leave));
        check("", Some(PristineState::Kept), Attach, Ok(CopyTask::Leave));
        check("", Some(PristineState::Keeping), Attach, Ok(CopyTask::Forget));
        check("keep", None, Create, Ok(CopyTask::Keep));
        check("keep", Some(PristineState::Kept), Replace, Ok(CopyTask::Keep));
        check("keep", Some(PristineState::Restoring), Replace, Ok(CopyTask::Keep));
        check("keep", Some(PristineState::Keeping), Attach, Ok(CopyTask::Keep));
        check("keep", Some(PristineState::Kept), Attach, Ok(CopyTask::Leave));
        check("restore", Some(PristineState::Kept), Attach, Ok(CopyTask::Restore));
        check("restore", Some(PristineState::Restoring), Attach, Ok(CopyTask::Restore));
    }

    #[test]
    fn what_cannot_be_done_is_said_in_one_line() {
        let none = "/mnt/db holds no pristine copies to restore; make some first: ⟨fresh⟩ ⟨keep-pristine⟩";
        check("restore", None, DatabaseAction::Attach, Err(none));
        check("restore", None, DatabaseAction::Create, Err(none));
        check("restore", Some(PristineState::Keeping), DatabaseAction::Attach, Err(none));
        check(
            "",
            Some(PristineState::Restoring),
            DatabaseAction::Attach,
            Err(
                "/mnt/db holds databases whose restoring was cut short; give ⟨restore⟩ to do it again, or ⟨fresh⟩ to make new ones",
            ),
        );
        check(
            "keep",
            None,
            DatabaseAction::Attach,
            Err(
                "/mnt/db holds databases that a run has worked on: they are not pristine; give ⟨fresh⟩ as well, to make new ones",
            ),
        );
    }

    #[test]
    fn a_copy_is_told_by_its_name() {
        assert_eq!(original_of(&copy_of("sg1-db1.edb")), Some("sg1-db1.edb"));
        assert_eq!([original_of("sg1-db1.edb"), original_of(".pristine")], [None, None]);
    }
}

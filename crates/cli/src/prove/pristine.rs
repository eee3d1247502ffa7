//! Pristine copies: the files of a run as creation left them, kept to be put back before a later run.
//!
//! A copy is of every file a run made (databases, logs, checkpoint, what lies beside them), taken after a
//! clean shutdown, because a database is not opened without its own log. It lies beside its original as
//! `NAME.pristine`. What has become of the copies is in the record of the run, in each place, so that
//! a process killed at any moment leaves a place that says how it stands:
//!
//! | In the record | Originals | Copies |
//! |---|---|---|
//! | nothing | any | none |
//! | keeping | being made, or made and not yet worked on | missing or in part |
//! | kept | any | whole, with these sizes and checksums |
//! | restoring | in part: not to be used | whole |
//!
//! The first two turn into each other before the originals are worked on; `restoring` is written in
//! every place before the first original is removed, `kept` only when all are stable.

use super::{manifest::Beginning, place::Place};
use crate::refusal::Refusal;
use serde::{Deserialize, Serialize};

/// How the name of a copy ends.
const SUFFIX: &str = ".pristine";

/// How the copies in one place stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stand {
    /// They are to be made, or are being made.
    Keeping,
    /// They are whole.
    Kept,
    /// They are whole, and the originals are being made from them.
    Restoring,
}

/// What the record of a run says of the copies in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pristine {
    /// How they stand.
    pub stand: Stand,
    /// Those that are whole.
    pub files: Vec<CopiedFile>,
}

/// One file and its copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedFile {
    /// Name of the original.
    pub name: String,
    /// Bytes of it.
    pub bytes: u64,
    /// CRC-32C of them.
    pub checksum: u32,
}

impl Pristine {
    /// Copies are to be made.
    pub fn keeping() -> Self {
        Self { stand: Stand::Keeping, files: Vec::new() }
    }
}

/// Name of the copy of `name`.
pub fn copy_of(name: &str) -> String {
    format!("{name}{SUFFIX}")
}

/// Name of the original of a copy; none if it is no copy.
pub fn original_of(name: &str) -> Option<&str> {
    name.strip_suffix(SUFFIX).filter(|original| !original.is_empty())
}

/// What the user said of copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// `--keep-pristine`.
    pub keep: bool,
    /// `--restore`.
    pub restore: bool,
}

/// What is to be done with copies before the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Nothing.
    Leave,
    /// Make the databases, then the copies.
    Keep,
    /// Put the copies back.
    Restore,
    /// Remove copies that were never finished.
    Forget,
}

/// How the copies of a run stand in all its places together.
pub fn stand(places: &[Place]) -> Option<Stand> {
    let stands: Vec<Option<Stand>> = places
        .iter()
        .map(|place| {
            place.manifest().and_then(|manifest| manifest.pristine.as_ref()).map(|found| found.stand)
        })
        .collect();
    match stands.as_slice() {
        all if all.contains(&Some(Stand::Restoring)) => Some(Stand::Restoring),
        all if all.iter().all(|stand| *stand == Some(Stand::Kept)) => Some(Stand::Kept),
        all if all.iter().all(Option::is_none) => None,
        // Cut short between one place and the next.
        _ => Some(Stand::Keeping),
    }
}

/// What is to be done, or why it cannot be. `path` is the first path, as written.
pub fn task(wish: Wish, stand: Option<Stand>, beginning: Beginning, path: &str) -> Result<Task, Refusal> {
    let there = (beginning == Beginning::Attach).then_some(stand).flatten();
    match (wish, there) {
        (Wish { restore: true, .. }, Some(Stand::Kept | Stand::Restoring)) => Ok(Task::Restore),
        (Wish { restore: true, .. }, _) => Err(Refusal::new(
            format!("{path} holds no pristine copies to restore"),
            "make some first: --fresh --keep-pristine",
        )),
        (_, Some(Stand::Restoring)) => Err(Refusal::new(
            format!("{path} holds databases whose restoring was cut short"),
            "give --restore to do it again, or --fresh to make new ones",
        )),
        (Wish { keep: true, .. }, Some(Stand::Kept)) => Ok(Task::Leave),
        (Wish { keep: true, .. }, Some(Stand::Keeping)) => Ok(Task::Keep),
        (Wish { keep: true, .. }, None) if beginning == Beginning::Attach => Err(Refusal::new(
            format!("{path} holds databases that a run has worked on: they are not pristine"),
            "give --fresh as well, to make new ones",
        )),
        (Wish { keep: true, .. }, None) => Ok(Task::Keep),
        (_, Some(Stand::Keeping)) => Ok(Task::Forget),
        (_, Some(Stand::Kept) | None) => Ok(Task::Leave),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(words: &str, stand: Option<Stand>, beginning: Beginning, expected: Result<Task, &str>) {
        let wish = Wish { keep: words.contains("keep"), restore: words.contains("restore") };
        let outcome = task(wish, stand, beginning, "/mnt/db").map_err(|refusal| refusal.to_string());
        assert_eq!(outcome, expected.map_err(str::to_owned), "{words} {stand:?} {beginning:?}");
    }

    #[test]
    fn what_is_done_follows_from_the_wish_and_from_how_the_copies_stand() {
        use Beginning::{Attach, Create, Replace};
        check("", None, Create, Ok(Task::Leave));
        check("", Some(Stand::Kept), Attach, Ok(Task::Leave));
        check("", Some(Stand::Keeping), Attach, Ok(Task::Forget));
        check("keep", None, Create, Ok(Task::Keep));
        check("keep", Some(Stand::Kept), Replace, Ok(Task::Keep));
        check("keep", Some(Stand::Restoring), Replace, Ok(Task::Keep));
        check("keep", Some(Stand::Keeping), Attach, Ok(Task::Keep));
        check("keep", Some(Stand::Kept), Attach, Ok(Task::Leave));
        check("restore", Some(Stand::Kept), Attach, Ok(Task::Restore));
        check("restore", Some(Stand::Restoring), Attach, Ok(Task::Restore));
    }

    #[test]
    fn what_cannot_be_done_is_said_in_one_line() {
        let none = "/mnt/db holds no pristine copies to restore; make some first: --fresh --keep-pristine";
        check("restore", None, Beginning::Attach, Err(none));
        check("restore", None, Beginning::Create, Err(none));
        check("restore", Some(Stand::Keeping), Beginning::Attach, Err(none));
        check(
            "",
            Some(Stand::Restoring),
            Beginning::Attach,
            Err(
                "/mnt/db holds databases whose restoring was cut short; give --restore to do it again, or --fresh to make new ones",
            ),
        );
        check(
            "keep",
            None,
            Beginning::Attach,
            Err(
                "/mnt/db holds databases that a run has worked on: they are not pristine; give --fresh as well, to make new ones",
            ),
        );
    }

    #[test]
    fn a_copy_is_told_by_its_name() {
        assert_eq!(original_of(&copy_of("sg1-db1.edb")), Some("sg1-db1.edb"));
        assert_eq!([original_of("sg1-db1.edb"), original_of(".pristine")], [None, None]);
    }
}

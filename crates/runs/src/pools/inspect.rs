//! Inspection of existing pools before anything is written: whether the remaining drives suffice.
//!
//! Two copies of a block lie on any two drives: without one drive every block has a copy, without two it
//! may not. A drive whose loss the pool has repaired is not missed any more.

use super::{
    layout::{GroupDrives, pool_name},
    size::COPIES,
};
use crate::{layout::FileSlot, location::RunLocation};
use array::{
    election::{OpenRefusal, elect},
    format::MemberState,
    superblocks::look,
};
use report::Refusal;
use std::{path::PathBuf, rc::Rc};
use workload::meter::VolumeRole;
use world::{
    BlockDevice,
    real::{
        AccessMode, FileDevice,
        host_files::{self, PathKind},
    },
};

/// Refuses if a pool of `layout` cannot be opened, or could not serve all its data.
pub async fn check_all(layout: &[GroupDrives], locations: &[RunLocation]) -> Result<(), Refusal> {
    for (group, drives) in layout.iter().enumerate() {
        for role in [VolumeRole::Database, VolumeRole::Log] {
            let name = match layout.len() {
                1 => pool_name(role).to_owned(),
                _ => format!("{} of group {}", pool_name(role), group + 1),
            };
            check(&name, drives.of(role), locations).await?;
        }
    }
    Ok(())
}

async fn check(name: &str, drives: &[FileSlot], locations: &[RunLocation]) -> Result<(), Refusal> {
    let mut devices: Vec<Rc<dyn BlockDevice>> = Vec::new();
    let mut absent = Vec::new();
    for slot in drives {
        let path = path_of(slot, locations);
        if matches!(host_files::kind(&path), Ok(PathKind::Missing)) {
            absent.push(slot.name.as_str());
            continue;
        }
        match FileDevice::open(&path, AccessMode::Read) {
            Ok(device) => devices.push(Rc::new(device)),
            Err(error) => {
                return Err(Refusal::new(format!("the {name}: {error}"), "check the storage"));
            }
        }
    }
    let remedy = "put back what is missing, or give ⟨fresh⟩ to start over";
    let absent = match absent.as_slice() {
        [] => String::new(),
        names => format!(" (missing: {})", names.join(", ")),
    };
    let cannot_open = |error| Refusal::new(format!("the {name} cannot be opened: {error}{absent}"), remedy);
    let seen = look(&devices).await;
    let misses = |many: usize| {
        Refusal::new(
            format!(
                "the {name} misses {many} of {} drives, and its {COPIES} copies of everything can do without one{absent}",
                drives.len()
            ),
            remedy,
        )
    };
    // By force: drives are counted first. Whether a segment has all its copies on those that are missing differs
    // from run to run.
    let election = match elect(&seen, true) {
        Ok(election) => election,
        Err(OpenRefusal::TooFewDrives(missing)) if missing.len() >= COPIES as usize => {
            return Err(misses(missing.len()));
        }
        Err(error) => return Err(cannot_open(error)),
    };
    let members = election.superblock.members.iter().enumerate();
    let missed = members.filter(|(index, member)| {
        member.state != MemberState::Gone
            && !election.present.keys().any(|there| usize::from(there.0) == *index)
    });
    match missed.count() {
        few if few < COPIES as usize => elect(&seen, false).map(drop).map_err(cannot_open),
        many => Err(misses(many)),
    }
}

/// Path of a drive.
pub fn path_of(slot: &FileSlot, locations: &[RunLocation]) -> PathBuf {
    locations[slot.location].canonical().join(&slot.name)
}

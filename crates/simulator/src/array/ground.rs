//! What all of one run share, and what it has seen.

use super::{
    atlas::Grade,
    canary::{Bug, SpoiltDrive},
    content::VolumeKey,
    foreign::{Audit, Copies, audit, platters::Platters},
    model::{CutKey, Model},
    plan::RunPlan,
    resized_drive::ResizedDrive,
    trouble::Violation,
};
use array::format::{SnapshotId, VolumeId};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};
use world::{
    BlockDevice, ByteCount,
    sim::{Fault, SimDrive},
};

/// What a run has seen, for its report and for the story of a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Pools opened.
    pub openings: u64,
    /// Writes and discards that were answered.
    pub writes: u64,
    /// Reads held against the model, but for those after an opening.
    pub reads: u64,
    /// Changes of the catalogue that were answered.
    pub verbs: u64,
    /// Snapshots of single volumes that were made.
    pub snapshots: u64,
    /// Cuts of several volumes that were found to lie at one moment.
    pub cuts_checked: u64,
    /// Snapshots deleted.
    pub snapshots_deleted: u64,
    /// Volumes deleted.
    pub volumes_deleted: u64,
    /// Volumes made smaller.
    pub shrinks: u64,
    /// Checkpoints asked for.
    pub checkpoints: u64,
    /// Pools closed.
    pub closings: u64,
    /// Openings without the drive that is ill.
    pub openings_without: u64,
    /// Those that had to be forced.
    pub openings_forced: u64,
    /// Copies that were mended.
    pub mended: u64,
    /// Drives added.
    pub drives_added: u64,
    /// Crashes while the pool was made.
    pub cut_creations: u64,
    /// Logs that were spoilt beyond repair, and refused.
    pub logs_refused: u64,
    /// Logs of which a header was spoilt beyond repair, and that were refused.
    pub headers_refused: u64,
    /// Pools that were read without being opened, and were what they should be.
    pub salvaged: u64,
    /// Those of them whose log had a hole behind which something had been acknowledged.
    pub salvaged_in_part: u64,
    /// Sectors that were older than callers had been told, in a pool that said so.
    pub sectors_said_missing: u64,
    /// Openings that were cut off behind a replay, with all that it had found still there.
    pub replays_cut: u64,
    /// Logs that were spoilt on one copy.
    pub legs_spoilt: u64,
    /// Looks of another reader at what lies on the drives.
    pub audits: u64,
    /// Commands refused for want of space.
    pub full: u64,
    /// Commands refused because drives were out of space.
    pub out_of_space: u64,
    /// Incarnations that ended early, or were not opened, for a shortage.
    pub ended_by_shortage: u64,
    /// Commands refused for a limit, or for what is kept for other volumes.
    pub bounded: u64,
    /// Volumes made that have caps.
    pub capped: u64,
    /// Openings without two drives.
    pub openings_without_two: u64,
    /// Writes and discards that were answered from a write cache.
    pub cached: u64,
    /// Flushes that were answered.
    pub flushes: u64,
    /// Power cuts that took something out of a write cache, by when they were.
    pub caches_lost: std::collections::BTreeSet<u64>,
    /// What happened, in order.
    pub story: Vec<String>,
}

/// What somebody did to drives.
#[derive(Clone, Debug, Default)]
pub struct Bay {
    /// One that was taken out for good.
    pub taken_out: Option<usize>,
    /// One that seems to have another size: so many bytes.
    pub resized: Option<(usize, u64)>,
    /// How often one has begun to add the spare: each time under another name.
    pub additions: u8,
    /// This incarnation has a shortage, or had one.
    pub has_spell: bool,
    /// The spare is ill.
    pub is_spare_ill: bool,
    /// Drives that counted when the pool was last looked at from outside.
    pub counting: Vec<usize>,
}

/// What an incarnation needs. Cheap to clone.
#[derive(Clone)]
pub struct Ground {
    /// All drives; the last one is the spare, if there is one.
    pub drives: Rc<Vec<Rc<SimDrive>>>,
    /// Drives that are there, and in what state.
    pub bay: Rc<RefCell<Bay>>,
    /// Settings.
    pub plan: Rc<RunPlan>,
    /// What callers were told.
    pub model: Rc<RefCell<Model>>,
    /// Counters and story.
    pub tally: Rc<RefCell<Tally>>,
    /// Drives may have lost what was stable, or show what was there before, without anybody knowing.
    pub is_untold: Rc<Cell<bool>>,
    /// Which copies must be right, after all that drives did.
    pub copies: Rc<Cell<Copies>>,
}

impl Ground {
    /// A drive as the pool gets it.
    pub fn device(&self, index: usize) -> Rc<dyn BlockDevice> {
        let drive = Rc::clone(&self.drives[index]) as Rc<dyn BlockDevice>;
        let drive = match self.bay.borrow().resized {
            Some((resized, size)) if resized == index => {
                Rc::new(ResizedDrive::new(drive, ByteCount(size))) as Rc<dyn BlockDevice>
            }
            _ => drive,
        };
        match self.plan.bug {
            Some(Bug::BeforeDrives(spoiling)) => Rc::new(SpoiltDrive::new(drive, spoiling)),
            _ => drive,
        }
    }

    /// How often drives read something else than was written, so far.
    pub fn wrong_reads(&self) -> u64 {
        let wrong = [Fault::BitRot, Fault::Unreadable, Fault::MisdirectedRead, Fault::StaleRead];
        let met = self.drives.iter().map(|drive| drive.statistics().faults);
        met.map(|met| wrong.iter().filter_map(|fault| met.get(fault)).sum::<u64>()).sum()
    }

    /// Drives a pool is opened on, but for those that are absent.
    pub fn drives_there(&self, absent: &[usize]) -> Vec<usize> {
        let bay = self.bay.borrow();
        let begun = self.plan.drives.len() + usize::from(bay.additions > 0);
        (0..begun).filter(|index| !absent.contains(index) && Some(*index) != bay.taken_out).collect()
    }

    /// Whether several drives fell short of something in this incarnation.
    pub fn has_spell(&self) -> bool {
        self.bay.borrow().has_spell
    }

    /// The place of the drive that is no member from the beginning.
    pub fn spare(&self) -> Option<usize> {
        self.plan.spare.as_ref().map(|_| self.plan.drives.len())
    }

    /// Has another reader look at what lies on the drives.
    pub fn audit(&self, when: &'static str) -> Result<Option<Audit>, Violation> {
        if self.plan.grade == Grade::Beyond {
            return Ok(None);
        }
        self.tally.borrow_mut().audits += 1;
        let audited = audit(&Platters(self.drives.to_vec()), self.copies.get());
        let audit = audited.map_err(|what| Violation::Foreign { when, what })?;
        self.bay.borrow_mut().counting = audit.drives.values().copied().collect();
        Ok(Some(audit))
    }

    /// A line of the story.
    pub fn tell(&self, line: String) {
        self.tally.borrow_mut().story.push(line);
    }
}

/// The name of a volume everywhere.
pub fn volume_id(key: VolumeKey) -> VolumeId {
    VolumeId((u128::from(key.0) | 7 << 64).to_be_bytes())
}

/// Which volume that is.
pub fn volume_key(id: VolumeId) -> VolumeKey {
    VolumeKey(u128::from_be_bytes(id.0) as u32)
}

/// The name of a cut everywhere.
pub fn snapshot_id(key: CutKey) -> SnapshotId {
    SnapshotId((u128::from(key.0) | 9 << 64).to_be_bytes())
}

/// Which cut that is.
pub fn cut_key(id: SnapshotId) -> CutKey {
    CutKey(u128::from_be_bytes(id.0) as u32)
}

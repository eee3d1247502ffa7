//! The jobs of a pool: their kinds, their progress and their cancellation.

use super::Mover;
use crate::redundancy::SegmentLayout;
use std::time::Duration;
use world::JobProgress;

/// Kinds of jobs; a pool has one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobKind {
    /// Replacing lost copies.
    Rebuild,
    /// Reading every copy of everything.
    Scrub,
    /// Moving blocks of raid0 volumes out of the mirrored log.
    Destage,
    /// Freeing the space of deleted snapshots and volumes, and of discards. Checkpoints do it in parts; how
    /// much is left is not known, and it cannot be cancelled.
    Reclaim,
    /// Copying what clones read through their sources, so that they need them no more. Counted in bytes of
    /// their sizes, holes included.
    Fill,
    /// Copying elsewhere what lies on drives that leave.
    Empty,
    /// Moving data between drives until they are about equally full.
    Level,
    /// Copying a snapshot of another pool into a new volume; as for a refresh and a move, the task that runs it counts.
    Copy,
    /// Bringing a copy up to another snapshot of its source in another pool.
    Refresh,
    /// Moving a volume of another pool here.
    Move,
    /// Copying a device elsewhere into a volume that hosts use meanwhile.
    Import,
}

impl JobKind {
    /// Name in front of people and programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rebuild => "rebuild",
            Self::Scrub => "scrub",
            Self::Destage => "destage",
            Self::Reclaim => "reclaim",
            Self::Fill => "fill",
            Self::Empty => "empty",
            Self::Level => "level",
            Self::Copy => "copy",
            Self::Refresh => "refresh",
            Self::Move => "move",
            Self::Import => "import",
        }
    }
}

/// A job of a pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoolJob {
    pub kind: JobKind,
    pub progress: JobProgress,
}

/// Progress of a rebuild.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RebuildProgress {
    /// Bytes of copies to make, since segments began to lack copies.
    pub total_bytes: u64,
    /// Bytes copied, or no longer needed.
    pub done_bytes: u64,
    /// Recent rate; 0 if nothing is copied.
    pub bytes_per_second: f64,
    /// Time for the rest at the current rate; `None` if the rate is 0.
    pub time_left: Option<Duration>,
    /// Bytes of segments with one copy left of two or more: another drive failure would lose them.
    pub single_copy_bytes: u64,
    /// Blocks that could be read from no copy. The new copy lacks them as well.
    pub unreadable_blocks: u64,
    /// Bytes of the copies that were found on a drive that came back, and did not have to be written.
    pub matched_bytes: u64,
}

impl Mover {
    /// Progress of all jobs of the mover.
    pub fn jobs(&self) -> Vec<PoolJob> {
        self.count_lacking();
        self.count_leaving();
        self.count_unlevel();
        let has_leftovers = self.shared.state.borrow().has_leftovers();
        let reclaim = JobProgress { is_running: has_leftovers, ..JobProgress::default() };
        [
            (JobKind::Rebuild, self.rebuild_job.progress()),
            (JobKind::Empty, self.emptying_job.progress()),
            (JobKind::Level, self.levelling_job.progress()),
            (JobKind::Scrub, self.scrub_job.progress()),
            (JobKind::Destage, self.destage_job.progress()),
            (JobKind::Reclaim, reclaim),
        ]
        .map(|(kind, progress)| PoolJob { kind, progress })
        .to_vec()
    }

    /// Ends a job early; work that is complete counts. A rebuild begins again when a drive comes or goes, or
    /// on request; emptying when a drive comes or goes; levelling then, or on request; a scrub continues when
    /// the next one is due.
    pub fn cancel(&self, kind: JobKind) {
        match kind {
            JobKind::Rebuild => {
                self.rebuild_job.cancel();
                self.rebuild_held.set(Some(self.shared.drives.changes()));
            }
            JobKind::Empty => {
                self.emptying_job.cancel();
                self.emptying_held.set(Some(self.shared.drives.changes()));
            }
            JobKind::Level => {
                self.levelling_job.cancel();
                self.levelling_held.set(Some(self.shared.drives.changes()));
            }
            JobKind::Scrub => self.scrub_job.cancel(),
            JobKind::Destage => self.destage_job.cancel(),
            // The pool has this job.
            JobKind::Fill => unreachable!("the mover fills no branches"),
            JobKind::Reclaim => {}
            // Whoever runs these has their jobs.
            JobKind::Copy | JobKind::Refresh | JobKind::Move | JobKind::Import => {}
        }
    }

    /// Progress of the current rebuild, or of the last one.
    pub fn rebuild_progress(&self) -> RebuildProgress {
        let single_copy_bytes = self.count_lacking();
        let job = self.rebuild_job.progress();
        let unreadable_blocks = self.unreadable_blocks.get();
        RebuildProgress {
            total_bytes: job.total,
            done_bytes: job.done,
            bytes_per_second: job.per_second,
            time_left: job.time_left,
            single_copy_bytes,
            unreadable_blocks,
            matched_bytes: self.matched_bytes.get(),
        }
    }

    /// Counts what a rebuild has to do. Returns the bytes of segments with one copy left of two or more.
    fn count_lacking(&self) -> u64 {
        let drives = &self.shared.drives;
        let slot_bytes = u64::from(drives.geometry().slot_bytes);
        let (mut lacking, mut single) = (0, 0);
        for (_, row) in self.shared.state.borrow().segments.iter() {
            let segment = SegmentLayout::of(row);
            if !segment.scheme().is_redundant() {
                continue;
            }
            let there = drives.copies_there(&row.slots);
            let missing = segment.missing(there, drives.copies_wanted(row.kind));
            lacking += missing as u64 * slot_bytes;
            single += u64::from(there == 1 && drives.copies().of_kind(row.kind) > 1) * slot_bytes;
        }
        if self.rebuild_job.set_lacking(lacking) {
            self.unreadable_blocks.set(0);
            self.matched_bytes.set(0);
        }
        single
    }
}

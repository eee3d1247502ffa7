//! Probes of drives that had no space: an administrator can make room without telling the pool.

use super::drive_watch::DriveWatch;
use crate::{
    drive::{WriteFailures, all_written},
    engine::events::EventKind,
    error::Result,
    format::{BLOCK_BYTES, MemberIndex},
    redundancy::Placement,
};
use std::{sync::Arc, time::Duration};
use world::{Buffer, Moment, Stability};

/// Interval of the probes.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// A drive that has had space for so long is reported as returned.
const BACK_AFTER: Duration = Duration::from_secs(5);

impl DriveWatch {
    /// Probes drives without space, when a probe is due.
    ///
    /// # Errors
    ///
    /// The pool has stopped.
    pub(super) async fn probe_space(&self) -> Result<()> {
        let out_of_space = self.shared.drives.out_of_space();
        let now = self.shared.world.now();
        self.report_space(&out_of_space, now);
        if out_of_space.is_empty() {
            self.next_probe.set(now + TRY_AGAIN);
        }
        if now < self.next_probe.get() {
            return Ok(());
        }
        for (member, _) in out_of_space {
            if self.accepts_a_slot(member).await? {
                self.shared.drives.set_has_space(member);
                self.shared.note_drive_change();
                self.log.check_copies();
            }
        }
        self.next_probe.set(self.shared.world.now() + TRY_AGAIN);
        Ok(())
    }

    /// Reports drives that ran out of space, and those that have had space again for a while: with little
    /// space a drive accepts a slot now and then.
    fn report_space(&self, out_of_space: &WriteFailures, now: Moment) {
        let (shared, mut reported) = (&self.shared, self.out_of_space_reported.borrow_mut());
        for (member, error) in out_of_space {
            if reported.insert(*member, None).is_none() {
                let (drive, error) = (shared.drive_name(*member), error.clone());
                shared.events.report(EventKind::DriveOutOfSpace { drive, error });
            }
        }
        reported.retain(|&member, since| {
            if shared.drives.has_space(member) {
                let has_space_since = *since.get_or_insert(now);
                if now.since(has_space_since) >= BACK_AFTER {
                    shared.events.report(EventKind::DriveReturn { drive: shared.drive_name(member) });
                    return false;
                }
            }
            shared.drives.has(member)
        });
    }

    /// True if a drive accepts writes to all of a free slot. That slot is the next to be allocated there, so
    /// its space is certain even if other slots would find none.
    async fn accepts_a_slot(&self, member: MemberIndex) -> Result<bool> {
        let shared = &self.shared;
        let domains = shared.drives.domains();
        let members = [member];
        let placement = Placement::on(&members, &domains);
        let slot = shared.state.borrow_mut().segments.allocate_slot(placement, &[]);
        // Without a free slot nothing is placed on it.
        let Some(slot) = slot else { return Ok(true) };
        let blocks = usize::from(shared.drives.geometry().slot_blocks());
        let zeroes = vec![Arc::new(Buffer::zeroed(blocks * BLOCK_BYTES))];
        let write = shared.drives.write(slot, 0, zeroes, Stability::Volatile);
        let is_there = write.is_some();
        let written = all_written(write.map(|write| (member, write)).into_iter().collect()).await;
        shared.state.borrow_mut().segments.give_back_as_next(slot);
        shared.demand.note_change();
        match written {
            Ok(()) => Ok(is_there),
            Err(failures) => shared.failed_to_write(failures).await.map(|()| false),
        }
    }
}

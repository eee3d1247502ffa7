//! Pinned log of a part, read in order, each record with whether its last command goes on.

use crate::{
    outbox::WaitingRecord,
    planted::{self, ReplicationBug},
    sent_changes::{changes_of, goes_on},
    taken_records::TakenRecords,
};
use array::{
    error::{Error, Result},
    format::{Position, VolumeId},
    pool::{DeliveredRecord, LogPin},
};
use std::{
    cell::RefCell,
    collections::{BTreeSet, VecDeque},
    rc::Rc,
};

pub(crate) struct RecordLog<'v> {
    volumes: &'v BTreeSet<VolumeId>,
    /// Position of the next record to read.
    from: Position,
    read: VecDeque<Rc<DeliveredRecord>>,
}

impl<'v> RecordLog<'v> {
    pub fn new(volumes: &'v BTreeSet<VolumeId>, from: Position) -> Self {
        Self { volumes, from, read: VecDeque::new() }
    }

    /// The next record with changes of the part; none if there is none yet, or if only the tables will show whether its
    /// last command goes on.
    pub async fn next(
        &mut self,
        pin: &LogPin,
        progress: &RefCell<TakenRecords>,
    ) -> Result<Option<WaitingRecord>> {
        loop {
            // A record is looked at with the one behind it, which may end its command.
            let has_more = self.read.len() >= 2 || self.read_more(pin).await?;
            let Some(record) = self.read.pop_front() else { return Ok(None) };
            let changes = changes_of(&record, self.volumes);
            let Some(&(last, _)) = changes.last() else { continue };
            let follows = self
                .read
                .front()
                .and_then(|next| changes_of(next, self.volumes).first().map(|first| first.0));
            // Read after the record was: it may have been taken meanwhile.
            let (complete, taken) = {
                let progress = progress.borrow();
                (progress.complete(), progress.taken())
            };
            let is_followed = record.position < taken && !planted::is(ReplicationBug::EndGuessed);
            if self.read.is_empty() && is_followed && has_more {
                // The one behind it was taken while this one was read, and shows whether the command goes on: that all of it is
                // taken says nothing of where it ends.
                self.read.push_front(record);
                continue;
            }
            let goes_on = match self.read.front() {
                Some(_) => follows == Some(last),
                None => goes_on(&record, self.volumes) && last > complete,
            };
            if goes_on && self.read.is_empty() && record.position > taken {
                // A whole command that is called a part would wait at the peer for the next one, and its host with it.
                self.read.push_front(record);
                return Ok(None);
            }
            return Ok(Some(WaitingRecord { position: record.position, changes, goes_on }));
        }
    }

    /// Reads the next records. False if there are none.
    ///
    /// The peer may confirm what it had before this line, faster than that is read: the pin moves on, and the log before it
    /// may be gone.
    async fn read_more(&mut self, pin: &LogPin) -> Result<bool> {
        self.from = self.from.max(pin.position().ok_or(Error::LogPinLost)?);
        let more = pin.read(self.from).await?;
        let Some(last) = more.last() else { return Ok(false) };
        self.from = Position(last.position.0 + 1);
        self.read.extend(more);
        Ok(true)
    }
}

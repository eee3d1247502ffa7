//! Hosts whose commands a subscriber of the log refused as it ended: what they began before gets an error, however late
//! the log takes it.
//!
//! The holds of a subscriber are of records that the tables have taken. A command that is still on its way to slow drives
//! at that moment is held by nobody, and nobody but this pool would ever have it.
//!
//! Invariants:
//!
//! 1. A command of a host that began before the end of a subscriber that had refused gets an error after it.
//! 2. From that end on no command of a host begins, until another subscriber holds answers of the volume, or a follower
//!    writes it, or none does any more.

use super::shared::Shared;
use crate::{
    error::{Error, Result},
    format::{VolumeId, VolumeNumber},
};
use std::{cell::RefCell, collections::BTreeMap};

/// The ends at which the hosts of a volume were refused, before a command began.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostsEnds(u64);

/// Volumes whose hosts were refused at the end of a subscriber. Few pools have any.
#[derive(Debug, Default)]
pub(crate) struct EndedHosts(RefCell<BTreeMap<VolumeId, EndsOfVolume>>);

#[derive(Debug, Default)]
struct EndsOfVolume {
    count: u64,
    is_closed: bool,
}

impl EndedHosts {
    /// A subscriber of these volumes refused, and has ended.
    pub fn end(&self, volumes: impl IntoIterator<Item = VolumeId>) {
        let mut ended = self.0.borrow_mut();
        for volume in volumes {
            let ends = ended.entry(volume).or_default();
            ends.count += 1;
            ends.is_closed = true;
        }
    }

    /// Another rule for hosts of these volumes holds from now on.
    pub fn reopen<'v>(&self, volumes: impl IntoIterator<Item = &'v VolumeId>) {
        let mut ended = self.0.borrow_mut();
        for volume in volumes {
            if let Some(ends) = ended.get_mut(volume) {
                ends.is_closed = false;
            }
        }
    }
}

impl Shared {
    /// A command of a host begins.
    ///
    /// # Errors
    ///
    /// Hosts of the volume were refused, and nobody else decides yet whether they may go on.
    pub fn begin_command_of_host(&self, volume: VolumeNumber) -> Result<HostsEnds> {
        let (ends, is_closed) = self.ends_of_hosts(volume);
        if is_closed { Err(Error::AnswerRefused) } else { Ok(ends) }
    }

    /// A command of a host has succeeded.
    ///
    /// # Errors
    ///
    /// Hosts of the volume were refused since it began.
    pub fn end_command_of_host(&self, volume: VolumeNumber, begun: HostsEnds) -> Result<()> {
        let (ends, _) = self.ends_of_hosts(volume);
        assert!(begun.0 <= ends.0, "ends are counted up");
        if begun == ends { Ok(()) } else { Err(Error::AnswerRefused) }
    }

    fn ends_of_hosts(&self, volume: VolumeNumber) -> (HostsEnds, bool) {
        let ended = self.subscribers.ended_hosts.0.borrow();
        if ended.is_empty() {
            return (HostsEnds(0), false);
        }
        let volume = self.state.borrow().catalogue.volume(volume).map(|row| row.volume);
        let ends = volume.and_then(|volume| ended.get(&volume));
        ends.map_or((HostsEnds(0), false), |ends| (HostsEnds(ends.count), ends.is_closed))
    }
}

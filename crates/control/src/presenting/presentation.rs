//! A presentation, as the journal has it.

use crate::{
    hexadecimal::hexadecimal,
    session_view::{SessionProtocol, SessionView},
};
use array::format::{PoolId, SnapshotId, VolumeId};
use iscsi::target::access::AccessRight;
use report::calendar::utc_time;
use serde::{Deserialize, Serialize};
use serving::export::{IdentityOrigin, name_of};

/// Longest time of a presentation: a leap year.
pub const SECONDS_MAX: u64 = 366 * 86_400;
/// Time before the end at which hosts that are logged in are a warning.
pub const WARNED_SECONDS: i64 = 600;
/// Characters of a target's name that say what it is of, and bytes of the digits behind them.
const TARGET_NAME_MAX: usize = 80;
const TARGET_DIGIT_BYTES: usize = 4;

/// A point of a volume that is presented to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presentation {
    /// UUID. That of its clone, too.
    pub id: [u8; 16],
    pub pool: [u8; 16],
    pub volume: [u8; 16],
    pub snapshot: [u8; 16],
    /// `POOL/VOLUME@POINT`, as it was called at the beginning.
    pub path: String,
    /// iSCSI name in lower case.
    pub initiator: String,
    /// The site lists the initiator: without its row, and so without its secret, nothing is presented to it.
    pub is_listed: bool,
    /// The end of the target's iSCSI name.
    pub target: String,
    /// The target is this presentation's alone; else it is one of the site.
    pub has_own_target: bool,
    /// Logical unit number.
    pub number: u64,
    /// `None`: the point itself, read-only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone: Option<PresentedClone>,
    pub began_unix_s: i64,
    pub ends_unix_s: i64,
    pub stage: PresentationStage,
    /// The warning before its end was given.
    #[serde(default)]
    pub is_warned: bool,
}

/// A writable clone of the point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PresentedClone {
    /// Its name at the beginning.
    pub name: String,
    /// It stays when the presentation ends.
    pub is_kept: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PresentationStage {
    /// Nothing is served yet; the clone may be there.
    Beginning,
    /// Served until its time.
    Presented,
    /// Not served any more; the clone may be there.
    Ending(EndReason),
}

/// The reason of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// Its time has come.
    Time,
    /// A person ended it.
    Withdrawn,
    /// The point, or the clone, is not there any more.
    Gone,
}

impl Presentation {
    pub fn pool_id(&self) -> PoolId {
        PoolId(self.pool)
    }

    /// The name that its pool had at the beginning.
    pub fn pool_name_then(&self) -> &str {
        self.path.split('/').next().unwrap_or_default()
    }

    pub fn volume_id(&self) -> VolumeId {
        VolumeId(self.volume)
    }

    pub fn snapshot_id(&self) -> SnapshotId {
        SnapshotId(self.snapshot)
    }

    /// The clone, if there is one.
    pub fn clone_id(&self) -> Option<VolumeId> {
        self.clone.as_ref().map(|_| VolumeId(self.id))
    }

    /// UUID of the presentation as text.
    pub fn id_text(&self) -> String {
        VolumeId(self.id).to_string()
    }

    /// iSCSI name of the target.
    pub fn target_name(&self) -> String {
        name_of(&self.target)
    }

    /// The unit's UUID, of which initiators see serial number and NAA. It is not the volume's.
    pub fn identity(&self) -> String {
        let origin = match self.clone_id() {
            Some(clone) => IdentityOrigin::Volume(clone),
            None => IdentityOrigin::Snapshot(self.volume_id(), self.snapshot_id()),
        };
        origin.of_pool().expect("volumes and snapshots have one").to_string()
    }

    /// The initiator's right on the unit.
    pub fn right(&self) -> AccessRight {
        if self.clone.is_some() { AccessRight::Write } else { AccessRight::Read }
    }

    /// True if hosts may reach it at a time in seconds since 1970.
    pub fn is_open_at(&self, unix_s: i64) -> bool {
        self.stage == PresentationStage::Presented && unix_s < self.ends_unix_s
    }

    /// The hosts of these sessions that use it.
    pub(crate) fn hosts_among(&self, sessions: &[SessionView]) -> Vec<String> {
        let full = self.target_name();
        let is_of = |session: &&SessionView| {
            session.protocol == SessionProtocol::Iscsi
                && session.service == full
                && session.initiator.as_ref().is_some_and(|name| name.eq_ignore_ascii_case(&self.initiator))
                && session.units.iter().any(|&(number, _)| number == self.number)
        };
        sessions.iter().filter(is_of).map(SessionView::host).collect()
    }

    /// In words: `mail/store@monday, read-only, presented to iqn.x:backup1 until 2026-11-30T06:00:00Z`.
    pub fn words(&self) -> String {
        let form = match &self.clone {
            Some(clone) => format!("as its clone {}", clone.name),
            None => "read-only".to_owned(),
        };
        let until = utc_time(self.ends_unix_s);
        format!("{}, {form}, presented to {} until {until}", self.path, self.initiator)
    }
}

/// Name of a target for one presentation alone: what it is of, and digits that make it unique.
pub fn own_target(volume: &str, point: &str, id: [u8; 16]) -> String {
    let name: String = format!("presented-{volume}-{point}").chars().take(TARGET_NAME_MAX).collect();
    format!("{name}.{}", hexadecimal(&id[..TARGET_DIGIT_BYTES]))
}

//! Failure domains: drives that fail together, as the administrator says.

use super::Pool;
use crate::{
    engine::DomainStatus,
    error::{Error, Result},
    failure_sets::divide_by_domains,
    format::{DomainName, DriveId, MemberIndex, MemberState},
};

impl Pool {
    /// The domains that drives have, by name. Reads the rows of all segments.
    pub fn domains(&self) -> Vec<DomainStatus> {
        self.shared.domains()
    }

    /// The domain of a member, present or not; `None` if it has none, or is no member.
    pub fn domain_of(&self, drive: DriveId) -> Option<DomainName> {
        let superblock = self.shared.superblock.borrow();
        superblock.members.iter().find(|member| member.drive == drive)?.domain
    }

    /// Mirrored segments of several copies, all of them in one domain: another domain had no room, or drives changed
    /// domains. Levelling moves the copies apart.
    pub fn segments_in_one_domain(&self) -> u64 {
        self.shared.segments_in_one_domain()
    }

    /// Gives drives other domains, all at once; `None` for none. Returns when every superblock says so. Copies that are
    /// in one domain then are moved apart in the background. Drives are divided into other failure sets if
    /// copies would otherwise have to share domains within them.
    ///
    /// # Errors
    ///
    /// A drive is no member; nothing was changed. Or the pool has stopped.
    pub async fn set_domains(&self, domains: &[(DriveId, Option<DomainName>)]) -> Result<()> {
        let _one_at_a_time = self.shared.lock_changes().await;
        self.shared.check_runs()?;
        let mut rows = Vec::new();
        for &(drive, domain) in domains {
            rows.push((self.listed_row(drive)?, domain));
        }
        let is_as_before = |&(index, domain): &(MemberIndex, Option<DomainName>)| {
            self.shared.superblock.borrow().members[usize::from(index.0)].domain == domain
        };
        if rows.iter().all(is_as_before) {
            return Ok(());
        }
        let change = |superblock: &mut crate::format::Superblock| {
            for (index, domain) in rows {
                superblock.members[usize::from(index.0)].domain = domain;
            }
            divide_by_domains(superblock);
        };
        self.shared.publish(change).await?;
        self.shared.note_drive_change();
        self.mover.begin_levelling();
        Ok(())
    }

    fn listed_row(&self, drive: DriveId) -> Result<MemberIndex> {
        let superblock = self.shared.superblock.borrow();
        let is_it =
            |member: &crate::format::Member| member.drive == drive && member.state != MemberState::Gone;
        let index = superblock.members.iter().position(is_it).ok_or(Error::NoDrive(drive))?;
        Ok(MemberIndex(index as u16))
    }
}

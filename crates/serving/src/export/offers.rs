//! An export as its clients find it, apart from the addresses: made on the thread that serves it, shown by another.

use super::{PlannedTarget, SharedDevice, iscsi_endpoints::full_name_of, write_cache::EffectiveWriteCache};
use iscsi::scsi::identity::UnitIdentity;
use std::path::PathBuf;
use world::ByteCount;

/// The offers of an export over each protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportOffers {
    pub name: String,
    /// As given.
    pub path: PathBuf,
    pub size: ByteCount,
    pub is_read_only: bool,
    /// Over NBD.
    pub write_cache: EffectiveWriteCache,
    /// Over iSCSI.
    pub unit: UnitOffer,
}

/// A unit of an iSCSI target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitOffer {
    /// iSCSI name of the target.
    pub target: String,
    pub number: u64,
    pub is_read_only: bool,
    pub write_cache: EffectiveWriteCache,
    pub identity: UnitIdentity,
}

impl ExportOffers {
    /// Of each export that is a unit of these targets; `write_cache` overrides the volumes' own setting.
    pub fn all(
        (shared, identities): (&[SharedDevice], &[UnitIdentity]),
        planned: &[PlannedTarget],
        write_cache: Option<bool>,
    ) -> Vec<Self> {
        let offers = |(shared_device, identity): (&SharedDevice, &UnitIdentity)| {
            let (target, unit) = planned.iter().find_map(|target| {
                Some((target, target.units.iter().find(|unit| unit.export == shared_device.name)?))
            })?;
            Some(Self {
                name: shared_device.name.clone(),
                path: shared_device.path.clone(),
                size: shared_device.device.geometry().size,
                is_read_only: shared_device.is_read_only,
                write_cache: EffectiveWriteCache::of(shared_device, write_cache, None),
                unit: UnitOffer {
                    target: full_name_of(target, shared, identities),
                    number: unit.number,
                    is_read_only: shared_device.is_read_only || unit.is_read_only,
                    write_cache: EffectiveWriteCache::of(shared_device, write_cache, unit.write_cache),
                    identity: *identity,
                },
            })
        };
        shared.iter().zip(identities).filter_map(offers).collect()
    }
}

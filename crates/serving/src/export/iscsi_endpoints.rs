//! Exports over iSCSI: each path is a target of its own with unit 0, or a unit of a target that `--access` describes.

use super::{
    ExportEndpoint, ExportSettings, Offer,
    access_file::{self, PlannedTarget, PlannedUnit, TargetPlan},
    shared::SharedDevice,
    write_cache::EffectiveWriteCache,
};
use array::pool::Alarm;
use iscsi::{
    scsi::{identity::UnitIdentity, properties::UnitProperties, unit::LogicalUnit},
    target::{Target, TargetEvent, Targets, access::AccessList, serve},
};
use report::Refusal;
use std::{path::Path, rc::Rc};
use world::{Listener, World};

/// Prefix of target names.
const AUTHORITY: &str = "iqn.2026-11.org.spindle";

/// Planned targets, and the listeners that serve them.
pub struct IscsiEndpoints {
    plan: TargetPlan,
    /// Discovery address; with portals it serves discovery only.
    pub listener: Rc<dyn Listener>,
    /// Addresses that initiators are redirected to.
    pub portals: Vec<Rc<dyn Listener>>,
}

/// The targets that `--access` describes, before any export is opened.
pub fn target_plan(access: Option<&Path>, exports: &[String]) -> Result<TargetPlan, Refusal> {
    match access {
        Some(path) => access_file::read(path, exports),
        None => Ok(access_file::for_everybody(exports)),
    }
}

impl IscsiEndpoints {
    pub fn new(plan: TargetPlan, listener: Rc<dyn Listener>, portals: Vec<Rc<dyn Listener>>) -> Self {
        Self { plan, listener, portals }
    }

    /// Endpoints that serve the exports as targets, and a handle that asks all initiators to log out.
    pub fn open(
        self,
        world: &World,
        (shared, identities): (&[SharedDevice], &[UnitIdentity]),
        settings: &ExportSettings,
        tell: &Rc<dyn Fn(TargetEvent)>,
    ) -> (Vec<ExportEndpoint>, Targets) {
        let Self { plan: TargetPlan { targets, access, is_restricted }, listener, portals } = self;
        let address = listener.address();
        let full_name = |target: &PlannedTarget| full_name_of(target, shared, identities);
        let offer = |shared: &SharedDevice| {
            let place = targets.iter().find_map(|target| {
                let unit = target.units.iter().find(|unit| unit.export == shared.name)?;
                Some((target, unit))
            });
            let (target, unit) = place.expect("each export is a unit of a target");
            Offer {
                uri: format!("iscsi://{address}/{}/{}", full_name(target), unit.number),
                is_read_only: shared.is_read_only || unit.is_read_only,
                write_cache: EffectiveWriteCache::of(shared, settings.write_cache, unit.write_cache),
            }
        };
        let offers = shared.iter().map(offer).collect();
        let access = access_of(access, &targets, (shared, identities));
        let targets = assemble(&targets, (shared, identities), settings);
        let targets = Targets::new(targets).with_access(access);
        let serve_at = |listener: Rc<dyn Listener>, targets: Targets, offers: Vec<Offer>| {
            let address = listener.address();
            let serving = serve(world.clone(), listener, targets, Rc::clone(tell));
            ExportEndpoint {
                address,
                offers,
                identities: Some(identities.to_vec()),
                serving: Box::pin(serving),
                is_restricted,
            }
        };
        let elsewhere: Vec<String> = portals.iter().map(|portal| portal.address().to_string()).collect();
        let group =
            if elsewhere.is_empty() { targets.clone() } else { targets.clone().redirected_to(elsewhere) };
        let mut endpoints = vec![serve_at(listener, group, offers)];
        endpoints.extend(portals.into_iter().map(|portal| serve_at(portal, targets.clone(), Vec::new())));
        (endpoints, targets)
    }
}

/// Planned targets with the exports as their units.
pub fn assemble(
    planned: &[PlannedTarget],
    (shared, identities): (&[SharedDevice], &[UnitIdentity]),
    settings: &ExportSettings,
) -> Vec<Target> {
    let unit = |planned: &PlannedUnit| {
        let index = index_of(&planned.export, shared);
        let unit = Rc::new(unit_of(planned, (&shared[index], identities[index]), settings));
        shared[index].served.add_unit(&unit);
        (planned.number, unit)
    };
    let target_of = |target: &PlannedTarget| Target {
        name: full_name_of(target, shared, identities),
        units: target.units.iter().map(unit).collect(),
    };
    planned.iter().map(target_of).collect()
}

/// The rights on these targets, by their iSCSI names; rights on others are dropped.
pub fn access_of(
    access: AccessList,
    planned: &[PlannedTarget],
    (shared, identities): (&[SharedDevice], &[UnitIdentity]),
) -> AccessList {
    access.with_target_names(|name| {
        let target = planned.iter().find(|target| target.name == name)?;
        Some(full_name_of(target, shared, identities))
    })
}

/// The iSCSI name of a planned target.
pub(super) fn full_name_of(
    target: &PlannedTarget,
    shared: &[SharedDevice],
    identities: &[UnitIdentity],
) -> String {
    if target.is_named {
        name_of(&target.name)
    } else {
        unique_name_of(&target.name, identities[index_of(&target.name, shared)])
    }
}

/// The name of a target: characters that iSCSI names may not have (RFC 3722) become dashes.
pub fn name_of(name: &str) -> String {
    let plain =
        |c: char| if c.is_ascii_alphanumeric() || ".-:".contains(c) { c.to_ascii_lowercase() } else { '-' };
    format!("{AUTHORITY}:{}", name.chars().map(plain).collect::<String>())
}

/// Name of a target that the access file does not name: two hosts may export a `store`, and names are unique worldwide (RFC 7143, 4.2.7).
pub fn unique_name_of(export: &str, identity: UnitIdentity) -> String {
    /// Longest iSCSI name (RFC 7143, 4.2.7.2).
    const NAME_BYTES_MAX: usize = 223;
    let digits = identity.digits();
    let mut name = name_of(export);
    // It is ASCII here.
    name.truncate(NAME_BYTES_MAX - 1 - digits.len());
    format!("{name}.{digits}")
}

fn index_of(export: &str, shared: &[SharedDevice]) -> usize {
    shared.iter().position(|shared| shared.name == export).expect("plans are made of exports")
}

pub(super) fn unit_of(
    planned: &PlannedUnit,
    (shared, identity): (&SharedDevice, UnitIdentity),
    settings: &ExportSettings,
) -> LogicalUnit {
    let device = Rc::clone(&shared.device);
    let (logical, physical) = settings.block_bytes;
    // Blocks are whole sectors of the device.
    let block_bytes = logical.max(device.geometry().sector);
    let physical_bytes = physical.max(block_bytes);
    let properties = UnitProperties {
        product: "EXPORT".to_owned(),
        revision: "0001".to_owned(),
        identity,
        block_bytes,
        physical_bytes,
        is_read_only: shared.is_read_only || planned.is_read_only,
        is_thin: shared.is_thin,
        is_removable: settings.is_removable,
        port: 1,
    };
    let write_cache = EffectiveWriteCache::of(shared, settings.write_cache, planned.write_cache);
    write_cache.apply(shared);
    let unit = LogicalUnit::new(properties, device, shared.sparse.clone(), write_cache.is_on);
    match &shared.fill {
        // Initiators are notified when the pool's alarms go off.
        Some(fill) => unit.with_thresholds(
            Rc::clone(fill),
            [Alarm::Full80, Alarm::Full90, Alarm::Full95].map(|alarm| alarm as u8),
        ),
        None => unit,
    }
}

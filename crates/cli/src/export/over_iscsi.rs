//! Over iSCSI: each path is a target of its own, with unit 0.

use super::{Door, Shared};
use crate::{arguments::ExportArguments, console::Console};
use iscsi::{
    scsi::{facts::Facts, unit::Unit},
    target::{Event, Target, Targets, serve},
};
use std::{
    collections::BTreeMap,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    rc::Rc,
};
use world::{Listener, World};

/// Names of targets begin with it.
const AUTHORITY: &str = "iqn.2026-11.org.spindle";

/// What is shared, as targets.
pub fn door(
    world: &World,
    listener: Rc<dyn Listener>,
    shared: &[Shared],
    arguments: &ExportArguments,
    console: &Console,
) -> Door {
    let address = listener.address();
    let uris = shared.iter().map(|shared| format!("iscsi://{address}/{}/0", name_of(shared))).collect();
    let targets = Targets::new(shared.iter().map(|shared| target_of(shared, arguments)).collect());
    let told = console.clone();
    let tell = Rc::new(move |event| say(&told, &event));
    let serving = serve(world.clone(), listener, targets, address.to_string(), tell);
    Door { address, uris, serving: Box::pin(serving) }
}

/// The name of its target: what iSCSI names may not have (RFC 3722) becomes a dash.
fn name_of(shared: &Shared) -> String {
    let plain =
        |c: char| if c.is_ascii_alphanumeric() || ".-:".contains(c) { c.to_ascii_lowercase() } else { '-' };
    format!("{AUTHORITY}:{}", shared.name.chars().map(plain).collect::<String>())
}

fn target_of(shared: &Shared, arguments: &ExportArguments) -> Target {
    let device = Rc::clone(&shared.device);
    let name = name_of(shared);
    // The same at each start, and another one for each name.
    let number = BuildHasherDefault::<DefaultHasher>::default().hash_one(&name);
    let facts = Facts {
        product: "EXPORT".to_owned(),
        revision: "0001".to_owned(),
        serial: format!("{number:016x}"),
        name: number,
        block_bytes: device.geometry().sector,
        physical_bytes: 4096,
        is_read_only: shared.is_read_only,
        is_thin: shared.is_thin,
        port: 1,
    };
    let unit = Unit::new(facts, device, shared.sparse.clone(), arguments.write_cache);
    Target { name, units: BTreeMap::from([(0, Rc::new(unit))]), initiators: None }
}

fn say(console: &Console, event: &Event) {
    match event {
        Event::LoggedIn { peer, initiator, target: Some(target) } => {
            console.say_progress(&format!("{peer} {initiator} uses {target}"));
        }
        Event::LoggedIn { peer, initiator, target: None } => {
            console.say_progress(&format!("{peer} {initiator} asks for targets"));
        }
        Event::Ended { peer, why: None } => console.say_progress(&format!("{peer} is done")),
        Event::Ended { peer, why: Some(why) } => console.say_progress(&format!("{peer}: {why}")),
        Event::NotAccepted(error) => console.warn(&error.to_string()),
    }
}

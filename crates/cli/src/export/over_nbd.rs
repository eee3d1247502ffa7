//! Over NBD.

use super::{Door, Shared};
use crate::{arguments::ExportArguments, console::Console};
use nbd::{Export, Exports, ServerOptions, Uri, serve, server::Event};
use std::rc::Rc;
use world::{Listener, World};

/// What is shared, as exports.
pub fn door(
    world: &World,
    listener: Rc<dyn Listener>,
    shared: &[Shared],
    arguments: &ExportArguments,
    console: &Console,
) -> Door {
    let address = listener.address();
    let uri = |shared: &Shared| Uri { address: address.clone(), export: shared.name.clone() }.to_string();
    let uris = shared.iter().map(uri).collect();
    let exports = Exports::new(shared.iter().map(|shared| export_of(shared, arguments)).collect());
    let told = console.clone();
    let tell = Rc::new(move |event| say(&told, &event));
    let serving = serve(world.clone(), listener, exports, ServerOptions::default(), tell);
    Door { address, uris, serving: Box::pin(serving), is_restricted: false }
}

fn export_of(shared: &Shared, arguments: &ExportArguments) -> Export {
    Export {
        name: shared.name.clone(),
        description: format!("{} of Spindle", shared.what),
        device: Rc::clone(&shared.device),
        sparse: shared.sparse.clone(),
        is_read_only: shared.is_read_only,
        has_write_cache: arguments.write_cache,
    }
}

fn say(console: &Console, event: &Event) {
    match event {
        Event::Connected { peer, export } => console.say_progress(&format!("{peer} uses {export:?}")),
        Event::Disconnected { peer, why: None } => console.say_progress(&format!("{peer} is done")),
        Event::Disconnected { peer, why: Some(why) } => console.say_progress(&format!("{peer}: {why}")),
        Event::NotAccepted(error) => console.warn(&error.to_string()),
    }
}

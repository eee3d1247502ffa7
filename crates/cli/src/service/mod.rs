//! What a server serves, and to whom: `spindle target`, `initiator`, `session`, `schedule`, and `export list|create|delete`.
//!
//! Changes go through the API of a running server. What a server that does not run served last is read from its journal.

pub mod arguments;
mod export_rows;
mod initiator;
mod result;
mod schedule;
mod session;
mod target;

pub use export_rows::export_rows;
pub use initiator::initiator;
pub use schedule::schedule;
pub use session::session;
pub use target::target;

use crate::{
    console::Console,
    server::{connection::ServerConnection, place::ServerPlace},
    site::last_served,
    state_folder::state_folder,
};
use control::site::handle::SiteView;
use report::Refusal;
use std::sync::Arc;
use world::World;

/// A server that runs, or the site that one served last.
enum ServiceSource {
    Server(ServerConnection),
    Journal(SiteView),
}

/// Finds the source of rows to look at.
fn source(world: &World, place: &ServerPlace, console: &Console) -> Result<ServiceSource, Refusal> {
    if let Some(connection) = place.address.connection(world)? {
        return match place.state {
            Some(_) => Err(Refusal::new("⟨state⟩ and ⟨server⟩ name two servers", "say one of both")),
            None => Ok(ServiceSource::Server(connection)),
        };
    }
    let state = place.state.clone().unwrap_or_else(state_folder);
    match last_served(&state)? {
        None => ServerConnection::of_folder(world, &state).map(ServiceSource::Server),
        Some(site) => {
            console.warn(&format!(
                "no server runs with the state folder {}: this is what it served last",
                state.display()
            ));
            Ok(ServiceSource::Journal(SiteView { site: Arc::new(site), ..SiteView::default() }))
        }
    }
}

/// The server that is to change something.
fn running(world: &World, place: &ServerPlace) -> Result<ServerConnection, Refusal> {
    let state = place.state.clone().unwrap_or_else(state_folder);
    if place.address.server.is_none() && last_served(&state)?.is_some() {
        return Err(Refusal::new(
            format!("no server runs with the state folder {}: nothing was changed", state.display()),
            "start it with 'spindle serve', or change its site file",
        ));
    }
    place.connection(world)
}

/// A list of names, where `none` is none.
fn names(list: Vec<String>) -> Vec<String> {
    match &list[..] {
        [only] if only == "none" => Vec::new(),
        _ => list,
    }
}

/// A number of things in words.
fn counted(count: usize, one: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        many => format!("{many} {one}s"),
    }
}

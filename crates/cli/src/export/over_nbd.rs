//! Over NBD.

use super::{ExportEndpoint, Offer, SharedDevice, write_cache::EffectiveWriteCache};
use crate::{arguments::ExportArguments, certificates, console::Console};
use nbd::{Export, Exports, ServerOptions, TlsMode, Uri, UriTls, serve, server::Event};
use report::Refusal;
use std::rc::Rc;
use world::{Listener, World};

/// The TLS mode that the arguments select.
pub fn tls(arguments: &ExportArguments) -> Result<TlsMode, Refusal> {
    let Some(folder) = &arguments.nbd_tls else { return Ok(TlsMode::Off) };
    if arguments.nbd.is_none() && arguments.iscsi.is_some() {
        return Err(Refusal::new("--nbd-tls without NBD", "say where NBD is served, too: --nbd ADDRESS"));
    }
    let tls = certificates::of_server(folder)?;
    Ok(if arguments.nbd_tls_optional { TlsMode::Allowed(tls) } else { TlsMode::Required(tls) })
}

/// Endpoint that serves the exports.
pub fn endpoint(
    world: &World,
    (listener, tls): (Rc<dyn Listener>, TlsMode),
    shared: &[SharedDevice],
    arguments: &ExportArguments,
    console: &Console,
) -> ExportEndpoint {
    let address = listener.address();
    let uri_tls = match tls {
        TlsMode::Off => None,
        TlsMode::Allowed(_) | TlsMode::Required(_) => Some(UriTls::default()),
    };
    let is_restricted = matches!(&tls, TlsMode::Required(tls) if tls.asks_who());
    let uri = |shared: &SharedDevice| {
        Uri { address: address.clone(), export: shared.name.clone(), tls: uri_tls.clone() }.to_string()
    };
    let offer = |shared: &SharedDevice| {
        let write_cache = EffectiveWriteCache::of(shared, arguments.write_cache, None);
        Offer { uri: uri(shared), is_read_only: shared.is_read_only, write_cache }
    };
    let offers: Vec<Offer> = shared.iter().map(offer).collect();
    let exports = offers.iter().zip(shared).map(|(offer, shared)| export_of(shared, &offer.write_cache));
    let exports = Exports::new(exports.collect());
    let options = ServerOptions { tls, ..ServerOptions::default() };
    let told = console.clone();
    let tell = Rc::new(move |event| say(&told, &event));
    let serving = serve(world.clone(), listener, exports, options, tell);
    ExportEndpoint { address, offers, identities: None, serving: Box::pin(serving), is_restricted }
}

fn export_of(shared: &SharedDevice, write_cache: &EffectiveWriteCache) -> Export {
    write_cache.apply(shared);
    Export {
        name: shared.name.clone(),
        description: format!("{} of Spindle", shared.what),
        device: Rc::clone(&shared.device),
        sparse: shared.sparse.clone(),
        is_read_only: shared.is_read_only,
        has_write_cache: write_cache.is_on,
    }
}

fn say(console: &Console, event: &ServerEvent) {
    match event {
        ServerEvent::Connected { peer, export, is_encrypted } => {
            let how = if *is_encrypted { " over TLS" } else { "" };
            console.say_progress(&format!("{peer} uses {export:?}{how}"));
        }
        ServerEvent::Disconnected { peer, why: None } => console.say_progress(&format!("{peer} is done")),
        ServerEvent::Disconnected { peer, why: Some(why) } => console.say_progress(&format!("{peer}: {why}")),
        ServerEvent::NotAccepted(error) => console.warn(&error.to_string()),
    }
}

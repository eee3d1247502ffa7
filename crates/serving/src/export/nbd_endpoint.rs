//! Exports over NBD.

use super::{ExportEndpoint, ExportSettings, Offer, shared::SharedDevice, write_cache::EffectiveWriteCache};
use nbd::{Export, Exports, NbdUri, ServerOptions, TlsMode, UriTls, serve, server::ServerEvent};
use std::rc::Rc;
use world::{Listener, World};

/// Endpoint that serves the exports.
pub fn nbd_endpoint(
    world: &World,
    (listener, tls): (Rc<dyn Listener>, TlsMode),
    shared: &[SharedDevice],
    settings: &ExportSettings,
    tell: Rc<dyn Fn(ServerEvent)>,
) -> ExportEndpoint {
    let address = listener.address();
    let uri_tls = match tls {
        TlsMode::Off => None,
        TlsMode::Allowed(_) | TlsMode::Required(_) => Some(UriTls::default()),
    };
    let is_restricted = matches!(&tls, TlsMode::Required(tls) if tls.asks_who());
    let uri = |shared: &SharedDevice| {
        NbdUri {
            address: address.clone(),
            others: Vec::new(),
            export: shared.name.clone(),
            tls: uri_tls.clone(),
        }
        .to_string()
    };
    let offer = |shared: &SharedDevice| {
        let write_cache = EffectiveWriteCache::of(shared, settings.write_cache, None);
        Offer { uri: uri(shared), is_read_only: shared.is_read_only, write_cache }
    };
    let offers: Vec<Offer> = shared.iter().map(offer).collect();
    let exports = offers.iter().zip(shared).map(|(offer, shared)| export_of(shared, &offer.write_cache));
    let exports = Exports::new(exports.collect());
    let options = ServerOptions { tls, ..ServerOptions::default() };
    let serving = serve(world.clone(), listener, exports, options, tell);
    ExportEndpoint { address, offers, identities: None, serving: Box::pin(serving), is_restricted }
}

/// The exports over NBD; `write_cache` overrides the volumes' own setting.
pub fn nbd_exports(shared: &[SharedDevice], write_cache: Option<bool>) -> Vec<Export> {
    let of = |shared: &SharedDevice| export_of(shared, &EffectiveWriteCache::of(shared, write_cache, None));
    shared.iter().map(of).collect()
}

pub(super) fn export_of(shared: &SharedDevice, write_cache: &EffectiveWriteCache) -> Export {
    write_cache.apply(shared);
    Export {
        name: shared.name.clone(),
        description: format!("{} of Spindle", shared.what),
        device: Rc::clone(&shared.device),
        sparse: shared.sparse.clone(),
        bitmaps: shared.bitmaps.clone(),
        is_read_only: shared.is_read_only,
        gate: shared.served.add_nbd(),
        has_write_cache: write_cache.is_on,
    }
}

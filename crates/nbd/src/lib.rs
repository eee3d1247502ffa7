//! NBD (network block device): a server for any [`BlockDevice`](world::BlockDevice), and a client that is
//! one.
//!
//! The protocol is <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>: fixed newstyle
//! handshake, structured replies, the metadata contexts `base:allocation` and `qemu:dirty-bitmap:NAME`, flush, FUA, trim, write zeroes,
//! several connections to one export, STARTTLS.
//!
//! Reading order: [`wire`], [`export`], [`export_gate`], [`tls`], [`server`], [`client`].

mod certificate_end;

pub mod wire;

pub mod export;

pub mod export_gate;

pub mod tls;

pub mod server;

pub mod client;

pub use certificate_end::certificate_end;
pub use client::{Client, ClientOptions, NbdUri, NbdUriError, UriTls};
pub use export::{DirtyBitmap, DirtyBitmaps, DirtyExtent, Export, Exports, ListedExport};
pub use export_gate::ExportGate;
pub use server::{ServerOptions, serve};
pub use tls::{ClientTls, ServerTls, TlsError, TlsIdentity, TlsMode};

/// The port IANA assigned to NBD.
pub const PORT: u16 = 10809;

//! NBD (network block device): a server for any [`BlockDevice`](world::BlockDevice), and a client that is
//! one.
//!
//! The protocol is <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>: fixed newstyle
//! handshake, structured replies, the metadata contexts `base:allocation` and `qemu:dirty-bitmap:NAME`, flush, FUA, trim, write zeroes,
//! several connections to one export, STARTTLS.
//!
//! Reading order: [`wire`], [`export`], [`export_gate`], [`server`], [`client`].

pub mod wire;

pub mod export;

pub mod export_gate;

pub mod server;

pub mod client;

pub use client::{Client, ClientOptions, NbdUri, NbdUriError, UriTls};
pub use export::{DirtyBitmap, DirtyBitmaps, DirtyExtent, Export, Exports, ListedExport};
pub use export_gate::ExportGate;
pub use server::{ServerOptions, TlsMode, serve};

/// The port IANA assigned to NBD.
pub const PORT: u16 = 10809;

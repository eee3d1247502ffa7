//! Exports: the block devices a server offers.

use crate::export_gate::ExportGate;
use crate::wire::{
    PAYLOAD_BYTES_MAX,
    handshake::{BlockSizes, transmission_flag},
};
use std::{collections::BTreeSet, rc::Rc};
use world::{BlockDevice, ByteCount, ByteOffset, IoResult, LocalFuture, Sparse, Stability};

#[derive(Clone)]
pub struct Export {
    /// Export name; may be empty.
    pub name: String,
    /// Human-readable description.
    pub description: String,
    pub device: Rc<dyn BlockDevice>,
    /// The same device, if it can report holes and write zeroes without data.
    pub sparse: Option<Rc<dyn Sparse>>,
    /// Changes since earlier states, as metadata contexts `qemu:dirty-bitmap:NAME`.
    pub bitmaps: Option<Rc<dyn DirtyBitmaps>>,
    pub is_read_only: bool,
    /// The same for all endpoints of the export.
    pub gate: Rc<ExportGate>,
    /// True if writes are acknowledged before they are durable; flush and FUA make them durable. If false,
    /// every acknowledged write is durable.
    pub has_write_cache: bool,
}

/// Earlier states of an export from which changes can be asked for. They may come and go while it is served.
pub trait DirtyBitmaps {
    /// Names of the bitmaps: at most 1,000 bytes each, without control characters.
    fn names(&self) -> Vec<String>;

    /// The bitmap of that name.
    fn find(&self, name: &str) -> Option<Rc<dyn DirtyBitmap>>;
}

/// Bytes of an export that changed since an earlier state.
pub trait DirtyBitmap {
    /// Extents from `at` on, adjacent and in order. They cover at least one byte and at most `length`.
    fn extents(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<Vec<DirtyExtent>>>;
}

/// Adjacent bytes that all may have changed, or have not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirtyExtent {
    /// At least one byte.
    pub length: ByteCount,
    pub is_dirty: bool,
}

impl Export {
    /// Size in bytes and [`transmission_flag`]s.
    pub fn size_and_flags(&self) -> (u64, u16) {
        let mut flags = transmission_flag::HAS_FLAGS
            | transmission_flag::FLUSH
            | transmission_flag::DF
            | transmission_flag::MULTI_CONN
            | transmission_flag::CACHE;
        if self.is_read_only {
            flags |= transmission_flag::READ_ONLY;
        } else {
            flags |= transmission_flag::FUA | transmission_flag::TRIM | transmission_flag::WRITE_ZEROES;
            if self.sparse.is_some() {
                flags |= transmission_flag::FAST_ZERO;
            }
        }
        (self.device.geometry().size.0, flags)
    }

    pub fn block_sizes(&self) -> BlockSizes {
        let least = self.device.geometry().sector;
        BlockSizes { least, best: least.max(4096), most: PAYLOAD_BYTES_MAX }
    }

    /// Durability a write must have before it is acknowledged.
    pub fn stability(&self, is_fua: bool) -> Stability {
        if is_fua || !self.has_write_cache { Stability::Stable } else { Stability::Volatile }
    }
}

/// The exports of a server, in the order LIST returns them.
#[derive(Clone, Default)]
pub struct Exports {
    here: Vec<Rc<Export>>,
    scope: ExportScope,
}

/// The exports of a server that a thread knows.
#[derive(Clone, Default)]
enum ExportScope {
    #[default]
    All,
    /// Its own. Others may be another thread's, and names of all are the portal's to list.
    Thread { default: Option<String> },
    /// The names of all; each is another thread's.
    Portal(Rc<[ListedExport]>),
}

/// An export as the portal of a server with several threads lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedExport {
    pub name: String,
    /// Human-readable description.
    pub description: String,
    /// Its thread has ended: clients are refused until it runs again.
    pub is_stopped: bool,
}

/// The place where the export of a name is served.
pub(crate) enum ExportPlace<'e> {
    Here(&'e Rc<Export>),
    /// Perhaps, by another thread.
    Elsewhere,
    /// By a thread that has ended.
    Stopped,
    Nowhere,
}

impl Exports {
    ///
    /// # Panics
    ///
    /// If two exports have one name.
    pub fn new(exports: Vec<Export>) -> Self {
        let names: BTreeSet<&str> = exports.iter().map(|export| export.name.as_str()).collect();
        assert_eq!(names.len(), exports.len(), "an export is known by its name");
        Self { here: exports.into_iter().map(Rc::new).collect(), scope: ExportScope::All }
    }

    /// The exports of one thread of a server. Clients that ask for anything else are sent back to the portal.
    ///
    /// # Panics
    ///
    /// If two exports have one name.
    pub fn of_thread(exports: Vec<Export>) -> Self {
        Self { scope: ExportScope::Thread { default: None }, ..Self::new(exports) }
    }

    /// The same exports for a client to whom the empty name means `default`: the only export of all threads.
    pub(crate) fn with_default(self, default: Option<String>) -> Self {
        assert!(self.is_of_thread(), "all others know how many exports there are");
        Self { scope: ExportScope::Thread { default }, ..self }
    }

    /// The exports of all threads, for a portal, which serves none itself.
    pub fn of_portal(listed: impl IntoIterator<Item = ListedExport>) -> Self {
        Self { here: Vec::new(), scope: ExportScope::Portal(listed.into_iter().collect()) }
    }

    pub fn all(&self) -> &[Rc<Export>] {
        &self.here
    }

    /// True if this export is served, and not another volume under its name.
    pub(crate) fn has(&self, export: &Export) -> bool {
        self.here.iter().any(|here| here.name == export.name && Rc::ptr_eq(&here.gate, &export.gate))
    }

    /// True if the exports of other threads are listed, and TLS is begun, by a portal.
    pub(crate) fn is_of_thread(&self) -> bool {
        matches!(self.scope, ExportScope::Thread { .. })
    }

    /// Names and descriptions.
    pub(crate) fn list(&self) -> Vec<(&str, &str)> {
        match &self.scope {
            ExportScope::Portal(listed) => {
                listed.iter().map(|export| (export.name.as_str(), export.description.as_str())).collect()
            }
            _ => self.here.iter().map(|export| (export.name.as_str(), export.description.as_str())).collect(),
        }
    }

    /// The place of the export of that name. The empty name also finds a server's only export.
    pub(crate) fn place(&self, name: &str) -> ExportPlace<'_> {
        let named = |name: &str| self.here.iter().find(|export| export.name == name);
        match (named(name), &self.scope) {
            (Some(export), _) => ExportPlace::Here(export),
            (None, ExportScope::Thread { default: Some(default) }) if name.is_empty() => {
                named(default).map_or(ExportPlace::Elsewhere, ExportPlace::Here)
            }
            (None, ExportScope::Thread { .. }) => ExportPlace::Elsewhere,
            (None, ExportScope::Portal(listed)) => {
                let only = listed.first().filter(|_| name.is_empty() && listed.len() == 1);
                match listed.iter().find(|export| export.name == name).or(only) {
                    Some(export) if export.is_stopped => ExportPlace::Stopped,
                    Some(_) => ExportPlace::Elsewhere,
                    None => ExportPlace::Nowhere,
                }
            }
            (None, ExportScope::All) => match self.here.first() {
                Some(only) if name.is_empty() && self.here.len() == 1 => ExportPlace::Here(only),
                _ => ExportPlace::Nowhere,
            },
        }
    }
}

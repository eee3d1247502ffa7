//! Exports: the block devices a server offers.

use crate::export_gate::ExportGate;
use crate::wire::{
    PAYLOAD_BYTES_MAX,
    handshake::{BlockSizes, transmission_flag},
};
use std::rc::Rc;
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
pub struct Exports(Vec<Rc<Export>>);

impl Exports {
    ///
    /// # Panics
    ///
    /// If two exports have one name.
    pub fn new(exports: Vec<Export>) -> Self {
        let names: std::collections::BTreeSet<&str> =
            exports.iter().map(|export| export.name.as_str()).collect();
        assert_eq!(names.len(), exports.len(), "an export is known by its name");
        Self(exports.into_iter().map(Rc::new).collect())
    }

    pub fn all(&self) -> &[Rc<Export>] {
        &self.0
    }

    /// The export of that name. The empty name also finds a server's only export.
    pub fn find(&self, name: &str) -> Option<&Rc<Export>> {
        let named = self.0.iter().find(|export| export.name == name);
        named.or_else(|| self.0.first().filter(|_| name.is_empty() && self.0.len() == 1))
    }
}

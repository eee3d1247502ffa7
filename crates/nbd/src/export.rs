//! What a server offers.

use crate::wire::{
    PAYLOAD_BYTES_MAX,
    handshake::{BlockSizes, can},
};
use std::rc::Rc;
use world::{BlockDevice, Sparse, Stability};

/// A device under a name.
#[derive(Clone)]
pub struct Export {
    /// What clients ask for; may be empty.
    pub name: String,
    /// For people.
    pub description: String,
    /// What is served.
    pub device: Rc<dyn BlockDevice>,
    /// The same, if it knows where it holds nothing.
    pub sparse: Option<Rc<dyn Sparse>>,
    /// Nothing may be written.
    pub is_read_only: bool,
    /// Whether writes are answered before they are stable: flush and FUA make them so. Else every write is stable
    /// when it is answered.
    pub has_write_cache: bool,
}

impl Export {
    /// Bytes it has, and what can be done with it ([`can`]).
    pub fn facts(&self) -> (u64, u16) {
        let mut flags = can::HAS_FLAGS | can::FLUSH | can::DF | can::MULTI_CONN | can::CACHE;
        if self.is_read_only {
            flags |= can::READ_ONLY;
        } else {
            flags |= can::FUA | can::TRIM | can::WRITE_ZEROES;
            if self.sparse.is_some() {
                flags |= can::FAST_ZERO;
            }
        }
        (self.device.geometry().size.0, flags)
    }

    /// Sizes of requests it takes.
    pub fn block_sizes(&self) -> BlockSizes {
        let least = self.device.geometry().sector;
        BlockSizes { least, best: least.max(4096), most: PAYLOAD_BYTES_MAX }
    }

    /// How a write is to be done.
    pub fn stability(&self, is_fua: bool) -> Stability {
        if is_fua || !self.has_write_cache { Stability::Stable } else { Stability::Volatile }
    }
}

/// What there is, in the order in which it is listed.
#[derive(Clone, Default)]
pub struct Exports(Vec<Rc<Export>>);

impl Exports {
    /// Those of `exports`.
    ///
    /// # Panics
    ///
    /// If two have one name.
    pub fn new(exports: Vec<Export>) -> Self {
        let names: std::collections::BTreeSet<&str> =
            exports.iter().map(|export| export.name.as_str()).collect();
        assert_eq!(names.len(), exports.len(), "an export is known by its name");
        Self(exports.into_iter().map(Rc::new).collect())
    }

    /// All of them.
    pub fn all(&self) -> &[Rc<Export>] {
        &self.0
    }

    /// The one of that name. No name means the only one there is.
    pub fn find(&self, name: &str) -> Option<&Rc<Export>> {
        let named = self.0.iter().find(|export| export.name == name);
        named.or_else(|| self.0.first().filter(|_| name.is_empty() && self.0.len() == 1))
    }
}

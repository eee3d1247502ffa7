//! Metadata contexts: which an export has, which a query names, and which a client has selected.
//!
//! | Context | Bits of its extents |
//! |---|---|
//! | `base:allocation` | 0 hole, 1 reads as zeroes |
//! | `qemu:dirty-bitmap:NAME` | 0 dirty: changed since an earlier state (QEMU's docs/interop/nbd.rst) |
//!
//! The empty leaf names (`base:`, `qemu:`, `qemu:dirty-bitmap:`) are wildcards of a list, and select nothing.

use crate::{
    export::{DirtyBitmap, Export},
    wire::handshake::{ALLOCATION, ContextRequest},
};
use std::{collections::BTreeSet, rc::Rc};

const DIRTY_BITMAP: &str = "qemu:dirty-bitmap:";
/// Contexts that a client may select: each costs a chunk of every reply.
pub const CONTEXTS_MAX: usize = 16;

/// A metadata context of an export.
#[derive(Clone)]
pub enum MetadataContext {
    Allocation,
    Dirty(Rc<dyn DirtyBitmap>),
}

/// The contexts that a client has selected for one export, by id from 1 on.
#[derive(Clone, Default)]
pub struct SelectedContexts(Vec<MetadataContext>);

impl SelectedContexts {
    /// Contexts with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &MetadataContext)> {
        (1..).zip(&self.0)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The names of contexts that a list shows; all if there is no query.
pub fn listed(export: &Export, request: &ContextRequest) -> Vec<String> {
    let bitmaps = export.bitmaps.as_ref().map_or_else(Vec::new, |bitmaps| bitmaps.names());
    let names = bitmaps.into_iter().map(|name| format!("{DIRTY_BITMAP}{name}"));
    let all = std::iter::once(ALLOCATION.to_owned()).chain(names);
    let queries: BTreeSet<&str> = request.queries.iter().map(String::as_str).collect();
    let is_asked_for = |name: &String| {
        let wildcards = if name == ALLOCATION { &["base:"][..] } else { &["qemu:", DIRTY_BITMAP] };
        queries.is_empty()
            || queries.contains(name.as_str())
            || wildcards.iter().any(|wildcard| queries.contains(wildcard))
    };
    all.filter(is_asked_for).collect()
}

/// The contexts that a request selects, with their names; each once. `None` if they are too many.
pub fn selected(export: &Export, request: &ContextRequest) -> Option<(SelectedContexts, Vec<String>)> {
    let (mut contexts, mut names) = (Vec::new(), Vec::new());
    let queries: BTreeSet<&String> = request.queries.iter().collect();
    for query in queries {
        let context = match query.strip_prefix(DIRTY_BITMAP) {
            _ if query == ALLOCATION => Some(MetadataContext::Allocation),
            Some(name) => {
                export.bitmaps.as_ref().and_then(|bitmaps| bitmaps.find(name)).map(MetadataContext::Dirty)
            }
            None => None,
        };
        let Some(context) = context else { continue };
        if contexts.len() == CONTEXTS_MAX {
            return None;
        }
        contexts.push(context);
        names.push(query.clone());
    }
    Some((SelectedContexts(contexts), names))
}

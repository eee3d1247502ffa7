//! The append position of a tree: behind the last key of its last leaf.

use super::{
    super::{
        Step,
        changes::ChangeSet,
        core::Core,
        rows::{TableTree, merge_near_key},
        space,
        tree::{self, Path, SEPARATOR_BYTES_MAX},
    },
    link::is_lone_leaf,
};
use crate::{
    format::{key::KEY_BYTES_MAX, page::PageFlags, page_size::PageNumber},
    log::{LogHandle, RestructureKind},
};
use world::Moment;

/// Prepares a tree for appending: its last leaf keeps its page number and is not empty unless the tree is,
/// and the branches above have room for a last separator. Returns true if it must be called again.
pub fn prepare(core: &mut Core, log: &LogHandle, now: Moment, tree: TableTree) -> Step<bool> {
    if is_lone_leaf(&mut core.change_set(tree.database, now), tree.root)? {
        core.restructure(log, now, tree.database, RestructureKind::Split, |changes| {
            let page = space::allocate(changes, tree.root)?;
            tree::raise_root(changes, tree.root, page)
        })?;
        return Ok(true);
    }
    if let Some(path) = crowded_branch(&mut core.change_set(tree.database, now), tree.root)? {
        core.restructure(log, now, tree.database, RestructureKind::Split, |changes| {
            let page = space::allocate(changes, tree.root)?;
            tree::split(changes, tree.root, &path, 0, page)
        })?;
        return Ok(true);
    }
    let mut pages = core.change_set(tree.database, now);
    let leaf = tree::rightmost_leaf(&mut pages, tree.root)?;
    if leaf == tree.root || pages.view(leaf)?.node_count() > 0 {
        return Ok(false);
    }
    merge_near_key(core, log, now, tree, &[u8::MAX; KEY_BYTES_MAX])
}

/// The path down to the highest rightmost branch without room for a last separator, if any.
fn crowded_branch(changes: &mut ChangeSet<'_>, root: PageNumber) -> Step<Option<Path>> {
    let Path { branches, .. } = tree::rightmost_path(changes, root)?;
    for (depth, &(page, _)) in branches.iter().enumerate() {
        if changes.view(page)?.free_bytes() < SEPARATOR_BYTES_MAX {
            return Ok(Some(Path { branches: branches[..depth].to_vec(), leaf: page }));
        }
    }
    Ok(None)
}

/// The append position of a tree.
pub struct RightEnd {
    /// Last leaf; `None` if the tree is empty.
    pub leaf: Option<PageNumber>,
    /// New keys must be above this one.
    pub bound: Vec<u8>,
    /// Flags of the root.
    pub flags: PageFlags,
}

/// The append position; `None` if the tree needs to be [prepared](prepare) first.
pub fn right_end(changes: &mut ChangeSet<'_>, tree: TableTree) -> Step<Option<RightEnd>> {
    if is_lone_leaf(changes, tree.root)? || crowded_branch(changes, tree.root)?.is_some() {
        return Ok(None);
    }
    let flags = changes.view(tree.root)?.flags();
    let path = tree::rightmost_path(changes, tree.root)?;
    let mut bound = Vec::new();
    if path.leaf == tree.root {
        return Ok(Some(RightEnd { leaf: None, bound, flags }));
    }
    let view = changes.view(path.leaf)?;
    match view.node_count() {
        // The leaf is empty, yet new keys must be above its own last separator.
        0 => {
            for &(page, slot) in path.branches.iter().filter(|(_, slot)| *slot > 0) {
                changes.view(page)?.key_of(slot - 1, &mut bound);
            }
        }
        nodes => view.key_of(nodes - 1, &mut bound),
    }
    Ok(Some(RightEnd { leaf: Some(path.leaf), bound, flags }))
}

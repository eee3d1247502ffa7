//! B+trees over pages.
//!
//! Leaves hold records in key order and are linked to their neighbours; branches hold a separator and a child
//! for each node. A separator is greater than every key to its left and not greater than any to its right.
//! The last separator of a branch equals the one its parent stores for it, and is empty on the rightmost
//! branch of a level. Branches of databases written before 2026-11-24 may end with an empty separator
//! anywhere, and remain valid: no search compares with a last separator.
//!
//! Every function is one synchronous step over a [`ChangeSet`]. Splits and merges each leave a complete tree
//! behind, so a big change is a loop of small ones: an insert without room splits one page (the leaf, or the
//! lowest branch whose parent can take one more separator) and starts again.

use super::{
    Step,
    changes::{ChangeSet, impossible},
    space,
};
use crate::format::{
    key::KEY_BYTES_MAX,
    page::{PageFlags, PageView},
    page_size::{ObjectId, PageNumber},
};

/// Upper bound of a tree's depth: a branch has at least two children, and there are 2^32 pages.
const LEVELS_MAX: usize = 32;
/// Upper bound of the leaves of a tree that is read within one step: the catalogue's and the space trees.
const LEAVES_MAX: u32 = 1 << 20;
/// A page is offered for merging when less than this share of it is used.
const SPARSE_DIVISOR: usize = 4;
/// Two pages are merged if together they fill at most this many tenths of one.
const MERGED_FILL_TENTHS: usize = 8;

/// Largest extra space of a branch's last separator, compared with an empty one. A branch with that much room
/// can stop being the rightmost of its level.
pub const SEPARATOR_BYTES_MAX: usize = KEY_BYTES_MAX;

/// The path from a root to a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Branch pages from the root down, each with the slot of the child taken.
    pub branches: Vec<(PageNumber, usize)>,
    pub leaf: PageNumber,
}

/// Finds the leaf for `key`.
pub fn descend(changes: &mut ChangeSet<'_>, root: PageNumber, key: &[u8]) -> Step<Path> {
    path_by(changes, root, |view| view.child_for(key))
}

/// Exclusive upper bound of the keys of the path's leaf; `None` for the last leaf.
pub fn upper_bound(changes: &mut ChangeSet<'_>, path: &Path) -> Step<Option<Vec<u8>>> {
    for &(page, slot) in path.branches.iter().rev() {
        let view = changes.view(page)?;
        if slot + 1 < view.node_count() {
            let mut separator = Vec::new();
            view.key_of(slot, &mut separator);
            return Ok(Some(separator));
        }
    }
    Ok(None)
}

/// The leaf with the smallest keys.
pub fn leftmost_leaf(changes: &mut ChangeSet<'_>, root: PageNumber) -> Step<PageNumber> {
    walk(changes, root, None, |view| (0, view.child(0)), |_, _| {})
}

/// The leaf with the largest keys.
pub fn rightmost_leaf(changes: &mut ChangeSet<'_>, root: PageNumber) -> Step<PageNumber> {
    rightmost_path(changes, root).map(|path| path.leaf)
}

/// The path to the leaf with the largest keys.
pub fn rightmost_path(changes: &mut ChangeSet<'_>, root: PageNumber) -> Step<Path> {
    path_by(changes, root, |view| (view.node_count() - 1, view.child(view.node_count() - 1)))
}

fn path_by(
    changes: &mut ChangeSet<'_>,
    root: PageNumber,
    choose: impl Fn(&PageView<'_>) -> (usize, PageNumber),
) -> Step<Path> {
    let mut branches = Vec::with_capacity(4);
    let leaf = walk(changes, root, None, choose, |page, slot| branches.push((page, slot)))?;
    Ok(Path { branches, leaf })
}

/// Descends from a page to a leaf and returns the leaf; calls `took` with each branch page and the slot
/// taken. All pages must be of `object`, or if that is unknown, of the first page's.
fn walk(
    changes: &mut ChangeSet<'_>,
    from: PageNumber,
    mut object: Option<ObjectId>,
    choose: impl Fn(&PageView<'_>) -> (usize, PageNumber),
    mut took: impl FnMut(PageNumber, usize),
) -> Step<PageNumber> {
    let database = changes.database();
    let mut page = from;
    for _ in 0..=LEVELS_MAX {
        let view = changes.view(page)?;
        if *object.get_or_insert(view.object_id()) != view.object_id() {
            return Err(impossible(database, page, "a page of another tree was reached"));
        }
        if view.is_leaf() {
            return Ok(page);
        }
        if view.node_count() == 0 {
            break;
        }
        let (slot, child) = choose(&view);
        took(page, slot);
        page = child;
    }
    Err(impossible(database, page, "a branch page has no children"))
}

/// Visits the leaves of a tree from `first` on, until `visit` returns false.
pub fn walk_leaves(
    changes: &mut ChangeSet<'_>,
    first: PageNumber,
    mut visit: impl FnMut(PageNumber, &PageView<'_>) -> Step<bool>,
) -> Step<()> {
    let database = changes.database();
    let mut leaf = Some(first);
    let mut leaves_left = LEAVES_MAX;
    while let Some(page) = leaf {
        leaves_left -= 1;
        if leaves_left == 0 {
            return Err(impossible(database, page, "the leaves are linked in a circle"));
        }
        let view = changes.view(page)?;
        if !visit(page, &view)? {
            return Ok(());
        }
        leaf = view.next();
    }
    Ok(())
}

/// Calls `read` with the record of that key, if it exists. `from` is the root of the tree of `object`, or any
/// page on the path from there to the key.
pub fn lookup<T>(
    changes: &mut ChangeSet<'_>,
    from: PageNumber,
    object: ObjectId,
    key: &[u8],
    read: impl FnOnce(&[u8]) -> Step<T>,
) -> Step<Option<T>> {
    let leaf = walk(changes, from, Some(object), |view| view.child_for(key), |_, _| {})?;
    let view = changes.view(leaf)?;
    view.find(key).ok().map(|slot| read(view.node(slot).data)).transpose()
}

/// Inserts a record, splitting pages as needed; false if the key exists. For changes that are part of larger
/// ones (the catalogue); single records use [`super::rows`].
pub fn insert(changes: &mut ChangeSet<'_>, root: PageNumber, key: &[u8], data: &[u8]) -> Step<bool> {
    loop {
        let path = descend(changes, root, key)?;
        let Err(slot) = changes.view(path.leaf)?.find(key) else { return Ok(false) };
        if changes.insert_node(path.leaf, slot, key, data)?.is_ok() {
            return Ok(true);
        }
        let page = space::allocate(changes, root)?;
        split(changes, root, &path, slot, page)?;
    }
}

/// Splits the leaf of `path`, or the lowest page above it whose parent has room for a separator, into itself
/// and `new_page`. `slot` is the slot in which the leaf is about to grow.
pub fn split(
    changes: &mut ChangeSet<'_>,
    root: PageNumber,
    path: &Path,
    slot: usize,
    new_page: PageNumber,
) -> Step<()> {
    let mut target = (path.leaf, slot);
    for &(parent, child_slot) in path.branches.iter().rev() {
        let (at, separator) = choose_split(changes, target.0, target.1)?;
        let parent_view = changes.view(parent)?;
        if parent_view.free_bytes() >= parent_view.bytes_needed(&separator, &[0; 4]) {
            return split_below(changes, (parent, child_slot), target.0, at, &separator, new_page);
        }
        target = (parent, child_slot);
    }
    assert_eq!(target.0, root, "the top of a path is the root");
    raise_root(changes, root, new_page)
}

/// Moves all nodes of the root to `child`, so that the root has room and the child can be split.
pub fn raise_root(changes: &mut ChangeSet<'_>, root: PageNumber, child: PageNumber) -> Step<()> {
    let view = changes.view(root)?;
    let flags = view.flags();
    let object = view.object_id();
    let nodes = collect_nodes(&view, 0, view.node_count());
    changes.format(child, object, flags.without(PageFlags::ROOT));
    fill(changes, child, &nodes, &[])?;
    changes.remove_nodes(root, 0, nodes.len())?;
    let parent_of_leaf =
        if flags.contains(PageFlags::LEAF) { PageFlags::PARENT_OF_LEAF } else { PageFlags::default() };
    changes.set_flags(root, flags.without(PageFlags::LEAF | PageFlags::PARENT_OF_LEAF) | parent_of_leaf)?;
    changes.insert_node(root, 0, &[], &child.0.to_le_bytes())?.expect("an empty root has room");
    Ok(())
}

/// The slot at which to split a page, and the separator between the halves.
fn choose_split(changes: &mut ChangeSet<'_>, page: PageNumber, slot: usize) -> Step<(usize, Vec<u8>)> {
    let database = changes.database();
    let view = changes.view(page)?;
    let count = view.node_count();
    if count < 2 {
        return Err(impossible(database, page, "a page with fewer than two nodes is full"));
    }
    let is_leaf = view.flags().contains(PageFlags::LEAF);
    let at = if is_leaf && slot == count && view.next().is_none() {
        // Ascending inserts should leave full pages behind, not half-full ones.
        count - 1
    } else {
        let used = |slot: usize| view.node(slot).suffix.len() + view.node(slot).data.len() + 8;
        let total: usize = (0..count).map(used).sum();
        let mut left = 0;
        let middle = (0..count).position(|slot| {
            left += used(slot);
            left * 2 >= total
        });
        (middle.unwrap_or(0) + 1).clamp(1, count - 1)
    };
    let mut left_last = Vec::new();
    view.key_of(at - 1, &mut left_last);
    if !is_leaf {
        // The last separator of the left half is the parent's too.
        return Ok((at, left_last));
    }
    let mut right_first = Vec::new();
    view.key_of(at, &mut right_first);
    Ok((at, shortest_separator(&left_last, &right_first)))
}

/// The shortest prefix of `right` that is greater than `left`.
pub fn shortest_separator(left: &[u8], right: &[u8]) -> Vec<u8> {
    assert!(left < right, "keys of a tree ascend");
    let common = left.iter().zip(right).take_while(|(l, r)| l == r).count();
    right[..=common].to_vec()
}

fn split_below(
    changes: &mut ChangeSet<'_>,
    (parent, child_slot): (PageNumber, usize),
    page: PageNumber,
    at: usize,
    separator: &[u8],
    new_page: PageNumber,
) -> Step<()> {
    let view = changes.view(page)?;
    let flags = view.flags();
    let object = view.object_id();
    let next = view.next();
    let previous = view.previous();
    let count = view.node_count();
    let is_leaf = view.is_leaf();
    let prefix = view.prefix().to_vec();
    let moved = collect_nodes(&view, at, count);
    if let Some(next) = next {
        // Read first: if it is missing, nothing has been changed yet.
        let after = changes.view(next)?.next();
        changes.set_siblings(next, Some(new_page), after)?;
    }
    changes.format(new_page, object, flags);
    fill(changes, new_page, &moved, &prefix)?;
    changes.remove_nodes(page, at, count - at)?;
    if is_leaf {
        changes.set_siblings(new_page, Some(page), next)?;
        changes.set_siblings(page, previous, Some(new_page))?;
    }
    changes.replace_data(parent, child_slot, &new_page.0.to_le_bytes())?.expect("the same length fits");
    changes.insert_node(parent, child_slot, separator, &page.0.to_le_bytes())?.expect("room was checked");
    Ok(())
}

/// Sets the last separator of a branch that is no longer the rightmost of its level. The caller ensures room
/// for it, [`SEPARATOR_BYTES_MAX`] at most.
pub fn set_last_separator(changes: &mut ChangeSet<'_>, branch: PageNumber, separator: &[u8]) -> Step<()> {
    let view = changes.view(branch)?;
    let last = view.node_count() - 1;
    let (mut before, child) = (Vec::new(), view.child(last));
    view.key_of(last, &mut before);
    if before != separator {
        changes.remove_nodes(branch, last, 1)?;
        changes.insert_node(branch, last, separator, &child.0.to_le_bytes())?.expect("room was checked");
    }
    Ok(())
}

/// Key and data of a node.
type OwnedNode = (Vec<u8>, Vec<u8>);

fn collect_nodes(view: &PageView<'_>, from: usize, to: usize) -> Vec<OwnedNode> {
    (from..to)
        .map(|slot| {
            let mut key = Vec::new();
            view.key_of(slot, &mut key);
            (key, view.node(slot).data.to_vec())
        })
        .collect()
}

/// Fills a new page with nodes that were together on a page with `old_prefix`. Its prefix is the best of
/// three: that one, the common prefix of its own keys, or none; so the nodes never need more room than
/// before.
fn fill(changes: &mut ChangeSet<'_>, page: PageNumber, nodes: &[OwnedNode], old_prefix: &[u8]) -> Step<()> {
    let common = common_prefix(nodes);
    let prefix = [common, old_prefix, &[]].into_iter().min_by_key(|prefix| bytes_with_prefix(nodes, prefix));
    let prefix = prefix.expect("there are three candidates");
    if !prefix.is_empty() {
        changes.set_external_header(page, prefix)?.expect("an empty page has room");
    }
    for (slot, (key, data)) in nodes.iter().enumerate() {
        changes.insert_node(page, slot, key, data)?.expect("nodes that fitted with the old prefix fit");
    }
    Ok(())
}

/// Common prefix of the first and the last key, ignoring an empty last separator.
fn common_prefix(nodes: &[OwnedNode]) -> &[u8] {
    let mut keys = nodes.iter().map(|(key, _)| key.as_slice()).filter(|key| !key.is_empty());
    let (Some(first), Some(last)) = (keys.next(), keys.next_back()) else { return &[] };
    let common = first.iter().zip(last).take_while(|(left, right)| left == right).count();
    &first[..common]
}

/// Bytes of the keys on a page with that prefix, the prefix included.
fn bytes_with_prefix(nodes: &[OwnedNode], prefix: &[u8]) -> usize {
    let key_bytes = |key: &[u8]| {
        let shared = key.iter().zip(prefix).take_while(|(left, right)| left == right).count();
        // A shared prefix costs two bytes for its length, and is used only if that pays.
        key.len() - shared.saturating_sub(2)
    };
    prefix.len() + nodes.iter().map(|(key, _)| key_bytes(key)).sum::<usize>()
}

/// True if so little of a page is used that a merge is worth trying.
pub fn is_sparse(view: &PageView<'_>) -> bool {
    let capacity = view.size().bytes() - view.size().header_bytes();
    capacity - view.free_bytes() < capacity / SPARSE_DIVISOR
}

/// After a deletion: merges the sparse page nearest to the leaf on the path to `key` with a neighbour, or
/// lowers a root with one child. False if there was nothing to do.
pub fn merge_once(changes: &mut ChangeSet<'_>, root: PageNumber, key: &[u8]) -> Step<bool> {
    let path = descend(changes, root, key)?;
    let mut page = path.leaf;
    for &(parent, slot) in path.branches.iter().rev() {
        let parent_children = changes.view(parent)?.node_count();
        if parent == root && parent_children == 1 {
            return lower_root(changes, root, page);
        }
        if is_sparse(&changes.view(page)?) && parent_children > 1 {
            // With the right neighbour if it exists, else with the left.
            let left_slot = if slot + 1 < parent_children { slot } else { slot - 1 };
            if merge_children(changes, root, parent, left_slot)? {
                return Ok(true);
            }
        }
        page = parent;
    }
    Ok(false)
}

/// Moves the nodes of the child at `left_slot + 1` into the one at `left_slot`, if both fit well.
fn merge_children(
    changes: &mut ChangeSet<'_>,
    root: PageNumber,
    parent: PageNumber,
    left_slot: usize,
) -> Step<bool> {
    let parent_view = changes.view(parent)?;
    let left = parent_view.child(left_slot);
    let right = parent_view.child(left_slot + 1);
    let mut separator = Vec::new();
    parent_view.key_of(left_slot, &mut separator);

    let left_view = changes.view(left)?;
    if left_view.is_leaf() && left_view.node_count() == 0 {
        return drop_empty_left(changes, root, (parent, left_slot), left, right).map(|()| true);
    }
    let left_free = left_view.free_bytes();
    let right_view = changes.view(right)?;
    let is_leaf = right_view.is_leaf();
    let right_next = right_view.next();
    let capacity = right_view.size().bytes() - right_view.size().header_bytes();
    let right_used = capacity - right_view.free_bytes();
    if right_view.node_count() > 0 && (capacity - left_free + right_used) * 10 > capacity * MERGED_FILL_TENTHS
    {
        return Ok(false);
    }
    let right_nodes = collect_nodes(&right_view, 0, right_view.node_count());
    let left_view = changes.view(left)?;
    let left_previous = left_view.previous();
    let left_count = left_view.node_count();
    let arriving: usize = right_nodes.iter().map(|(key, data)| left_view.bytes_needed(key, data)).sum();
    let used_after = capacity - left_view.free_bytes() + arriving + separator.len();
    if !right_nodes.is_empty() && used_after * 10 > capacity * MERGED_FILL_TENTHS {
        return Ok(false);
    }
    if let Some(next) = right_next {
        let after = changes.view(next)?.next();
        changes.set_siblings(next, Some(left), after)?;
    }
    if is_leaf {
        changes.set_siblings(left, left_previous, right_next)?;
    } else {
        // Empty, if the page is from before 2026-11-24.
        set_last_separator(changes, left, &separator)?;
    }
    for (offset, (key, data)) in right_nodes.iter().enumerate() {
        changes.insert_node(left, left_count + offset, key, data)?.expect("room was checked");
    }
    changes.remove_nodes(parent, left_slot, 1)?;
    changes.replace_data(parent, left_slot, &left.0.to_le_bytes())?.expect("the same length fits");
    space::free(changes, root, right)?;
    Ok(true)
}

/// Removes an empty leaf before its right neighbour, which takes over its key range.
fn drop_empty_left(
    changes: &mut ChangeSet<'_>,
    root: PageNumber,
    (parent, left_slot): (PageNumber, usize),
    left: PageNumber,
    right: PageNumber,
) -> Step<()> {
    let previous = changes.view(left)?.previous();
    let next = changes.view(right)?.next();
    if let Some(previous) = previous {
        let before = changes.view(previous)?.previous();
        changes.set_siblings(previous, before, Some(right))?;
    }
    changes.set_siblings(right, previous, next)?;
    changes.remove_nodes(parent, left_slot, 1)?;
    space::free(changes, root, left)
}

/// Moves the only child's nodes into the root, if they fit beside its header.
fn lower_root(changes: &mut ChangeSet<'_>, root: PageNumber, child: PageNumber) -> Step<bool> {
    let child_view = changes.view(child)?;
    let child_flags = child_view.flags();
    let child_level = if child_view.is_leaf() {
        PageFlags::LEAF
    } else if child_flags.contains(PageFlags::PARENT_OF_LEAF) {
        PageFlags::PARENT_OF_LEAF
    } else {
        PageFlags::default()
    };
    let nodes = collect_nodes(&child_view, 0, child_view.node_count());
    let root_view = changes.view(root)?;
    let root_flags = root_view.flags();
    let node_bytes = root_view.bytes_needed(&[], &[0; 4]);
    let arriving: usize = nodes.iter().map(|(key, data)| root_view.bytes_needed(key, data)).sum();
    if arriving > root_view.free_bytes() + node_bytes {
        return Ok(false);
    }
    changes.remove_nodes(root, 0, 1)?;
    let level = PageFlags::LEAF | PageFlags::PARENT_OF_LEAF;
    changes.set_flags(root, root_flags.without(level) | child_level)?;
    for (slot, (key, data)) in nodes.iter().enumerate() {
        changes.insert_node(root, slot, key, data)?.expect("room was checked");
    }
    space::free(changes, root, child)?;
    Ok(true)
}

/// The data of every record, in key order. For small trees: the whole tree must fit the cache.
pub fn all_data(changes: &mut ChangeSet<'_>, root: PageNumber) -> Step<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let first = leftmost_leaf(changes, root)?;
    walk_leaves(changes, first, |_, view| {
        found.extend((0..view.node_count()).map(|slot| view.node(slot).data.to_vec()));
        Ok(true)
    })?;
    Ok(found)
}

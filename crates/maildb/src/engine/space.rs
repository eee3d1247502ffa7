//! Space management: ownership and allocation of pages.
//!
//! Every tree has two small trees of its own, in the true ESE form: *owned extents* (OE, all pages it was
//! ever given) and *available extents* (AE, the free ones among them). The database itself is such a tree,
//! rooted at page 1, and owns the whole file. An extent is a node whose key is its last page, big-endian, and
//! whose data is its page count.
//!
//! Invariants:
//!
//! 1. The extents a database owns are exactly its pages; those a table owns are disjoint from every
//!    other table's and from the database's available extents.
//! 2. Every page a tree owns is in its AE, or is its root, OE or AE page, or is reachable from one of these:
//!    exactly one of the four.
//! 3. A space tree never allocates from itself: a freed page that finds the AE full becomes the AE's new
//!    page, and a new extent that finds the OE full gives it one of its pages.
//!
//! Tables grow by an eighth of what they own (at least [`EXTENT_PAGES_MIN`]), so the number of extents grows
//! with the logarithm of the size, at the price of at most an eighth of free space inside a table.

use super::{
    DatabaseIndex, Pause, Step,
    changes::{ChangeSet, impossible},
    tree,
};
use crate::format::{
    page::{PageFlags, PageView},
    page_size::{ObjectId, PageNumber},
    space::{ExtentNode, SpaceHeader, SpaceLayout},
};

/// Root of the tree that owns the whole file.
pub const DATABASE_ROOT: PageNumber = PageNumber(1);
/// Pages of an empty tree: root, OE and AE.
pub const TREE_PAGES: u32 = 3;
/// Smallest extent allocated to a table (ESE: 16 pages).
const EXTENT_PAGES_MIN: u32 = 16;
/// A table that owns N pages is extended by N / this many.
const GROWTH_DIVISOR: u32 = 8;

/// The space trees of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeSpace {
    /// Root of the owned extents.
    pub owned_root: PageNumber,
    /// Root of the available extents.
    pub available_root: PageNumber,
}

/// Allocates a page of the tree at `root`, extending the tree first if it has none free.
pub fn allocate(changes: &mut ChangeSet<'_>, root: PageNumber) -> Step<PageNumber> {
    let space = space_of(changes, root)?;
    if let Some(extent) = take(changes, space.available_root, 1, 1)? {
        return Ok(extent.first());
    }
    let owned: u32 = extents(changes, space.owned_root)?.iter().map(|extent| extent.pages).sum();
    let wanted = (owned / GROWTH_DIVISOR).max(EXTENT_PAGES_MIN);
    let extent = take_from_database(changes, wanted, 1)?;
    let extent = add_owned(changes, space.owned_root, extent)?;
    let page = extent.first();
    if extent.pages > 1 {
        let rest = ExtentNode { last: extent.last, pages: extent.pages - 1 };
        insert_extent(changes, space.available_root, rest, Spare::None)?;
    }
    Ok(page)
}

/// Frees a page of the tree at `root`.
pub fn free(changes: &mut ChangeSet<'_>, root: PageNumber, page: PageNumber) -> Step<()> {
    let available = space_of(changes, root)?.available_root;
    add_available(changes, available, ExtentNode::starting_at(page, 1))
}

/// Allocates `pages` pages from the database, or the longest run available of at least `pages_min`.
pub fn take_from_database(changes: &mut ChangeSet<'_>, pages: u32, pages_min: u32) -> Step<ExtentNode> {
    let space = space_of(changes, DATABASE_ROOT)?;
    let database = changes.database();
    take(changes, space.available_root, pages, pages_min)?.ok_or(Pause::Grow { database, pages })
}

/// Number of pages that the database owns.
pub fn pages_of_database(changes: &mut ChangeSet<'_>) -> Step<u32> {
    let owned_root = space_of(changes, DATABASE_ROOT)?.owned_root;
    match extents(changes, owned_root)?.last() {
        Some(extent) => Ok(extent.last.0),
        None => Err(impossible(changes.database(), DATABASE_ROOT, "the database owns no pages")),
    }
}

/// Records in the database's space trees that the file has grown from `pages_before` to `pages_now` pages.
pub fn add_file_growth(changes: &mut ChangeSet<'_>, pages_before: u32, pages_now: u32) -> Step<()> {
    assert!(pages_now > pages_before, "growth adds pages");
    let grown = ExtentNode::starting_at(PageNumber(pages_before + 1), pages_now - pages_before);
    own_growth(changes, grown)?;
    let available_root = space_of(changes, DATABASE_ROOT)?.available_root;
    add_available(changes, available_root, grown)
}

/// Like [`add_file_growth`], but gives all of `grown` to the tree at `root`: its first `used` pages are in
/// use, the others, at least one, free.
pub fn add_file_growth_to_tree(
    changes: &mut ChangeSet<'_>,
    root: PageNumber,
    grown: ExtentNode,
    used: u32,
) -> Step<()> {
    assert!(used < grown.pages, "one page is free, should the owned extents need it");
    own_growth(changes, grown)?;
    let space = space_of(changes, root)?;
    let whole = join_with_left(changes, space.owned_root, grown)?;
    let taken = insert_extent(changes, space.owned_root, whole, Spare::Lent(grown.last))?;
    let last = if taken.is_some() { PageNumber(grown.last.0 - 1) } else { grown.last };
    let pages = last.0 + 1 - (grown.first().0 + used);
    match pages {
        0 => Ok(()),
        _ => add_available(changes, space.available_root, ExtentNode { last, pages }),
    }
}

/// Records that the database owns the pages by which its file has grown.
fn own_growth(changes: &mut ChangeSet<'_>, grown: ExtentNode) -> Step<()> {
    if pages_of_database(changes)? + 1 != grown.first().0 {
        return Err(impossible(
            changes.database(),
            DATABASE_ROOT,
            "the file grows from another size than its own",
        ));
    }
    let owned_root = space_of(changes, DATABASE_ROOT)?.owned_root;
    let joined = join_with_left(changes, owned_root, grown)?;
    insert_extent(changes, owned_root, joined, Spare::None).map(drop)
}

/// Creates the root, OE and AE pages of a new tree at the front of `extent`; the rest of it is free.
pub fn make_tree(
    changes: &mut ChangeSet<'_>,
    extent: ExtentNode,
    object: ObjectId,
    flags: PageFlags,
) -> Step<PageNumber> {
    assert!(extent.pages >= TREE_PAGES, "a new tree takes three pages");
    let root = extent.first();
    let space = TreeSpace { owned_root: PageNumber(root.0 + 1), available_root: PageNumber(root.0 + 2) };
    let header = SpaceHeader {
        primary_pages: extent.pages,
        parent: Some(DATABASE_ROOT),
        non_unique: false,
        space: SpaceLayout::Multiple { owned_root: space.owned_root },
    };
    changes.format(root, object, flags | PageFlags::ROOT | PageFlags::LEAF);
    changes.set_external_header(root, &header.encode())?.expect("an empty page has room");
    for page in [space.owned_root, space.available_root] {
        changes.format(page, object, PageFlags::ROOT | PageFlags::LEAF | PageFlags::SPACE_TREE);
        changes.set_external_header(page, &[0; 16])?.expect("an empty page has room");
    }
    insert_extent(changes, space.owned_root, extent, Spare::None)?;
    if extent.pages > TREE_PAGES {
        let rest = ExtentNode { last: extent.last, pages: extent.pages - TREE_PAGES };
        insert_extent(changes, space.available_root, rest, Spare::None)?;
    }
    Ok(root)
}

/// The space trees of the tree at `root`.
pub fn space_of(changes: &mut ChangeSet<'_>, root: PageNumber) -> Step<TreeSpace> {
    let database = changes.database();
    match SpaceHeader::decode(changes.view(root)?.external_header()) {
        Ok(SpaceHeader { space: SpaceLayout::Multiple { owned_root }, .. }) => {
            Ok(TreeSpace { owned_root, available_root: PageNumber(owned_root.0 + 1) })
        }
        Ok(_) => Err(impossible(database, root, "a tree with single-extent space is never changed")),
        Err(error) => Err(impossible(database, root, error.to_string())),
    }
}

/// All extents of a space tree, in page order.
pub fn extents(changes: &mut ChangeSet<'_>, space_root: PageNumber) -> Step<Vec<ExtentNode>> {
    let database = changes.database();
    let mut found = Vec::new();
    let first = tree::leftmost_leaf(changes, space_root)?;
    tree::walk_leaves(changes, first, |page, view| {
        for slot in 0..view.node_count() {
            found.push(extent_at(database, page, view, slot)?);
        }
        Ok(true)
    })?;
    Ok(found)
}

/// Takes up to `pages` pages from the first extent of an AE tree that has at least `pages_min`.
fn take(
    changes: &mut ChangeSet<'_>,
    available_root: PageNumber,
    pages: u32,
    pages_min: u32,
) -> Step<Option<ExtentNode>> {
    let database = changes.database();
    let mut found = None;
    let first = tree::leftmost_leaf(changes, available_root)?;
    tree::walk_leaves(changes, first, |page, view| {
        for slot in 0..view.node_count() {
            let extent = extent_at(database, page, view, slot)?;
            if extent.pages >= pages_min {
                found = Some((page, slot, extent));
                return Ok(false);
            }
        }
        Ok(true)
    })?;
    let Some((page, slot, extent)) = found else { return Ok(None) };
    if extent.pages > pages {
        let rest = ExtentNode { last: extent.last, pages: extent.pages - pages };
        changes.replace_data(page, slot, &rest.data())?.expect("the same length fits");
    } else {
        changes.remove_nodes(page, slot, 1)?;
    }
    Ok(Some(ExtentNode::starting_at(extent.first(), extent.pages.min(pages))))
}

/// Adds a new extent to a table's OE tree; returns the part of it that the OE did not need for itself.
fn add_owned(changes: &mut ChangeSet<'_>, owned_root: PageNumber, extent: ExtentNode) -> Step<ExtentNode> {
    let whole = join_with_left(changes, owned_root, extent)?;
    let spare = if extent.pages > 1 { Spare::Lent(extent.first()) } else { Spare::None };
    match insert_extent(changes, owned_root, whole, spare)? {
        Some(_) => Ok(ExtentNode { last: extent.last, pages: extent.pages - 1 }),
        None => Ok(extent),
    }
}

/// Adds an extent to an AE tree, merged with its neighbours.
fn add_available(changes: &mut ChangeSet<'_>, available_root: PageNumber, extent: ExtentNode) -> Step<()> {
    let last = extent.last;
    let extent = join_with_left(changes, available_root, extent)?;
    if let Some((page, slot, right)) = extent_after(changes, available_root, last)?
        && right.first().0 == last.0 + 1
    {
        let joined = ExtentNode { last: right.last, pages: extent.pages + right.pages };
        changes.replace_data(page, slot, &joined.data())?.expect("the same length fits");
        return Ok(());
    }
    insert_extent(changes, available_root, extent, Spare::Freed(last)).map(drop)
}

/// If an extent ends right before this one, removes it from the tree and returns both as one.
fn join_with_left(
    changes: &mut ChangeSet<'_>,
    space_root: PageNumber,
    extent: ExtentNode,
) -> Step<ExtentNode> {
    let left_last = PageNumber(extent.first().0 - 1);
    if left_last.0 == 0 {
        return Ok(extent);
    }
    let key = ExtentNode::key_for(left_last);
    let path = tree::descend(changes, space_root, &key)?;
    let database = changes.database();
    let view = changes.view(path.leaf)?;
    let Ok(slot) = view.find(&key) else { return Ok(extent) };
    let left = extent_at(database, path.leaf, &view, slot)?;
    changes.remove_nodes(path.leaf, slot, 1)?;
    Ok(ExtentNode { last: extent.last, pages: left.pages + extent.pages })
}

/// The first extent that ends after `page`, and the position of its node.
fn extent_after(
    changes: &mut ChangeSet<'_>,
    space_root: PageNumber,
    page: PageNumber,
) -> Step<Option<(PageNumber, usize, ExtentNode)>> {
    let key = ExtentNode::key_for(PageNumber(page.0 + 1));
    let database = changes.database();
    let mut found = None;
    let first = tree::descend(changes, space_root, &key)?.leaf;
    tree::walk_leaves(changes, first, |page, view| {
        let slot = view.find(&key).unwrap_or_else(|slot| slot);
        if slot < view.node_count() {
            found = Some((page, slot, extent_at(database, page, view, slot)?));
        }
        Ok(found.is_none())
    })?;
    Ok(found)
}

fn extent_at(
    database: DatabaseIndex,
    page: PageNumber,
    view: &PageView<'_>,
    slot: usize,
) -> Step<ExtentNode> {
    let mut key = Vec::new();
    view.key_of(slot, &mut key);
    ExtentNode::decode(&key, view.node(slot).data)
        .map_err(|error| impossible(database, page, error.to_string()))
}

/// A page that a space tree may use for itself when inserting a node.
#[derive(Clone, Copy)]
enum Spare {
    /// No page is needed: the tree holds few extents.
    None,
    /// A page of the extent being added; the table owns it all the same, so the extent stays whole.
    Lent(PageNumber),
    /// The page being freed, the last of the extent being added: if the tree uses it, it is left out.
    Freed(PageNumber),
}

/// Inserts a node into a space tree; returns the page that the tree took for itself, if any.
fn insert_extent(
    changes: &mut ChangeSet<'_>,
    space_root: PageNumber,
    mut extent: ExtentNode,
    spare: Spare,
) -> Step<Option<PageNumber>> {
    let mut taken = None;
    loop {
        let key = extent.key();
        let path = tree::descend(changes, space_root, &key)?;
        let slot = match changes.view(path.leaf)?.find(&key) {
            Ok(_) => return Err(impossible(changes.database(), path.leaf, "an extent is noted twice")),
            Err(slot) => slot,
        };
        if changes.insert_node(path.leaf, slot, &key, &extent.data())?.is_ok() {
            return Ok(taken);
        }
        let (Spare::Lent(page) | Spare::Freed(page)) = spare else {
            return Err(impossible(changes.database(), space_root, "a space tree is full"));
        };
        if taken.replace(page).is_some() {
            return Err(impossible(changes.database(), space_root, "a space tree is full"));
        }
        tree::split(changes, space_root, &path, slot, page)?;
        if let Spare::Freed(page) = spare {
            assert_eq!(page, extent.last, "the page freed ends the extent: what follows it was not free");
            if extent.pages == 1 {
                return Ok(taken);
            }
            extent = ExtentNode { last: PageNumber(page.0 - 1), pages: extent.pages - 1 };
        }
    }
}

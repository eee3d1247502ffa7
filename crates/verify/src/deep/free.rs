//! Pages that hold nothing: those in available extents, and those behind the end of the database.

use super::{
    catalogue::tree_of,
    space::{BITMAP_PAGES, DATABASE_ROOT, MULTIPLE_EXTENTS, OWNED_ROOT, header_of},
};
use crate::{
    database::{DatabaseFacts, PageError, PageFault, PageSource, SHELVED, good_page, read_extents},
    fields::u32_at,
};
use maildb::{
    PageNumber,
    format::{bootstrap::CATALOG_ROOT, page::NodeFlags, space::ExtentNode},
};

/// More pages than any catalogue has.
const CATALOGUE_PAGES_MAX: usize = 1 << 20;

/// All free extents, ascending; they may overlap. The first page in the way is the error.
pub(crate) fn free_extents(
    source: &mut dyn PageSource,
    facts: &DatabaseFacts,
) -> Result<Vec<ExtentNode>, PageError> {
    let mut free = Vec::new();
    free_of_tree(source, facts, DATABASE_ROOT, &mut free)?;
    for root in roots(source, facts)? {
        free_of_tree(source, facts, root, &mut free)?;
    }
    let mut last = PageNumber(0);
    read_extents(source, facts, OWNED_ROOT, &mut |_, extent| last = last.max(extent.last))?;
    if last.0 < u32::MAX {
        free.push(ExtentNode::starting_at(PageNumber(last.0 + 1), u32::MAX - last.0));
    }
    free.sort_unstable_by_key(|extent| extent.first());
    Ok(free)
}

/// Adds the free extents of the tree at `root`.
fn free_of_tree(
    source: &mut dyn PageSource,
    facts: &DatabaseFacts,
    root: PageNumber,
    free: &mut Vec<ExtentNode>,
) -> Result<(), PageError> {
    let view = good_page(source, facts, root)?;
    let header = Some(view).filter(|view| view.is_root()).and_then(|view| header_of(view.external_header()));
    let wrong = || PageError::Page(root, PageFault::Structure, "it has no sound space header".to_owned());
    let [primary, flags, last_field] =
        header.map(|header| [0, 8, 12].map(|at| u32_at(header, at))).ok_or_else(wrong)?;
    if flags & MULTIPLE_EXTENTS == 0 {
        let pages = (0..BITMAP_PAGES).filter(|bit| last_field >> bit & 1 == 1 && bit + 1 < primary);
        free.extend(pages.map(|bit| ExtentNode::starting_at(PageNumber(root.0 + 1 + bit), 1)));
        return Ok(());
    }
    let available_root =
        last_field.checked_add(1).filter(|_| last_field > 0).map(PageNumber).ok_or_else(wrong)?;
    read_extents(source, facts, available_root, &mut |pool, extent| {
        if pool != SHELVED {
            free.push(extent);
        }
    })?;
    Ok(())
}

/// The roots of all trees in the catalogue.
fn roots(source: &mut dyn PageSource, facts: &DatabaseFacts) -> Result<Vec<PageNumber>, PageError> {
    let mut roots = Vec::new();
    let mut ahead = vec![CATALOG_ROOT];
    let mut seen = 0;
    while let Some(page) = ahead.pop() {
        let wrong = |what: &str| PageError::Page(page, PageFault::Structure, what.to_owned());
        seen += 1;
        if seen > CATALOGUE_PAGES_MAX {
            return Err(wrong("the catalogue has no end"));
        }
        let view = good_page(source, facts, page)?;
        if !view.is_leaf() {
            ahead.extend((0..view.node_count()).rev().map(|node| view.child(node)));
            continue;
        }
        for node in (0..view.node_count()).map(|node| view.node(node)) {
            if node.flags.contains(NodeFlags::DELETED) {
                continue;
            }
            let tree = tree_of(node.data).ok_or_else(|| wrong("a row of the catalogue is invalid"))?;
            roots.extend(tree.map(|tree| tree.root));
        }
    }
    roots.sort_unstable();
    roots.dedup();
    Ok(roots)
}

//! The walk of one tree from its root, in key order.

use super::{CatalogueTree, Stopped, Walk};
use crate::database::good_page;
use maildb::{
    PageNumber,
    format::{
        page::{NodeFlags, PageFlags, PageView},
        space::ExtentNode,
    },
};

/// Limit above the levels of any tree: a page number and a separator take space.
const LEVELS_MAX: u32 = 32;

/// Counts of one tree.
#[derive(Clone, Copy, Debug, Default)]
pub struct TreeCount {
    /// Pages that could be read.
    pub pages: u64,
    /// Records without the deleted ones.
    pub records: u64,
}

/// A page still to visit, with the separators that bound its keys.
struct PendingPage {
    page: PageNumber,
    level: u32,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
}

/// State of a tree walk.
#[derive(Default)]
struct WalkState {
    count: TreeCount,
    /// Level of the leaves.
    leaf_level: Option<u32>,
    /// The previous leaf and the successor it links to; `None` at the start, and behind a faulty page.
    last_leaf: Option<(PageNumber, Option<PageNumber>)>,
    /// True until the first leaf or faulty page.
    is_first: bool,
    last_key: Vec<u8>,
}

impl Walk<'_> {
    /// Walks a tree; `extents` are those it owns, if known.
    pub(super) fn walk_tree(
        &mut self,
        tree: &CatalogueTree,
        extents: Option<&[ExtentNode]>,
    ) -> Result<TreeCount, Stopped> {
        self.verdict.trees += 1;
        let mut seen = WalkState { is_first: true, ..WalkState::default() };
        let mut ahead = vec![PendingPage { page: tree.root, level: 1, from: Vec::new(), to: None }];
        while let Some(next) = ahead.pop() {
            if next.level > LEVELS_MAX || !self.use_page(next.page, "a page of a tree") {
                // Possibly a cycle: one visit is enough.
                seen.skip();
                continue;
            }
            self.step()?;
            let view = match good_page(self.source, self.facts, next.page) {
                Ok(view) => view,
                Err(error) => {
                    seen.skip();
                    self.find_page_error(error)?;
                    continue;
                }
            };
            let mut problems = problems_of(view, tree, &next, extents);
            let mut behind = None;
            if view.is_leaf() {
                behind = seen.leaf(view, &next, &mut problems);
            } else {
                let last = last_separator(view);
                let expected = next.to.as_deref().unwrap_or_default();
                self.verdict.separators_missing += u64::from(last.is_empty() && !expected.is_empty());
                if !last.is_empty() && last != expected {
                    problems.push("its last separator differs from its parent's".to_owned());
                }
                ahead.extend(children(view, &next).into_iter().rev());
            }
            seen.count.pages += 1;
            self.verdict.levels_max = self.verdict.levels_max.max(next.level);
            for problem in problems {
                self.find_between(next.page, problem);
            }
            if let Some((page, problem)) = behind {
                self.find_between(page, problem);
            }
        }
        if let Some((page, Some(next))) = seen.last_leaf {
            self.find_between(page, format!("it is the last leaf, but links to page {next}"));
        }
        self.verdict.pages_in_use += seen.count.pages;
        self.verdict.records += seen.count.records;
        Ok(seen.count)
    }

    /// Passes every record of a tree to `take`, in order, without checking the tree. Faulty pages are
    /// recorded and skipped; false if there were any.
    pub(super) fn each_record(
        &mut self,
        root: PageNumber,
        take: &mut dyn FnMut(PageNumber, NodeFlags, &[u8]),
    ) -> Result<bool, Stopped> {
        let mut is_whole = true;
        let mut ahead = vec![(root, 1)];
        let mut seen = self.uses.none_of_them();
        while let Some((page, level)) = ahead.pop() {
            if level > LEVELS_MAX || !seen.set(page) {
                continue;
            }
            match good_page(self.source, self.facts, page) {
                Ok(view) if view.is_leaf() => {
                    for node in (0..view.node_count()).map(|node| view.node(node)) {
                        take(page, node.flags, node.data);
                    }
                }
                Ok(view) => {
                    ahead.extend((0..view.node_count()).rev().map(|node| (view.child(node), level + 1)))
                }
                Err(error) => {
                    is_whole = false;
                    self.find_page_error(error)?;
                }
            }
        }
        Ok(is_whole)
    }
}

/// The defects of a page as a member of its tree, apart from its keys.
fn problems_of(
    view: PageView<'_>,
    tree: &CatalogueTree,
    place: &PendingPage,
    extents: Option<&[ExtentNode]>,
) -> Vec<String> {
    let mut problems = Vec::new();
    if view.object_id() != tree.object {
        problems.push(format!(
            "it carries number {} in tree {} ({})",
            view.object_id().0,
            tree.object.0,
            tree.name
        ));
    }
    if view.is_root() != (place.level == 1) {
        problems.push("its root flag does not match its position in the tree".to_owned());
    }
    let unlike = [(PageFlags::SPACE_TREE, "a page of a space tree"), (PageFlags::EMPTY, "an empty page")];
    for (flag, what) in unlike {
        if view.flags().contains(flag) {
            problems.push(format!("it is {what}, but linked into tree {} ({})", tree.object.0, tree.name));
        }
    }
    if let Some(extents) = extents {
        let at = extents.partition_point(|extent| extent.last < place.page);
        if !extents.get(at).is_some_and(|extent| extent.contains(place.page)) {
            problems.push(format!("tree {} ({}) does not own it", tree.object.0, tree.name));
        }
    }
    if !view.is_leaf() && (view.previous(), view.next()) != (None, None) {
        problems.push("it is a branch, and linked to neighbours".to_owned());
    }
    problems
}

/// The key of a node as separators compare it: for non-unique keys, followed by the data.
fn full_key(view: PageView<'_>, node: usize, key: &mut Vec<u8>) {
    view.key_of(node, key);
    if view.is_leaf() && view.flags().contains(PageFlags::NON_UNIQUE) {
        key.extend_from_slice(view.node(node).data);
    }
}

/// The separator behind the last child of a branch.
fn last_separator(view: PageView<'_>) -> Vec<u8> {
    let mut key = Vec::new();
    view.key_of(view.node_count() - 1, &mut key);
    key
}

fn children(view: PageView<'_>, place: &PendingPage) -> Vec<PendingPage> {
    let count = view.node_count();
    let mut from = place.from.clone();
    let mut children = Vec::with_capacity(count);
    for node in 0..count {
        let mut to = Vec::new();
        view.key_of(node, &mut to);
        let to = if node + 1 == count { place.to.clone() } else { Some(to) };
        let next_from = to.clone().unwrap_or_default();
        children.push(PendingPage { page: view.child(node), level: place.level + 1, from, to });
        from = next_from;
    }
    children
}

impl WalkState {
    /// Records a page that could not be read: the next leaf is not the neighbour of the previous one.
    fn skip(&mut self) {
        self.last_leaf = None;
        self.is_first = false;
    }

    /// Visits the next leaf. Reports a wrong link of the previous leaf to the caller.
    fn leaf(
        &mut self,
        view: PageView<'_>,
        place: &PendingPage,
        problems: &mut Vec<String>,
    ) -> Option<(PageNumber, String)> {
        if *self.leaf_level.get_or_insert(place.level) != place.level {
            problems.push("it is a leaf at another depth than the others".to_owned());
        }
        self.judge_keys(view, place, problems);
        let mut behind = None;
        let expected = match self.last_leaf {
            Some((before, next)) => {
                if next != Some(place.page) {
                    let said = next.map_or("none".to_owned(), |page| format!("page {page}"));
                    behind = Some((
                        before,
                        format!("the leaf after it is page {}, but it links to {said}", place.page),
                    ));
                }
                Some(Some(before))
            }
            None if self.is_first => Some(None),
            None => None,
        };
        if let Some(expected) = expected
            && view.previous() != expected
        {
            let name =
                |page: Option<PageNumber>| page.map_or("none".to_owned(), |page| format!("page {page}"));
            problems.push(format!(
                "the leaf before it is {}, but it links to {}",
                name(expected),
                name(view.previous())
            ));
        }
        self.last_leaf = Some((place.page, view.next()));
        self.is_first = false;
        behind
    }

    fn judge_keys(&mut self, view: PageView<'_>, place: &PendingPage, problems: &mut Vec<String>) {
        let mut key = Vec::new();
        let (mut is_outside, mut is_disordered) = (false, false);
        for node in 0..view.node_count() {
            full_key(view, node, &mut key);
            is_outside |= key < place.from || place.to.as_ref().is_some_and(|to| key >= *to);
            is_disordered |= self.count.records > 0 && key < self.last_key;
            std::mem::swap(&mut self.last_key, &mut key);
            self.count.records += u64::from(!view.node(node).flags.contains(NodeFlags::DELETED));
        }
        if is_outside {
            problems.push("keys lie outside its parents' separators".to_owned());
        }
        if is_disordered {
            problems.push("keys do not ascend".to_owned());
        }
    }
}

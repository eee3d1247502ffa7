//! One tree, from its root, in the order of its keys.

use super::{Stopped, Tree, Walk};
use crate::database::good_page;
use maildb::{
    PageNumber,
    format::{
        page::{NodeFlags, PageFlags, PageView},
        space::ExtentNode,
    },
};

/// More levels than any tree has: a page number and a separator take room.
const LEVELS_MAX: u32 = 32;

/// What a tree came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct TreeCount {
    /// Pages that could be looked at.
    pub pages: u64,
    /// Records that are not deleted.
    pub records: u64,
}

/// A page that is still to be looked at, and between which separators its keys must lie.
struct Ahead {
    page: PageNumber,
    level: u32,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
}

/// What was seen of the tree so far.
#[derive(Default)]
struct Seen {
    count: TreeCount,
    /// On which level the leaves are.
    leaf_level: Option<u32>,
    /// The leaf before, and the one it says is next; none at the beginning, and behind a page that is no good.
    last_leaf: Option<(PageNumber, Option<PageNumber>)>,
    /// Whether no leaf and no bad page was seen yet.
    is_first: bool,
    /// The last key.
    last_key: Vec<u8>,
}

impl Walk<'_> {
    /// Walks a tree that owns `extents`, if that is known.
    pub(super) fn walk_tree(
        &mut self,
        tree: &Tree,
        extents: Option<&[ExtentNode]>,
    ) -> Result<TreeCount, Stopped> {
        self.verdict.trees += 1;
        let mut seen = Seen { is_first: true, ..Seen::default() };
        let mut ahead = vec![Ahead { page: tree.root, level: 1, from: Vec::new(), to: None }];
        while let Some(next) = ahead.pop() {
            if next.level > LEVELS_MAX || !self.use_page(next.page, "a page of a tree") {
                // In a circle, perhaps: once is enough.
                seen.skip();
                continue;
            }
            self.step()?;
            let view = match good_page(self.source, self.facts, next.page) {
                Ok(view) => view,
                Err(trouble) => {
                    seen.skip();
                    self.find_trouble(trouble)?;
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
                    problems.push("its last separator is not the one its parent has for it".to_owned());
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
            self.find_between(page, format!("it is the last leaf, and says that page {next} is next"));
        }
        self.verdict.pages_in_use += seen.count.pages;
        self.verdict.records += seen.count.records;
        Ok(seen.count)
    }

    /// Tells `take` every record of a tree, in its order, without judging the tree. Pages that are no good are found
    /// and left out; false if there were any.
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
                Err(trouble) => {
                    is_whole = false;
                    self.find_trouble(trouble)?;
                }
            }
        }
        Ok(is_whole)
    }
}

/// What is wrong with a page as one of a tree, its keys apart.
fn problems_of(
    view: PageView<'_>,
    tree: &Tree,
    place: &Ahead,
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
        problems.push("it is a root within a tree, or a tree begins with a page that is none".to_owned());
    }
    let unlike = [(PageFlags::SPACE_TREE, "a page of a space tree"), (PageFlags::EMPTY, "an empty page")];
    for (flag, what) in unlike {
        if view.flags().contains(flag) {
            problems
                .push(format!("it is {what}, and reached as one of tree {} ({})", tree.object.0, tree.name));
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

/// The key of a node as separators compare to it: where keys may repeat, with the data behind.
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

/// The children of a branch, each with its bounds.
fn children(view: PageView<'_>, place: &Ahead) -> Vec<Ahead> {
    let count = view.node_count();
    let mut from = place.from.clone();
    let mut children = Vec::with_capacity(count);
    for node in 0..count {
        let mut to = Vec::new();
        view.key_of(node, &mut to);
        let to = if node + 1 == count { place.to.clone() } else { Some(to) };
        let next_from = to.clone().unwrap_or_default();
        children.push(Ahead { page: view.child(node), level: place.level + 1, from, to });
        from = next_from;
    }
    children
}

impl Seen {
    /// A page that cannot be looked at: what was behind it is not the neighbour of what comes.
    fn skip(&mut self) {
        self.last_leaf = None;
        self.is_first = false;
    }

    /// The next leaf. What is wrong with the one before goes back.
    fn leaf(
        &mut self,
        view: PageView<'_>,
        place: &Ahead,
        problems: &mut Vec<String>,
    ) -> Option<(PageNumber, String)> {
        if *self.leaf_level.get_or_insert(place.level) != place.level {
            problems.push("it is a leaf, and not as deep as the others".to_owned());
        }
        self.judge_keys(view, place, problems);
        let mut behind = None;
        let expected = match self.last_leaf {
            Some((before, next)) => {
                if next != Some(place.page) {
                    let said = next.map_or("none".to_owned(), |page| format!("page {page}"));
                    behind = Some((
                        before,
                        format!("the leaf after it is page {}, and it says {said}", place.page),
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
                "the leaf before it is {}, and it says {}",
                name(expected),
                name(view.previous())
            ));
        }
        self.last_leaf = Some((place.page, view.next()));
        self.is_first = false;
        behind
    }

    fn judge_keys(&mut self, view: PageView<'_>, place: &Ahead, problems: &mut Vec<String>) {
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

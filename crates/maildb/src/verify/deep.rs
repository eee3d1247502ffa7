//! Walking every tree of a database.
//!
//! Checked, each with its own kind of [`DeepFinding`]:
//!
//! 1. every page reached has a right checksum, a sound structure and its tree's object number;
//! 2. keys ascend within and across leaves, and lie between their parents' separators;
//! 3. leaves are linked to their neighbours both ways, and branches to none;
//! 4. all leaves of a tree are equally deep;
//! 5. every page a table owns is its root, a page of its space trees, a page of its tree, or free:
//!    exactly one of these; and every page of the file is owned by exactly one tree or free.

use super::walking::{DATABASE, TreeToWalk, WalkedPages};
use crate::{
    engine::{
        Step,
        changes::{ChangeSet, impossible},
        space::{DATABASE_ROOT, extents, space_of},
    },
    error::{Error, Result},
    format::{
        page_size::{ObjectId, PageNumber, PageSize},
        space::ExtentNode,
    },
};
use std::{collections::BTreeMap, rc::Rc};
use world::File;

/// Something wrong, in words, with the page it was found on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeepFinding {
    /// Where.
    pub page: PageNumber,
    /// What.
    pub problem: String,
}

/// What the walk found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeepVerdict {
    /// Everything wrong, in the order found; empty for a sound database.
    pub findings: Vec<DeepFinding>,
    /// Tables and indexes walked.
    pub trees: u32,
    /// Pages in trees.
    pub pages_in_use: u32,
    /// Pages free, in a table or in the database.
    pub pages_free: u32,
    /// Records in all leaves of all trees.
    pub records: u64,
    /// Levels of the deepest tree.
    pub levels_max: u32,
    /// Branch pages other than the rightmost of their level that end with an empty separator, as they were written
    /// before 2026-11-24. Nothing is missing in them; other readers of the format may object.
    pub separators_missing: u32,
}

/// Walks all trees of the database in `file`. Fails only if the file cannot be read or its root makes no
/// sense; everything else is a finding.
pub async fn verify_deep(file: Rc<dyn File>, page_size: PageSize) -> Result<DeepVerdict> {
    let mut walk = Walk {
        pages: WalkedPages::new(file, page_size),
        verdict: DeepVerdict::default(),
        uses: BTreeMap::new(),
    };
    let database = walk.extents_of(DATABASE_ROOT).await?;
    let mut owned_by_tables = Vec::new();
    walk.note_space(DATABASE_ROOT, &database);
    walk.note_use(DATABASE_ROOT, "root of the database");
    for tree in walk.pages.trees().await? {
        let space = walk.extents_of(tree.root).await?;
        owned_by_tables.extend(space.owned.iter().copied());
        walk.note_space(tree.root, &space);
        walk.walk_tree(tree).await?;
        walk.compare(tree.root, &space.owned, "owned by the tree");
    }
    for extent in owned_by_tables {
        for page in extent.first().0..=extent.last.0 {
            walk.uses.entry(PageNumber(page)).or_insert("owned");
        }
    }
    walk.check_whole_file(&database.owned);
    Ok(walk.verdict)
}

/// A page with the bounds its parents' separators set for its keys: from (inclusive), to (exclusive).
type Bounded = (PageNumber, Vec<u8>, Option<Vec<u8>>);

struct Space {
    owned: Vec<ExtentNode>,
    available: Vec<ExtentNode>,
    /// Pages of the two space trees themselves.
    own_pages: Vec<PageNumber>,
}

struct Walk {
    pages: WalkedPages,
    verdict: DeepVerdict,
    uses: BTreeMap<PageNumber, &'static str>,
}

/// Deeper and larger than any space tree.
const SPACE_LEVELS_MAX: u32 = 8;
const SPACE_PAGES_MAX: usize = 1 << 20;

impl Walk {
    fn find(&mut self, page: PageNumber, problem: impl Into<String>) {
        self.verdict.findings.push(DeepFinding { page, problem: problem.into() });
    }

    /// Notes what a page is used for; false, and a finding, if it is used for something already.
    fn note_use(&mut self, page: PageNumber, purpose: &'static str) -> bool {
        let Some(before) = self.uses.insert(page, purpose) else { return true };
        self.find(page, format!("used twice: {before}, and {purpose}"));
        false
    }

    fn note_space(&mut self, root: PageNumber, space: &Space) {
        for &page in &space.own_pages {
            self.note_use(page, "page of a space tree");
            self.verdict.pages_in_use += 1;
        }
        for extent in &space.available {
            for page in extent.first().0..=extent.last.0 {
                self.note_use(PageNumber(page), "free");
                self.verdict.pages_free += 1;
            }
        }
        for pair in space.owned.windows(2).chain(space.available.windows(2)) {
            if pair[0].last >= pair[1].first() {
                self.find(root, format!("extents overlap at page {}", pair[1].first()));
            }
        }
    }

    /// Every page of a tree's extents must have exactly one use; none outside may be used by it.
    fn compare(&mut self, root: PageNumber, owned: &[ExtentNode], what: &str) {
        for extent in owned {
            for page in extent.first().0..=extent.last.0 {
                if !self.uses.contains_key(&PageNumber(page)) {
                    self.find(
                        PageNumber(page),
                        format!("{what} rooted at page {root}, but neither in use nor free"),
                    );
                }
            }
        }
    }

    fn check_whole_file(&mut self, owned: &[ExtentNode]) {
        let [whole] = owned else {
            self.find(DATABASE_ROOT, "the database does not own one run of pages");
            return;
        };
        if whole.first() != DATABASE_ROOT {
            self.find(DATABASE_ROOT, "the database does not own its first page");
        }
        self.compare(DATABASE_ROOT, owned, "owned by the database");
        if let Some((&last, _)) = self.uses.last_key_value()
            && last > whole.last
        {
            self.find(last, "in use beyond the pages the database owns");
        }
    }

    async fn extents_of(&mut self, root: PageNumber) -> Result<Space> {
        self.pages
            .step(|pages| {
                let space = space_of(pages, root)?;
                let mut own_pages = Vec::new();
                for space_root in [space.owned_root, space.available_root] {
                    collect_pages(pages, space_root, &mut own_pages, 0)?;
                }
                Ok(Space {
                    owned: extents(pages, space.owned_root)?,
                    available: extents(pages, space.available_root)?,
                    own_pages,
                })
            })
            .await
    }

    /// Whether the first readable page of a level is a leaf.
    async fn is_leaf_level(&mut self, level: &[Bounded]) -> Result<bool> {
        for (page, _, _) in level {
            match self.pages.step(|pages| Ok(pages.view(*page)?.is_leaf())).await {
                Ok(is_leaf) => return Ok(is_leaf),
                Err(Error::PageDamaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Walks one tree from its root, level by level.
    async fn walk_tree(&mut self, tree: TreeToWalk) -> Result<()> {
        self.verdict.trees += 1;
        let mut level: Vec<Bounded> = vec![(tree.root, Vec::new(), None)];
        let mut depth = 0;
        while !level.is_empty() {
            depth += 1;
            let mut below = Vec::new();
            let leaves = self.is_leaf_level(&level).await?;
            let mut previous: Option<PageNumber> = None;
            for (index, (page, from, to)) in level.iter().enumerate() {
                if !self.note_use(*page, "page of a tree") {
                    // Walked already, perhaps in a circle: once is enough to report.
                    continue;
                }
                self.verdict.pages_in_use += 1;
                let facts = match self.pages.step(|pages| PageFacts::read(pages, *page)).await {
                    Ok(facts) => facts,
                    Err(error @ Error::PageDamaged { .. }) => {
                        self.find(*page, error.to_string());
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                let next = level.get(index + 1).map(|(page, _, _)| *page);
                let expected = if leaves { (previous, next) } else { (None, None) };
                for problem in facts.problems(tree, leaves, expected, from, to.as_deref()) {
                    self.find(*page, problem);
                }
                if facts.is_leaf {
                    self.verdict.records += facts.keys.len() as u64;
                } else {
                    self.verdict.separators_missing +=
                        u32::from(to.is_some() && facts.keys.last().is_some_and(Vec::is_empty));
                    below.extend(facts.children(from, to));
                }
                previous = Some(*page);
            }
            level = below;
        }
        self.verdict.levels_max = self.verdict.levels_max.max(depth);
        Ok(())
    }
}

/// All pages of a space tree.
fn collect_pages(
    pages: &mut ChangeSet<'_>,
    page: PageNumber,
    into: &mut Vec<PageNumber>,
    depth: u32,
) -> Step<()> {
    if depth > SPACE_LEVELS_MAX || into.len() > SPACE_PAGES_MAX {
        return Err(impossible(DATABASE, page, "a space tree has no end"));
    }
    into.push(page);
    let view = pages.view(page)?;
    if view.is_leaf() {
        return Ok(());
    }
    let children: Vec<_> = (0..view.node_count()).map(|slot| view.child(slot)).collect();
    for child in children {
        collect_pages(pages, child, into, depth + 1)?;
    }
    Ok(())
}

/// What the walk wants to know of a page.
struct PageFacts {
    is_leaf: bool,
    object: ObjectId,
    previous: Option<PageNumber>,
    next: Option<PageNumber>,
    keys: Vec<Vec<u8>>,
    child_pages: Vec<PageNumber>,
}

impl PageFacts {
    fn read(pages: &mut ChangeSet<'_>, page: PageNumber) -> Step<Self> {
        let view = pages.view(page)?;
        let is_leaf = view.is_leaf();
        let count = view.node_count();
        let key = |slot| {
            let mut key = Vec::new();
            view.key_of(slot, &mut key);
            key
        };
        Ok(Self {
            is_leaf,
            object: view.object_id(),
            previous: view.previous(),
            next: view.next(),
            keys: (0..count).map(key).collect(),
            child_pages: if is_leaf { Vec::new() } else { (0..count).map(|slot| view.child(slot)).collect() },
        })
    }

    fn problems(
        &self,
        tree: TreeToWalk,
        leaves: bool,
        expected_links: (Option<PageNumber>, Option<PageNumber>),
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Vec<String> {
        let mut problems = Vec::new();
        if self.object != tree.object {
            problems
                .push(format!("carries object {} in the tree of object {}", self.object.0, tree.object.0));
        }
        if self.is_leaf != leaves {
            problems.push("is not on the level of its neighbours".to_owned());
        }
        if (self.previous, self.next) != expected_links {
            problems.push(format!(
                "is linked to {:?} and {:?}, not {:?}",
                self.previous, self.next, expected_links
            ));
        }
        let separators = match self.keys.split_last() {
            Some((last, others)) if !self.is_leaf => {
                if !last.is_empty() && to != Some(last.as_slice()) {
                    problems.push("ends with another separator than its parent has for it".to_owned());
                }
                others
            }
            _ => &self.keys[..],
        };
        let inside = |key: &Vec<u8>| {
            key.as_slice() >= from
                && to.is_none_or(|to| key.as_slice() < to || !self.is_leaf && key.as_slice() <= to)
        };
        if !separators.iter().all(inside) {
            problems.push("holds keys outside its parents' separators".to_owned());
        }
        if !separators.windows(2).all(|pair| pair[0] < pair[1]) {
            problems.push("holds keys that do not ascend".to_owned());
        }
        problems
    }

    /// The children with their bounds.
    fn children(&self, from: &[u8], to: &Option<Vec<u8>>) -> Vec<Bounded> {
        let last = self.child_pages.len() - 1;
        let mut lower = from.to_vec();
        let mut children = Vec::with_capacity(self.child_pages.len());
        for (slot, &page) in self.child_pages.iter().enumerate() {
            let upper = if slot == last { to.clone() } else { Some(self.keys[slot].clone()) };
            let next_lower = upper.clone().unwrap_or_default();
            children.push((page, lower, upper));
            lower = next_lower;
        }
        children
    }
}

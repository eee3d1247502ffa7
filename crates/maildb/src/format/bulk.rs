//! Builds a whole tree from nodes in key order.

use super::{
    page::{NodeFlags, PageFlags, PageMut, PageView},
    page_size::{DbTime, ObjectId, PageNumber, PageSize},
    space::SpaceHeader,
};

/// A tree to build.
pub struct BulkTree<F> {
    pub page_size: PageSize,
    pub root: PageNumber,
    /// Object number written into its pages.
    pub object_id: ObjectId,
    /// Flags of its pages, besides root, leaf and parent of leaf.
    pub flags: PageFlags,
    /// Tag 0 of the root.
    pub space_header: SpaceHeader,
    /// Time of change written into its pages.
    pub dbtime: DbTime,
    /// Allocates a page; called for every page but the root.
    pub take_page: F,
}

pub type BulkPage = (PageNumber, Vec<u8>);
pub type BulkNode = (Vec<u8>, Vec<u8>);

impl<F: FnMut() -> PageNumber> BulkTree<F> {
    /// The tree's pages, not yet sealed. `nodes` must be in key order, and each must fit a page.
    pub fn build(mut self, nodes: &[BulkNode]) -> Vec<BulkPage> {
        assert!(nodes.is_sorted_by(|a, b| a.0 < b.0), "nodes come in key order");
        if let Some(root) = self.root_page(PageFlags::LEAF, nodes) {
            return vec![root];
        }
        let mut pages = Vec::new();
        let mut level = self.add_level(PageFlags::LEAF, nodes, &mut pages);
        link_leaves(&mut pages);
        let mut kind = PageFlags::PARENT_OF_LEAF;
        loop {
            if let Some(root) = self.root_page(kind, &level) {
                pages.push(root);
                return pages;
            }
            level = self.add_level(kind, &level, &mut pages);
            kind = PageFlags::default();
        }
    }

    /// The root with all `nodes`; `None` if they do not fit.
    fn root_page(&self, kind: PageFlags, nodes: &[BulkNode]) -> Option<BulkPage> {
        let header = self.space_header.encode();
        let (page, rest) = self.page(self.root, kind | PageFlags::ROOT, &header, nodes);
        rest.is_empty().then_some((self.root, page))
    }

    /// Distributes `nodes` over pages and returns the entries of their parents: separators and page numbers.
    fn add_level(&mut self, kind: PageFlags, nodes: &[BulkNode], pages: &mut Vec<BulkPage>) -> Vec<BulkNode> {
        let mut parents: Vec<BulkNode> = Vec::new();
        let mut rest = nodes;
        while let Some((first_key, _)) = rest.first() {
            let number = (self.take_page)();
            let (page, after) = self.page(number, kind, first_key, rest);
            let here = &rest[..rest.len() - after.len()];
            assert!(!here.is_empty(), "a node of {} bytes does not fit a page", rest[0].1.len());
            let last_key = &here[here.len() - 1].0;
            let separator = match after.first() {
                _ if !kind.contains(PageFlags::LEAF) => last_key.clone(),
                Some((next_key, _)) => separator(last_key, next_key).to_vec(),
                None => vec![],
            };
            parents.push((separator, number.0.to_le_bytes().to_vec()));
            pages.push((number, page));
            rest = after;
        }
        parents
    }

    /// A page with as many of `nodes` as fit, and the remaining nodes.
    fn page<'n>(
        &self,
        number: PageNumber,
        kind: PageFlags,
        external_header: &[u8],
        nodes: &'n [BulkNode],
    ) -> (Vec<u8>, &'n [BulkNode]) {
        let mut bytes = vec![0; self.page_size.bytes()];
        let mut page = PageMut::format(&mut bytes, number, self.object_id, self.flags | kind);
        page.set_dbtime(self.dbtime);
        page.set_external_header(external_header).expect("an empty page has room for a key");
        let fits =
            |(i, (key, data)): (usize, &BulkNode)| page.insert_node(i, NodeFlags::NONE, key, data).is_ok();
        let count = nodes.iter().enumerate().map(fits).take_while(|fits| *fits).count();
        (bytes, &nodes[count..])
    }
}

/// The shortest key above `left` and not above `right`.
fn separator<'k>(left: &[u8], right: &'k [u8]) -> &'k [u8] {
    let common = left.iter().zip(right).take_while(|(l, r)| l == r).count();
    &right[..common + 1]
}

/// Sets the sibling links of pages given in key order.
fn link_leaves(pages: &mut [BulkPage]) {
    let numbers: Vec<PageNumber> = pages.iter().map(|(number, _)| *number).collect();
    for (i, (_, bytes)) in pages.iter_mut().enumerate() {
        assert!(PageView::new(bytes).is_leaf());
        let previous = i.checked_sub(1).map(|before| numbers[before]);
        PageMut::new(bytes).set_siblings(previous, numbers.get(i + 1).copied());
    }
}

//! The pages of a new database: the catalogue, which describes itself, and the space trees.
//!
//! ```text
//! page 1  database: root 1, OE 2, AE 3
//!      4  MSysObjects: root 4, OE 5, AE 6, and 13 to 23
//!      7  its index Name: root 7, OE 8, AE 9
//!     10  its index RootObjects: root 10, OE 11, AE 12
//!     24  MSysObjectsShadow: root 24, OE 25, AE 26, and 27 to 43
//!     44  free to the end
//! ```
//!
//! Roots are where ESE has them. ESE allocates an index from its table's space; here every tree is allocated
//! from the database, so that no two trees own the same pages.

use super::{
    bulk::{BulkNode, BulkPage, BulkTree},
    catalog::{CatalogIndex, CatalogRow, CatalogTable, catalog_schema},
    checksum::seal_page,
    page::{NodeFlags, PageFlags, PageMut},
    page_size::{DbTime, ObjectId, PageNumber, PageSize},
    schema::ColumnId,
    space::{
        AVAILABLE_ROOT_DISTANCE, ExtentNode, OWNED_ROOT_DISTANCE, SpaceHeader, SpaceLayout, SplitBuffer,
    },
};

/// Pages of a new database, without the two header pages. Pages that are not listed are zero.
pub const INITIAL_PAGES: u32 = 256;
/// Highest object number in a new database; tables of users follow.
pub const LAST_SYSTEM_OBJECT: ObjectId = ObjectId(5);
/// Root of the tree that owns the file.
pub const DATABASE_ROOT: PageNumber = PageNumber(1);
/// Root of MSysObjects.
pub const CATALOG_ROOT: PageNumber = PageNumber(4);
/// Root of MSysObjects' index Name.
pub const CATALOG_NAME_ROOT: PageNumber = PageNumber(7);
/// Root of MSysObjects' index RootObjects.
pub const CATALOG_ROOT_OBJECTS_ROOT: PageNumber = PageNumber(10);
/// Root of MSysObjectsShadow.
pub const CATALOG_SHADOW_ROOT: PageNumber = PageNumber(24);

/// Object numbers, as in ESE.
const DATABASE: ObjectId = ObjectId(1);
const CATALOG: ObjectId = ObjectId(2);
const CATALOG_SHADOW: ObjectId = ObjectId(3);
const CATALOG_NAME: ObjectId = ObjectId(4);
const CATALOG_ROOT_OBJECTS: ObjectId = ObjectId(5);

/// Pages of an empty tree: root, OE and AE.
const TREE_PAGES: u32 = 3;
/// Catalogue pages between its indexes and the shadow catalogue.
const CATALOG_MORE: ExtentNode = ExtentNode { last: PageNumber(23), pages: 11 };
/// Pages of the shadow catalogue.
const CATALOG_SHADOW_PAGES: u32 = 20;
/// Flags of the catalogue's own indexes, as in ESE.
const ID_INDEX_FLAGS: u32 = 0x1_0031;
const NAME_INDEX_FLAGS: u32 = 0x1_0011;
const ROOT_OBJECTS_INDEX_FLAGS: u32 = 0x1_0009;

/// The pages of an empty database, sealed and in page order, with `dbtime` as their time of change; the
/// engine's next change must be later. Panics for 2 KiB pages, which are supported for reading only.
pub fn initial_pages(page_size: PageSize, dbtime: DbTime) -> Vec<(PageNumber, Vec<u8>)> {
    assert!(page_size >= PageSize::Kib4, "databases of 2 KiB pages are only read");
    database_pages(page_size, dbtime, INITIAL_PAGES, &[])
}

/// A user's table with all its records.
pub(super) struct LoadedTable {
    pub definition: CatalogTable,
    /// Extent owned by the table, starting with its root.
    pub extent: ExtentNode,
    /// Keys and records, in key order.
    pub nodes: Vec<BulkNode>,
}

/// The pages of a database of `page_count` pages with `tables`. Their extents must be consecutive and start
/// right behind the shadow catalogue's.
pub(super) fn database_pages(
    page_size: PageSize,
    dbtime: DbTime,
    page_count: u32,
    tables: &[LoadedTable],
) -> Vec<BulkPage> {
    let system = system_tables();
    let definitions = system.iter().chain(tables.iter().map(|table| &table.definition));
    let rows: Vec<CatalogRow> =
        definitions.flat_map(|table| table.rows(page_size).expect("sound tables")).collect();
    let pair = |key: &[u8], data: &[u8]| (key.to_vec(), data.to_vec());
    let by_id: Vec<BulkNode> = rows.iter().map(|row| pair(&row.key, &row.record)).collect();
    let mut by_name: Vec<BulkNode> = rows.iter().map(|row| pair(&row.name_key, &row.key)).collect();
    by_name.sort();
    let with_name = |row: &CatalogRow| Some(pair(row.root_objects_key.as_ref()?, &row.key));
    let mut root_objects: Vec<BulkNode> = rows.iter().filter_map(with_name).collect();
    root_objects.sort();

    let shadow = ExtentNode::starting_at(CATALOG_SHADOW_ROOT, CATALOG_SHADOW_PAGES);
    let used_last = tables.last().map_or(shadow.last, |table| table.extent.last);
    let whole = ExtentNode::starting_at(DATABASE_ROOT, page_count);
    let rest = ExtentNode::starting_at(PageNumber(used_last.0 + 1), page_count - used_last.0);
    let tree = |root, object_id, flags| NewTree { root, object_id, flags, page_size, dbtime };
    let plain = PageFlags::default();
    let mut pages = tree(DATABASE_ROOT, DATABASE, plain).database(whole, rest);
    let trees = [
        (tree(CATALOG_ROOT, CATALOG, plain), &[front(CATALOG_ROOT), CATALOG_MORE][..], &by_id),
        (tree(CATALOG_NAME_ROOT, CATALOG_NAME, PageFlags::INDEX), &[front(CATALOG_NAME_ROOT)], &by_name),
        (
            tree(CATALOG_ROOT_OBJECTS_ROOT, CATALOG_ROOT_OBJECTS, PageFlags::INDEX),
            &[front(CATALOG_ROOT_OBJECTS_ROOT)],
            &root_objects,
        ),
        (tree(CATALOG_SHADOW_ROOT, CATALOG_SHADOW, plain), &[shadow], &by_id),
    ];
    for (tree, extents, nodes) in trees {
        pages.extend(tree.table(extents, nodes));
    }
    for LoadedTable { definition, extent, nodes } in tables {
        pages.extend(tree(extent.first(), definition.object_id, plain).table(&[*extent], nodes));
    }
    pages.sort_by_key(|(number, _)| *number);
    for (number, page) in &mut pages {
        seal_page(page, page_size, *number);
    }
    pages
}

/// The catalogue's own tables, as its rows describe them.
pub fn system_tables() -> [CatalogTable; 2] {
    let index = |name: &str, object_id, root, flags, columns: &[u16]| CatalogIndex {
        name: name.to_owned(),
        object_id,
        root,
        flags,
        columns: columns.iter().copied().map(ColumnId).collect(),
    };
    let table = |name: &str, object_id, root, initial_pages| CatalogTable {
        name: name.to_owned(),
        object_id,
        root,
        initial_pages,
        is_system: true,
        schema: catalog_schema(),
        indexes: vec![index("Id", object_id, root, ID_INDEX_FLAGS, &[1, 2, 3])],
    };
    let mut catalog = table("MSysObjects", CATALOG, CATALOG_ROOT, TREE_PAGES);
    catalog.indexes.extend([
        index("Name", CATALOG_NAME, CATALOG_NAME_ROOT, NAME_INDEX_FLAGS, &[1, 2, 128]),
        index(
            "RootObjects",
            CATALOG_ROOT_OBJECTS,
            CATALOG_ROOT_OBJECTS_ROOT,
            ROOT_OBJECTS_INDEX_FLAGS,
            &[8, 128],
        ),
    ]);
    let shadow = table("MSysObjectsShadow", CATALOG_SHADOW, CATALOG_SHADOW_ROOT, CATALOG_SHADOW_PAGES);
    [catalog, shadow]
}

/// The first three pages of a tree.
fn front(root: PageNumber) -> ExtentNode {
    ExtentNode::starting_at(root, TREE_PAGES)
}

/// A tree under construction, with its space trees.
struct NewTree {
    root: PageNumber,
    object_id: ObjectId,
    flags: PageFlags,
    page_size: PageSize,
    dbtime: DbTime,
}

impl NewTree {
    /// The root tree of the database: it owns `whole`, of which `rest` is free.
    fn database(&self, whole: ExtentNode, rest: ExtentNode) -> Vec<BulkPage> {
        let bulk = self.bulk(None, whole.pages, || unreachable!("the database's own tree is empty"));
        let mut pages = bulk.build(&[]);
        pages.extend(self.space_pages(&[whole], &[rest]));
        pages
    }

    /// A tree that owns `extents`, the first of which starts with its root, OE and AE.
    fn table(&self, extents: &[ExtentNode], nodes: &[BulkNode]) -> Vec<BulkPage> {
        let front_last = PageNumber(self.root.0 + TREE_PAGES - 1);
        let owned = extents.iter().flat_map(|extent| extent.first().0..=extent.last.0).map(PageNumber);
        let mut free: Vec<PageNumber> = owned.filter(|page| *page > front_last).rev().collect();
        let take = || free.pop().expect("the extents hold all nodes");
        let mut pages = self.bulk(Some(DATABASE_ROOT), extents[0].pages, take).build(nodes);
        free.reverse();
        pages.extend(self.space_pages(extents, &runs(&free)));
        pages
    }

    fn bulk<F: FnMut() -> PageNumber>(
        &self,
        parent: Option<PageNumber>,
        primary_pages: u32,
        take_page: F,
    ) -> BulkTree<F> {
        let owned_root = PageNumber(self.root.0 + OWNED_ROOT_DISTANCE);
        let space = SpaceLayout::Multiple { owned_root };
        BulkTree {
            page_size: self.page_size,
            root: self.root,
            object_id: self.object_id,
            flags: self.flags,
            space_header: SpaceHeader { primary_pages, parent, non_unique: false, space },
            dbtime: self.dbtime,
            take_page,
        }
    }

    fn space_pages(&self, owned: &[ExtentNode], available: &[ExtentNode]) -> [BulkPage; 2] {
        [(OWNED_ROOT_DISTANCE, owned), (AVAILABLE_ROOT_DISTANCE, available)].map(|(distance, extents)| {
            let number = PageNumber(self.root.0 + distance);
            let mut bytes = vec![0; self.page_size.bytes()];
            let flags = PageFlags::ROOT | PageFlags::LEAF | PageFlags::SPACE_TREE | self.flags;
            let mut page = PageMut::format(&mut bytes, number, self.object_id, flags);
            page.set_dbtime(self.dbtime);
            page.set_external_header(&SplitBuffer::default().encode()).expect("an empty page has room");
            for (i, extent) in extents.iter().enumerate() {
                page.insert_node(i, NodeFlags::NONE, &extent.key(), &extent.data()).expect("few extents fit");
            }
            (number, bytes)
        })
    }
}

/// Groups ascending pages into extents.
fn runs(pages: &[PageNumber]) -> Vec<ExtentNode> {
    let mut runs: Vec<ExtentNode> = Vec::new();
    for &page in pages {
        match runs.last_mut() {
            Some(run) if run.last.0 + 1 == page.0 => {
                *run = ExtentNode::starting_at(run.first(), run.pages + 1)
            }
            _ => runs.push(ExtentNode::starting_at(page, 1)),
        }
    }
    runs
}

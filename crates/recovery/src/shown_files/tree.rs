//! Names and attributes of the shown files: the part that both threads read. Nothing in it changes.
//!
//! Invariant: the inode number of a node is its index plus one, and the root is the first.

use fuser::{FileAttr, FileType, INodeNo};
use std::{collections::BTreeMap, time::Duration, time::UNIX_EPOCH};

/// Bytes that `stat` recommends for one read.
const BLOCK_BYTES: u32 = 128 << 10;

/// A node of the tree.
pub(super) struct TreeNode {
    pub parent: usize,
    pub attributes: FileAttr,
    /// Of a folder: indexes of its nodes by name.
    pub children: BTreeMap<String, usize>,
}

/// All nodes.
pub(super) struct FileTree {
    nodes: Vec<TreeNode>,
    /// Owner of all nodes.
    owner: (u32, u32),
}

impl FileTree {
    pub fn new(owner: (u32, u32)) -> Self {
        let mut tree = Self { nodes: Vec::new(), owner };
        tree.push(0, FileType::Directory, 0o555, (0, 0));
        tree
    }

    /// The folder of this name in the root, made if it is not there.
    pub fn folder(&mut self, name: &str, changed_at: i64) -> usize {
        match self.nodes[0].children.get(name) {
            Some(&known) => known,
            None => self.add(0, name, (FileType::Directory, 0o555), (0, changed_at)),
        }
    }

    /// Adds a file of so many bytes; its index.
    pub fn file(
        &mut self,
        parent: usize,
        name: &str,
        (size, changed_at): (u64, i64),
        is_writable: bool,
    ) -> usize {
        let permissions = if is_writable { 0o644 } else { 0o444 };
        self.add(parent, name, (FileType::RegularFile, permissions), (size, changed_at))
    }

    fn add(
        &mut self,
        parent: usize,
        name: &str,
        kind: (FileType, u16),
        (size, changed_at): (u64, i64),
    ) -> usize {
        let index = self.push(parent, kind.0, kind.1, (size, changed_at));
        let before = self.nodes[parent].children.insert(name.to_owned(), index);
        assert!(before.is_none(), "two nodes are called {name}");
        index
    }

    fn push(&mut self, parent: usize, kind: FileType, perm: u16, (size, changed_at): (u64, i64)) -> usize {
        let index = self.nodes.len();
        let at = UNIX_EPOCH + Duration::from_secs(u64::try_from(changed_at).unwrap_or_default());
        let attributes = FileAttr {
            ino: INodeNo(index as u64 + 1),
            size,
            blocks: size.div_ceil(512),
            atime: at,
            mtime: at,
            ctime: at,
            crtime: at,
            kind,
            perm,
            nlink: if kind == FileType::Directory { 2 } else { 1 },
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        };
        self.nodes.push(TreeNode { parent, attributes, children: BTreeMap::new() });
        index
    }

    pub fn node(&self, inode: INodeNo) -> Option<&TreeNode> {
        self.nodes.get(usize::try_from(inode.0).ok()?.checked_sub(1)?)
    }

    pub fn named(&self, parent: INodeNo, name: &str) -> Option<&TreeNode> {
        self.node(parent)?.children.get(name).map(|&index| &self.nodes[index])
    }

    /// Names in a folder with their numbers and kinds, `.` and `..` first.
    pub fn listing<'t>(&'t self, folder: &'t TreeNode) -> impl Iterator<Item = (INodeNo, FileType, &'t str)> {
        let own = folder.attributes.ino;
        let above = self.nodes[folder.parent].attributes.ino;
        let dots = [(own, FileType::Directory, "."), (above, FileType::Directory, "..")];
        dots.into_iter().chain(folder.children.iter().map(|(name, &index)| {
            let attributes = &self.nodes[index].attributes;
            (attributes.ino, attributes.kind, name.as_str())
        }))
    }
}

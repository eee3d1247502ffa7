//! Trees: folders as restic keeps them, lists of nodes in the order of their names.

use crate::{VaultError, VaultResult, blob_id::BlobId};
use serde::{Deserialize, Serialize};

/// Go's `os.ModeDir` with 0755, and a file with 0644.
const FOLDER_MODE: u32 = 0x8000_0000 | 0o755;
const FILE_MODE: u32 = 0o644;
/// A time that says nothing: equal folders must have equal bytes, whenever they were written.
pub const NO_TIME: &str = "1970-01-01T00:00:00Z";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTree {
    pub nodes: Vec<FileNode>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    File,
    Dir,
    /// Links, devices and so on, which restic may have put beside.
    #[serde(other)]
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileNode {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: NodeKind,
    #[serde(default)]
    pub mode: u32,
    #[serde(default)]
    pub mtime: String,
    #[serde(default)]
    pub atime: String,
    #[serde(default)]
    pub ctime: String,
    #[serde(default)]
    pub uid: u32,
    #[serde(default)]
    pub gid: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub size: u64,
    /// Chunks of a file.
    #[serde(default)]
    pub content: Option<Vec<BlobId>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subtree: Option<BlobId>,
}

fn is_zero(size: &u64) -> bool {
    *size == 0
}

impl FileNode {
    pub fn file(name: String, time: &str, size: u64, content: Vec<BlobId>) -> Self {
        Self { size, content: Some(content), ..Self::of(name, (NodeKind::File, FILE_MODE), time) }
    }

    pub fn folder(name: String, time: &str, subtree: BlobId) -> Self {
        Self { subtree: Some(subtree), ..Self::of(name, (NodeKind::Dir, FOLDER_MODE), time) }
    }

    fn of(name: String, (kind, mode): (NodeKind, u32), time: &str) -> Self {
        let [mtime, atime, ctime] = [time; 3].map(str::to_owned);
        Self { name, kind, mode, mtime, atime, ctime, uid: 0, gid: 0, size: 0, content: None, subtree: None }
    }
}

impl FileTree {
    /// Sorts the nodes, as restic wants them.
    pub fn of(mut nodes: Vec<FileNode>) -> Self {
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Self { nodes }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).expect("plain fields");
        // Restic ends its trees with a line break, and the same folder must have the same name from both programs.
        bytes.push(b'\n');
        bytes
    }

    /// # Errors
    ///
    /// It is no tree.
    pub fn decode(bytes: &[u8]) -> VaultResult<Self> {
        serde_json::from_slice(bytes).map_err(|error| VaultError::damaged("a tree", error.to_string()))
    }

    pub fn node(&self, name: &str) -> Option<&FileNode> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The tree of a folder in this one.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn subtree(&self, name: &str) -> VaultResult<BlobId> {
        let subtree = self.node(name).and_then(|node| node.subtree);
        subtree.ok_or_else(|| VaultError::damaged("a tree", format!("it has no folder {name:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_the_words_of_restic_and_its_nodes_in_order() {
        let tree = FileTree::of(vec![
            FileNode::folder("b".into(), NO_TIME, BlobId([1; 32])),
            FileNode::file("a".into(), NO_TIME, 3, vec![BlobId([2; 32])]),
        ]);
        let text = String::from_utf8(tree.encode()).unwrap();
        let time = format!(r#""mtime":"{NO_TIME}","atime":"{NO_TIME}","ctime":"{NO_TIME}","uid":0,"gid":0"#);
        let (one, two) = ("01".repeat(32), "02".repeat(32));
        let a = format!(r#"{{"name":"a","type":"file","mode":420,{time},"size":3,"content":["{two}"]}}"#);
        let b = format!(
            r#"{{"name":"b","type":"dir","mode":2147484141,{time},"content":null,"subtree":"{one}"}}"#
        );
        assert_eq!(text, format!("{{\"nodes\":[{a},{b}]}}\n"));
        assert_eq!(FileTree::decode(text.as_bytes()).unwrap(), tree);
        assert_eq!(tree.subtree("b").unwrap(), BlobId([1; 32]));
        assert!(tree.subtree("a").is_err() && tree.subtree("c").is_err());
        assert!(FileTree::decode(text.replace(&two, "02").as_bytes()).is_err());
    }
}

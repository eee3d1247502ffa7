//! Merges of the catalogue.

use super::{
    Trees,
    change::RowChange,
    changes::Changes,
    draft::RowDraft,
    levels::Levels,
    merge::{Content, PourProgress},
};
use crate::{
    error::Result,
    format::{CheckpointNumber, NodeKey, NodePointer, RowKey, TreeKind, TreeNode},
};
use std::iter::Peekable;

impl Trees {
    /// Merges `changes`, which ascend by key, into a catalogue. Returns the new root.
    ///
    /// # Errors
    ///
    /// The old tree is unchanged.
    ///
    /// # Panics
    ///
    /// If the changes do not ascend, or a row has no bytes or more than 1024.
    pub async fn merge_rows(
        &self,
        checkpoint: CheckpointNumber,
        root: Option<NodePointer>,
        changes: impl IntoIterator<Item = RowChange>,
    ) -> Result<Option<NodePointer>> {
        self.merge(checkpoint, root, changes, RowContent).await
    }
}

struct RowContent;

impl Content for RowContent {
    const TREE: TreeKind = TreeKind::Catalogue;
    type Draft = RowDraft;
    type Change = RowChange;
    type Old<'a> = Peekable<Box<dyn Iterator<Item = (RowKey, &'a [u8])> + 'a>>;

    fn old<'a>(&self, leaf: Option<TreeNode<'a>>) -> Self::Old<'a> {
        let rows: Box<dyn Iterator<Item = (RowKey, &'a [u8])> + 'a> = match leaf {
            Some(TreeNode::Catalogue(leaf)) => Box::new(leaf.rows()),
            Some(_) => unreachable!("a node of another tree is refused"),
            None => Box::new(std::iter::empty()),
        };
        rows.peekable()
    }

    fn pour<I: Iterator<Item = RowChange>>(
        &mut self,
        old: &mut Self::Old<'_>,
        end: Option<NodeKey>,
        changes: &mut Changes<I>,
        into: &mut Levels<'_, RowDraft>,
    ) -> Result<PourProgress> {
        while !into.writer.has_full() {
            let next = changes.next_below(end);
            let passed = old.next_if(|(row, _)| next.is_none_or(|key| NodeKey::of_row(*row) < key));
            if let Some(row) = passed {
                into.push(row)?;
                continue;
            }
            let Some(key) = next else { return Ok(PourProgress::All) };
            old.next_if(|(row, _)| NodeKey::of_row(*row) == key);
            let mut last = None;
            while let Some(change) = changes.take_of(key) {
                last = Some(change);
            }
            if let Some((row, Some(bytes))) = last {
                into.push((row, &bytes))?;
            }
        }
        Ok(PourProgress::Some)
    }
}

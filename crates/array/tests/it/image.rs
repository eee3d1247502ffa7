//! An encoded example of each structure, with functions to decode and alter it.

use crate::examples;
use array::format::{
    BlockLocation, DecodeError, LogRecord, MemberState, SlotHeader, SummaryBlock, Superblock, TreeNode,
    checkpoint::Checkpoint,
    checksum::crc32c,
    node::{CatalogueBuilder, InnerBuilder, MapBuilder},
    row::{
        BranchRow, CutRow, DiscardRow, EpochRow, GroupRow, ImportRow, IntentRow, PointRow,
        ReplicationHeadRow, ReplicationPartRow, ScrubRow, SegmentRow, SiteHeadRow, SitePartRow, VolumeRow,
        WithholdingRow,
    },
};

/// One structure, encoded.
pub struct Image {
    /// File name of its golden image.
    pub name: &'static str,
    pub bytes: Vec<u8>,
    /// True if it has a checksum of its own. Locations and rows rely on that of their container.
    pub is_sealed: bool,
    /// Decodes and encodes again.
    pub again: fn(&[u8]) -> Result<Vec<u8>, DecodeError>,
    /// Updates all checksums of the structure.
    pub reseal: fn(&mut [u8]),
}

fn superblock(name: &'static str, superblock: &Superblock) -> Image {
    Image {
        name,
        bytes: superblock.encode(),
        is_sealed: true,
        again: |bytes| Superblock::decode(bytes).map(|value| value.encode()),
        reseal: |bytes| {
            if bytes.len() > 4096 {
                reseal(&mut bytes[4096..]);
            }
            reseal(bytes);
        },
    }
}

/// An example of each structure of the format.
pub fn all() -> Vec<Image> {
    let mut images = vec![
        superblock("superblock-1", &examples::superblock()),
        superblock("superblock-joining-1", &examples::superblock_joining(MemberState::Joining)),
        superblock("superblock-withdrawn-1", &examples::superblock_joining(MemberState::Withdrawn)),
        superblock("superblock-leaving-1", &examples::superblock_leaving()),
        superblock("superblock-branch-stamps-1", &examples::superblock_after_checkpoint()),
        superblock("superblock-filling-1", &examples::superblock_with_fillings()),
        superblock("superblock-imports-1", &examples::superblock_with_imports()),
        superblock("superblock-groups-1", &examples::superblock_with_groups()),
        superblock("superblock-sparing-1", &examples::superblock_with_sparing()),
        superblock("superblock-domains-1", &examples::superblock_with_domains()),
        superblock("superblock-sets-1", &examples::superblock_with_sets()),
        Image {
            name: "checkpoint-1",
            bytes: examples::checkpoint().encode(),
            is_sealed: true,
            again: |bytes| Checkpoint::decode(bytes).map(|value| value.encode()),
            reseal,
        },
        Image {
            name: "slot-header-log-1",
            bytes: examples::log_slot_header().encode().to_vec(),
            is_sealed: true,
            again: |bytes| SlotHeader::decode(bytes).map(|value| value.encode().to_vec()),
            reseal,
        },
        Image {
            name: "slot-header-raid50-1",
            bytes: examples::raid50_slot_header().encode().to_vec(),
            is_sealed: true,
            again: |bytes| SlotHeader::decode(bytes).map(|value| value.encode().to_vec()),
            reseal,
        },
        Image {
            name: "summary-1",
            bytes: examples::summary().encode().to_vec(),
            is_sealed: true,
            again: |bytes| SummaryBlock::decode(bytes).map(|value| value.encode().to_vec()),
            reseal,
        },
        Image {
            name: "record-1",
            bytes: examples::record().encode().to_vec(),
            is_sealed: true,
            again: |bytes| LogRecord::decode(bytes).map(|value| value.encode().to_vec()),
            reseal,
        },
    ];
    images.extend(examples::locations().into_iter().map(|(name, location)| Image {
        name,
        bytes: location.encode().to_vec(),
        is_sealed: false,
        again: |bytes| BlockLocation::decode(bytes).map(|value| value.encode().to_vec()),
        reseal: |_| (),
    }));
    images.extend(rows());
    images.extend(nodes());
    images
}

/// One of each row of the catalogue.
fn rows() -> [Image; 23] {
    macro_rules! row {
        ($name:literal, $row:ident, $example:expr) => {
            Image {
                name: $name,
                bytes: $example.encode(),
                is_sealed: false,
                again: |bytes| $row::decode(bytes).map(|value| value.encode()),
                reseal: |_| (),
            }
        };
    }
    [
        row!("row-segment-1", SegmentRow, examples::segment_row()),
        row!("row-volume-1", VolumeRow, examples::volume_row()),
        row!("row-volume-2", VolumeRow, examples::left_volume_row()),
        row!("row-branch-1", BranchRow, examples::branch_row()),
        row!("row-branch-filling-1", BranchRow, examples::deep_branch_row()),
        row!("row-point-1", PointRow, examples::point_row()),
        row!("row-point-2", PointRow, examples::noted_point_row()),
        row!("row-group-1", GroupRow, examples::group_row()),
        row!("row-group-2", GroupRow, examples::shared_group_row()),
        row!("row-intent-clone-1", IntentRow, examples::clone_intent_row()),
        row!("row-intent-rollback-1", IntentRow, examples::rollback_intent_row()),
        row!("row-intent-clone-2", IntentRow, examples::shared_intent_row()),
        row!("row-cut-1", CutRow, examples::cut_row()),
        row!("row-withholding-port-1", WithholdingRow, examples::withholding_row()),
        row!("row-withholding-nbd-1", WithholdingRow, examples::nbd_withholding_row()),
        row!("row-import-1", ImportRow, examples::import_row()),
        row!("row-site-head-1", SiteHeadRow, examples::site_head_row()),
        row!("row-site-part-1", SitePartRow, examples::site_part_row()),
        row!("row-replication-head-1", ReplicationHeadRow, examples::replication_head_row()),
        row!("row-replication-part-1", ReplicationPartRow, examples::replication_part_row()),
        row!("row-epoch-1", EpochRow, examples::epoch_row()),
        row!("row-discard-1", DiscardRow, examples::discard_row()),
        row!("row-scrub-1", ScrubRow, examples::scrub_row()),
    ]
}

/// One of each kind of node.
fn nodes() -> impl Iterator<Item = Image> {
    let nodes = [
        ("node-head-1", examples::head_leaf()),
        ("node-history-2", examples::history_leaf()),
        ("node-catalogue-1", examples::catalogue_leaf()),
        ("node-inner-2", examples::inner_node()),
    ];
    nodes.into_iter().map(|(name, bytes)| Image { name, bytes, is_sealed: true, again: rebuild, reseal })
}

/// Decodes a node and rebuilds it, entry by entry.
pub fn rebuild(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let node = TreeNode::decode(bytes)?;
    let (blocks, place) = (node.pointer().blocks, node.place());
    let (again, pointer) = match node {
        TreeNode::Map(leaf) => {
            let mut builder = MapBuilder::new(node.tree(), blocks);
            leaf.runs().for_each(|run| builder.push(&run).expect("it was in there"));
            builder.finish(place)
        }
        TreeNode::Catalogue(leaf) => {
            let mut builder = CatalogueBuilder::new(blocks);
            leaf.rows().for_each(|(key, row)| builder.push(key, row).expect("it was in there"));
            builder.finish(place)
        }
        TreeNode::Inner(inner) => {
            let mut builder = InnerBuilder::new(node.tree(), node.pointer().level, blocks);
            inner.children().for_each(|child| builder.push(child).expect("it was in there"));
            builder.finish(place)
        }
    };
    assert_eq!(pointer, node.pointer());
    Ok(again)
}

/// Updates the checksum of a structure, as `docs/format.md` defines it.
fn reseal(bytes: &mut [u8]) {
    if bytes.len() >= 16 {
        bytes[12..16].fill(0);
        let checksum = crc32c(bytes);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    }
}

//! Random page operations, compared with a sorted map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::format::page_size::{DbTime, ObjectId, PageNumber, PageSize};

#[derive(Clone, Debug)]
enum Operation {
    Insert { key: Vec<u8>, data_len: usize },
    Replace { pick: prop::sample::Index, data_len: usize },
    Flag { pick: prop::sample::Index, flags: u8 },
    Remove { pick: prop::sample::Index, count: usize },
    Rebuild { prefix_from: prop::sample::Index },
    RoundTrip,
}

/// Keys that often share long prefixes.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => "mailbox/(inbox|sent|drafts)/[a-c]{1,3}",
        2 => "[ab]{0,4}",
        1 => "mailbox/[a-z]{100,300}",
    ]
    .prop_map(String::into_bytes)
}

fn data_len() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 0..60_usize, 3 => 60..600_usize, 1 => 600..9000_usize]
}

fn operation() -> impl Strategy<Value = Operation> {
    let pick = any::<prop::sample::Index>;
    prop_oneof![
        8 => (key(), data_len()).prop_map(|(key, data_len)| Operation::Insert { key, data_len }),
        4 => (pick(), data_len()).prop_map(|(pick, data_len)| Operation::Replace { pick, data_len }),
        1 => (pick(), 0..4_u8).prop_map(|(pick, flags)| Operation::Flag { pick, flags }),
        2 => (pick(), 1..4_usize).prop_map(|(pick, count)| Operation::Remove { pick, count }),
        1 => pick().prop_map(|prefix_from| Operation::Rebuild { prefix_from }),
        1 => Just(Operation::RoundTrip),
    ]
}

type Model = BTreeMap<Vec<u8>, (NodeFlags, Vec<u8>)>;

fn nth_key(model: &Model, pick: prop::sample::Index) -> Option<Vec<u8>> {
    (!model.is_empty()).then(|| model.keys().nth(pick.index(model.len())).expect("in range").clone())
}

fn apply(bytes: &mut [u8], model: &mut Model, operation: &Operation, step: usize) {
    let fill = |len: usize| (0..len).map(|i| (i + step) as u8).collect::<Vec<_>>();
    let mut page = PageMut::new(bytes);
    match operation {
        Operation::Insert { key, data_len } => {
            let data = fill(*data_len);
            let Err(place) = page.view().find(key) else { return };
            let fits = page.view().bytes_needed(key, &data) <= page.view().free_bytes();
            let inserted = page.insert_node(place, NodeFlags::NONE, key, &data);
            assert_eq!(inserted.is_ok(), fits);
            if fits {
                model.insert(key.clone(), (NodeFlags::NONE, data));
            }
        }
        Operation::Replace { pick, data_len } => {
            let Some(key) = nth_key(model, *pick) else { return };
            let place = page.view().find(&key).expect("in the model");
            let room = page.view().free_bytes() + page.view().node(place).data.len();
            let data = fill(*data_len);
            let replaced = page.replace_data(place, &data);
            assert_eq!(replaced.is_ok(), data.len() <= room);
            if replaced.is_ok() {
                model.get_mut(&key).expect("in the model").1 = data;
            }
        }
        Operation::Flag { pick, flags } => {
            let Some(key) = nth_key(model, *pick) else { return };
            page.set_node_flags(page.view().find(&key).expect("in the model"), NodeFlags(*flags));
            model.get_mut(&key).expect("in the model").0 = NodeFlags(*flags);
        }
        Operation::Remove { pick, count } => {
            let Some(key) = nth_key(model, *pick) else { return };
            let first = page.view().find(&key).expect("in the model");
            let count = (*count).min(page.view().node_count() - first);
            page.remove_nodes(first, count);
            let gone: Vec<_> = model.keys().skip(first).take(count).cloned().collect();
            gone.iter().for_each(|key| drop(model.remove(key)));
        }
        Operation::Rebuild { prefix_from } => rebuild(&mut page, model, *prefix_from),
        Operation::RoundTrip => {
            let image = page.view().used_image();
            assert_eq!(image.len(), 2 + page.view().bytes().len() - page.view().free_bytes());
            page.bytes.fill(0xEE);
            restore_image(page.bytes, &image).expect("an image just made");
            assert_eq!(page.view().used_image(), image);
        }
    }
}

/// Rebuilds with another prefix; undoes that if the page overflows.
fn rebuild(page: &mut PageMut<'_>, model: &Model, prefix_from: prop::sample::Index) {
    let is_root = page.view().is_root();
    let image = page.view().used_image();
    let keys: Vec<&[u8]> = model.keys().map(Vec::as_slice).collect();
    let prefix = match (is_root, prefix_from.index(3)) {
        (true, _) => vec![7; 16],
        (false, 0) => choose_prefix(&keys),
        (false, 1) => vec![],
        (false, _) => nth_key(model, prefix_from).unwrap_or_default(),
    };
    let nodes = model.iter().map(|(key, (flags, data))| (*flags, key.as_slice(), data.as_slice()));
    if page.rebuild(nodes, &prefix).is_err() {
        restore_image(page.bytes, &image).expect("an image just made");
    }
}

fn compare(bytes: &[u8], model: &Model) {
    let view = PageView::new(bytes);
    view.check_structure().expect("sound after every step");
    assert_eq!(view.node_count(), model.len());
    let last_end = (0..view.tag_count()).map(|tag| view.tag(tag).end()).max();
    assert_eq!(Some(view.used_end()), last_end, "free bytes are counted as free");
    let mut key = Vec::new();
    for (i, (model_key, (flags, data))) in model.iter().enumerate() {
        view.key_of(i, &mut key);
        let node = view.node(i);
        assert_eq!((&key, node.data), (model_key, data.as_slice()));
        assert_eq!(node.flags.without(NodeFlags::COMPRESSED), *flags);
        assert_eq!(view.find(&key), Ok(i));
    }
}

fn page_size() -> impl Strategy<Value = PageSize> {
    prop::sample::select(PageSize::ALL.to_vec())
}

#[test]
fn the_external_header_can_move_and_vanish() {
    for size in PageSize::ALL {
        let mut bytes = vec![0; size.bytes()];
        let mut page = PageMut::format(&mut bytes, PageNumber(1), ObjectId(1), PageFlags::LEAF);
        page.set_external_header(b"ab").unwrap();
        page.insert_node(0, NodeFlags::NONE, b"key", b"data").unwrap();
        for header in [&b"long enough to move behind the node"[..], b"", b"x", b""] {
            page.set_external_header(header).unwrap();
            page.view().check_structure().unwrap();
            assert_eq!(page.view().external_header(), header);
            assert_eq!((page.view().find(b"key"), page.view().node(0).data), (Ok(0), &b"data"[..]));
        }
        page.remove_nodes(0, 1);
        assert_eq!(page.view().free_bytes(), size.bytes() - size.header_bytes() - TAG_BYTES);
        page.view().check_structure().unwrap();
    }
}

#[test]
fn a_prefix_is_used_only_where_it_pays() {
    let mut bytes = vec![0; PageSize::Kib4.bytes()];
    let mut page = PageMut::format(&mut bytes, PageNumber(1), ObjectId(1), PageFlags::LEAF);
    page.set_external_header(b"prefix").unwrap();
    for (i, key) in [&b"pr-two"[..], b"pre-three", b"prefix", b"prefix-all"].into_iter().enumerate() {
        page.insert_node(i, NodeFlags::NONE, key, b"").unwrap();
    }
    let prefixes: Vec<usize> = (0..4).map(|i| page.view().node(i).prefix_len).collect();
    assert_eq!(prefixes, [0, 3, 6, 6]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_page_behaves_like_a_sorted_map(
        size in page_size(), is_root: bool, operations in prop::collection::vec(operation(), 1..120),
    ) {
        let flags = if is_root { PageFlags::LEAF | PageFlags::ROOT } else { PageFlags::LEAF };
        let mut bytes = vec![0xEE; size.bytes()];
        let mut page = PageMut::format(&mut bytes, PageNumber(9), ObjectId(7), flags);
        page.set_external_header(if is_root { &[7; 16] } else { b"mailbox/inbox/" }).unwrap();
        page.set_siblings(Some(PageNumber(8)), None);
        page.set_dbtime(DbTime(0x1234_5678_9ABC));
        let mut model = Model::new();
        for (step, operation) in operations.iter().enumerate() {
            apply(&mut bytes, &mut model, operation, step);
            compare(&bytes, &model);
        }
        let view = PageView::new(&bytes);
        prop_assert_eq!(view.dbtime(), DbTime(0x1234_5678_9ABC));
        prop_assert_eq!((view.previous(), view.next()), (Some(PageNumber(8)), None));
        prop_assert_eq!(view.object_id(), ObjectId(7));
        prop_assert_eq!(view.page_number(), (!size.is_small()).then_some(PageNumber(9)));
    }

    #[test]
    fn a_branch_leads_every_key_to_the_first_separator_above_it(
        size in page_size(),
        separators in prop::collection::btree_set("[a-d]{1,3}", 0..30),
        probes in prop::collection::vec("[a-e]{0,4}", 1..20),
    ) {
        let mut bytes = vec![0; size.bytes()];
        let mut page = PageMut::format(&mut bytes, PageNumber(1), ObjectId(1), PageFlags::PARENT_OF_LEAF);
        let separators: Vec<String> = separators.into_iter().collect();
        page.insert_node(0, NodeFlags::NONE, b"", &1000_u32.to_le_bytes()).unwrap();
        for (i, separator) in separators.iter().enumerate() {
            let child = (i as u32 + 1).to_le_bytes();
            page.insert_node(i, NodeFlags::NONE, separator.as_bytes(), &child).unwrap();
        }
        page.view().check_structure().unwrap();
        for probe in probes {
            let expected = separators.iter().position(|s| *s > probe);
            let (place, child) = page.view().child_for(probe.as_bytes());
            prop_assert_eq!(place, expected.unwrap_or(separators.len()));
            prop_assert_eq!(child.0, expected.map_or(1000, |i| i as u32 + 1));
        }
    }

    /// Damages the header, the tags and the strings: the check may accept or reject the page, but nothing
    /// panics, and every node of an accepted page can be read.
    #[test]
    fn checking_a_damaged_page_never_panics(
        size in page_size(), keys in prop::collection::btree_set(key(), 1..20),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), leaf: bool,
    ) {
        let mut bytes = vec![0; size.bytes()];
        let flags = if leaf { PageFlags::LEAF } else { PageFlags::PARENT_OF_LEAF };
        let mut page = PageMut::format(&mut bytes, PageNumber(1), ObjectId(1), flags);
        page.set_external_header(b"mailbox/").unwrap();
        for (i, key) in keys.iter().enumerate() {
            if page.insert_node(i, NodeFlags::NONE, key, &9_u32.to_le_bytes()).is_err() { break }
        }
        let image = page.view().used_image();
        let (used, tags) = (page.view().used_end(), page.view().tag_count());
        let interesting: Vec<usize> = (0..size.header_bytes() + used)
            .chain(size.bytes() - tags * TAG_BYTES..size.bytes())
            .collect();
        for (place, value) in &damage {
            bytes[interesting[place.index(interesting.len())]] = *value;
        }
        let view = PageView::new(&bytes);
        if view.check_structure().is_ok() {
            let mut key = Vec::new();
            (0..view.node_count()).for_each(|i| view.key_of(i, &mut key));
            view.find(b"mailbox/inbox").ok();
            let image = view.used_image();
            let mut restored = vec![0xEE; size.bytes()];
            restore_image(&mut restored, &image).unwrap();
            assert_eq!(PageView::new(&restored).used_image(), image);
        }
        let mut damaged_image = image;
        for (place, value) in &damage {
            let at = place.index(damaged_image.len());
            damaged_image[at] = *value;
        }
        damaged_image.truncate(damaged_image.len() - damage.len() % 3);
        let mut restored = vec![0xEE; size.bytes()];
        if restore_image(&mut restored, &damaged_image).is_ok() {
            PageView::new(&restored).check_structure().ok();
        }
    }
}

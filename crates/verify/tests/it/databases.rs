use crate::{
    whole::{Judged, facts, judge},
    written::{
        self, FORMS, Form, OWNED_LAST, Page, SLACK_PAGES, SMALL_ROOT, SMALL_ROWS, TALL_LEAVES, TALL_ROWS,
    },
};
use maildb::PageNumber;
use verify::{
    BitFix, FindingSeverity,
    database::{HeaderCopyState, OwnedPages, PageStatus, check},
};
use world::{ByteCount, ByteOffset};

fn judged(file: &[u8]) -> Judged {
    judge(file).expect("a header verifies")
}

/// Index of the good-page count for a form.
fn good_index(form: Form) -> usize {
    if form.is_old { 0 } else { 1 + usize::from(form.page_bytes > 8192) }
}

#[test]
fn a_sound_database_of_any_form_is_clean_to_the_last_page() {
    for form in FORMS {
        let found = judged(&written::database(form, &written::pages()));
        assert_eq!(found.said(), [] as [String; 0], "{form:?}");
        let written = written::pages().len() as u64;
        let mut good = [0; 3];
        good[good_index(form)] = written;
        assert_eq!(found.tally.good, good, "{form:?}");
        assert_eq!(found.tally.blank, u64::from(OWNED_LAST) - written);
        assert_eq!(found.tally.slack, u64::from(SLACK_PAGES), "{form:?}");
        assert_eq!(found.owned.last(), Some(PageNumber(OWNED_LAST)));
        let tables: Vec<_> = found.deep.tables.iter().map(|t| (t.name.as_str(), t.pages, t.rows)).collect();
        assert_eq!(tables, [("MSysObjects", 1, 5), ("Small", 1, SMALL_ROWS), ("Tall", 4, TALL_ROWS)]);
        assert_eq!(found.deep.pages_in_use + found.deep.pages_free, u64::from(OWNED_LAST), "{form:?}");
        assert_eq!(found.deep.levels_max, 2);
    }
}

#[test]
fn one_bad_header_warns_and_two_are_fatal() {
    for form in FORMS {
        let whole = written::database(form, &written::pages());
        for copy in [0, 1] {
            let mut file = whole.clone();
            file[copy * form.page_bytes + 500] ^= 4;
            let found = judged(&file);
            let mut copies = [HeaderCopyState::Good; 2];
            copies[copy] = HeaderCopyState::Bad;
            assert_eq!(found.facts.copies, copies, "{form:?}");
            assert_eq!(found.facts.page_size.bytes(), form.page_bytes);
            assert!(matches!(found.header.as_slice(), [one] if one.severity == FindingSeverity::Warning));
        }
        let mut file = whole;
        file[500] ^= 4;
        file[form.page_bytes + 500] ^= 4;
        let (facts, findings) = facts(&file);
        assert!(
            facts.is_none() && findings.iter().any(|finding| finding.severity == FindingSeverity::Damage)
        );
    }
}

#[test]
fn the_published_vectors_verify() {
    for (page_bytes, first) in [
        (4096, 0x549b_549b_b984_04e6_u64),
        (8192, 0x2c06_2c06_b58c_dd40),
        (16384, 0x2a19_55e6_170a_ce10),
        (32768, 0xd28d_2d72_6a2f_4684),
    ] {
        let mut page = written::vector(page_bytes);
        written::put32(&mut page, 36, 0x2802);
        written::seal(&mut page, 1234);
        assert_eq!(page[..8], first.to_le_bytes(), "{page_bytes}: the writer of the tests");
        let size = maildb::PageSize::of(&page);
        assert!(matches!(check(&page, size, PageNumber(1234)), PageStatus::Good(_)), "{page_bytes}");
        let elsewhere = check(&page, size, PageNumber(1235));
        assert!(
            matches!(elsewhere, PageStatus::WrongPlace { stored: PageNumber(1234), .. }),
            "{elsewhere:?}"
        );
    }
    for (length, old) in [(2048, 0x10c8_e5f4), (4096, 0x0809_45a2), (8192, 0x0401_9c04)] {
        assert_eq!(written::old(&written::vector(length)), old);
    }
}

#[test]
fn every_flipped_bit_of_a_page_is_detected_and_located() {
    for form in FORMS {
        let page = Page { nodes: vec![(vec![1], written::vector(900))], ..Page::new(9, 3, written::LEAF) };
        let whole = page.bytes(form.page_bytes, form.is_old);
        let size = maildb::PageSize::of(&whole);
        // The whole start of the page, with checksums and flags; then a sample.
        let bits = (0..1000).chain((1000..8 * form.page_bytes).step_by(97));
        for bit in bits {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let found = check(&damaged, size, PageNumber(9));
            match found {
                PageStatus::Bad { fix, .. } if !form.is_old => assert_eq!(fix, Some(bit), "{form:?}"),
                // The number is part of the checksum only.
                PageStatus::WrongPlace { or_bit: Some(at), .. } if form.page_bytes <= 8192 => {
                    assert!(at == bit && bit < 32, "{form:?}, bit {bit}");
                }
                // The old checksum detects a flipped bit, but does not locate it.
                PageStatus::Bad { fix: None, .. } | PageStatus::WrongPlace { .. } if form.is_old => {}
                _ => panic!("{form:?}, bit {bit}: {found:?}"),
            }
        }
    }
}

#[test]
fn a_fix_names_the_byte_of_the_file() {
    let form = Form { page_bytes: 32768, is_old: false };
    let mut file = written::database(form, &written::pages());
    // In page 29, which is in use.
    let byte = 31 * 32768 - 10_000;
    file[byte] ^= 0x40;
    let found = judged(&file);
    assert_eq!((found.tally.damaged, found.tally.correctable), (1, 1));
    let fix = Some(BitFix { byte: ByteOffset(byte as u64), bit: 6 });
    assert_eq!(found.tally.findings[0].fix, fix, "{:?}", found.tally.findings);
}

#[test]
fn pages_behind_the_owned_ones_are_never_damage() {
    for form in FORMS {
        let mut file = written::database(form, &written::pages());
        let slack = (OWNED_LAST as usize + 2) * form.page_bytes;
        for change in 0..50 {
            file[slack + change * 37 % form.page_bytes] ^= 0x11;
            assert_eq!(judged(&file).tally.damaged, 0, "{form:?}");
        }
        // A partial page: noted, no damage.
        file.truncate(file.len() - 100);
        assert!(judged(&file).said().iter().all(|said| said.starts_with("Warning")));
    }
}

#[test]
fn a_truncated_file_is_damaged_and_a_longer_one_is_not() {
    for form in FORMS {
        let file = written::database(form, &written::pages());
        let found = judged(&file);
        let find = |pages: u32| {
            let length = ByteCount(u64::from(pages + 2) * form.page_bytes as u64);
            found.owned.find(&found.facts, length)
        };
        assert_eq!((find(OWNED_LAST), find(OWNED_LAST + SLACK_PAGES)), (None, None), "{form:?}");
        let cut = find(OWNED_LAST - 1).expect("a page is missing");
        assert!(cut.severity == FindingSeverity::Damage && cut.what.contains("ends before page 40"), "{cut}");
    }
}

#[test]
fn with_unknown_ownership_all_pages_count() {
    let form = Form { page_bytes: 8192, is_old: false };
    let mut file = written::database(form, &written::pages());
    file[3 * 8192 + 100] ^= 1;
    let found = judged(&file);
    assert!(matches!(found.owned, OwnedPages::Unknown(_)));
    assert_eq!(found.tally.damaged, 1 + u64::from(SLACK_PAGES));
}

#[test]
fn the_trailer_of_a_streaming_backup_is_no_damage() {
    for form in FORMS {
        let mut pages = written::pages();
        pages.retain(|page| page.number != 2);
        let mut file = written::database(form, &pages);
        file.truncate((OWNED_LAST as usize + 2) * form.page_bytes);
        file.extend(written::trailer(form.page_bytes));
        // The owned pages are unknown here, and still it is no damage.
        let found = judged(&file);
        assert_eq!((found.tally.trailers, found.tally.damaged), (1, 0), "{form:?}");
    }
}

/// Changes the pages, seals them, and compares the findings of the tree walk.
fn check_deep(change: impl Fn(&mut Vec<Page>), expected: &[(u32, &str)]) {
    for form in [FORMS[1], FORMS[4], FORMS[6]] {
        let mut pages = written::pages();
        change(&mut pages);
        let found = judged(&written::database(form, &pages));
        assert_eq!(found.tally.damaged, 0, "{form:?}: every page verifies");
        let said = found.said();
        for (page, words) in expected {
            let is_told =
                said.iter().any(|said| said.contains(&format!("page {page} ")) && said.contains(words));
            assert!(is_told, "{form:?}: no {words:?} of page {page} in {said:#?}");
        }
        assert_eq!(said.len(), expected.len(), "{form:?}: {said:#?}");
    }
}

fn page_of(pages: &mut [Page], number: u32) -> &mut Page {
    pages.iter_mut().find(|page| page.number == number).expect("it is there")
}

#[test]
fn missing_sibling_links_are_found() {
    let [first, second, third] = TALL_LEAVES;
    check_deep(|pages| page_of(pages, second).next = 0, &[(second, "the leaf after it is page 29")]);
    check_deep(|pages| page_of(pages, second).previous = 99, &[(second, "the leaf before it is page 27")]);
    check_deep(|pages| page_of(pages, third).next = first, &[(third, "it is the last leaf")]);
    check_deep(|pages| page_of(pages, 24).next = 3, &[(24, "a branch, and linked")]);
}

#[test]
fn keys_out_of_order_or_outside_their_separators_are_found() {
    let [first, second, _] = TALL_LEAVES;
    let last_key = |pages: &mut Vec<Page>| {
        page_of(pages, first).nodes[3].0 = 5_u32.to_be_bytes().to_vec();
    };
    check_deep(last_key, &[(first, "separators"), (second, "do not ascend")]);
    check_deep(|pages| page_of(pages, second).nodes.swap(0, 1), &[(second, "out of order")]);
}

/// `Tall` with three levels: its root has a branch of two leaves and, at the right, one of one leaf.
fn raise_tall(pages: &mut Vec<Page>, last_separators: [&[u8]; 2]) {
    let [first, second, third] = TALL_LEAVES.map(|page| page.to_le_bytes().to_vec());
    let key = |key: u32| key.to_be_bytes().to_vec();
    let branches = [30_u32, 31].map(|page| page.to_le_bytes().to_vec());
    let root = page_of(pages, 24);
    root.flags = written::ROOT;
    root.nodes = [key(8), Vec::new()].into_iter().zip(branches).collect();
    // The free space shrinks by those two pages.
    page_of(pages, 26).nodes[0] = (key(32), 1_u32.to_le_bytes().to_vec());
    let [left, right] = last_separators.map(<[u8]>::to_vec);
    let branch = |number, nodes| Page { nodes, ..Page::new(number, 12, written::PARENT_OF_LEAF) };
    pages.push(branch(30, vec![(key(4), first), (left, second)]));
    pages.push(branch(31, vec![(right, third)]));
}

#[test]
fn a_branch_ends_with_its_parents_separator_and_the_rightmost_with_none() {
    let parents = &8_u32.to_be_bytes()[..];
    check_deep(|pages| raise_tall(pages, [parents, b""]), &[]);
    let other = |pages: &mut Vec<Page>| raise_tall(pages, [&7_u32.to_be_bytes(), b""]);
    check_deep(other, &[(30, "its last separator differs from its parent's")]);
    let rightmost = |pages: &mut Vec<Page>| raise_tall(pages, [parents, &99_u32.to_be_bytes()]);
    check_deep(rightmost, &[(31, "its last separator differs from its parent's")]);
}

#[test]
fn an_older_spindle_database_is_clean_with_a_note_about_its_separators() {
    for form in FORMS {
        let mut pages = written::pages();
        raise_tall(&mut pages, [b"", b""]);
        let found = judged(&written::database(form, &pages));
        let [said] = &found.said()[..] else { panic!("{form:?}: {:#?}", found.said()) };
        assert!(said.starts_with("Note: the file: 1 branch pages end with an empty separator"), "{said}");
        assert_eq!((found.deep.levels_max, found.deep.separators_missing), (3, 1));
    }
}

#[test]
fn pages_of_another_tree_are_found() {
    let second = TALL_LEAVES[1];
    check_deep(|pages| page_of(pages, second).object = 11, &[(second, "it carries number 11 in tree 12")]);
    let twice = |pages: &mut Vec<Page>| page_of(pages, 24).nodes[2].1 = second.to_le_bytes().to_vec();
    check_deep(twice, &[(second, "used twice"), (2, "1 pages are neither used nor free: 29")]);
}

#[test]
fn extents_that_do_not_partition_the_file_are_found() {
    let [first, ..] = TALL_LEAVES;
    // A page in use that is also free: reported at its use.
    let free = |pages: &mut Vec<Page>| {
        page_of(pages, 26).nodes[0] = (30_u32.to_be_bytes().to_vec(), 4_u32.to_le_bytes().to_vec());
    };
    let lost = (2, "neither used nor free: 31, 32");
    check_deep(free, &[(27, "used twice"), (28, "used twice"), (29, "used twice"), lost]);
    let disowned = |pages: &mut Vec<Page>| {
        page_of(pages, 25).nodes[0] = (26_u32.to_be_bytes().to_vec(), 3_u32.to_le_bytes().to_vec());
    };
    let not_owned = "does not own it";
    check_deep(disowned, &[(first, not_owned), (28, not_owned), (29, not_owned)]);
    let leaked = |pages: &mut Vec<Page>| {
        page_of(pages, 3).nodes.remove(0);
    };
    check_deep(leaked, &[(2, "13 pages are neither used nor free: 7, 8")]);
}

#[test]
fn a_page_in_use_that_is_blank_is_found() {
    let lost = |pages: &mut Vec<Page>| pages.retain(|page| page.number != SMALL_ROOT);
    check_deep(lost, &[(SMALL_ROOT, "all zero"), (2, "3 pages are neither used nor free: 21, 22, 23")]);
}

/// Roots that every database has: 1 to 3 are its own and those of its space, 4 is that of the catalogue.
#[test]
fn a_zeroed_root_page_of_the_database_is_damage() {
    for form in FORMS {
        for root in [1_u32, 2, 3, 4] {
            let mut pages = written::pages();
            pages.retain(|page| page.number != root);
            let mut file = written::database(form, &pages);
            // Without page 2 it is unknown that the pages behind are not owned.
            file.truncate((OWNED_LAST as usize + 2) * form.page_bytes);
            let found = judged(&file);
            let damage: Vec<String> =
                found.said().into_iter().filter(|said| said.starts_with("Damage")).collect();
            let [one] = &damage[..] else { panic!("{form:?}, page {root}: {:#?}", found.said()) };
            assert!(one.contains(&format!("page {root} ")) && one.contains("all zero"), "{form:?}: {one}");
        }
    }
}

#[test]
fn a_root_replaced_by_another_page_is_found() {
    let no_header = |pages: &mut Vec<Page>| page_of(pages, 1).tag0.clear();
    check_deep(no_header, &[(1, "the root of the database has no sound space header")]);
    let no_root = |pages: &mut Vec<Page>| page_of(pages, 1).flags = written::LEAF;
    check_deep(no_root, &[(1, "the root of the database has no sound space header")]);
    // A valid page that belongs to no tree.
    let empty = |pages: &mut Vec<Page>| page_of(pages, 4).nodes.clear();
    let unused = (2, "pages are neither used nor free");
    check_deep(empty, &[(4, "the catalogue does not list itself"), unused]);
}

#[test]
fn faults_in_trees_of_a_dirty_database_are_warnings() {
    let form = FORMS[6];
    let mut pages = written::pages();
    page_of(&mut pages, TALL_LEAVES[1]).next = 0;
    let mut file = written::database(form, &pages);
    for at in [0, form.page_bytes] {
        written::put(&mut file, at, &written::database_header(form, 2));
    }
    let found = judged(&file);
    assert!(found.facts.is_dirty());
    assert!(matches!(found.deep.findings.as_slice(), [one] if one.severity == FindingSeverity::Warning));
}

//! The last separators of branches: as the format requires, and as in databases from before 2026-11-24.
//!
//! The golden image `empty-last-separators` is a database of three levels written by the program as of
//! 961bd7c, which left the last separator of every branch empty: 38 records of a table `Mail`, whose key is a
//! text. No later program writes such a file.

use crate::{
    dump::undump,
    model::{self, Mix, Rows},
};
use expect_test::expect_file;
use maildb::{
    ColumnId, Database, Durability, PageNumber, PageSize, Value,
    format::{
        checksum::seal_page,
        header::{DatabaseHeader, HeaderCopies},
        page::{NodeFlags, PageMut, PageView},
    },
};
use std::path::Path;
use verify::{FileFinding, FilePart, FindingSeverity, deep::TreeVerdict, in_world::verify_trees};
use world::{ByteCount, Random, World, real};

const PAGE_SIZE: PageSize = PageSize::Kib4;
const MIX: Mix = Mix { body_bytes_max: 1000, mailboxes: 50, delete_percent: 20.0 };

fn config() -> maildb::InstanceConfig {
    maildb::InstanceConfig {
        page_stamps: maildb::PageStampMode::Off,
        ..model::config(PAGE_SIZE, ByteCount(256 * 4096))
    }
}

fn golden() -> Vec<u8> {
    let path = format!("{}/tests/it/golden/empty-last-separators.hex", env!("CARGO_MANIFEST_DIR"));
    undump(&expect_file![path].data())
}

fn in_folder(test: impl AsyncFnOnce(World, &Path)) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    real::run(1, real::RealOptions::default(), async |world| test(world, path).await);
}

async fn walk(path: &Path) -> TreeVerdict {
    let file = model::folder(path).open(&model::file_name(0)).await.expect("there");
    let deep = verify_trees(file, &model::file_name(0)).await.expect("walked");
    assert_eq!(found(&deep), [] as [&FileFinding; 0]);
    deep
}

/// The findings of a walk that are more than notes, such as the one about the older form.
fn found(deep: &TreeVerdict) -> Vec<&FileFinding> {
    deep.findings.iter().filter(|finding| finding.severity > FindingSeverity::Note).collect()
}

/// Replaces the database of a group that has just been closed by the golden image.
fn put_golden_in_place(path: &Path) {
    let path = path.join(model::file_name(0));
    let mut bytes = golden();
    let header = |bytes: &[u8]| HeaderCopies::decode(bytes).best().expect("a header").clone();
    let (of_golden, of_group) = (header(&bytes), header(&std::fs::read(&path).expect("readable")));
    let DatabaseHeader { dbtime, object_id_last, .. } = of_golden;
    let block = DatabaseHeader { dbtime, object_id_last, ..of_group }.encode();
    for copy in bytes.chunks_mut(block.len()).take(2) {
        copy.copy_from_slice(&block);
    }
    std::fs::write(&path, bytes).expect("writable");
}

async fn names(database: &Database) -> Vec<String> {
    let table = database.table("Mail").expect("it exists");
    let mut cursor = database.cursor(&table, &[]).expect("a scan");
    let mut names = Vec::new();
    loop {
        let rows = cursor.next_rows().await.expect("a scan succeeds");
        if rows.is_empty() {
            return names;
        }
        for row in rows {
            let Some((_, Value::Text(name))) = row.into_iter().next() else { panic!("a name comes first") };
            names.push(name);
        }
    }
}

#[test]
fn a_database_of_the_older_form_can_be_read_and_changed() {
    in_folder(async |world, path| {
        model::open(&world, path, 1, config()).await.close().await.expect("closed");
        put_golden_in_place(path);
        let before = walk(path).await;
        assert_eq!((before.levels_max, before.separators_missing), (3, 1));
        let instance = model::open(&world, path, 1, config()).await;
        let database = instance.databases().remove(0);
        let mut expected = names(&database).await;
        assert_eq!(expected.len(), 38);
        assert!(expected.is_sorted() && expected[0].starts_with("AA") && expected[37].starts_with("AT"));
        let table = database.table("Mail").expect("it exists");
        let mut session = instance.session();
        // Splits of leaves and branches everywhere, and merges of existing ones.
        for name in expected.drain(..).step_by(2).collect::<Vec<_>>() {
            session.delete(&table, &[Value::Text(name)]).await.expect("deleted");
        }
        session.commit(Durability::Stable).await.expect("committed");
        expected = names(&database).await;
        for number in 0..200 {
            let letter = char::from(b'A' + (number * 7 % 26) as u8);
            let name = format!("A{}{number:03}", letter.to_string().repeat(200));
            let row = [
                (ColumnId(128), Value::Text(name.clone())),
                (ColumnId(256), Value::LongBinary(vec![1; 1300])),
            ];
            session.insert(&table, &row).await.expect("inserted");
            expected.push(name);
        }
        session.commit(Durability::Stable).await.expect("committed");
        expected.sort();
        assert!(names(&database).await == expected);
        drop(session);
        instance.close().await.expect("closed");
        walk(path).await;
    });
}

/// Empties the last separators of all branches but roots, as older versions did; returns their number.
fn empty_last_separators(path: &Path) -> u32 {
    let path = path.join(model::file_name(0));
    let mut bytes = std::fs::read(&path).expect("readable");
    let mut emptied = 0;
    for (index, page) in bytes.chunks_mut(PAGE_SIZE.bytes()).enumerate().skip(2) {
        let view = PageView::new(page);
        if page.iter().all(|&byte| byte == 0) || view.is_leaf() || view.is_root() || view.node_count() == 0 {
            continue;
        }
        let (last, mut key) = (view.node_count() - 1, Vec::new());
        view.key_of(last, &mut key);
        if key.is_empty() {
            continue;
        }
        let child = view.child(last).0.to_le_bytes();
        let mut edit = PageMut::new(page);
        edit.remove_nodes(last, 1);
        edit.insert_node(last, NodeFlags::NONE, b"", &child).expect("shorter than before");
        seal_page(page, PAGE_SIZE, PageNumber(index as u32 - 1));
        emptied += 1;
    }
    std::fs::write(&path, bytes).expect("writable");
    emptied
}

#[test]
fn branches_of_both_forms_are_split_and_merged_side_by_side() {
    in_folder(async |world, path| {
        let (mut rows, mut random) = (Rows::new(), Random::new(9, "separators"));
        for (changes, delete_percent) in [(9000, 10.0), (4000, 15.0), (6000, 60.0)] {
            let instance = model::open(&world, path, 1, config()).await;
            let database = instance.databases().remove(0);
            let table = model::mail_table(&database).await;
            assert!(model::read_all(&database, &table).await == rows);
            let mut session = instance.session();
            let mix = Mix { delete_percent, ..MIX };
            model::change_at_random(&mut session, &table, &mut rows, &mut random, changes, mix).await;
            assert!(model::read_all(&database, &table).await == rows);
            drop(session);
            instance.close().await.expect("closed");
            let deep = walk(path).await;
            assert!(deep.levels_max >= 3, "{deep:?}");
            let emptied = empty_last_separators(path);
            let missing = walk(path).await.separators_missing;
            assert_eq!((missing > 0, missing), (true, deep.separators_missing + u64::from(emptied)));
        }
    });
}

#[test]
fn a_last_separator_that_differs_from_the_parents_is_detected() {
    in_folder(async |world, path| {
        model::open(&world, path, 1, config()).await.close().await.expect("closed");
        put_golden_in_place(path);
        let file = path.join(model::file_name(0));
        let whole = std::fs::read(&file).expect("readable");
        for (index, page) in whole.chunks(PAGE_SIZE.bytes()).enumerate().skip(2) {
            let view = PageView::new(page);
            if page.iter().all(|&byte| byte == 0) || view.is_leaf() || view.is_root() {
                continue;
            }
            let last = view.node_count() - 1;
            let child = view.child(last).0.to_le_bytes();
            let mut bytes = whole.clone();
            let at = index * PAGE_SIZE.bytes();
            let page = &mut bytes[at..at + PAGE_SIZE.bytes()];
            let mut edit = PageMut::new(page);
            edit.remove_nodes(last, 1);
            edit.insert_node(last, NodeFlags::NONE, b"\xFF\xFF", &child).expect("short");
            let number = PageNumber(index as u32 - 1);
            seal_page(page, PAGE_SIZE, number);
            std::fs::write(&file, bytes).expect("writable");
            let open = model::folder(path).open(&model::file_name(0)).await.expect("there");
            let deep = verify_trees(open, &model::file_name(0)).await.expect("walked");
            let [one] = found(&deep)[..] else { panic!("{:?}", deep.findings) };
            assert_eq!(
                (one.place.part, &*one.what),
                (FilePart::Page(number), "its last separator differs from its parent's")
            );
        }
    });
}

//! Independent readers of the format count the same tables, pages and rows: dissect.esedb and libesedb, on
//! files made by our engine and on the real Windows databases from the tests of dissect.esedb. `cargo xtask
//! test --install` installs all of them.
//!
//! Neither side counts deleted rows that wait for removal.

use crate::{
    ours::run_group,
    whole::{Judged, judge},
};
use maildb::PageSize;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

/// Rows of each table, and its pages where the reader reports them.
type Counts = BTreeMap<String, (u64, Option<u64>)>;

/// Prints name, rows and pages of every table: pages of its tree, its indexes and its long values.
const DISSECT: &str = r#"
import sys
from dissect.esedb import EseDB

DELETED = 2

def below(db, number):
    page = db.page(number)
    return 1 if page.is_leaf else 1 + sum(below(db, node.child) for node in page.nodes())

with open(sys.argv[1], "rb") as file:
    db = EseDB(file)
    for table in db.tables():
        roots = {table.root_page}
        roots.update(filter(None, (index.record.get("ColtypOrPgnoFDP") for index in table.indexes)))
        try:
            roots.add(table.lv_page.num)
        except TypeError:
            pass
        rows = sum(1 for node in table.root.iter_leaf_nodes() if not node.tag.flags & DELETED)
        print(table.name, rows, sum(below(db, root) for root in roots), sep="\t")
"#;

/// Prints name and rows of every table.
const LIBESEDB: &str = r#"
import sys, pyesedb
file = pyesedb.file()
file.open(sys.argv[1])
for table in (file.get_table(index) for index in range(file.get_number_of_tables())):
    print(table.get_name(), table.get_number_of_records(), sep="\t")
"#;

fn python() -> String {
    std::env::var("SPINDLE_DISSECT_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

fn can_import(module: &str) -> bool {
    let probe = Command::new(python()).args(["-c", &format!("import {module}")]).output();
    probe.is_ok_and(|output| output.status.success())
}

/// The counts of an independent reader.
fn counted(script: &str, file: &Path) -> Counts {
    let run = Command::new(python()).args(["-c", script]).arg(file).output().expect("it was here");
    assert!(run.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&run.stderr));
    let text = String::from_utf8(run.stdout).expect("names are text");
    let line = |line: &str| {
        let mut cells = line.split('\t');
        let name = cells.next().expect("a name").to_owned();
        let rows = cells.next().and_then(|cell| cell.parse().ok()).expect("a count of rows");
        (name, (rows, cells.next().and_then(|cell| cell.parse().ok())))
    };
    text.lines().map(line).collect()
}

/// Our counts.
fn ours(found: &Judged) -> Counts {
    found.deep.tables.iter().map(|table| (table.name.clone(), (table.rows, Some(table.pages)))).collect()
}

/// A file with so many records that dissect.esedb reads it with `--full` only: large.edb.
const LARGE_BYTES: usize = 24 << 20;

/// Compares a file with every installed reader.
fn compare(file: &Path) -> Judged {
    let bytes = std::fs::read(file).expect("readable");
    let found = judge(&bytes).expect("a header verifies");
    for (module, script) in [("dissect.esedb", DISSECT), ("pyesedb", LIBESEDB)] {
        // In Python, 65,000 records take half a minute.
        let is_too_slow = script == DISSECT && bytes.len() == LARGE_BYTES;
        let is_full = std::env::var_os("SPINDLE_FULL").is_some();
        if is_too_slow && !is_full || !can_import(module) {
            continue;
        }
        let mut expected = ours(&found);
        if script == LIBESEDB {
            expected.values_mut().for_each(|(_, pages)| *pages = None);
        }
        assert_eq!(expected, counted(script, file), "{module}: {}", file.display());
    }
    found
}

/// True if the reference reader is installed. If not, says so, and fails where judges are required.
fn is_dissect_here() -> bool {
    let is_here = can_import("dissect.esedb");
    let required = std::env::var_os("SPINDLE_JUDGES").is_some_and(|value| value == "require");
    assert!(is_here || !required, "dissect.esedb is required: cargo xtask test --install");
    if !is_here {
        println!("skipped: dissect.esedb is not installed (cargo xtask test --install)");
    }
    is_here
}

#[test]
fn independent_readers_count_the_same_tables_pages_and_rows_of_our_engine() {
    if !is_dissect_here() {
        return;
    }
    for page_size in [PageSize::Kib4, PageSize::Kib8, PageSize::Kib32] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        run_group(folder.path(), page_size, 1000);
        compare(&folder.path().join("priv1.edb"));
    }
}

/// Expected results for each real file: owned pages, slack that does not verify, dirty state.
const REAL: [(&str, u64, u64, bool); 10] = [
    ("Current.mdb", 254, 0, false),
    ("SRUDB.dat", 142, 16, false),
    ("Windows.edb", 1022, 0, true),
    ("basic.edb", 254, 0, false),
    ("binary.edb", 254, 0, false),
    ("default.edb", 254, 0, false),
    ("index.edb", 254, 0, false),
    ("large.edb", 510, 0, false),
    ("multi.edb", 254, 0, false),
    ("text.edb", 254, 0, false),
];

#[test]
fn real_windows_databases_are_clean_and_match_independent_readers() {
    let Some(folder) = std::env::var_os("SPINDLE_ESE_FILES").map(PathBuf::from) else {
        println!("skipped: no real databases are here (cargo xtask test --install)");
        return;
    };
    for (name, owned, slack, is_dirty) in REAL {
        let found = compare(&folder.join(name));
        assert_eq!(found.said(), [] as [String; 0], "{name}");
        assert_eq!((found.owned.pages(), found.tally.slack), (Some(owned), slack), "{name}");
        assert_eq!(found.facts.is_dirty(), is_dirty, "{name}");
        assert_eq!(found.deep.pages_in_use + found.deep.pages_free, owned, "{name}: space adds up");
    }
}

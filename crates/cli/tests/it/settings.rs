//! Settings that refusals of the rooms below name: each is an option of the command line.

use crate::{helps::helps, spindle::Bench};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

#[test]
fn each_setting_that_runs_or_serving_names_is_an_option() {
    let bench = Bench::new();
    let options: BTreeSet<String> = helps(&bench).values().flat_map(|help| options_in(help)).collect();
    assert!(options.contains("size") && !options.contains("siz"), "{options:?}");
    let mut named = BTreeSet::new();
    for room in ["runs", "serving"] {
        for file in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(room).join("src")) {
            let source = fs::read_to_string(&file).expect("it is text");
            named.extend(report::settings::named_in(&source).map(str::to_owned));
        }
    }
    assert!(named.len() >= 20, "{named:?}");
    let unknown: Vec<&String> = named.difference(&options).collect();
    assert!(unknown.is_empty(), "no verb has the options {unknown:?}");
}

/// The long options that a help lists or explains.
fn options_in(help: &str) -> Vec<String> {
    let words = help.split(|c: char| !(c == '-' || c.is_ascii_lowercase()));
    let options = words.filter_map(|word| word.strip_prefix("--")).filter(|name| !name.is_empty());
    options.map(str::to_owned).collect()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

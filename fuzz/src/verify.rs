//! The checks of room `verify`: the rules of its tests, and files for the corpus.

#[path = "../../crates/verify/tests/it/hostile.rs"]
pub mod hostile;
#[allow(dead_code, missing_docs)]
#[path = "../../crates/verify/tests/it/whole.rs"]
pub mod whole;
#[allow(dead_code, missing_docs)]
#[path = "../../crates/verify/tests/it/written.rs"]
pub mod written;

/// The initial corpus of each target.
pub fn seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let records = || written::records(4, 40);
    let mut seeds = vec![
        ("verify_log", "segments".to_owned(), written::segments(3, &[records(), records()], 1)),
        ("verify_log", "sectors".to_owned(), written::sectors(3, &[records(), records()], 1)),
        ("verify_log", "records".to_owned(), records()),
        ("verify_small", "checkpoint".to_owned(), written::checkpoint(3)),
        ("verify_small", "flush-map".to_owned(), written::flush_map(1)),
    ];
    for (number, form) in written::FORMS.into_iter().enumerate() {
        let header = written::database_header(form, 3);
        seeds.push(("verify_start", format!("{number}"), [header.clone(), header].concat()));
        // A form, and two small changes of a page.
        seeds.push((
            "verify_database",
            format!("{number}"),
            vec![number as u8, 9, 0, 8, 2, 1, 0, 10, 0, 32, 1, 5],
        ));
    }
    seeds.push((
        "verify_database",
        "whole".to_owned(),
        written::database(written::FORMS[2], &written::pages()),
    ));
    seeds
}

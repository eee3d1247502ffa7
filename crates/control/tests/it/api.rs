//! The description of the API.

use serde_json::Value;
use std::collections::BTreeSet;

/// Additions change it; nothing else may, within v1. `UPDATE_EXPECT=1` writes it.
#[test]
fn the_description_of_the_api_is_the_one_in_the_repository() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let now = control::web::openapi_json() + "\n";
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, &now).unwrap();
    }
    let known = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        known == now,
        "docs/openapi.json is another one: run with UPDATE_EXPECT=1, and look at the difference"
    );
}

#[test]
fn parameters_of_a_path_are_in_it_and_all_of_it_are_described() {
    let description: Value = serde_json::from_str(&control::web::openapi_json()).unwrap();
    for (path, item) in description["paths"].as_object().unwrap() {
        let in_path: BTreeSet<_> =
            path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        for (method, operation) in item.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let described: BTreeSet<_> = parameters
                .filter(|parameter| parameter["in"] == "path")
                .map(|parameter| parameter["name"].as_str().unwrap())
                .collect();
            assert_eq!(described, in_path, "{method} {path}");
        }
    }
}

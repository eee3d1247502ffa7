//! The description of the API.

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

//! The style, the script and the icon of the pages. They are in the program; their paths change with their bytes.

use axum::{
    Router,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use control::kinds::kinds;
use report::html;
use std::sync::LazyLock;

const STYLE: &str = include_str!("../assets/console.css");
const SCRIPT: &str = include_str!("../assets/console.js");
const ICON: &str = include_str!("../assets/icon.svg");

static STYLE_PATH: LazyLock<String> = LazyLock::new(|| format!("/assets/console.css?v={}", tag_of(STYLE)));
static SCRIPT_PATH: LazyLock<String> = LazyLock::new(|| format!("/assets/console.js?v={}", tag_of(SCRIPT)));
static REPORT_STYLE_PATH: LazyLock<String> =
    LazyLock::new(|| format!("/assets/report.css?v={}", tag_of(html::STYLE)));
/// Names of the kinds of events: a browser listens to each by its name.
static KINDS: LazyLock<String> = LazyLock::new(|| {
    let mut names: Vec<&str> = kinds().map(|kind| kind.name).chain(["note", "warning"]).collect();
    names.sort_unstable();
    names.dedup();
    format!("export const kinds = {};\n", serde_json::to_string(&names).expect("plain names"))
});

/// Path of the style, with its version.
pub(crate) fn style_path() -> &'static str {
    &STYLE_PATH
}

/// Path of the style of whole reports, with its version.
pub(crate) fn report_style_path() -> &'static str {
    &REPORT_STYLE_PATH
}

/// Path of the script, with its version.
pub(crate) fn script_path() -> &'static str {
    &SCRIPT_PATH
}

pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let css = async |headers: HeaderMap| asset(&headers, "text/css; charset=utf-8", STYLE);
    let reports = async |headers: HeaderMap| asset(&headers, "text/css; charset=utf-8", html::STYLE);
    let script = async |headers: HeaderMap| asset(&headers, "text/javascript; charset=utf-8", SCRIPT);
    let names = async |headers: HeaderMap| asset(&headers, "text/javascript; charset=utf-8", &KINDS);
    let icon = async |headers: HeaderMap| asset(&headers, "image/svg+xml", ICON);
    Router::new()
        .route("/assets/console.css", get(css))
        .route("/assets/report.css", get(reports))
        .route("/assets/console.js", get(script))
        .route("/assets/kinds.js", get(names))
        .route("/assets/icon.svg", get(icon))
        .route("/favicon.ico", get(icon))
}

fn asset(headers: &HeaderMap, kind: &'static str, text: &'static str) -> Response {
    let tag = format!("\"{}\"", tag_of(text));
    let tag = HeaderValue::from_str(&tag).expect("hexadecimal digits");
    let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| *known == tag);
    // Without the version in its path, a copy is asked for again; it costs an answer without a body.
    let common = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::ETAG, tag),
    ];
    match is_known {
        true => (StatusCode::NOT_MODIFIED, common).into_response(),
        false => (common, text).into_response(),
    }
}

/// FNV-1a, 64 bits: a version, not a protection.
fn tag_of(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_small_and_calls_nobody_else() {
        assert!(SCRIPT.lines().count() <= 300, "the script outgrew what it is for");
        for text in [STYLE, SCRIPT, html::STYLE] {
            assert!(!text.contains("http://") && !text.contains("https://"), "another server is named");
            assert!(!text.contains("eval(") && !text.contains("innerHTML ="), "the policy forbids it");
        }
        assert!(KINDS.contains("\"note\""));
    }

    #[test]
    fn a_known_asset_is_not_sent_again() {
        let mut headers = HeaderMap::new();
        let first = asset(&headers, "text/css", STYLE);
        assert_eq!(first.status(), StatusCode::OK);
        headers.insert(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone());
        assert_eq!(asset(&headers, "text/css", STYLE).status(), StatusCode::NOT_MODIFIED);
    }
}

//! The document as a terminal shows it: shortened to what an administrator needs first.

use report::Document;

/// Findings shown; the page and the JSON have all.
const FINDINGS_MAX: usize = 40;

/// The same document, without what can wait.
pub fn for_terminal(document: &Document) -> Document {
    let mut shown = document.clone();
    let more = shown.findings.len().saturating_sub(FINDINGS_MAX);
    if more > 0 {
        let least = shown.findings[FINDINGS_MAX].severity;
        shown.findings.truncate(FINDINGS_MAX);
        let text = format!("and {more} more findings: --html writes them all, --json prints them");
        shown.finding(least, text, "");
    }
    shown.meta.command = None;
    shown
}

//! The report as one HTML file: no scripts, no external resources; styled for screen, dark mode and paper.

mod blocks;
mod charts;

use crate::block::KeyValue;
use crate::document::{Document, Finding, Section, Severity, Verdict, VerdictOutcome};
use crate::markup::{escaped, put};
use crate::unit::Unit;

/// The style of a page: in the page, or for a server at the path that [`PageLinks`] names.
pub const STYLE: &str = include_str!("style.css");

/// Content security policy: nothing may be loaded or run, even if text were mistaken for markup.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Links of a page that a server shows under a policy of its own, which allows nothing inline.
#[derive(Clone, Copy, Debug)]
pub struct PageLinks<'a> {
    /// Path of [`STYLE`].
    pub style: &'a str,
    /// Path of the page that this one belongs to, and the words of the link.
    pub back: (&'a str, &'a str),
}

/// Renders the whole page, which needs no other file.
pub fn render(document: &Document) -> String {
    page(document, None)
}

/// Renders the page for a server: without style, and without a policy of its own.
pub fn render_linked(document: &Document, links: PageLinks<'_>) -> String {
    page(document, Some(links))
}

fn page(document: &Document, links: Option<PageLinks<'_>>) -> String {
    let anchors = anchors(document);
    let mut out = String::new();
    head(document, links, &mut out);
    out.push_str("<body>\n<div class=\"page\">\n");
    contents(document, &anchors, links, &mut out);
    out.push_str("<main id=\"report\">\n");
    masthead(document, &mut out);
    if let Some(verdict) = &document.verdict {
        banner(verdict, &mut out);
    }
    highlights(&document.highlights, &mut out);
    findings(&document.findings, &mut out);
    for (section, anchor) in document.sections.iter().zip(&anchors) {
        section_body(section, anchor, &mut out);
    }
    footer(document, &mut out);
    out.push_str("</main>\n</div>\n</body>\n</html>\n");
    out
}

fn head(document: &Document, links: Option<PageLinks<'_>>, out: &mut String) {
    let outcome = document.verdict.as_ref().map(|verdict| format!("{}: ", verdict.outcome.word()));
    out.push_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    if links.is_none() {
        put!(out, "<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n");
    }
    put!(
        out,
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"generator\" content=\"{}\">\n<title>{}{}</title>\n",
        escaped(&document.meta.generator),
        escaped(&outcome.unwrap_or_default()),
        escaped(&document.title),
    );
    match links {
        None => put!(out, "<style>\n{STYLE}</style>\n"),
        Some(links) => put!(out, "<link rel=\"stylesheet\" href=\"{}\">\n", escaped(links.style)),
    }
    out.push_str("</head>\n");
}

/// A list of links beside the report, or above it on narrow pages.
fn contents(document: &Document, anchors: &[String], links: Option<PageLinks<'_>>, out: &mut String) {
    out.push_str("<nav class=\"contents\" aria-label=\"Contents\">\n");
    if let Some(PageLinks { back: (path, words), .. }) = links {
        put!(out, "<p><a href=\"{}\">{}</a></p>\n", escaped(path), escaped(words));
    }
    out.push_str("<p>Contents</p>\n<ol>\n");
    if !document.findings.is_empty() {
        out.push_str("<li><a href=\"#findings\">Findings</a></li>\n");
    }
    for (section, anchor) in document.sections.iter().zip(anchors) {
        put!(out, "<li><a href=\"#{anchor}\">{}</a></li>\n", escaped(&section.title));
    }
    out.push_str("</ol>\n</nav>\n");
}

fn masthead(document: &Document, out: &mut String) {
    put!(out, "<header>\n<h1>{}</h1>\n", escaped(&document.title));
    if !document.subtitle.is_empty() {
        put!(out, "<p class=\"subtitle\">{}</p>\n", escaped(&document.subtitle));
    }
    let meta = &document.meta;
    let shown = [("Machine", meta.machine.as_str()), ("Created", meta.created_utc.as_str())];
    out.push_str("<dl class=\"origin\">\n");
    for (name, value) in shown.into_iter().filter(|(_, value)| !value.is_empty()) {
        put!(out, "<div><dt>{name}</dt><dd>{}</dd></div>\n", escaped(value));
    }
    out.push_str("</dl>\n</header>\n");
}

fn banner(verdict: &Verdict, out: &mut String) {
    let class = match verdict.outcome {
        VerdictOutcome::Pass => "pass",
        VerdictOutcome::Fail => "fail",
        VerdictOutcome::Incomplete => "warn",
    };
    put!(
        out,
        "<section class=\"verdict {class}\" aria-label=\"Verdict\">\n<p class=\"outcome\">{}</p>\n\
         <div><p class=\"headline\">{}</p><p class=\"class\">{}</p></div>\n</section>\n",
        verdict.outcome.word(),
        escaped(&verdict.headline),
        escaped(&verdict.class),
    );
}

fn highlights(figures: &[KeyValue], out: &mut String) {
    if figures.is_empty() {
        return;
    }
    out.push_str("<dl class=\"highlights\">\n");
    for KeyValue { key, value, note } in figures {
        put!(
            out,
            "<div><dt>{}</dt><dd>{}</dd><dd class=\"note\">{}</dd></div>\n",
            escaped(key),
            escaped(&value.shown(&Unit::One)),
            escaped(note)
        );
    }
    out.push_str("</dl>\n");
}

fn findings(findings: &[Finding], out: &mut String) {
    if findings.is_empty() {
        return;
    }
    out.push_str("<section id=\"findings\">\n<h2>Findings</h2>\n<ul class=\"findings\">\n");
    for Finding { severity, text, source } in findings {
        let class = match severity {
            Severity::Error => "fail",
            Severity::Warning => "warn",
            Severity::Note => "plain",
        };
        put!(
            out,
            "<li class=\"{class}\"><span class=\"mark {class}\">{}</span><div><p>{}</p>",
            severity.word(),
            escaped(text)
        );
        if !source.is_empty() {
            put!(out, "<p class=\"source\">{}</p>", escaped(source));
        }
        out.push_str("</div></li>\n");
    }
    out.push_str("</ul>\n</section>\n");
}

fn section_body(section: &Section, anchor: &str, out: &mut String) {
    put!(out, "<section id=\"{anchor}\">\n<h2>{}</h2>\n", escaped(&section.title));
    if !section.intro.is_empty() {
        put!(out, "<p class=\"intro\">{}</p>\n", escaped(&section.intro));
    }
    for (index, block) in section.blocks.iter().enumerate() {
        blocks::block(block, &format!("{anchor}-{}", index + 1), &section.title, out);
    }
    out.push_str("</section>\n");
}

fn footer(document: &Document, out: &mut String) {
    let meta = &document.meta;
    out.push_str("<footer>\n<dl>\n");
    let rows = [
        ("Made by", Some(meta.generator.as_str()), false),
        ("Command", meta.command.as_deref(), true),
        ("Seed", meta.seed.as_deref(), true),
    ];
    for (name, value, is_code) in rows {
        let Some(value) = value.filter(|value| !value.is_empty()) else { continue };
        let (open, close) = if is_code { ("<code>", "</code>") } else { ("", "") };
        put!(out, "<div><dt>{name}</dt><dd>{open}{}{close}</dd></div>\n", escaped(value));
    }
    out.push_str("</dl>\n</footer>\n");
}

/// One anchor for each section, derived from its title, so that links survive reordering.
fn anchors(document: &Document) -> Vec<String> {
    let mut anchors: Vec<String> = vec!["report".to_owned(), "findings".to_owned()];
    for section in &document.sections {
        let words = section.title.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let slug = words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-");
        let slug = if slug.is_empty() { "section".to_owned() } else { slug };
        let numbered = (2..).map(|number| format!("{slug}-part-{number}"));
        let free = std::iter::once(slug.clone()).chain(numbered).find(|name| !anchors.contains(name));
        anchors.push(free.expect("numbers do not run out"));
    }
    anchors.split_off(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Meta;

    #[test]
    fn a_page_for_a_server_has_nothing_inline() {
        let mut document = Document::new("<t>", "", Meta::default());
        document.section(Section::new("Rates", ""));
        let links = PageLinks { style: "/assets/report.css", back: ("/reports/a&b", "Back") };
        let page = render_linked(&document, links);
        assert!(!page.contains("<style") && !page.contains("unsafe") && !page.contains(" style="), "{page}");
        assert!(page.contains("<link rel=\"stylesheet\" href=\"/assets/report.css\">"), "{page}");
        assert!(page.contains("href=\"/reports/a&amp;b\"") && page.contains("&lt;t&gt;"), "{page}");
        let rest = |page: &str| page.split_once("<main").map(|(_, rest)| rest.to_owned());
        assert_eq!(rest(&page), rest(&render(&document)), "the report is the same");
    }

    #[test]
    fn sections_of_one_title_have_anchors_of_their_own() {
        let mut document = Document::new("t", "", Meta::default());
        for title in ["Total I/O", "Findings", "total i/o", "…", "total I-O"] {
            document.section(Section::new(title, ""));
        }
        assert_eq!(
            anchors(&document),
            ["total-i-o", "findings-part-2", "total-i-o-part-2", "section", "total-i-o-part-3"]
        );
    }
}

//! Relative links of the Markdown pages: the file must exist, and so must the heading after `#`.

use anyhow::{Context, Result};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Folders that hold nothing of ours.
const PASSED_OVER: [&str; 3] = ["target", ".git", "spindle-data"];

/// Every Markdown page below `root`, in order.
pub fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("listing {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && !PASSED_OVER.contains(&name) {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// One line for each link of `pages` that leads nowhere.
pub fn broken(root: &Path, pages: &[PathBuf]) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    for page in pages {
        let text = fs::read_to_string(page).with_context(|| format!("reading {}", page.display()))?;
        for link in links(&text) {
            if !leads_somewhere(page, &link)? {
                let page = page.strip_prefix(root).unwrap_or(page);
                broken.push(format!("{}: ({link}) leads nowhere", page.display()));
            }
        }
    }
    Ok(broken)
}

fn leads_somewhere(page: &Path, link: &str) -> Result<bool> {
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let folder = page.parent().context("a page lies in a folder")?;
    let file = if file.is_empty() { page.to_owned() } else { folder.join(file) };
    if !file.exists() {
        return Ok(false);
    }
    let is_page = file.extension().is_some_and(|extension| extension == "md");
    if heading.is_empty() || !is_page {
        return Ok(true);
    }
    Ok(headings(&fs::read_to_string(&file)?).contains(heading))
}

/// Targets of `[text](target)` and `<img src="target">` outside code, without those that name a protocol.
fn links(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(page) {
        let line = without_code_spans(line);
        for (opening, closing) in [("](", ')'), ("src=\"", '"'), ("href=\"", '"')] {
            for part in line.split(opening).skip(1) {
                let target = part.split([closing, ' ']).next().unwrap_or_default();
                let is_external = target.contains("://") || target.starts_with("mailto:");
                if !target.is_empty() && !is_external {
                    found.push(target.to_owned());
                }
            }
        }
    }
    found
}

/// The anchors of a page's headings, as code hosts derive them.
fn headings(page: &str) -> BTreeSet<String> {
    let titles =
        prose(page).filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    titles
        .map(|title| {
            let kept = title.to_lowercase();
            let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

/// The lines of a page outside fenced code.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    page.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    })
}

fn without_code_spans(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_code_and_to_other_hosts_are_not_ours() {
        let page =
            "[a](b.md) `[c](d.md)` [e](https://f/g) [h](#i)\n```\n[j](k.md)\n```\n<img src=\"l.png\">\n";
        assert_eq!(links(page), ["b.md", "#i", "l.png"]);
    }

    #[test]
    fn a_link_needs_its_file_and_its_heading() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("a.md");
        fs::write(&page, "# A\n[1](b.md#two-words) [2](b.md#none) [3](c.md) [4](#a) [5](#b)\n").unwrap();
        fs::write(folder.path().join("b.md"), "# B\n## Two `words`\n").unwrap();
        let pages = pages(folder.path()).unwrap();
        assert_eq!(pages.len(), 2);
        let broken = broken(folder.path(), &pages).unwrap();
        assert_eq!(
            broken,
            ["a.md: (b.md#none) leads nowhere", "a.md: (c.md) leads nowhere", "a.md: (#b) leads nowhere"]
        );
    }
}

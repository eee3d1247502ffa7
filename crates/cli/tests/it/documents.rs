//! Blocks of the documents, which tests run as they are written.

use std::{fs, path::PathBuf};

/// A fenced block.
pub struct Block {
    /// `sh`, `toml` and the like; empty if the page does not say.
    pub language: String,
    pub text: String,
    /// Number of its first line in the page.
    pub line: usize,
}

/// The text of `page`, a path from the root of the repository.
pub fn page(page: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Fenced blocks of `text`, in order. The fence may be indented, as in a list; its lines are then so as well.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, Block)> = None;
    for (at, line) in text.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        match (&mut open, fence) {
            (None, Some(language)) => {
                let indent = line.len() - line.trim_start().len();
                let block = Block { language: language.to_owned(), text: String::new(), line: at + 2 };
                open = Some((indent, block));
            }
            (Some(_), Some(_)) => blocks.extend(open.take().map(|(_, block)| block)),
            (Some((indent, block)), None) => {
                block.text.push_str(line.get(*indent..).unwrap_or_default());
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block has no end");
    blocks
}

/// Blocks of one language below a heading, up to the next one of any level.
pub fn blocks_below(name: &str, heading: &str, language: &str) -> Vec<String> {
    let text = page(name);
    let (_, below) =
        text.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("{name}: {heading}"));
    // A comment in a block begins as a heading does: blocks are cut out first.
    let mut section = String::new();
    let mut is_block = false;
    for line in below.lines() {
        is_block ^= line.trim_start().starts_with("```");
        if !is_block && line.starts_with('#') {
            break;
        }
        section += &format!("{line}\n");
    }
    let blocks = blocks(&section).into_iter().filter(|block| block.language == language);
    blocks.map(|block| block.text).collect()
}

/// `text` with each pair of `table` replaced, wherever it stands.
///
/// # Panics
///
/// If one of them is not in it: the page was changed, and the test must be too.
#[track_caller]
pub fn replaced(text: &str, table: &[(&str, &str)]) -> String {
    let mut text = text.to_owned();
    for (from, to) in table {
        assert!(text.contains(from), "{from:?} is no longer in {text}");
        text = text.replace(from, to);
    }
    text
}

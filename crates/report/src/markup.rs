//! Escaping of text in markup.

use std::fmt;

/// `write!` to a `&mut String`, which cannot fail.
macro_rules! put {
    ($out:expr, $($format:tt)*) => {
        std::fmt::Write::write_fmt($out, format_args!($($format)*)).expect("a String takes every write")
    };
}
pub(crate) use put;

/// Escapes text for HTML and SVG, in elements and in quoted attributes.
pub(crate) fn escaped(text: &str) -> Escaped<'_> {
    Escaped { text, breaks: false }
}

/// Escapes text for HTML elements and allows a line break after each underscore: names such as
/// `hot_mailbox_percent` are wider than their columns.
pub(crate) fn breakable(text: &str) -> Escaped<'_> {
    Escaped { text, breaks: true }
}

pub(crate) struct Escaped<'a> {
    text: &'a str,
    breaks: bool,
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.text.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '_' if self.breaks => f.write_str("_<wbr>")?,
                '\n' | '\t' => fmt::Write::write_char(f, character)?,
                // No control character has a place in a page, and some end its parsing.
                control if control.is_control() => f.write_str("\u{fffd}")?,
                plain => fmt::Write::write_char(f, plain)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_may_end_after_an_underscore_where_it_is_wanted() {
        assert_eq!(breakable("a_b<c>").to_string(), "a_<wbr>b&lt;c&gt;");
        assert_eq!(escaped("a_b").to_string(), "a_b");
    }

    #[test]
    fn no_text_becomes_markup() {
        assert_eq!(
            escaped("<script src='x'>&\"\u{0}\u{1b}[31m\u{7f}</script>\n").to_string(),
            "&lt;script src=&#39;x&#39;&gt;&amp;&quot;\u{fffd}\u{fffd}[31m\u{fffd}&lt;/script&gt;\n"
        );
    }
}

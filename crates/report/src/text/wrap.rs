//! Display width of text, and line breaking.

/// Display width in columns. Control characters take none, since [`wrapped`] removes them.
pub(super) fn display_width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// Combining marks take no column; East Asian text and pictographs take two.
fn char_width(character: char) -> usize {
    match u32::from(character) {
        0..=0x1f | 0x7f..=0x9f | 0x300..=0x36f | 0x200b..=0x200f | 0x20d0..=0x20ff | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff | 0xfe30..=0xfe6f => 2,
        0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1faff | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// Wraps `text` to lines of at most `width` columns, between words; within a word only if it is longer than a
/// line. Removes control characters, so that no text can move the cursor.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(2);
    let mut lines: Vec<String> = Vec::new();
    for paragraph in text.split('\n') {
        let clean: String =
            paragraph.chars().map(|c| if c == '\t' { ' ' } else { c }).filter(|c| !c.is_control()).collect();
        wrap_paragraph(&clean, width, &mut lines);
    }
    if lines.iter().all(String::is_empty) {
        lines.clear();
    }
    lines.iter().map(|line| line.replace('\u{a0}', " ")).collect()
}

fn wrap_paragraph(text: &str, width: usize, lines: &mut Vec<String>) {
    let mut line = String::new();
    for word in text.split(' ') {
        let is_first = line.is_empty();
        let gap = usize::from(!is_first);
        if display_width(&line) + gap + display_width(word) <= width {
            if !is_first {
                line.push(' ');
            }
            line.push_str(word);
            continue;
        }
        if !is_first {
            lines.push(std::mem::take(&mut line));
        }
        for character in word.chars() {
            if display_width(&line) + char_width(character) > width {
                let rest = line.split_off(joint(&line));
                lines.push(std::mem::replace(&mut line, rest));
            }
            line.push(character);
        }
    }
    lines.push(line);
}

/// Best break of a line that is one word: after its last slash, dash or underscore, if that leaves at least
/// half of it.
fn joint(line: &str) -> usize {
    let after = line.rfind(['/', '-', '_']).map_or(0, |at| at + 1);
    if display_width(&line[..after]) * 2 >= display_width(line) { after } else { line.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_long_words_break_too() {
        assert_eq!(wrapped("database reads averaged", 10), ["database", "reads", "averaged"]);
        assert_eq!(wrapped("/mnt/very-long-path x", 8), ["/mnt/", "very-", "long-", "path x"]);
        assert_eq!(wrapped("", 10), Vec::<String>::new());
        assert_eq!(wrapped("14.2\u{a0}ms and", 8), ["14.2 ms", "and"]);
    }

    #[test]
    fn no_text_can_steer_the_terminal() {
        assert_eq!(wrapped("a\u{1b}[2Jb\rc\u{7}", 20), ["a[2Jbc"]);
    }

    #[test]
    fn wide_and_combining_characters_count_as_shown() {
        assert_eq!(display_width("邮箱"), 4);
        assert_eq!(display_width("e\u{301}"), 1);
        assert!(wrapped("邮箱数据库", 5).iter().all(|line| display_width(line) <= 5));
    }
}

//! Rust source with comments and literals blanked, so that a search finds code and nothing else.

/// `source` with the characters of comments, strings and character literals replaced by spaces.
/// Line breaks stay, so positions and line numbers are those of the source.
pub fn code_only(source: &str) -> String {
    let text: Vec<char> = source.chars().collect();
    let mut code = String::with_capacity(source.len());
    let mut at = 0;
    while at < text.len() {
        let end = skipped(&text, at).unwrap_or(at);
        let kept = |c: &char| if *c == '\n' { '\n' } else { ' ' };
        code.extend(text[at..end].iter().map(kept));
        if end == at {
            code.push(text[at]);
        }
        at = end.max(at + 1);
    }
    code
}

/// End of the comment or literal that begins at `at`, if one does.
fn skipped(text: &[char], at: usize) -> Option<usize> {
    let next = text.get(at + 1).copied();
    let follows_name = at > 0 && (text[at - 1].is_alphanumeric() || text[at - 1] == '_');
    match (text[at], next) {
        ('/', Some('/')) => Some(find(text, at, |c| c == '\n')),
        ('/', Some('*')) => Some(block_comment_end(text, at)),
        ('"', _) => Some(string_end(text, at)),
        ('\'', Some('\\')) => Some(find(text, at + 3, |c| c == '\'') + 1),
        ('\'', Some(_)) if text.get(at + 2) == Some(&'\'') => Some(at + 3),
        ('r', Some('"' | '#')) if !follows_name || text[at - 1] == 'b' => raw_string_end(text, at),
        _ => None,
    }
    .map(|end| end.min(text.len()))
}

fn find(text: &[char], from: usize, is_wanted: impl Fn(char) -> bool) -> usize {
    (from..text.len()).find(|at| is_wanted(text[*at])).unwrap_or(text.len())
}

fn block_comment_end(text: &[char], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at + 1 < text.len() {
        match (text[at], text[at + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

fn string_end(text: &[char], start: usize) -> usize {
    let mut at = start + 1;
    while at < text.len() && text[at] != '"' {
        at += if text[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// `r#name` is no string; `r##"…"##` ends at a quote with as many hashes.
fn raw_string_end(text: &[char], start: usize) -> Option<usize> {
    let quote = find(text, start + 1, |c| c != '#');
    let hashes = quote - start - 1;
    if text.get(quote) != Some(&'"') {
        return None;
    }
    let closes =
        |at: &usize| text[*at] == '"' && text[at + 1..].iter().take_while(|c| **c == '#').count() >= hashes;
    Some((quote + 1..text.len()).find(closes).map_or(text.len(), |at| at + 1 + hashes))
}

/// True if `word` stands in `text` with no letter, digit or underscore beside it.
pub fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

#[test]
fn comments_and_literals_are_blanked_and_code_is_kept() {
    let check = |source: &str, expected: &str| {
        let code = code_only(source);
        assert_eq!(code.chars().count(), source.chars().count());
        assert_eq!(code.split_whitespace().collect::<Vec<_>>().join(" "), expected, "{source}");
    };
    check("a // b\nc", "a c");
    check("a /* b /* c */ d */ e", "a e");
    check(r#"f("a\"b // c", d)"#, "f( , d)");
    check(r###"f(r#"a"b"#, br"c", r"d\", e)"###, "f( , b , , e)");
    check(r"match c { '\'' => 'x, '\u{1F}' => '\\', '/' => a }", "match c { => 'x, => , => a }");
    check("fn f<'a>(r#type: &'a str) {}", "fn f<'a>(r#type: &'a str) {}");
    check("\"never closed", "");
}

#[test]
fn a_word_is_not_a_part_of_a_word() {
    assert!(has_word("an unsafe block", "unsafe") && has_word("unsafe{", "unsafe"));
    assert!(!has_word("unsafe_code unsafely", "unsafe"));
}

//! Lines of the pages that are made from tables.

/// A text in lines of at most `columns`: `first` stands before the first one, `rest` before the others.
pub(crate) fn page_lines(text: &str, (first, rest): (&str, &str), columns: usize) -> String {
    let (mut lines, mut line) = (String::new(), first.to_owned());
    for word in text.split(' ') {
        if line.chars().count() + word.chars().count() > columns {
            lines += &format!("{}\n", line.trim_end());
            line = rest.to_owned();
        }
        line += &format!("{word} ");
    }
    lines + &format!("{}\n", line.trim_end())
}

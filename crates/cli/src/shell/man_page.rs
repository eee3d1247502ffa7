//! The manual page of a verb: clap's sections, and the text below the options as sections of its own.

use clap::Command;
use clap_mangen::Man;

const MANUAL: &str = "Spindle";
const INDENT: &str = "  ";

/// Name of the page's file, and its text in roff.
pub fn man_page(verb: &Command, date: &str) -> (String, Vec<u8>) {
    let text = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
    let has_options = verb.get_arguments().any(|argument| !argument.is_hide_set());
    let has_verbs = verb.get_subcommands().any(|below| !below.is_hide_set());
    let page = Man::new(verb.clone()).date(date).manual(MANUAL).source(program());
    let name = page.get_filename();
    let mut roff = Vec::new();
    let mut sections = || {
        page.render_title(&mut roff)?;
        page.render_name_section(&mut roff)?;
        page.render_synopsis_section(&mut roff)?;
        page.render_description_section(&mut roff)?;
        if has_options {
            page.render_options_section(&mut roff)?;
        }
        if has_verbs {
            page.render_subcommands_section(&mut roff)?;
        }
        std::io::Result::Ok(())
    };
    sections().expect("memory takes all");
    roff.extend(text_sections(&text).into_bytes());
    (name, roff)
}

fn program() -> String {
    format!("spindle {}", env!("CARGO_PKG_VERSION"))
}

/// EXAMPLES, NOTES and EXIT STATUS of the text below the options.
fn text_sections(text: &str) -> String {
    let mut roff = String::new();
    let (mut section, mut is_listing, mut begins_paragraph) = ("", false, true);
    for line in text.lines() {
        let is_example = line.starts_with(INDENT);
        if is_listing && !is_example {
            roff += ".EE\n.RE\n";
            is_listing = false;
        }
        if line.is_empty() {
            begins_paragraph = true;
            continue;
        }
        if begins_paragraph {
            let title = match line {
                "Example:" | "Examples:" => "EXAMPLES",
                line if line.starts_with("Ends with 0") => "EXIT STATUS",
                _ if section != "NOTES" => "NOTES",
                _ => section,
            };
            roff += &if title == section { ".PP\n".to_owned() } else { format!(".SH \"{title}\"\n") };
            (section, begins_paragraph) = (title, false);
        }
        if line == "Example:" || line == "Examples:" {
            continue;
        }
        if is_example && !is_listing {
            roff += ".RS 4\n.EX\n";
            is_listing = true;
        }
        roff += &escaped(line.strip_prefix(INDENT).unwrap_or(line));
        roff.push('\n');
    }
    if is_listing {
        roff += ".EE\n.RE\n";
    }
    roff
}

/// A line of text that roff takes for text: hyphens can be copied, and nothing is a request.
fn escaped(line: &str) -> String {
    let text = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq").replace('`', "\\(ga");
    if text.starts_with('.') { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_below_the_options_becomes_sections_and_examples_stay_as_they_are() {
        let text = "Examples:\n  spindle x --y 'z'    a remark\n  .z\\\n\nOne\nand more.\n\nTwo:\n  a\n\nEnds with 0, or 2.";
        assert_eq!(
            text_sections(text),
            ".SH \"EXAMPLES\"\n.RS 4\n.EX\nspindle x \\-\\-y \\(aqz\\(aq    a remark\n\\&.z\\e\n.EE\n.RE\n\
             .SH \"NOTES\"\nOne\nand more.\n.PP\nTwo:\n.RS 4\n.EX\na\n.EE\n.RE\n\
             .SH \"EXIT STATUS\"\nEnds with 0, or 2.\n"
        );
    }
}

//! Commands of the program in the documents: each verb and each option that a page uses is one that the program has.
//!
//! Decisions are not looked at: they are of their day.

use crate::{
    documents::{blocks, page},
    helps::helps,
    spindle::{Bench, names},
};
use std::{collections::BTreeMap, path::Path};

type Helps = BTreeMap<Vec<String>, String>;

/// Options of every verb that its help does not list: hidden, because they are the older names of others.
const HIDDEN: [&str; 1] = ["--profile"];

/// Words that begin as a command does: the role in a formula, and an option's help.
const NO_COMMANDS: [&str; 2] = ["spindle pairing 1 ", "spindle for pools of"];

/// README.md, the pages of docs and of docs/verbs.
fn pages() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let below = |folder: &'static str| {
        let files = names(&root.join(folder)).into_iter().filter(|name| name.ends_with(".md"));
        files.map(move |name| format!("{folder}/{name}"))
    };
    let pages: Vec<String> =
        [below("docs").collect(), below("docs/verbs").collect(), vec!["README.md".to_owned()]].concat();
    assert!(pages.len() > 40, "{} pages", pages.len());
    pages
}

/// Lines of a block, with those joined that a backslash continues, each with the number of its first.
fn logical_lines(text: &str, first: usize) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (at, line) in text.lines().enumerate() {
        let (part, continues) = line.strip_suffix('\\').map_or((line, false), |part| (part, true));
        match lines.last_mut().filter(|_| goes_on) {
            Some((_, joined)) => joined.push_str(part),
            None => lines.push((first + at, part.to_owned())),
        }
        goes_on = continues;
    }
    lines
}

/// Code between single backticks in the prose of a page, with its line. Code that a line's end breaks is left out.
fn inline_code(text: &str) -> Vec<(usize, String)> {
    let mut codes = Vec::new();
    let mut is_block = false;
    for (at, line) in text.lines().enumerate() {
        is_block ^= line.trim_start().starts_with("```");
        if !is_block && line.matches('`').count() % 2 == 0 {
            codes.extend(line.split('`').skip(1).step_by(2).map(|code| (at + 1, code.to_owned())));
        }
    }
    codes
}

/// Words behind `spindle` of each of its commands in a line of a shell.
fn commands(line: &str) -> Vec<Vec<String>> {
    let line = line.split(" #").next().unwrap_or_default().replace("cargo run --release -- ", "spindle ");
    let simple = line.split(['|', ';', '(', '&', '\n']);
    let words =
        simple.map(|command| command.split_whitespace().map(|word| word.trim_matches(['\'', '"', ')'])));
    let commands = words.filter_map(|words| {
        // A prompt, variables and sudo come before a program.
        let mut words = words.skip_while(|word| matches!(*word, "$" | "sudo" | "nice") || word.contains('='));
        let program = words.next()?;
        let is_ours = matches!(program, "spindle" | "/usr/bin/spindle");
        is_ours.then(|| words.map(str::to_owned).collect::<Vec<_>>())
    });
    commands.collect()
}

/// Options that a help lists.
fn options(help: &str) -> Vec<&str> {
    let listed = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let names =
        listed.flat_map(|line| line.split("  ").next().unwrap_or_default().split([' ', ',', '=', '[']));
    names.filter(|word| word.starts_with('-')).collect()
}

/// Why the program would refuse these words, as far as verbs and options go.
fn refusal(words: &[String], helps: &Helps) -> Option<String> {
    let mut path: Vec<String> = Vec::new();
    let mut rest = words;
    while let Some(word) = rest.first() {
        let longer = [&path[..], std::slice::from_ref(word)].concat();
        if !helps.contains_key(&longer) {
            break;
        }
        (path, rest) = (longer, &rest[1..]);
    }
    let help = &helps[&path];
    let is_verb = |word: &&String| word.starts_with(|first: char| first.is_ascii_lowercase());
    let usage = help.lines().find(|line| line.starts_with("Usage: ")).unwrap_or_default();
    let needs_verb = usage.ends_with("<COMMAND>") || path.is_empty();
    if let Some(word) = rest.first().filter(|word| needs_verb && is_verb(word) && *word != "help") {
        return Some(format!("there is no verb `{word}` below `spindle {}`", path.join(" ")));
    }
    let known = options(help);
    let mut used = rest.iter().take_while(|word| *word != "--").filter(|word| word.starts_with('-'));
    let unknown = used.find(|word| {
        let name = word.trim_end_matches(['.', ',', '…', ':']).split('=').next().unwrap_or_default();
        let is_option = name.starts_with("--") && name.len() > 2;
        is_option && !known.contains(&name) && !HIDDEN.contains(&name)
    });
    unknown.map(|word| format!("`spindle {}` has no option {word}", path.join(" ")))
}

#[test]
fn every_command_in_the_documents_has_a_verb_and_options_of_the_program() {
    let bench = Bench::new();
    let helps = helps(&bench);
    let (mut findings, mut count) = (Vec::new(), 0);
    for name in pages() {
        let text = page(&name);
        let of_blocks = blocks(&text).into_iter().flat_map(|block| logical_lines(&block.text, block.line));
        let all = of_blocks.chain(inline_code(&text));
        for (line, code) in all.filter(|(_, code)| !NO_COMMANDS.iter().any(|words| code.contains(words))) {
            for words in commands(&code).iter().filter(|words| !words.is_empty()) {
                count += 1;
                findings.extend(refusal(words, helps).map(|why| format!("{name}:{line}: {why}")));
            }
        }
    }
    println!("note: {count} commands in the documents");
    assert!(count > 500, "{count} commands were found");
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn a_wrong_verb_and_a_wrong_option_are_found() {
    let bench = Bench::new();
    let helps = helps(&bench);
    let found = |line: &str| commands(line).iter().find_map(|words| refusal(words, helps));
    for right in [
        "$ sudo spindle setup --disks free --yes   # --wrong",
        "A=1 spindle pool create mail --drives 2 | tee --append log",
        "systemctl enable --now spindle",
    ] {
        assert!(found(right).is_none(), "{right}: {:?}", found(right));
    }
    let wrong = [
        ("sudo spindle setup --discs free", "`spindle setup` has no option --discs"),
        ("ls | sudo spindle pool make mail", "there is no verb `make` below `spindle pool`"),
        ("spindle shoot", "there is no verb `shoot` below `spindle `"),
    ];
    for (line, why) in wrong {
        assert_eq!(found(line).as_deref(), Some(why));
    }
}

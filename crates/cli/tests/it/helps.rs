//! `--help`.

use crate::spindle::{Bench, ProgramOutput, is_full_run};
use std::{collections::BTreeMap, sync::OnceLock};

/// Terminals are this wide: a phone's, and the widest that lines grow to.
const WIDTHS: [usize; 2] = [40, 100];
/// And two between.
const WIDTHS_OF_FULL_RUNS: [usize; 4] = [40, 60, 80, 100];

/// The verbs below `path`, by the list in its help.
fn verbs_of(help: &str) -> Vec<String> {
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let named = list.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    let verbs = named.filter_map(|line| line.split_whitespace().next());
    verbs.filter(|verb| *verb != "help").map(str::to_owned).collect()
}

/// The help of the verb at `path`, for a terminal of `columns`.
pub fn help_of(bench: &Bench, path: &[String], columns: Option<usize>) -> ProgramOutput {
    let words: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
    let mut command = bench.command(&words);
    match columns {
        Some(columns) => command.env("COLUMNS", columns.to_string()),
        None => command.env_remove("COLUMNS"),
    };
    bench.said(command.output().expect("the program starts"))
}

/// The help in a pipe of the program itself and of every verb below it, as the helps list them. Asked for once.
pub fn helps(bench: &Bench) -> &'static BTreeMap<Vec<String>, String> {
    static HELPS: OnceLock<BTreeMap<Vec<String>, String>> = OnceLock::new();
    HELPS.get_or_init(|| {
        let (mut left, mut seen) = (vec![Vec::<String>::new()], BTreeMap::new());
        while let Some(path) = left.pop() {
            let said = help_of(bench, &path, None);
            assert_eq!(said.code, Some(0), "{path:?}: {}", said.stderr);
            left.extend(verbs_of(&said.stdout).into_iter().map(|verb| [path.clone(), vec![verb]].concat()));
            seen.insert(path, said.stdout);
        }
        assert!(seen.len() > 15, "{} verbs, the program itself among them", seen.len());
        seen
    })
}

#[test]
fn the_help_of_every_verb_shows_an_example() {
    let bench = Bench::new();
    for (path, help) in helps(&bench) {
        let verb = format!("  spindle {}", path.join(" "));
        let example = help.lines().skip_while(|line| !line.starts_with("Example"));
        assert!(example.skip(1).any(|line| line.starts_with(verb.trim_end())), "{path:?}:\n{help}");
    }
}

#[test]
fn the_help_of_every_verb_fits_the_terminal() {
    let bench = Bench::new();
    let mut findings = Vec::new();
    let is_full = is_full_run("terminals of 60, 80 and 300 columns");
    let widths = if is_full { &WIDTHS_OF_FULL_RUNS[..] } else { &WIDTHS };
    for (path, piped) in helps(&bench) {
        for &width in widths {
            let help = help_of(&bench, path, Some(width)).stdout;
            assert!(width < 100 || help == *piped, "{path:?}: in a pipe as in 100 columns");
            for line in help.lines().filter(|line| line.chars().count() > width) {
                // A name or an address cannot be broken.
                if line.split_whitespace().count() > 1 {
                    findings.push(format!("{path:?} in {width} columns: {line:?} is longer"));
                }
            }
            findings.extend(broken_by_hand(&help, width).map(|line| format!("{path:?} in {width}: {line}")));
        }
        if is_full {
            assert_eq!(
                *piped,
                help_of(&bench, path, Some(300)).stdout,
                "{path:?}: no wider than 100 columns"
            );
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

/// Lines of prose that end although the next word had room.
fn broken_by_hand(help: &str, width: usize) -> impl Iterator<Item = String> {
    let lines: Vec<&str> = help.lines().collect();
    let is_prose = |line: &&str| {
        !line.is_empty() && !line.starts_with(' ') && !line.starts_with('[') && !line.ends_with(':')
    };
    let pairs = lines.windows(2).filter(|pair| pair.iter().all(is_prose));
    let broken = pairs.filter(|pair| {
        let next = pair[1].split(' ').next().unwrap_or_default();
        pair[0].chars().count() + 1 + next.chars().count() <= width
    });
    broken.map(|pair| format!("{:?} | {:?}", pair[0], pair[1])).collect::<Vec<_>>().into_iter()
}

#[test]
fn one_word_means_one_thing_in_every_verb_and_any_case() {
    let bench = Bench::new();
    let plan = |words: &[&str]| {
        let said =
            bench.run(&[&["prove", "db", "--dry-run", "--size", "64MiB", "--seed", "1"], words].concat());
        assert_eq!(said.code, Some(0), "{words:?}: {}", said.stderr);
        said.stdout.lines().find(|line| line.contains("profile ")).unwrap_or_default().to_owned()
    };
    bench.make_folder("db");
    for name in ["exchange-2013", "exchange-2016", "exchange-2019", "Exchange-2013"] {
        assert!(
            plan(&["--server", name]).contains("profile exchange-2013"),
            "{name}: {}",
            plan(&["--server", name])
        );
        assert_eq!(plan(&["--profile", name]), plan(&["--server", name]), "the old name of the option");
    }
    plan(&["--limits", "Jetstress", "--layout", "Together", "--judge", "ALL"]);
    plan(&["--setup", "EVA8000", "--groups", "1", "--databases", "1"]);
    let help = bench.run(&["prove", "--help"]).stdout;
    assert!(help.contains("--server <NAME>") && !help.contains("--profile"), "one name is shown");
}

//! What `--help` says.

use crate::spindle::Bench;

/// The verbs below `path`, by the list in its help.
fn verbs_of(help: &str) -> Vec<String> {
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let named = list.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    let verbs = named.filter_map(|line| line.split_whitespace().next());
    verbs.filter(|verb| *verb != "help").map(str::to_owned).collect()
}

#[test]
fn the_help_of_every_verb_shows_an_example() {
    let bench = Bench::new();
    let (mut left, mut seen) = (vec![Vec::<String>::new()], 0);
    while let Some(path) = left.pop() {
        let words: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
        let said = bench.run(&words);
        assert_eq!(said.code, Some(0), "{path:?}: {}", said.stderr);
        let verb = format!("  spindle {}", path.join(" "));
        let example = said.stdout.lines().skip_while(|line| !line.starts_with("Example"));
        assert!(example.skip(1).any(|line| line.starts_with(verb.trim_end())), "{path:?}:\n{}", said.stdout);
        left.extend(verbs_of(&said.stdout).into_iter().map(|verb| [path.clone(), vec![verb]].concat()));
        seen += 1;
    }
    assert!(seen > 15, "{seen} verbs, the program itself among them");
}

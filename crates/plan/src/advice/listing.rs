//! Every rule as a page of the documentation.

use super::rule::{Rule, rules, unchecked};

const HEAD: &str = "\
# Advice

`spindle advise site.toml` checks a site against the rules below. Each rule is from one of the papers or,
where it says so, from elsewhere. `--run PREFIX.run` (or its `.json`) also checks a run of `spindle prove`.
The verb ends with 0 if no rule of severity *error* is broken, with 1 if one is, and with 2 if it could not
check the site. Of the rules that are not broken, it says how many passed, how many were not applicable (the
site has nothing that they are about), and how many were skipped (the site lacks figures, which are named).
`--json` prints the same.

```console
$ spindle plan --users 5000 --quota 2GB --messages 150 --message-size 75KB --copies 2 --site site.toml
$ spindle advise site.toml
```

The last line of a rule has an example of a site that breaks it. There, `volume.db1.gb` is the key `gb` in the
`[[volume]]` with the name `db1`, and keys that begin with `run.` are figures of the run.

This page is generated from the rules (`crates/plan/src/advice/rules.toml`); a test checks that both agree.
";

const UNCHECKED: &str = "\
## Advice that nothing here checks

The papers recommend the following, too. Neither a site nor a run shows whether it is followed, so
`spindle advise` never reports it as passed.
";

/// The page: `docs/advice.md`.
pub fn listing() -> String {
    let mut page = HEAD.to_owned();
    let mut area = String::new();
    for rule in rules() {
        if rule.area != area {
            area.clone_from(&rule.area);
            page += &format!("\n## {area}\n");
        }
        page += &shown(&rule);
    }
    page += &format!("\n{UNCHECKED}\n");
    for advice in unchecked() {
        page += &format!("* {} ({}) *Not checked: {}.*\n", advice.says, advice.source, advice.why_not);
    }
    page
}

fn shown(rule: &Rule) -> String {
    format!(
        "\n**`{}`** ({}): {}.\n\n* Why: {}.\n* Source: {}.\n* Fix: {}.\n* Broken, for example, by {}.\n",
        rule.id,
        rule.severity.word(),
        rule.says,
        rule.why,
        rule.source,
        rule.fix,
        change(&rule.fails)
    )
}

/// A change of a site, as words of its file.
fn change(change: &toml::Table) -> String {
    let one = |(path, value): (&String, &toml::Value)| match value.as_str() {
        Some("-") => format!("no `{path}`"),
        _ => format!("`{path} = {value}`"),
    };
    change.iter().map(one).collect::<Vec<_>>().join(", ")
}

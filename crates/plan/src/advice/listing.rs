//! Every rule as a page of the documentation.

use super::rule::{Rule, rules, unchecked};

const HEAD: &str = "\
# Advice

`spindle advise site.toml` holds a site against the rules below, each from one of the papers or, where it says so, from
elsewhere; `--run PREFIX.run` (or its `.json`) adds a run of `spindle prove`. It ends with 0 if no rule of severity *error* is
broken, with 1 if one is, and with 2 if it could not look. Of all other rules it says how many passed, were not applicable
(nothing of what they are about is in the site) or were skipped (the site does not say enough; which figures, is named).
`--json` has the same.

```console
$ spindle plan --users 5000 --quota 2GB --messages 150 --message-size 75KB --copies 2 --site site.toml
$ spindle advise site.toml
```

This page is made from the rules (`crates/plan/src/advice/rules.toml`); a test keeps it so.
";

const UNCHECKED: &str = "\
## Advice that nothing here checks

The papers recommend these, too. Neither a site nor a run shows whether they are followed, so they are never reported as
kept.
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

//! Every key of a site file, read out of the structs that read it: for the page about it and for a template.

use super::Role;
use crate::{catalogue::Raid, demand::Mode};

const SITE: &str = include_str!("mod.rs");
const MAIL: &str = include_str!("mail.rs");
const STORAGE: &str = include_str!("storage.rs");
const NETWORK: &str = include_str!("network.rs");
const PROTECTING: &str = include_str!("protecting.rs");
const SERVING: &str = include_str!("serving.rs");

/// Tables of the file in their order, with the struct that reads each and where it stands.
const TABLES: [(&str, &str, &str); 29] = [
    ("", "Site", SITE),
    ("[users]", "Users", MAIL),
    ("[databases]", "Databases", MAIL),
    ("[demand]", "Demand", MAIL),
    ("[limits]", "Limits", MAIL),
    ("[network]", "Network", NETWORK),
    ("[replication]", "Replication", NETWORK),
    ("[[replication.dr_group]]", "DrGroup", NETWORK),
    ("[backup]", "Backup", NETWORK),
    ("[[site]]", "Location", STORAGE),
    ("[[server]]", "Server", MAIL),
    ("[[group]]", "Group", STORAGE),
    ("[[volume]]", "Volume", STORAGE),
    ("[[link]]", "Link", NETWORK),
    ("[[snapshots]]", "Snapshots", NETWORK),
    ("[[protect]]", "ProtectedSet", PROTECTING),
    ("[protect.freeze]", "SetFreeze", PROTECTING),
    ("[protect.keep]", "SetRetention", PROTECTING),
    ("[protect.verify]", "SetVerification", PROTECTING),
    ("[protect.drill]", "SetDrill", PROTECTING),
    ("[protect.vault]", "SetVault", PROTECTING),
    ("[protect.restore]", "SetRestore", PROTECTING),
    ("[serve]", "Serving", SERVING),
    ("[metrics]", "SiteMetrics", SERVING),
    ("[[target]]", "SiteTarget", SERVING),
    ("[[target.unit]]", "SiteUnit", SERVING),
    ("[[initiator]]", "SiteInitiator", SERVING),
    ("[[nbd]]", "SiteExport", SERVING),
    ("[[notify]]", "SiteNotifier", SERVING),
];

/// Keys that take a time.
const SPANS: [&str; 4] = ["freeze_every", "logs_every", "timeout", "budget"];
/// Keys that take an age.
const AGES: [&str; 3] = ["not_before", "at_most", "lock"];
/// Keys that take a program with its arguments.
const HOOKS: [&str; 4] = ["prepare", "before", "after", "finally"];

/// A key of a site file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// As it is written.
    pub name: String,
    /// Type of the value.
    pub takes: String,
    /// A value it takes, as TOML.
    pub example: String,
    /// Meaning in one sentence.
    pub meaning: String,
}

/// The keys of the table with this header, in their order.
fn keys(structure: &str, source: &str) -> Vec<Key> {
    let start = source.find(&format!("pub struct {structure} {{")).expect("a test reads every table");
    let body = source[start..].split("\n}").next().expect("a struct ends");
    let (mut keys, mut meaning, mut renamed) = (Vec::new(), String::new(), None);
    for line in body.lines().skip(1).map(str::trim) {
        if let Some(words) = line.strip_prefix("///") {
            meaning = format!("{meaning} {}", words.trim()).trim().to_owned();
        } else if line.starts_with("#[") {
            renamed = line.split("rename = \"").nth(1).and_then(|rest| rest.split('"').next()).or(renamed);
        } else if let Some((name, kind)) = line.strip_prefix("pub ").and_then(|field| field.split_once(": "))
        {
            let kind = kind.trim_end_matches(',');
            if let Some((takes, example)) = value_of(renamed.unwrap_or(name), kind) {
                let name = renamed.unwrap_or(name).to_owned();
                keys.push(Key { name, takes, example, meaning: meaning.clone() });
            }
            (meaning, renamed) = (String::new(), None);
        }
    }
    keys
}

/// Value type of a field and an example; none if it is a table of its own.
fn value_of(name: &str, kind: &str) -> Option<(String, String)> {
    let inner = kind.strip_prefix("Option<").map_or(kind, |rest| rest.trim_end_matches('>'));
    let words = |all: Vec<String>| {
        let example = format!("{:?}", all[0]);
        (all.join(", "), example)
    };
    let of = |takes: &str, example: &str| (takes.to_owned(), example.to_owned());
    Some(match inner {
        "u32" | "u64" => of("whole number", "1"),
        "f64" => of("number", "1.5"),
        "bool" => of("true or false", "true"),
        "String" if name == "name" => of("text", "\"example\""),
        "String" if name == "at" || name == "digest" => of("text", "\"03:00\""),
        "String" if name == "set" => of("text", "\"mail\""),
        "String" if name == "zone" => of("text", "\"Europe/Berlin\""),
        "String" if SPANS.contains(&name) => of("text", "\"8s\""),
        "String" if AGES.contains(&name) => of("text", "\"14d\""),
        "String" => of("text", "\"example\""),
        "Vec<String>" if name == "schedules" => of("list of texts", "[\"24x1h\", \"30x1d@02:30\"]"),
        "Vec<String>" if HOOKS.contains(&name) => of("list of texts", "[\"/etc/mail/hook\"]"),
        "Vec<String>" if name == "to_groups" => of("list of texts", "[\"example=example\"]"),
        "Vec<String>" => of("list of texts", "[\"example\"]"),
        "Vec<u32>" => of("list of whole numbers", "[8, 8]"),
        "Mode" => words(
            [Mode::Copies, Mode::StandAlone, Mode::BackupWindow].map(|mode| mode.word().to_owned()).to_vec(),
        ),
        "Raid" => words(Raid::ALL.into_iter().rev().map(|raid| raid.word().to_owned()).collect()),
        "Role" => words(Role::ALL.into_iter().rev().map(|role| role.word().to_owned()).collect()),
        _ => return None,
    })
}

/// Every table with its keys.
pub fn tables() -> Vec<(&'static str, Vec<Key>)> {
    TABLES.iter().map(|(header, structure, source)| (*header, keys(structure, source))).collect()
}

/// A site file with every key commented out.
pub fn template() -> String {
    let mut text = "\
# A mail site, for 'spindle advise' and 'spindle prove --site'. Remove the # before each key that you set; every key may be
# left out. Tables in [[double]] brackets may come several times, each with a name of its own.
# Sizes of mail (gb, mb, kb) count in 1024s; drive_gb counts in 1000s, as drives are sold.
"
    .to_owned();
    for (header, keys) in tables() {
        text += &format!("\n{}", if header.is_empty() { String::new() } else { format!("#{header}\n") });
        for key in keys {
            text += &format!("#{} = {}  # {} ({})\n", key.name, key.example, key.meaning, key.takes);
        }
    }
    text
}

const HEAD: &str = "\
# site.toml

A site file describes a mail site: its users, what they ask of storage, the groups of drives and their
volumes, links, copies, backups, snapshots and protected sets. `spindle plan --site FILE` writes a site file,
`spindle advise FILE` says what is wrong with it, `spindle prove --site FILE` tests it, and
`spindle serve FILE` makes pools, volumes, targets and exports of it. `spindle advise --template` prints all keys, commented out. Every key may be left out; an unknown key is
refused, with the most similar known key.

```console
$ spindle advise --template > site.toml
$ spindle advise site.toml
```

Sizes of mail (`gb`, `mb`, `kb`) count in 1024s, `drive_gb` in 1000s, as drives are sold. Tables in double
brackets may come several times; each has a `name` of its own (a set its `set`), by which other tables refer
to it. A table such as `[protect.freeze]` belongs to the `[[protect]]` before it.

This page is generated from the code that reads the file; a test checks that both agree.
";

/// The page: `docs/site.md`.
pub fn listing() -> String {
    let mut page = HEAD.to_owned();
    for (header, keys) in tables() {
        let title = if header.is_empty() { "At the top".to_owned() } else { format!("`{header}`") };
        page += &format!("\n## {title}\n\n| Key | Takes | Means |\n|---|---|---|\n");
        for key in keys {
            page += &format!("| `{}` | {} | {} |\n", key.name, key.takes, key.meaning);
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::Site;
    use std::collections::BTreeSet;

    /// The template with every line that is commented out taken in.
    fn filled() -> String {
        let is_prose = |line: &&str| line.starts_with("# ");
        let lines = template()
            .lines()
            .filter(|line| !is_prose(line))
            .map(|line| line.trim_start_matches('#').to_owned())
            .collect::<Vec<_>>();
        lines.join("\n")
    }

    fn paths(prefix: &str, value: &toml::Value, all: &mut BTreeSet<String>) {
        match value {
            toml::Value::Table(table) => {
                for (key, value) in table {
                    paths(&format!("{prefix}.{key}"), value, all);
                }
            }
            toml::Value::Array(items) if items.iter().any(toml::Value::is_table) => {
                items.iter().for_each(|item| paths(prefix, item, all));
            }
            _ => {
                all.insert(prefix.to_owned());
            }
        }
    }

    fn keys_of(text: &str) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        paths("", &toml::Value::Table(text.parse().expect("TOML")), &mut all);
        all
    }

    #[test]
    fn the_template_has_every_key_that_is_read_and_no_other() {
        let filled = filled().replace("copy = 1", "copy = 2");
        let site = Site::from_toml(&filled).unwrap_or_else(|error| panic!("{error}\n{filled}"));
        // What was not understood would not be written again, and what has no example is not among those.
        assert_eq!(keys_of(&filled), keys_of(&site.to_toml()));
        let all: usize = tables().iter().map(|(_, keys)| keys.len()).sum();
        assert_eq!(keys_of(&filled).len(), all);
        assert!(
            tables().iter().flat_map(|(_, keys)| keys).all(|key| key.meaning.len() > 5),
            "each says what it means"
        );
        assert_eq!(Site::from_toml(&template()), Ok(Site::default()), "as it is, it says nothing");
    }

    #[test]
    fn every_table_of_a_site_is_listed() {
        let body =
            SITE.split("pub struct Site {").nth(1).and_then(|rest| rest.split("\n}").next()).expect("there");
        let fields = body.lines().filter(|line| line.trim_start().starts_with("pub ")).count();
        // The version and the name are keys; groups of replication, freeze, keep, verify, drill, vault and restore of sets,
        // and units of targets are tables within a table.
        assert_eq!(fields, 2 + tables().len() - 1 - 8);
    }
}

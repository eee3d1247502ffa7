//! The table of nouns and verbs: each verb of the program, with the operations of the API that do it, or the reason why there
//! are none; and each operation of the API, with the verb that uses it. [docs/verbs.md](../../../../docs/verbs.md) is made of it.
//!
//! `UPDATE_EXPECT=1` writes that page.

use crate::{
    helps::helps,
    spindle::{Bench, json_of},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

/// The operations of a verb.
enum VerbApi {
    /// Method and path below `/v1`, a line each.
    Operations(&'static [&'static str]),
    /// The reason why a server does not do it.
    None(&'static str),
}

use VerbApi::{None as No, Operations as By};

/// Verbs behind their nouns.
const TABLE: &[(&str, &str, VerbApi)] = &[
    ("pool", "create", No("a server makes the pools of its site file: `apply`")),
    ("pool", "show", By(&["GET /pools/{pool}", "GET /pools/{pool}/status", "GET /pools/{pool}/jobs"])),
    ("pool", "add-drive", By(&["POST /pools/{pool}/drives"])),
    ("pool", "readmit", By(&["POST /pools/{pool}/drives/{drive}/readmit"])),
    (
        "pool",
        "retire",
        By(&[
            "DELETE /pools/{pool}/drives/{drive}",
            "POST /pools/{pool}/drives/{drive}/keep",
            "GET /pools/{pool}/drives",
        ]),
    ),
    ("pool", "replace", By(&["POST /pools/{pool}/drives/{drive}/replacement"])),
    ("pool", "forget", By(&["POST /pools/{pool}/drives/{drive}/forget"])),
    ("pool", "grow", By(&["POST /pools/{pool}/drives/{drive}/grow"])),
    ("pool", "level", By(&["PUT /pools/{pool}/levelling"])),
    ("pool", "set", By(&["PATCH /pools/{pool}"])),
    ("pool", "upgrade", By(&["PATCH /pools/{pool}"])),
    ("pool", "scrub", By(&["PUT /pools/{pool}/scrub"])),
    ("pool", "room", By(&["GET /pools/{pool}/room"])),
    ("pool", "import", No("writes the record of a pool that is not open")),
    ("pool", "settle", By(&["POST /settlement"])),
    ("pool", "force-open", No("opens a pool that does not open")),
    ("pool", "salvage", No("reads a pool that does not open; of an open one, export a snapshot")),
    ("volume", "create", By(&["POST /pools/{pool}/volumes"])),
    ("volume", "set", By(&["PATCH /volumes/{volume}"])),
    ("volume", "resize", By(&["PATCH /volumes/{volume}"])),
    ("volume", "rename", By(&["PATCH /volumes/{volume}"])),
    (
        "volume",
        "snapshot",
        By(&["POST /volumes/{volume}/snapshots", "POST /pools/{pool}/snapshots", "POST /snapshots"]),
    ),
    ("volume", "diff", By(&["GET /volumes/{volume}/difference"])),
    ("volume", "clone", By(&["POST /volumes/{volume}/clones", "POST /volumes/{volume}/copies"])),
    ("volume", "fill", By(&["PUT /volumes/{volume}/filling", "DELETE /volumes/{volume}/filling"])),
    ("volume", "import", By(&["POST /pools/{pool}/imports"])),
    ("volume", "present", By(&["POST /volumes/{volume}/presentations"])),
    ("volume", "presentations", By(&["GET /presentations"])),
    ("volume", "withdraw", By(&["DELETE /presentations/{presentation}", "GET /presentations"])),
    ("volume", "move", By(&["POST /volumes/{volume}/move"])),
    ("volume", "refresh", By(&["POST /volumes/{volume}/refresh"])),
    ("volume", "rollback", By(&["POST /volumes/{volume}/rollback", "GET /volumes/{volume}/uses"])),
    ("volume", "readmit", By(&["POST /volumes/{volume}/readmission"])),
    ("volume", "space", By(&["GET /volumes/{volume}/space", "GET /volumes/{volume}/snapshots"])),
    ("volume", "delete", By(&["DELETE /volumes/{volume}", "DELETE /volumes/{volume}/snapshots/{snapshot}"])),
    ("group", "create", By(&["POST /groups"])),
    ("group", "snapshot", By(&["POST /groups/{group}/snapshots"])),
    ("group", "clone", By(&["POST /groups/{group}/clones"])),
    ("group", "rollback", By(&["POST /groups/{group}/rollback", "GET /volumes/{volume}/uses"])),
    ("group", "delete", By(&["DELETE /groups/{group}", "DELETE /groups/{group}/snapshots/{snapshot}"])),
    ("group", "show", By(&["GET /groups"])),
    ("job", "list", By(&["GET /pools/{pool}/jobs"])),
    ("job", "show", By(&["GET /pools/{pool}/jobs/{job}"])),
    ("job", "wait", By(&["GET /pools/{pool}/jobs/{job}"])),
    (
        "job",
        "cancel",
        By(&[
            "DELETE /pools/{pool}/scrub",
            "DELETE /pools/{pool}/levelling",
            "DELETE /pools/{pool}/jobs/{job}",
        ]),
    ),
    ("target", "list", By(&["GET /targets"])),
    ("target", "show", By(&["GET /targets/{target}"])),
    ("target", "create", By(&["POST /targets"])),
    ("target", "set", By(&["PATCH /targets/{target}"])),
    ("target", "add-unit", By(&["POST /targets/{target}/units"])),
    ("target", "set-unit", By(&["PATCH /targets/{target}/units/{number}"])),
    ("target", "remove-unit", By(&["DELETE /targets/{target}/units/{number}"])),
    ("target", "delete", By(&["DELETE /targets/{target}"])),
    ("initiator", "list", By(&["GET /initiators"])),
    ("initiator", "show", By(&["GET /initiators/{initiator}"])),
    ("initiator", "create", By(&["POST /initiators"])),
    ("initiator", "set", By(&["PATCH /initiators/{initiator}"])),
    ("initiator", "delete", By(&["DELETE /initiators/{initiator}"])),
    ("session", "list", By(&["GET /sessions"])),
    ("session", "end", By(&["DELETE /sessions/{session}"])),
    ("schedule", "list", By(&["GET /schedules"])),
    ("schedule", "show", By(&["GET /schedules/{schedule}"])),
    ("schedule", "create", By(&["POST /schedules"])),
    ("schedule", "set", By(&["PATCH /schedules/{schedule}"])),
    ("schedule", "delete", By(&["DELETE /schedules/{schedule}"])),
    (
        "protect",
        "run",
        By(&["GET /points", "POST /snapshots", "DELETE /volumes/{volume}/snapshots/{snapshot}"]),
    ),
    (
        "protect",
        "list",
        By(&["GET /sets", "GET /sets/{set}", "GET /points", "GET /volumes/{volume}/snapshots"]),
    ),
    ("protect", "now", By(&["POST /sets/{set}/backups"])),
    ("protect", "hold", By(&["PUT /sets/{set}/backups/{number}/holds/{hold}"])),
    ("protect", "release", By(&["DELETE /sets/{set}/backups/{number}/holds/{hold}"])),
    ("protect", "lock", By(&["PUT /sets/{set}/backups/{number}/lock"])),
    ("protect", "delete", By(&["DELETE /sets/{set}/backups/{number}"])),
    (
        "protect",
        "verify",
        By(&[
            "GET /points",
            "POST /exports",
            "GET /exports/{export}",
            "DELETE /exports/{export}",
            "POST /sets/{set}/backups/{number}/verifications",
        ]),
    ),
    (
        "protect",
        "restore",
        By(&[
            "GET /points",
            "GET /volumes/{volume}/uses",
            "GET /volumes/{volume}/difference",
            "POST /volumes/{volume}/rollback",
            "POST /volumes/{volume}/clones",
            "POST /sets/{set}/backups/{number}/restores",
        ]),
    ),
    (
        "protect",
        "dial-tone",
        By(&[
            "GET /points",
            "GET /volumes/{volume}/uses",
            "POST /volumes/{volume}/clones",
            "POST /volumes/{volume}/rollback",
            "POST /exports",
            "POST /sets/{set}/backups/{number}/restores",
        ]),
    ),
    (
        "protect",
        "merge",
        By(&[
            "GET /points",
            "GET /volumes/{volume}/uses",
            "POST /volumes/{volume}/clones",
            "POST /volumes/{volume}/rollback",
            "POST /exports",
            "POST /sets/{set}/backups/{number}/restores",
        ]),
    ),
    (
        "protect",
        "drill",
        By(&[
            "GET /points",
            "POST /volumes/{volume}/clones",
            "POST /exports",
            "DELETE /exports/{export}",
            "DELETE /volumes/{volume}",
            "POST /sets/{set}/backups/{number}/drills",
        ]),
    ),
    ("protect", "report", By(&["GET /sets/{set}", "GET /sets/{set}/catalogue"])),
    ("protect", "rebuild", By(&["GET /points", "POST /sets/{set}/rebuild"])),
    ("protect vault", "init", No("a vault is a folder of the caller's")),
    (
        "protect vault",
        "copy",
        By(&[
            "GET /points",
            "GET /sets/{set}",
            "GET /volumes/{volume}/difference",
            "POST /exports",
            "GET /exports/{export}",
            "DELETE /exports/{export}",
            "POST /sets/{set}/backups/{number}/copies",
        ]),
    ),
    ("protect vault", "list", No("a vault is read without a server")),
    ("protect vault", "check", No("a vault is read without a server")),
    ("protect vault", "prune", No("a vault is read and written without a server")),
    (
        "protect vault",
        "restore",
        By(&[
            "POST /pools/{pool}/volumes",
            "POST /exports",
            "GET /exports/{export}",
            "DELETE /exports/{export}",
        ]),
    ),
    (
        "protect",
        "mount",
        By(&["GET /points", "POST /exports", "GET /exports/{export}", "DELETE /exports/{export}"]),
    ),
    (
        "protect",
        "open",
        By(&[
            "GET /points",
            "POST /volumes/{volume}/clones",
            "DELETE /volumes/{volume}",
            "GET /exports",
            "POST /exports",
            "GET /exports/{export}",
            "DELETE /exports/{export}",
        ]),
    ),
    ("protect", "close", By(&["DELETE /volumes/{volume}", "GET /exports", "DELETE /exports/{export}"])),
    (
        "protect",
        "find",
        By(&[
            "GET /points",
            "POST /volumes/{volume}/clones",
            "DELETE /volumes/{volume}",
            "POST /exports",
            "GET /exports/{export}",
            "DELETE /exports/{export}",
        ]),
    ),
    (
        "protect",
        "fetch",
        By(&["GET /points", "POST /exports", "GET /exports/{export}", "DELETE /exports/{export}"]),
    ),
    ("export", "list", By(&["GET /exports"])),
    ("export", "create", By(&["POST /exports"])),
    ("export", "delete", By(&["DELETE /exports/{export}"])),
    ("event", "conditions", By(&["GET /conditions"])),
    ("event", "acknowledge", By(&["POST /conditions/{condition}/acknowledge"])),
    ("event", "test", By(&["GET /notifiers", "POST /notifiers/{notifier}/test"])),
    (
        "drive",
        "warn",
        By(&["POST /pools/{pool}/drives/{drive}/warning", "DELETE /pools/{pool}/drives/{drive}/warning"]),
    ),
    ("drive", "locate", No("lights a lamp of this machine")),
    ("token", "create", By(&["POST /tokens"])),
    ("token", "list", By(&["GET /tokens"])),
    ("token", "delete", By(&["DELETE /tokens/{name}"])),
    ("audit", "export", By(&["GET /audit"])),
    ("audit", "check", By(&["GET /audit"])),
    ("dr", "token", By(&["POST /dr/tokens"])),
    ("dr", "pair", By(&["POST /dr/sites"])),
    ("dr", "unpair", By(&["DELETE /dr/sites/{name}"])),
    ("dr", "create", By(&["POST /dr/groups"])),
    ("dr", "status", By(&["GET /dr/sites", "GET /dr/groups"])),
    ("dr", "give-way", By(&["POST /dr/groups/{group}/give-way"])),
    ("dr", "alone", By(&["POST /dr/groups/{group}/alone"])),
    ("dr", "remove", By(&["DELETE /dr/groups/{group}"])),
    ("dr", "set", By(&["PATCH /dr/groups/{group}"])),
    ("dr", "suspend", By(&["POST /dr/groups/{group}/suspend"])),
    ("dr", "resume", By(&["POST /dr/groups/{group}/resume"])),
    (
        "dr",
        "verify",
        By(&[
            "POST /dr/groups/{group}/verifications",
            "GET /dr/groups/{group}/verifications",
            "DELETE /dr/groups/{group}/verifications",
        ]),
    ),
    ("dr fork", "list", By(&["GET /dr/forks"])),
    ("dr fork", "drop", By(&["DELETE /dr/forks/{fork}"])),
    ("link", "test", By(&["POST /dr/sites/{name}/link-tests"])),
    (
        "",
        "failover",
        By(&[
            "POST /dr/groups/{group}/failover",
            "POST /dr/groups/{group}/rehearsals",
            "DELETE /dr/groups/{group}/rehearsals/{rehearsal}",
        ]),
    ),
    ("", "apply", By(&["POST /site/plan", "POST /site/apply"])),
    ("", "site", By(&["GET /site"])),
    ("site", "recovery-key", No("the key is shown on the server's machine alone")),
    ("", "power", By(&["POST /power"])),
    ("", "top", By(&["GET /metrics"])),
    ("", "event", By(&["GET /events"])),
    ("", "serve", No("it is the server")),
    ("", "export", No("serves without a server: pools that no server has open, files and devices")),
    ("", "prove", No("runs here")),
    ("", "plan", No("computes here")),
    ("", "advise", By(&["GET /site/advice"])),
    ("", "report", By(&["GET /history/series", "GET /history", "PUT /reports/{report}"])),
    ("", "compare", No("computes here")),
    ("", "verify", No("reads files here")),
    ("", "setup", By(&["POST /site/plan", "POST /site/apply", "POST /notifiers/{notifier}/test"])),
    ("", "disks", No("looks at the disks of this machine, before a pool has them")),
    ("", "completions", No("prints here")),
    ("", "man", No("writes files here")),
    ("", "witness", No("it is a server of its own, on a third machine")),
    ("witness", "show", No("asks a witness, or reads its file")),
];

/// Nouns that do something without a verb behind them.
const ALONE_TOO: [&str; 4] = ["event", "export", "site", "witness"];

/// Operations that are no verb's own, with their use.
const OTHER_OPERATIONS: &[(&str, &str)] = &[
    ("GET /healthz", "for supervisors"),
    ("GET /readyz", "for supervisors"),
    ("GET /pools", "all verbs find their pool by it"),
    ("GET /pools/{pool}/drives/{drive}", "for programs; verbs list all drives"),
    ("GET /volumes", "all verbs find their volume by it"),
    ("GET /volumes/{volume}", "all verbs find their volume by it"),
    ("GET /groups/{group}", "for programs; verbs list all groups"),
    ("GET /dr/groups/{group}", "for programs; verbs list all groups"),
    ("GET /dr/groups/{group}/rehearsals", "clones under way, for the console; `dr status` says since when"),
    ("GET /reports", "for the console and for programs: a report is shown to people"),
    ("GET /reports/{report}", "for the console and for programs: a report is shown to people"),
    ("DELETE /reports/{report}", "for the console and for programs"),
    ("GET /pools/{pool}/segments", "a map for the console; verbs say how many segments lack a copy"),
    ("GET /presentations/{presentation}", "for programs; verbs list all presentations"),
    ("GET /sessions/{session}", "for programs; verbs list all sessions"),
    ("GET /power", "for programs; `event conditions` shows it"),
    ("GET /session", "for pages in a browser"),
    ("POST /session", "for pages in a browser"),
    ("DELETE /session", "for pages in a browser"),
];

fn docs() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Methods and paths of the API's description.
fn operations() -> BTreeSet<String> {
    let description = json_of(&fs::read_to_string(docs().join("openapi.json")).unwrap());
    let mut operations = BTreeSet::new();
    for (path, methods) in description["paths"].as_object().unwrap() {
        for method in ["get", "put", "post", "delete", "patch"] {
            if methods.get(method).is_some() {
                let path = path.strip_prefix("/v1").unwrap_or(path);
                operations.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
    }
    operations
}

/// The line about a verb in its help.
fn about(bench: &Bench, path: &[String]) -> String {
    let help = &helps(bench)[path];
    help.lines().take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

#[test]
fn each_verb_has_its_operation_or_a_reason_and_each_operation_its_verb() {
    let bench = Bench::new();
    let there: BTreeSet<Vec<String>> =
        helps(&bench).keys().filter(|path| !path.is_empty()).cloned().collect();
    let has_verbs =
        |noun: &[String]| there.iter().any(|path| path.len() > noun.len() && path.starts_with(noun));
    let stands_alone = |path: &[String]| ALONE_TOO.iter().any(|noun| *path == [*noun]);
    let there: BTreeSet<Vec<String>> =
        there.iter().filter(|path| !has_verbs(path) || stands_alone(path)).cloned().collect();
    let path_of = |noun: &str, verb: &str| -> Vec<String> {
        noun.split(' ').chain([verb]).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let listed: BTreeSet<Vec<String>> = TABLE.iter().map(|(noun, verb, _)| path_of(noun, verb)).collect();
    assert_eq!(listed.len(), TABLE.len(), "a verb is listed once");
    let missing: Vec<_> = there.difference(&listed).collect();
    assert!(missing.is_empty(), "verbs that the table in tests/it/verb_table.rs lacks: {missing:?}");
    let gone: Vec<_> = listed.difference(&there).collect();
    assert!(gone.is_empty(), "verbs that the program has not: {gone:?}");

    let operations = operations();
    let mut used: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (noun, verb, api) in TABLE {
        let By(of_verb) = api else { continue };
        for operation in *of_verb {
            assert!(operations.contains(*operation), "{noun} {verb}: the API has no {operation}");
            used.entry(operation).or_default().push(path_of(noun, verb).join(" "));
        }
    }
    for (operation, _) in OTHER_OPERATIONS {
        assert!(operations.contains(*operation), "the API has no {operation}");
        assert!(!used.contains_key(operation), "{operation} has a verb and is said to have none");
        used.insert(operation, Vec::new());
    }
    let unused: Vec<_> =
        operations.iter().filter(|operation| !used.contains_key(operation.as_str())).collect();
    assert!(unused.is_empty(), "operations that no verb of the table uses: {unused:?}");

    let page = page(&bench, &path_of);
    let path = docs().join("verbs.md");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(path, page).unwrap();
    } else {
        let written = fs::read_to_string(path).unwrap_or_default();
        assert!(written == page, "docs/verbs.md is not of this table: run with UPDATE_EXPECT=1");
    }
}

fn page(bench: &Bench, path_of: &dyn Fn(&str, &str) -> Vec<String>) -> String {
    let mut text = "# Nouns and verbs\n\nAll verbs of the program, made from one table. A verb about a pool asks the \
                    server that has the pool open, by\nthe operations of [the API](api.md) in its row; their paths begin \
                    with `/v1`. Other verbs say why no\nserver does them.\n"
        .to_owned();
    let mut nouns: Vec<&str> = Vec::new();
    for (noun, ..) in TABLE {
        if !nouns.contains(noun) {
            nouns.push(noun);
        }
    }
    for noun in nouns {
        text += &match noun {
            "" => "\n## Verbs without a noun\n".to_owned(),
            noun => {
                // Nouns below another one are on its page.
                let page = noun.split(' ').next().expect("a word");
                format!("\n## [{noun}](verbs/{page}.md)\n")
            }
        };
        text += "\n| Verb | Does | In a server |\n|---|---|---|\n";
        for (_, verb, api) in TABLE.iter().filter(|(of, ..)| *of == noun) {
            let api = match api {
                By(operations) => operations
                    .iter()
                    .map(|operation| format!("`{operation}`"))
                    .collect::<Vec<_>>()
                    .join("<br>"),
                No(reason) => format!("no: {reason}"),
            };
            let name =
                if noun.is_empty() { format!("[{verb}](verbs/{verb}.md)") } else { format!("`{verb}`") };
            text += &format!("| {name} | {} | {api} |\n", about(bench, &path_of(noun, verb)));
        }
    }
    text += "\n## Operations without a verb of their own\n\n| Operation | Use |\n|---|---|\n";
    for (operation, usage) in OTHER_OPERATIONS {
        text += &format!("| `{operation}` | {usage} |\n");
    }
    text
}

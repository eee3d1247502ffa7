//! Forms of the console for groups of volumes: made, snapshotted, cloned, rolled back and deleted, in two pools at once.

use crate::{
    browser::Page,
    console_pages::ServedConsole,
    exported::{is_here, judge},
    online_verbs::make_token,
    pool_drives::done,
    sites_served::SITE,
    spindle::Bench,
};

/// Makes a group of both volumes, and returns the path of its page.
fn group_of_both(console: &ServedConsole, cookie: &str) -> String {
    let volumes = ["mail/store", "logs/log"].map(|name| console.volume(cookie, name));
    let fields = [("name", "post"), ("volume", &volumes[0]), ("volume", &volumes[1])];
    let made = console.post("/groups", cookie, &fields);
    assert_eq!(made.status, 303, "{}", made.text);
    made.header("location").split('?').next().unwrap().to_owned()
}

#[track_caller]
fn is_refused(page: &Page, status: u16, words: &str) {
    assert!(page.status == status && page.text.contains(words), "{}: {}", page.status, page.text);
    assert!(page.text.contains("role=\"alert\""), "the page says it: {}", page.text);
}

#[test]
fn a_group_is_made_of_chosen_volumes_cut_cloned_and_deleted_and_its_volumes_stay() {
    let bench = Bench::new();
    let (console, cookie) = ServedConsole::usual(&bench);
    let post = |path: &str, fields: &[(&str, &str)]| console.post(path, &cookie, fields);
    let volumes = ["mail/store", "logs/log"].map(|name| console.volume(&cookie, name));
    let list = console.get("/groups", &cookie);
    list.check("/groups");
    assert!(list.text.contains("There is no group.") && list.text.contains(&volumes[1]), "{}", list.text);
    is_refused(&post("/groups", &[("name", "post")]), 400, "volumes is empty");
    let refused = post("/groups", &[("name", "a/b"), ("volume", &volumes[1])]);
    assert!(refused.status >= 400 && refused.text.contains("role=\"alert\""), "{}", refused.text);
    let kept = format!("value=\"{}\" checked", volumes[1]);
    assert!(refused.text.contains("value=\"a/b\"") && refused.text.contains(&kept), "{}", refused.text);
    let path = group_of_both(&console, &cookie);
    is_refused(&post("/groups", &[("name", "post"), ("volume", &volumes[0])]), 409, "post");
    let list = console.get("/groups", &cookie).text;
    assert!(list.contains("logs/log, mail/store") && list.contains(">post</a>"), "{list}");
    assert!(list.contains("There is no volume without a group."), "{list}");

    let page = console.get(&path, &cookie);
    page.check(&path);
    assert!(page.text.contains("The group has no snapshot."), "{}", page.text);
    let key = page.field(&format!("{path}/snapshots"), "key");
    let monday = [("name", "monday"), ("note", "before the update"), ("key", &*key)];
    for _ in 0..2 {
        let taken = post(&format!("{path}/snapshots"), &monday);
        assert_eq!(taken.header("location"), format!("{path}?done=snapshot"), "{}", taken.text);
    }
    is_refused(&post(&format!("{path}/snapshots"), &[("name", "monday"), ("note", "")]), 409, "monday");
    let page = console.get(&path, &cookie);
    assert_eq!(page.text.matches(">monday</a>").count(), 1, "one of both pools: {}", page.text);
    assert!(page.text.contains("before the update"), "{}", page.text);
    let snapshot = page.values("href").into_iter().find(|link| link.contains("/snapshots/")).unwrap();
    console.get(&snapshot, &cookie).check(&snapshot);

    is_refused(&post(&format!("{snapshot}/clones"), &[("suffix", "/")]), 409, "/");
    let cloned = post(&format!("{snapshot}/clones"), &[("suffix", "-copy")]);
    assert_eq!(cloned.header("location"), format!("{path}?done=group-cloned"), "{}", cloned.text);
    for name in ["mail/store-copy", "logs/log-copy"] {
        console.volume(&cookie, name);
    }
    is_refused(&post(&format!("{snapshot}/delete"), &[("typed", "post")]), 400, "nothing was changed");
    let gone = post(&format!("{snapshot}/delete"), &[("typed", "monday")]);
    assert_eq!(gone.header("location"), format!("{path}?done=snapshot-deleted"), "{}", gone.text);
    assert_eq!(console.get(&snapshot, &cookie).status, 404);

    is_refused(&post(&format!("{path}/delete"), &[("typed", "monday")]), 400, "nothing was changed");
    let old = [("typed", "post"), ("tag", "\"0\"")];
    is_refused(&post(&format!("{path}/delete"), &old), 412, "");
    let tag = console.get(&path, &cookie).field(&format!("{path}/delete"), "tag");
    let gone = post(&format!("{path}/delete"), &[("typed", "post"), ("tag", &tag)]);
    assert_eq!(gone.header("location"), "/groups?done=deleted", "{}", gone.text);
    assert_eq!(console.get(&path, &cookie).status, 404);
    for name in ["mail/store", "logs/log"] {
        console.volume(&cookie, name);
    }
    let audit = done(&bench.run(&["audit", "export", "--state", "state"]));
    assert!(audit.contains("POST /v1/groups") && audit.contains("token admin"), "{audit}");
    console.end();
}

#[test]
fn a_group_is_rolled_back_in_both_pools_after_the_page_has_said_what_is_lost() {
    if !is_here("qemu-io", "qemu-utils") {
        return;
    }
    let bench = Bench::new();
    let (console, cookie) = ServedConsole::usual(&bench);
    let post = |path: &str, fields: &[(&str, &str)]| console.post(path, &cookie, fields);
    let io = |export: &str, command: &str| {
        let said = judge("qemu-io", &["-f", "raw", "-t", "none", "-c", command, console.uri(export)]);
        assert!(!said.contains("failed") && !said.contains("Pattern"), "{said}");
    };
    let path = group_of_both(&console, &cookie);
    for export in ["/store", "/log"] {
        io(export, "write -P 17 0 4k");
    }
    assert_eq!(post(&format!("{path}/snapshots"), &[("name", "monday")]).status, 303);
    for export in ["/store", "/log"] {
        io(export, "write -P 18 0 4k");
    }
    let links = console.get(&path, &cookie).values("href");
    let snapshot = links.into_iter().find(|link| link.contains("/snapshots/")).unwrap();
    let page = console.get(&snapshot, &cookie);
    assert!(page.text.contains("Hosts lose what they wrote in the last"), "{}", page.text);
    let back = format!("{snapshot}/rollback");
    let tag = page.field(&back, "tag");
    is_refused(&post(&back, &[("typed", "monday"), ("tag", &tag)]), 400, "nothing was changed");
    is_refused(&post(&back, &[("typed", "post"), ("tag", &tag)]), 409, "force");
    io("/store", "read -P 18 0 4k");
    let rolled = post(&back, &[("typed", "post"), ("tag", &tag), ("force", "on")]);
    assert_eq!(rolled.header("location"), format!("{path}?done=group-rolled-back"), "{}", rolled.text);
    for name in ["mail/store~1", "logs/log~1"] {
        console.volume(&cookie, name);
    }
    for (volume, export) in [("mail/store", "/store"), ("logs/log", "/log")] {
        let readmit = ["volume", "readmit", volume, "--nbd", "--server", "unix:state/spindle.sock"];
        done(&bench.run(&readmit));
        io(export, "read -P 17 0 4k");
    }
    console.end();
}

#[test]
fn forms_of_groups_fit_the_role() {
    let bench = Bench::new();
    let (console, cookie) = ServedConsole::usual(&bench);
    let path = group_of_both(&console, &cookie);
    assert_eq!(console.post(&format!("{path}/snapshots"), &cookie, &[("name", "monday")]).status, 303);
    let links = console.get(&path, &cookie).values("href");
    let snapshot = links.into_iter().find(|link| link.contains("/snapshots/")).unwrap();
    for (role, forms) in [("read", [0, 0, 0]), ("operate", [1, 1, 1])] {
        make_token(&bench, role, &["--role", role]);
        let cookie = console.login(&bench, role);
        for (path, count) in ["/groups", &path, &snapshot].into_iter().zip(forms) {
            let page = console.get(path, &cookie);
            page.check(path);
            let actions: Vec<String> =
                page.values("action").into_iter().filter(|action| action != "/logout").collect();
            assert_eq!(actions.len(), count, "{role} {path}: {actions:?}");
        }
        for (path, typed) in [
            (format!("{path}/delete"), "post"),
            (format!("{snapshot}/rollback"), "post"),
            (format!("{snapshot}/delete"), "monday"),
        ] {
            is_refused(&console.post(&path, &cookie, &[("typed", typed)]), 403, "it takes the role");
        }
    }
    // A part in a pool that a token does not see is counted, and not named.
    make_token(&bench, "logs-only", &["--role", "admin", "--pool", "logs"]);
    let cookie = console.login(&bench, "logs-only");
    let page = console.get(&path, &cookie);
    page.check(&path);
    assert!(page.text.contains("1 pool of the group cannot be seen"), "{}", page.text);
    assert!(!page.text.contains("mail/store"), "{}", page.text);
    console.end();
}

#[test]
fn volumes_of_a_group_are_named_where_there_are_too_many_to_choose_from() {
    let bench = Bench::new();
    let volumes: String = (0..100)
        .map(|number| format!("[[volume]]\nname = 'box{number:03}'\ngroup = 'mail'\ngb = 0.0009765625\n"))
        .collect();
    let console = ServedConsole::begin(&bench, &format!("{SITE}{volumes}"));
    let cookie = console.login(&bench, "state/admin-token");
    let page = console.get("/groups", &cookie);
    page.check("/groups");
    assert!(page.text.contains("<textarea") && !page.text.contains("type=\"checkbox\""), "{}", page.text);
    let create = |names: &str| console.post("/groups", &cookie, &[("name", "boxes"), ("names", names)]);
    for (names, missing) in
        [("mail/box000\r\nmail/box100", "mail/box100"), ("box000", "box000"), ("post/box000", "post/box000")]
    {
        let refused = create(names);
        is_refused(&refused, 400, &format!("there is no volume &#34;{missing}&#34;"));
        assert!(refused.text.contains("one a line") && refused.text.contains("spellcheck=\"false\">"));
        assert!(refused.text.contains(names.lines().next().unwrap()), "it keeps what was typed");
    }
    let made = create("mail/box001\r\n\r\n mail/box099 \r\n");
    assert_eq!(made.status, 303, "{}", made.text);
    let page = console.get(made.header("location"), &cookie).text;
    assert!(page.contains(">mail/box001</a>") && page.contains(">mail/box099</a>"), "{page}");
    assert!(!page.contains("box000"), "{page}");
    console.end();
}

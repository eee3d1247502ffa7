//! Forms of the console for drives, imports, initiators and tokens, and the map of segments, as plain HTTP meets them.

use crate::{
    console_pages::ServedConsole,
    exported::{Exported, noise, text},
    judged_exports::until,
    online_verbs::make_token,
    pool_drives::done,
    sites_served::SITE,
    spindle::Bench,
};
use std::{fs, os::unix::fs::PermissionsExt};

/// Path of a pool's page.
fn pool_path(console: &ServedConsole, cookie: &str, name: &str) -> String {
    let list = console.get("/pools", cookie);
    let paths = list.values("href").into_iter().filter(|path| path.starts_with("/pools/"));
    let found = paths
        .into_iter()
        .find(|path| console.get(path, cookie).text.contains(&format!("<h1>Pool {name}</h1>")));
    found.unwrap_or_else(|| panic!("{name}: {}", list.text))
}

/// Paths of the drives of a pool, in the order of its page.
fn drive_paths(console: &ServedConsole, cookie: &str, pool: &str) -> Vec<String> {
    let paths = console.get(pool, cookie).values("href").into_iter();
    paths.filter(|path| path.contains("/drives/")).collect()
}

/// The name that confirms a change of a drive.
fn short_name(page: &str) -> String {
    let title = page.split("<h1>Drive ").nth(1).unwrap();
    title.split(" of pool ").next().unwrap().to_owned()
}

#[test]
fn drives_are_added_replaced_and_taken_out_by_forms_and_by_their_names_alone() {
    let bench = Bench::new();
    let (console, cookie) = ServedConsole::usual(&bench);
    let post = |path: &str, fields: &[(&str, &str)]| console.post(path, &cookie, fields);
    let pool = pool_path(&console, &cookie, "logs");
    let before = drive_paths(&console, &cookie, &pool);
    assert_eq!(before.len(), 2);
    let add = format!("{pool}/drives");
    for (fields, problem) in [
        (&[("size", "100"), ("size_unit", "MiB"), ("device", "/dev/x")][..], "not both"),
        (&[("size", ""), ("size_unit", "MiB"), ("device", "relative")], "neither an absolute path"),
        (&[("size", "1"), ("size_unit", "MiB")], "MiB"),
    ] {
        let refused = post(&add, fields);
        assert!(refused.status >= 400 && refused.text.contains(problem), "{problem}: {}", refused.text);
    }
    let size = [("size", "112"), ("size_unit", "MiB")];
    let key = console.get(&pool, &cookie).field(&add, "key");
    for _ in 0..2 {
        let added = post(&add, &[&size[..], &[("key", &key)]].concat());
        assert_eq!(added.header("location"), format!("{pool}?done=drive-added"), "{}", added.text);
    }
    let with_new = drive_paths(&console, &cookie, &pool);
    assert_eq!(with_new.len(), 3, "sent twice, it is added once");

    // Its data goes to the others; until it has gone, it can be kept.
    let old = console.get(&before[0], &cookie);
    old.check(&before[0]);
    let old_name = short_name(&old.text);
    for typed in ["", "drive"] {
        let refused = post(&format!("{}/retire", before[0]), &[("typed", typed)]);
        assert!(refused.status == 400 && refused.text.contains("nothing was changed"), "{}", refused.text);
    }
    let replaced = [&size[..], &[("typed", &old_name)]].concat();
    let refused = post(&format!("{}/replace", before[0]), &replaced[..2]);
    assert_eq!(refused.status, 400, "{}", refused.text);
    let done_of =
        |page: &crate::browser::Page| page.header("location").rsplit('=').next().unwrap().to_owned();
    let page = post(&format!("{}/replace", before[0]), &replaced);
    assert_eq!(done_of(&page), "drive-replaced", "{}", page.text);
    until("the old drive has left", || !drive_paths(&console, &cookie, &pool).contains(&before[0]));
    let three = drive_paths(&console, &cookie, &pool);
    assert_eq!(three.len(), 3, "a new one has its place");
    let new = three.iter().find(|path| !with_new.contains(path)).unwrap();
    let name = short_name(&console.get(new, &cookie).text);
    let page = post(&format!("{new}/retire"), &[("typed", &name)]);
    assert_eq!(done_of(&page), "drive-leaves", "{}", page.text);
    until("it has left", || drive_paths(&console, &cookie, &pool).len() == 2);

    // With two drives nothing can be copied elsewhere.
    let last = &drive_paths(&console, &cookie, &pool)[0];
    let name = short_name(&console.get(last, &cookie).text);
    let refused = post(&format!("{last}/retire"), &[("typed", &name)]);
    assert!(refused.status == 409 && refused.text.contains("role=\"alert\""), "{}", refused.text);
    let audit = done(&bench.run(&["audit", "export", "--state", "state"]));
    assert!(audit.contains("/replacement") && audit.contains("token admin"), "{audit}");

    make_token(&bench, "operator", &["--role", "operate"]);
    let cookie = console.login(&bench, "operator");
    let page = console.get(last, &cookie).text;
    assert!(!page.contains("/retire") && !page.contains("/replace"), "they take the role admin: {page}");
    let refused = console.post(&format!("{last}/retire"), &cookie, &[("typed", &name)]);
    assert_eq!(refused.status, 403, "{}", refused.text);
    console.end();
}

#[test]
fn a_drive_that_leaves_is_kept_after_all() {
    let bench = Bench::new();
    let (console, cookie) = ServedConsole::usual(&bench);
    let pool = pool_path(&console, &cookie, "logs");
    let size = [("size", "112"), ("size_unit", "MiB")];
    assert_eq!(console.post(&format!("{pool}/drives"), &cookie, &size).status, 303);
    // The form sends the keeping as soon as the drive leaves; a drive that was quicker is gone, and another one is tried.
    for _ in 0..10 {
        let drives = drive_paths(&console, &cookie, &pool);
        if drives.len() < 3 {
            assert_eq!(console.post(&format!("{pool}/drives"), &cookie, &size).status, 303);
            continue;
        }
        let name = short_name(&console.get(&drives[0], &cookie).text);
        assert_eq!(console.post(&format!("{}/retire", drives[0]), &cookie, &[("typed", &name)]).status, 303);
        let kept = console.post(&format!("{}/keep", drives[0]), &cookie, &[]);
        if kept.status == 303 {
            let page = console.get(&drives[0], &cookie);
            assert!(page.text.contains("in use") && page.text.contains("/retire"), "{}", page.text);
            return console.end();
        }
        until("it has left", || drive_paths(&console, &cookie, &pool).len() == 2);
    }
    panic!("each drive left before it could be kept");
}

#[test]
fn a_volume_is_moved_to_another_pool_once_its_name_was_typed() {
    let bench = Bench::new();
    // A set would keep it in its pool.
    let console = ServedConsole::begin(&bench, SITE);
    let cookie = console.login(&bench, "state/admin-token");
    let list = console.get("/volumes", &cookie);
    let pages = list.values("href").into_iter().filter(|path| path.starts_with("/volumes/"));
    let mut pages = pages.filter(|path| console.get(path, &cookie).text.contains("Volume mail/store</h1>"));
    let page = pages.next().unwrap_or_else(|| panic!("{}", list.text));
    let shown = console.get(&page, &cookie);
    let form = shown.text.split("id=\"move-pool\"").nth(1).unwrap_or_else(|| panic!("{}", shown.text));
    assert!(form.split("</select>").next().unwrap().contains(">logs</option>"), "{form}");
    let pool = form.split("value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let relocate =
        |typed: &str| console.post(&format!("{page}/move"), &cookie, &[("pool", &pool), ("typed", typed)]);
    assert_eq!(relocate("store").status, 400);
    let moved = relocate("mail/store");
    assert_eq!((moved.status, moved.header("location")), (303, "/jobs?done=moving"), "{}", moved.text);
    until("it has moved", || console.get(&page, &cookie).text.contains("NBD export store"));
    let uses = console.get(&page, &cookie).text;
    assert!(uses.contains("NBD export store"), "{uses}");
    console.end();
}

#[test]
fn a_token_is_shown_once_and_refused_after_its_name_was_typed() {
    let bench = Bench::new();
    let (console, cookie) = ServedConsole::usual(&bench);
    let fields = [("name", "desk"), ("role", "read"), ("pools", "logs"), ("days", "7")];
    let made = console.post("/access", &cookie, &fields);
    made.check("/access");
    let secret = made.text.split("id=\"secret\">").nth(1).unwrap().split('<').next().unwrap().to_owned();
    assert!(secret.starts_with("spindle_") && secret.len() == 72, "{secret}");
    let list = console.get("/access", &cookie).text;
    assert!(list.contains(">desk</a>") && !list.contains(&secret), "{list}");
    let again = console.post("/access", &cookie, &fields);
    assert!(again.status == 409 && again.text.contains("there is a token"), "{}", again.text);
    assert!(again.text.contains("value=\"desk\"") && !again.text.contains("id=\"secret\""), "{}", again.text);
    for (field, value) in
        [("role", "root"), ("days", "0"), ("days", "x"), ("pools", "nowhere"), ("name", "a b")]
    {
        let wrong: Vec<_> =
            [("name", "other"), ("role", "read")].into_iter().filter(|(name, _)| *name != field).collect();
        let refused = console.post("/access", &cookie, &[&wrong[..], &[(field, value)]].concat());
        assert_eq!(refused.status, 400, "{field} {value}: {}", refused.text);
    }

    bench.make_file("desk", secret.as_bytes());
    let desk = console.login(&bench, "desk");
    let seen = console.get("/access", &desk).text;
    assert!(seen.contains("desk, read, pools logs") && !seen.contains("/access/admin"), "{seen}");
    assert_eq!(console.post("/access", &desk, &[("name", "more"), ("role", "admin")]).status, 403);
    assert_eq!(console.post("/access/desk/delete", &cookie, &[("typed", "des")]).status, 400);
    assert_eq!(console.get("/volumes", &desk).status, 200);
    let deleted = console.post("/access/desk/delete", &cookie, &[("typed", "desk")]);
    assert_eq!(deleted.header("location"), "/access?done=deleted", "{}", deleted.text);
    assert_eq!(console.get("/volumes", &desk).status, 303, "its session has ended");
    let audit = done(&bench.run(&["audit", "export", "--state", "state"]));
    assert!(audit.contains("POST /v1/tokens") && !audit.contains(&secret), "{audit}");
    console.end();
}

#[test]
fn an_initiator_gets_rights_and_a_secret_that_no_page_shows() {
    let bench = Bench::new();
    let (console, cookie) = ServedConsole::usual(&bench);
    let secret = "correct horse battery";
    let name = "iqn.2004-01.example:exchange2";
    let path = "/initiators/iqn.2004-01.example%3Aexchange2";
    let post = |path: &str, fields: &[(&str, &str)]| console.post(path, &cookie, fields);
    let with = |secret: &str, uses: &str| {
        post(
            "/initiators",
            &[("initiator_name", name), ("user", "exchange"), ("secret", secret), ("uses", uses)],
        )
    };
    let refused = with("short", "mail");
    assert!(refused.status == 400 && refused.text.contains(&format!("value=\"{name}\"")), "{}", refused.text);
    assert!(!refused.text.contains("short\""), "a secret is not sent back: {}", refused.text);
    let made = with(secret, "mail");
    assert_eq!(made.header("location"), "/targets?done=initiator", "{}", made.text);
    let page = console.get(path, &cookie);
    page.check(path);
    assert!(page.text.contains("as exchange") && page.text.contains("value=\"mail\""), "{}", page.text);
    let set = post(&format!("{path}/rights"), &[("uses", ""), ("reads", "mail/3")]);
    assert_eq!(set.status, 303, "{}", set.text);
    assert!(console.get(path, &cookie).text.contains("value=\"mail/3\""));
    let refused = post(&format!("{path}/rights"), &[("uses", "nothing"), ("reads", "")]);
    assert!(refused.status >= 400 && refused.text.contains("nothing"), "{}", refused.text);
    let set = post(&format!("{path}/secret"), &[("user", "exchange"), ("secret", "another long secret")]);
    assert_eq!(set.status, 303, "{}", set.text);
    let set = post(&format!("{path}/secret"), &[("without_chap", "yes")]);
    assert_eq!(set.status, 303, "{}", set.text);
    assert!(console.get(path, &cookie).text.contains("its name is believed"));
    assert_eq!(post(&format!("{path}/delete"), &[("typed", "exchange2")]).status, 400);
    assert_eq!(
        post(&format!("{path}/delete"), &[("typed", name)]).header("location"),
        "/targets?done=deleted"
    );
    assert_eq!(console.get(path, &cookie).status, 404);
    let audit = done(&bench.run(&["audit", "export", "--state", "state"]));
    for secret in [secret, "another long secret"] {
        assert!(
            !audit.contains(secret) && !console.get("/targets", &cookie).text.contains(secret),
            "{audit}"
        );
    }
    console.end();
}

#[test]
fn the_map_of_segments_has_a_cell_for_each_and_says_which_lack_a_copy() {
    let bench = Bench::new();
    let (console, cookie) = ServedConsole::usual(&bench);
    let pool = pool_path(&console, &cookie, "mail");
    let page = console.get(&format!("{pool}/segments"), &cookie);
    page.check("segments");
    assert!(!page.text.contains("role=\"img\""), "nobody asked for it yet: {}", page.text);
    let look = format!("{pool}/segments?look=yes");
    let page = console.get(&look, &cookie);
    page.check(&look);
    let cells = |page: &str, class: &str| page.matches(&format!("<rect class=\"{class}\"")).count() - 1;
    let said = page.text.split("Room for ").nth(1).unwrap().split(' ').next().unwrap().replace(',', "");
    assert_eq!(cells(&page.text, "free"), said.parse::<usize>().unwrap(), "{}", page.text);
    assert!(cells(&page.text, "open") >= 1 && cells(&page.text, "degraded") == 0, "{}", page.text);
    let of_drives = page.text.matches(&format!("{pool}/drives/")).count();
    assert_eq!(of_drives, 2, "a row for each drive");
    assert!(page.text.contains("every segment has all of its copies"), "{}", page.text);
    assert!(
        console
            .get(&look, &cookie)
            .text
            .contains(page.text.split("as of ").nth(1).unwrap().split(':').next().unwrap())
    );
    console.end();
}

#[test]
fn a_device_of_a_target_that_wants_chap_is_imported_by_a_form_that_takes_no_secret() {
    let bench = Bench::new();
    let data = noise(4 << 20, 3);
    bench.make_file("disk.img", &data);
    let secret_file = bench.make_file("chap-secret", b"a secret that only two know\n");
    fs::set_permissions(&secret_file, fs::Permissions::from_mode(0o600)).unwrap();
    let secret = text(&secret_file);
    let access = "[[initiator]]\nname = 'iqn.2026-11.org.spindle:initiator'\nuser = 'mail'\n\
                  secret-file = 'chap-secret'\nuses = ['disk']\n";
    bench.make_file("access.toml", access.as_bytes());
    let of_target = ["disk.img", "--name", "disk", "--iscsi", "127.0.0.1:0", "--access", "access.toml"];
    let exported = Exported::begin(&bench, &of_target);
    let unit = exported.uris[0].clone();
    let (console, cookie) = ServedConsole::usual(&bench);
    let pool = pool_path(&console, &cookie, "mail");
    let path = format!("{pool}/imports");
    let import = |fields: &[(&str, &str)]| console.post(&path, &cookie, fields);
    assert!(console.get(&pool, &cookie).text.contains("Import a device as a volume"));
    let of = |name| [("volume", name), ("from", &*unit)];
    // Its job opens the device, and says what is in the way.
    for (fields, problem) in [
        (&[("volume", "old"), ("from", "/nothing/here")][..], "/nothing/here"),
        (&of("old"), "authentication failed"),
        (&[&of("old")[..], &[("chap_name", "mail")]].concat(), "name it with chap secret file"),
        (&[&of("old")[..], &[("chap_name", "mail"), ("chap_secret_file", "/none")]].concat(), "/none"),
    ] {
        let begun = import(fields);
        assert_eq!(begun.status, 303, "{problem}: {}", begun.text);
        until(problem, || {
            let page = console.get(&pool, &cookie).text;
            page.split("<td>failed 20").nth(1).is_some_and(|outcome| outcome.contains(problem))
        });
    }
    let chap = [("chap_name", "mail"), ("chap_secret_file", &*secret), ("digests", "on")];
    let begun = import(&[&of("old")[..], &chap].concat());
    assert_eq!(begun.header("location"), format!("{pool}?done=import#jobs"), "{}", begun.text);
    until("it is imported", || console.get(&pool, &cookie).text.contains("<td>done 20"));
    let volume = console.volume(&cookie, "mail/old");
    assert!(console.get(&format!("/volumes/{volume}"), &cookie).text.contains("4.00 MiB"));
    exported.end();

    make_token(&bench, "operator", &["--role", "operate"]);
    let cookie = console.login(&bench, "operator");
    let page = console.get(&pool, &cookie).text;
    assert!(page.contains("Add a drive") && !page.contains("/imports"), "it takes the role admin: {page}");
    let refused = console.post(&path, &cookie, &of("other"));
    assert!(refused.status == 403 && refused.text.contains("it takes the role admin"), "{}", refused.text);
    console.end();
}

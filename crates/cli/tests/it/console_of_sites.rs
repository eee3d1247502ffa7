//! Forms of the console for two sites and their DR groups: paired and parted, suspended, switched over, taken over, the fork
//! that is left, and a failover that is rehearsed.

use crate::{
    browser::{Browser, Page},
    judged_exports::until,
    pool_drives::done,
    spindle::json_of,
    two_sites::{Site, has_clients, pair, paired},
};
use std::fs;

fn browser(site: &Site) -> Browser {
    Browser::of_socket(&site.bench.path("state/spindle.sock"))
}

/// Path of the page of the only group.
fn group_path(site: &Site) -> String {
    let list = browser(site).get("/replication", "");
    list.check("/replication");
    list.values("href").into_iter().find(|path| path.starts_with("/replication/")).expect("a group")
}

fn page(site: &Site) -> Page {
    let path = group_path(site);
    let page = browser(site).get(&path, "");
    page.check(&path);
    page
}

fn send(site: &Site, what: &str, fields: &[(&str, &str)]) -> Page {
    browser(site).post(&format!("{}/{what}", group_path(site)), "", fields)
}

#[track_caller]
fn is_done(page: &Page, done: &str) {
    assert!(page.status == 303 && page.header("location").ends_with(done), "{}: {}", page.status, page.text);
}

#[track_caller]
fn is_refused(page: &Page, status: u16, words: &str) {
    assert!(page.status == status && page.text.contains(words), "{}: {}", page.status, page.text);
    assert!(page.text.contains("role=\"alert\""), "the page says it: {}", page.text);
}

#[test]
fn a_group_is_made_gets_another_mode_and_is_removed_by_forms() {
    if !has_clients() {
        return;
    }
    let (boston, denver) = paired();
    let list = browser(&boston).get("/replication", "");
    list.check("/replication");
    assert!(list.text.contains("<option value=\"denver\">"), "{}", list.text);
    let numbers =
        [("hold_s", "15"), ("behind_s", "30"), ("behind_mib", "256"), ("every_min", "15"), ("keep", "4")];
    let of_mode = |more: &[(&'static str, &'static str)]| [more, &numbers[..]].concat();
    let group = [("name", "sg1"), ("peer", "denver"), ("mode", "async")];
    let refused = browser(&boston).post(
        "/replication",
        "",
        &of_mode(&[&group[..], &[("names", "mail/none")]].concat()),
    );
    is_refused(&refused, 400, "there is no volume &#34;mail/none&#34;");
    assert!(refused.text.contains("value=\"async\" selected"), "what was typed stays: {}", refused.text);
    let made = browser(&boston).post(
        "/replication",
        "",
        &of_mode(&[&group[..], &[("names", "mail/disk")]].concat()),
    );
    is_done(&made, "created");
    until("it streams", || boston.is("primary", "streaming") && denver.is("secondary", "following"));

    assert!(!page(&denver).text.contains("/mode\""), "it is changed at the primary");
    is_refused(&send(&boston, "mode", &[("mode", "sync"), ("hold_s", "60")]), 409, "1 to 25000");
    let mut sync = of_mode(&[("mode", "sync")]);
    sync[1] = ("hold_s", "2.5");
    is_done(&send(&boston, "mode", &sync), "mode");
    let has_mode = |site: &Site| site.row()["mode"]["hold_ms"] == 2_500;
    until("both sites have it", || has_mode(&boston) && has_mode(&denver));
    assert!(page(&boston).text.contains("value=\"2.5\""));

    is_refused(&send(&boston, "remove", &[("typed", "sg2")]), 400, "is not the name of the group");
    for site in [&boston, &denver] {
        is_done(&send(site, "remove", &[("typed", "sg1")]), "removed");
        assert!(site.rows().is_empty());
    }
    boston.io(&["write -P 5 0 4k"]);
}

#[test]
fn a_group_is_suspended_switched_over_and_taken_over_by_forms_that_say_what_it_costs() {
    if !has_clients() {
        return;
    }
    let (mut boston, mut denver) = pair("async");
    boston.io(&["write -P 17 0 1M"]);
    boston.wait_until_confirmed();
    assert!(!page(&boston).text.contains("/take-over"), "nothing is lost");

    is_done(&send(&boston, "suspend", &[]), "suspended");
    until("it is suspended", || boston.row()["suspended"].is_object());
    let seen = page(&boston).text;
    assert!(seen.contains("by a person since") && !seen.contains("/suspend\""), "{seen}");
    is_done(&send(&boston, "resume", &[]), "resumed");
    until("it goes on", || boston.is("primary", "streaming"));

    for (from, (old, new)) in [(&boston, (&boston, &denver)), (&boston, (&denver, &boston))] {
        is_refused(&send(from, "switch-over", &[("typed", "sg2")]), 400, "nothing was changed");
        is_done(&send(from, "switch-over", &[("typed", "sg1")]), "switched-over");
        until("both have their roles", || new.is("primary", "streaming") && old.is("secondary", "following"));
        new.io(&["read -P 17 0 1M"]);
    }

    denver.kill();
    until("boston hears of it", || boston.row()["connected_since"].is_null());
    boston.io(&["write -P 18 0 64k"]);
    boston.kill();
    denver.start();
    let seen = page(&denver).text;
    assert!(seen.contains("What may be lost is not known"), "{seen}");
    is_refused(&send(&denver, "take-over", &[]), 400, "was not typed");
    is_refused(&send(&denver, "take-over", &[("typed", "sg1")]), 409, "what may be lost is not known");
    is_refused(&send(&denver, "take-over", &[("typed", "sg1")]), 409, "say accept loss all");
    is_refused(&send(&denver, "take-over", &[("typed", "sg1"), ("accept_loss", "x")]), 400, "no such number");
    assert_eq!(denver.row()["role"], "secondary", "nothing was done");
    is_done(&send(&denver, "take-over", &[("typed", "sg1"), ("accept_any_loss", "on")]), "taken-over");
    until("denver serves", || denver.row()["serves"] == true);

    boston.start();
    until("a person has to choose", || denver.row()["state"] == "awaiting choice");
    until("boston stands down", || boston.row()["role"] == "secondary");
    assert!(page(&denver).text.contains("both sites have writes that the other lacks"));
    is_refused(&send(&boston, "give-way", &[("typed", "")]), 400, "was not typed");
    assert!(page(&boston).text.contains("/give-way\""), "{}", page(&boston).text);
    is_done(&send(&boston, "give-way", &[("typed", "sg1")]), "gave-way");
    until("boston follows", || denver.is("primary", "streaming") && boston.is("secondary", "following"));

    let forks = || json_of(&done(&boston.bench.run(&boston.words("dr fork list --json"))))["forks"].clone();
    assert_eq!(forks()[0]["name"], "disk-fork1");
    let fork = forks()[0]["id"].as_str().unwrap().to_owned();
    assert!(page(&boston).text.contains("64.0 KiB of its own"), "{}", page(&boston).text);
    is_refused(
        &send(&boston, &format!("forks/{fork}/drop"), &[("typed", "disk")]),
        400,
        "nothing was changed",
    );
    is_done(&send(&boston, &format!("forks/{fork}/drop"), &[("typed", "disk-fork1")]), "fork-dropped");
    assert_eq!(forks(), serde_json::json!([]));
    // An unknown change is no change.
    is_refused(&send(&boston, "promote", &[("typed", "sg1")]), 404, "no form of a DR group");
}

#[test]
fn a_takeover_accepts_a_loss_in_seconds_that_the_form_has_named() {
    if !has_clients() {
        return;
    }
    let (mut boston, denver) = pair("async");
    boston.io(&["write -P 17 0 1M"]);
    boston.wait_until_confirmed();
    boston.kill();
    until("denver hears of it", || denver.row()["connected_since"].is_null());
    let seen = page(&denver).text;
    assert!(seen.contains("Everything that hosts were answered since 20"), "the cost: {seen}");
    let refused = send(&denver, "take-over", &[("typed", "sg1")]);
    is_refused(&refused, 409, "may be lost");
    let seconds =
        refused.text.split("say accept loss ").nth(1).unwrap().split('s').next().unwrap().to_owned();
    is_refused(&send(&denver, "take-over", &[("typed", "sg1"), ("accept_loss", "0")]), 409, "may be lost");
    is_done(&send(&denver, "take-over", &[("typed", "sg1"), ("accept_loss", &seconds)]), "taken-over");
    until("denver serves", || denver.row()["serves"] == true);
}

#[test]
fn two_sites_are_paired_with_a_token_that_is_shown_once_and_parted_by_a_typed_name() {
    let (boston, denver) = (Site::begin("boston", ""), Site::begin("denver", ""));
    let see = |site: &Site, path: &str| {
        let page = browser(site).get(path, "");
        page.check(path);
        page.text
    };
    let at_boston = |path: &str, fields: &[(&str, &str)]| browser(&boston).post(path, "", fields);
    let at_denver = |path: &str, fields: &[(&str, &str)]| browser(&denver).post(path, "", fields);
    assert!(see(&boston, "/replication").contains("href=\"/peers\""), "the page of DR groups leads there");
    assert!(see(&boston, "/peers").contains("It is paired with no other site."));
    is_refused(&at_boston("/pairing-tokens", &[("minutes", "0")]), 400, "valid for 1 to 86400 seconds");
    is_refused(&at_boston("/pairing-tokens", &[("minutes", "an hour")]), 400, "is no such number");

    let made = at_boston("/pairing-tokens", &[("minutes", "5")]);
    made.check("/pairing-tokens");
    let token = made.text.split("id=\"secret\">").nth(1).unwrap().split('<').next().unwrap().to_owned();
    assert!(token.len() == 32 && token.bytes().all(|byte| byte.is_ascii_hexdigit()), "{token}");
    let address = format!("127.0.0.1:{}", boston.port);
    let command = format!("spindle dr pair boston {address} --pairing-token FILE");
    assert!(made.text.contains(&command) && made.text.contains("within 5 minutes"), "{}", made.text);
    assert!(!see(&boston, "/peers").contains(&token), "it is shown once");

    let pair = |name: &str, token: &str| {
        at_denver("/peers", &[("name", name), ("address", &address), ("token", token)])
    };
    let refused = pair("bos ton", &token);
    is_refused(&refused, 409, "is no name of a site");
    assert!(refused.text.contains(&format!("value=\"{address}\"")), "it keeps what was typed");
    assert!(!refused.text.contains(&token), "and no secret: {}", refused.text);
    is_refused(&pair("boston", &"0".repeat(32)), 409, "make a new token there");
    // After a wrong token its sender waits.
    let mut paired = None;
    until("the pause is over", || {
        let answer = paired.insert(pair("boston", &token));
        !answer.text.contains("too many wrong tokens")
    });
    let paired = paired.expect("there is an answer");
    assert_eq!(paired.header("location"), "/peers/boston?done=paired", "{}", paired.text);
    until("denver shows the connection", || see(&denver, "/peers/boston").contains(">connected</span>"));
    until("boston shows it", || see(&boston, "/peers/denver").contains(">connected</span>"));
    assert!(see(&denver, "/peers/boston").contains(&address), "{}", see(&denver, "/peers/boston"));
    assert!(see(&denver, "/replication").contains("href=\"/peers/boston\""));
    let third = Site::begin("third", "");
    let late = [("name", "boston"), ("address", &*address), ("token", &*token)];
    is_refused(&browser(&third).post("/peers", "", &late), 409, "make a new token there");

    let part = |typed: &str| at_denver("/peers/boston/unpair", &[("typed", typed)]);
    is_refused(&part(""), 400, "was not typed");
    is_refused(&part("denver"), 400, "nothing was changed");
    assert_eq!(part("boston").header("location"), "/peers?done=unpaired");
    assert!(!see(&denver, "/peers").contains("/peers/boston"));
    assert_eq!(browser(&denver).get("/peers/boston", "").status, 404);
    until("boston's connection ends", || see(&boston, "/peers/denver").contains(">not connected</span>"));
    let audit = done(&boston.bench.run(&["audit", "export", "--state", "state"]));
    assert!(audit.contains("POST /v1/dr/tokens") && !audit.contains(&token), "{audit}");
    assert!(!fs::read_to_string(boston.bench.path("log")).unwrap().contains(&token));
}

#[test]
fn forms_of_pairing_are_for_admins_of_all_pools() {
    let boston = Site::begin("boston", "");
    for (name, options) in [
        ("watcher", &["--role", "read"][..]),
        ("operator", &["--role", "operate"]),
        ("mail-admin", &["--role", "admin", "--pool", "mail"]),
    ] {
        let words = [&["token", "create", name], options, &["--state", "state"]].concat();
        let token = boston.bench.run(&words).stdout;
        let rights = format!("Authorization: Bearer {}\r\n", token.trim());
        let browser = browser(&boston);
        let page = browser.send(&format!("GET /peers HTTP/1.1\r\n{rights}"), "");
        page.check("/peers");
        let forms = page.values("action");
        assert!(forms.is_empty(), "{name}: {forms:?}");
        for (path, body) in [
            ("/pairing-tokens", "minutes=5"),
            ("/peers", "name=denver&address=127.0.0.1&token=0123456789abcdef0123456789abcdef"),
        ] {
            let head = format!(
                "POST {path} HTTP/1.1\r\n{rights}Origin: http://{}\r\nContent-Type: application/x-www-form-urlencoded\r\n",
                browser.address
            );
            let refused = browser.send(&head, body);
            assert_eq!(refused.status, 403, "{name} {path}: {}", refused.text);
        }
    }
}

#[test]
fn a_failover_is_rehearsed_by_forms_and_its_clones_are_reached_where_the_page_says() {
    if !has_clients() {
        return;
    }
    let (boston, denver) = pair("sync");
    boston.io(&["write -P 17 0 1M"]);
    boston.wait_until_confirmed();
    let begin = |site: &Site, state: &str, minutes: &str, hours: &str| {
        let fields = [("state", state), ("idle_minutes", minutes), ("hours", hours)];
        send(site, "rehearsals", &fields)
    };
    let seen = page(&denver).text;
    assert!(seen.contains("No rehearsal here has had an answer yet."), "{seen}");
    assert!(seen.contains("judges nothing") && seen.contains("spindle failover sg1 --rehearse"), "{seen}");
    assert!(!page(&boston).text.contains("/rehearsals"), "a failover is rehearsed at the secondary");
    is_refused(&begin(&boston, "", "30", "8"), 409, "is primary here");
    is_refused(&begin(&denver, "", "30", "0"), 400, "a rehearsal is for 1 s to 7 days");
    is_refused(&begin(&denver, "", "half", "8"), 400, "is no such number");
    let refused = begin(&denver, "monday", "30", "8");
    is_refused(&refused, 409, "there is no state");
    assert!(refused.text.contains("value=\"monday\""), "the form keeps what was typed: {}", refused.text);

    is_done(&begin(&denver, "", "30", "8"), "done=rehearsing#rehearsal");
    let seen = page(&denver);
    let uri = denver.uri_of("sg1-rehearsal-disk");
    assert!(seen.text.contains(&format!("<code>{uri}</code>")), "{uri}: {}", seen.text);
    assert!(seen.text.contains("deleted after 30 min without a client"), "{}", seen.text);
    assert!(!seen.text.contains("Begin a rehearsal"), "{}", seen.text);
    // The clone is written, and replication goes on.
    denver.io_of("sg1-rehearsal-disk", &["read -P 17 0 1M", "write -P 33 0 4k"]);
    boston.io(&["write -P 18 1M 1M"]);
    is_refused(&begin(&denver, "", "30", "8"), 409, "is being rehearsed already");

    let end_of = |page: &Page| {
        page.values("action").into_iter().find(|action| action.ends_with("/end")).expect("a form ends it")
    };
    let end = |typed: &str, outcome: &str| {
        browser(&denver).post(&end_of(&page(&denver)), "", &[("typed", typed), ("outcome", outcome)])
    };
    is_refused(&end("", "passed"), 400, "was not typed");
    is_refused(&end("disk", "passed"), 400, "nothing was changed");
    is_refused(&end("sg1", "good"), 400, "is no answer of a rehearsal");
    assert!(denver.row()["last_rehearsal"].is_null(), "nothing was changed");
    let path = end_of(&page(&denver));
    is_done(&end("sg1", "passed"), "done=rehearsed#rehearsal");
    assert_eq!(denver.row()["last_rehearsal"]["outcome"], "passed");
    assert_eq!(denver.clones_in("mail"), Vec::<String>::new());
    let seen = page(&denver).text;
    assert!(seen.contains(">passed</span>") && seen.contains("Begin a rehearsal"), "{seen}");
    is_refused(&browser(&denver).post(&path, "", &[("typed", "sg1")]), 404, "this rehearsal has ended");

    // Without an answer the last one stays.
    is_done(&begin(&denver, "", "30", "8"), "done=rehearsing#rehearsal");
    denver.io_of("sg1-rehearsal-disk", &["read -P 17 0 1M", "read -P 18 1M 1M"]);
    is_done(&end("sg1", ""), "done=rehearsed#rehearsal");
    assert_eq!(denver.row()["last_rehearsal"]["outcome"], "passed");

    // A kept state, without what came since; a person's answer proves it.
    boston.verb("volume snapshot mail/disk@monday");
    boston.io(&["write -P 19 0 1M"]);
    boston.wait_until_confirmed();
    is_done(&begin(&denver, "monday", "30", "8"), "done=rehearsing#rehearsal");
    denver.io_of("sg1-rehearsal-disk", &["read -P 17 0 1M"]);
    let seen = page(&denver).text;
    assert!(
        seen.contains("as of the kept state monday") && seen.contains("monday counts as proven"),
        "{seen}"
    );
    let group = denver.row()["group"].as_str().unwrap().to_owned();
    let rows = browser(&denver).get(&format!("/v1/dr/groups/{group}/rehearsals"), "").text;
    let row = &json_of(&rows)[0];
    assert_eq!((&row["state"], &row["idle_s"]), (&"monday".into(), &1800.into()), "{row}");
    assert!(row["complete_until"].is_null(), "it is that of the newest state: {row}");
    is_done(&end("sg1", "passed"), "done=rehearsed#rehearsal");
    assert_eq!(denver.row()["last_rehearsal"]["last_proven"], "monday");
    assert!(page(&denver).text.contains("The kept state that was proven last is monday."));

    let words = denver.words("token create operator --role operate");
    let rights = format!("Authorization: Bearer {}\r\n", denver.bench.run(&words).stdout.trim());
    let path = group_path(&denver);
    let page = browser(&denver).send(&format!("GET {path} HTTP/1.1\r\n{rights}"), "");
    page.check(&path);
    assert!(page.text.contains(">passed</span>"), "{}", page.text);
    assert_eq!(page.values("action"), Vec::<String>::new(), "forms are for admins");
}

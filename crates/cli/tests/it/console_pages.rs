//! The web console of a served site, as plain HTTP meets it: pages, their policy, roles, forms.

use crate::{
    browser::{Browser, Page},
    judged_exports::until,
    online_verbs::make_token,
    pool_drives::done,
    sites_served::{SITE, Served},
    spindle::Bench,
};
use std::{collections::BTreeSet, fs};

/// Beside the pools: a way for other sites, an initiator, a schedule and a set.
pub const MORE: &str = "
[replication]
listen = '127.0.0.1:0'
[[initiator]]
name = 'iqn.2004-01.example:exchange1'
uses = ['mail']
[[snapshots]]
name = 'hourly'
groups = ['mail']
every_hours = 1
keep = 24
[[protect]]
set = 'post'
volumes = ['store', 'logs/log']
logs = ['log']
schedules = ['24x1h']
";

/// A server with a console, and a browser without scripts.
pub struct ServedConsole {
    served: Served,
    pub browser: Browser,
}

impl ServedConsole {
    pub fn begin(bench: &Bench, site: &str) -> Self {
        let site = site.replacen("[serve]", "[serve]\napi = '127.0.0.1:0'", 1);
        bench.make_file("site.toml", site.as_bytes());
        let served = Served::begin(bench);
        let log = || fs::read_to_string(bench.path("log")).unwrap();
        let line = "console, for browsers: http://";
        until("the console has an address", || log().contains(line));
        let address = log().split_once(line).unwrap().1.split('/').next().unwrap().to_owned();
        Self { served, browser: Browser::of_port(&address) }
    }

    /// The console of the usual site, with the cookie of an administrator.
    pub fn usual(bench: &Bench) -> (Self, String) {
        let console = Self::begin(bench, &format!("{SITE}{MORE}"));
        let cookie = console.login(bench, "state/admin-token");
        (console, cookie)
    }

    /// Begins a session with the token in a file, and returns its cookie.
    pub fn login(&self, bench: &Bench, token_file: &str) -> String {
        let token = fs::read_to_string(bench.path(token_file)).unwrap();
        let page = self.post("/login", "", &[("token", token.trim()), ("next", "/volumes")]);
        assert_eq!((page.status, page.header("location")), (303, "/volumes"), "{}", page.text);
        let cookie = page.header("set-cookie");
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        cookie.split(';').next().unwrap().to_owned()
    }

    pub fn get(&self, path: &str, cookie: &str) -> Page {
        self.browser.get(path, cookie)
    }

    /// Sends a form as a browser does that shows a page of this server.
    pub fn post(&self, path: &str, cookie: &str, fields: &[(&str, &str)]) -> Page {
        self.browser.post(path, cookie, fields)
    }

    pub fn end(self) {
        self.served.end();
    }

    /// The URI of a service, by its end.
    pub fn uri(&self, end: &str) -> &str {
        self.served.uri(end)
    }

    /// UUID of a volume, from the list of volumes.
    pub fn volume(&self, cookie: &str, name: &str) -> String {
        let list = self.get("/volumes?search=", cookie).text;
        let link = list.split("href=\"/volumes/").find(|part| part.contains(&format!(">{name}</a>")));
        link.unwrap_or_else(|| panic!("{name}: {list}")).split('"').next().unwrap().to_owned()
    }
}

/// Follows all links from the overview, and calls `look` with each page.
pub fn crawl(console: &ServedConsole, cookie: &str, mut look: impl FnMut(&str, &Page)) -> BTreeSet<String> {
    let mut known = BTreeSet::from(["/".to_owned()]);
    let mut waiting = vec!["/".to_owned()];
    while let Some(path) = waiting.pop() {
        let page = console.get(&path, cookie);
        look(&path, &page);
        for link in page.values("href") {
            let link = link.split('#').next().unwrap().to_owned();
            let is_page = link.starts_with('/') && !link.starts_with("/v1/") && !link.starts_with("/assets/");
            if is_page && known.insert(link.clone()) {
                waiting.push(link);
            }
        }
    }
    known
}

#[test]
fn every_page_of_the_console_keeps_to_its_policy_and_is_small() {
    let bench = Bench::new();
    let (console, cookie) = ServedConsole::usual(&bench);
    let found = crawl(&console, &cookie, |path, page| page.check(path));
    for path in [
        "/pools",
        "/volumes",
        "/targets",
        "/sessions",
        "/schedules",
        "/sets",
        "/replication",
        "/peers",
        "/reports",
        "/access",
        "/access/admin",
        "/initiators/iqn.2004-01.example%3Aexchange1",
        "/jobs",
        "/events",
        "/site",
        "/advice",
        "/api",
        "/sets/post",
        "/schedules/hourly",
        "/targets/mail",
        "/exports/store",
        "/api/VolumeEntry",
    ] {
        assert!(found.contains(path), "no page links to {path}: {found:?}");
    }
    for (part, count) in [("/drives/", 4), ("/segments?look=yes", 2), ("/performance?span=day", 4)] {
        assert_eq!(found.iter().filter(|path| path.contains(part)).count(), count, "{part}: {found:?}");
    }
    let page = console.get("/", &cookie);
    for asset in
        page.values("href").into_iter().chain(page.values("src")).filter(|link| link.starts_with("/assets"))
    {
        let got = console.get(&asset, "");
        assert_eq!(got.status, 200, "{asset}");
        assert!(!got.text.contains("http://") || asset.ends_with(".svg"), "{asset} names another server");
    }
    let missing = console.get("/volumes/00000000-0000-0000-0000-000000000000", &cookie);
    assert_eq!(missing.status, 404);
    assert!(missing.text.contains("<h1>Not Found</h1>"), "a page says so: {}", missing.text);
    let strange = console
        .browser
        .send(&format!("GET /strange HTTP/1.1\r\nCookie: {cookie}\r\nAccept: text/html\r\n"), "");
    assert!(
        strange.status == 404 && strange.text.contains("there is nothing at /strange"),
        "{}",
        strange.text
    );
    for path in ["/v1/nothing", "/strange"] {
        let problem = console.get(path, &cookie);
        assert_eq!(
            (problem.status, problem.header("content-type")),
            (404, "application/problem+json"),
            "{path}"
        );
    }
    let form = console.get("/site/plan", &cookie);
    assert!(form.status == 405 && form.text.contains("takes a form"), "{}", form.text);
    console.end();
}

#[test]
fn without_a_session_a_page_leads_to_the_login_and_back() {
    let bench = Bench::new();
    let console = ServedConsole::begin(&bench, SITE);
    let page = console.get("/volumes?search=a", "");
    assert_eq!((page.status, page.header("location")), (303, "/login?next=%2Fvolumes%3Fsearch%3Da"));
    let login = console.get(page.header("location"), "");
    login.check("/login");
    assert_eq!(login.field("/login", "next"), "/volumes?search=a");
    let refused = console.post("/login", "", &[("token", "spindle_wrong"), ("next", "/")]);
    assert_eq!((refused.status, refused.header("set-cookie")), (401, ""));
    assert!(refused.text.contains("the token is unknown or has expired"), "{}", refused.text);
    let token = fs::read_to_string(bench.path("state/admin-token")).unwrap();
    let login = [("token", token.trim()), ("next", "//elsewhere.example")];
    assert_eq!(console.post("/login", "", &login).header("location"), "/", "it leads to no other server");
    let strange = console.browser.post_from("http://elsewhere.example", "/login", "", &login);
    assert_eq!((strange.status, strange.header("set-cookie")), (403, ""));

    let cookie = console.login(&bench, "state/admin-token");
    assert_eq!(console.get("/volumes", &cookie).status, 200);
    assert_eq!(console.browser.post_from("http://elsewhere.example", "/logout", &cookie, &[]).status, 403);
    assert_eq!(console.post("/logout", &cookie, &[]).header("location"), "/login");
    assert_eq!(console.get("/volumes", &cookie).status, 303, "it has ended");
    console.end();
}

#[test]
fn a_reader_sees_no_forms_and_changes_nothing() {
    let bench = Bench::new();
    let console = ServedConsole::begin(&bench, &format!("{SITE}{MORE}"));
    make_token(&bench, "reader", &["--role", "read"]);
    let cookie = console.login(&bench, "reader");
    crawl(&console, &cookie, |path, page| {
        page.check(path);
        let actions: Vec<String> =
            page.values("action").into_iter().filter(|action| action != "/logout").collect();
        let search = if path.starts_with("/volumes") && !path.starts_with("/volumes/") { 1 } else { 0 };
        assert_eq!(actions.len(), search, "{path}: {actions:?}");
    });
    let pool = console.get("/volumes", &cookie).text;
    let pool = pool.split("<option value=\"").nth(2).unwrap().split('"').next().unwrap().to_owned();
    let fields = [("pool", &*pool), ("name", "x"), ("size", "1"), ("size_unit", "MiB")];
    let refused = console.post("/volumes", &cookie, &fields);
    assert_eq!(refused.status, 403);
    assert!(refused.text.contains("it takes the role operate"), "the API's words: {}", refused.text);

    // A token for one pool does not see the other, and no page fails.
    make_token(&bench, "logs-only", &["--role", "admin", "--pool", "logs"]);
    let cookie = console.login(&bench, "logs-only");
    crawl(&console, &cookie, |path, page| {
        assert!(page.status == 200 || (path, page.status) == ("/site", 403), "{path}: {}", page.text);
        assert!(!page.text.contains("mail/store"), "{path}: {}", page.text);
    });
    console.end();
}

#[test]
fn a_volume_is_made_snapshotted_and_deleted_by_its_typed_name_alone() {
    let bench = Bench::new();
    let console = ServedConsole::begin(&bench, SITE);
    let cookie = console.login(&bench, "state/admin-token");
    let list = console.get("/volumes", &cookie);
    let pool = list.text.split(">logs</option>").next().unwrap().rsplit("value=\"").next().unwrap();
    let pool = pool.split('"').next().unwrap().to_owned();
    let key = list.field("/volumes", "key");
    let create = |name: &str| {
        let fields = [("key", &*key), ("pool", &pool), ("name", name), ("size", "1.5"), ("size_unit", "MiB")];
        console.post("/volumes", &cookie, &fields)
    };
    let made = create("new");
    assert_eq!(made.status, 303, "{}", made.text);
    assert_eq!(create("new").header("location"), made.header("location"), "sent twice, it is made once");
    let path = made.header("location").split('?').next().unwrap().to_owned();
    assert_eq!(path, format!("/volumes/{}", console.volume(&cookie, "logs/new")));
    let page = console.get(made.header("location"), &cookie);
    assert!(page.text.contains("It was created.") && page.text.contains("1.50 MiB"), "{}", page.text);
    let refused = console.post(
        "/volumes",
        &cookie,
        &[("pool", &pool), ("name", "log"), ("size", "x"), ("size_unit", "MiB")],
    );
    assert_eq!(refused.status, 400);
    assert!(refused.text.contains("value=\"log\""), "the form keeps what was typed: {}", refused.text);

    let change =
        |what: &str, fields: &[(&str, &str)]| console.post(&format!("{path}{what}"), &cookie, fields);
    assert_eq!(change("/change/size", &[("size", "3"), ("size_unit", "MiB")]).status, 303);
    let shrink = [("size", "1"), ("size_unit", "MiB"), ("may_shrink", "on")];
    let refused = change("/change/size", &shrink);
    assert!(refused.status == 400 && refused.text.contains("was not typed"), "{}", refused.text);
    let refused = change("/change/size", &shrink[..2]);
    assert!(refused.status == 409 && refused.text.contains("would be lost"), "{}", refused.text);
    assert!(refused.text.contains("shrink"), "the next step: {}", refused.text);
    let set = [("iops_max", "500"), ("kib_per_second_max", "0"), ("write_cache", "on")];
    assert_eq!(change("/change/settings", &set).status, 303);
    assert!(console.get(&path, &cookie).text.contains("500 IOPS"));

    assert_eq!(change("/snapshots", &[("name", "first <b>"), ("note", "before")]).status, 303);
    let page = console.get(&path, &cookie);
    assert!(page.text.contains("class=\"timeline\"") && !page.text.contains("first <b>"), "{}", page.text);
    let refused = change("/delete", &[("typed", "logs/new")]);
    assert!(refused.status == 409 && refused.text.contains("snapshot"), "it has one: {}", refused.text);
    let link = page.values("href").into_iter().find(|link| link.contains("/snapshots/")).unwrap();
    for typed in ["", "first"] {
        let refused = console.post(&format!("{link}/delete"), &cookie, &[("typed", typed)]);
        assert_eq!(refused.status, 400, "{typed:?}: {}", refused.text);
        assert!(refused.text.contains("nothing was changed"), "{}", refused.text);
    }
    let clone = [("snapshot", "first <b>"), ("name", "copy")];
    assert!(change("/clones", &clone).header("location").ends_with("done=cloned"));
    let back = console.post(&format!("{link}/rollback"), &cookie, &[("typed", "logs/new")]);
    assert!(back.header("location").ends_with("done=rolled-back"), "{}", back.text);
    let refused = console.browser.post_from(
        "http://elsewhere.example",
        &format!("{path}/delete"),
        &cookie,
        &[("typed", "logs/new")],
    );
    assert_eq!(refused.status, 403, "a form of another page: {}", refused.text);
    let copy = console.volume(&cookie, "logs/copy");
    for (typed, status) in [("", 400), ("copy", 400), ("logs/copy", 303)] {
        let page = console.get(&format!("/volumes/{copy}"), &cookie);
        let tag = page.field(&format!("/volumes/{copy}/delete"), "tag");
        let gone =
            console.post(&format!("/volumes/{copy}/delete"), &cookie, &[("typed", typed), ("tag", &tag)]);
        assert_eq!(gone.status, status, "{typed:?}: {}", gone.text);
    }
    assert_eq!(console.get(&format!("/volumes/{copy}"), &cookie).status, 404);
    let audit = done(&bench.run(&["audit", "export", "--state", "state"]));
    assert!(audit.contains("token admin") && audit.contains("DELETE /v1/volumes/"), "{audit}");
    console.end();
}

#[test]
fn rows_of_the_site_are_made_and_deleted_and_a_plan_is_applied_as_it_was_read() {
    let bench = Bench::new();
    let console = ServedConsole::begin(&bench, SITE);
    let cookie = console.login(&bench, "state/admin-token");
    let post = |path: &str, fields: &[(&str, &str)]| console.post(path, &cookie, fields);
    let made = post("/exports", &[("export_name", "second"), ("export_volume", "mail/store")]);
    assert_eq!(made.header("location"), "/targets?done=export", "{}", made.text);
    let made = post("/targets", &[("name", "logs"), ("volume", "logs/log"), ("open", "on")]);
    assert_eq!(made.header("location"), "/targets?done=target", "{}", made.text);
    let page = console.get("/targets", &cookie).text;
    assert!(page.contains("every initiator") && page.contains(">second</a>"), "{page}");
    assert_eq!(post("/targets/logs/delete", &[("typed", "log")]).status, 400);
    assert_eq!(post("/targets/logs/delete", &[("typed", "logs")]).status, 303);
    assert_eq!(post("/exports/second/delete", &[("typed", "second")]).status, 303);
    let daily = [("name", "daily"), ("every_hours", "24"), ("at", "02:00"), ("keep", "7"), ("pools", "mail")];
    assert_eq!(post("/schedules", &daily).header("location"), "/schedules?done=schedule");
    assert!(console.get("/schedules/daily", &cookie).text.contains("every 1 d, at 02:00"));

    let text = console.get("/site", &cookie).text;
    let text = text
        .split("<textarea")
        .nth(1)
        .unwrap()
        .split_once('>')
        .unwrap()
        .1
        .split("</textarea>")
        .next()
        .unwrap();
    let text = text.replace("&#34;", "\"").replace("&#39;", "'").replace("&#38;", "&");
    assert!(text.contains("daily"), "{text}");
    let same = post("/site/plan", &[("text", &text)]);
    assert!(same.text.contains("would change nothing"), "{}", same.text);
    let wanted = format!(
        "{}\n[[volume]]\nname = 'third'\ngroup = 'logs'\ngb = 0.001953125\n[[nbd]]\nname = 'third'\nvolume = 'logs/third'\n",
        text.trim()
    );
    let plan = post("/site/plan", &[("text", &wanted.replace('\n', "\r\n"))]);
    assert!(plan.text.contains("third") && plan.text.contains(">create</span>"), "{}", plan.text);
    let tag = plan.field("/site/apply", "tag");
    let stale = post("/site/apply", &[("text", &wanted), ("tag", "\"0\"")]);
    assert_eq!(stale.status, 409);
    assert!(stale.text.contains("the plan has changed since you read it"), "{}", stale.text);
    assert!(!console.get("/targets", &cookie).text.contains("third"), "nothing was applied");
    let applied = post("/site/apply", &[("text", &wanted), ("tag", &tag)]);
    assert_eq!(applied.header("location"), "/site?done=applied", "{}", applied.text);
    assert!(console.get("/targets", &cookie).text.contains("third"));
    let wrong = post("/site/plan", &[("text", "[[volum]]")]);
    assert!(wrong.status == 409 && wrong.text.contains("line 1"), "{}: {}", wrong.status, wrong.text);
    console.end();
}

#[test]
fn many_volumes_come_in_pages_and_are_found_by_a_part_of_their_name() {
    let bench = Bench::new();
    let volumes: String = (0..230)
        .map(|number| format!("[[volume]]\nname = 'box{number:03}'\ngroup = 'mail'\ngb = 0.0009765625\n"))
        .collect();
    let console = ServedConsole::begin(&bench, &format!("{SITE}{volumes}"));
    let cookie = console.login(&bench, "state/admin-token");
    let rows = |page: &Page| page.text.matches("<th scope=\"row\">").count();
    let first = console.get("/volumes", &cookie);
    first.check("/volumes");
    assert_eq!(rows(&first), 100);
    let mut names = first.text.matches("mail/box").count();
    let mut page = first;
    while let Some(next) =
        page.values("href").into_iter().find(|link| link.contains("after=") && !link.ends_with("after="))
    {
        page = console.get(&next, &cookie);
        page.check(&next);
        names += page.text.matches("mail/box").count();
    }
    assert_eq!(names, 230, "each on one page");
    let found = console.get("/volumes?search=BOX22", &cookie);
    assert_eq!(rows(&found), 10);
    assert_eq!(rows(&console.get("/volumes?search=logs%2F", &cookie)), 1);
    let nothing = console.get("/volumes?search=%3Cb%3E", &cookie);
    assert!(nothing.text.contains("No volume fits.") && !nothing.text.contains("<b>"), "{}", nothing.text);
    console.end();
}

//! The API over TLS, and sessions of browsers, as curl and our own client meet them.

use crate::{
    exported::{is_here, judged, text},
    exports_tls::Authority,
    judged_exports::until,
    pool_drives::done,
    sites_served::{SITE, Served},
    spindle::Bench,
};
use std::{fs, thread, time::Duration};

/// A server whose API has certificates, and its address.
fn served_over_tls(bench: &Bench, authority: &Authority) -> (Served, String) {
    authority.folder(bench, "certificates", "server");
    // With it, callers would need certificates.
    fs::rename(bench.path("certificates/ca-cert.pem"), bench.path("ca-cert.pem")).unwrap();
    served(bench, "api = '127.0.0.1:0'\napi_tls = 'certificates'\nnbd_tls = 'certificates'")
}

fn served(bench: &Bench, keys: &str) -> (Served, String) {
    bench.make_file("site.toml", SITE.replacen("[serve]", &format!("[serve]\n{keys}"), 1).as_bytes());
    let served = Served::begin(bench);
    for _ in 0..1_000 {
        let log = fs::read_to_string(bench.path("log")).unwrap();
        if let Some((_, rest)) = log.split_once("API: https://")
            && let Some((address, _)) = rest.split_once('/')
        {
            return (served, address.to_owned());
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{}", fs::read_to_string(bench.path("log")).unwrap());
}

/// curl's exit code, and the status and body that it got.
fn curl(bench: &Bench, arguments: &[&str]) -> (i32, String) {
    let common = ["--silent", "--show-error", "--max-time", "20", "--write-out", "%{http_code}"];
    let authority = text(&bench.path("ca-cert.pem"));
    let output = judged("curl", &[&common[..], &["--cacert", authority.as_str()], arguments].concat());
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn curl_reaches_the_api_over_tls_alone() {
    if !is_here("curl", "curl") {
        return;
    }
    let bench = Bench::new();
    let (served, address) = served_over_tls(&bench, &Authority::called("ours"));
    let url = format!("https://{address}/healthz");
    assert_eq!(curl(&bench, &[&url]), (0, "ok\n200".to_owned()));
    assert_eq!(curl(&bench, &["--tls-max", "1.2", &url]), (0, "ok\n200".to_owned()));
    let (code, _) = curl(&bench, &[&url.replace("https", "http")]);
    assert_ne!(code, 0, "nothing is answered in the clear");
    fs::copy(bench.path("certificates/server-cert.pem"), bench.path("theirs.pem")).unwrap();
    let stranger = judged("curl", &["--silent", "--max-time", "20", &url]);
    assert_eq!(stranger.status.code(), Some(60), "nobody here trusts the authority");
    served.end();
}

#[test]
fn a_browsers_session_has_the_rights_of_its_token_until_that_is_deleted() {
    if !is_here("curl", "curl") {
        return;
    }
    let bench = Bench::new();
    let (served, address) = served_over_tls(&bench, &Authority::called("ours"));
    let token = done(&bench.run(&["token", "create", "desk", "--role", "operate", "--state", "state"]));
    let (url, jar) = (format!("https://{address}/v1"), text(&bench.path("jar")));
    let begin = |token: &str| {
        let body = format!("{{\"token\": \"{token}\"}}");
        let (session, json) = (format!("{url}/session"), "Content-Type: application/json");
        curl(&bench, &["--cookie-jar", &jar, "--header", json, "--data", &body, &session])
    };
    let (_, refused) = begin("spindle_wrong");
    assert!(refused.ends_with("401"), "{refused}");
    let (_, begun) = begin(token.trim());
    assert!(begun.contains("\"token desk\"") && begun.ends_with("201"), "{begun}");
    let kept = fs::read_to_string(&jar).unwrap();
    let line = kept.lines().find(|line| line.contains("spindle_session")).expect(&kept);
    let fields: Vec<&str> = line.split('\t').collect();
    assert!(line.starts_with("#HttpOnly_") && fields[3] == "TRUE", "not for scripts, over TLS alone: {line}");
    assert!(!kept.contains(token.trim()));

    let with_cookie = |arguments: &[&str]| curl(&bench, &[&["--cookie", jar.as_str()], arguments].concat()).1;
    let volumes = format!("{url}/volumes");
    assert!(with_cookie(&[&volumes]).ends_with("200"));
    let log = with_cookie(&[&format!("{url}/pools?name=logs")]);
    let pool = log.split("\"id\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect(&log);
    let body = "{\"name\": \"x\", \"size_bytes\": 1048576}";
    let of_pool = format!("{url}/pools/{pool}/volumes");
    let json = ["--header", "Content-Type: application/json", "--data", body];
    let create = |origin: &str| {
        let origin = format!("Origin: {origin}");
        with_cookie(&[&json[..], &["--header", &origin, &of_pool]].concat())
    };
    let refused = with_cookie(&[&json[..], &[&of_pool]].concat());
    assert!(refused.ends_with("403"), "no page says so: {refused}");
    let refused = create("https://elsewhere.example");
    assert!(refused.ends_with("403"), "{refused}");
    let made = create(&format!("https://{address}"));
    assert!(made.ends_with("201"), "{made}");
    let audit = done(&bench.run(&["audit", "export", "--state", "state"]));
    assert!(audit.contains("token desk") && !audit.contains("elsewhere"), "{audit}");

    done(&bench.run(&["token", "delete", "desk", "--state", "state"]));
    assert!(with_cookie(&[&volumes]).ends_with("401"));
    served.end();
}

#[test]
fn verbs_reach_a_server_whose_certificate_they_trust() {
    let bench = Bench::new();
    let (ours, theirs) = (Authority::called("ours"), Authority::called("theirs"));
    ours.folder(&bench, "certificates", "server");
    let (served, address) = served(&bench, "api = '127.0.0.1:0'\napi_tls = 'certificates'");
    ours.folder(&bench, "mine", "client");
    theirs.folder(&bench, "strange", "client");
    let server = format!("https://{address}");
    let create = |name: &str, more: &[&str]| {
        let common = ["volume", "create", name, "1MiB", "--token-file", "state/admin-token", "--server"];
        bench.run(&[&common[..], more].concat())
    };
    let said = done(&create("logs/x", &[&server, "--server-tls", "mine"]));
    assert_eq!(said, "logs/x: a volume of 1.00 MiB\n");
    for (more, problem) in [
        (vec![server.as_str(), "--server-tls", "strange"], "no TLS: invalid peer certificate"),
        (vec![&server], "no TLS: invalid peer certificate"),
        (vec![&address, "--server-tls", "mine"], "--server-tls is for TLS; say --server https://HOST:PORT"),
        (vec![&address], &format!("the server at {address}:")),
    ] {
        let said = create("logs/y", &more);
        assert_eq!(said.code, Some(2), "{more:?}: {}", said.stderr);
        assert!(said.stderr.contains(problem), "{more:?}: {}", said.stderr);
    }
    // A caller's certificate is asked for, and one of another authority is no caller's.
    fs::copy(bench.path("mine/ca-cert.pem"), bench.path("strange/ca-cert.pem")).unwrap();
    let said = create("logs/y", &[&server, "--server-tls", "strange"]);
    assert_eq!(said.code, Some(2), "{}", said.stderr);
    // The caller hears of it before the server says so.
    let log = || fs::read_to_string(bench.path("log")).unwrap();
    until("the server says who was refused", || log().contains("loopback: no TLS: invalid peer certificate"));
    served.end();
}

#[test]
fn renewed_certificates_count_from_the_next_apply_on() {
    if !is_here("curl", "curl") || !is_here("nbdinfo", "libnbd-bin") {
        return;
    }
    let bench = Bench::new();
    let (mut served, address) = served_over_tls(&bench, &Authority::called("ours"));
    let export = served.uri("/store").to_owned();
    assert!(export.starts_with("nbds://"));
    // A folder of the client's: it has the newer authority alone.
    let reads = |bench: &Bench| {
        let folder = bench.make_folder("trusted");
        fs::copy(bench.path("ca-cert.pem"), folder.join("ca-cert.pem")).unwrap();
        let uri = format!("{export}?tls-certificates={}", text(&folder));
        judged("nbdinfo", &["--size", &uri]).status.success()
    };
    assert!(reads(&bench));
    let renewed = Authority::called("next");
    renewed.folder(&bench, "certificates", "server");
    fs::rename(bench.path("certificates/ca-cert.pem"), bench.path("ca-cert.pem")).unwrap();
    let url = format!("https://{address}/healthz");
    assert_eq!(curl(&bench, &[&url]).0, 60, "the old one is shown");
    assert!(!reads(&bench));
    served.apply_again(&bench);
    assert_eq!(curl(&bench, &[&url]), (0, "ok\n200".to_owned()));
    fs::write(bench.path("certificates/server-key.pem"), "nothing").unwrap();
    let said = bench.run(&["apply", "site.toml", "--state", "state"]);
    assert!(said.code == Some(2) && said.stderr.contains("the private key"), "{}", said.stderr);
    assert_eq!(curl(&bench, &[&url]), (0, "ok\n200".to_owned()), "what is served stays");
    assert!(reads(&bench));
    served.end();
}

#[test]
fn other_machines_are_served_without_tls_only_if_the_file_says_so() {
    let bench = Bench::new();
    let with = |keys: &str| SITE.replacen("[serve]", &format!("[serve]\n{keys}"), 1);
    bench.make_file("site.toml", with("api = '0.0.0.0:0'").as_bytes());
    let said = bench.run(&["apply", "site.toml", "--state", "state"]);
    assert_eq!(said.code, Some(2));
    assert!(
        said.stderr.contains("tokens would pass the network in the clear; give api_tls"),
        "{}",
        said.stderr
    );
    bench.make_file("site.toml", with("api = '0.0.0.0:0'\napi_insecure = true").as_bytes());
    let served = Served::begin(&bench);
    let log = || fs::read_to_string(bench.path("log")).unwrap();
    until("it says so", || log().contains("tokens pass the network in the clear (api_insecure)"));
    served.end();
}

//! The dashboard and the alert rules: against the table of metrics, before promtool, and in Debian's Prometheus, which
//! scrapes a simulated pool.

use crate::{
    dr_views::with_groups,
    metrics::{MeteredPool, with_pool, write},
};
use control::metrics::{MetricsFormat, MetricsSetting, NamedFigures, families, render_site};
use std::{
    cell::RefCell,
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    rc::Rc,
    thread,
    time::Duration,
};
use world::{Buffer, ByteOffset};

fn monitoring(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/monitoring")).join(name)
}

/// Names of metrics in a text.
fn named(text: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !is_part(c)).filter(|word| word.starts_with("spindle_")).collect()
}

#[test]
fn the_dashboard_and_the_rules_use_metrics_of_the_table() {
    let known: Vec<String> = families()
        .flat_map(|family| {
            let name = family.sample_name();
            ["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")).into_iter().chain([name])
        })
        .collect();
    for file in ["spindle-dashboard.json", "spindle-alerts.yml", "spindle-alerts-test.yml"] {
        let text = fs::read_to_string(monitoring(file)).unwrap();
        let used = named(&text);
        assert!(used.len() > 10, "{file} uses metrics");
        for name in used {
            assert!(known.iter().any(|known| known == name), "{file}: there is no {name}");
        }
    }
}

/// Titles of panels that show nothing while nothing is wrong or under way.
const EMPTY: [&str; 3] = ["Jobs under way", "Errors of hosts", "Errors of drives"];

/// Titles and expressions of all panels.
fn expressions() -> Vec<(String, String)> {
    let text = fs::read_to_string(monitoring("spindle-dashboard.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    // As Grafana replaces them.
    let plain = |text: &str| text.replace("$__rate_interval", "5s").replace("$pool", ".*");
    let mut expressions = Vec::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().into_iter().flatten() {
            expressions.push((title.to_owned(), plain(target["expr"].as_str().unwrap())));
        }
    }
    expressions
}

/// True if a judge is installed. If not, prints a line, and fails where judges are required.
fn is_here(program: &str, package: &str) -> bool {
    let here = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    let required = std::env::var_os("SPINDLE_JUDGES").is_some_and(|value| value == "require");
    assert!(here || !required, "{program} is required: apt-get install {package}");
    if !here {
        println!("skipped: {program} is not installed (apt-get install {package})");
    }
    here
}

#[track_caller]
fn promtool(arguments: &[&str], input: Option<&str>) {
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(monitoring(""));
    if let Some(input) = input {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), input).unwrap();
        command.stdin(fs::File::open(file.path()).unwrap());
    }
    let output = command.output().unwrap();
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "promtool {arguments:?}: {said}{complaint}");
    assert!(complaint.is_empty(), "promtool {arguments:?}: {complaint}");
}

#[test]
fn promtool_accepts_metrics_rules_and_expressions() {
    if !is_here("promtool", "prometheus") {
        return;
    }
    with_pool(
        |_| (),
        |world, drives| async move {
            let mut pool = MeteredPool::make(&world, &drives).await;
            write(&pool.store, 20, 8192).await;
            pool.pool.scrub().await.unwrap();
            promtool(&["check", "metrics"], Some(&pool.rendered(MetricsFormat::Classic).await));
            let groups =
                render_site(with_groups(Vec::new()), &MetricsSetting::default(), MetricsFormat::Classic);
            promtool(&["check", "metrics"], Some(&groups));
        },
    );
    promtool(&["check", "rules", "spindle-alerts.yml"], None);
    promtool(&["test", "rules", "spindle-alerts-test.yml"], None);
    // An expression is checked as a recording rule.
    let rules: Vec<_> = (0..).zip(expressions()).map(|(number, (_, expr)): (u32, _)| {
        serde_json::json!({ "record": format!("panel:{number}"), "expr": expr })
    }).collect();
    assert!(rules.len() > 10);
    let groups = serde_json::json!({ "groups": [{ "name": "panels", "rules": rules }] });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("panels.json");
    fs::write(&file, groups.to_string()).unwrap();
    promtool(&["check", "rules", file.to_str().unwrap()], None);
}

/// A program that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The port that a program says it listens at, in a line with these words before it.
fn port(output: impl Read + Send + 'static, before: &str) -> u16 {
    let mut lines = BufReader::new(output).lines();
    let port = lines.by_ref().map(Result::unwrap).find_map(|line| {
        let (_, after) = line.split_once(before)?;
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    // A program whose pipe is full would wait.
    thread::spawn(move || lines.for_each(drop));
    port.expect("it listens")
}

/// Metrics of a pool that is used, a moment after each other; beside it one that is not open.
fn used_pool() -> Vec<String> {
    let texts = Rc::new(RefCell::new(Vec::new()));
    let all = Rc::clone(&texts);
    with_pool(
        |_| (),
        |world, drives| async move {
            let mut pool = MeteredPool::make(&world, &drives).await;
            for _ in 0..8 {
                write(&pool.store, 20, 8192).await;
                pool.pool.checkpoint().await.unwrap();
                for number in 0..20 {
                    pool.store.read(ByteOffset(number * 8192), vec![Buffer::zeroed(8192)]).await.unwrap();
                }
                let open = NamedFigures { pool: "mail".to_owned(), figures: Some(pool.figures().await) };
                let stopped = NamedFigures { pool: "archive".to_owned(), figures: None };
                let site = with_groups(vec![open, stopped]);
                let text = render_site(site, &MetricsSetting::default(), MetricsFormat::Classic);
                all.borrow_mut().push(text);
            }
        },
    );
    texts.take()
}

#[test]
fn prometheus_scrapes_and_every_panel_gets_an_answer() {
    let are_here = [("prometheus", "prometheus"), ("promtool", "prometheus"), ("python3", "python3")];
    if !are_here.map(|(program, package)| is_here(program, package)).iter().all(|here| *here) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let show = |text: &str| {
        fs::write(folder.path().join("next"), text).unwrap();
        fs::rename(folder.path().join("next"), folder.path().join("metrics")).unwrap();
    };
    let texts = used_pool();
    show(&texts[0]);
    let serve = ["-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "-d"];
    let mut web = Command::new("python3");
    web.args(serve).arg(folder.path()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut web = Server(web.spawn().unwrap());
    let web_port = port(web.0.stdout.take().unwrap(), " port ");
    let (mut prometheus, own_port) = prometheus(folder.path(), web_port);
    for text in &texts {
        show(text);
        thread::sleep(Duration::from_secs(1));
    }
    let server = format!("http://127.0.0.1:{own_port}");
    let ask = |expr: &str| {
        let output = Command::new("promtool").args(["query", "instant", &server, expr]).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{expr}: {complaint}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(ask("up{job=\"spindle\"}").contains("=> 1 "), "it scrapes");
    for (title, expr) in expressions() {
        let answer = ask(&expr);
        assert!(!answer.trim().is_empty() || EMPTY.contains(&&*title), "{title}: nothing for {expr}");
    }
    assert_eq!(prometheus.0.try_wait().unwrap(), None, "it runs");
}

/// Prometheus that scrapes a port of this host once a second, and its own port.
fn prometheus(folder: &Path, web_port: u16) -> (Server, u16) {
    let config = format!(
        "global: {{ scrape_interval: 1s }}\nrule_files: [{:?}]\nscrape_configs:\n\
         - {{ job_name: spindle, static_configs: [ {{ targets: [\"127.0.0.1:{web_port}\"] }} ] }}\n",
        fs::canonicalize(monitoring("spindle-alerts.yml")).unwrap(),
    );
    fs::write(folder.join("prometheus.yml"), config).unwrap();
    let mut command = Command::new("prometheus");
    command
        .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
        .arg("--web.listen-address=127.0.0.1:0")
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut server = Server(command.spawn().unwrap());
    let port = port(server.0.stderr.take().unwrap(), "msg=\"Listening on\" address=127.0.0.1:");
    (server, port)
}

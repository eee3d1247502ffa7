//! `spindle power` under NUT itself: its `dummy-ups` plays the supply, its `upsmon` calls the script of docs/verbs/power.md, as the
//! user that Debian's package makes for it.

use crate::{
    exported::is_here,
    pool_drives::done,
    sites_served::Served,
    spindle::{Bench, PROGRAM, json_of},
    storage::may_mount,
};
use std::{
    fs,
    net::TcpListener,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/verbs/power.md");
/// NUT looks at its supply once a second or two.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program of NUT, ended when dropped.
struct Nut(Child);

impl Nut {
    fn begin(program: &str, arguments: &[&str], folder: &Path) -> Self {
        let mut command = Command::new(program);
        for name in ["NUT_CONFPATH", "NUT_STATEPATH", "NUT_PIDPATH", "NUT_ALTPIDPATH"] {
            command.env(name, folder);
        }
        let log = fs::File::create(folder.join("nut.log")).unwrap();
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        command.args(arguments).env("PATH", path).process_group(0);
        Self(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }
}

impl Drop for Nut {
    fn drop(&mut self) {
        // upsmon has a second process, which is not ended with the first.
        Command::new("kill").args(["--", &format!("-{}", self.0.id())]).status().unwrap();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The fenced block of the page that has `word`.
fn block_of(page: &str, word: &str) -> String {
    let blocks = page.split("```").skip(1).step_by(2);
    let block = blocks.filter(|block| block.contains(word)).last().unwrap();
    block.split_once('\n').unwrap().1.to_owned()
}

fn make(path: PathBuf, text: &str, mode: u32) -> PathBuf {
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

#[test]
fn nut_tells_a_battery_that_begins_ends_and_runs_low_at_once() {
    // As root, so that upsmon becomes the user of its package, as it does on a server.
    if !may_mount() || !is_here("upsc", "nut-client") || !is_here("upsd", "nut-server") {
        return;
    }
    let (api, port) = (format!("127.0.0.1:{}", free_port()), free_port());
    let bench = Bench::new();
    bench.make_file(
        "site.toml",
        format!("[serve]\napi = '{api}'\n[[group]]\nname = 'mail'\ndrives = 2\ndrive_gb = 0.11\n").as_bytes(),
    );
    let served = Served::begin(&bench);
    let power = || json_of(&done(&bench.run(&["power", "--json", "--state", "state"])))["power"].clone();

    // The folder of NUT, which its user can enter, unlike ours.
    let folder = tempfile::tempdir().unwrap();
    let nut = folder.path();
    fs::set_permissions(nut, fs::Permissions::from_mode(0o777)).unwrap();
    fs::copy(PROGRAM, nut.join("spindle")).unwrap();
    let token = done(&bench.run(&["token", "create", "nut", "--role", "operate", "--state", "state"]));
    let token_file = make(nut.join("token"), &token, 0o600);
    let ours = |text: String| {
        let text = text.replace("/etc/nut/spindle-token", token_file.to_str().unwrap());
        let text = text.replace("/usr/local/sbin/spindle-power", nut.join("notify").to_str().unwrap());
        text.replace("127.0.0.1:7780", &api).replace("FINALDELAY 30", "FINALDELAY 1")
    };
    let page = fs::read_to_string(PAGE).unwrap();
    make(nut.join("notify"), &ours(block_of(&page, "NOTIFYTYPE")), 0o755);
    let monitor = format!(
        "MONITOR ups@127.0.0.1:{port} 1 us secret primary\nPOLLFREQ 1\nPOLLFREQALERT 1\nPOWERDOWNFLAG {0}/off\n\
         SHUTDOWNCMD \"touch {0}/is-shut-down\"\n",
        nut.display()
    );
    make(nut.join("upsmon.conf"), &(monitor + &ours(block_of(&page, "NOTIFYCMD /usr"))), 0o640);
    let supply = nut.join("supply.dev");
    let ups = format!(
        "pollinterval = 1\n[ups]\ndriver = dummy-ups\nport = {}\nmode = dummy-once\n",
        supply.display()
    );
    make(nut.join("ups.conf"), &ups, 0o640);
    make(nut.join("upsd.conf"), &format!("LISTEN 127.0.0.1 {port}\n"), 0o640);
    make(nut.join("upsd.users"), "[us]\npassword = secret\nupsmon primary\n", 0o640);
    let status = |status: &str| make(supply.clone(), &format!("ups.status: {status}\n"), 0o644);
    status("OL");
    for path in fs::read_dir(nut).unwrap() {
        assert!(Command::new("chown").arg("nut").arg(path.unwrap().path()).status().unwrap().success());
    }
    let said = || fs::read_to_string(nut.join("nut.log")).unwrap();
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "{what}: {}", said());
            thread::sleep(Duration::from_millis(50));
        }
    };
    let _driver = Nut::begin("/lib/nut/dummy-ups", &["-a", "ups", "-F"], nut);
    until("the driver runs", &|| nut.join("dummy-ups-ups").exists());
    let _server = Nut::begin("/lib/nut/upsd", &["-F"], nut);
    let asked = format!("ups@127.0.0.1:{port}");
    until("the server runs", &|| {
        Command::new("upsc").args([&asked, "ups.status"]).output().is_ok_and(|said| said.stdout == b"OL\n")
    });
    let _monitor = Nut::begin("/lib/nut/upsmon", &["-F"], nut);

    status("OB");
    until("on the battery", &|| power() == "on-battery");
    status("OL");
    until("the power is back", &|| power() == "on-line");
    // ONBATT, LOWBATT and FSD by a process each.
    status("OB LB");
    until("the machine is shut down", &|| nut.join("is-shut-down").exists());
    until("power is low", &|| power() == "low");
    thread::sleep(Duration::from_millis(500));
    assert_eq!(power(), "low", "whichever came last");
    let shown = bench.run(&["event", "conditions", "--state", "state"]).stdout;
    assert!(shown.contains("the battery is low"), "{shown}");
    served.end();
}

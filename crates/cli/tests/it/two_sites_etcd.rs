//! Two servers whose witness is an etcd cluster, of one member and of three: a site takes over from one that was killed, also
//! while the cluster has just lost its leader, and nothing that hosts were answered is lost.

use crate::{
    exported::is_here,
    judged_exports::until,
    spindle::is_full_run,
    two_sites::{Site, has_clients, pair},
    two_sites_auto::is_protected,
};
use std::{
    fs,
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// A member at an address of its own.
struct Member {
    name: String,
    client: String,
    child: Option<Child>,
}

/// A cluster on addresses of no site; its members are killed when it is dropped.
struct Cluster {
    folder: tempfile::TempDir,
    members: Vec<Member>,
}

impl Cluster {
    fn begin(size: usize) -> Self {
        let address = |index: usize| {
            let host = format!("127.0.0.{}", 41 + index);
            let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
            let two = [(); 2].map(|()| TcpListener::bind((&*host, 0)).unwrap());
            two.each_ref().map(|listener| format!("{host}:{}", port(listener)))
        };
        let addresses: Vec<[String; 2]> = (0..size).map(address).collect();
        let all: Vec<String> =
            (0..).zip(&addresses).map(|(index, [_, peer])| format!("m{index}=http://{peer}")).collect();
        let folder = tempfile::tempdir().unwrap();
        let start = |(index, [client, peer]): (usize, &[String; 2])| {
            let name = format!("m{index}");
            let log = fs::File::create(folder.path().join(format!("{name}.log"))).unwrap();
            let urls = |address: &str| format!("http://{address}");
            let mut command = Command::new("etcd");
            command.args(["--name", &name, "--data-dir"]).arg(folder.path().join(&name));
            command.args(["--listen-client-urls", &urls(client), "--advertise-client-urls", &urls(client)]);
            command.args(["--listen-peer-urls", &urls(peer), "--initial-advertise-peer-urls", &urls(peer)]);
            command.args(["--initial-cluster", &all.join(","), "--initial-cluster-token", "spindle"]);
            // Debian's program asks for this on some processors.
            command.env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH);
            let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
            Member { name, client: client.clone(), child: Some(child) }
        };
        let members = addresses.iter().enumerate().map(start).collect();
        let cluster = Self { folder, members };
        until("the cluster has a leader", || cluster.leader().is_some());
        cluster
    }

    /// Words of `dr create`.
    fn mode(&self) -> String {
        let members: Vec<String> =
            self.members.iter().map(|member| format!("--witness etcd://{}", member.client)).collect();
        format!("sync --hold 2s --auto {}", members.join(" "))
    }

    /// Index of the member that leads.
    fn leader(&self) -> Option<usize> {
        (0..self.members.len()).find(|&index| {
            let member = &self.members[index];
            let mut command = Command::new("etcdctl");
            command.args(["--endpoints", &member.client, "endpoint", "status", "--write-out", "simple"]);
            let said = command.env("ETCDCTL_API", "3").stderr(Stdio::null()).output().unwrap();
            // endpoint, ID, version, size, is it the leader
            let text = String::from_utf8_lossy(&said.stdout).into_owned();
            member.child.is_some() && text.split(", ").nth(4) == Some("true")
        })
    }

    fn kill(&mut self, index: usize) {
        let mut child = self.members[index].child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn log(&self) -> String {
        let read =
            |member: &Member| fs::read_to_string(self.folder.path().join(format!("{}.log", member.name)));
        self.members.iter().filter_map(|member| read(member).ok()).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for index in 0..self.members.len() {
            if self.members[index].child.is_some() {
                self.kill(index);
            }
        }
        if std::thread::panicking() {
            let log = self.log();
            eprintln!("{}", &log[log.len().saturating_sub(4_000)..]);
        }
    }
}

fn has_etcd() -> bool {
    has_clients() && is_here("etcd", "etcd-server") && is_here("etcdctl", "etcd-client")
}

fn watched(cluster: &Cluster) -> (Site, Site) {
    let (boston, denver) = pair(&cluster.mode());
    boston.io(&["write -P 17 0 1M"]);
    until("the other site would take over", || boston.row()["is_alone"] == false && is_protected(&boston));
    (boston, denver)
}

/// Time from a kill of the primary until the other site serves.
fn takes_over(boston: &mut Site, denver: &Site) -> Duration {
    boston.io(&["write -P 18 1M 1M"]);
    boston.kill();
    let killed = Instant::now();
    until("denver serves", || denver.answers("read -P 18 1M 1M"));
    let took = killed.elapsed();
    denver.io(&["read -P 17 0 1M", "write -P 19 2M 1M"]);
    took
}

#[test]
fn an_etcd_of_one_member_decides_who_takes_over() {
    if !is_full_run("etcd of one member") {
        return;
    }
    if !has_etcd() {
        return;
    }
    let mut cluster = Cluster::begin(1);
    let (mut boston, denver) = watched(&cluster);
    println!("served again {:?} after the kill", takes_over(&mut boston, &denver));
    boston.start();
    until("boston follows", || boston.is("secondary", "following") && denver.is("primary", "streaming"));
    until("they are in sync", || denver.row()["is_alone"] == false && is_protected(&denver));
    denver.verb("failover sg1");
    until("boston serves", || boston.is("primary", "streaming") && is_protected(&boston));
    boston.io(&["read -P 19 2M 1M", "write -P 20 3M 1M"]);
    // Without it hosts notice nothing, and people see that nobody takes over.
    cluster.kill(0);
    until("it is said", || !is_protected(&boston));
    let said = boston.row()["witness"]["summary"].as_str().unwrap().to_owned();
    assert!(said.contains("witness etcd://127.0.0.41"), "{said}");
    boston.io(&["read -P 20 3M 1M", "write -P 21 4M 1M"]);
    boston
        .refused("dr create two mail/disk --to denver --mode sync --auto --witness etcd://", "is no address");
}

#[test]
fn an_etcd_of_three_members_that_lost_its_leader_decides_as_well() {
    if !is_full_run("etcd of three members") {
        return;
    }
    if !has_etcd() {
        return;
    }
    let mut cluster = Cluster::begin(3);
    let (mut boston, denver) = watched(&cluster);
    let leader = cluster.leader().unwrap();
    cluster.kill(leader);
    println!("served again {:?} after the kill of both", takes_over(&mut boston, &denver));
    boston.start();
    until("boston follows", || boston.is("secondary", "following") && denver.is("primary", "streaming"));
    until("they are in sync", || denver.row()["is_alone"] == false && is_protected(&denver));
}

//! Two servers whose witness is an etcd cluster, of one member and of three: a site takes over from one that was killed, also
//! while the cluster has just lost its leader, and nothing that hosts were answered is lost.

use crate::{
    exported::is_here,
    exports_tls::Authority,
    judged_exports::until,
    spindle::is_full_run,
    two_sites::{EXPORT, Site, VOLUME, has_clients, pair, paired},
    two_sites_auto::is_protected,
};
use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
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
    /// Clients speak to it over TLS, and show certificates.
    has_tls: bool,
}

impl Cluster {
    fn begin(size: usize) -> Self {
        Self::begin_over(size, None)
    }

    /// Over TLS with certificates of an authority, if one is given.
    fn begin_over(size: usize, authority: Option<&Authority>) -> Self {
        let scheme = if authority.is_some() { "https" } else { "http" };
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
            let of_clients = format!("{scheme}://{client}");
            let mut command = Command::new("etcd");
            command.args(["--name", &name, "--data-dir"]).arg(folder.path().join(&name));
            command.args(["--listen-client-urls", &of_clients, "--advertise-client-urls", &of_clients]);
            if let Some(authority) = authority {
                let host = client.split(':').next().unwrap();
                authority.sign_into(folder.path(), ("server", Some("etcd")), (&[host], (4000, 1, 1)));
                authority.sign_into(folder.path(), ("client", None), (&["127.0.0.1"], (4000, 1, 1)));
                let path = |name: &str| folder.path().join(name);
                command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(path("ca-cert.pem"));
                command.arg("--cert-file").arg(path("server-cert.pem"));
                command.arg("--key-file").arg(path("server-key.pem"));
            }
            command.args(["--listen-peer-urls", &urls(peer), "--initial-advertise-peer-urls", &urls(peer)]);
            command.args(["--initial-cluster", &all.join(","), "--initial-cluster-token", "spindle"]);
            // Debian's program asks for this on some processors.
            command.env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH);
            let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
            Member { name, client: client.clone(), child: Some(child) }
        };
        let members = addresses.iter().enumerate().map(start).collect();
        let cluster = Self { folder, members, has_tls: authority.is_some() };
        until("the cluster has a leader", || cluster.leader().is_some());
        cluster
    }

    /// Words of `dr create`.
    fn mode(&self) -> String {
        let scheme = if self.has_tls { "etcds" } else { "etcd" };
        let members: Vec<String> =
            self.members.iter().map(|member| format!("--witness {scheme}://{}", member.client)).collect();
        format!("sync --hold 2s --auto {}", members.join(" "))
    }

    /// etcd's own client, as it reaches a member.
    fn client(&self, member: &Member) -> Command {
        let mut command = Command::new("etcdctl");
        command.args(["--endpoints", &member.client]).env("ETCDCTL_API", "3").stderr(Stdio::null());
        if self.has_tls {
            let path = |name: &str| self.folder.path().join(name);
            command.arg("--cacert").arg(path("ca-cert.pem")).arg("--cert").arg(path("client-cert.pem"));
            command.arg("--key").arg(path("client-key.pem"));
        }
        command
    }

    /// Lets nobody but *root*, and *spindle* for our keys, do anything.
    fn ask_for_passwords(&self, password: &str) {
        for words in [
            "user add root:a-password-of-root",
            "user grant-role root root",
            &format!("user add spindle:{password}"),
            "role add spindle",
            "role grant-permission --prefix=true spindle readwrite spindle/dr/",
            "user grant-role spindle spindle",
            "auth enable",
        ] {
            let done = self.client(&self.members[0]).args(words.split(' ')).stdout(Stdio::null()).status();
            assert!(done.unwrap().success(), "etcdctl {words}");
        }
    }

    /// Index of the member that leads.
    fn leader(&self) -> Option<usize> {
        (0..self.members.len()).find(|&index| {
            let member = &self.members[index];
            let mut command = self.client(member);
            let said = command.args(["endpoint", "status", "--write-out", "simple"]).output().unwrap();
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

/// Starts a site again with certificates for the cluster, and a password.
fn know(site: &mut Site, authority: &Authority, password: &str) {
    // The gateway of a cluster with users refuses a certificate that has a common name.
    let folder = site.bench.make_folder("etcd");
    authority.sign_into(&folder, ("client", None), (&["127.0.0.1"], (4000, 1, 1)));
    let secret = site.bench.make_file("etcd.password", password.as_bytes());
    fs::set_permissions(secret, fs::Permissions::from_mode(0o600)).unwrap();
    let keys = "witness_tls = 'etcd'\nwitness_user = 'spindle'\nwitness_secret_file = 'etcd.password'\n";
    let text = fs::read_to_string(site.bench.path("site.toml")).unwrap();
    if !text.contains(keys) {
        let text = text.replace("[replication]\n", &format!("[replication]\n{keys}"));
        site.bench.make_file("site.toml", text.as_bytes());
    }
    site.kill();
    site.start();
}

fn until_connected(site: &Site, peer: &str) {
    let connected = format!("{peer}: connected");
    until("they are connected", || {
        site.bench.run(&["dr", "status", "--state", "state"]).stdout.contains(&connected)
    });
}

#[test]
fn an_etcd_behind_tls_and_passwords_decides_for_sites_that_it_knows() {
    if !is_full_run("etcd behind TLS") {
        return;
    }
    if !has_etcd() {
        return;
    }
    let (authority, password) = (Authority::called("of etcd"), "a-password-of-spindle");
    let cluster = Cluster::begin_over(1, Some(&authority));
    cluster.ask_for_passwords(password);
    let (mut boston, mut denver) = paired();
    boston.io(&["write -P 17 0 1M"]);
    let create = format!("dr create sg1 mail/disk --to denver --mode {}", cluster.mode());
    // Nobody that this machine trusts has signed the cluster's certificate.
    boston.refused(&create, "TLS: invalid peer certificate");
    know(&mut boston, &authority, "another-password");
    until_connected(&boston, "denver");
    boston.refused(&create, "authentication failed");
    know(&mut boston, &authority, password);
    until_connected(&boston, "denver");
    boston.refused(&create.replace("etcds://", "etcd://"), "a password is sent over TLS alone");
    // Denver has no right there, and says so before anything is made.
    boston.refused(&create, "TLS: invalid peer certificate");
    know(&mut denver, &authority, password);
    until_connected(&boston, "denver");
    boston.verb(&create);
    until("the first copy is complete", || boston.is("primary", "streaming"));
    denver.write("denver", &format!("{VOLUME}{EXPORT}"));
    know(&mut denver, &authority, password);
    until("the other site would take over", || boston.row()["is_alone"] == false && is_protected(&boston));
    println!("served again {:?} after the kill", takes_over(&mut boston, &denver));
}

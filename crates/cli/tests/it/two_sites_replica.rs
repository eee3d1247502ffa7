//! `VOLUME@replica`: the other site's copy is read where it is, as one cut, while the group goes on.

use crate::{
    exported::{is_here, judge, judged},
    judged_exports::until,
    spindle::json_of,
    two_sites::{Site, has_clients, paired_with},
};
use iscsi::initiator::{Initiator, InitiatorOptions};
use nbd::{Client, ClientOptions, NbdUri};
use std::rc::Rc;
use world::{
    BlockDevice, Buffer, ByteOffset, Stability, World,
    real::{self, RealOptions, Sockets},
};

const TWO: &str = "[[volume]]\nname = 'disk'\ngroup = 'mail'\ngb = 0.125\n\
                   [[volume]]\nname = 'more'\ngroup = 'mail'\ngb = 0.125\n\
                   [[nbd]]\nname = 'disk'\nvolume = 'mail/disk'\n[[nbd]]\nname = 'more'\nvolume = 'mail/more'\n";
const LOOKS: &str = "[[nbd]]\nname = 'look'\nvolume = 'mail/disk@replica'\n\
                     [[nbd]]\nname = 'look-more'\nvolume = 'mail/more@replica'\n";

fn uri(site: &Site, export: &str) -> String {
    format!("nbd+unix:///{export}?socket={}", site.bench.path("socket").display())
}

fn write(site: &Site, export: &str, command: &str) {
    judge("qemu-io", &["-f", "raw", "-c", command, &uri(site, export)]);
}

fn reads(site: &Site, export: &str, command: &str) -> bool {
    let said = judged("qemu-io", &["-r", "-f", "raw", "-c", command, &uri(site, export)]);
    said.status.success() && !String::from_utf8_lossy(&said.stdout).contains("Pattern")
}

async fn first_byte(client: &Client) -> u8 {
    client.read(ByteOffset(0), vec![Buffer::zeroed(4096)]).await.unwrap()[0][0]
}

async fn reader(world: &World, site: &Site, export: &str) -> Client {
    let uri: NbdUri = uri(site, export).parse().unwrap();
    Client::connect(world, Rc::new(Sockets), uri, ClientOptions::default()).await.unwrap()
}

/// Volumes of a site's pool that are there for readers alone.
fn views(site: &Site) -> usize {
    let said = site.bench.run(&["pool", "show", "mail", "--json", "--server", "unix:state/spindle.sock"]);
    let pool = json_of(&said.stdout);
    let names =
        pool["volumes"].as_array().unwrap().iter().map(|volume| volume["name"].as_str().unwrap().to_owned());
    names.filter(|name| name.ends_with("-replica")).count()
}

#[test]
fn readers_of_a_replica_see_one_cut_of_all_volumes_and_later_readers_a_newer_one() {
    if !has_clients() {
        return;
    }
    let (boston, mut denver) = paired_with(TWO);
    boston.refused("volume snapshot mail/disk@replica", "no snapshot is named \"replica\"");
    write(&boston, "disk", "write -P 17 0 1M");
    write(&boston, "more", "write -P 27 0 1M");
    boston.verb("dr create sg1 mail/disk mail/more --to denver --mode sync");
    until("the first copy is complete", || boston.is("primary", "streaming"));
    denver.write("denver", &format!("{TWO}{LOOKS}"));
    denver.verb("apply site.toml");
    assert_eq!(views(&denver), 0, "nobody reads");
    real::run(1, RealOptions::default(), async |world: World| {
        let one = reader(&world, &denver, "look").await;
        assert_eq!(first_byte(&one).await, 17);
        write(&boston, "disk", "write -P 18 0 1M");
        write(&boston, "more", "write -P 28 0 1M");
        let other = reader(&world, &denver, "look-more").await;
        assert_eq!((first_byte(&one).await, first_byte(&other).await), (17, 27), "one cut for all readers");
        let data = vec![std::sync::Arc::new(Buffer::zeroed(4096))];
        assert!(one.write(ByteOffset(0), data, Stability::Stable).await.is_err(), "it is read only");
        assert_eq!(views(&denver), 2);
    });
    until("nothing is kept for readers that are gone", || views(&denver) == 0);
    assert!(reads(&denver, "look", "read -P 18 0 1M"), "later readers see what is there now");
    assert!(reads(&denver, "look-more", "read -P 28 0 1M"));
    until("nothing is kept for readers that are gone", || views(&denver) == 0);
    // A killed server leaves nothing either.
    real::run(1, RealOptions::default(), async |world: World| {
        let one = reader(&world, &denver, "look").await;
        assert_eq!(first_byte(&one).await, 18);
    });
    assert_eq!(views(&denver), 2);
    denver.kill();
    denver.start();
    until("what it left is deleted", || views(&denver) == 0);
    until("it follows again", || boston.is("primary", "streaming"));
    // A primary's volume is read as itself.
    boston.verb("failover sg1");
    until("denver serves", || denver.row()["serves"] == true);
    let said = judge_fails(&uri(&denver, "look"));
    assert!(said.contains("there is no export") || said.contains("not available"), "{said}");
    assert!(reads(&denver, "disk", "read -P 18 0 1M"));
    boston.verb("failover sg1");
    until("boston serves", || boston.row()["serves"] == true);
    write(&boston, "disk", "write -P 19 0 1M");
    until("denver follows", || denver.is("secondary", "following"));
    assert!(reads(&denver, "look", "read -P 19 0 1M"), "a secondary's copy is read again");
    boston.verb("dr remove sg1 --yes sg1");
    denver.verb("dr remove sg1 --yes sg1");
    // Rows that were there are served to nobody, and so are new ones.
    until("nobody reads it any more", || !reads(&denver, "look", "read 0 1M"));
    denver.write("denver", TWO);
    denver.verb("apply site.toml");
    denver.write("denver", &format!("{TWO}{LOOKS}"));
    denver.verb("apply site.toml");
    assert!(!reads(&denver, "look", "read 0 1M"));
}

#[test]
fn a_replica_is_read_as_an_iscsi_unit_and_its_clone_is_marked_in_lists() {
    let judges = [("iscsi-ls", "libiscsi-bin"), ("iscsi-inq", "libiscsi-bin"), ("curl", "curl")];
    if !has_clients() || !judges.into_iter().all(|(program, package)| is_here(program, package)) {
        return;
    }
    let (boston, denver) = paired_with(TWO);
    write(&boston, "disk", "write -P 17 0 1M");
    boston.verb("dr create sg1 mail/disk mail/more --to denver --mode sync");
    until("the first copy is complete", || boston.is("primary", "streaming"));
    let target = "[[target]]\nname = 'look'\n[[target.unit]]\nnumber = 0\nvolume = 'mail/disk@replica'\n";
    denver.write("denver", &format!("{TWO}{target}"));
    denver.verb("apply site.toml");
    let portal = format!("iscsi://127.0.0.1:{}", denver.iscsi);
    let uri = format!("{portal}/iqn.2026-11.org.spindle:look/0");
    let said = judge("iscsi-ls", &["-s", &portal]);
    assert!(said.contains("iqn.2026-11.org.spindle:look") && said.contains("Lun:0"), "{said}");
    let said = judge("iscsi-inq", &[&uri]);
    assert!(said.contains("Peripheral Device Type:DIRECT_ACCESS"), "{said}");
    real::run(1, RealOptions::default(), async |world: World| {
        let unit =
            Initiator::connect(&world, Rc::new(Sockets), uri.parse().unwrap(), InitiatorOptions::default());
        let unit = unit.await.unwrap();
        let read = async || unit.read(ByteOffset(0), vec![Buffer::zeroed(4096)]).await.unwrap()[0][0];
        assert_eq!(read().await, 17);
        write(&boston, "disk", "write -P 18 0 1M");
        assert_eq!(read().await, 17, "one cut as long as somebody is logged in");
        let data = vec![std::sync::Arc::new(Buffer::zeroed(4096))];
        assert!(unit.write(ByteOffset(0), data, Stability::Stable).await.is_err(), "it is read only");
        let said = denver.bench.run(&["pool", "show", "mail", "--server", "unix:state/spindle.sock"]).stdout;
        assert!(
            said.contains("volume disk-replica: 128 MiB, kept while somebody reads disk@replica"),
            "{said}"
        );
        let socket = denver.bench.path("state/spindle.sock").display().to_string();
        let list = "http://spindle/v1/volumes?name=disk-replica";
        until("the API marks it", || {
            let said = judge("curl", &["--silent", "--unix-socket", &socket, list]);
            json_of(&said)["volumes"][0]["shows_replica_of"] == "disk"
        });
    });
    until("nothing is kept for readers that are gone", || views(&denver) == 0);
}

/// What QEMU says of an export that it cannot open.
fn judge_fails(uri: &str) -> String {
    let said = judged("qemu-img", &["info", uri]);
    assert!(!said.status.success());
    String::from_utf8_lossy(&said.stderr).into_owned()
}

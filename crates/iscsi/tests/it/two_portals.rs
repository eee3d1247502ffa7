//! A target that two sites have: discovery names the portals of both, and the site that does not serve it sends initiators to the
//! other one.

use crate::{
    scene::properties,
    sessions::{TARGET, with_target},
};
use iscsi::{
    initiator::{Initiator, InitiatorOptions, IscsiUri, discover},
    scsi::unit::LogicalUnit,
    target::{
        ListedTarget, Target, TargetPortals, Targets,
        access::{AccessList, AccessRight, InitiatorRights},
        serve,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};
use world::{
    Address, BlockDevice, Buffer, ByteOffset, World,
    sim::{SimDrive, SimNetwork},
};

const HOST: &str = "iqn.x:host";

fn portal(site: &str) -> Address {
    Address::parse(site, 3260).unwrap()
}

fn options(name: &str) -> InitiatorOptions {
    InitiatorOptions { name: name.to_owned(), ..InitiatorOptions::default() }
}

/// Boston serves the target, and Denver has it.
async fn start(world: &World, network: &SimNetwork, drive: &Rc<SimDrive>) {
    let rights = || {
        let units = BTreeMap::from([(TARGET.to_owned(), BTreeMap::from([(0, AccessRight::Write)]))]);
        let rights = InitiatorRights { credentials: None, units };
        AccessList::only([(HOST.to_owned(), rights)], None).unwrap()
    };
    let portals = |group: u16, other: &str, has_moved| {
        let others = vec![portal(other).to_string()];
        [(TARGET.to_owned(), TargetPortals { group, others, other_group: 3 - group, has_moved })]
    };
    let unit = Rc::new(LogicalUnit::new(properties(), Rc::clone(drive) as Rc<dyn BlockDevice>, None, false));
    let target = Target { name: TARGET.to_owned(), units: BTreeMap::from([(0, unit)]) };
    let boston = Targets::new(vec![target]).with_access(rights()).with_portals(portals(1, "denver", false));
    let listed = ListedTarget { name: TARGET.to_owned(), units: BTreeSet::from([0]) };
    let denver = Targets::default()
        .with_listed([listed])
        .with_access(rights())
        .with_portals(portals(2, "boston", true));
    for (site, targets) in [("boston", boston), ("denver", denver)] {
        let listener = network.host(site).listen(&portal(site)).await.unwrap();
        world.spawn("server", serve(world.clone(), listener.into(), targets, Rc::new(|_| {})));
    }
}

#[test]
fn discovery_at_either_site_names_the_portals_of_both_and_a_login_ends_at_the_one_that_serves() {
    with_target(5, |world, network, drive| async move {
        start(&world, &network, &drive).await;
        for (site, portals) in
            [("boston", ["boston:3260,1", "denver:3260,2"]), ("denver", ["denver:3260,2", "boston:3260,1"])]
        {
            let host = network.host("host");
            let found = discover(&world, &*host, &portal(site), &options(HOST)).await.unwrap();
            assert_eq!((found.len(), &found[0].portals[..]), (1, &portals.map(str::to_owned)[..]), "{site}");
            let uri =
                IscsiUri { address: portal(site), others: Vec::new(), target: TARGET.to_owned(), unit: 0 };
            let disk = Initiator::connect(&world, network.host("host"), uri.clone(), options(HOST)).await;
            disk.unwrap().read(ByteOffset(0), vec![Buffer::zeroed(4096)]).await.unwrap();
            // A stranger does not learn where it is.
            let refused = Initiator::connect(&world, network.host("host"), uri, options("iqn.x:other")).await;
            assert!(refused.is_err(), "{site}");
        }
    });
}

#[test]
fn an_initiator_with_two_portals_goes_to_the_one_that_is_there() {
    with_target(6, |world, network, drive| async move {
        start(&world, &network, &drive).await;
        let uri = IscsiUri {
            address: portal("nowhere"),
            others: vec![portal("boston")],
            target: TARGET.to_owned(),
            unit: 0,
        };
        let disk =
            Initiator::connect(&world, network.host("host"), uri.clone(), options(HOST)).await.unwrap();
        disk.read(ByteOffset(0), vec![Buffer::zeroed(4096)]).await.unwrap();
        let nowhere = IscsiUri { others: vec![portal("neither")], ..uri };
        let refused = Initiator::connect(&world, network.host("host"), nowhere, options(HOST)).await;
        let error = refused.err().unwrap().to_string();
        assert!(error.contains("nowhere") && error.contains("neither"), "{error}");
    });
}

//! Failures of drives, as callers of the API see them: no fault of theirs.

use crate::sim_site::{Drives, MIB, MadePools, SimCatalogues, SimPlaces, journal_of};
use control::{
    events::DaemonEventLog,
    notice,
    site::{
        SiteContext, SiteServer,
        planning::PlanOccasion,
        server::{PortalUse, SiteServerSetting},
    },
    web::{
        WebSetting, WebThread,
        client::{ApiClient, Method, NewVolumeBody},
        rows::PoolRow,
    },
};
use fragile::Fragile;
use std::{rc::Rc, sync::Arc};
use world::{
    Address, ByteCount,
    sim::{DriveOptions, FaultPlan, NetworkOptions, SimLimits, SimStateFile, SimThreads, Simulation},
};

const SITE: &str = "
[[group]]
name = 'mail'
";

#[test]
fn a_pool_whose_drives_fail_answers_500_and_then_503_and_no_conflict() {
    let mut simulation = Simulation::new(61);
    let network = simulation.add_network(NetworkOptions::rack());
    let options = DriveOptions::new(ByteCount(65 * MIB));
    let all: Vec<_> = (0..2).map(|_| simulation.add_drive(options.clone())).collect();
    let drives: Drives = [("mail".to_owned(), all.clone())].into();
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let journal = Arc::new(journal_of(&SimStateFile::new("journal", 61)).unwrap());
        let threads = Rc::new(SimThreads(world.clone()));
        let (own, api) = (Fragile::new(network.clone()), Fragile::new(network.clone()));
        let setting = SiteServerSetting {
            context: SiteContext { folder: "/".into(), state: "/state".into(), site: None },
            places: Rc::new(SimPlaces { drives, made: MadePools::default() }),
            threads: Rc::clone(&threads) as _,
            network: Box::new(move || own.get().host("server")),
            journal: Arc::clone(&journal),
            catalogues: Rc::new(SimCatalogues::default()),
        };
        let (notices, _reader) = notice::channel("serve");
        let mut server = SiteServer::start(&world, setting, SITE, PortalUse::None, &notices).await.unwrap();
        let socket = Address::Unix("/state/spindle.sock".into());
        let setting = WebSetting {
            network: Box::new(move || api.get().host("server")),
            addresses: vec![(socket.clone(), "socket")],
            tls: None,
            own_user: 1000,
            site: server.handle(),
            journal,
            events: DaemonEventLog::new(world.wall()),
            history: Box::new(control::history::MemoryHistory::default()),
            reports: None,
            link: None,
            pages: None,
        };
        let web = WebThread::start(&world, &*threads, setting, notices.of("api")).await.unwrap();
        let plan = server.plan(SITE, &[], PlanOccasion::Start).await.unwrap();
        server.apply(plan, |_| ()).await.unwrap();
        server.open();
        let client = ApiClient::new(network.host("server"), socket, None);
        let pools: Vec<PoolRow> = client.get("/v1/pools").await.unwrap();
        let path = format!("/v1/pools/{}/volumes", pools[0].id.clone().unwrap());
        let create = async |name: &str| {
            let body = NewVolumeBody { name: name.to_owned(), size_bytes: MIB, ..NewVolumeBody::default() };
            let reply = client.send(Method::POST, &path, Some(serde_json::to_string(&body).unwrap()), &[]);
            let reply = reply.await.unwrap();
            (reply.status, reply.problem().map(|problem| (problem.kind, problem.next)))
        };
        assert_eq!(create("a").await, (201, None));
        let fails =
            FaultPlan { failed_write_percent: 100.0, failed_flush_percent: 100.0, ..FaultPlan::none() };
        all.iter().for_each(|drive| drive.set_faults(fails.clone()));
        let next = Some("see 'spindle pool show', and its drives".to_owned());
        let failed = |kind: &str| Some((format!("urn:spindle:{kind}"), next.clone()));
        assert_eq!(create("b").await, (500, failed("storage-failed")));
        assert_eq!(create("b").await, (503, failed("pool-stopped")));
        web.stop().await.unwrap();
        server.stop().await;
    });
    run.completed();
}

//! TLS and pairing: who is let in, and who is not.

use crate::link_scene::{SITE_A, SITE_B, Scene, address, attach, bulk, number_of, options, peer, run, small};
use array::format::SiteId;
use replication::link::{
    LinkError, LinkListener, LinkPeer, LinkSecurity, LinkSession, LinkSettings, PairedSites, PairingToken,
    pair,
};
use std::{cell::RefCell, rc::Rc, time::Duration};
use tls::{PinnedIdentity, TlsIdentity};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use world::{Address, real};

fn identity() -> PinnedIdentity {
    let (certificate, key) = PinnedIdentity::generate().expect("the system has randomness");
    let identity = TlsIdentity { certificate: certificate.as_bytes(), key: key.as_bytes() };
    PinnedIdentity::new(identity).expect("they match")
}

/// The settings of a site that is paired with none.
fn site(site: SiteId) -> (LinkSettings, PairedSites) {
    let paired = PairedSites::default();
    let security = LinkSecurity::Tls { identity: identity(), paired: paired.clone() };
    (LinkSettings { security, ..options(site) }, paired)
}

async fn pair_with(scene: &Scene, settings: &LinkSettings, token: &PairingToken) -> Result<SiteId, String> {
    let paired = pair(&scene.world, scene.client(), &address(0), settings, token).await;
    paired.map_err(|error| error.to_string())
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn sites_pair_with_a_token_and_then_begin_sessions() {
    run(1, |scene| async move {
        let ((ours, paired), (theirs, paired_there)) = (site(SITE_A), site(SITE_B));
        let listener = scene.listen(2, theirs).await;
        let unpaired = scene.connect(2, ours.clone()).await.err().expect("they are not paired");
        assert_eq!(unpaired.to_string(), "the other site refused: the sites are not paired");
        let token = listener.offer_token(HOUR).expect("a token");
        assert_eq!(pair_with(&scene, &ours, &token).await, Ok(SITE_B));
        assert_eq!((paired.all().len(), paired_there.all().len()), (1, 1));
        // The answer may be lost: the same site may come again.
        assert_eq!(pair_with(&scene, &ours, &token).await, Ok(SITE_B));
        let session = scene.connect(2, ours).await.expect("they are paired");
        let other = listener.next_session().await;
        let channel = session.attach(attach(1)).unwrap();
        let end = other.next_channel().await.unwrap();
        scene.sleep_ms(500).await;
        assert_eq!(session.connections().len(), 2);
        for number in 0..100 {
            channel.send(bulk(number, 20)).await.unwrap();
            if number % 20 == 0 {
                scene.network.reset("a", &format!("b{}", number / 20 % 2));
                scene.sleep_ms(500).await;
            }
            assert_eq!(number_of(&end.receive().await.unwrap()), number);
        }
    });
}

#[test]
fn a_token_that_is_wrong_used_or_expired_is_refused_and_its_source_waits() {
    run(1, |scene| async move {
        let ((ours, paired), (theirs, paired_there)) = (site(SITE_A), site(SITE_B));
        let listener = scene.listen(1, theirs).await;
        let refused = Err("the other site refused: the pairing token is wrong, used or expired".to_owned());
        let token = listener.offer_token(HOUR).unwrap();
        let wrong = PairingToken::parse(&"0".repeat(32)).unwrap();
        assert_eq!(pair_with(&scene, &ours, &wrong).await, refused);
        let waits = pair_with(&scene, &ours, &token).await.unwrap_err();
        assert!(waits.contains("too many wrong tokens from this address: try again in 1 s"), "{waits}");
        scene.sleep_ms(1000).await;
        assert_eq!(pair_with(&scene, &ours, &wrong).await, refused);
        let waits = pair_with(&scene, &ours, &token).await.unwrap_err();
        assert!(waits.contains("try again in 2 s"), "{waits}");
        scene.sleep_ms(2000).await;
        // Used by another site.
        let (third, _) = site(SiteId([0xc; 16]));
        assert!(pair_with(&scene, &third, &token).await.is_ok());
        assert_eq!(pair_with(&scene, &ours, &token).await, refused);
        scene.sleep_ms(60_000).await;
        let short = listener.offer_token(Duration::from_secs(30)).unwrap();
        scene.sleep_ms(30_000).await;
        assert_eq!(pair_with(&scene, &ours, &short).await, refused);
        assert_eq!((paired.all().len(), paired_there.all().len()), (0, 1), "the third site alone");
    });
}

#[test]
fn a_site_with_another_certificate_is_refused_and_cannot_pair_over_the_old_one() {
    run(1, |scene| async move {
        let ((ours, paired), (theirs, paired_there)) = (site(SITE_A), site(SITE_B));
        let listener = scene.listen(1, theirs).await;
        let token = listener.offer_token(HOUR).unwrap();
        pair_with(&scene, &ours, &token).await.unwrap();
        // It says that it is site A, and knows the right certificate of site B, but has a key of its own.
        let stolen = LinkSecurity::Tls { identity: identity(), paired: paired.clone() };
        let impostor = LinkSettings { security: stolen, ..options(SITE_A) };
        let error = scene.connect(1, impostor.clone()).await.err().expect("it is refused").to_string();
        let told = "the certificate is not the one that the sites were paired with";
        assert!(error.contains(told), "{error}");
        let error = pair_with(&scene, &impostor, &listener.offer_token(HOUR).unwrap()).await.unwrap_err();
        assert!(error.contains("the site is paired with another certificate: unpair it first"), "{error}");
        // Another key at the address of site B: this side says nothing to it.
        paired.remove(SITE_B);
        paired.insert(SITE_B, identity().fingerprint());
        let error = scene.connect(1, ours.clone()).await.err().expect("it is refused").to_string();
        assert!(error.contains(told), "{error}");
        paired_there.remove(SITE_A);
        let any = LinkPeer { site: None, ..peer(1) };
        let error = LinkSession::connect(&scene.world, scene.client(), any, ours).await.err();
        assert!(error.expect("it is refused").to_string().contains("the sites are not paired"));
    });
}

#[test]
fn a_man_in_the_middle_cannot_pair_and_a_recorded_pairing_is_worth_nothing() {
    run(1, |scene| async move {
        let ((ours, paired), (theirs, paired_there)) = (site(SITE_A), site(SITE_B));
        let listener = scene.listen(1, theirs).await;
        let token = listener.offer_token(HOUR).unwrap();
        // He ends TLS at both sides with a key of his own, and passes on what is said.
        let middle = Address::Tcp { host: "m".to_owned(), port: 7000 };
        let at = scene.network.host("m").listen(&middle).await.unwrap();
        let recorded: Rc<RefCell<Vec<u8>>> = Rc::default();
        let (own, record) = (scene.clone(), Rc::clone(&recorded));
        scene.world.spawn("man in the middle", async move {
            let (key, record) = (identity(), record);
            let victim = at.accept().await.unwrap().stream;
            let mut victim = key.accept(&own.world, victim).await.unwrap().stream;
            let onward = own.network.host("m").connect(&address(0)).await.unwrap();
            let mut onward = key.connect(&own.world, onward).await.unwrap().stream;
            let mut said = vec![0; 32 + 48];
            victim.read_exact(&mut said).await.unwrap();
            onward.write_all(&said).await.unwrap();
            onward.flush().await.unwrap();
            record.borrow_mut().extend(said);
            let _ = copy_bidirectional(&mut victim, &mut onward).await;
        });
        let error = pair(&scene.world, scene.client(), &middle, &ours, &token).await.unwrap_err();
        assert!(error.to_string().contains("the pairing token is wrong"), "{error}");
        assert_eq!((paired.all().len(), paired_there.all().len()), (0, 0));
        // The proof that he has seen, on a connection of his own, and later.
        scene.sleep_ms(5000).await;
        let onward = scene.network.host("m").connect(&address(0)).await.unwrap();
        let mut onward = identity().connect(&scene.world, onward).await.unwrap().stream;
        let said = recorded.borrow().clone();
        assert_eq!(said.len(), 80);
        onward.write_all(&said).await.unwrap();
        onward.flush().await.unwrap();
        let mut answer = Vec::new();
        let _ = onward.read_to_end(&mut answer).await;
        assert!(String::from_utf8_lossy(&answer).contains("the pairing token is wrong"));
        assert_eq!(paired_there.all().len(), 0);
        // The token is still good for its owner.
        assert!(pair_with(&scene, &ours, &token).await.is_ok());
    });
}

#[test]
fn a_maker_that_does_not_know_the_token_is_not_believed() {
    run(1, |scene| async move {
        let ((ours, paired), (theirs, _)) = (site(SITE_A), site(SITE_B));
        let listener = scene.listen(1, theirs).await;
        let token = listener.offer_token(HOUR).unwrap();
        let fake = Address::Tcp { host: "m".to_owned(), port: 7000 };
        let at = scene.network.host("m").listen(&fake).await.unwrap();
        let own = scene.clone();
        scene.world.spawn("fake site", async move {
            let stream = at.accept().await.unwrap().stream;
            let mut stream = identity().accept(&own.world, stream).await.unwrap().stream;
            let mut said = vec![0; 80];
            stream.read_exact(&mut said).await.unwrap();
            // The proof itself is all that it has.
            stream.write_all(&said).await.unwrap();
            stream.flush().await.unwrap();
            let _ = stream.read(&mut said).await;
        });
        let error = pair(&scene.world, scene.client(), &fake, &ours, &token).await.unwrap_err();
        assert!(error.to_string().contains("the other side does not know the token"), "{error}");
        assert_eq!(paired.all().len(), 0);
    });
}

#[test]
fn plain_and_tls_do_not_mix() {
    run(1, |scene| async move {
        let (secure, paired) = site(SITE_A);
        paired.insert(SITE_B, identity().fingerprint());
        let _listener = scene.listen(1, options(SITE_B)).await;
        let error = scene.connect(1, secure).await.err().expect("it speaks plain TCP");
        assert!(matches!(&error, LinkError::Unreachable(reason) if reason.contains("TLS: ")), "{error}");
    });
    run(1, |scene| async move {
        let (secure, _) = site(SITE_B);
        let _listener = scene.listen(1, secure).await;
        let error = scene.connect(1, options(SITE_A)).await.err().expect("it speaks TLS");
        assert!(matches!(error, LinkError::Unreachable(_)), "{error}");
    });
}

#[test]
fn a_session_runs_over_real_sockets_with_tls() {
    real::run(1, real::RealOptions::default(), async |world| {
        let network: Rc<dyn world::Network> = Rc::new(real::Sockets);
        let ((ours, paired), (theirs, _)) = (site(SITE_A), site(SITE_B));
        let at = Address::parse("127.0.0.1:0", 0).unwrap();
        let socket = network.listen(&at).await.unwrap();
        let at = socket.address();
        let listener = LinkListener::new(&world, theirs, Rc::new(|_| ()), Rc::new(|_| ()));
        world.spawn("listener", Rc::clone(&listener).serve(socket.into()));
        let token = listener.offer_token(HOUR).unwrap();
        pair(&world, Rc::clone(&network), &at, &ours, &token).await.unwrap();
        assert_eq!(paired.all().len(), 1);
        let there = LinkPeer { addresses: vec![at], site: Some(SITE_B) };
        let session = LinkSession::connect(&world, network, there, ours).await.unwrap();
        let other = listener.next_session().await;
        let channel = session.attach(attach(1)).unwrap();
        let end = other.next_channel().await.unwrap();
        let sending = world.spawn("sender", async move {
            for number in 0..200 {
                channel.send(if number % 3 == 0 { small(number) } else { bulk(number, 100) }).await.unwrap();
            }
            channel
        });
        for number in 0..200 {
            assert_eq!(number_of(&end.receive().await.unwrap()), number);
        }
        let channel = sending.await;
        end.send(small(7)).await.unwrap();
        assert_eq!(number_of(&channel.receive().await.unwrap()), 7);
        assert_eq!(session.connections().len(), 2);
        drop(session);
        assert!(matches!(other.ended().await, LinkError::Refused(_)));
    });
}

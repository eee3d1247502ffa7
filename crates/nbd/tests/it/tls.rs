//! TLS: trust, refusals, and attacks on the connection.

use crate::{
    certificates::Authority,
    scene::{SIZE, Scene, connect, connect_with, export, read, start_with, uri},
};
use nbd::{
    TlsMode,
    wire::handshake::{GREETING, InfoRequest, OptionHead, OptionReplyHead, handshake_flag, option, reply},
};
use std::{sync::Arc, time::Duration};
use tls::{ClientTls, ServerTls, TlsIdentity};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{
    BlockDevice, Buffer, ByteOffset, IoErrorKind, Stability, Stream,
    sim::{NetworkOptions, SimLimits, SimNetwork},
};

/// The outcome of a client's connection and first read.
fn tried(server: TlsMode, client: Option<ClientTls>) -> world::IoResult<Vec<u8>> {
    let Scene { mut simulation, drive, network } = Scene::new(1, NetworkOptions::rack());
    let run = simulation.run(SimLimits::generous(), |world| async move {
        start_with(&world, &network, vec![export("mail", &drive)], server).await;
        let client = match client {
            Some(tls) => connect_with(&world, &network, "mail", tls).await?,
            None => connect(&world, &network, "mail").await?,
        };
        let data = vec![Arc::new(Buffer::copy_of(&[7; 4096]))];
        client.write(ByteOffset(4096), data, Stability::Stable).await?;
        read(&client, 4096, 4096).await
    });
    run.completed()
}

#[track_caller]
fn is_refused(server: TlsMode, client: Option<ClientTls>, why: &str) {
    let error = tried(server, client).unwrap_err();
    assert_eq!(
        error.kind(),
        if why.contains("only over TLS") { IoErrorKind::NotFound } else { IoErrorKind::PermissionDenied }
    );
    assert!(error.to_string().contains(why), "{error}");
}

#[test]
fn tls_is_used_if_both_ends_want_it() {
    let authority = Authority::new();
    let known = authority.sign("client");
    let data = vec![7; 4096];
    let server = || authority.server("server");
    assert_eq!(tried(TlsMode::Required(server()), Some(authority.client(None))).unwrap(), data);
    assert_eq!(tried(TlsMode::Allowed(server()), Some(authority.client(None))).unwrap(), data);
    assert_eq!(tried(TlsMode::Allowed(server()), None).unwrap(), data, "it may do without");
    let closed = TlsMode::Required(authority.closed_server());
    assert_eq!(tried(closed, Some(authority.client(Some(&known)))).unwrap(), data);
}

#[test]
fn an_untrusted_peer_gets_a_tls_alert() {
    let (authority, stranger) = (Authority::new(), Authority::called("stranger"));
    let required = |tls| TlsMode::Required(tls);
    let client = || Some(authority.client(None));
    is_refused(required(authority.server("server")), None, "only over TLS");
    is_refused(TlsMode::Off, client(), "no TLS: not allowed: TLS is not configured on this server");
    is_refused(required(stranger.server("server")), client(), "UnknownIssuer");
    is_refused(required(authority.server("other")), client(), "not valid for name");
    let old = ServerTls::new(authority.sign_until("server", 2001).identity(), None).unwrap();
    is_refused(required(old), client(), "expired");
    let closed = || required(authority.closed_server());
    is_refused(closed(), client(), "CertificateRequired");
    is_refused(closed(), Some(authority.client(Some(&stranger.sign("client")))), "UnknownCA");
    let old = authority.sign_until("client", 2001);
    is_refused(closed(), Some(authority.client(Some(&old))), "CertificateExpired");
}

#[test]
fn unusable_certificates_are_refused() {
    let authority = Authority::new();
    let (one, other) = (authority.sign("server"), authority.sign("server"));
    let mixed = TlsIdentity { key: other.identity().key, ..one.identity() };
    let nothing = TlsIdentity { certificate: b"", ..one.identity() };
    let no_key = TlsIdentity { key: b"-----BEGIN NONSENSE-----", ..one.identity() };
    for (identity, clients, story) in [
        (mixed, None, "the certificate and its key: "),
        (nothing, None, "the certificate: no certificate found"),
        (no_key, None, "the private key: "),
        (one.identity(), Some(&b"no certificate"[..]), "the authority's certificate: no certificate found"),
    ] {
        let error = ServerTls::new(identity, clients).unwrap_err().to_string();
        assert!(error.starts_with(story), "{error}");
    }
    let error = ClientTls::new("a b", authority.pem.as_bytes(), None).unwrap_err().to_string();
    assert!(error.starts_with("the server's name: "), "{error}");
}

#[test]
fn unanswered_requests_are_sent_again_over_the_next_connection() {
    let mut breaks = 0;
    for seed in 0..10 {
        let options = NetworkOptions { reset_percent: 1.0, ..NetworkOptions::rack() };
        let Scene { mut simulation, drive, network } = Scene::new(seed, options);
        let authority = Authority::new();
        let run = simulation.run(SimLimits::generous(), |world| async move {
            let tls = TlsMode::Required(authority.closed_server());
            start_with(&world, &network, vec![export("mail", &drive)], tls).await;
            let known = authority.sign("client");
            let client = loop {
                let tls = authority.client(Some(&known));
                if let Ok(client) = connect_with(&world, &network, "mail", tls).await {
                    break client;
                }
            };
            let mut random = world.random("operations");
            let mut content = vec![0_u8; SIZE as usize];
            for round in 0..80_u32 {
                let blocks = 1 + random.below(24);
                let at = 4096 * random.below(SIZE / 4096 - blocks);
                let length = 4096 * blocks as usize;
                if random.percent(60.0) {
                    let data = Buffer::copy_of(&vec![round as u8 + 1; length]);
                    content[at as usize..][..length].copy_from_slice(&data);
                    client.write(ByteOffset(at), vec![Arc::new(data)], Stability::Stable).await.unwrap();
                } else {
                    let found = read(&client, at, length).await.unwrap();
                    assert!(found == content[at as usize..][..length], "seed {seed}");
                }
                if round % 20 == 10 {
                    network.cut("client", "server");
                    let mending = network.clone();
                    let own = world.clone();
                    world.spawn("mend", async move {
                        own.sleep(Duration::from_secs(7)).await;
                        mending.restore("client", "server");
                    });
                }
            }
            client.flush().await.expect("all writes were stable when they were answered");
            client.breaks()
        });
        breaks += run.completed();
    }
    assert!(breaks > 10, "connections did break: {breaks}");
}

/// A connection after the greeting, driven by the test.
async fn greeted(network: &SimNetwork) -> Stream {
    let mut stream = network.host("client").connect(&uri("").address).await.unwrap();
    assert_eq!(stream.read_u64().await.unwrap(), GREETING);
    stream.read_exact(&mut [0; 10]).await.unwrap();
    let flags = u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
    stream.write_all(&flags.to_be_bytes()).await.unwrap();
    stream
}

async fn answer(stream: &mut Stream, asked: u32, data: &[u8]) -> u32 {
    stream.write_all(&OptionHead::write(asked, data)).await.unwrap();
    let mut head = [0; OptionReplyHead::BYTES];
    stream.read_exact(&mut head).await.unwrap();
    let head = OptionReplyHead::read(&head).unwrap();
    stream.read_exact(&mut vec![0; head.length as usize]).await.unwrap();
    assert_eq!(head.option, asked);
    head.reply
}

#[test]
fn nothing_is_disclosed_before_required_tls() {
    let Scene { mut simulation, drive, network } = Scene::new(1, NetworkOptions::rack());
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let tls = TlsMode::Required(Authority::new().server("server"));
        start_with(&world, &network, vec![export("mail", &drive)], tls).await;
        let mut stream = greeted(&network).await;
        let wanted = InfoRequest { name: "mail".to_owned(), wanted: Vec::new() }.write();
        for (asked, data) in [
            (option::LIST, &[][..]),
            (option::INFO, &wanted),
            (option::GO, &wanted),
            (option::STRUCTURED_REPLY, &[]),
            (99, b"what nobody knows"),
        ] {
            assert_eq!(answer(&mut stream, asked, data).await, reply::TLS_REQUIRED, "option {asked}");
        }
        assert_eq!(answer(&mut stream, option::STARTTLS, b"data").await, reply::INVALID);
        assert_eq!(answer(&mut stream, option::ABORT, &[]).await, reply::ACK);
        let mut stream = greeted(&network).await;
        stream.write_all(&OptionHead::write(option::EXPORT_NAME, b"mail")).await.unwrap();
        assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0, "it cannot say no, and hangs up");
    });
    run.completed();
}

#[test]
fn bytes_injected_before_tls_are_not_part_of_it() {
    let Scene { mut simulation, drive, network } = Scene::new(1, NetworkOptions::rack());
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let tls = TlsMode::Required(Authority::new().server("server"));
        start_with(&world, &network, vec![export("mail", &drive)], tls).await;
        let mut stream = greeted(&network).await;
        let slipped =
            [OptionHead::write(option::STARTTLS, &[]), OptionHead::write(option::LIST, &[])].concat();
        stream.write_all(&slipped).await.unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await.unwrap();
        let behind = &heard[OptionReplyHead::BYTES..];
        // A TLS alert (RFC 8446, 5.1), and no reply to LIST.
        assert!(behind.first().is_none_or(|&kind| kind == 21) && behind.len() < 16, "{behind:?}");
    });
    run.completed();
}

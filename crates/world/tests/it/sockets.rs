//! The machine's own sockets, by TCP on loopback and in the filesystem.

use crate::in_each_engine;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{Address, IoErrorKind, Network, real::Sockets};

fn loopback() -> Address {
    Address::parse("127.0.0.1:0", 0).unwrap()
}

#[test]
fn the_peer_receives_what_was_sent() {
    in_each_engine(async |world, folder| {
        for at in [loopback(), Address::Unix(folder.join("socket"))] {
            let listener = Sockets.listen(&at).await.unwrap();
            let to = listener.address();
            let echo = world.spawn("echo", async move {
                let mut stream = listener.accept().await.unwrap().stream;
                let mut received = Vec::new();
                stream.read_to_end(&mut received).await.unwrap();
                stream.write_all(&received).await.unwrap();
                received.len()
            });
            let mut stream = Sockets.connect(&to).await.unwrap();
            let sent: Vec<u8> = (0..300_000_u32).map(|number| number as u8).collect();
            stream.write_all(&sent).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut back = Vec::new();
            stream.read_to_end(&mut back).await.unwrap();
            assert!(back == sent, "over {to}");
            assert_eq!(echo.await, sent.len());
        }
    });
}

#[test]
fn an_address_in_use_and_a_refused_connection_fail_with_one_line() {
    in_each_engine(async |_, folder| {
        let listener = Sockets.listen(&loopback()).await.unwrap();
        let taken = Sockets.listen(&listener.address()).await.err().expect("the address is in use");
        assert_eq!(taken.kind(), IoErrorKind::Busy, "{taken}");
        let to = listener.address();
        drop(listener);
        let refused = Sockets.connect(&to).await.err().expect("nobody listens");
        assert_eq!(refused.kind(), IoErrorKind::Disconnected, "{refused}");
        assert!(refused.to_string().starts_with(&format!("connecting to {to}: ")), "{refused}");
        let nowhere =
            Sockets.connect(&Address::Unix(folder.join("none"))).await.err().expect("nobody listens");
        assert_eq!(nowhere.kind(), IoErrorKind::NotFound, "{nowhere}");
    });
}

#[test]
fn a_unix_socket_is_removed_with_its_listener() {
    in_each_engine(async |_, folder| {
        let at = Address::Unix(folder.join("socket"));
        for _ in 0..2 {
            drop(Sockets.listen(&at).await.unwrap());
        }
        assert!(!folder.join("socket").exists());
        // A killed listener leaves a stale socket, which is replaced; any other file of that name stays.
        drop(std::os::unix::net::UnixListener::bind(folder.join("socket")).unwrap());
        let listener = Sockets.listen(&at).await.expect("the socket is stale");
        assert_eq!(Sockets.listen(&at).await.err().map(|error| error.kind()), Some(IoErrorKind::Busy));
        drop(listener);
        std::fs::write(folder.join("socket"), b"mine").unwrap();
        assert_eq!(Sockets.listen(&at).await.err().map(|error| error.kind()), Some(IoErrorKind::Busy));
        assert_eq!(std::fs::read(folder.join("socket")).unwrap(), b"mine");
    });
}

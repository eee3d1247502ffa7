//! The machine's own sockets, by TCP on loopback and in the filesystem.

use crate::in_both_worlds;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{Address, IoErrorKind, Network, real::Sockets};

fn loopback() -> Address {
    Address::parse("127.0.0.1:0", 0).unwrap()
}

#[test]
fn what_one_end_sends_the_other_receives() {
    in_both_worlds(async |world, folder| {
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
fn a_taken_place_and_nobody_there_are_told_in_a_line() {
    in_both_worlds(async |_, folder| {
        let listener = Sockets.listen(&loopback()).await.unwrap();
        let taken = Sockets.listen(&listener.address()).await.err().expect("it is taken");
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
fn a_socket_in_the_filesystem_is_gone_with_who_listened() {
    in_both_worlds(async |_, folder| {
        let at = Address::Unix(folder.join("socket"));
        for _ in 0..2 {
            drop(Sockets.listen(&at).await.unwrap());
        }
        assert!(!folder.join("socket").exists());
        // One that was killed leaves its socket behind; what else has that name is left alone.
        drop(std::os::unix::net::UnixListener::bind(folder.join("socket")).unwrap());
        let listener = Sockets.listen(&at).await.expect("nobody listens there any more");
        assert_eq!(Sockets.listen(&at).await.err().map(|error| error.kind()), Some(IoErrorKind::Busy));
        drop(listener);
        std::fs::write(folder.join("socket"), b"mine").unwrap();
        assert_eq!(Sockets.listen(&at).await.err().map(|error| error.kind()), Some(IoErrorKind::Busy));
        assert_eq!(std::fs::read(folder.join("socket")).unwrap(), b"mine");
    });
}
